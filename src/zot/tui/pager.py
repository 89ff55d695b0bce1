"""The whole transcript on the alternate screen: scroll, search, jump between turns, unfold, copy.
Only visible lines are drawn, so that its length costs nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from zot.tui.blocks import LiveBlock
from zot.tui.cells import EMPTY, Line, clean, clip, padded, plain
from zot.tui.editor import Editor
from zot.tui.keys import KeyPress
from zot.tui.menu import Drawn, Overlay, type_into

HELP = "q leaves, / searches, n N next and previous, [ ] turns, o folds"
MAX_KEPT = 200
"""Maximum sections whose lines are cached."""


class Pager(Overlay):
    def __init__(
        self,
        sections: Sequence[LiveBlock],
        is_turn: Callable[[LiveBlock], bool],
        *,
        leave: Callable[[], None],
        copy: Callable[[str], None] | None = None,
        at: int | None = None,
        folded: bool = True,
    ) -> None:
        """`at` is the section to begin with; None: the end."""
        self._sections = sections
        self._is_turn = is_turn
        self._leave = leave
        self._copy = copy
        self._folded = folded
        self._kept: dict[tuple[int, int, bool], list[Line]] = {}
        self._width, self._height = 80, 24
        self._top = (0, 0) if at is None else (at, 0)
        self._at_end = at is None
        self._search = ""
        self._field: Editor | None = None
        self._message = ""

    # --- places ------------------------------------------------------------------------------

    def _lines(self, index: int) -> list[Line]:
        key = (index, self._width, self._folded)
        if key not in self._kept:
            if len(self._kept) > MAX_KEPT:
                self._kept.clear()
            lines = self._sections[index].lines(self._width, folded=self._folded)
            self._kept[key] = [EMPTY, *lines]
        return self._kept[key]

    def _moved(self, place: tuple[int, int], rows: int) -> tuple[int, int]:
        """Return the place `rows` further down, or up if negative, within the ends."""
        index, row = place
        while rows > 0 and index < len(self._sections):
            left = len(self._lines(index)) - row
            if rows < left:
                return index, row + rows
            rows -= left
            index, row = index + 1, 0
        if index >= len(self._sections):
            last = len(self._sections) - 1
            return (last, max(0, len(self._lines(last)) - 1)) if last >= 0 else (0, 0)
        while rows < 0:
            if row >= -rows:
                return index, row + rows
            if index == 0:
                return 0, 0
            rows += row
            index -= 1
            row = len(self._lines(index))
        return index, row

    def _end(self) -> tuple[int, int]:
        last = len(self._sections) - 1
        if last < 0:
            return 0, 0
        return self._moved((last, len(self._lines(last))), -(self._height - 1))

    # --- drawing -----------------------------------------------------------------------------

    def draw(self, width: int, height: int) -> Drawn:
        """Draw the whole screen; the last line shows the position."""
        self._width, self._height = width, height
        if self._at_end:
            self._top = self._end()
        lines: list[Line] = []
        index, row = self._top
        while len(lines) < height - 1 and index < len(self._sections):
            lines += self._lines(index)[row:]
            index, row = index + 1, 0
        rows = [self._marked(line) for line in lines[: height - 1]]
        rows += [EMPTY] * (height - 1 - len(rows))
        if self._field is not None:
            layout = self._field.layout(max(2, width - 2), 1)
            rows.append((("prompt", "/"), *layout.rows[0]))
            return Drawn(rows, (height - 1, 1 + layout.column))
        rows.append(self._foot(width))
        return Drawn(rows, (height - 1, 0))

    def _foot(self, width: int) -> Line:
        turns = [i for i, section in enumerate(self._sections) if self._is_turn(section)]
        current = sum(1 for index in turns if index <= self._top[0])
        copies = ", c copies" if self._copy is not None else ""
        text = self._message or f"turn {current} of {len(turns)}   {HELP}{copies}"
        return padded(clip((("reverse", f" {text}"),), width), width, "reverse")

    def _marked(self, line: Line) -> Line:
        """Return the line with search hits highlighted."""
        wanted = self._search.casefold()
        if not wanted or wanted not in plain(line).casefold():
            return clip(line, self._width)
        spans = []
        for style, text in line:
            low = text.casefold()
            start = 0
            while len(low) == len(text) and (at := low.find(wanted, start)) >= 0:
                spans += [(style, text[start:at]), ("reverse", text[at : at + len(wanted)])]
                start = at + len(wanted)
            spans.append((style, text[start:]))
        return clip(spans, self._width)

    # --- keys --------------------------------------------------------------------------------

    def key(self, key: KeyPress) -> None:
        for letter in key.letters():
            if self._field is not None:
                self._write(letter)
            else:
                self._message = ""
                self._act(letter.text or letter.name)

    def spoken(self) -> list[str]:
        return [plain(line) for i in range(len(self._sections)) for line in self._lines(i)]

    def take_line(self, text: str) -> bool:
        self._leave()
        return True

    def _act(self, name: str) -> None:
        page = max(1, self._height - 2)
        steps = {
            **dict.fromkeys(("down", "j", "enter", "ctrl+n"), 1),
            **dict.fromkeys(("up", "k", "ctrl+p"), -1),
            **dict.fromkeys(("pagedown", " ", "ctrl+f", "f"), page),
            **dict.fromkeys(("pageup", "b", "ctrl+b"), -page),
            **dict.fromkeys(("ctrl+d", "d"), page // 2),
            **dict.fromkeys(("ctrl+u", "u"), -(page // 2)),
        }
        if name in steps:
            self._scroll(steps[name])
            return
        match name:
            case "q" | "esc" | "ctrl+c" | "ctrl+o":
                self._leave()
            case "g" | "home":
                self._go((0, 0))
            case "G" | "end":
                self._at_end = True
            case "[" | "]":
                self._turn(-1 if name == "[" else 1)
            case "o":
                self._folded = not self._folded
                self._go((self._top[0], 0))
            case "/":
                self._field = Editor()
            case "n" | "N":
                self._find(1 if name == "n" else -1)
            case "c" | "y":
                self._copy_section()
            case _:
                pass

    def _go(self, place: tuple[int, int]) -> None:
        self._at_end = False
        self._top = min(place, self._end()) if self._sections else place

    def _scroll(self, rows: int) -> None:
        if rows < 0 or not self._at_end:
            self._go(self._moved(self._top, rows))

    def _turn(self, step: int) -> None:
        index, row = self._top
        places = (
            range(index + 1, len(self._sections)) if step > 0 else range(index - (row == 0), -1, -1)
        )
        turn = next((place for place in places if self._is_turn(self._sections[place])), None)
        if turn is not None:
            self._go((turn, 0))

    def _write(self, key: KeyPress) -> None:
        assert self._field is not None
        match key.name:
            case "enter":
                self._search, self._field = self._field.text or self._search, None
                self._find(-1 if self._at_end else 1, here=True)
            case "esc" | "ctrl+c":
                self._field = None
            case _:
                type_into(self._field, key)

    def _find(self, step: int, *, here: bool = False) -> None:
        """Go to the next line with the search text; sections without it are not drawn."""
        wanted = self._search.casefold()
        if not wanted:
            return
        index, row = self._top
        row += 0 if here else step
        count = len(self._sections)
        for place in range(index, count) if step > 0 else range(index, -1, -1):
            if wanted in clean(self._sections[place].source).casefold():
                self._folded = False
                rows = [
                    i
                    for i, line in enumerate(self._lines(place))
                    if wanted in plain(line).casefold()
                ]
                beyond = place == index and not (here and step < 0)
                rows = [r for r in rows if not beyond or (r >= row if step > 0 else r <= row)]
                if rows:
                    self._go((place, rows[0] if step > 0 else rows[-1]))
                    return
        self._message = f"no more of {self._search!r}"

    def _copy_section(self) -> None:
        if self._sections and self._copy is not None:
            self._copy(self._sections[self._top[0]].source)
            self._message = "copied"
