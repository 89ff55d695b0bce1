"""A question to an extension, and the queue of its answers."""

from __future__ import annotations

import threading
from collections import deque

from zot.cancel import Cancel
from zot.extensions.guest import Guest
from zot.extensions.proto import CommandResponse, EventInterceptResponse, ToolProgress, ToolResult
from zot.text import Frozen

MAX_PROGRESS = 64 * 1024
"""Maximum number of queued characters of progress; of more, the end is kept."""


class NoAnswer(Frozen):
    """No answer will come."""

    reason: str


class TimedOut(Frozen):
    """The extension runs, but the timeout has passed."""

    reason: str = "it did not answer in time"


Answer = ToolResult | ToolProgress | CommandResponse | EventInterceptResponse | NoAnswer | TimedOut


class Question:
    """A question: one thread waits for it, the extension's reading thread answers it."""

    def __init__(self, id: str, guest: Guest) -> None:
        self.id = id
        self.guest = guest
        """The runtime that asks."""
        self._answers: deque[Answer] = deque()
        self._arrived = threading.Condition()

    def put(self, answer: Answer) -> None:
        """Add an answer; never blocks. Pending progress is merged instead of queued."""
        with self._arrived:
            last = self._answers[-1] if self._answers else None
            if isinstance(answer, ToolProgress) and isinstance(last, ToolProgress):
                self._answers.pop()
                answer = ToolProgress(answer.id, (last.text + answer.text)[-MAX_PROGRESS:])
            self._answers.append(answer)
            self._arrived.notify_all()

    def wait(self, deadline: float | None, cancel: Cancel) -> Answer:
        """Return the next answer; TimedOut when the deadline passed. Raises Cancelled: the turn was
        aborted meanwhile."""
        if not cancel.wait_for(self._arrived, lambda: bool(self._answers), deadline):
            return TimedOut()
        cancel.check()
        with self._arrived:
            return self._answers.popleft()
