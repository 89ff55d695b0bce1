"""Requests of an ACP client: methods and their parameters as structs. Decoding is as lenient as the
protocol's schema says: an invalid optional field counts as absent, a bad list item is skipped.

Needed for the answer to `initialize`, so it imports little.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypeVar, get_args, get_origin

import msgspec
from msgspec import NODEFAULT, Raw, Struct, field
from msgspec.structs import fields

from zot.jsonrpc import INVALID_PARAMS, METHOD_NOT_FOUND, RpcError, RpcId
from zot.text import Frozen

LOGIN = "zot-login"
"""Id of the only login method, as in `initialize`."""
Params = TypeVar("Params", bound=Struct)
JsonObject = dict[str, Any]


class _Lenient(Frozen, rename="camel"):
    """Optional fields have a default, which also replaces an invalid value."""


# --- capabilities of the client --------------------------------------------------------------


class ConfigAbilities(_Lenient):
    boolean: JsonObject | None = None


class SessionAbilities(_Lenient):
    compaction: JsonObject | None = None
    notices: JsonObject | None = None
    config_options: ConfigAbilities = ConfigAbilities()


class AuthAbilities(_Lenient):
    terminal: bool = False


class ElicitationAbilities(_Lenient):
    form: JsonObject | None = None


class ClientAbilities(_Lenient):
    """Capabilities in use; `fs` and `terminal` give stale content, and disappear in version 2."""

    session: SessionAbilities = SessionAbilities()
    auth: AuthAbilities = AuthAbilities()
    elicitation: ElicitationAbilities = ElicitationAbilities()
    meta: JsonObject = field(default_factory=dict, name="_meta")

    @property
    def terminal_auth(self) -> bool:
        return self.auth.terminal or self.meta.get("terminal-auth") is True


# --- requests: the tag of a struct is its method ---------------------------------------------


class Initialize(_Lenient, tag="initialize"):
    protocol_version: int
    client_capabilities: ClientAbilities = ClientAbilities()


class Authenticate(_Lenient, tag="authenticate"):
    method_id: str


class Logout(_Lenient, tag="logout"): ...


class NewSession(_Lenient, tag="session/new"):
    cwd: str
    mcp_servers: tuple[JsonObject, ...] = ()
    """Raw entries of the client; the MCP client parses them."""


class OfSession(_Lenient):
    session_id: str


class StoredSession(OfSession):
    cwd: str
    mcp_servers: tuple[JsonObject, ...] = ()


class LoadSession(StoredSession, tag="session/load"): ...


class ResumeSession(StoredSession, tag="session/resume"): ...


class ListSessions(_Lenient, tag="session/list"):
    cwd: str | None = None
    cursor: str | None = None


class CloseSession(OfSession, tag="session/close"): ...


class DeleteSession(OfSession, tag="session/delete"): ...


class Prompt(OfSession, tag="session/prompt"):
    prompt: list[Any]
    """Content blocks; session.py parses them."""


class SetMode(OfSession, tag="session/set_mode"):
    mode_id: str


class SetConfigOption(OfSession, tag="session/set_config_option"):
    config_id: str
    value: str | bool


# --- notifications ---------------------------------------------------------------------------


class Cancel(OfSession, tag="session/cancel"): ...


class CancelRequest(_Lenient, tag="$/cancel_request"):
    request_id: RpcId


SlowRequest = (
    Authenticate
    | Logout
    | NewSession
    | LoadSession
    | ResumeSession
    | ListSessions
    | CloseSession
    | DeleteSession
)
"""Requests that read files, start things or wait; each is answered by its own thread."""
AcpRequest = Initialize | Prompt | SetMode | SetConfigOption | SlowRequest
AcpNotification = Cancel | CancelRequest


def _by_method(*kinds: Any) -> dict[str, Any]:
    return {kind.__struct_config__.tag: kind for kind in kinds}


REQUESTS: Mapping[str, type[AcpRequest]] = _by_method(*get_args(AcpRequest))
NOTIFICATIONS: Mapping[str, type[AcpNotification]] = _by_method(*get_args(AcpNotification))


def read_request(method: str, params: Raw) -> AcpRequest:
    """Decode a request. Raises RpcError: there is no such method, or a required field is missing or
    invalid."""
    kind = REQUESTS.get(method)
    if kind is None:
        raise RpcError(METHOD_NOT_FOUND, f"there is no method {method!r}")
    return _read(method, params, kind)


def read_notification(method: str, params: Raw) -> AcpNotification | None:
    """Decode a notification; None: it is unknown or invalid."""
    kind = NOTIFICATIONS.get(method)
    try:
        return None if kind is None else _read(method, params, kind)
    except RpcError:
        return None


def _read(method: str, params: Raw, kind: type[Params]) -> Params:
    try:
        return lenient(msgspec.json.decode(params), kind)
    except (msgspec.ValidationError, msgspec.DecodeError, RecursionError) as error:
        raise RpcError(INVALID_PARAMS, f"{method}: {error}") from error


def lenient(value: Any, kind: type[Params]) -> Params:
    """Convert a JSON object to a struct. Raises msgspec.ValidationError: it is no object, or a
    field without a default is missing or invalid."""
    if not isinstance(value, dict):
        raise msgspec.ValidationError(f"expected an object, got {type(value).__name__}")
    taken: dict[str, Any] = {}
    for info in fields(kind):
        optional = info.default is not NODEFAULT or info.default_factory is not NODEFAULT
        if info.encode_name not in value:
            if not optional:
                raise msgspec.ValidationError(f"the field {info.encode_name!r} is missing")
            continue
        try:
            taken[info.name] = _value(value[info.encode_name], info.type)
        except msgspec.ValidationError as error:
            if not optional:
                raise msgspec.ValidationError(f"{info.encode_name}: {error}") from error
    return kind(**taken)


def _value(value: Any, kind: Any) -> Any:
    if get_origin(kind) is tuple:
        return _items(value, get_args(kind)[0])
    if isinstance(kind, type) and issubclass(kind, Struct):
        return lenient(value, kind)
    return msgspec.convert(value, kind)


def _items(values: Any, kind: Any) -> tuple[Any, ...]:
    if not isinstance(values, list):
        raise msgspec.ValidationError("expected an array")
    valid = []
    for value in values:
        try:
            valid.append(_value(value, kind))
        except msgspec.ValidationError:
            continue
    return tuple(valid)
