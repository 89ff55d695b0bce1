"""Open questions of a tool source that wait for a person. The source itself builds the dialogs and
decides who may be asked.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Generic, TypeVar

from zot.core.source import PersonAnswer

Taker = TypeVar("Taker", bound=Callable[[PersonAnswer], None])


class UnansweredQuestions(Generic[Taker]):
    """Open questions by id, each with the callback for its answer."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._open: dict[str, Taker] = {}

    def open_questions(self) -> tuple[str, ...]:
        with self._lock:
            return tuple(self._open)

    def answer(self, id: str, answer: PersonAnswer) -> bool:
        """Pass an answer to the question's callback; False if the question is not open."""
        with self._lock:
            take = self._open.pop(id, None)
        if take is None:
            return False
        take(answer)
        return True
