"""HTTP requests for logging in. Follows no redirect, so that no secret reaches a host the user did
not name.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal
from urllib.parse import urlencode

import msgspec

from zot.errors import AuthError, ConfigError, ProviderError
from zot.provider.http import open_url
from zot.provider.types import Json
from zot.text import Frozen

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
    return _ask(url, {"content-type": kind, **(more or {})}, data)


def get(url: str) -> AuthAnswer:
    """Send a GET request. Raises AuthError when the server cannot be reached."""
    return _ask(url, {}, None)


def _ask(url: str, more: Mapping[str, str], data: bytes | None) -> AuthAnswer:
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
