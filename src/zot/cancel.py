"""The stop signal that runs through every wait of a turn. It knows nothing of what it stops."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from threading import TIMEOUT_MAX
from typing import TYPE_CHECKING

from zot.errors import Cancelled

if TYPE_CHECKING:
    import threading


class Gate:
    """Closed, then open for good: one lock does what an Event does with two and a queue."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._lock.acquire()

    def open(self) -> None:
        """Let all pass who wait, and all who come. To be called once."""
        self._lock.release()

    def wait(self, seconds: float | None = None) -> bool:
        """Until it is open, or the time is over: False."""
        timeout = -1 if seconds is None else min(max(seconds, 0.0), TIMEOUT_MAX)
        if not self._lock.acquire(timeout=timeout):
            return False
        self._lock.release()  # for the next one
        return True


class Cancel:
    """One-shot: once set it stays set. Whoever blocks registers how to be woken.

    A wait that a flag cannot end (a socket read, a child process) registers a callback with
    `calling`: shut the socket down, kill the tree. Callbacks run in the thread that aborts, so
    they must be quick and must not raise.
    """

    def __init__(self) -> None:
        self._gate: Gate | None = None
        """For those who sleep; most turns have none."""
        self.aborted = False
        """The same as `is_set`, as a plain field: it is looked at for every delta."""
        self._lock = threading.Lock()
        self._callbacks: dict[int, Callable[[], object]] = {}
        self._watcher: Callable[[], object] | None = None
        self.before_wait: Callable[..., object] = _nothing
        """Called before each wait: what the client is to see is written, not kept until later.
        With `soon=True` where there may be nothing to wait for: it is only made ready then."""

    def is_set(self) -> bool:
        return self.aborted

    def check(self) -> None:
        """Raise Cancelled if the turn was aborted."""
        if self.aborted:
            raise Cancelled

    def wait(self, seconds: float | None = None) -> bool:
        """Sleep until aborted or until the time is over; True if aborted."""
        self.before_wait()
        with self._lock:
            if self._gate is None:
                self._gate = Gate()
                if self.aborted:
                    self._gate.open()
        return self._gate.wait(seconds)

    def sleep(self, seconds: float) -> None:
        """Sleep, and raise Cancelled as soon as the turn is aborted."""
        if self.wait(seconds):
            raise Cancelled

    def set(self) -> None:
        with self._lock:
            if self.aborted:
                return
            self.aborted = True
            if self._gate is not None:
                self._gate.open()
            callbacks = list(self._callbacks.values())
            if self._watcher is not None:
                callbacks.insert(0, self._watcher)  # first: it counts on none of the others
        for callback in callbacks:
            callback()

    def calling(self, callback: Callable[[], object], *, waits: bool = True) -> _Calling:
        """Run `callback` if the abort comes while the block runs, or at once if it already came.
        A block that does not wait as such calls `before_wait` where it does."""
        if waits:
            self.before_wait()
        return _Calling(self, callback)

    def watch_with(self, callback: Callable[[], object] | None) -> None:
        """As `calling`, for the one who sees to it that the turn ends: until another is named."""
        with self._lock:
            self._watcher = callback
            aborted = self.aborted
        if aborted and callback is not None:
            callback()

    def waking(self, condition: threading.Condition) -> _Calling:
        """Wake those who wait for the condition if the abort comes while the block runs."""

        def wake() -> None:
            with condition:
                condition.notify_all()

        return self.calling(wake)

    def wait_for(
        self,
        condition: threading.Condition,
        done: Callable[[], bool],
        deadline: float | None = None,
    ) -> bool:
        """Wait until `done`, which is asked whenever the condition is told of something; False: the
        deadline of the monotonic clock came first. Raises Cancelled when the turn is aborted."""
        with self.waking(condition), condition:
            while not done():
                self.check()
                seconds = None if deadline is None else deadline - time.monotonic()
                if seconds is not None and seconds <= 0:
                    return False
                condition.wait(seconds)
        return True


def _nothing(*, soon: bool = False) -> None:
    pass


class _Calling:
    """Holds a callback in a Cancel for as long as a block runs."""

    def __init__(self, cancel: Cancel, callback: Callable[[], object]) -> None:
        self._cancel = cancel
        self._callback = callback

    def __enter__(self) -> None:
        cancel = self._cancel
        with cancel._lock:
            aborted = cancel.aborted
            if not aborted:
                cancel._callbacks[id(self)] = self._callback
        if aborted:
            self._callback()

    def __exit__(self, *_: object) -> None:
        with self._cancel._lock:
            self._cancel._callbacks.pop(id(self), None)
