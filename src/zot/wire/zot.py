"""The zot dialect: decodes lines into commands, encodes responses as lines. No input or output.

Part of start-up stage one: the commands that a client sends first are here, all others in
commands.py, which is loaded when one of them arrives.
"""

from collections.abc import Callable, Iterable
from functools import cache
from typing import TYPE_CHECKING, Any, final, get_args, get_type_hints

import msgspec
from msgspec import UNSET, Raw, UnsetType

from zot import lines
from zot.errors import CommandError, ZotError
from zot.text import Frozen, check_nesting, escaped

if TYPE_CHECKING:
    from zot.wire.commands import AnyCommand

PROTOCOL_VERSION = 1
MAX_ID = 256
MAX_ANSWER = 16 * 1024 * 1024
"""Maximum size of one response, in bytes."""
FEATURES = (
    "agents",
    "approvals",
    "budgets",
    "codes",
    "costs",
    "dialogs",
    "jail",
    "mcp",
    "queue",
    "retries",
    "seq",
    "sessions",
    "thinking",
    "tools",
)
"""Features that a client may request in `hello`; without them it gets only the base frames."""


class Command(Frozen, tag_field="type"):
    """Base of all commands; unknown fields are ignored, so that old servers accept new clients."""


@final
class Hello(Command, tag="hello"):
    token: str = ""
    features: tuple[str, ...] | None = None


@final
class Ping(Command, tag="ping"): ...


class SentResponse(Frozen, omit_defaults=True, tag_field="type", tag="response"):
    command: str
    success: bool
    id: Raw | UnsetType = UNSET
    """Id as the client wrote it: a string or a number."""
    data: Any = UNSET
    error: str | UnsetType = UNSET
    code: str | UnsetType = UNSET
    """Feature `codes`."""


class HelloData(Frozen, omit_defaults=True):
    protocol_version: int
    version: str
    provider: str
    model: str
    features: tuple[str, ...] | UnsetType = UNSET
    """Supported features; only for a client that requested some."""


class Pong(Frozen):
    pong: bool = True


PONG = Pong()


class RunEnd(Frozen, omit_defaults=True):
    """Outcome of a durable run."""

    stop: str
    error: str = ""
    code: str = ""
    text: str = ""
    """Last text of the model."""


class Started(Frozen, omit_defaults=True):
    started: bool
    queued: int = 0
    """Number of runs queued ahead of this one."""
    run: str = ""
    """Name of the run, with --durable."""
    resumed: bool = False
    """A run of this name is in progress: its events and its `done` follow."""
    already_done: bool = False
    """A run of this name has ended: no events follow."""
    end: RunEnd | None = None
    """Outcome of the run, if it has ended."""


class Envelope(Frozen):
    """Fields common to all lines, decoded first and without checks."""

    type: Raw = Raw()
    id: Raw = Raw()
    agent: Raw = Raw()


class Incoming(Frozen):
    name: str
    """The command's `type`; empty: the line had none."""
    id: Raw | UnsetType
    command: "AnyCommand | None"
    error: CommandError | None = None
    agent: Raw = Raw()
    """Target agent as raw JSON; used only with the feature `agents`."""


FIRST: "dict[str, type[AnyCommand]]" = {"hello": Hello, "ping": Ping}
_envelope = msgspec.json.Decoder(Envelope).decode


def command_called(name: str) -> "type[AnyCommand] | None":
    if name in FIRST:
        return FIRST[name]
    from zot.wire import commands  # stage two

    return commands.BY_NAME.get(name)


@cache
def _decoder(name: str) -> "Callable[[bytes], AnyCommand]":
    """Return the decoder of the named command. Raises CommandError: there is none."""
    # One decoder per command, made on first use: one for all would delay the first answer by 2 ms.
    kind = command_called(name)
    if kind is None:
        raise CommandError(f"unknown command {name!r}", code="unknown_command")
    return msgspec.json.Decoder(kind).decode


def decode(line: bytes) -> Incoming:
    """Decode one line to a command or an error; never raises."""
    name, agent = "", Raw()
    id: Raw | UnsetType = UNSET
    try:
        check_nesting(line)
        whole = lines.readable(line)
        envelope = _envelope(whole)
        agent = envelope.agent
        id = checked_id(bytes(envelope.id), line)
        name = checked_name(envelope.type)
        decode_command = _decoder(name)
        lines.check_numbers(whole)
        return Incoming(name, id, decode_command(whole), agent=agent)
    except CommandError as error:
        return Incoming(name, id, None, _explained(error, name), agent)
    except lines.LINE_ERRORS as error:
        return Incoming(name, id, None, _explained(lines.line_error(error), name), agent)


