"""A question to an extension, and the place where its answers arrive."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from queue import Empty, SimpleQueue

from msgspec import Struct

from zot.agent.extensions.proto import (
    CommandResponse,
    EventInterceptResponse,
    ToolProgress,
    ToolResult,
)
from zot.cancel import Cancel
from zot.errors import Cancelled


class Gone(Struct, frozen=True):
    """There will be no answer."""

    reason: str


class TimedOut(Struct, frozen=True):
    """The extension runs, but the time is over."""

    reason: str = "it did not answer in time"


Answer = ToolResult | ToolProgress | CommandResponse | EventInterceptResponse | Gone | TimedOut


class Question:
    """Waited for by one thread, answered by the extension's reading thread."""

    def __init__(self, id: str) -> None:
        self.id = id
        self._answers: SimpleQueue[Answer | None] = SimpleQueue()

    def put(self, answer: Answer) -> None:
        self._answers.put(answer)

    def wait(self, deadline: float | None, cancel: Cancel) -> Answer:
        """The next answer; TimedOut when the deadline passed.

        Raises:
            Cancelled: the turn was aborted meanwhile.
        """
        seconds = None if deadline is None else max(0.0, deadline - time.monotonic())
        try:
            answer = self._answers.get(timeout=seconds)
        except Empty:
            cancel.check()
            return TimedOut()
        if answer is None:
            raise Cancelled
        return answer

    @contextmanager
    def woken_by(self, cancel: Cancel) -> Iterator[None]:
        with cancel.calling(lambda: self._answers.put(None)):
            yield
