"""Movements and text objects of vi: functions of a text and a place in it."""

from __future__ import annotations

import re
from collections.abc import Callable

from msgspec import Struct

_BRACKETS = {"(": ")", "[": "]", "{": "}", "<": ">"}
_OBJECTS = {**_BRACKETS, "b": ")", "B": "}"} | {end: end for end in _BRACKETS.values()}
_OPENING = {end: start for start, end in _BRACKETS.items()}


class Span(Struct, frozen=True):
    """A movement from `start` to `end`, or the text between them."""

    start: int
    end: int
    inclusive: bool = False
    lines: bool = False
    top: int | None = None
    """Start of the first line, for spans of lines."""
    failed: bool = False
    """The text ended before the count was used up."""

    def range(self, text: str) -> tuple[int, int]:
        """Return the part of the text that an operator works on."""
        first, last = sorted((self.start, self.end))
        if self.lines:
            return line_start(text, first), line_end(text, last)
        if self.inclusive:
            return first, min(len(text), last + 1)
        return first, last


Move = Callable[[str, int, int, bool], Span | None]
"""Takes the text, the cursor, a count (0: none) and whether an operator waits."""


def line_start(text: str, at: int) -> int:
    return text.rfind("\n", 0, at) + 1


def line_end(text: str, at: int) -> int:
    end = text.find("\n", at)
    return len(text) if end < 0 else end


def first_letter(text: str, at: int) -> int:
    """Return the first place of the line that is not blank."""
    start, end = line_start(text, at), line_end(text, at)
    line = text[start:end]
    return start + len(line) - len(line.lstrip(" \t")) if line.strip() else max(start, end - 1)


# --- words -----------------------------------------------------------------------------------


def _starts(text: str, big: bool) -> list[int]:
    """Return where words begin; an empty line is a word."""
    pattern = r"\S+|(?<=\n)(?=\n)|\A(?=\n)" if big else r"\w+|[^\w\s]+|(?<=\n)(?=\n)|\A(?=\n)"
    return [match.start() for match in re.finditer(pattern, text)]


def _ends(text: str, big: bool) -> list[int]:
    pattern = r"\S+" if big else r"\w+|[^\w\s]+"
    return [match.end() - 1 for match in re.finditer(pattern, text)]


def _word(big: bool) -> Move:
    def move(text: str, at: int, count: int, waits: bool) -> Span:
        count = count or 1
        later = [start for start in _starts(text, big) if start > at]
        to = later[count - 1] if len(later) >= count else len(text)
        last = max([at, *later[: count - 1]])
        if waits and "\n" in text[last:to]:  # the last word ends its line: stop there
            end = line_end(text, last)
            to = end if end > at else to
        if waits or to < len(text):
            return Span(at, to)
        return Span(at, max(at, len(text) - 1), failed=True)

    return move


def _end(big: bool) -> Move:
    def move(text: str, at: int, count: int, waits: bool) -> Span:
        later = [end for end in _ends(text, big) if end > at]
        count = count or 1
        to = later[count - 1] if len(later) >= count else max(0, len(text) - 1)
        return Span(at, to, inclusive=True)

    return move


def _change_word(big: bool) -> Move:
    """Return the movement of `cw`: to the end of this word, also if the cursor is on it."""

    def move(text: str, at: int, count: int, waits: bool) -> Span:
        span = _end(big)(text, at - 1, count, waits)
        assert span is not None
        return Span(at, span.end, inclusive=True)

    return move


def _back(big: bool) -> Move:
    def move(text: str, at: int, count: int, waits: bool) -> Span:
        earlier = [start for start in _starts(text, big) if start < at]
        count = count or 1
        return Span(at, earlier[-count] if len(earlier) >= count else 0)

    return move


def _back_to_end(big: bool) -> Move:
    def move(text: str, at: int, count: int, waits: bool) -> Span:
        earlier = [end for end in _ends(text, big) if end < at]
        count = count or 1
        return Span(at, earlier[-count] if len(earlier) >= count else 0, inclusive=True)

    return move


# --- lines -----------------------------------------------------------------------------------


def _left(text: str, at: int, count: int, waits: bool) -> Span | None:
    to = max(line_start(text, at), at - (count or 1))
    return Span(at, to) if to != at else None


