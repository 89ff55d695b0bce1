"""Changes to a runtime between its runs: one at a time, and none during a run."""

from __future__ import annotations

import threading
from collections import deque

from zot.errors import BusyError
from zot.runtime.run import Run


class Change:
    """Allows one change to an idle runtime at a time. A change may take long (files, processes), so
    the lock is released meanwhile: the state can be read; only new runs and other changes wait."""

    def __init__(self, lock: threading.RLock) -> None:
        self.ended = threading.Condition(lock)
        self._owner = 0
        """Id of the thread that makes a change; 0: none."""
        self._depth = 0

    def wait(self) -> None:
        """Wait until no other thread makes a change; the caller holds the lock."""
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
    """Context manager that keeps runs out during a change. Raises BusyError: a run is active."""

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
