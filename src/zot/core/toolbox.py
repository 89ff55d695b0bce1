"""Runs the tools of one turn, in call order. Every failure becomes a result that the model sees;
only an abort ends the batch.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Protocol, assert_never

from msgspec.structs import replace

from zot.bugs import report_bug
from zot.cancel import Cancel
from zot.core import check, events
from zot.core.events import Event, ToolStatus
from zot.core.hook import (
    AddText,
    Allow,
    Block,
    Decider,
    Hook,
    HookContext,
    Permission,
    ReplaceArgs,
    asked,
    asked_for,
)
from zot.core.session import Body, Entry, ResultNote
from zot.core.tool import (
    ChangingFile,
    Replay,
    Tool,
    ToolContext,
    ToolOutput,
    as_output,
    companion_of,
    failed,
    is_side_by_side,
    renaming_of,
    replay_of,
    splitting_of,
)
from zot.errors import Cancelled, JournalError, ToolBlocked, ToolError, ToolTimedOut
from zot.provider.model import Model, takes_grammars
from zot.provider.types import Json, Message, Text, ToolCall, ToolResult, ToolSpec, Usage
from zot.text import Frozen

if TYPE_CHECKING:
    from zot.core.check import Checker

ABORTED = "aborted"
NOT_RUN_ABORTED = "not run: the turn was aborted"
NOT_RUN_STEERED = "not run: the user sent a message first"


class Begun(Frozen):
    """Key and state of a call that may run now; see ToolContext."""

    key: str = ""
    state: Json = None


class CallIO(Protocol):
    """Interface of the run that a call belongs to. Once the run was given up, `emit`, `pause`,
    `spend` and `changing_file` raise Cancelled."""

    @property
    def cancel(self) -> Cancel: ...

    @property
    def emit(self) -> Callable[[Event], None]:
        """Sends an event to the listeners, in order."""

    @property
    def changing_file(self) -> ChangingFile:
        """Records a file before a tool changes it."""

    def begin(self, call: ToolCall, replay: Replay) -> Begun:
        """Record that the tool is about to run with these arguments.

        Raises:
            JournalError: it cannot be noted, so the tool must not run.
        """

    def pause(self, call_id: str, state: Json) -> None:
        """Record that a tool waits for a person (see `ToolContext.pause`). Raises JournalError."""

    def spend(self, usage: Usage) -> None:
        """Add the usage of a tool's own model call."""


class BatchIO(CallIO, Protocol):
    def append(self, body: Body) -> Entry:
        """Append to the transcript. Raises Cancelled when the run was given up."""

    def has_steering(self) -> bool:
        """Whether user messages are queued for the next model call."""


Outcome = tuple[ToolOutput, ToolStatus]
AT_ONCE = 8
"""Maximum calls of one turn that run side by side."""


class _Attempt:
    """State of one call while it is processed."""

    def __init__(self, call: ToolCall) -> None:
        self.call = call
        self.args = call.args
        """Arguments after their repair and the guards consulted so far."""
        self.repaired: list[str] = []
        """Notes on what was repaired in the model's arguments."""
        self.executed = False
        self.started = time.monotonic()
        self.seconds = 0.0
        self.work: Callable[[], ToolOutput] | None = None
        """Callable that runs the tool; None: it may not run."""
        self.outcome: Outcome | None = None
        self._failure: BaseException | None = None
        self._thread: threading.Thread | None = None

    def start(self) -> None:
        """Run the tool in a new thread, if it may run and a thread is available."""
        if self.work is None:
            return
        name = f"zot-tool-{self.call.name}"
        thread = threading.Thread(target=self._run, name=name, daemon=True)
        try:
            thread.start()
        except (RuntimeError, MemoryError):
            return  # no thread available: it runs in its turn instead
        self._thread = thread

    def _run(self) -> None:
        assert self.work is not None
        self.started = time.monotonic()  # excludes the time a guard waited for a person
        try:
            self.outcome = _supervised(self.work)
        except BaseException as error:
            self._failure = error
        self.seconds = time.monotonic() - self.started

    def join(self) -> None:
        if self._thread is not None:
            self._thread.join()

    def finished(self) -> Outcome:
        """Return the outcome; run the tool now if it was not started."""
        if self._thread is None and self.outcome is None:
            self._run()
        self.join()
        if self._failure is not None:
            raise self._failure
        assert self.outcome is not None
        return self.outcome

    def returned(self, result: ToolResult, status: ToolStatus) -> events.ToolReturned:
        seconds = self.seconds or time.monotonic() - self.started
        return events.ToolReturned(self.call, result, seconds, status, self.executed, self.args)


