"""A bar that fills while something is fetched."""

from __future__ import annotations

from zot.tui.blocks import WholeBlock
from zot.tui.cells import Line, clip

WIDTH = 30


class ProgressBlock(WholeBlock):
    def __init__(self, title: str) -> None:
        self.closed = False
        self._title = title
        self._done = self._total = 0

    def set(self, done: int, total: int) -> None:
        self._done, self._total = done, total

    def close(self) -> None:
        self.closed = True

    def lines(self, width: int, *, folded: bool = True) -> list[Line]:
        share = self._done / self._total if self._total else 0.0
        filled = int(WIDTH * share)
        bar = "█" * filled + "░" * (WIDTH - filled)
        size = f" {self._done / 1e6:.0f} of {self._total / 1e6:.0f} MB" if self._total else ""
        return [clip((("", self._title + " "), ("accent", bar), ("dim", size)), width)]
