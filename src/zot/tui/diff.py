"""Diffs of files as lines: tinted rows, changed words, syntax colours, both line numbers; side by
side in a wide window. One renderer for questions, results, `/diff` and `/rewind`.

    rows ("-old", "+new", " same", "... 12")
      -> DiffRow -> _Pair (a row, or an old and a new one)
      -> DiffLines: a sequence that draws a line when it is read

A diff of thousands of rows costs a few milliseconds a screen: lines are counted without drawing.
"""

from __future__ import annotations

import difflib
import re
from bisect import bisect_right
from collections.abc import Iterator, Sequence
from itertools import accumulate
from typing import Literal, overload

from msgspec import Struct

from zot.tui.cells import Line, Span, cells, clean, clip, joined, split_at
from zot.tui.code import Highlighter
from zot.tui.links import file_word

SIDE_BY_SIDE = 140
"""Columns from which old and new text stand side by side."""
SPOKEN_WIDTH = 1_000
"""Width for text that is read out: long lines are not cut, and nothing stands side by side."""
MIN_ALIKE = 0.4
"""Share of equal characters above which changed words of two lines are marked."""
MAX_MARKED = 400
"""Maximum characters of a line whose words are compared."""
LEXED_BEFORE = 24
"""Rows read before the first drawn one, so that its colours know an open string or comment."""
MAX_DRAWN = 2_000
"""Maximum drawn rows in the cache."""
_GAP = re.compile(r"\.\.\.(?: (\d+))?(?: .*)?\Z")
_WORDS = re.compile(r"\w+|\s+|[^\w\s]")

Mark = Literal["+", "-", " ", "gap", "note"]
_ROW_STYLES: dict[str, str] = {"+": "add.row", "-": "del.row"}
_SIGN_STYLES: dict[str, str] = {"+": "add.row add.sign", "-": "del.row del.sign"}
_WORD_STYLES: dict[str, str] = {"+": "add.word", "-": "del.word"}


class DiffRow(Struct, frozen=True):
    mark: Mark
    text: str
    old: int | None = None
    """Line number before the change; None: added, or unknown."""
    new: int | None = None


def parse_diff(text: str, first_changed: int = 0, context: int = 3) -> list[DiffRow]:
    """Return the rows of a diff as zot's tools write it. A gap says how many lines it leaves out;
    an old one does not, then `first_changed` gives the first numbers and later ones are unknown."""
    rows: list[DiffRow] = []
    old: int | None = 1
    new: int | None = 1
    for index, row in enumerate(text.split("\n")):
        if gap := _GAP.match(row):
            skipped = int(gap[1]) if gap[1] else None
            if index == 0 and skipped is None and first_changed:
                skipped = max(0, first_changed - context - 1)
            old = None if old is None or skipped is None else old + skipped
            new = None if new is None or skipped is None else new + skipped
            rows.append(DiffRow("gap", clean(row)))
            continue
        mark, content = row[:1], clean(row[1:])
        match mark:
            case "+":
                rows.append(DiffRow("+", content, None, new))
                new = None if new is None else new + 1
            case "-":
                rows.append(DiffRow("-", content, old, None))
                old = None if old is None else old + 1
            case " " | "":
                rows.append(DiffRow(" ", content, old, new))
                old = None if old is None else old + 1
                new = None if new is None else new + 1
            case _:
                rows.append(DiffRow("note", clean(row)))
    return rows


def changed_counts(text: str) -> tuple[int, int]:
    """Return how many lines a diff adds and removes."""
    rows = text.split("\n")
    return sum(row[:1] == "+" for row in rows), sum(row[:1] == "-" for row in rows)


def counts_line(text: str) -> Line:
    """Return "+3 -2" in colour; empty if nothing changes."""
    added, removed = changed_counts(text)
    spans: list[Span] = [("add", f"+{added}")] if added else []
    if removed:
        spans += [("", " ")] * bool(spans) + [("del", f"-{removed}")]
    return tuple(spans)


