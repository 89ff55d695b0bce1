"""Menus and questions over the editor, which take all keys and close themselves."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping

from zot.runtime.client import RuntimeClient
from zot.tui.keys import KeyPress
from zot.tui.menu import Menu, MenuItem, Overlay, QuestionBox, ShownQuestion, TakesAnswer

PAUSE_SECONDS = 0.6
"""Seconds without typing after which a person is assumed to have seen a new question."""


class Asking(RuntimeClient):
    """The part of the app that shows menus and questions."""

    def __init__(self) -> None:
        self.overlays: list[Overlay] = []
        """Open overlays; the last one gets the keys."""
        self._typed_at = 0.0
        self._typing = False
        """True while a person still types into the editor though a question has opened."""

    def open(self, overlay: Overlay, *, unasked: bool = False) -> None:
        """Show a menu or a question; it gets all keys until `close`. With `unasked`, typing in
        progress goes to the editor until the first pause, so that it answers nothing by accident.
        """
        self.overlays.append(overlay)
        self._typing = unasked and time.monotonic() - self._typed_at < PAUSE_SECONDS

    def close(self, overlay: Overlay) -> None:
        if overlay in self.overlays:
            self.overlays.remove(overlay)

    def choose(
        self,
        title: str,
        items: list[MenuItem],
        pick: Callable[[object], None],
        chosen: int = 0,
        *,
        stays: bool = False,
        leave: Callable[[], None] = lambda: None,
        unasked: bool = False,
        keys: Mapping[str, Callable[[object], None]] | None = None,
        hint: str = "enter picks, esc leaves",
    ) -> Menu:
        """Open a menu that closes itself, unless it `stays`; call `pick` with the value picked, or
        `leave`. `keys` and `hint` as for Menu."""

        def picked(value: object) -> None:
            if not stays:
                self.close(menu)
            pick(value)

        def left() -> None:
            self.close(menu)
            leave()

        menu = Menu(title, items, picked, leave=left, chosen=chosen, keys=keys, hint=hint)
        self.open(menu, unasked=unasked)
        return menu

    def offer(self, title: str, *actions: tuple[str, str, Callable[[], None]]) -> None:
        """Open a menu of actions, each a label, a description and a function."""

        def pick(value: object) -> None:
            assert callable(value)
            value()

        self.choose(title, [MenuItem(*action) for action in actions], pick)

    def ask(
        self,
        question: ShownQuestion,
        answer: TakesAnswer,
        *,
        leave: Callable[[], None] = lambda: None,
        unasked: bool = False,
        box: type[QuestionBox] = QuestionBox,
    ) -> None:
        """Open a question that closes itself; call `answer` with the reply and the text typed, or
        `leave`."""

        def answered(value: object, typed: str) -> None:
            self.close(asked)
            answer(value, typed)

        def left() -> None:
            self.close(asked)
            leave()

        asked = box(question, answered, leave=left)
        self.open(asked, unasked=unasked)

    def _still_typing(self, key: KeyPress) -> bool:
        """Return whether the key belongs to text that was being typed when a question opened."""
        now = time.monotonic()
        self._typing = self._typing and now - self._typed_at < PAUSE_SECONDS
        self._typed_at = now
        return self._typing and key.name in ("text", "backspace", "enter")
