"""Where a request goes: the parts of a base URL, and the proxy the environment asks for. No I/O."""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Mapping
from urllib.parse import SplitResult, unquote, urlsplit

from msgspec import Struct

from zot.errors import ConfigError


class Address(Struct, frozen=True):
    scheme: str
    host: str
    port: int
    path: str
    """Without a slash at the end."""

    @property
    def netloc(self) -> str:
        name = f"[{self.host}]" if ":" in self.host else self.host
        return f"{name}:{self.port}"


def parse_url(url: str) -> Address:
    """The parts of a base URL.

    Raises:
        ConfigError: it is not an http or https URL, or carries a user name.
    """
    try:
        parts = urlsplit(url.strip())
        port = parts.port
    except ValueError as error:
        raise ConfigError(f"not a usable URL: {url!r}: {error}") from error
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise ConfigError(f"not a usable URL: {url!r}: it must start with http:// or https://")
    if parts.username is not None or parts.query or parts.fragment:
        raise ConfigError("a base URL has no user name, query or fragment: pass the key as a key")
    if not parts.path.isascii() or any(char <= " " for char in parts.netloc + parts.path):
        raise ConfigError(f"not a usable URL: {url!r}")
    default = 443 if parts.scheme == "https" else 80
    return Address(parts.scheme, parts.hostname, port or default, parts.path.rstrip("/"))


def proxy_for(address: Address, environ: Mapping[str, str]) -> SplitResult | None:
    """The proxy that the environment names for this host, if any; never for this machine."""
    if is_loopback(address.host) or in_no_proxy(address, environ):
        return None
    names = (f"{address.scheme}_proxy", f"{address.scheme.upper()}_PROXY", "all_proxy", "ALL_PROXY")
    url = next((value for name in names if (value := environ.get(name, "").strip())), "")
    if not url:
        return None
    parts = urlsplit(url if "://" in url else f"http://{url}")
    if parts.scheme != "http" or not parts.hostname:
        raise ConfigError(f"the proxy {parts.scheme}://{parts.hostname} is not usable: use http://")
    return parts


def is_loopback(host: str) -> bool:
    return host == "localhost" or host == "::1" or host.startswith("127.")


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


def proxy_headers(proxy: SplitResult) -> dict[str, str]:
    if proxy.username is None:
        return {}
    pair = f"{unquote(proxy.username)}:{unquote(proxy.password or '')}"
    return {"proxy-authorization": "Basic " + b64encode(pair.encode()).decode()}
