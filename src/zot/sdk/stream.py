"""The events of one run on their way to an embedder: a queue between two threads, an iterator."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Iterator
from typing import Self

from zot.cancel import Cancel
from zot.errors import CommandError, ZotError
from zot.runtime.run import Run, StoredEnd
from zot.text import Frozen
from zot.wire import frames
from zot.wire.frames import EventFrame

MAX_UNREAD = 10_000
"""Events that may wait to be read before the run is slowed down."""
STOP_SECONDS = 10.0
"""More than a run takes to give up; it ends earlier in all but the worst case."""


class AgentEvent(Frozen):
    """An event of an agent that the tool `task` opened."""

    agent: str
    """Its name."""
    parent: str
    """The agent whose tool opened it; empty: the runtime itself."""
    event: EventFrame


class Channel:
    """The events of one run on their way from the run's thread to whoever reads them."""

    def __init__(self, notify: Callable[[], None] | None = None) -> None:
        self._condition = threading.Condition()
        self._waiting: deque[tuple[EventFrame, int]] = deque()
        self._notify = notify
        """Called after each event, for a reader that does not block; must not raise."""
        self.ended = False
        """Nobody reads any more, or Done was taken."""
        self.seq = 0
        """The number of the event that was taken last."""

    def put(self, event: EventFrame, seq: int = 0) -> None:
        """`seq`: its number in the event log."""
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
        """The next event. None: there is none yet, or (`ended`) there will be none."""
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
    """What streams of events share, for whichever kind of program."""

    def __init__(self, run: Run | StoredEnd | None, channel: Channel) -> None:
        """`run` None: it has not begun yet."""
        self.end = run if isinstance(run, StoredEnd) else None
        """How a durable run ended that had ended before: then Done is all that comes."""
        self._run = run if isinstance(run, Run) else None
        self._channel = channel

    @property
    def seq(self) -> int:
        """Of a durable run: the number of the event that was taken last, in the event log."""
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
    """The events of one prompt, up to and including Done. Closing it early aborts the run. A
    durable run that a closed runtime leaves for the next one ends with RunSuspended instead."""

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> EventFrame:
        event = self._channel.take()
        if event is None:
            raise StopIteration
        return event

    def close(self) -> None:
        """Abort what still runs, and wait until it has stopped."""
        self._abort()
        if self._run is not None:
            self._run.ended.wait(STOP_SECONDS)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __del__(self) -> None:
        self._abort()  # a `break` out of the loop leaves nobody who could read the rest

    def _abort(self) -> None:
        if not self._channel.ended:
            self._channel.end()
            self._cancel()