class _Step(Frozen):
    """One run of a tool, as a part of a call."""

    call: ToolCall
    tool: Tool
    notes: tuple[Text, ...] = ()
    """Notes of guards for the model."""


class _Alone(Frozen):
    """CallIO of a call outside a turn."""

    cancel: Cancel
    emit: Callable[[Event], None]
    changing_file: ChangingFile

    def begin(self, call: ToolCall, replay: Replay) -> Begun:
        return Begun()

    def pause(self, call_id: str, state: Json) -> None:
        """Do nothing: there is no run to resume."""

    def spend(self, usage: Usage) -> None:
        """Do nothing: there is no run to charge."""


class Toolbox:
    """The tools of an agent. The first tool with a name wins."""

    def __init__(
        self, tools: Iterable[Tool], hooks: Sequence[Hook] = (), first: Sequence[str] = ()
    ) -> None:
        """`first`: tool names to list before the others, in this order."""
        self._tools: dict[str, Tool] = {}
        for tool in tools:
            self._tools.setdefault(tool.name, tool)
        found = {name: companion_of(tool) for name, tool in self._tools.items()}
        self._companions = {name: tool for name, tool in found.items() if tool is not None}
        self._hooks = hooks
        self._after_hooks = asked_for("after_tool", hooks)
        self._checkers: dict[str, Checker] = {}
        self._with_companions: tuple[ToolSpec, ...] | None = None
        # Sorted: prompt caches match prefixes, so the order must not depend on how tools arrived.
        names = dict.fromkeys((*(name for name in first if name in self._tools), *self.names))
        self.specs = tuple(spec_of(self._tools[name]) for name in names)

    @property
    def names(self) -> list[str]:
        return sorted(self._tools)

    def get(self, name: str) -> Tool | None:
        others = (tool for tool in self._companions.values() if tool.name == name)
        return self._tools.get(name) or next(others, None)

    def specs_for(self, model: Model) -> tuple[ToolSpec, ...]:
        """Return the tools to offer to a model: one that takes grammars gets companions."""
        if not self._companions or not takes_grammars(model):
            return self.specs
        if self._with_companions is None:
            self._with_companions = tuple(
                spec_of(self._companions[spec.name]) if spec.name in self._companions else spec
                for spec in self.specs
            )
        return self._with_companions

    def _named(self, call: ToolCall) -> ToolCall:
        """Return the call under the tool's own name: some models write `Bash`."""
        if self.get(call.name) is not None:
            return call
        near = [name for name in self._tools if name.lower() == call.name.lower()]
        return replace(call, name=near[0]) if len(near) == 1 else call

    def run(
        self, calls: Sequence[ToolCall], io: BatchIO, known: Mapping[str, ToolResult] = {}
    ) -> None:
        """Run the calls of one turn, and append the message with all their results. Calls whose
        results are in `known` do not run.

        Raises:
            Cancelled: the turn was aborted; every call has a result all the same.
            SessionError: something could not be written; the tools behind it did not run.
        """
        results: list[ToolResult] = []
        for attempts in self._groups(calls):
            self._begin(attempts, io, known, steered=bool(results) and io.has_steering())
            for attempt in attempts[1:]:
                attempt.start()
            try:
                for attempt in attempts:
                    result, status = self._result(attempt, known)
                    results.append(result)
                    # Write before emitting: what a client has seen survives a crash.
                    if len(results) == len(calls):
                        io.append(Message("tool", tuple(results), time.time()))
                    elif attempt.call.id not in known:
                        io.append(ResultNote(result))
                    io.emit(attempt.returned(result, status))
            finally:
                for attempt in attempts:  # no tool may outlive the turn
                    attempt.join()
        io.cancel.check()

    def _groups(self, calls: Sequence[ToolCall]) -> list[list[_Attempt]]:
        """Return the calls in order, grouping neighbours that may run side by side."""
        groups: list[list[_Attempt]] = []
        before = False
        for call in map(self._named, calls):
            tool = self._tools.get(call.name)
            now = tool is not None and is_side_by_side(tool)
            if not (now and before) or len(groups[-1]) == AT_ONCE:
                groups.append([])
            groups[-1].append(_Attempt(call))
            before = now
        return groups

    def _begin(
        self,
        attempts: Sequence[_Attempt],
        io: BatchIO,
        known: Mapping[str, ToolResult],
        *,
        steered: bool,
    ) -> None:
        """Consult the guards about each call in turn, because a person answers one question at a
        time. For calls that may run, set the attempt's work."""
        for attempt in attempts:
            if attempt.call.id in known:
                continue
            attempt.started = time.monotonic()
            if io.cancel.is_set():
                attempt.outcome = failed(NOT_RUN_ABORTED), "cancelled"
            elif steered:
                attempt.outcome = failed(NOT_RUN_STEERED), "cancelled"
            else:
                io.emit(events.ToolStarted(attempt.call))
                attempt.outcome = _supervised(partial(self._prepare, attempt, io))

    def _result(
        self, attempt: _Attempt, known: Mapping[str, ToolResult]
    ) -> tuple[ToolResult, ToolStatus]:
        call = attempt.call
        if (noted := known.get(call.id)) is not None:
            return noted, "failed" if noted.is_error else "completed"
        output, status = attempt.finished()
        return output.as_result(call), status

    def call(
        self,
        call: ToolCall,
        cancel: Cancel,
        emit: Callable[[Event], None],
        changing_file: ChangingFile,
    ) -> ToolOutput:
        """Run one call outside a turn, with the usual checks and guards; not in the transcript.

        Raises:
            ToolError: it failed, or was refused.
            Cancelled: it was aborted.
        """
        attempt = _Attempt(self._named(call))
        self._prepare(attempt, _Alone(cancel, emit, changing_file))
        assert attempt.work is not None
        return attempt.work()

    def _prepare(self, attempt: _Attempt, io: CallIO) -> None:
        """Do everything before the run: find the tool, check the arguments, consult the guards."""
        call = attempt.call
        tool = self.get(call.name)
        if tool is None:
            known = ", ".join(self.names) or "none"
            raise ToolError(f"unknown tool {call.name!r}; the tools are: {known}")
        attempt.args = self._fitted(attempt, tool)
        steps = [self._guarded(step, io) for step in self._steps(attempt, tool)]
        if steps[0].tool is tool:
            attempt.args = steps[0].call.args
        io.cancel.check()  # an abort may have come while a guard waited for a person
        begun = io.begin(replace(call, args=attempt.args), replay_of(tool))
        context = ToolContext(
            call.id,
            io.cancel,
            _progress(call.id, io),
            io.changing_file,
            io.spend,
            begun.key,
            partial(io.pause, call.id),
            begun.state,
        )
        attempt.executed = True
        seen = HookContext(io.cancel, io.emit)
        attempt.work = partial(self._output, attempt, steps, context, seen)

    def _steps(self, attempt: _Attempt, tool: Tool) -> list[_Step]:
        """Return what a call runs: its tool, or the calls of other tools that it stands for."""
        call, split = replace(attempt.call, args=attempt.args), splitting_of(tool)
        parts = split(call.args or {}) if split else None
        if parts is None:
            return [_Step(call, tool)]
        attempt.repaired.append("run as calls of " + ", ".join(part.name for part in parts))
        steps = []
        for part in parts:
            found = self._tools.get(part.name)
            if found is None:
                raise ToolError(f"{call.name!r} needs the tool {part.name!r}, which is not there")
            inner = ToolCall(call.id, part.name, part.args)
            self._checked(inner, found)
            steps.append(_Step(inner, found))
        return steps

    def _output(
        self, attempt: _Attempt, steps: Sequence[_Step], context: ToolContext, seen: HookContext
    ) -> ToolOutput:
        outputs: list[ToolOutput] = []
        for step in steps:
            try:
                output = self._run_step(step, context)
                outputs.append(self._seen(step.call, output, seen))
            except ToolError as error:
                if not outputs:
                    raise
                outputs.append(failed(str(error)))
            if outputs[-1].is_error:
                break
        output = outputs[0] if len(outputs) == 1 else _joined(outputs, len(steps))
        if not attempt.repaired:
            return output
        return replace(output, details={**(output.details or {}), "repaired": attempt.repaired})

    def _run_step(self, step: _Step, context: ToolContext) -> ToolOutput:
        try:
            output = as_output(step.tool.run(step.call.args or {}, context))
        except ToolBlocked as error:
            denied = Permission("denied", "policy", "tool_execution", str(error))
            self._tell(step.call, denied)
            raise
        content = output.content or (Text("(no output)"),)
        return replace(output, content=(*content, *step.notes))

    def _seen(self, call: ToolCall, output: ToolOutput, context: HookContext) -> ToolOutput:
        """Return the output with the texts that guards add to it."""
        for hook in self._after_hooks if not output.is_error else ():
            verdict = asked(partial(hook.after_tool, call, output.as_result(call), context))
            if isinstance(verdict, AddText):
                output = replace(output, content=(*output.content, Text(verdict.text)))
        return output

    def _guarded(self, step: _Step, io: CallIO) -> _Step:
        """Return the step with the arguments that every guard allowed, and notes for the model."""
        call, notes = step.call, list[Text]()
        context = HookContext(io.cancel, io.emit, spend=io.spend)
        source: Decider = "yolo"
        for hook in self._hooks:
            try:
                verdict = asked(partial(hook.before_tool, call, context))
            except Cancelled:
                self._tell(call, Permission("cancelled", source))
                raise
            match verdict:
                case Block(reason=reason):
                    reason = reason or "the call was refused by a guard"
                    self._tell(call, Permission("denied", verdict.source, reason=reason))
                    raise ToolBlocked(reason)
                case ReplaceArgs():
                    call = replace(call, args=verdict.args)
                    self._checked(call, step.tool)
                    source = verdict.source or source
                    notes += [Text(verdict.note)] if verdict.note else []
                case Allow():
                    source = verdict.source or source
                    notes += [Text(verdict.note)] if verdict.note else []
                case _:
                    assert_never(verdict)
            if verdict.wish:
                context = replace(context, wish=verdict.wish)
        self._tell(call, Permission("approved", source))
        return _Step(call, step.tool, tuple(notes))

    def _tell(self, call: ToolCall, permission: Permission) -> None:
        for hook in self._hooks:
            try:
                hook.tool_decided(call, permission)
            except Exception as error:  # listeners must not affect the decision
                report_bug(error)

    def _fitted(self, attempt: _Attempt, tool: Tool) -> dict[str, object]:
        """Return the model's arguments, repaired if they do not fit the tool."""
        args, rename = attempt.call.args, renaming_of(tool)
        known = not rename or (args or {}).keys() <= tool.schema["properties"].keys()
        if args is not None and known and self._problem(args, tool) is None:
            return args
        from zot.core import arguments  # a room that few runs need

        if args is None:
            args = arguments.parsed(attempt.call.raw)
            attempt.repaired.append("the JSON of the arguments")
        if args is not None and rename is not None:
            args, notes = rename(args)
            attempt.repaired += notes
        if args is not None:
            args, notes = arguments.fitted(args, tool.schema)
            attempt.repaired += notes
        return self._checked(replace(attempt.call, args=args), tool)

    def _checked(self, call: ToolCall, tool: Tool) -> dict[str, object]:
        if call.args is None:
            raise ToolError(
                f"the arguments of {call.name!r} are not a JSON object: {call.raw[:200]!r}; "
                "call the tool again with valid arguments"
            )
        if wrong := self._problem(call.args, tool):
            raise ToolError(f"invalid arguments for {call.name!r}: {wrong}")
        return call.args

    def _problem(self, args: dict[str, Json], tool: Tool) -> str | None:
        schema, checker = tool.schema, self._checkers.get(tool.name)
        if checker is None or checker.schema is not schema:
            checker = self._checkers[tool.name] = check.Checker(schema)
        return checker.problem(args)