def _right(text: str, at: int, count: int, waits: bool) -> Span | None:
    end = line_end(text, at)
    return Span(at, min(end if waits else max(at, end - 1), at + (count or 1)))


def _vertical(step: int) -> Move:
    def move(text: str, at: int, count: int, waits: bool) -> Span | None:
        column, to = at - line_start(text, at), at
        for _ in range(count or 1):
            start = (
                line_end(text, to) + 1 if step > 0 else line_start(text, line_start(text, to) - 1)
            )
            if start > len(text) or (step < 0 and line_start(text, to) == 0):
                return None
            to = start
        to = min(to + column, max(to, line_end(text, to) - 1))
        return Span(at, to, lines=True)

    return move


def _line_top(text: str, at: int, count: int, waits: bool) -> Span:
    return Span(at, line_start(text, at))


def _first(text: str, at: int, count: int, waits: bool) -> Span:
    return Span(at, first_letter(text, at))


def _line_tail(text: str, at: int, count: int, waits: bool) -> Span:
    end = line_end(text, at)
    for _ in range((count or 1) - 1):
        end = line_end(text, min(len(text), end + 1))
    return Span(at, end) if waits else Span(at, max(line_start(text, end), end - 1))


def _to_line(last: bool) -> Move:
    def move(text: str, at: int, count: int, waits: bool) -> Span:
        lines = text.split("\n")
        wanted = min(count, len(lines)) if count else len(lines) if last else 1
        return Span(
            at, first_letter(text, sum(len(line) + 1 for line in lines[: wanted - 1])), lines=True
        )

    return move


def _column(text: str, at: int, count: int, waits: bool) -> Span:
    start, end = line_start(text, at), line_end(text, at)
    return Span(at, max(start, min(start + (count or 1) - 1, end - 1)))


def _paragraph(step: int) -> Move:
    def move(text: str, at: int, count: int, waits: bool) -> Span:
        blank = [m.start() for m in re.finditer(r"(?<=\n)(?=\n)|\A(?=\n)", text)]
        to = at
        for _ in range(count or 1):
            if step > 0:
                to = next(
                    (place for place in blank if place > to and not _only_blank(text, to, place)),
                    len(text),
                )
            else:
                to = next(
                    (
                        place
                        for place in reversed(blank)
                        if place < to and not _only_blank(text, place, to)
                    ),
                    0,
                )
        if step > 0 and to >= len(text):
            return Span(at, len(text) if waits else max(at, len(text) - 1))
        return Span(at, to)

    return move


def _only_blank(text: str, start: int, end: int) -> bool:
    return not text[start:end].strip("\n")


def _pair(text: str, at: int, count: int, waits: bool) -> Span | None:
    end = line_end(text, at)
    for place in range(at, end):
        letter = text[place]
        if letter in "([{":
            to = _closing(text, place, letter, _BRACKETS[letter], 1)
        elif letter in ")]}":
            to = _closing(text, place, letter, _OPENING[letter], -1)
        else:
            continue
        return None if to is None else Span(at, to, inclusive=True)
    return None


def _closing(text: str, at: int, opening: str, closing: str, step: int) -> int | None:
    """Return the place of the bracket that belongs to the one at this place."""
    depth = 0
    place = at
    while 0 <= place < len(text):
        depth += (text[place] == opening) - (text[place] == closing)
        if depth == 0:
            return place
        place += step
    return None


def find_letter(text: str, at: int, command: str, letter: str, key: str, count: int) -> Span | None:
    """Return the span of `f`, `F`, `t` and `T`, or of `;` and `,`, which repeat the last one."""
    if not command:
        return None
    forward = command in "ft"
    if key == ",":
        forward = not forward
    start, end = line_start(text, at), line_end(text, at)
    short = command in "tT"
    place = at
    for turn in range(count):
        skip = 1 + (short and key in ";," and turn == 0)
        if forward:
            place = text.find(letter, place + (skip if turn == 0 else 1), end)
        else:
            place = text.rfind(letter, start, max(start, place - (skip - 1 if turn == 0 else 0)))
        if place < 0:
            return None
    if short:
        place += -1 if forward else 1
    return Span(at, place, inclusive=forward)


