"""OAuth 2 as data per provider: authorization code with PKCE, device code, refresh.

Ships no product's client id: a user registers one and puts it in oauth.json.
"""

from __future__ import annotations

import base64
import hashlib
import os
import secrets
import time
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Literal
from urllib.parse import parse_qs, quote, urlencode, urlsplit

import msgspec

from zot.cancel import Cancel
from zot.errors import AuthError, ConfigError, ProviderError
from zot.files import locked, read_bytes
from zot.provider.auth.store import AuthFile, Credential, Token
from zot.provider.http import open_url
from zot.provider.types import Json
from zot.text import Frozen


class AuthServer(Frozen, kw_only=True):
    """An authorization server, and its deviations from the standard."""

    client_id: str = ""
    client_secret: str = ""
    authorize_url: str = ""
    token_url: str = ""
    device_url: str = ""
    scopes: tuple[str, ...] = ()
    body: Literal["form", "json"] = "form"
    callback_host: Literal["127.0.0.1", "localhost"] = "127.0.0.1"
    callback_port: int = 0
    """0: any free port; some servers accept only one."""
    callback_path: str = "/callback"
    redirect_param: str = "redirect_uri"
    state_in_redirect: bool = False
    """Does not return the state itself: it must be part of the redirect address."""
    manual_redirect: str = ""
    """Page where the server shows the code for users to paste; empty: the callback's address."""
    params: dict[str, str] = {}
    """Additional parameters of the authorization page."""
    token_params: dict[str, str] = {}
    """Additional fields of every token request."""
    issuer: str = ""
    """Issuer that the authorization response must name, if it names one."""
    issuer_needed: bool = False
    """Whether the issuer is always sent: a response without it is from another server."""
    secret_in_header: bool = False
    """Send the client's id and secret in the header, not in the fields."""
    key_field: str = ""
    """Response field with a non-expiring key, for servers that give no token."""
    needs_client_id: bool = True


LONGEST_LIFE = 10 * 365 * 86_400
"""Maximum lifetime of a token in seconds; a later date may not be representable."""
LONGEST_LOGIN = 3_600.0

SHIPPED = os.path.join(os.path.dirname(os.path.dirname(__file__)), "data", "oauth.json")
"""The servers of providers; openrouter gives any program a key, so that no client id is needed."""


def oauth_path(home: str) -> str:
    return os.path.join(home, "oauth.json")


def server_of(provider: str, home: str) -> AuthServer:
    """Return the provider's server, overridden by the user's oauth.json.

    Raises:
        AuthError: there is none, or its client id is missing.
    """
    path = oauth_path(home)
    try:
        shipped, own = (servers_in(file).get(provider, {}) for file in (SHIPPED, path))
        server = msgspec.convert({**shipped, **own}, AuthServer)
    except (OSError, msgspec.MsgspecError, UnicodeDecodeError) as error:
        raise AuthError(f"{path!r} cannot be read: {error}") from error
    if not server.token_url:
        raise AuthError(f"no OAuth server is known for {provider!r}; use an API key, or {path!r}")
    if server.needs_client_id and not server.client_id:
        raise AuthError(
            f"OAuth with {provider!r} needs a client id of your own: put "
            f'{{"{provider}": {{"client_id": "..."}}}} in {path!r}, or use an API key'
        )
    for url in (server.authorize_url, server.token_url, server.device_url):
        check_url(url)
    return server


def servers_in(path: str) -> dict[str, dict[str, Json]]:
    data = read_bytes(path)
    return msgspec.json.decode(data, type=dict[str, dict[str, Json]]) if data else {}


def check_url(url: str) -> None:
    parts = urlsplit(url)
    local = parts.hostname in ("127.0.0.1", "localhost", "::1")
    if url and parts.scheme != "https" and not (local and parts.scheme == "http"):
        raise AuthError(f"the OAuth address {url!r} must begin with https://")


# --- authorization code ----------------------------------------------------------------------


class Attempt(Frozen):
    """A login attempt. The verifier stays in this process until the exchange."""

    url: str
    redirect_uri: str
    state: str
    verifier: str


