"""Recovery of a run that was cut off: decides about each open tool call.

A call that had not begun runs now. A call that had begun may have taken effect: its tool's declared
replay mode decides whether to run it again, ask the tool, or report it to the model.
"""

from __future__ import annotations

import time
from collections.abc import Callable

from msgspec.structs import replace

from zot.bugs import report_bug
from zot.cancel import Cancel
from zot.core.agent import Agent, Progress
from zot.core.events import AssistantMessage, OpenCall, ToolCalled
from zot.core.session import Body, Entry, ResultNote, Session
from zot.core.tool import (
    REPLAYS,
    Reconciled,
    Replay,
    ToolContext,
    as_output,
    can_reconcile,
    failed,
    replay_of,
)
from zot.errors import ToolError
from zot.provider.types import Message, ToolCall, ToolResult, texts_in
from zot.runtime.agents import TASK
from zot.runtime.journal import OpenRun, args_hash
from zot.text import Frozen


class OpenBatch(Frozen):
    """Unfinished work at the end of the transcript."""

    calls: tuple[ToolCall, ...] = ()
    """Calls of the last answer, if some have no result yet."""
    results: dict[str, ToolResult] = {}
    answered: bool = False
    """The model stopped without calling a tool."""
    answer: Message | None = None
    """Message with these calls, or the final answer."""
    id: str = ""
    """Entry id of that message."""

    @property
    def open(self) -> list[ToolCall]:
        return [call for call in self.calls if call.id not in self.results]


def open_batch(session: Session) -> OpenBatch:
    """Find the unfinished work at the end of the transcript: the last answer and its results."""
    results: dict[str, ToolResult] = {}
    settled: set[str] = set()
    for id, message in reversed(session.context()):
        if message.role == "user":
            break
        if message.role == "assistant":
            return replace(_batch(message, results, settled), id=id)
        entry = session.entries.get(id)
        for block in message.content:
            if isinstance(block, ToolResult):
                results.setdefault(block.call_id, block)
                if entry is None or not isinstance(entry.body, ResultNote):
                    settled.add(block.call_id)
    return OpenBatch()


def _batch(message: Message, results: dict[str, ToolResult], settled: set[str]) -> OpenBatch:
    calls = [block for block in message.content if isinstance(block, ToolCall)]
    if not calls:
        stop = "end" if message.origin is None else message.origin.stop
        answered = stop in ("end", "length")
        return OpenBatch(answered=answered, answer=message if answered else None)
    if all(call.id in results for call in calls):
        return OpenBatch()
    # Results in a message of their own are not written again; results from notes are.
    left = tuple(call for call in calls if call.id not in settled)
    known = {call.id: results[call.id] for call in left if call.id in results}
    return OpenBatch(left, known, answer=message)


def away(record: OpenRun) -> float:
    """Return the seconds since the run's last row; 0 if the clock was set back."""
    return max(0.0, time.time() - record.last) if record.last else 0.0


