"""OAuth 2.1 for HTTP servers: find the authorization server, register, log in, renew.

A server's login metadata is not trusted: addresses must be https or local, and may be on this
machine or its network only if the server is; the issuer must be the requested one, and a token is
used only for the server it was issued for.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterable
from contextlib import closing
from urllib.parse import urlsplit

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from zot.cancel import Cancel
from zot.errors import AuthError
from zot.files import locked
from zot.mcp.config import OAuthConfig
from zot.mcp.link import McpLogin
from zot.mcp.reach import check_reach
from zot.provider.auth import oauth
from zot.provider.auth.http import get, post
from zot.provider.auth.oauth import AuthServer
from zot.provider.auth.page import CallbackPage
from zot.provider.auth.store import AuthFile, Credential, Token
from zot.provider.types import Json
from zot.text import Frozen, prepared

MARGIN = 60.0
"""Seconds before expiry at which a token is renewed."""
MAX_LOGINS = 3
"""Maximum number of logins per connection, for more scopes."""
PREFIX = "mcp:"
"""Prefix of the names of these credentials in auth.json."""

# Match whole names from their beginning only: otherwise the time is quadratic.
_PARAMETER = re.compile(r'(?<![A-Za-z_])([A-Za-z_]++)\s*+=\s*(?:"((?:[^"\\]|\\.)*)"|([^\s,"]+))')
ShowPage = Callable[[str], None]
"""Shows an address to the user in a browser."""


class Challenge(Frozen):
    """The parameters of a server's refusal."""

    metadata: str = ""
    scope: str = ""
    error: str = ""


class Login(Frozen, omit_defaults=True):
    """Data stored with a token: enough to renew it."""

    server: AuthServer
    resource: str
    registered: bool = False


prepared(Login)


class _Metadata(Struct):
    """RFC 8414, the fields in use."""

    issuer: str = ""
    authorization_endpoint: str = ""
    token_endpoint: str = ""
    registration_endpoint: str = ""
    scopes_supported: tuple[str, ...] | None = None
    token_endpoint_auth_methods_supported: tuple[str, ...] | None = None
    code_challenge_methods_supported: tuple[str, ...] | None = None
    client_id_metadata_document_supported: bool = False
    authorization_response_iss_parameter_supported: bool = False


class ProtectedResource(Struct):
    """RFC 9728."""

    resource: str = ""
    authorization_servers: tuple[str, ...] = ()
    scopes_supported: tuple[str, ...] | None = None


# --- discovery -------------------------------------------------------------------------------


def read_challenge(header: str) -> Challenge:
    """Parse `WWW-Authenticate`; never raises."""
    if "bearer" not in header.lower():
        return Challenge()
    parameters = {
        name.lower(): plain or re.sub(r"\\(.)", r"\1", quoted)
        for name, quoted, plain in _PARAMETER.findall(header)
    }
    return Challenge(
        parameters.get("resource_metadata", ""),
        parameters.get("scope", ""),
        parameters.get("error", ""),
    )


def resource_addresses(url: str, named: str) -> list[str]:
    """Return the addresses where a server may describe its login."""
    if named:
        return [named]
    parts = urlsplit(url)
    root = f"{parts.scheme}://{parts.netloc}/.well-known/oauth-protected-resource"
    path = parts.path.rstrip("/")
    return [root + path, root] if path else [root]


def issuer_addresses(issuer: str) -> list[str]:
    """Return the addresses where an authorization server may describe itself."""
    parts = urlsplit(issuer)
    root, path = f"{parts.scheme}://{parts.netloc}", parts.path.rstrip("/")
    if not path:
        return [
            f"{root}/.well-known/oauth-authorization-server",
            f"{root}/.well-known/openid-configuration",
        ]
    return [
        f"{root}/.well-known/oauth-authorization-server{path}",
        f"{root}/.well-known/openid-configuration{path}",
        f"{root}{path}/.well-known/openid-configuration",
    ]


def covers(resource: str, url: str) -> bool:
    """Whether a token for the resource is valid for the server at this address."""
    ours, theirs = urlsplit(url), urlsplit(resource)
    same = (ours.scheme, ours.netloc.lower()) == (theirs.scheme, theirs.netloc.lower())
    path = theirs.path.rstrip("/")
    return same and (ours.path.rstrip("/") == path or f"{ours.path}/".startswith(f"{path}/"))


def canonical(url: str) -> str:
    """Return the address of a server as tokens name it."""
    parts = urlsplit(url)
    return f"{parts.scheme.lower()}://{parts.netloc.lower()}{parts.path}"


def _fetched(addresses: Iterable[str], kind: type[Json], server: str) -> Json:
    """Return the first document found at the addresses; None: there is none. `server` is the one
    that named them."""
    for address in addresses:
        check_reach(address, server)
        answer = get(address)
        if answer.status == 200 and answer.fields:
            try:
                return msgspec.convert(answer.fields, kind)
            except msgspec.ValidationError as error:
                raise AuthError(f"{address!r} makes no sense: {error}") from error
    return None