def begin(server: AuthServer, redirect_uri: str) -> Attempt:
    """Begin a login attempt. Raises AuthError when the server has no login page."""
    if not server.authorize_url:
        raise AuthError("this OAuth server has no page to log in; use --device")
    verifier = secrets.token_urlsafe(48)
    state = secrets.token_urlsafe(24)
    if server.state_in_redirect:
        redirect_uri = f"{redirect_uri}?{urlencode({'state': state})}"
    digest = hashlib.sha256(verifier.encode()).digest()
    query = {
        "response_type": "code",
        "client_id": server.client_id,
        server.redirect_param: redirect_uri,
        "scope": " ".join(server.scopes),
        "state": "" if server.state_in_redirect else state,
        "code_challenge": base64.urlsafe_b64encode(digest).rstrip(b"=").decode(),
        "code_challenge_method": "S256",
        **server.params,
    }
    text = urlencode({name: value for name, value in query.items() if value})
    joint = "&" if "?" in server.authorize_url else "?"
    return Attempt(f"{server.authorize_url}{joint}{text}", redirect_uri, state, verifier)


def exchange(server: AuthServer, attempt: Attempt, code: str) -> Credential:
    """Exchange a code for a credential. Raises AuthError: the server refused."""
    fields = {
        "grant_type": "authorization_code",
        "code": code,
        "redirect_uri": attempt.redirect_uri,
        "client_id": server.client_id,
        "client_secret": server.client_secret,
        "code_verifier": attempt.verifier,
        "code_challenge_method": "S256",
        "state": attempt.state,
    }
    answer = _ask(server, fields)
    if server.key_field:
        key = answer.fields.get(server.key_field)
        if not isinstance(key, str) or not key:
            raise AuthError(f"the OAuth server's answer has no {server.key_field!r}")
        return Credential(api_key=key)
    return Credential(oauth=_token(server, answer))


def pasted_code(text: str, attempt: Attempt) -> str:
    """Extract the code from pasted text: the code, `code#state`, or the whole address.

    Raises:
        AuthError: it belongs to another attempt, or holds no code.
    """
    text = text.strip()
    code, state = text, ""
    if "://" in text:
        query = parse_qs(urlsplit(text).query)
        code, state = query.get("code", [""])[0], query.get("state", [""])[0]
        if not code:
            raise AuthError("the pasted address has no code in it")
    elif "#" in text:
        code, _, state = text.partition("#")
    if state and not secrets.compare_digest(state.encode(), attempt.state.encode()):
        raise AuthError("the pasted code belongs to another attempt to log in; start again")
    if not code:
        raise AuthError("nothing was pasted")
    return code


# --- device code -----------------------------------------------------------------------------


class Device(Frozen):
    device_code: str
    user_code: str
    verification_uri: str
    verification_uri_complete: str = ""
    interval: float = 5.0
    expires_in: float = 600.0


def begin_device(server: AuthServer) -> Device:
    """Begin a device login. Raises AuthError when the server has no such flow, or refuses."""
    if not server.device_url:
        raise AuthError("this OAuth server has no device login")
    fields = {"client_id": server.client_id, "scope": " ".join(server.scopes)}
    answer = post(server.device_url, _filled(fields), server.body)
    _check(answer)
    try:
        return msgspec.convert(answer.fields, Device)
    except msgspec.ValidationError as error:
        raise AuthError(f"the OAuth server's answer is not one: {error}") from error


def finish_device(server: AuthServer, device: Device, cancel: Cancel) -> Credential:
    """Wait until the user has confirmed.

    Raises:
        AuthError: the user refused, or took too long.
        Cancelled: it was given up.
    """
    interval = min(max(device.interval, 0.0), 60.0)
    deadline = time.monotonic() + min(device.expires_in, LONGEST_LOGIN)
    fields = {
        "grant_type": "urn:ietf:params:oauth:grant-type:device_code",
        "device_code": device.device_code,
        "client_id": server.client_id,
        "client_secret": server.client_secret,
    }
    while time.monotonic() < deadline:
        cancel.sleep(interval)
        answer = post(server.token_url, _filled(fields), server.body)
        match answer.fields.get("error"):
            case "authorization_pending":
                continue
            case "slow_down":
                interval += 5.0
            case _:
                _check(answer)
                return Credential(oauth=_token(server, answer))
    raise AuthError("the login was not confirmed in time; start again")


# --- refresh ---------------------------------------------------------------------------------


def refreshed(provider: str, file: AuthFile, home: str) -> Token:
    """Return a valid token, renewed if it ends soon. Only one process at a time renews it: a
    refresh token often works only once.

    Raises:
        AuthError: it has ended and cannot be renewed.
    """
    with locked(file.path):
        stored = file.get(provider)
        token = stored.oauth if stored else None
        if token is None:
            raise AuthError(f"not logged in to {provider!r}; run `zot login {provider}`")
        if not token.ends_soon():
            return token  # another process renewed it
        try:
            fresh = renewed(server_of(provider, home), token)
        except AuthError as error:
            if token.seconds_left(time.time()) > 0:
                return token
            raise AuthError(
                f"the login of {provider!r} has ended ({error}); run `zot login {provider}`"
            ) from error
        value = msgspec.to_builtins(Credential(oauth=fresh))
        file.change_locked(lambda content: content.update({provider: value}))
        return fresh


