"""The stop signal that every wait of a turn takes. Independent of what it stops."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

from zot.errors import Cancelled


class Cancel:
    """A one-shot flag: once set it stays set. Blocking code registers how to be woken.

    A wait that a flag cannot end (a socket read, a child process) registers a callback with
    `calling`: shut the socket down, kill the tree. Callbacks run in the thread that aborts, so
    they must be quick and must not raise.
    """

    def __init__(self) -> None:
        self._event = threading.Event()
        self.aborted = False
        """Equal to `is_set`, as a plain field: the loop reads it for every delta."""
        self._lock = threading.Lock()
        self._callbacks: dict[int, Callable[[], object]] = {}
        self._watcher: Callable[[], object] | None = None

    def is_set(self) -> bool:
        return self.aborted

    def check(self) -> None:
        """Raise Cancelled if the turn was aborted."""
        if self.aborted:
            raise Cancelled

    def wait(self, seconds: float | None = None) -> bool:
        """Sleep until aborted or until the time is over; True if aborted."""
        return self._event.wait(None if seconds is None else min(seconds, threading.TIMEOUT_MAX))

    def sleep(self, seconds: float) -> None:
        """Sleep, and raise Cancelled as soon as the turn is aborted."""
        if self.wait(seconds):
            raise Cancelled

    def set(self) -> None:
        with self._lock:
            if self.aborted:
                return
            self.aborted = True
            self._event.set()
            callbacks = list(self._callbacks.values())
            if self._watcher is not None:
                callbacks.insert(0, self._watcher)  # first: it must not depend on the others
        for callback in callbacks:
            callback()

    def calling(self, callback: Callable[[], object]) -> Calling:
        """Run `callback` if the abort comes while the block runs, or at once if it already came."""
        return Calling(self, callback)

    def watch_with(self, callback: Callable[[], object] | None) -> None:
        """Like `calling`, for the supervisor that ends the turn; stays until replaced."""
        with self._lock:
            self._watcher = callback
            aborted = self.aborted
        if aborted and callback is not None:
            callback()

    def waking(self, condition: threading.Condition) -> Calling:
        """Notify all waiters of the condition if the abort comes while the block runs."""

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
        """Wait until `done()`, which is called whenever the condition is notified; return False if
        the deadline (monotonic clock) came first. Raises Cancelled when the turn is aborted."""
        with self.waking(condition), condition:
            while not done():
                self.check()
                seconds = None if deadline is None else deadline - time.monotonic()
                if seconds is not None and seconds <= 0:
                    return False
                condition.wait(seconds)
        return True


class Calling:
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