# --- text objects ----------------------------------------------------------------------------


def object_at(text: str, at: int, key: str, count: int) -> Span | None:
    """Return the text object (`iw`, `a"`, `i(`, ...) at this place; None: there is none."""
    around, kind = key[0] == "a", key[1]
    if kind in "wW":
        return _word_object(text, at, big=kind == "W", around=around, count=count)
    if kind in "\"'`":
        return _quoted(text, at, kind, around=around)
    if kind in _OBJECTS:
        closing = _OBJECTS[kind]
        opening = _OPENING.get(closing, kind)
        return _bracketed(text, at, opening, _BRACKETS[opening], around=around, count=count)
    return None


def _word_object(text: str, at: int, *, big: bool, around: bool, count: int) -> Span | None:
    pattern = r"\S+|[^\S\n]+" if big else r"\w+|[^\w\s]+|[^\S\n]+"
    start, end = line_start(text, at), line_end(text, at)
    parts = [match.span() for match in re.finditer(pattern, text[start:end])]
    parts = [(start + first, start + last) for first, last in parts]
    index = next((i for i, (first, last) in enumerate(parts) if first <= at < last), None)
    if index is None:
        return None
    if not around:
        last = min(len(parts), index + count) - 1
        return Span(parts[index][0], parts[last][1])
    blank = [text[first].isspace() for first, _ in parts]
    last = index - 1
    for _ in range(count):  # a word and the blank behind it, or a blank and the word behind it
        begins_blank = last + 1 < len(parts) and blank[last + 1]
        last += 1
        if last + 1 < len(parts) and blank[last + 1] != begins_blank:
            last += begins_blank or blank[last + 1]
    last = min(last, len(parts) - 1)
    if not blank[index] and not blank[last] and index > 0 and blank[index - 1]:
        return Span(parts[index - 1][0], parts[last][1])  # none behind it: take the one before
    return Span(parts[index][0], parts[last][1])


def _quoted(text: str, at: int, quote: str, *, around: bool) -> Span | None:
    start, end = line_start(text, at), line_end(text, at)
    places = [i for i in range(start, end) if text[i] == quote and text[i - 1 : i] != "\\"]
    pairs = list(zip(places[::2], places[1::2], strict=False))
    pair = next((p for p in pairs if at <= p[1]), None)
    if pair is None:
        return None
    first, last = pair
    if not around:
        return Span(first + 1, last)
    stop = last + 1
    while stop < end and text[stop] in " \t":
        stop += 1
    if stop == last + 1:
        while first > start and text[first - 1] in " \t":
            first -= 1
    return Span(first, stop)


def _bracketed(
    text: str, at: int, opening: str, closing: str, *, around: bool, count: int
) -> Span | None:
    place = at
    for turn in range(count):
        if turn:
            place -= 1
        found = _enclosing(text, place, opening, closing)
        if found is None and not turn:
            found = text.find(opening, at, line_end(text, at))  # the next one in the line
        if found is None or found < 0:
            return None
        place = found
    end = _closing(text, place, opening, closing, 1)
    if end is None:
        return None
    return Span(place, end + 1) if around else Span(place + 1, end)


def _enclosing(text: str, at: int, opening: str, closing: str) -> int | None:
    depth = 0
    for place in range(at, -1, -1):
        if text[place : place + 1] == closing and place != at:
            depth += 1
        elif text[place : place + 1] == opening:
            if depth == 0:
                return place
            depth -= 1
    return None


MOVES: dict[str, Move] = {
    "h": _left, "l": _right, " ": _right, "j": _vertical(1), "k": _vertical(-1),
    "w": _word(False), "W": _word(True), "e": _end(False), "E": _end(True),
    "b": _back(False), "B": _back(True), "ge": _back_to_end(False), "gE": _back_to_end(True),
    "cw": _change_word(False), "cW": _change_word(True),
    "0": _line_top, "^": _first, "$": _line_tail, "|": _column,
    "gg": _to_line(False), "G": _to_line(True), "{": _paragraph(-1), "}": _paragraph(1), "%": _pair,
}  # fmt: skip
"""Movements by their keys."""
