"""A provider that plays prepared turns, for tests. It is not a model and makes no connection.

The script is a JSON file, or the same as Python objects:

    {"turns": [
      {"text": "I will look.", "tools": [{"name": "bash", "args": {"command": "ls"}}]},
      {"thinking": "hm", "text": ["two ", "deltas"], "usage": {"input": 10, "output": 3}},
      {"error": {"status": 429, "message": "slow down", "retry_after": 1}}
    ]}

Every call of `stream` plays the next turn. Fields of a turn, all optional:

    text, thinking   a string (one delta) or a list of strings (one delta each)
    tools            calls: name, args, id (default call_1, call_2, ...), and raw_args, a text
                     that is sent instead of args (to be bad JSON on purpose)
    stop             end, tool_use or length; default tool_use when there are tools, else end
    usage            input, output, cache_read, cache_write, reasoning (tokens)
    error            status, message, retry_after: the call fails with it, after the content if any
    delay_ms         pause before each delta
    cut_after        the connection breaks after that many deltas
    match            the turn is played only when the last user message contains this text
    repeat           true: the turn is not used up by playing it

The turn played is the first one not used up whose `match` is absent or found. When none is left
the call fails: a script that is too short should not look like an answer.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence
from typing import Literal

import msgspec

from zot.cancel import Cancel
from zot.errors import ConfigError, ProviderError
from zot.provider import types
from zot.provider.failure import class_for_status, cut
from zot.text import Frozen, prepared

NAME = "scripted"
ARGS_PIECE = 32
"""Characters of a tool's arguments per delta."""


class ScriptedCall(Frozen, forbid_unknown_fields=True):
    """A tool call of a scripted turn."""

    name: str
    args: dict[str, types.Json] = {}
    id: str = ""
    raw_args: str | None = None


class ScriptedUsage(types.TokenCounts, forbid_unknown_fields=True):
    """Token counts of one turn."""


class ScriptedError(Frozen, forbid_unknown_fields=True):
    message: str = "scripted error"
    status: int | None = None
    retry_after: float | None = None


class ScriptedTurn(Frozen, forbid_unknown_fields=True):
    """Answer to one model call; the module's docstring explains the fields."""

    text: str | tuple[str, ...] = ()
    thinking: str | tuple[str, ...] = ()
    tools: tuple[ScriptedCall, ...] = ()
    stop: Literal["end", "tool_use", "length"] | None = None
    usage: ScriptedUsage = ScriptedUsage()
    error: ScriptedError | None = None
    delay_ms: float = 0
    cut_after: int | None = None
    match: str | None = None
    repeat: bool = False


class Script(Frozen, forbid_unknown_fields=True):
    turns: tuple[ScriptedTurn, ...]


prepared(Script, ScriptedTurn)


class ScriptedProvider:
    """Plays turns in order; thread-safe. `requests` records the requests."""

    name = NAME

    def __init__(self, turns: Sequence[ScriptedTurn | str | dict[str, types.Json]]) -> None:
        self._turns = [as_turn(turn) for turn in turns]
        self._lock = threading.Lock()
        self._calls = 0
        self.requests: list[types.Request] = []

    @classmethod
    def from_file(cls, path: str) -> ScriptedProvider:
        """Read a script. Raises ConfigError: the file cannot be read or is not a script."""
        try:
            with open(path, "rb") as file:  # noqa: PTH123  pathlib is not on the start-up path
                data = file.read()
            script = msgspec.json.decode(data, type=Script)
        except OSError as error:
            raise ConfigError(f"cannot read the script {path!r}: {error.strerror}") from error
        except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
            raise ConfigError(f"the script {path!r} is not valid: {explained(error)}") from error
        return cls(script.turns)

    def stream(self, request: types.Request, cancel: Cancel) -> Iterator[types.StreamEvent]:
        cancel.check()
        turn, first_id = self._next(request)
        if turn.error is not None and not (turn.text or turn.thinking or turn.tools):
            raise failure(turn.error)
        yield types.Started()
        calls = named(turn.tools, first_id)
        deltas = 0
        for event in contents(turn, calls):
            if isinstance(event, types.TextDelta | types.ReasoningDelta | types.ToolCallArgs):
                if turn.cut_after is not None and deltas >= turn.cut_after:
                    raise cut(NAME)
                cancel.sleep(turn.delay_ms / 1000)
                deltas += 1
            cancel.check()
            yield event
        if turn.cut_after is not None:
            raise cut(NAME)
        yield from ending(turn, calls)

    def close(self) -> None:
        """Do nothing: there are no connections."""

    def _next(self, request: types.Request) -> tuple[ScriptedTurn, int]:
        said = last_user_text(request.messages)
        with self._lock:
            self.requests.append(request)
            for index, turn in enumerate(self._turns):
                if turn.match is None or turn.match in said:
                    if not turn.repeat:
                        del self._turns[index]
                    first = self._calls + 1
                    self._calls += len(turn.tools)
                    return turn, first
        raise ProviderError(
            f"scripted: no turn is left for the message {said[:80]!r}: add one to the script"
        )


