"""Access control: a login code becomes a session; Host, Origin and headers are checked. No cookie
is used: browsers send those of 127.0.0.1 to all its ports, other users' servers included."""

from __future__ import annotations

import hmac
import secrets
import time
from collections.abc import Callable, Mapping
from typing import Literal
from urllib.parse import urlsplit

from msgspec import Struct

from zot.swarm.web import LOOPBACK, Refusal

Role = Literal["see", "answer", "drive"]
ORDER: tuple[Role, ...] = ("see", "answer", "drive")
"""Roles in ascending order; each includes the ones before it."""
HEADER = "x-zot"
"""Header that a form of another site cannot send."""
SESSION = "x-zot-session"
"""Header with the secret of a session."""
LINK_SECONDS = 300.0
"""Seconds until an unused code expires."""
MAX_SESSIONS = 1000
ANOTHER_LINK = "open a new link: Enter in the terminal of zot glasspane prints one"
POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; "
    "connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
SAFE_HEADERS = {
    "content-security-policy": POLICY,
    "x-content-type-options": "nosniff",
    "referrer-policy": "no-referrer",
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
    "cache-control": "no-store",
}


class LoginCode(Struct):
    """A secret that a page exchanges for a session."""

    secret: str
    role: Role
    until: float | None
    """Expiry on the guard's clock; None: a token, valid for many logins."""
    used_by: str = ""
    """Id of the click that used it; that click may ask again if it missed the answer."""
    session: str = ""


class Guard:
    def __init__(self, hosts: frozenset[str], clock: Callable[[], float] = time.monotonic) -> None:
        """`hosts`: the names with ports under which the page may be reached."""
        self._hosts = hosts
        self._clock = clock
        self._codes: list[LoginCode] = []
        self._sessions: dict[str, Role] = {}

    # --- codes and sessions ------------------------------------------------------------------

    def new_code(self, role: Role) -> str:
        """Make a code for one login within LINK_SECONDS."""
        now = self._clock()
        self._codes = [code for code in self._codes if code.until is None or code.until > now]
        return self._add(role, now + LINK_SECONDS)

    def new_token(self, role: Role) -> str:
        """Make a token for any number of logins, for people on other machines."""
        return self._add(role, None)

    def log_in(self, secret: str, click: str) -> tuple[str, Role]:
        """Return a session and its role for a code or token. Raises Refusal."""
        for code in list(self._codes):
            if _is_same(secret, code.secret) and self._may_use(code, click):
                if not (click and code.used_by == click):
                    code.used_by, code.session = click, secrets.token_urlsafe(32)
                    self._sessions[code.session] = code.role
                    while len(self._sessions) > MAX_SESSIONS:
                        del self._sessions[next(iter(self._sessions))]
                return code.session, code.role
        raise Refusal(401, f"this code is not known, was used or is too old: {ANOTHER_LINK}")

    def role(self, headers: Mapping[str, str]) -> Role | None:
        """Return the role of the session in the headers; None: no such session."""
        shown = headers.get(SESSION, "")
        known: Role | None = None
        for secret, role in list(self._sessions.items()):  # no early exit: constant time
            if _is_same(shown, secret):
                known = role
        return known

    def need(self, headers: Mapping[str, str], role: Role = ORDER[0]) -> Role:
        """Return the session's role. Raises Refusal if it is less than `role`."""
        have = self.role(headers)
        if have is None:
            raise Refusal(401, f"this page has no session: {ANOTHER_LINK}")
        if ORDER.index(have) < ORDER.index(role):
            raise Refusal(403, f"this session may {have}, not {role}")
        return have

    def _add(self, role: Role, until: float | None) -> str:
        secret = secrets.token_urlsafe(32)
        self._codes.append(LoginCode(secret, role, until))
        return secret

    def _may_use(self, code: LoginCode, click: str) -> bool:
        if code.until is None:
            return True
        is_free = not code.session or bool(click and code.used_by == click)
        return is_free and self._clock() < code.until

    # --- requests ----------------------------------------------------------------------------

    def check_host(self, headers: Mapping[str, str]) -> None:
        """Refuse unknown host names, which may point here (DNS rebinding)."""
        host = headers.get("host", "").lower()
        if host not in self._hosts:
            raise Refusal(421, f"this page is not called {host!r}")

    def check_origin(self, headers: Mapping[str, str]) -> None:
        """Refuse changes that do not come from our own page."""
        if headers.get(HEADER) != "1":
            raise Refusal(403, f"the header {HEADER} is missing")
        origin = headers.get("origin", "")
        if origin and urlsplit(origin).netloc.lower() not in self._hosts:
            raise Refusal(403, f"not from {origin!r}")


def _is_same(shown: str, secret: str) -> bool:
    return hmac.compare_digest(shown.encode(errors="replace"), secret.encode())


def names_of(host: str, port: int, further: tuple[str, ...] = ()) -> frozenset[str]:
    """Return the host names with ports under which browsers may reach this server."""
    names = {host, *further}
    if host in LOOPBACK:
        names |= {"127.0.0.1", "localhost", "[::1]"}
    return frozenset(f"{name}:{port}".lower() for name in names)
