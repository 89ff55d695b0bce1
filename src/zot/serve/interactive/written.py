"""When what a person writes goes to disk: a moment after a key, and when it is sent. `kept.py` has
the files; until it is loaded nothing is written.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from zot.serve.interactive.kept import Draft, History

DRAFT_SECONDS = 0.3
"""So long after a key what is written is on disk."""


class Written:
    def __init__(self, warn: Callable[[str], None]) -> None:
        self._warn = warn
        self._history: History | None = None
        self._draft: Draft | None = None
        self._due = 0.0
        """When the text is to be written down; 0: it is."""
        self._warned = False

    @property
    def is_kept(self) -> bool:
        return self._draft is not None

    def use(self, history: History, draft: Draft) -> None:
        self._history, self._draft = history, draft
        self._due = time.monotonic()

    def cannot(self, problem: str) -> None:
        """Told once: the history or the draft could not be written. From any thread."""
        if not self._warned:
            self._warned = True
            self._warn(f"what you write is not kept on disk (history, draft): {problem}")

    def typed(self) -> None:
        self._due = self._due or time.monotonic() + DRAFT_SECONDS

    def tick(self, text: Callable[[], str]) -> float | None:
        """Write the text down if it is time; else the seconds until then."""
        if not self._due or self._draft is None:
            return None
        left = self._due - time.monotonic()
        if left > 0:
            return left
        self._due = 0.0
        self._draft.keep(text())
        return None

    def add(self, text: str) -> None:
        """A text for the history."""
        if self._history is not None:
            self._history.add(text)

    def sent(self, text: str) -> None:
        self.add(text)
        if self._draft is not None:
            self._draft.keep("")

    def close(self, text: str) -> None:
        """The program ends: what is written stays for the next one."""
        if self._draft is not None:
            self._draft.close(text)
