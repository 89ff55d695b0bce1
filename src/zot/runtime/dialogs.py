"""Open questions of extensions and MCP servers: a source asks, a client answers. In a durable run
both survive the process: an answer counts when the same question is asked again.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import TYPE_CHECKING

from zot.bugs import warn_once
from zot.core.events import ExtensionAsk
from zot.core.source import CANCELLED, PersonAnswer
from zot.errors import NotFoundError, SessionError

if TYPE_CHECKING:
    from zot.runtime.durable import Durable
    from zot.runtime.sources import Sources


class OpenDialogs:
    """Open dialogs of one runtime."""

    def __init__(
        self, sources: Sources, tell: Callable[[ExtensionAsk], None], durable: Durable | None
    ) -> None:
        self._sources = sources
        self._tell = tell
        self._durable = durable
        self._lock = threading.Lock()
        self._questions: dict[str, ExtensionAsk] = {}
        self._nobody = False
        self._suspend: Callable[[], None] | None = None

    def ask(self, question: ExtensionAsk) -> None:
        """Send a question to the client, unless it was answered before a crash. If the client is
        gone, cancel it or suspend the run."""
        try:
            answer = None if self._durable is None else self._durable.dialog_asked(question)
        except SessionError as error:
            warn_once(f"a question of {question.extension!r} cannot be asked: {error}")
            self._sources.answer(question.id, CANCELLED)
            return
        if answer is not None:
            self._sources.answer(question.id, answer)
            return
        with self._lock:
            still = self._sources.open_questions()
            self._questions = {id: ask for id, ask in self._questions.items() if id in still}
            self._questions[question.id] = question
            nobody, suspend = self._nobody, self._suspend
        self._tell(question)
        if nobody:
            self._left_open(suspend)

    def answer(
        self,
        id: str,
        value: str | None = None,
        *,
        confirmed: bool = False,
        cancelled: bool = False,
    ) -> None:
        """Pass a person's answer to the source that asked.

        Raises:
            CommandError: no such question is open.
            SessionError: it cannot be kept, so it does not count; the question stays open.
        """
        answer = PersonAnswer(value, confirmed, cancelled)
        question = self._questions.get(id)
        known = question is not None and id in self._sources.open_questions()
        if known and question is not None and self._durable is not None:
            self._durable.dialog_answered(question, answer)
        if not self._sources.answer(id, answer):
            raise NotFoundError(f"no question {id!r} is open")

    def open(self) -> list[ExtensionAsk]:
        """Return the open questions."""
        still = self._sources.open_questions()
        with self._lock:
            return [question for id, question in self._questions.items() if id in still]

    def client_left(self, suspend: Callable[[], None] | None) -> None:
        """Cancel open and future questions, because the client is gone; with `suspend`, stop the
        run instead, and the next process continues it."""
        with self._lock:
            self._nobody, self._suspend = True, suspend
        if self.open():
            self._left_open(suspend)

    def _left_open(self, suspend: Callable[[], None] | None) -> None:
        if suspend is not None:
            suspend()
            return
        for question in self.open():
            self._sources.answer(question.id, CANCELLED)
