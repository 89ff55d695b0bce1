"""The state of one agent, built from its frames."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

from msgspec import Struct

from zot.observe import facts
from zot.observe.status import AgentOutcome, AgentState, OpenQuestion, Status, WaitingKind
from zot.observe.tables import Lifecycle, facts_of, lifecycle_of

DELTAS = frozenset({facts.MessageStarted, facts.TextAdded, facts.ThoughtAdded, facts.ToolArgsAdded})
STALLED_SECONDS = 120.0
"""Seconds of silence, while the model should produce output, after which an agent is stalled."""


class OpenCall(Struct):
    """A call that the model has begun to write and that has no result yet."""

    name: str
    about: str = ""
    running_since: float | None = None


class Waiting(Struct, frozen=True):
    question: facts.Asked
    since: float


class Observer:
    """Takes frames in order; `status` returns the agent's current state."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._state: AgentState = "idle"
        self._since = self._last_frame = clock()
        self._calls: dict[str, OpenCall] = {}
        self._written = False
        """Whether the model has finished its message, so that open calls run or are about to."""
        self._retry = ""
        self._questions: dict[str, Waiting] = {}
        self._error = ""
        self._limit = False
        self._aborted = False
        self._outcome: AgentOutcome = ""
        self._turns = 0
        self._tool_calls = 0
        self._compactions = 0
        self._model = ""
        self._cost = 0.0
        self._cost_known = True
        self._tokens = facts.UsedTokens()
        self._last_call = facts.UsedTokens()

    def feed(self, frame: dict[str, Any] | bytes | str) -> Lifecycle | None:
        """Process one frame; return its lifecycle event, as `normalize` does."""
        fields = facts.fields_of(frame)
        self._last_frame = self._clock()
        for fact in facts_of(fields):
            self.take(fact)
        return lifecycle_of(fields)

    def end(self, reason: str = "") -> None:
        """End the stream: an agent in the middle of a run is gone, an idle one is not."""
        if self._state not in ("idle", "failed"):
            self._error = reason or "its frames stopped before the run ended"
            self._questions.clear()
            self._go("gone")

    def take(self, fact: facts.Fact) -> None:
        if type(fact) in DELTAS:  # most frames: skip the match
            self._retry = ""
            self._forget_dialogs(fact)
            self._work("tool" if self._running() else "thinking")
            return
        match fact:
            case facts.Asked():
                self._questions[fact.id] = Waiting(fact, self._clock())
                self._go("waiting")
                return
            case facts.Answered():
                self._answered(fact)
                return
            case facts.UsedTokens():
                self._count(fact)
                return
            case facts.RunsModel():
                self._model = fact.model or self._model
                return
            case facts.Retrying():
                self._retry = fact.reason
                if fact.dropped:
                    self._tool_calls -= len(self._calls)
                    self._calls.clear()
                self._go("waiting")
                return
        self._retry = ""
        self._forget_dialogs(fact)
        self._progress(fact)

    # --- facts -------------------------------------------------------------------------------

    def _progress(self, fact: facts.Fact) -> None:
        match fact:
            case facts.RunStarted() | facts.UserSaid():
                self._outcome = ""
                self._aborted = False
                self._work("thinking")
            case facts.RunResumed():
                self._calls.clear()
                self._questions.clear()
                self._work("thinking")
            case facts.TurnStarted():
                self._turns += 1
                self._error = ""  # the run recovered from it
                self._outcome = ""
                self._written = False
                self._work("thinking")
            case facts.ToolWritten():
                self._tool_written(fact)
            case facts.ToolRuns() | facts.ToolSaid():
                self._tool_runs(fact.id)
            case facts.ToolEnded():
                self._tool_ended(fact)
            case facts.TurnEnded():
                self._turn_ended(fact)
            case facts.Failed():
                self._error = fact.message
                self._limit = fact.limit
                self._work("failed")
            case facts.RunEnded():
                self._run_ended()
            case facts.CompactStarted():
                self._work("compacting")
            case facts.CompactEnded():
                self._compactions += 1
                self._work("thinking")

    def _turn_ended(self, fact: facts.TurnEnded) -> None:
        self._written = True
        if fact.stop == "error":
            self._error = fact.error
            self._work("failed")
        elif fact.stop == "aborted":
            self._aborted = True
        elif fact.stop == "tool_use":
            self._start_next_call()
            self._work("tool" if self._calls else "waiting")

    def _tool_written(self, fact: facts.ToolWritten) -> None:
        if fact.id not in self._calls:
            self._tool_calls += 1
            self._calls[fact.id] = OpenCall(fact.name)
        if fact.args:
            self._calls[fact.id].about = facts.main_argument(fact.args)

    def _tool_runs(self, id: str) -> None:
        call = self._calls.get(id)
        if call is not None and call.running_since is None:
            call.running_since = self._clock()
        self._work("tool" if self._calls else self._state)

    def _tool_ended(self, fact: facts.ToolEnded) -> None:
        self._calls.pop(fact.id, None)
        self._start_next_call()
        self._work("tool" if self._running() else "thinking")

    def _start_next_call(self) -> None:
        """Start the next call: those of a message run in order, where frames report no starts."""
        if self._written and not self._running():
            for call in self._calls.values():
                call.running_since = self._clock()
                break

    def _run_ended(self) -> None:
        self._calls.clear()
        self._questions.clear()
        self._written = False
        if self._error:
            self._outcome = "limit" if self._limit else "failed"
        else:
            self._outcome = "aborted" if self._aborted else "answered"
        self._aborted = self._limit = False
        self._go("failed" if self._error else "idle")

    def _answered(self, fact: facts.Answered) -> None:
        waiting = self._questions.pop(fact.id, None)
        call = self._calls.get(waiting.question.call_id) if waiting is not None else None
        if call is not None and fact.allowed:
            call.running_since = self._clock()  # do not count the wait for approval
        self._work("tool" if self._calls else "thinking")

    def _forget_dialogs(self, fact: facts.Fact) -> None:
        """Drop open dialogs once the run goes on: no frame reports their answer."""
        if self._questions and not isinstance(fact, facts.ToolSaid):
            self._questions = {
                id: waiting
                for id, waiting in self._questions.items()
                if waiting.question.kind == "approval" and not isinstance(fact, facts.RunEnded)
            }

    # --- counting ----------------------------------------------------------------------------

    def _count(self, used: facts.UsedTokens) -> None:
        if used.cost_usd is None:
            self._cost_known = False
        if used.total:
            self._cost = used.cost_usd or 0.0
            self._cost_known = used.cost_usd is not None
            self._tokens = used
            return
        if used.message and used.message == self._last_call.message:
            return  # repeated by a frame of the same message
        if used.message:
            self._turns += 1
        self._cost += used.cost_usd or 0.0
        self._tokens = _sum(self._tokens, used)
        if used.input or used.output or used.cache_read:
            self._last_call = used

    # --- states ------------------------------------------------------------------------------

    def _running(self) -> bool:
        return bool(self._calls) and any(
            call.running_since is not None for call in self._calls.values()
        )

    def _work(self, state: AgentState) -> None:
        """Go to a state; while a question is open, that state is `waiting`, unless it failed."""
        self._go("waiting" if self._questions and state != "failed" else state)

    def _go(self, state: AgentState) -> None:
        if state != self._state:
            self._state = state
            self._since = self._clock()

    @property
    def asks(self) -> bool:
        """Whether a question is open; cheaper than the whole status."""
        return bool(self._questions)

    def status(self) -> Status:
        now = self._clock()
        state = self._state
        running = next((c for c in self._calls.values() if c.running_since is not None), None)
        since = self._since
        tool = about = ""
        if state == "tool":
            call = running or next(iter(self._calls.values()), None)
            tool, about = (call.name, call.about) if call is not None else ("", "")
            since = running.running_since or since if running is not None else since
        waiting_for, waiting_kind = self._waiting()
        silent = max(0.0, now - self._last_frame)
        return Status(
            state=state,
            seconds=max(0.0, now - since),
            tool=tool,
            tool_about=about,
            waiting_for=waiting_for,
            error=self._error if state in ("failed", "gone") else "",
            turns=self._turns,
            tool_calls=self._tool_calls,
            cost_usd=self._cost,
            cost_known=self._cost_known,
            outcome=self._outcome,
            waiting_kind=waiting_kind,
            questions=tuple(_open(waiting, now) for waiting in self._questions.values()),
            model=self._model,
            input_tokens=self._tokens.input,
            output_tokens=self._tokens.output,
            cache_read_tokens=self._tokens.cache_read,
            context_tokens=_context(self._last_call),
            compactions=self._compactions,
            silent_seconds=silent,
            stalled=state in ("thinking", "compacting") and silent >= STALLED_SECONDS,
        )

    def _waiting(self) -> tuple[str, WaitingKind]:
        if self._state != "waiting":
            return "", ""
        for waiting in self._questions.values():
            return waiting.question.title, waiting.question.kind
        return (f"a retry: {self._retry}", "retry") if self._retry else ("a tool", "tool")


def _open(waiting: Waiting, now: float) -> OpenQuestion:
    question = waiting.question
    waited = max(0.0, now - waiting.since)
    limit = question.timeout_seconds
    shown = facts.shared_fields(question, facts.PersonQuestion)
    left = None if limit is None else max(0.0, limit - waited)
    return OpenQuestion(**shown, asked_seconds=waited, left_seconds=left)


def _sum(left: facts.UsedTokens, right: facts.UsedTokens) -> facts.UsedTokens:
    return facts.UsedTokens(
        left.input + right.input,
        left.output + right.output,
        left.cache_read + right.cache_read,
        left.cache_write + right.cache_write,
    )


def _context(call: facts.UsedTokens) -> int:
    return call.input + call.output + call.cache_read + call.cache_write
