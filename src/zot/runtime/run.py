"""One run of a runtime: accepted, executed, watched after an abort, and ended exactly once.

Code that can be cancelled must not announce the end: the work raises or returns, and the runtime's
conductor thread calls `announce_end`.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Literal

from zot.bugs import internal_error
from zot.cancel import Cancel
from zot.core import changes, events
from zot.core.agent import UserInput
from zot.core.events import Event, Replay
from zot.core.session import Body, Entry, Session
from zot.core.toolbox import Begun
from zot.errors import Cancelled, ProviderError, SessionError, SessionTaken, ZotError
from zot.provider.types import Json, Message, Stop, ToolCall, Usage
from zot.text import Frozen

if TYPE_CHECKING:
    from zot.runtime.runs import Runs

ABORT_GRACE = 1.5
"""Seconds an aborted run may take to stop; then it is given up and its late output dropped."""


class StoredEnd(Frozen):
    """Outcome of a durable run, perhaps from an earlier process."""

    stop: Stop
    error: str
    code: str
    text: str
    """Last text of the model."""


class Run:
    """One accepted prompt or compact. It can be aborted at any time and ends exactly once."""

    def __init__(
        self,
        kind: Literal["prompt", "compact"],
        work: Callable[[Run], None],
        runs: Runs,
        tag: object,
        id: str = "",
        size: int = 0,
    ) -> None:
        self.kind = kind
        self.id = id
        """Id of a durable run; empty: the run ends with the process."""
        self.answer = ""
        """In a durable run: entry id of the model's last message, whose calls are run."""
        self.tag = tag
        """The client's tag for this run; returned with its events."""
        self.cancel = Cancel()
        self.error: ZotError | None = None
        self.stop: Stop = "end"
        self._work = work
        self._runs = runs
        self._wait = runs.client.wait
        self._lock = threading.Lock()
        self._given_up = False
        self._has_ended = False
        self._suspended = False
        self._began = time.monotonic()
        self._working = threading.Lock()
        """Held while the work runs."""
        self.ended = threading.Event()
        self.size = size
        """Approximate bytes of its input, counted while it is queued."""
        self.listening = kind == "prompt"
        """Whether the run still accepts queued messages."""
        self.turn_open = False
        """A TurnStart was emitted without its TurnEnd so far."""

    # --- interface for the loop (core.agent.RunIO) -------------------------------------------

    def emit(self, event: Event) -> None:
        self._wait(self.cancel)
        with self._lock:
            if self._given_up or self._suspended:
                raise Cancelled
            kind = type(event)  # faster than isinstance; runs for every delta
            if kind is events.TurnStart:
                self.turn_open = True
            elif kind is events.TurnEnd:
                self.turn_open = False
            self._runs.tell(event, self)

    def append(self, body: Body) -> Entry:
        with self._lock:
            self._check_alive()
            entry = self._runs.agent.session.append(body)
            durable = self._runs.durable
            if durable is not None and isinstance(body, Message) and body.role == "assistant":
                durable.answered_by_model(self, entry)
            return entry

    def begin(self, call: ToolCall, replay: Replay) -> Begun:
        begun = Begun()
        durable = self._runs.durable
        if durable is not None:
            with self._lock:
                self._check_alive()
                begun = durable.begin(self, call, replay)
        self.emit(events.ToolAllowed(call))
        return begun

    def pause(self, call_id: str, state: Json) -> None:
        durable = self._runs.durable
        if durable is not None:
            with self._lock:
                self._check_alive()
                durable.pause(self, call_id, state)

    def spend(self, usage: Usage) -> None:
        self._runs.agent.pay_for_tool(usage, self)

    def changing_file(self, path: str, before: bytes | None, after: bytes | None) -> None:
        with self._lock:
            self._check_alive()
            keep_change(self._runs.agent.session, path, before, after)

    def _check_alive(self) -> None:
        if self._given_up or self._suspended:
            raise Cancelled

    def take_steering(self) -> list[UserInput]:
        return self._runs.queue.take("steering", self)

    def has_steering(self) -> bool:
        return bool(self._runs.queue.steering)

    def take_follow_up(self) -> list[UserInput]:
        return self._runs.queue.take("follow_up", self)

    # --- durable state -----------------------------------------------------------------------

    @property
    def seconds(self) -> float:
        """Seconds of work, including those in earlier processes."""
        return time.monotonic() - self._began

    def count_from(self, seconds: float) -> None:
        """Start the clock; `seconds` were spent in earlier processes."""
        self._began = time.monotonic() - seconds

    @property
    def suspended(self) -> bool:
        return self._suspended

    def suspend(self) -> None:
        """Stop as if the process had been killed: write and emit nothing more; the next process
        continues the run."""
        with self._lock:
            self._suspended = True
        self.cancel.set()

    # --- interface for the conductor ---------------------------------------------------------

    def work(self) -> bool:
        """Do the work in this thread; False: it was given up, and another thread is conductor."""
        with self._working:
            self.cancel.watch_with(partial(self._runs.watch, self))
            self._run()
            self.cancel.watch_with(None)
        return not self._given_up

    def wait_or_give_up(self) -> None:
        """Give an aborted run ABORT_GRACE seconds, then give it up; called in its own thread."""
        if self._working.acquire(timeout=ABORT_GRACE):
            return
        with self._lock:
            if self._has_ended:
                return
            self._given_up = True
            self.stop = "aborted"
        self._runs.go_on_without(self)

    def announce_end(self) -> None:
        """Close an open turn and emit Done. Only the conductor calls this, and only once."""
        error, tell = self.error, self._runs.tell
        if self._suspended:
            if error is not None:
                tell(events.ErrorRaised(str(error), error.code), self)
            tell(events.RunSuspended(self.id), self)
            return
        if self.stop == "aborted":
            tell(events.TurnEnd("aborted", "aborted"), self)
        elif error is not None:
            if self.turn_open:
                tell(events.TurnEnd("error", str(error), error.code), self)
            tell(events.ErrorRaised(str(error), error.code), self)
        tell(events.Done(self.stop, self.id), self)

    def _run(self) -> None:
        try:
            if self.cancel.aborted:
                raise Cancelled
            self._work(self)
        except Cancelled:
            self._ended_with(None, "aborted")
        except ProviderError as error:
            if self.cancel.is_set():  # the abort closed its connection
                self._ended_with(None, "aborted")
            else:
                self._ended_with(error, "error")
        except SessionTaken as error:  # the process that took the session reports the end
            self._suspended = bool(self.id)
            self._ended_with(error, "error")
        except ZotError as error:
            self._ended_with(error, "error")
        except BaseException as error:
            # An internal bug: the client gets one line, stderr the traceback. This includes
            # SystemExit, which would otherwise end this thread and make the run look successful.
            self._ended_with(internal_error(error), "error")
        else:
            self._ended_with(None, "end")

    def _ended_with(self, error: ZotError | None, stop: Stop) -> None:
        with self._lock:
            if not self._given_up:  # once given up, its end is already announced
                self.error, self.stop = error, stop
            self._has_ended = True

    def fail(self, error: ZotError) -> None:
        """Turn a success into a failure, for errors after the work."""
        if self.stop == "end":
            self.error, self.stop = error, "error"


def keep_change(session: Session, path: str, before: bytes | None, after: bytes | None) -> None:
    """Store a file's content before a tool changes it, if the session keeps contents."""
    if session.contents is None:
        return
    try:
        session.append(changes.kept_change(session.contents, path, before, after))
    except SessionError:
        pass  # the tool's result cannot be written either, and that is reported
