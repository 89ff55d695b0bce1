"""Check of addresses that a server names: a remote server must not make zot connect to this machine
or its network, where other services trust every local client."""

from __future__ import annotations

import ipaddress
import socket
from urllib.parse import urlsplit

from zot.errors import AuthError
from zot.provider.auth import oauth


def check_reach(address: str, server: str) -> None:
    """Raises AuthError: the address is not https, or is local while the server is remote."""
    oauth.check_url(address)
    if _is_near(address) and not _is_near(server):
        raise AuthError(
            f"the server at {server!r} names {address!r} for its login, which is on this machine "
            "or its network; it is not asked"
        )


def _is_near(url: str) -> bool:
    """Whether the host is this machine, or in a network that is not public."""
    try:
        host = urlsplit(url).hostname or ""
    except ValueError:
        return True
    if not host or host == "localhost" or host.endswith(".localhost"):
        return True
    try:
        return not ipaddress.ip_address(host.partition("%")[0]).is_global
    except ValueError:
        pass
    try:
        rows = socket.getaddrinfo(host, None, type=socket.SOCK_STREAM)
    except (OSError, UnicodeError):
        return False  # unreachable as well
    hosts = {str(row[4][0]).partition("%")[0] for row in rows}
    return any(not ipaddress.ip_address(text).is_global for text in hosts)
