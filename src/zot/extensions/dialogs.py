"""Questions of extensions to the user, and their answers."""

from __future__ import annotations

import threading
from collections.abc import Callable
from itertools import count
from typing import TYPE_CHECKING, Any

from zot.core.events import ExtensionAsk
from zot.core.source import CANCELLED, PersonAnswer, UnansweredQuestions
from zot.extensions import proto
from zot.text import Frozen

if TYPE_CHECKING:
    from zot.extensions.extension import HostedExtension

MAX_OPEN = 8
MAX_SECONDS = 3600.0
METHODS = ("confirm", "select", "input", "editor")


class OpenAsk(Frozen):
    """A question of an extension, with the extension's own id for it."""

    asker: HostedExtension
    id: str
    timer: threading.Timer

    def __call__(self, answer: PersonAnswer) -> None:
        self.timer.cancel()
        said = proto.Answer(self.id, answer.value, answer.confirmed, answer.cancelled)
        self.asker.send(said)


class Dialogs(UnansweredQuestions[OpenAsk]):
    """The open questions; those that nobody can answer, or answers in time, are cancelled."""

    def __init__(
        self, emit: Callable[[ExtensionAsk], None], can_answer: Callable[[], bool], before: int = 0
    ) -> None:
        """`can_answer`: whether there is a user who sees questions. `before`: the number of the
        last question so far."""
        super().__init__()
        self._can_answer = can_answer
        self._emit = emit
        self._ids = count(before + 1)

    def ask(self, asker: HostedExtension, ask: proto.Ask) -> None:
        event = self._opened(asker, ask)
        if event is None:
            asker.send(proto.Answer(ask.id, cancelled=True))
        else:
            self._emit(event)

    def _opened(self, asker: HostedExtension, ask: proto.Ask) -> ExtensionAsk | None:
        with self._lock:
            busy = sum(question.asker is asker for question in self._open.values()) >= MAX_OPEN
            if busy or ask.method not in METHODS or not self._can_answer():
                return None
            id = f"ask-{next(self._ids)}"
            seconds = min(max(ask.timeout, 0.001), MAX_SECONDS)
            timer = threading.Timer(seconds, self.answer, (id, CANCELLED))
            timer.name, timer.daemon = f"ext-{asker.name}-ask", True
            self._open[id] = OpenAsk(asker, ask.id, timer)
            timer.start()
        method: Any = ask.method  # one of METHODS, as checked
        asked = ask.texts()
        return ExtensionAsk(id=id, extension=asker.name, method=method, timeout=seconds, **asked)

    def drop(self, asker: HostedExtension | None = None) -> None:
        """Drop the questions of an extension that has ended, or all of them."""
        with self._lock:
            gone = [id for id, asked in self._open.items() if asker in (None, asked.asker)]
            timers = [self._open.pop(id).timer for id in gone]
        for timer in timers:
            timer.cancel()
