"""Finds the place of an old text that is not in the file exactly as it was sent.

Models lose trailing blanks, send typographic quotes, spaces for tabs, another indent, one blank
line fewer. So a file and an old text are also compared by their words alone (`key`). Each match
has a set of differences to overlook; the match whose set is a strict subset of all others wins, and
without one there is no result. Pure functions; rewrite.py puts the new text there.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from functools import cached_property, partial

from msgspec import structs

from zot.text import Frozen

MAX_SPOTS = 200

FAMILIES = {
    "\u2018\u2019\u201a\u201b\u2032": "'",
    "\u201c\u201d\u201e\u201f\u2033": '"',
    "\u2010\u2011\u2012\u2013\u2014\u2015\u2212": "-",
    "\u00a0\u202f\u205f\u3000" + "".join(map(chr, range(0x2000, 0x200B))): " ",
    "\u2026": "...",
    "\u00ad\u200b\u200c\u200d\u2060\ufeff": "",
}
PLAIN = {char: plain for chars, plain in FAMILIES.items() for char in chars}
TYPOGRAPHIC = re.compile(f"[{''.join(PLAIN)}]")

TRAILING = "trailing blanks"
CHARACTERS = "typographic characters"
INSIDE = "blanks inside lines"
INDENT = "indentation"
BLANK_LINES = "blank lines"
ESCAPES = "escaped characters"


def encoded(text: str) -> bytes:
    return text.encode("utf-8", "surrogateescape")


def plain(text: str) -> str:
    """Replace typographic quotes, dashes and spaces by plain keyboard characters."""
    return TYPOGRAPHIC.sub(lambda match: PLAIN[match[0]], text)


def key(line: str) -> str:
    """Return the part of a line that must match: plain characters, one space for any blanks."""
    return " ".join(plain(line).split())


def columns(line: str) -> list[int]:
    """Return the column in the line of each character of its key, then the line's length."""
    result: list[int] = []
    blank = -1
    for column, char in enumerate(line):
        for typed in PLAIN.get(char, char):
            if typed.isspace():
                blank = column if blank < 0 else blank
                continue
            if blank >= 0 and result:
                result.append(blank)
            blank = -1
            result.append(column)
    return [*result, len(line)]


class LineParts(Frozen):
    """A line cut into the blanks before, the text, and the blanks after."""

    indent: str
    text: str
    trail: str


def parts(line: str) -> LineParts:
    text = line.strip()
    if not text:
        return LineParts("", "", line)
    start = line.index(text)
    return LineParts(line[:start], text, line[start + len(text) :])


class Spot(Frozen):
    """A place with the words of an old text: the indices of its non-blank lines, and the columns
    where it begins in the first and ends in the last."""

    rows: tuple[int, ...]
    low: int
    high: int
    begins_line: bool
    ends_line: bool
    overlooked: frozenset[str] = frozenset()


