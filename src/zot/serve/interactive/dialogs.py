"""Menus and questions over the editor: they take all keys and close themselves."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from typing import Any

from zot.tui.keys import KeyPress
from zot.tui.menu import (
    AnswerKey,
    Menu,
    MenuItem,
    NoticeBox,
    Overlay,
    QuestionBox,
    ShownQuestion,
    TakesAnswer,
)

PAUSE_SECONDS = 0.6
"""Seconds without typing after which a person is assumed to have seen a new question."""


def _nothing() -> None:
    """Do nothing when a dialog is left."""


class DialogStack:
    """The open overlays; the last one is drawn and gets the keys."""

    def __init__(self) -> None:
        self.overlays: list[Overlay] = []
        self.typed_at = 0.0
        """Time of the last key typed as text."""
        self._typing = False
        """True while a person still types into the editor though a question has opened."""

    @property
    def top(self) -> Overlay | None:
        return self.overlays[-1] if self.overlays else None

    @property
    def follows(self) -> bool:
        """Whether the open overlay shows something that changes by itself."""
        return isinstance(self.top, NoticeBox) and self.top.follows

    def open(self, overlay: Overlay, *, unasked: bool = False) -> None:
        """Show an overlay; it gets all keys until `close`. With `unasked`, typing in progress goes
        to the editor until the first pause, so that it answers nothing by accident."""
        self.overlays.append(overlay)
        self._typing = unasked and time.monotonic() - self.typed_at < PAUSE_SECONDS

    def close(self, overlay: Overlay) -> None:
        if overlay in self.overlays:
            self.overlays.remove(overlay)

    def close_request(self, id: str) -> None:
        """Close all questions of an approval request."""
        self.overlays[:] = [overlay for overlay in self.overlays if overlay.id != id]

    def takes(self, key: KeyPress) -> bool:
        """Return whether the key is for the open overlay: there is one, and the key does not belong
        to text that was being typed when it opened."""
        if not self.overlays:
            return False
        now = time.monotonic()
        self._typing = self._typing and now - self.typed_at < PAUSE_SECONDS
        self.typed_at = now
        return not (self._typing and key.name in ("text", "backspace", "enter"))

    def choose(
        self,
        title: str,
        items: list[MenuItem],
        pick: Callable[[Any], None],
        chosen: int = 0,
        *,
        stays: bool = False,
        leave: Callable[[], None] = _nothing,
        unasked: bool = False,
        keys: Mapping[str, Callable[[Any], None]] | None = None,
        hint: str = "enter picks · esc leaves",
        moved: Callable[[Any], None] | None = None,
    ) -> Menu:
        """Open a menu that closes itself, unless it `stays`; call `pick` with the value picked, or
        `leave`. `keys`, `hint` and `moved` as for Menu."""

        def picked(value: Any) -> None:
            if not stays:
                self.close(menu)
            pick(value)

        def left() -> None:
            self.close(menu)
            leave()

        menu = Menu(
            title, items, picked, leave=left, chosen=chosen, keys=keys, hint=hint, moved=moved
        )
        self.open(menu, unasked=unasked)
        return menu

    def offer(self, title: str, *actions: tuple[str, str, Callable[[], None]]) -> None:
        """Open a menu of actions, each a label, a description and a function."""
        self.choose(title, [MenuItem(*action) for action in actions], lambda action: action())

    def ask(
        self,
        question: ShownQuestion,
        answer: TakesAnswer,
        *,
        leave: Callable[[], None] = _nothing,
        unasked: bool = False,
    ) -> None:
        """Open a question that closes itself; call `answer` with the reply and the text typed, or
        `leave`."""

        def answered(value: Any, typed: str) -> None:
            self.close(box)
            answer(value, typed)

        def left() -> None:
            self.close(box)
            leave()

        box = QuestionBox(question, answered, leave=left)
        self.open(box, unasked=unasked)

    def ask_text(self, title: str, text: str, then: Callable[[str], None], body: str = "") -> None:
        """Ask for one line of text, beginning with `text`."""
        self.ask(ShownQuestion(title, body, text=text), lambda _, typed: then(typed.strip()))

    def confirm(self, title: str, then: Callable[[], None]) -> None:
        keys = [AnswerKey("n", "no", False), AnswerKey("y", "yes", True)]
        self.ask(ShownQuestion(title, replies=keys), lambda value, _: then() if value else None)