def renewed(server: AuthServer, token: Token) -> Token:
    """Renew a token. Raises AuthError."""
    if not token.refresh_token:
        raise AuthError("it cannot be renewed")
    fields = {
        "grant_type": "refresh_token",
        "refresh_token": token.refresh_token,
        "client_id": token.client_id or server.client_id,
        "client_secret": server.client_secret,
    }
    fresh = _token(server, _ask(server, fields))
    return msgspec.structs.replace(
        fresh,
        refresh_token=fresh.refresh_token or token.refresh_token,
        account_id=fresh.account_id or token.account_id,
        scope=fresh.scope or token.scope,
    )


# --- inside ----------------------------------------------------------------------------------


def _ask(server: AuthServer, fields: dict[str, str]) -> AuthAnswer:
    fields = {**fields, **server.token_params}
    headers: dict[str, str] = {}
    if server.secret_in_header and server.client_secret:
        pair = f"{quote(server.client_id, safe='')}:{quote(server.client_secret, safe='')}"
        headers["authorization"] = f"Basic {base64.b64encode(pair.encode()).decode()}"
        fields = {**fields, "client_id": "", "client_secret": ""}
    answer = post(server.token_url, _filled(fields), server.body, headers)
    _check(answer)
    return answer


def _filled(fields: dict[str, str]) -> dict[str, str]:
    return {name: value for name, value in fields.items() if value}


def _check(answer: AuthAnswer) -> None:
    error = answer.fields.get("error")
    if error is None and answer.status < 400:
        return
    # Show only the standard's fields: the rest of a response may repeat what was sent.
    about = answer.fields.get("error_description")
    words = [str(word) for word in (error, about) if isinstance(word, str)]
    raise AuthError(f"the OAuth server refused: {': '.join(words) or answer.status}")


def _token(server: AuthServer, answer: AuthAnswer) -> Token:
    def text(name: str) -> str:
        return str(answer.fields.get(name) or "")

    if not text("access_token"):
        raise AuthError("the OAuth server's answer has no access token")
    expires = answer.fields.get("expires_in")
    expiry = ""
    if isinstance(expires, int | float) and not isinstance(expires, bool):
        seconds = min(max(expires, 0), LONGEST_LIFE)
        expiry = datetime.fromtimestamp(int(time.time() + seconds), UTC).isoformat()
    return Token(
        access_token=text("access_token"),
        refresh_token=text("refresh_token"),
        token_type=text("token_type"),
        expiry=expiry.replace("+00:00", "Z"),
        scope=text("scope"),
        client_id=server.client_id,
        id_token=text("id_token"),
    )


# --- HTTP requests -----------------------------------------------------------------------------

SECONDS = 30.0
MAX_ANSWER = 1 << 20


class AuthAnswer(Frozen):
    status: int
    fields: dict[str, Json]
    """Empty when the response was no JSON object."""


def post(
    url: str,
    fields: Mapping[str, Json],
    body: Literal["form", "json"],
    more: Mapping[str, str] | None = None,
) -> AuthAnswer:
    """Send a POST with `more` headers. Raises AuthError when the server cannot be reached."""
    if body == "json":
        data, kind = msgspec.json.encode(fields), "application/json"
    else:
        data, kind = urlencode(fields).encode(), "application/x-www-form-urlencoded"
    return _sent(url, {"content-type": kind, **(more or {})}, data)


def get(url: str) -> AuthAnswer:
    """Send a GET request. Raises AuthError when the server cannot be reached."""
    return _sent(url, {}, None)


def _sent(url: str, more: Mapping[str, str], data: bytes | None) -> AuthAnswer:
    # No redirect is followed, so that no secret reaches a host the user did not name.
    host = url.partition("://")[2].partition("/")[0]
    headers = {"accept": "application/json", **more}
    try:
        with open_url(host, url, headers=headers, body=data, seconds=SECONDS) as answer:
            return AuthAnswer(answer.status, _object(answer.read_all(MAX_ANSWER)))
    except (ProviderError, ConfigError) as error:
        raise AuthError(f"{host} cannot be reached: {error}") from error


def _object(data: bytes) -> dict[str, Json]:
    try:
        value = msgspec.json.decode(data)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return {}
    return value if isinstance(value, dict) else {}