class Found(Frozen):
    """Discovered facts about a login."""

    metadata: _Metadata
    resource: str
    """Empty: an old server without resource indicators."""
    scopes: tuple[str, ...] | None


def discover(url: str, challenge: Challenge) -> Found:
    """Find the authorization server of a server. Raises AuthError: there is none, its metadata is
    contradictory, or it points to this machine from a remote server."""
    discovered = _discover(url, challenge)
    metadata = discovered.metadata
    for address in (
        metadata.authorization_endpoint,
        metadata.token_endpoint,
        metadata.registration_endpoint,
    ):
        if address:
            check_reach(address, url)
    return discovered


def _discover(url: str, challenge: Challenge) -> Found:
    resource = _fetched(resource_addresses(url, challenge.metadata), ProtectedResource, url)
    if resource is None:
        return _discover_old(url)
    if resource.resource and not covers(resource.resource, url):
        raise AuthError(
            f"the server describes the login of another one: {resource.resource!r}, not {url!r}"
        )
    if not resource.authorization_servers:
        raise AuthError("the server names no authorization server")
    issuer = resource.authorization_servers[0]
    metadata = _fetched(issuer_addresses(issuer), _Metadata, url)
    if metadata is None:
        raise AuthError(f"the authorization server {issuer!r} does not describe itself")
    if metadata.issuer != issuer:
        raise AuthError(f"the authorization server {issuer!r} says that it is {metadata.issuer!r}")
    if "S256" not in (metadata.code_challenge_methods_supported or ()):
        raise AuthError(f"the authorization server {issuer!r} does not offer PKCE")
    return Found(metadata, resource.resource or canonical(url), resource.scopes_supported)


def _discover_old(url: str) -> Found:
    """Servers of 2025-03-26 are their own authorization server, possibly without metadata."""
    parts = urlsplit(url)
    root = f"{parts.scheme}://{parts.netloc}"
    metadata = _fetched(issuer_addresses(root), _Metadata, url)
    if metadata is None:
        metadata = _Metadata(root, f"{root}/authorize", f"{root}/token", f"{root}/register")
    return Found(metadata, "", metadata.scopes_supported)


# --- client registration ---------------------------------------------------------------------


def _registered(metadata: _Metadata, redirect: str) -> dict[str, Json]:
    """Register zot with an authorization server. Raises AuthError."""
    if not metadata.registration_endpoint:
        raise AuthError(
            "the authorization server wants a client id of your own: register one, and put it into "
            'the entry of the server, as "oauth": {"client_id": "..."}'
        )
    oauth.check_url(metadata.registration_endpoint)
    methods = metadata.token_endpoint_auth_methods_supported or ("client_secret_basic",)
    known = [way for way in ("none", "client_secret_basic", "client_secret_post") if way in methods]
    if not known:
        raise AuthError(f"the authorization server knows only logins that zot does not: {methods}")
    asked = {
        "client_name": "zot",
        "application_type": "native",
        "redirect_uris": [redirect],
        "grant_types": ["authorization_code", "refresh_token"],
        "response_types": ["code"],
        "token_endpoint_auth_method": known[0],
    }
    answer = post(metadata.registration_endpoint, asked, "json")
    if answer.status >= 400 or not isinstance(answer.fields.get("client_id"), str):
        raise AuthError(f"the authorization server does not let zot register ({answer.status})")
    return answer.fields


def _client(
    discovered: Found, own: OAuthConfig, known: Login | None, redirect: str
) -> tuple[str, str, str]:
    """Return client id, secret and authentication method for an authorization server."""
    metadata = discovered.metadata
    methods = metadata.token_endpoint_auth_methods_supported or ("client_secret_basic",)
    if own.client_id:
        basic = "client_secret_basic" in methods
        return own.client_id, own.client_secret, "basic" if basic else "post"
    if own.client_metadata_url and metadata.client_id_metadata_document_supported:
        return own.client_metadata_url, "", "none"
    if known is not None and known.registered and known.server.issuer == metadata.issuer:
        server = known.server
        way = "basic" if server.secret_in_header else "post"
        return server.client_id, server.client_secret, way
    fields = _registered(metadata, redirect)
    secret = str(fields.get("client_secret") or "")
    way = str(fields.get("token_endpoint_auth_method") or "client_secret_basic")
    return str(fields["client_id"]), secret, way.removeprefix("client_secret_")


# --- logging in ------------------------------------------------------------------------------