def spec_of(tool: Tool) -> ToolSpec:
    grammar, strict = getattr(tool, "grammar", ""), getattr(tool, "strict", False)
    return ToolSpec(tool.name, tool.description, tool.schema, grammar, strict)


def _joined(outputs: Sequence[ToolOutput], wanted: int) -> ToolOutput:
    """Return the outputs of the parts of a call as one."""
    content = [block for output in outputs for block in output.content]
    is_error = outputs[-1].is_error
    if is_error:
        done = len(outputs) - 1
        content.append(Text(f"[{done} of {wanted} parts were done; the last one above failed]"))
    details = [output.details or {} for output in outputs]
    diffs = "\n".join(str(each["diff"]) for each in details if each.get("diff"))
    return ToolOutput(tuple(content), is_error, {"parts": details, "diff": diffs})


def _supervised(step: Callable[[], ToolOutput | None]) -> Outcome | None:
    """Run one step of a call and return its outcome; None: the call goes on.

    Raises:
        JournalError: nobody would know after a crash that it had begun.
    """
    try:
        output = step()
    except Cancelled:
        return failed(ABORTED), "cancelled"
    except ToolBlocked as error:
        return failed(str(error)), "blocked"
    except ToolTimedOut as error:
        return failed(str(error)), "timed_out"
    except ToolError as error:
        return failed(str(error)), "failed"
    except JournalError:
        raise
    except BaseException as error:
        # A bug in a tool: the model gets one line, stderr the traceback. This includes SystemExit:
        # a tool must not end the run's thread.
        report_bug(error)
        return failed(f"the tool crashed: {type(error).__name__}: {error}"), "failed"
    if output is None:
        return None
    return output, output.status or ("failed" if output.is_error else "completed")


def _progress(id: str, io: CallIO) -> Callable[[str], None]:
    def progress(text: str) -> None:
        if text and not io.cancel.is_set():
            io.emit(events.ToolProgress(id, text))

    return progress
