"""Text editor: cursor, words, kill ring, undo, history, pasted parts. Draws rows of cells; the keys
are in keymap.py.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence

from msgspec import Struct

from zot.text import compiled
from zot.tui.cells import Line, cells, clusters, split_at, visible, window

MAX_UNDO = 500
MAX_KILLS = 50
LONG_PASTE_LINES, LONG_PASTE = 10, 1_000
"""Lines and characters above which a paste appears as one chip, expanded when it is sent."""
_WORD = r"\w+"


class EditorState(Struct, frozen=True):
    text: str
    cursor: int


class Layout(Struct, frozen=True):
    rows: list[Line]
    row: int
    column: int


class Editor:
    def __init__(self, history: Sequence[str] = ()) -> None:
        self.text = ""
        self.cursor = 0
        self.chips: dict[str, str] = {}
        """Content by label: the text of a long paste; other chips map to themselves."""
        self.history: list[str] = list(history)
        self._place: int | None = None
        """Index of the history entry shown; None: the text written here."""
        self._draft = ""
        self._undo: list[EditorState] = []
        self._redo: list[EditorState] = []
        self._kills: list[str] = []
        self._last = ""
        """Previous action: successive typing is one undo step, successive kills are one kill."""
        self._yanked = (0, 0)
        self._column: int | None = None
        """Column that moving up and down keeps."""
        self._width = 80
        self._moves: dict[str, Callable[[], int]] = {
            "left": lambda: self._beside(-1),
            "right": lambda: self._beside(1),
            "word-left": self._word_left,
            "word-right": self._word_right,
            "line-start": self._line_start,
            "line-end": self._line_end,
            "text-start": lambda: 0,
            "text-end": lambda: len(self.text),
        }
        self._deletions: dict[str, Callable[[], int]] = {
            "delete-back": lambda: self._beside(-1),
            "delete": lambda: self._beside(1),
        }
        self._kill_to: dict[str, Callable[[], int]] = {
            "kill-end": self._kill_end,
            "kill-start": self._line_start,
            "kill-word": self._word_right,
            "kill-word-back": self._word_left,
            "kill-blank-back": self._blank_left,
        }

        self._others: dict[str, Callable[[], None]] = {
            "newline": lambda: self.replace(self.cursor, self.cursor, "\n"),
            "up": lambda: self._vertical(-1),
            "down": lambda: self._vertical(1),
            "history-back": lambda: self._recall(-1),
            "history-forward": lambda: self._recall(1),
            "yank": self._yank,
            "undo": lambda: self._step(self._undo, self._redo),
            "redo": lambda: self._step(self._redo, self._undo),
            "transpose": self._transpose,
            "open-paste": self._open_paste,
        }

    # --- for the program ---------------------------------------------------------------------

    @property
    def full_text(self) -> str:
        """The text with every paste expanded."""
        text = self.text
        for label, pasted in self.chips.items():
            text = text.replace(label, pasted)
        return text

    def set(self, text: str, cursor: int | None = None) -> None:
        """Replace the whole text; undo restores it."""
        self._remember()
        self.text = text
        self.cursor = len(text) if cursor is None else cursor
        self._place = None
        self._last = "set"

    def take(self) -> str:
        """Return the text to send, empty the editor, and add the text to the history."""
        text = self.full_text
        self.add_history(text)
        self.set("")
        self.chips.clear()
        self._undo.clear()
        return text

    def add_history(self, text: str) -> None:
        if text.strip() and self.history[-1:] != [text]:
            self.history.append(text)
        self._place = None

    def insert(self, text: str) -> None:
        """Insert typed text at the cursor."""
        text = visible(text)
        if self._last != "insert" or text.isspace():
            self._remember()
        self._last = "insert"
        self._column = None
        self._replace(self.cursor, self.cursor, text)

    def paste(self, text: str) -> None:
        """Insert pasted text at the cursor; a long one as a chip."""
        text = visible(text)
        lines = text.removesuffix("\n").count("\n") + 1
        if lines > LONG_PASTE_LINES or len(text) > LONG_PASTE:
            size = f"{lines} lines" if lines > 1 else f"{len(text)} characters"
            self.chip(f"[paste {len(self.chips) + 1}: {size}]", text)
            return
        self.replace(self.cursor, self.cursor, text)

    def chip(self, label: str, content: str) -> None:
        """Insert a label that stands for the content; keys treat it as one character."""
        self.chips[label] = content
        self.replace(self.cursor, self.cursor, label)

    def replace(self, start: int, end: int, text: str) -> None:
        """Replace a part of the text, as one undo step."""
        self._remember()
        self._last = "replace"
        self._replace(start, end, text)

    @property
    def undo_steps(self) -> int:
        return len(self._undo)

    def join_steps(self, first: int) -> None:
        """Make one undo step of those since there were `first`."""
        del self._undo[first + 1 :]

    def do(self, action: str) -> bool:
        """Run an action; return whether it changed anything."""
        last, before = self._last, (self.text, self.cursor, self._place)
        if action not in ("up", "down"):
            self._column = None
        self._act(action, last)
        self._last = action
        return before != (self.text, self.cursor, self._place)

    def _act(self, action: str, last: str) -> None:
        if action in self._moves:
            self.cursor = self._moves[action]()
        elif action in self._deletions:
            self._delete(self._deletions[action](), again=last == action)
        elif action in self._kill_to:
            self._kill(self._kill_to[action](), again=last in self._kill_to)
        elif action in self._others:
            self._others[action]()
        else:
            assert action == "yank-pop", action
            if last in ("yank", "yank-pop"):
                self._yank_pop()

    # --- drawing -----------------------------------------------------------------------------

    def layout(self, width: int, height: int) -> Layout:
        """Return the rows and the cursor; if there are too many rows, those around the cursor."""
        self._width = max(2, width)
        rows = _rows(self.text, self._width)
        row, column = self._place_of(rows, self.cursor)
        first = window(row, height, len(rows))
        shown = [self._painted(start, end) for start, end in rows[first : first + height]]
        return Layout(shown, row - first, column)

    def _painted(self, start: int, end: int) -> Line:
        text = self.text[start:end]
        if not self.chips:
            return (("", text),) if text else ()
        pattern = "|".join(re.escape(label) for label in self.chips)
        parts = re.split(f"({pattern})", text)
        return tuple(
            ("chip" if index % 2 else "", part) for index, part in enumerate(parts) if part
        )

    def _place_of(self, rows: list[tuple[int, int]], cursor: int) -> tuple[int, int]:
        for index, (start, end) in enumerate(rows):
            last = index + 1 == len(rows) or rows[index + 1][0] > cursor
            if start <= cursor <= end and last:
                column = cells(self.text[start:cursor])
                return index, min(column, self._width)
        return len(rows) - 1, 0

    # --- places ------------------------------------------------------------------------------

    def _beside(self, step: int) -> int:
        """Return the position one character, or one chip, to the left or right."""
        cursor = self.cursor
        for label in self.chips:
            if step < 0 and self.text.endswith(label, 0, cursor):
                return cursor - len(label)
            if step > 0 and self.text.startswith(label, cursor):
                return cursor + len(label)
        if step > 0:
            following = next(iter(clusters(self.text[cursor : cursor + 64])), "")
            return cursor + len(following)
        near = list(clusters(self.text[max(0, cursor - 64) : cursor]))
        return cursor - len(near[-1]) if near else 0

    def _word_left(self) -> int:
        words = [match.start() for match in compiled(_WORD).finditer(self.text, 0, self.cursor)]
        return words[-1] if words else 0

    def _word_right(self) -> int:
        match = compiled(_WORD).search(self.text, self.cursor)
        return match.end() if match else len(self.text)

    def _blank_left(self) -> int:
        head = self.text[: self.cursor].rstrip()
        return max(head.rfind(blank) for blank in (" ", "\n")) + 1

    def _line_start(self) -> int:
        return self.text.rfind("\n", 0, self.cursor) + 1

    def _line_end(self) -> int:
        end = self.text.find("\n", self.cursor)
        return len(self.text) if end < 0 else end

    def _kill_end(self) -> int:
        end = self._line_end()
        return end if end > self.cursor else min(len(self.text), end + 1)

    def _vertical(self, step: int) -> None:
        rows = _rows(self.text, self._width)
        row, column = self._place_of(rows, self.cursor)
        if not 0 <= row + step < len(rows):
            self._recall(step)
            return
        wanted = self._column if self._column is not None else column
        self._column = wanted
        start, end = rows[row + step]
        self.cursor = start + (len(split_at(self.text[start:end], wanted)[0]) if wanted else 0)

    # --- changes -----------------------------------------------------------------------------

    def _replace(self, start: int, end: int, text: str) -> None:
        self.text = self.text[:start] + text + self.text[end:]
        self.cursor = start + len(text)

    def _remember(self) -> None:
        self._undo.append(EditorState(self.text, self.cursor))
        del self._undo[:-MAX_UNDO]
        self._redo.clear()

    def _step(self, source: list[EditorState], target: list[EditorState]) -> None:
        while source:
            snapshot = source.pop()
            if snapshot.text != self.text:
                target.append(EditorState(self.text, self.cursor))
                self.text, self.cursor = snapshot.text, snapshot.cursor
                return

    def _delete(self, to: int, *, again: bool) -> None:
        if not again:
            self._remember()
        self._replace(min(to, self.cursor), max(to, self.cursor), "")

    def _kill(self, to: int, *, again: bool) -> None:
        start, end = min(to, self.cursor), max(to, self.cursor)
        if start == end:
            return
        self._remember()
        killed = self.text[start:end]
        if again and self._kills:
            before = self._kills.pop()
            killed = killed + before if to < self.cursor else before + killed
        self._kills.append(killed)
        del self._kills[:-MAX_KILLS]
        self._replace(start, end, "")

    def _yank(self) -> None:
        if self._kills:
            self._remember()
            start = self.cursor
            self._replace(start, start, self._kills[-1])
            self._yanked = (start, self.cursor)

    def _yank_pop(self) -> None:
        if not self._kills:
            return
        self._kills.insert(0, self._kills.pop())
        start, end = self._yanked
        self._replace(start, end, self._kills[-1])
        self._yanked = (start, self.cursor)

    def _transpose(self) -> None:
        at = min(self.cursor, self._line_end() - 1) if self.cursor else 0
        if at - 1 >= self._line_start():
            self._remember()
            self._replace(at - 1, at + 1, self.text[at] + self.text[at - 1])

    def _open_paste(self) -> None:
        for label, pasted in self.chips.items():
            at = self.text.find(label)
            if at >= 0 and at <= self.cursor <= at + len(label):
                self._remember()
                self._replace(at, at + len(label), pasted)
                return

    # --- history -----------------------------------------------------------------------------

    def _recall(self, step: int) -> None:
        place = len(self.history) if self._place is None else self._place
        wanted = place + step
        if not 0 <= wanted <= len(self.history) or (step > 0 and self._place is None):
            return
        if self._place is None:
            self._draft = self.text
            self._remember()
        self._place = wanted if wanted < len(self.history) else None
        self.text = self._draft if self._place is None else self.history[self._place]
        self.cursor = len(self.text)


def _rows(text: str, width: int) -> list[tuple[int, int]]:
    """Return start and end of each row, none wider than `width`; rows break after blanks."""
    rows: list[tuple[int, int]] = []
    start = 0
    for line in text.split("\n"):
        at, end = start, start + len(line)
        while cells(text[at:end]) > width:
            part = split_at(text[at:end], width)[0]
            blank = part.rfind(" ")
            size = blank + 1 if blank > 0 else len(part)
            rows.append((at, at + size))
            at += size
        rows.append((at, end))
        start = end + 1
    return rows
