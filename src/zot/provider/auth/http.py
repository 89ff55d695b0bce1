"""The few plain requests that logging in needs. Follows no redirect, so that nothing secret goes
to a host the user did not name.
"""

from __future__ import annotations

import urllib.error
import urllib.request
from typing import Literal
from urllib.parse import urlencode

import msgspec
from msgspec import Struct

from zot.errors import AuthError
from zot.provider.types import Json

SECONDS = 30.0
MAX_ANSWER = 1 << 20


class Answer(Struct, frozen=True):
    status: int
    fields: dict[str, Json]
    """Empty when the answer was no JSON object."""


class _NoRedirect(urllib.request.HTTPRedirectHandler):
    def redirect_request(self, *arguments: object, **named: object) -> None:
        return None


def post(url: str, fields: dict[str, str], body: Literal["form", "json"]) -> Answer:
    """Raises AuthError when the server cannot be reached."""
    if body == "json":
        data, kind = msgspec.json.encode(fields), "application/json"
    else:
        data, kind = urlencode(fields).encode(), "application/x-www-form-urlencoded"
    return _send(urllib.request.Request(url, data, {"content-type": kind}))


def _send(request: urllib.request.Request) -> Answer:
    request.add_header("accept", "application/json")
    request.add_header("user-agent", "zot")
    opener = urllib.request.build_opener(_NoRedirect)
    try:
        with opener.open(request, timeout=SECONDS) as response:
            return Answer(response.status, _object(response.read(MAX_ANSWER)))
    except urllib.error.HTTPError as error:
        with error:
            return Answer(error.code, _object(error.read(MAX_ANSWER)))
    except (OSError, ValueError) as error:
        reason = getattr(error, "reason", error)
        raise AuthError(f"{request.host} cannot be reached: {reason}") from error


def _object(data: bytes) -> dict[str, Json]:
    try:
        value = msgspec.json.decode(data)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return {}
    return value if isinstance(value, dict) else {}
