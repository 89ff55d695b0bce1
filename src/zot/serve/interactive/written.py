"""Decides when text goes to disk: shortly after a key, and when it is sent. `kept.py` has the
files; until it is loaded nothing is written.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from zot.serve.interactive.kept import Draft, History

DRAFT_SECONDS = 0.3
"""Seconds between a key and saving the draft."""


class Written:
    def __init__(self, warn: Callable[[str], None]) -> None:
        self._warn = warn
        self._history: History | None = None
        self._draft: Draft | None = None
        self._due = 0.0
        """Time at which to save the draft; 0: saved."""
        self._warned = False

    @property
    def is_kept(self) -> bool:
        return self._draft is not None

    def use(self, history: History, draft: Draft) -> None:
        self._history, self._draft = history, draft
        self._due = time.monotonic()

    def cannot(self, problem: str) -> None:
        """Warn, once, that history or draft could not be written. Callable from any thread."""
        if not self._warned:
            self._warned = True
            self._warn(f"what you write is not kept on disk (history, draft): {problem}")

    def typed(self) -> None:
        self._due = self._due or time.monotonic() + DRAFT_SECONDS

    def tick(self, text: Callable[[], str]) -> float | None:
        """Save the text if it is due; return the seconds left if not."""
        if not self._due or self._draft is None:
            return None
        left = self._due - time.monotonic()
        if left > 0:
            return left
        self._due = 0.0
        self._draft.keep(text())
        return None

    def add(self, text: str) -> None:
        """Add a text to the history."""
        if self._history is not None:
            self._history.add(text)

    def sent(self, text: str) -> None:
        self.add(text)
        if self._draft is not None:
            self._draft.keep("")

    def close(self, text: str) -> None:
        """Save the text for the next start, and close."""
        if self._draft is not None:
            self._draft.close(text)
