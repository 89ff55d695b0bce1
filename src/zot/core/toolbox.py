"""Runs the tools of one turn, in call order. Whatever goes wrong becomes a result that the model
sees; only an abort ends the batch.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import Protocol

from msgspec import Struct
from msgspec.structs import replace

from zot.bugs import report_bug
from zot.cancel import Cancel
from zot.core import events
from zot.core.check import problem
from zot.core.events import Event
from zot.core.hook import Block, Hook, HookContext, ReplaceArgs, asked
from zot.core.session import Body, Entry, ResultNote
from zot.core.tool import Replay, Tool, ToolContext, ToolOutput, replay_of
from zot.errors import Cancelled, JournalError, ToolError
from zot.provider.types import Image, Message, Text, ToolCall, ToolResult, ToolSpec

ABORTED = "aborted"
NOT_RUN_ABORTED = "not run: the turn was aborted"
NOT_RUN_STEERED = "not run: the user sent a message first"


class CallIO(Protocol):
    @property
    def cancel(self) -> Cancel: ...
    @property
    def emit(self) -> Callable[[Event], None]: ...
    def begin(self, call: ToolCall, replay: Replay) -> str:
        """Note that the tool is about to run with these arguments; the key of the call.

        Raises:
            JournalError: it cannot be noted, so the tool must not run.
        """
        ...


class BatchIO(CallIO, Protocol):
    def append(self, body: Body) -> Entry: ...
    def has_steering(self) -> bool: ...


class _Alone(Struct, frozen=True):
    """What a call needs around it when there is no turn."""

    cancel: Cancel
    emit: Callable[[Event], None]

    def begin(self, call: ToolCall, replay: Replay) -> str:
        return ""


class Toolbox:
    """The tools of an agent. The first tool of a name wins."""

    def __init__(self, tools: Iterable[Tool], hooks: Sequence[Hook] = ()) -> None:
        self._tools: dict[str, Tool] = {}
        for tool in tools:
            self._tools.setdefault(tool.name, tool)
        self._hooks = hooks
        # Sorted: prompt caches match prefixes, so the order must not depend on how tools arrived.
        self.specs = tuple(
            ToolSpec(tool.name, tool.description, tool.schema)
            for _, tool in sorted(self._tools.items())
        )

    @property
    def names(self) -> list[str]:
        return sorted(self._tools)

    def get(self, name: str) -> Tool | None:
        return self._tools.get(name)

    def run(
        self, calls: Sequence[ToolCall], io: BatchIO, known: Mapping[str, ToolResult] = {}
    ) -> None:
        """Run the calls of one turn, and append the message with all their results. `known` has
        the results that were noted already: those calls do not run.

        Raises:
            Cancelled: the turn was aborted; every call has a result all the same.
            SessionError: something could not be written; the tools behind it did not run.
        """
        results: list[ToolResult] = []
        for number, call in enumerate(calls, 1):
            started = time.monotonic()
            steered = bool(results) and io.has_steering()
            noted = known.get(call.id)
            result = noted or self._result(call, io, steered=steered)
            results.append(result)
            # Written before anyone hears of it: what a client has seen survives a crash.
            if number == len(calls):
                io.append(Message("tool", tuple(results), time.time()))
            elif noted is None:
                io.append(ResultNote(result))
            io.emit(events.ToolReturned(call, result, time.monotonic() - started))
        io.cancel.check()

    def call(self, call: ToolCall, cancel: Cancel, emit: Callable[[Event], None]) -> ToolOutput:
        """One call outside of a turn, with the same checks and guards; not in the transcript.

        Raises:
            ToolError: it failed, or was refused.
            Cancelled: it was aborted.
        """
        return self._output(call, _Alone(cancel, emit))

    def _result(self, call: ToolCall, io: BatchIO, *, steered: bool) -> ToolResult:
        if io.cancel.is_set():
            output = _failure(NOT_RUN_ABORTED)
        elif steered:
            output = _failure(NOT_RUN_STEERED)
        else:
            io.emit(events.ToolStarted(call))
            output = self._supervised(call, io)
        return ToolResult(call.id, output.content, output.is_error, call.name, output.details)

    def _supervised(self, call: ToolCall, io: BatchIO) -> ToolOutput:
        try:
            return self._output(call, io)
        except Cancelled:
            return _failure(ABORTED)
        except ToolError as error:
            return _failure(str(error))
        except JournalError:
            raise  # nobody would know after a crash that it had begun
        except BaseException as error:
            # A bug in a tool: the model gets one line, the developer the traceback on stderr.
            # SystemExit too: a tool must not be able to end the run's thread.
            report_bug(error)
            return _failure(f"the tool crashed: {type(error).__name__}: {error}")

    def _output(self, call: ToolCall, io: CallIO) -> ToolOutput:
        tool = self._tools.get(call.name)
        if tool is None:
            known = ", ".join(self.names) or "none"
            raise ToolError(f"unknown tool {call.name!r}; the tools are: {known}")
        args = self._guarded(call, tool, io)
        io.cancel.check()  # a guard may have asked somebody, and the abort came meanwhile
        key = io.begin(replace(call, args=args), replay_of(tool))
        context = ToolContext(call.id, io.cancel, _progress(call.id, io), key)
        output = tool.run(args, context)
        if isinstance(output, str):
            output = ToolOutput((Text(output),))
        return replace(output, content=_never_empty(output.content))

    def _guarded(self, call: ToolCall, tool: Tool, io: CallIO) -> dict[str, object]:
        """The arguments, checked against the schema and passed by every guard."""
        args = _checked(call, tool)
        context = HookContext(io.cancel, io.emit)
        for hook in self._hooks:
            seen = replace(call, args=args)
            verdict = asked(partial(hook.before_tool, seen, context))
            if isinstance(verdict, Block):
                raise ToolError(verdict.reason or "the call was refused by a guard")
            if isinstance(verdict, ReplaceArgs):
                args = _checked(replace(call, args=verdict.args), tool)
        return args


def _checked(call: ToolCall, tool: Tool) -> dict[str, object]:
    if call.args is None:
        raise ToolError(
            f"the arguments of {call.name!r} are not a JSON object: {call.raw[:200]!r}; "
            "call the tool again with valid arguments"
        )
    if found := problem(call.args, tool.schema):
        raise ToolError(f"invalid arguments for {call.name!r}: {found}")
    return call.args


def _progress(id: str, io: CallIO) -> Callable[[str], None]:
    def progress(text: str) -> None:
        if text and not io.cancel.is_set():
            io.emit(events.ToolProgress(id, text))

    return progress


def _failure(text: str) -> ToolOutput:
    return ToolOutput((Text(text),), is_error=True)


def _never_empty(content: tuple[Text | Image, ...]) -> tuple[Text | Image, ...]:
    return content or (Text("(no output)"),)
