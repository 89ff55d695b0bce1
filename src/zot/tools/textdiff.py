"""Short diffs for people and models: rows that begin with a space, `-` or `+`, no headers.

Time and size are bounded whatever the texts are.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterator

CONTEXT = 3
MAX_ROWS = 200
MAX_WIDTH = 500
COMPARED = 1500
"""Lines a side that difflib is asked to align; its time grows with the square."""

Rows = list[str]


def diff(before: str, after: str) -> tuple[str, int]:
    """The changed lines with some context, and the number of the first one (0: no change)."""
    old, new = _lines(before), _lines(after)
    head = 0
    while head < min(len(old), len(new)) and old[head] == new[head]:
        head += 1
    if head == len(old) == len(new):
        return "", 0
    tail = 0
    while tail < min(len(old), len(new)) - head and old[-1 - tail] == new[-1 - tail]:
        tail += 1
    rows: Rows = []
    position = max(0, head - CONTEXT)
    if position:
        rows.append("...")
    for start, end, added in _changes(old, new, head, tail):
        rows += _context(old, position, start)
        rows += ["-" + line for line in old[start:end]]
        rows += ["+" + line for line in added]
        position = end
    rows += [" " + line for line in old[position : position + CONTEXT]]
    if position + CONTEXT < len(old):
        rows.append("...")
    return "\n".join(_bounded(rows)), head + 1


def _lines(text: str) -> list[str]:
    lines = text.split("\n")
    if lines[-1] == "":
        lines.pop()
    elif text:
        lines[-1] += "\n\\ no newline at the end"
    return lines


def _changes(
    old: list[str], new: list[str], head: int, tail: int
) -> Iterator[tuple[int, int, list[str]]]:
    """(start, end, lines that replace old[start:end]) for every run of changed lines."""
    middle_old, middle_new = old[head : len(old) - tail], new[head : len(new) - tail]
    if max(len(middle_old), len(middle_new)) > COMPARED:
        yield head, head + len(middle_old), middle_new
        return
    matcher = difflib.SequenceMatcher(None, middle_old, middle_new, autojunk=True)
    for tag, i1, i2, j1, j2 in matcher.get_opcodes():
        if tag != "equal":
            yield head + i1, head + i2, middle_new[j1:j2]


def _context(old: list[str], position: int, start: int) -> Rows:
    between = old[position:start]
    if len(between) <= 2 * CONTEXT:
        return [" " + line for line in between]
    first = [" " + line for line in between[:CONTEXT]]
    return [*first, "...", *(" " + line for line in between[-CONTEXT:])]


def _bounded(rows: Rows) -> Rows:
    if len(rows) > MAX_ROWS:
        left_out = len(rows) - MAX_ROWS
        rows = [*rows[: MAX_ROWS // 2], f"... [{left_out} rows left out]", *rows[-MAX_ROWS // 2 :]]
    return [row if len(row) <= MAX_WIDTH else row[:MAX_WIDTH] + "..." for row in rows]
