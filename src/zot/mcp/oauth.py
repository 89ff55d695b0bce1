"""OAuth 2.1 for HTTP servers: find the authorization server, register, log in, renew.

A server's login metadata is not trusted: addresses must be https or local, and may be on this
machine or its network only if the server is; the issuer must be the requested one, and a token is
used only for the server it was issued for.
"""

from __future__ import annotations

import ipaddress
import re
import socket
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
from zot.provider.auth import oauth
from zot.provider.auth.oauth import AuthServer, get, post
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


class Discovered(Frozen):
    """Facts about the login of a server."""

    metadata: _Metadata
    resource: str
    """Empty: an old server without resource indicators."""
    scopes: tuple[str, ...] | None


# --- discovery -------------------------------------------------------------------------------


def check_reach(address: str, server: str) -> None:
    """Raises AuthError: the address is not https, or is local while the server is remote, which
    must not make zot connect to services that trust every local client."""
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
    words = ("oauth-authorization-server", "openid-configuration")
    addresses = [f"{root}/.well-known/{word}{path}" for word in words]
    return [*addresses, f"{root}{path}/.well-known/{words[1]}"] if path else addresses


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
                raise AuthError(f"{address!r} holds invalid metadata: {error}") from error
    return None


def discover(url: str, challenge: Challenge) -> Discovered:
    """Find the authorization server of a server. Raises AuthError: there is none, its metadata is
    contradictory, or it points to this machine from a remote server."""
    resource = _fetched(resource_addresses(url, challenge.metadata), ProtectedResource, url)
    discovered = _discover_old(url) if resource is None else _discover(url, resource)
    metadata = discovered.metadata
    if not metadata.authorization_endpoint or not metadata.token_endpoint:
        raise AuthError("the authorization server does not say where to log in")
    for address in (
        metadata.authorization_endpoint,
        metadata.token_endpoint,
        metadata.registration_endpoint,
    ):
        if address:
            check_reach(address, url)
    return discovered


def _discover(url: str, resource: ProtectedResource) -> Discovered:
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
    return Discovered(metadata, resource.resource or canonical(url), resource.scopes_supported)


def _discover_old(url: str) -> Discovered:
    """Servers of 2025-03-26 are their own authorization server, possibly without metadata."""
    parts = urlsplit(url)
    root = f"{parts.scheme}://{parts.netloc}"
    metadata = _fetched(issuer_addresses(root), _Metadata, url)
    if metadata is None:
        metadata = _Metadata(root, f"{root}/authorize", f"{root}/token", f"{root}/register")
    return Discovered(metadata, "", metadata.scopes_supported)


# --- client registration ---------------------------------------------------------------------


def _registered(metadata: _Metadata, redirect: str) -> dict[str, Json]:
    """Register zot with an authorization server. Raises AuthError."""
    if not metadata.registration_endpoint:
        raise AuthError(
            "the authorization server wants a client id of your own: register one, and put it into "
            'the entry of the server, as "oauth": {"client_id": "..."}'
        )
    methods = metadata.token_endpoint_auth_methods_supported or ("client_secret_basic",)
    known = [way for way in ("none", "client_secret_basic", "client_secret_post") if way in methods]
    if not known:
        raise AuthError(f"the authorization server knows only logins that zot does not: {methods}")
    registration = {
        "client_name": "zot",
        "application_type": "native",
        "redirect_uris": [redirect],
        "grant_types": ["authorization_code", "refresh_token"],
        "response_types": ["code"],
        "token_endpoint_auth_method": known[0],
    }
    answer = post(metadata.registration_endpoint, registration, "json")
    if answer.status >= 400 or not isinstance(answer.fields.get("client_id"), str):
        raise AuthError(f"the authorization server does not let zot register ({answer.status})")
    return answer.fields


def _client(
    metadata: _Metadata, own: OAuthConfig, known: Login | None, redirect: str
) -> tuple[str, str, str]:
    """Return client id, secret and authentication method for an authorization server."""
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


# --- the login of one server -----------------------------------------------------------------


class LoginFile:
    """The logins in auth.json, one per address; zot redacts the contents of this file from all
    output."""

    def __init__(self, home: str) -> None:
        self._file = AuthFile(home)
        self.path = self._file.path

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
        details: dict[str, Json] = msgspec.to_builtins(login)
        self._file.put(PREFIX + canonical(url), Credential(oauth=token, details=details))

    def remove(self, url: str) -> bool:
        return self._file.remove(PREFIX + canonical(url))


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

    def challenged(self, status: int, header: str, cancel: Cancel) -> bool:
        """Handle a refusal; True: credentials changed, repeat the request. Raises McpLogin when the
        user has to log in, Cancelled."""
        challenge = read_challenge(header)
        if status == 403 and challenge.error != "insufficient_scope":
            return False
        if status == 401 and not self._renewed and self._renew() is not None:
            self._renewed = True
            return True
        if self._show is None:
            raise McpLogin(f"it wants a login: run `zot mcp login {self._name}`")
        if self._logins >= MAX_LOGINS:
            raise McpLogin("it wants another login again and again")
        self._logins += 1
        try:
            self._log_in(challenge, self._show, cancel)
        except AuthError as error:
            raise McpLogin(f"the login failed: {error}") from error
        return True

    def _log_in(self, challenge: Challenge, show: ShowPage, cancel: Cancel) -> None:
        """Let the user log in, even if there is a login already. Raises AuthError, Cancelled."""
        from zot.provider.auth.page import CallbackPage  # few runs have a login

        own = self._own
        known, token = self._file.get(self._url)
        discovered = discover(self._url, challenge)
        server = self._auth_server(discovered, challenge, known, token)
        before = known.server.callback_port if known is not None and known.registered else 0
        try:
            page = CallbackPage(replace(server, callback_port=own.callback_port or before))
        except AuthError:
            page = CallbackPage(replace(server, callback_port=0))
        with closing(page):
            redirect = page.attempt.redirect_uri
            client_id, secret, way = _client(discovered.metadata, own, known, redirect)
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
        login = Login(server, self._url, not own.client_id)
        self._file.put(self._url, login, credential.oauth)

    def _auth_server(
        self,
        discovered: Discovered,
        challenge: Challenge,
        known: Login | None,
        token: Token | None,
    ) -> AuthServer:
        scopes: Iterable[str] = ()
        if challenge.error == "insufficient_scope":  # keep the earlier ones
            scopes = (token.scope.split() if token is not None else []) or (
                known.server.scopes if known is not None else ()
            )
        wanted = self._own.scopes or tuple(challenge.scope.split()) or discovered.scopes or ()
        resource = {"resource": discovered.resource} if discovered.resource else {}
        metadata = discovered.metadata
        return AuthServer(
            authorize_url=metadata.authorization_endpoint,
            token_url=metadata.token_endpoint,
            scopes=tuple(dict.fromkeys((*scopes, *wanted))),
            params=resource,
            token_params=resource,
            issuer=metadata.issuer,
            issuer_needed=metadata.authorization_response_iss_parameter_supported,
        )

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