def agent_of(incoming: Incoming) -> str:
    """Return the agent that a line is for; empty: the unnamed one. Raises CommandError: the value
    is not a string."""
    text = bytes(incoming.agent)
    if not text or text == b"null":
        return ""
    if text[:1] != b'"':
        raise CommandError("invalid_params: agent must be a string")
    return msgspec.json.decode(text, type=str)


def checked_name(raw: Raw) -> str:
    """Return the command's name. Raises CommandError: it is missing or not a string."""
    text = bytes(raw)
    if not text:
        raise CommandError('unknown command: the line has no "type"', code="unknown_command")
    if text[:1] != b'"':
        raise CommandError("invalid_params: type must be a string")
    return msgspec.json.decode(text, type=str)


def checked_id(text: bytes, line: bytes) -> Raw | UnsetType:
    """Return the client's id for the response, byte for byte as in the line. Raises CommandError:
    it is neither a string nor a number, is too long, or has half of a surrogate pair."""
    if not text or text in (b"null", b'""'):
        return UNSET
    if text[:1] not in b'"-0123456789':
        raise CommandError("invalid_params: id must be a string or a number")
    if len(text) > MAX_ID:
        raise CommandError(
            f"id_too_long: the id has {len(text)} bytes, the limit is {MAX_ID}", code="id_too_long"
        )
    if text not in line:  # repaired while decoding: the echo would differ from the line
        raise CommandError("invalid_params: id holds half of a surrogate pair")
    return Raw(text if text.isascii() else escaped(text))


def _explained(error: CommandError, name: str) -> CommandError:
    text = str(error)
    if text.endswith("at `$.type`"):
        return CommandError('invalid_params: the line has more than one "type"')
    if not name and text.startswith("invalid_params: Expected `object`"):
        return CommandError("parse_error: the line is not a JSON object", code="parse_error")
    if words := _choices(command_called(name), text):
        return CommandError(f"{text}: use {', '.join(words)}")
    return error


def _choices(command: "type[AnyCommand] | None", text: str) -> tuple[str, ...]:
    """Return the values a field accepts, if the error is an invalid value."""
    before, _, field = text.rstrip("`").rpartition(" - at `$.")
    if command is None or "Invalid enum value" not in before or not field.isidentifier():
        return ()
    words = get_args(get_type_hints(command)[field])
    return tuple(word for word in words if isinstance(word, str))


def success(incoming: Incoming, data: Any = UNSET) -> SentResponse:
    return SentResponse(incoming.name, success=True, id=incoming.id, data=data)


def success_in_pieces(incoming: Incoming, data: Iterable[bytes]) -> bytes:
    """Return the line of a success whose data is JSON already; joined once, as it may be large."""
    line = encode(success(incoming, Raw(b"0")))  # `data` is the last field
    return b"".join([line[:-3], *data, line[-2:]])


def failure(incoming: Incoming, error: ZotError, *, codes: bool = False) -> SentResponse:
    code = error.code if codes else UNSET
    return SentResponse(incoming.name, success=False, id=incoming.id, error=str(error), code=code)


def too_large(size: int) -> CommandError:
    return CommandError(
        f"too_large: the answer has {size} bytes, the limit is {MAX_ANSWER}; "
        "ask for a part of it with offset and limit",
        code="too_large",
    )


encode = lines.encode_line
"""Encode a frame as its line."""


def signed(line: bytes, signature: bytes) -> bytes:
    """Add the fields of the feature `agents` to a line: which agent it belongs to."""
    return line[:-2] + signature + b"}\n"


def stamped(line: bytes, seq: int, prompt_id: Raw | UnsetType | None) -> bytes:
    """Add the fields of the feature `seq` to a line; a run not started by a client has no id."""
    extra = b',"seq":%d' % seq
    if isinstance(prompt_id, Raw):
        extra += b',"prompt_id":' + bytes(prompt_id)
    return line[:-2] + extra + b"}\n"
