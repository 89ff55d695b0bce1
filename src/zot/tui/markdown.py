"""Text of a model as it streams in."""

from __future__ import annotations

from zot.tui.cells import Line, clean, wrap


class MarkdownBlock:
    """Settles line by line; only the end of it is drawn again."""

    def __init__(self) -> None:
        self.closed = False
        self.text = ""
        self._rest = ""

    def add(self, text: str) -> None:
        self.text += text
        self._rest += text

    def close(self) -> None:
        self.closed = True

    def settle(self, width: int) -> list[Line]:
        head, feed, rest = self._rest.rpartition("\n")
        if self.closed:
            head, feed, rest = self._rest, "\n", ""
        self._rest = rest
        return wrap([("", clean(head.rstrip("\n")))], width) if feed and head.strip() else []

    def live(self, width: int, height: int) -> list[Line]:
        return wrap([("", clean(self._rest))], width)[-height:] if self._rest else []