class SearchedText:
    """A file's lines, searchable by their keys."""

    def __init__(self, text: str, before: int = 0) -> None:
        self.text = text
        self.lines = text.split("\n")
        self._before = before
        """Bytes of the file before the text."""

    def offset(self, position: int) -> int:
        """Map a position in the text to a byte offset in the file."""
        ascii_only = self.text.isascii()
        length = position if ascii_only else len(encoded(self.text[:position]))
        return self._before + length

    @cached_property
    def _index(self) -> tuple[str, list[int]]:
        """The non-empty keys, joined by newlines, and the indices of their lines."""
        keys = [" ".join(line.split()) for line in plain(self.text).split("\n")]
        return "\n".join(filter(None, keys)), [row for row, key in enumerate(keys) if key]

    @cached_property
    def starts(self) -> list[int]:
        """Position in the text at which each line begins."""
        result, position = [], 0
        for line in self.lines:
            result.append(position)
            position += len(line) + 1
        return result

    def piece(self, spot: Spot, row: int) -> tuple[int, int]:
        """Return the columns (low, high) of a line that belong to the spot."""
        low = spot.low if row == spot.rows[0] else 0
        high = spot.high if row == spot.rows[-1] else len(self.lines[row])
        return low, high

    def find(self, old: str) -> list[Spot]:
        """Return the places with the same words; at most MAX_SPOTS."""
        lines = old.split("\n")
        olds = [line for line in lines if key(line)]
        wanted = "\n".join(map(key, olds))
        if not wanted:
            return []
        joined, rows = self._index
        spots: list[Spot] = []
        counted = row = 0
        position = joined.find(wanted)
        while position >= 0 and len(spots) < MAX_SPOTS:
            row += joined.count("\n", counted, position)
            counted = position
            end = position + len(wanted)
            if not _cuts_word(joined, position) and not _cuts_word(joined, end):
                first = position - (joined.rfind("\n", 0, position) + 1)
                last = end - (joined.rfind("\n", 0, end) + 1)
                spots.append(self._spot(tuple(rows[row : row + len(olds)]), first, last, old))
            position = joined.find(wanted, position + 1)
        begins, ends = not key(lines[0]), not key(lines[-1])
        return [
            spot
            for spot in spots
            if (spot.begins_line or not begins) and (spot.ends_line or not ends)
        ]

    def _spot(self, rows: tuple[int, ...], first: int, last: int, old: str) -> Spot:
        opening, closing = columns(self.lines[rows[0]]), columns(self.lines[rows[-1]])
        spot = Spot(
            rows,
            opening[first] if first else 0,
            closing[last],
            begins_line=first == 0,
            ends_line=last == len(closing) - 1,
        )
        return structs.replace(spot, overlooked=self._overlooked(spot, old))

    def _overlooked(self, spot: Spot, old: str) -> frozenset[str]:
        olds = old.split("\n")
        numbers = [number for number, line in enumerate(olds) if key(line)]
        result: set[str] = set()
        for number, row in zip(numbers, spot.rows, strict=True):
            low, high = self.piece(spot, row)
            mine, theirs = parts(olds[number]), parts(self.lines[row][low:high])
            result |= _differences(mine, theirs)
        between = [b - a for a, b in zip(numbers, numbers[1:], strict=False)]
        there = [b - a for a, b in zip(spot.rows, spot.rows[1:], strict=False)]
        last = spot.rows[-1] + 1
        above = self.lines[max(0, spot.rows[0] - numbers[0]) : spot.rows[0]]
        wanted = len(olds) - 1 - numbers[-1]
        below = self.lines[last : last + wanted]
        missing = numbers[0] > spot.rows[0] or wanted > len(below)
        missing = missing or bool(below and not below[-1].startswith(olds[-1]))
        if missing or between != there or any(map(key, above)) or any(map(key, below[:-1])):
            result.add(BLANK_LINES)
        return frozenset(result)


def _cuts_word(text: str, position: int) -> bool:
    around = text[max(0, position - 1) : position + 1]
    return len(around) == 2 and all(char.isalnum() or char == "_" for char in around)


def _differences(mine: LineParts, theirs: LineParts) -> set[str]:
    result: set[str] = set()
    if mine.trail != theirs.trail:
        result.add(TRAILING)
    if mine.indent != theirs.indent:
        result.add(INDENT)
    if mine.text != theirs.text:
        if plain(mine.text) != plain(theirs.text):
            result.add(INSIDE)
        if mine.text.split() != theirs.text.split():
            result.add(CHARACTERS)
    return result


def meant(spots: list[Spot]) -> Spot | None:
    """Return the spot with strictly fewer differences than every other; trailing blanks do not
    count."""
    for spot in spots:
        mine = spot.overlooked - {TRAILING}
        if all(mine < other.overlooked - {TRAILING} for other in spots if other is not spot):
            return spot
    return None


# --- escapes ---------------------------------------------------------------------------------


def unescaped(old: str, new: str) -> Iterator[tuple[str, str]]:
    """Yield both texts with one level of superfluous escaping removed, in several ways."""
    for undo in (_all_escapes, _newlines, partial(_quotes, '"'), partial(_quotes, "'")):
        before, after = undo(old), undo(new)
        if before is not None and after is not None and before != old:
            yield before, after


def _all_escapes(text: str) -> str | None:
    try:
        value = str(json.loads(f'"{text}"'))
        value.encode()
    except ValueError:
        return None  # not JSON, or half a character
    return value


def _newlines(text: str) -> str | None:
    if "\n" in text:
        return None
    lines = text.replace("\\t", "\t").split("\\n")
    # An odd number of quotes means an escape inside a string, which has to stay.
    odd = any(line.count(quote) % 2 for line in lines for quote in "\"'`")
    return None if odd else "\n".join(lines)


def _quotes(quote: str, text: str) -> str | None:
    return None if re.search(rf"(?<!\\){quote}", text) else text.replace(f"\\{quote}", quote)