class _Pair(Struct, frozen=True):
    """One drawn unit: a row on its own (the right side), or an old and a new row side by side."""

    left: int | None
    right: int | None
    height: int


class DiffLines(Sequence[Line]):
    """The lines of a diff for one width. Lines are drawn when they are read."""

    def __init__(self, text: str, width: int, path: str = "", first_changed: int = 0) -> None:
        self._rows = parse_diff(text, first_changed)
        self._path = path
        self._width = max(12, width)
        numbers = [number for row in self._rows for number in (row.old, row.new) if number]
        self._digits = len(str(max(numbers, default=1)))
        self._split = SIDE_BY_SIDE <= width < SPOKEN_WIDTH
        self._half = (self._width - 3) // 2 if self._split else self._width
        self._partners = _partners(self._rows)
        self._pairs = self._side_by_side() if self._split else self._unified()
        self._ends = list(accumulate(pair.height for pair in self._pairs))
        self._colours = _RowColours(self._rows, path)
        self._drawn: dict[int, list[Line]] = {}
        self._parts: dict[int, tuple[Ranges, Ranges]] = {}
        """Changed parts of a pair, by its old row."""

    @property
    def first_change(self) -> int:
        """Index of the first line that shows a change."""
        for index, pair in enumerate(self._pairs):
            sides = (at for at in (pair.left, pair.right) if at is not None)
            if any(self._rows[at].mark in "+-" for at in sides):
                return self._ends[index] - pair.height
        return 0

    def __len__(self) -> int:
        return self._ends[-1] if self._ends else 0

    @overload
    def __getitem__(self, index: int) -> Line: ...
    @overload
    def __getitem__(self, index: slice) -> list[Line]: ...
    def __getitem__(self, index: int | slice) -> Line | list[Line]:
        if isinstance(index, slice):
            return [self._line(at) for at in range(*index.indices(len(self)))]
        at = index + len(self) if index < 0 else index
        if not 0 <= at < len(self):
            raise IndexError(index)
        return self._line(at)

    def __iter__(self) -> Iterator[Line]:
        return (self._line(at) for at in range(len(self)))

    # --- layout ------------------------------------------------------------------------------

    @property
    def _gutter(self) -> int:
        """Columns before the text: two numbers, or one for each side, and the sign."""
        return 2 + self._digits + 3 if self._split else 2 + 2 * self._digits + 1 + 3

    def _height(self, at: int) -> int:
        row = self._rows[at]
        if row.mark in ("gap", "note"):
            return 1
        room = max(1, self._half - self._gutter)
        if row.text.isascii():
            return max(1, -(-len(row.text) // room))
        return len(_cut([("", row.text)], room))

    def _unified(self) -> list[_Pair]:
        return [_Pair(None, at, self._height(at)) for at in range(len(self._rows))]

    def _side_by_side(self) -> list[_Pair]:
        pairs: list[_Pair] = []
        for at, row in enumerate(self._rows):
            if row.mark == "-":
                other = self._partners.get(at)
                height = max(self._height(at), self._height(other) if other is not None else 0)
                pairs.append(_Pair(at, other, height))
            elif row.mark == "+":
                if at not in self._partners:  # else drawn beside its old row
                    pairs.append(_Pair(None, at, self._height(at)))
            elif row.mark == " ":
                pairs.append(_Pair(at, at, self._height(at)))
            else:
                pairs.append(_Pair(None, at, 1))
        return pairs

    # --- drawing -----------------------------------------------------------------------------

    def _line(self, at: int) -> Line:
        index = bisect_right(self._ends, at)
        pair = self._pairs[index]
        if index not in self._drawn:
            if len(self._drawn) > MAX_DRAWN:
                self._drawn.clear()
            self._drawn[index] = self._draw(pair)
        return self._drawn[index][at - (self._ends[index] - pair.height)]

    def _draw(self, pair: _Pair) -> list[Line]:
        row = self._rows[pair.right if pair.right is not None else pair.left or 0]
        if row.mark in ("gap", "note"):
            return [clip((("dim", f"  {' ' * self._digits} {row.text}"),), self._width)]
        if not self._split:
            assert pair.right is not None
            style = _ROW_STYLES.get(row.mark, "")
            return [
                ((f"{style} fill", ""), *line) if style else line for line in self._side(pair.right)
            ]
        return self._draw_both(pair)

    def _draw_both(self, pair: _Pair) -> list[Line]:
        left = self._half_lines(pair.left, pair.height, is_old=True)
        right = self._half_lines(pair.right, pair.height, is_old=False)
        return [(*one, ("dim", " │ "), *other) for one, other in zip(left, right, strict=True)]

    def _half_lines(self, at: int | None, height: int, *, is_old: bool) -> list[Line]:
        """Return one side, padded to its width and to the height of the pair."""
        style = "" if at is None else _ROW_STYLES.get(self._rows[at].mark, "")
        lines = [] if at is None else self._side(at, is_old=is_old)
        lines += [()] * (height - len(lines))
        half = self._half
        return [
            joined((*line, (style, " " * max(0, half - sum(cells(text) for _, text in line)))))
            for line in lines
        ]

    def _side(self, at: int, *, is_old: bool = False) -> list[Line]:
        row = self._rows[at]
        style = _ROW_STYLES.get(row.mark, "")
        pieces = _cut(self._content(at, style), max(1, self._half - self._gutter))
        first: Line = (*self._numbers(row, style, is_old), self._sign(row))
        rest: Line = ((style, " " * self._gutter),)
        return [(*(first if index == 0 else rest), *piece) for index, piece in enumerate(pieces)]

    def _numbers(self, row: DiffRow, style: str, is_old: bool) -> Line:
        digits = self._digits
        old, new = (str(number) if number else "" for number in (row.old, row.new))
        look = f"{style} number".strip()
        is_link = self._path and new and row.mark == "+"
        link = f"{look} {file_word(self._path, new)}" if is_link else look
        if self._split:
            shown, look = (old, look) if is_old else (new, link)
            return ((style, "  "), (look, f"{shown:>{digits}}"))
        return (
            (style, "  "), (look, f"{old:>{digits}}"), (style, " "), (link, f"{new:>{digits}}"),
        )  # fmt: skip

    def _sign(self, row: DiffRow) -> Span:
        return _SIGN_STYLES.get(row.mark, ""), f" {row.mark} "

    def _content(self, at: int, style: str) -> list[Span]:
        spans = self._colours.of(at)
        if style:
            spans = [(f"{style} {colour}".strip(), text) for colour, text in spans]
        other = self._partners.get(at)
        if other is None:
            return spans
        old, new = min(at, other), max(at, other)
        if old not in self._parts:
            self._parts[old] = _changed_parts(self._rows[old].text, self._rows[new].text)
        return _marked(spans, self._parts[old][at == new], self._rows[at].mark)


class _RowColours:
    """Syntax colours of rows. Old and new text are read by lexers of their own, from a few rows
    above the wanted one on."""

    def __init__(self, rows: list[DiffRow], path: str) -> None:
        self._rows = rows
        self._path = path
        self._known: dict[int, list[Span]] = {}
        self._next: dict[str, tuple[int, Highlighter]] = {}
        """For each side, the row up to which it was read, and the lexer's state there."""

    def of(self, at: int) -> list[Span]:
        if not self._path:
            return [("", self._rows[at].text)]
        if at not in self._known:
            if len(self._known) > MAX_DRAWN:
                self._known.clear()
            self._read(at, "-" if self._rows[at].mark == "-" else "+")
        return self._known[at]

    def _read(self, at: int, side: str) -> None:
        start, lexer = self._next.get(side, (-1, None))
        if lexer is None or not start <= at <= start + LEXED_BEFORE:
            start, lexer = max(0, at - LEXED_BEFORE), Highlighter(path=self._path)
        for index in range(start, at + 1):
            row = self._rows[index]
            if row.mark == "gap":
                lexer = Highlighter(path=self._path)
            elif row.mark in (side, " "):
                self._known[index] = lexer.line(row.text)
        self._next[side] = (at + 1, lexer)


def _partners(rows: list[DiffRow]) -> dict[int, int]:
    """Return which removed row became which added row, both ways."""
    partners: dict[int, int] = {}
    index = 0
    while index < len(rows):
        old = index
        while index < len(rows) and rows[index].mark == "-":
            index += 1
        new = index
        while index < len(rows) and rows[index].mark == "+":
            index += 1
        for one, other in zip(range(old, new), range(new, index), strict=False):
            partners[one], partners[other] = other, one
        index += index == old
    return partners


Ranges = list[tuple[int, int]]


def _changed_parts(old: str, new: str) -> tuple[Ranges, Ranges]:
    """Return the ranges of both texts that differ; empty if they have little in common."""
    if max(len(old), len(new)) > MAX_MARKED:
        return [], []
    mine, theirs = _WORDS.findall(old), _WORDS.findall(new)
    head, most = 0, min(len(mine), len(theirs))
    while head < most and mine[head] == theirs[head]:
        head += 1
    tail = 0
    while tail < most - head and mine[-1 - tail] == theirs[-1 - tail]:
        tail += 1
    a, b = mine[head : len(mine) - tail], theirs[head : len(theirs) - tail]
    codes: Sequence[tuple[str, int, int, int, int]] = [("replace", 0, len(a), 0, len(b))]
    if len(a) > 1 and len(b) > 1:
        codes = difflib.SequenceMatcher(None, a, b, autojunk=False).get_opcodes()
    old_at, new_at = [0, *accumulate(map(len, mine))], [0, *accumulate(map(len, theirs))]
    changes = [code for code in codes if code[0] != "equal"]
    left = [(old_at[head + i], old_at[head + j]) for _, i, j, _, _ in changes if i < j]
    right = [(new_at[head + i], new_at[head + j]) for _, _, _, i, j in changes if i < j]
    alike = len(old) - sum(end - start for start, end in left)
    return (left, right) if alike >= MIN_ALIKE * max(len(old), len(new)) else ([], [])


def _marked(spans: list[Span], parts: Ranges, mark: str) -> list[Span]:
    """Return the spans with a stronger style inside these ranges."""
    if not parts:
        return spans
    word = _WORD_STYLES[mark]
    cuts = sorted({edge for part in parts for edge in part})
    marked: list[Span] = []
    at = 0
    for style, text in spans:
        edges = [at, *(cut for cut in cuts if at < cut < at + len(text)), at + len(text)]
        for start, end in zip(edges, edges[1:], strict=False):
            inside = any(first <= start < last for first, last in parts)
            piece = text[start - at : end - at]
            marked.append((f"{style} {word}" if inside else style, piece))
        at += len(text)
    return marked


def _cut(spans: Sequence[Span], room: int) -> list[Line]:
    """Cut a row into lines of at most `room` cells, anywhere: code is not broken at blanks."""
    lines: list[list[Span]] = [[]]
    left = room
    for style, text in spans:
        while text:
            size = cells(text)
            if size <= left:
                lines[-1].append((style, text))
                left -= size
                break
            if left:
                part, rest = split_at(text, left)
                if cells(part) <= left:
                    lines[-1].append((style, part))
                    text = rest
            if left == room and not lines[-1]:
                lines[-1].append((style, split_at(text, 1)[0]))
                text = split_at(text, 1)[1]
            lines.append([])
            left = room
    return [joined(line) for line in lines]