def log_in(
    url: str,
    challenge: Challenge,
    own: OAuthConfig,
    known: Login | None,
    scopes: Iterable[str],
    show: ShowPage,
    cancel: Cancel,
) -> tuple[Login, Token]:
    """Let the user log in to a server. `scopes` are earlier ones to keep. Raises AuthError: the
    login failed; Cancelled: it was aborted."""
    discovered = discover(url, challenge)
    server = _server_of(discovered, challenge, own, scopes)
    before = known.server.callback_port if known is not None and known.registered else 0
    port = own.callback_port or before
    try:
        page = CallbackPage(replace(server, callback_port=port))
    except AuthError:
        page = CallbackPage(replace(server, callback_port=0))
    with closing(page):
        redirect = page.attempt.redirect_uri
        client_id, secret, way = _client(discovered, own, known, redirect)
        server = replace(
            server,
            client_id=client_id,
            client_secret="" if way == "none" else secret,
            secret_in_header=way == "basic",
            callback_port=int(urlsplit(redirect).port or 0),
        )
        page.begin(server)
        show(page.attempt.url)
        code = page.wait(cancel)
        credential = oauth.exchange(server, page.attempt, code)
    if credential.oauth is None:
        raise AuthError("the authorization server gave no token")
    return Login(server, url, not own.client_id), credential.oauth


def _server_of(
    discovered: Found, challenge: Challenge, own: OAuthConfig, scopes: Iterable[str]
) -> AuthServer:
    metadata = discovered.metadata
    for address in (metadata.authorization_endpoint, metadata.token_endpoint):
        if not address:
            raise AuthError("the authorization server does not say where to log in")
        oauth.check_url(address)
    wanted = own.scopes or tuple(challenge.scope.split()) or discovered.scopes or ()
    resource = {"resource": discovered.resource} if discovered.resource else {}
    return AuthServer(
        authorize_url=metadata.authorization_endpoint,
        token_url=metadata.token_endpoint,
        scopes=tuple(dict.fromkeys((*scopes, *wanted))),
        params=resource,
        token_params=resource,
        issuer=metadata.issuer,
        issuer_needed=metadata.authorization_response_iss_parameter_supported,
    )


# --- for a link ------------------------------------------------------------------------------


class LoginFile:
    """The logins in auth.json, one per address; zot redacts the contents of this file from all
    output."""

    def __init__(self, home: str) -> None:
        self._file = AuthFile(home)

    def get(self, url: str) -> tuple[Login | None, Token | None]:
        """Raises AuthError when the file is broken."""
        credential = self._file.get(PREFIX + canonical(url))
        if credential is None:
            return None, None
        try:
            return msgspec.convert(credential.details, Login), credential.oauth
        except msgspec.ValidationError:
            return None, credential.oauth

    def put(self, url: str, login: Login, token: Token) -> None:
        kept: dict[str, Json] = msgspec.to_builtins(login)
        self._file.put(PREFIX + canonical(url), Credential(oauth=token, details=kept))

    def remove(self, url: str) -> bool:
        return self._file.remove(PREFIX + canonical(url))

    @property
    def path(self) -> str:
        return self._file.path


class McpAuth:
    """The login for one server. Without `show` nobody can log in here: McpLogin then names the
    command for it."""

    def __init__(
        self, name: str, url: str, own: OAuthConfig, home: str, show: ShowPage | None = None
    ) -> None:
        self._name = name
        self._url = url
        self._own = own
        self._file = LoginFile(home)
        self._show = show
        self._logins = 0
        self._renewed = False

    def header(self) -> str:
        """Return the `Authorization` header; empty: none."""
        login, token = self._file.get(self._url)
        if token is None:
            return ""
        if login is not None and token.seconds_left(time.time()) < MARGIN:
            token = self._renew() or token
        return f"Bearer {token.access_token}"

    def challenged(self, status: int, challenge: str, cancel: Cancel) -> bool:
        """Handle a refusal; True: credentials changed, repeat the request. Raises McpLogin when the
        user has to log in, Cancelled."""
        said = read_challenge(challenge)
        if status == 403 and said.error != "insufficient_scope":
            return False
        if status == 401 and not self._renewed and self._renew() is not None:
            self._renewed = True
            return True
        if self._show is None:
            raise McpLogin(f"it wants a login: run `zot mcp login {self._name}`")
        if self._logins >= MAX_LOGINS:
            raise McpLogin("it wants another login again and again")
        self._logins += 1
        self.log_in(said, cancel)
        return True

    def log_in(self, challenge: Challenge, cancel: Cancel) -> None:
        """Let the user log in, even if there is a login already. Raises McpLogin, Cancelled."""
        assert self._show is not None  # callers have a browser
        try:
            login, token = self._file.get(self._url)
            before = (token.scope.split() if token is not None else []) or (
                login.server.scopes if login is not None else ()
            )
            kept = before if challenge.error == "insufficient_scope" else ()
            login, token = log_in(self._url, challenge, self._own, login, kept, self._show, cancel)
            self._file.put(self._url, login, token)
        except AuthError as error:
            raise McpLogin(f"the login failed: {error}") from error

    def _renew(self) -> Token | None:
        """Renew the token with the refresh token, one process at a time; None: not possible."""
        with locked(self._file.path + ".mcp"):
            login, token = self._file.get(self._url)
            if login is None or token is None or not token.refresh_token:
                return None
            try:
                fresh = oauth.renewed(login.server, token)
            except AuthError:
                return None
            self._file.put(self._url, login, fresh)
            return fresh
