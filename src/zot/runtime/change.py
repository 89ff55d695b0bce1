"""Changes of a runtime between its runs: one at a time, and none while a run is in flight."""

from __future__ import annotations

import threading
from collections import deque

from zot.errors import BusyError
from zot.runtime.run import Run


class Change:
    """One change of an idle runtime at a time. It may take long (files, processes), so the lock is
    not held meanwhile: the state can be asked for, and only what would begin a run or another
    change waits."""

    def __init__(self, lock: threading.RLock) -> None:
        self.ended = threading.Condition(lock)
        self._owner = 0
        """The thread that changes something; 0: none."""
        self._depth = 0

    def wait(self) -> None:
        """Wait until no other thread changes something; the lock is held."""
        while self._owner not in (0, threading.get_ident()):
            self.ended.wait()

    def begin(self) -> None:
        self._owner = threading.get_ident()
        self._depth += 1

    def end(self) -> None:
        self._depth -= 1
        if not self._depth:
            self._owner = 0
            self.ended.notify_all()


class Idle:
    """Holds the runtime still while its state changes."""

    def __init__(self, change: Change, runs: deque[Run], what: str) -> None:
        self._change = change
        self._runs = runs
        self._what = what

    def __enter__(self) -> None:
        with self._change.ended:
            self._change.wait()
            if self._runs:
                raise BusyError(f"agent is busy: {self._what} has to wait for done, or abort first")
            self._change.begin()

    def __exit__(self, *_: object) -> None:
        with self._change.ended:
            self._change.end()
