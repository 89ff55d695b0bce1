"""Event streams for embedders: a queue between two threads, an iterator over it, and the answer
that its events add up to.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Iterator
from typing import Any, Self

from zot.cancel import Cancel
from zot.errors import CommandError, ZotError
from zot.provider.types import Stop
from zot.runtime.run import Run, StoredEnd
from zot.sdk.output import converted
from zot.text import Frozen
from zot.wire import frames
from zot.wire.frames import EventFrame, MessageShape, TextBlock, UsageShape

MAX_UNREAD = 10_000
"""Maximum number of unread events before the run has to wait."""
STOP_SECONDS = 10.0
"""Timeout for an aborted run to stop, in seconds; nearly all stop sooner."""


class CompactResult(Frozen):
    """The summary, and the transcript that begins with it."""

    summary: str
    messages: tuple[MessageShape, ...]


class NothingToResume(Exception):
    """There is no interrupted run."""


class AgentEvent(Frozen):
    """An event of an agent that the tool `task` opened."""

    agent: str
    """Name of the agent."""
    parent: str
    """Agent whose tool opened it; empty: the runtime itself."""
    event: EventFrame


class Channel:
    """Queue of one run's events, from the run's thread to the reader."""

    def __init__(self, notify: Callable[[], None] | None = None) -> None:
        self._condition = threading.Condition()
        self._waiting: deque[tuple[EventFrame, int]] = deque()
        self._notify = notify
        """Callback after each event, for a reader that does not block; must not raise."""
        self.ended = False
        """Whether the reader is gone, or the last event was taken."""
        self.seq = 0
        """Number of the last event taken."""

    def put(self, event: EventFrame, seq: int = 0) -> None:
        """Add an event; `seq` is its number in the event log."""
        with self._condition:
            if self.ended:
                return
            self._waiting.append((event, seq))
            self._condition.notify_all()
        if self._notify is not None:
            self._notify()

    def wait_for_room(self, cancel: Cancel) -> None:
        if len(self._waiting) < MAX_UNREAD:
            return
        with cancel.waking(self._condition), self._condition:
            while len(self._waiting) >= MAX_UNREAD and not self.ended and not cancel.is_set():
                self._condition.wait()

    def take(self, *, wait: bool = True) -> EventFrame | None:
        """Return the next event. None: there is none yet or, if `ended`, no more will come."""
        with self._condition:
            while wait and not self._waiting and not self.ended:
                self._condition.wait()
            if not self._waiting:
                return None
            event, self.seq = self._waiting.popleft()
            if isinstance(event, frames.Done | frames.RunSuspended):
                self.ended = True
            self._condition.notify_all()
            return event

    def end(self) -> None:
        with self._condition:
            self.ended = True
            self._waiting.clear()
            self._condition.notify_all()


class RunStream:
    """Common base of the blocking and the asyncio event stream."""

    def __init__(self, run: Run | StoredEnd | None, channel: Channel) -> None:
        """Read `channel`; `run` None: it has not started yet."""
        self.end = run if isinstance(run, StoredEnd) else None
        """Outcome of a durable run that had already ended; then Done is the only event."""
        self._run = run if isinstance(run, Run) else None
        self._channel = channel

    @property
    def seq(self) -> int:
        """Event-log number of the last event taken, in a durable run."""
        return self._channel.seq

    def raise_for_error(self) -> None:
        """Raise the error of a run that failed; call it after the last event.

        Raises:
            ZotError: the run failed, in the class of its cause: ProviderError, AuthError and so on.
            CommandError: the run was aborted (code `aborted`), or failed in an earlier process.
        """
        over = self.end or self._run
        if over is None:
            return
        if isinstance(over.error, ZotError):
            raise over.error
        if over.error:
            raise CommandError(over.error, code=self.end.code if self.end else "error")
        if over.stop == "aborted":
            raise CommandError("the run was aborted", code="aborted")

    def _cancel(self) -> None:
        if self._run is not None:
            self._run.cancel.set()


class EventStream(RunStream, Iterator[EventFrame]):
    """Events of one prompt, up to and including Done. Closing it early aborts the run. If a durable
    run is left to the next runtime by `close`, the last event is RunSuspended instead."""

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> EventFrame:
        event = self._channel.take()
        if event is None:
            raise StopIteration
        return event

    def close(self) -> None:
        """Abort the run if it is active, and wait until it has stopped."""
        self._abort()
        if self._run is not None:
            self._run.ended.wait(STOP_SECONDS)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __del__(self) -> None:
        self._abort()  # after a `break` out of the loop nobody can read the rest

    def _abort(self) -> None:
        if not self._channel.ended:
            self._channel.end()
            self._cancel()


# --- the whole answer ------------------------------------------------------------------------


class Answer(Frozen):
    """The result of `ask` for a run that ended well."""

    text: str
    """Text of the model's last message."""
    stop: Stop
    """Why the model stopped: `end`, or `length` when its output limit cut the text."""
    usage: UsageShape
    """Tokens and cost of all model calls of the prompt."""
    messages: tuple[MessageShape, ...]
    """Messages of the model, in order; those with tool calls included."""
    output: Any = None
    """The answer in the type of `schema`, if one was given."""


class AnswerParts:
    """Collects an Answer from the events of one prompt."""

    def __init__(self) -> None:
        self._messages: list[MessageShape] = []
        self._usage = UsageShape(0, 0, 0, 0, 0.0)
        self._stop: Stop = "end"

    def take(self, event: EventFrame) -> None:
        match event:
            case frames.AssistantMessage(content, time):
                self._messages.append(MessageShape("assistant", content, time))
            case frames.Usage():
                self._usage = _sum(self._usage, event)
            case frames.TurnEnd(stop):
                self._stop = stop

    def answer(self, schema: object = None) -> Answer:
        content = self._messages[-1].content if self._messages else ()
        text = "".join(block.text for block in content if isinstance(block, TextBlock))
        output = None if schema is None else converted(text, schema)
        return Answer(text, self._stop, self._usage, tuple(self._messages), output)


def _sum(usage: UsageShape, more: frames.Usage) -> UsageShape:
    return UsageShape(
        usage.input + more.input,
        usage.output + more.output,
        usage.cache_read + more.cache_read,
        usage.cache_write + more.cache_write,
        usage.cost_usd + more.cost_usd,
        usage.cost_known and more.cost_known,
    )