def as_turn(turn: ScriptedTurn | str | dict[str, types.Json]) -> ScriptedTurn:
    if isinstance(turn, ScriptedTurn):
        return turn
    if isinstance(turn, str):
        return ScriptedTurn(text=turn)
    try:
        return msgspec.convert(turn, ScriptedTurn)
    except msgspec.ValidationError as error:
        raise ConfigError(f"not a scripted turn: {explained(error)}") from error


def explained(error: Exception) -> str:
    """Return the error's text, with the known fields if one is unknown."""
    text = str(error)
    if "unknown field" not in text:
        return text
    parts = {"turn": ScriptedTurn, "tool": ScriptedCall, "error": ScriptedError}
    known = (f"a {name} has {', '.join(kind.__struct_fields__)}" for name, kind in parts.items())
    return f"{text}; {'; '.join(known)}"


def last_user_text(messages: Sequence[types.Message]) -> str:
    for message in reversed(messages):
        if message.role == "user":
            return "\n".join(types.texts_in(message.content))
    return ""


def failure(error: ScriptedError) -> ProviderError:
    if error.status is None:
        return ProviderError(f"{NAME}: {error.message}", retry_after=error.retry_after)
    kind = class_for_status(error.status, error.message)
    text = f"{NAME}: http {error.status}: {error.message}"
    return kind(text, status=error.status, retry_after=error.retry_after)


def pieces(text: str | tuple[str, ...]) -> tuple[str, ...]:
    if isinstance(text, str):
        return (text,) if text else ()
    return text


def named(calls: Sequence[ScriptedCall], first: int) -> list[ScriptedCall]:
    """Return the calls with an id each, so that two turns never share one."""
    return [
        call if call.id else msgspec.structs.replace(call, id=f"call_{first + offset}")
        for offset, call in enumerate(calls)
    ]


def args_text(call: ScriptedCall) -> str:
    if call.raw_args is not None:
        return call.raw_args
    return msgspec.json.encode(call.args).decode()


def contents(turn: ScriptedTurn, calls: Sequence[ScriptedCall]) -> Iterator[types.StreamEvent]:
    for piece in pieces(turn.thinking):
        yield types.ReasoningDelta(piece)
    for piece in pieces(turn.text):
        yield types.TextDelta(piece)
    for call in calls:
        raw = args_text(call)
        yield types.ToolCallStart(call.id, call.name)
        for start in range(0, len(raw), ARGS_PIECE):
            yield types.ToolCallArgs(call.id, raw[start : start + ARGS_PIECE])
        yield types.ToolCallEnd(call.id)


def ending(turn: ScriptedTurn, calls: Sequence[ScriptedCall]) -> Iterator[types.StreamEvent]:
    if turn.error is not None:
        raise failure(turn.error)
    blocks: list[types.Block] = []
    if turn.thinking:
        blocks.append(types.Reasoning("".join(pieces(turn.thinking)), NAME))
    if turn.text:
        blocks.append(types.Text("".join(pieces(turn.text))))
    for call in calls:
        if call.raw_args is None:
            blocks.append(types.ToolCall(call.id, call.name, call.args))
        else:
            blocks.append(
                types.ToolCall(call.id, call.name, as_object(call.raw_args), call.raw_args)
            )
    usage = types.Usage(*msgspec.structs.astuple(turn.usage))
    yield types.UsageSeen(usage)
    yield types.Finished(tuple(blocks), turn.stop or ("tool_use" if calls else "end"), usage)


def as_object(raw: str) -> dict[str, types.Json] | None:
    try:
        return msgspec.json.decode(raw, type=dict[str, types.Json])
    except (msgspec.MsgspecError, RecursionError):
        return None
