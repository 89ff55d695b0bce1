"""Questions of a source of tools that wait for a person: what a dialog is made of otherwise, and
who may be asked at all, is the source's own.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Generic, TypeVar

from zot.core.source import PersonAnswer

Taker = TypeVar("Taker", bound=Callable[[PersonAnswer], None])


class UnansweredQuestions(Generic[Taker]):
    """The open questions by their ids, each with what takes its answer."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._open: dict[str, Taker] = {}

    def open_questions(self) -> tuple[str, ...]:
        with self._lock:
            return tuple(self._open)

    def answer(self, id: str, answer: PersonAnswer) -> bool:
        """Hand an answer to whoever asked; False if that question is not open."""
        with self._lock:
            take = self._open.pop(id, None)
        if take is None:
            return False
        take(answer)
        return True
