"""Short diffs for people and models: rows that begin with a space, `-` or `+`, no headers.

Time and size are bounded whatever the texts are.
"""

from __future__ import annotations

import difflib
from collections.abc import Sequence

CONTEXT = 3
MAX_ROWS = 200
MAX_WIDTH = 500
MAX_COMPARED = 4_000_000
"""Maximum product of both sides' lines (or words) to align; beyond it all count as replaced."""

Rows = list[str]
Opcode = tuple[str, int, int, int, int]


def diff(before: str, after: str) -> tuple[str, int]:
    """Return the changed lines with context, and the number of the first one (0: no change)."""
    old, new = _lines(before), _lines(after)
    changes = [code for code in opcodes(old, new) if code[0] != "equal"]
    if not changes:
        return "", 0
    rows: Rows = []
    position = max(0, changes[0][1] - CONTEXT)
    if position:
        rows.append("...")
    for _, start, end, first, last in changes:
        rows += _context(old, position, start)
        rows += ["-" + line for line in old[start:end]]
        rows += ["+" + line for line in new[first:last]]
        position = end
    rows += [" " + line for line in old[position : position + CONTEXT]]
    if position + CONTEXT < len(old):
        rows.append("...")
    return "\n".join(_bounded(rows)), changes[0][1] + 1


def opcodes(old: Sequence[str], new: Sequence[str]) -> list[Opcode]:
    """Return difflib opcodes from old to new; lines shared at both ends are compared only once."""
    head, most = 0, min(len(old), len(new))
    while head < most and old[head] == new[head]:
        head += 1
    tail = 0
    while tail < most - head and old[-1 - tail] == new[-1 - tail]:
        tail += 1
    a, b = old[head : len(old) - tail], new[head : len(new) - tail]
    codes: list[Opcode] = [("equal", 0, head, 0, head)] if head else []
    if not a or not b or len(a) * len(b) > MAX_COMPARED:
        tag = "replace" if a and b else "delete" if a else "insert"
        codes += [(tag, head, head + len(a), head, head + len(b))] if a or b else []
    else:
        matcher = difflib.SequenceMatcher(None, a, b, autojunk=len(a) * len(b) > 250_000)
        for tag, i1, i2, j1, j2 in matcher.get_opcodes():
            codes.append((tag, head + i1, head + i2, head + j1, head + j2))
    if tail:
        codes.append(("equal", len(old) - tail, len(old), len(new) - tail, len(new)))
    return codes


def _lines(text: str) -> list[str]:
    lines = text.split("\n")
    if lines[-1] == "":
        lines.pop()
    elif text:
        lines[-1] += "\n\\ no newline at the end"
    return lines


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
