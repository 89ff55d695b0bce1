"""Our part of the terminal: settled lines are written once and become scrollback; of the live area
below them only changed lines are rewritten. Returns text; writes nothing.

Moves are relative: the row on which the live area begins is unknown. Automatic wrapping is off (see
terminal.py), so that a line whose width the terminal sees differently is cut at the margin and
cannot move the lines below it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Literal

from zot.tui.cells import Line, is_filled, is_simple, line_cells, plain
from zot.tui.theme import Painter, Theme

if TYPE_CHECKING:
    from zot.tui.links import FileLinks

Reflow = Literal["all", "above", "none"]
"""Lines that a terminal reflows when it gets narrower: all, all but the one with the cursor
(xterm.js), or none (xterm)."""
SYNC_ON, SYNC_OFF = "\x1b[?2026h", "\x1b[?2026l"
ERASE_LINE = "\x1b[K"
ERASE_BELOW = "\x1b[K\x1b7\x1b[B\x1b[J\x1b8"
"""Erases this line and all below it, from the first column. Not in one step: tmux takes erasing a
whole screen for its end, and keeps the old content in the scrollback."""


class LiveScreen:
    def __init__(self, theme: Theme) -> None:
        self._painter = Painter(theme)
        self._shown: list[Line] = []
        """The live area as it is on the terminal."""
        self._row = 0
        """Row of the live area with the cursor."""
        self._column = 0

    def use_theme(self, theme: Theme) -> None:
        self._painter = Painter(theme, self._painter.links)

    def use_links(self, links: FileLinks | None) -> None:
        """Set where file names link to, from now on."""
        self._painter = Painter(self._painter.theme, links)

    def frame(self, settled: Sequence[Line], live: Sequence[Line], row: int, column: int) -> str:
        """Return the text that writes `settled` above the live area for good, updates that and
        places the cursor; empty if nothing changed."""
        lines = [*settled, *live] or [()]
        row = min(row + len(settled), len(lines) - 1)
        out = self._changes(lines)
        if len(lines) < len(self._shown):
            out += (self._move(len(lines)), "\r", ERASE_BELOW)
            self._column = 0
        if self._row != row or self._column != column:
            out += (self._move(row), f"\x1b[{column + 1}G")
        self._shown = lines[len(settled) :]
        self._row, self._column = row - len(settled), column
        return f"{SYNC_ON}{''.join(out)}{SYNC_OFF}" if out else ""

    def _changes(self, lines: list[Line]) -> list[str]:
        out: list[str] = []
        shown = self._shown
        for index, line in enumerate(lines):
            if index < len(shown):
                if line != shown[index]:
                    out += (self._move(index), self._rewritten(shown[index], line))
                    self._column = -1
                continue
            if index:
                out += (self._move(index - 1), "\r\n")
            self._row = index
            out.append(self._painter.line(line))
            self._column = -1
        return out

    def _rewritten(self, before: Line, line: Line) -> str:
        """Return the text that turns one line into the other; the common start is not rewritten."""
        if is_filled(before) != is_filled(line) or (
            is_filled(line) and (before[0] != line[0] or line_cells(before) > line_cells(line))
        ):
            return f"\r{ERASE_LINE}{self._painter.line(line)}"
        same = 0
        while same < len(before) and same < len(line) and before[same] == line[same]:
            same += 1
        kept, rest = line[:same], line[same:]
        if rest and same < len(before) and before[same][0] == rest[0][0]:
            head = _common(before[same][1], rest[0][1])
            if head:
                style, text = rest[0]
                kept, rest = (*kept, (style, text[:head])), ((style, text[head:]), *rest[1:])
        if not is_simple(plain(kept)):  # the terminal may see another width
            kept, rest = (), line
        start = line_cells(kept)
        erase = (
            ERASE_LINE
            if not is_simple(plain(line)) or line_cells(before) > line_cells(line)
            else ""
        )
        # Before the text: after a line as wide as the screen it would erase the last letter.
        return f"\x1b[{start + 1}G{erase}{self._painter.line(rest)}"

    def _move(self, row: int) -> str:
        down, self._row = row - self._row, row
        if down > 0:
            # Line feeds, since a cursor movement stops at the bottom: a window that has just become
            # lower lacks rows there, and the way back up would lead too far.
            return "\n" * down
        return f"\x1b[{-down}A" if down < 0 else ""

    def resized(self, columns: int, reflow: Reflow = "all") -> str:
        """Erase the live area after a change of width, wherever its top is now."""
        above = self._row
        if reflow != "none":
            above = sum(_rows(line, columns) for line in self._shown[: self._row])
        if reflow == "all":
            above += max(0, self._column) // max(1, columns)
        out = f"\x1b[{above}A\r{ERASE_BELOW}" if above else f"\r{ERASE_BELOW}"
        self.forget()
        return out

    def forget(self) -> None:
        """Start over on the cursor's line, after other output was written."""
        self._shown, self._row, self._column = [], 0, 0

    def leave(self) -> str:
        """Erase the live area and move to its start, for other output."""
        out = f"{self._move(0)}\r{ERASE_BELOW}"
        self.forget()
        return out


def _rows(line: Line, columns: int) -> int:
    return max(1, -(-line_cells(line) // max(1, columns)))


def _common(one: str, other: str) -> int:
    """Return the length of the common prefix."""
    if other.startswith(one):
        return len(one)
    low, high = 0, min(len(one), len(other))
    while low < high:
        middle = (low + high + 1) // 2
        if one[:middle] == other[:middle]:
            low = middle
        else:
            high = middle - 1
    return low


class FullScreen:
    """The alternate screen: all rows are ours; changed ones are written."""

    ENTER = "\x1b[?1049h\x1b[2J"
    LEAVE = "\x1b[?1049l"
    QUIT = "\x1b[?1047l\x1b[?25h"
    """For a screen that a guest program may not have left: the cursor stays where it is."""

    def __init__(self, theme: Theme) -> None:
        self._painter = Painter(theme)
        self._shown: list[Line | None] = []

    def frame(self, lines: Sequence[Line], row: int, column: int) -> str:
        out: list[str] = []
        before = self._shown
        for index, line in enumerate(lines):
            if index >= len(before) or before[index] != line:
                out.append(f"\x1b[{index + 1}H{ERASE_LINE}{self._painter.line(line)}")
        self._shown = list(lines)
        out.append(f"\x1b[{row + 1};{column + 1}H")
        return f"{SYNC_ON}{''.join(out)}{SYNC_OFF}"

    def forget(self) -> None:
        """Write everything again, after a change of size."""
        self._shown = []
