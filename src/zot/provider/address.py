"""Parses URLs, and finds the proxy set in the environment. No I/O.

Hand-written, because loading urllib would take longer than everything else before the first answer.
"""

from __future__ import annotations

from collections.abc import Mapping

from zot.errors import ConfigError
from zot.text import Frozen

PLAIN = frozenset(b"abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-._~")
DEFAULT_PORTS = {"http": 80, "https": 443}


class Address(Frozen):
    scheme: str
    host: str
    port: int
    path: str
    """Without trailing slash."""

    @property
    def netloc(self) -> str:
        return f"{self.bracketed}:{self.port}"

    @property
    def host_header(self) -> str:
        is_default = self.port == DEFAULT_PORTS[self.scheme]
        return self.bracketed if is_default else self.netloc

    @property
    def bracketed(self) -> str:
        return f"[{self.host}]" if ":" in self.host else self.host


class Proxy(Frozen):
    host: str
    port: int
    headers: dict[str, str]
    """Headers for the proxy itself: its credentials."""


def parse_url(url: str) -> Address:
    """Parse a base URL.

    Raises:
        ConfigError: it is not an http or https URL, or carries a user name.
    """
    scheme, mark, rest = url.strip().partition("://")
    scheme = scheme.lower()
    if "?" in rest or "#" in rest or "@" in rest.partition("/")[0]:
        # Checked first, and not shown: it may contain a password.
        raise ConfigError("a base URL has no user name, query or fragment: pass the key as a key")
    if not mark or scheme not in DEFAULT_PORTS:
        raise ConfigError(f"not a usable URL: {url!r}: it must start with http:// or https://")
    netloc, slash, path = rest.partition("/")
    host, port = split_netloc(netloc, url)
    if not path.isascii() or any(char <= " " for char in rest):
        raise ConfigError(f"not a usable URL: {url!r}")
    path = (slash + path).rstrip("/")
    return Address(scheme, host, port or DEFAULT_PORTS[scheme], path)


def split_query(url: str) -> tuple[str, str]:
    """Split a URL into its base and the query with its `?`; the fragment is dropped."""
    base, mark, query = url.partition("#")[0].partition("?")
    return base, mark + query


def split_netloc(netloc: str, url: str) -> tuple[str, int]:
    """Return host and port; the port is 0 if not given. Raises ConfigError."""
    host, colon, port = netloc.rpartition(":")
    if not colon or "]" in port:
        host, port = netloc, ""
    if host.startswith("[") and host.endswith("]"):
        host = host[1:-1]
    elif ":" in host or "[" in host or "]" in host:
        raise ConfigError(f"not a usable URL: {url!r}: an IPv6 address stands in brackets")
    if not host:
        raise ConfigError(f"not a usable URL: {url!r}: it names no host")
    number = int(port) if port.isascii() and port.isdigit() else 0 if not port else -1
    if not 0 <= number <= 65_535:
        raise ConfigError(f"not a usable URL: {url!r}: {port!r} is no port")
    return host.lower(), number


def proxy_for(address: Address, environ: Mapping[str, str]) -> Proxy | None:
    """Return the proxy that the environment sets for this host, if any; never for this machine."""
    if is_loopback(address.host) or in_no_proxy(address, environ):
        return None
    names = (f"{address.scheme}_proxy", f"{address.scheme.upper()}_PROXY", "all_proxy", "ALL_PROXY")
    url = next((value for name in names if (value := environ.get(name, "").strip())), "")
    return parse_proxy(url) if url else None


def parse_proxy(url: str) -> Proxy:
    scheme, mark, rest = url.rpartition("://")
    user, at, netloc = rest.partition("/")[0].rpartition("@")
    shown = f"{scheme or 'http'}://{netloc}"  # without the password
    if mark and scheme.lower() != "http":
        raise ConfigError(f"the proxy {shown} is not usable: use http://")
    host, port = split_netloc(netloc, shown)
    from binascii import b2a_base64  # deferred: proxies are rare
    from urllib.parse import unquote_to_bytes

    name, _, password = user.encode("utf-8", "replace").partition(b":")
    pair = unquote_to_bytes(name) + b":" + unquote_to_bytes(password)
    headers = {"proxy-authorization": f"Basic {b2a_base64(pair, newline=False).decode()}"}
    return Proxy(host, port or 80, headers if at else {})


def is_loopback(host: str) -> bool:
    """Return whether the host is certainly this machine, by its name or number."""
    numeric = host.replace(".", "").isdecimal() and host.isascii()
    return host in ("localhost", "::1") or (host.startswith("127.") and numeric)


def host_and_port(url: str) -> tuple[str, int]:
    """Return host and port of a URL; an empty host if it is invalid."""
    try:
        address = parse_url(url)
    except ConfigError:
        return "", 0
    return address.host, address.port


def in_no_proxy(address: Address, environ: Mapping[str, str]) -> bool:
    entries = environ.get("no_proxy") or environ.get("NO_PROXY") or ""
    host = address.host.lower()
    for entry in (part.strip().lower() for part in entries.split(",")):
        name, colon, port = entry.rpartition(":")
        if colon and port.isdigit() and not name.endswith(":"):
            if port != str(address.port):
                continue
            entry = name
        entry = entry.removeprefix("*").lstrip(".").strip("[]")
        if entry and (host == entry or host.endswith(f".{entry}")):
            return True
    return entries.strip() == "*"


def quoted(text: str) -> str:
    """Percent-encode a text as one part of a path."""
    data = text.encode("utf-8", "replace")
    return "".join(chr(byte) if byte in PLAIN else f"%{byte:02X}" for byte in data)
