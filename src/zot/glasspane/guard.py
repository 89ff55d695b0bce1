"""Who may see and do what: a token becomes a cookie; Host, Origin and a header are checked."""

from __future__ import annotations

import hmac
import secrets
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Literal
from urllib.parse import urlsplit

from msgspec import Struct

from zot.files import locked, read_bytes, write_atomic
from zot.home import PAGE_TOKENS
from zot.swarm.web import LOOPBACK, Refusal
from zot.text import cookie_of

Role = Literal["see", "answer", "drive"]
ORDER: tuple[Role, ...] = ("see", "answer", "drive")
"""Each may do what those before it may."""
HEADER = "x-zot"
"""A form of another site cannot send it."""
POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; "
    "connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
MAX_TOKENS = 60
"""Kept for agents; those of pages that are closed do no harm."""
SAFE_HEADERS = {
    "content-security-policy": POLICY,
    "x-content-type-options": "nosniff",
    "referrer-policy": "no-referrer",
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
    "cache-control": "no-store",
}


class Guard(Struct, frozen=True):
    tokens: Mapping[Role, str]
    hosts: frozenset[str]
    """Names and ports that the page may be called by."""
    port: int
    """Part of the cookie's name: a browser sends those of one port to all ports of a machine."""
    secure: bool = False
    """Served with TLS: the cookie is only sent so."""

    def check_host(self, headers: Mapping[str, str]) -> None:
        """A name of a stranger's that points here must not see the page (DNS rebinding)."""
        host = headers.get("host", "").lower()
        if host not in self.hosts:
            raise Refusal(421, f"this page is not called {host!r}")

    def check_origin(self, headers: Mapping[str, str]) -> None:
        """Only our own page may change something."""
        if headers.get(HEADER) != "1":
            raise Refusal(403, f"the header {HEADER} is missing")
        origin = headers.get("origin", "")
        if origin and urlsplit(origin).netloc.lower() not in self.hosts:
            raise Refusal(403, f"not from {origin!r}")

    def role(self, headers: Mapping[str, str]) -> Role | None:
        """What the browser with this cookie may do."""
        return self.role_of(cookie_of(headers.get("cookie", ""), self._name))

    @property
    def _name(self) -> str:
        return f"zot_glasspane_{self.port}"

    def role_of(self, token: str) -> Role | None:
        known: Role | None = None
        for role, expected in self.tokens.items():  # all of them, in the same time
            if hmac.compare_digest(token.encode(), expected.encode()):
                known = role
        return known

    def need(self, headers: Mapping[str, str], role: Role = ORDER[0]) -> Role:
        """What the browser may do, which is this at least."""
        have = self.role(headers)
        if have is None:
            raise Refusal(401, "open the page with the address that zot glasspane printed")
        if ORDER.index(have) < ORDER.index(role):
            raise Refusal(403, f"this token may {have}, not {role}")
        return have

    def cookie(self, token: str) -> str:
        return f"{self._name}={token}; Path=/; HttpOnly; SameSite=Strict" + (
            "; Secure" if self.secure else ""
        )


def new_token() -> str:
    return secrets.token_urlsafe(32)


def keep_tokens(home: Path, tokens: Iterable[str]) -> None:
    """Write tokens down where agents learn what they must not show: a browser has its address, with
    the token, among its arguments, which any command can list. Raises OSError."""
    path = home / PAGE_TOKENS
    with locked(path):
        before = (read_bytes(path) or b"").decode(errors="replace").split()
        lines = [*before, *tokens][-MAX_TOKENS:]
        write_atomic(path, "".join(f"{line}\n" for line in lines).encode())


def names_of(host: str, port: int, further: tuple[str, ...] = ()) -> frozenset[str]:
    """What a browser may call this server."""
    names = {host, *further}
    if host in LOOPBACK:
        names |= {"127.0.0.1", "localhost", "[::1]"}
    return frozenset(f"{name}:{port}".lower() for name in names)