class Recovery:
    """One run that continues; created once the tools are known."""

    def __init__(self, record: OpenRun, agent: Agent, cancel: Cancel) -> None:
        self.away = away(record)
        self._record = record
        self._agent = agent
        self._cancel = cancel
        self._batch = open_batch(agent.session) if record.written else OpenBatch()
        self.open = tuple(self._described(call) for call in self._batch.open)
        nothing_open = not (self._batch.calls or self._batch.answered)
        summing = record.accepted.kind == "compact" and not record.compacted
        asked = summing or (record.written and nothing_open)
        self.model_was_asked = record.attempts > 0 and asked
        """A model call may have been cut off; its cost is unknown."""
        tasks = any(call.started and call.name == TASK for call in self.open)
        self.cost_is_unknown = self.model_was_asked or tasks

    @property
    def answer(self) -> str:
        """Entry id of the model's last message."""
        return self._batch.id

    def told_again(self) -> list[AssistantMessage | ToolCalled]:
        """Return events that may not have been sent: the last answer and its calls. The toolbox
        sends the results again."""
        if self._batch.answer is None:
            return []
        calls = [ToolCalled(call) for call in self._batch.calls]
        return [AssistantMessage(self._batch.answer), *calls]

    def progress(self, append: Callable[[Body], Entry]) -> Progress:
        """Return where the loop continues. Reconciling tools are called here, and results now
        certain are recorded."""
        record, results = self._record, dict(self._batch.results)
        for call in self.open:
            if call.started and (result := self._decided(call)) is not None:
                append(ResultNote(result))
                results[call.id] = result
        return Progress(
            record.steps,
            record.seconds,
            record.before,
            self._batch.calls,
            results,
            self._batch.answered,
        )

    # --- one call ----------------------------------------------------------------------------

    def _described(self, call: ToolCall) -> OpenCall:
        effect = self._record.effects.get(call.id)
        tool = self._agent.toolbox.get(call.name)
        declared = "never" if tool is None else replay_of(tool)
        if effect is None and self._record.uncertain:
            # Its key for reconciling is unknown, too.
            known: Replay = "never" if declared == "reconcile" else declared
            return OpenCall(call.id, call.name, started=True, replay=known)
        if effect is None:
            return OpenCall(call.id, call.name, started=False, replay=declared)
        # The guards may have changed the arguments: then the effect is unknown here. A replay mode
        # declared before the run is never widened.
        same = effect.args == args_hash(call.args)
        if same and call.id in self._record.paused:  # the person will be asked again
            return OpenCall(call.id, call.name, started=False, replay=declared)
        replay = narrower(declared, effect.replay)
        if replay == "reconcile" and not same:
            replay = "never"
        return OpenCall(call.id, call.name, started=True, replay=replay)

    def _decided(self, described: OpenCall) -> ToolResult | None:
        """Return the result of a call that had begun; None: run it again."""
        if described.replay in ("safe", "idempotent"):
            return None
        call = next(call for call in self._batch.calls if call.id == described.id)
        outcome = Reconciled("unknown")
        if described.replay == "reconcile":
            outcome = self._reconciled(call)
        match outcome.state:
            case "not_done":
                return None
            case "done":
                return as_output(outcome.output or "done before the interruption").as_result(call)
            case "unknown":
                note = "\n".join(texts_in(as_output(outcome.output).content))
                return failed(interrupted(call.name, self.away, note)).as_result(call)

    def _reconciled(self, call: ToolCall) -> Reconciled:
        tool: object = self._agent.toolbox.get(call.name)
        if not can_reconcile(tool):
            return Reconciled("unknown")
        key = self._record.effects[call.id].key
        context = ToolContext(call.id, self._cancel, lambda text: None, key=key)
        try:
            return tool.reconcile(call.args or {}, context)
        except ToolError as error:
            return Reconciled("unknown", str(error))
        except Exception as error:
            # A bug in a tool: the model gets the known facts, stderr the traceback.
            report_bug(error)
            return Reconciled("unknown")


def narrower(first: Replay, second: Replay) -> Replay:
    return min(first, second, key=REPLAYS.index)


def interrupted(name: str, seconds: float, note: str = "") -> str:
    """Return the message to the model about a call whose outcome is unknown."""
    said = (
        f"interrupted: the process that ran this {name} call ended before it did, "
        f"{duration(seconds)} ago. It may have taken effect, in whole or in part, and it was not "
        "run again. Look at what is there before you repeat it; files may have changed meanwhile."
    )
    return f"{said}\n{note}" if note else said


def duration(seconds: float) -> str:
    for size, name in ((86_400, "day"), (3_600, "hour"), (60, "minute")):
        if seconds >= size:
            count = int(seconds // size)
            return f"{count} {name}{'s' if count > 1 else ''}"
    return f"{seconds:.0f} seconds"
