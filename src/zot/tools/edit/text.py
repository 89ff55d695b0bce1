"""A file's text: line endings, byte-order marks, and short diffs. Touches no file.

Edits match with `\\n` and write what the file has. Diffs are for people and models: rows that
begin with a space, `-` or `+`, no headers; their time and size are bounded whatever the texts are.
"""

from __future__ import annotations

import bisect
import difflib
from collections.abc import Sequence

BOM = b"\xef\xbb\xbf"
CONTEXT = 3
MAX_ROWS = 200
"""Maximum rows of a diff for a model."""
MAX_SHOWN_ROWS = 10_000
"""Maximum rows of a diff for a person."""
MAX_SHOWN = 1_000_000
"""Maximum characters of such a diff."""
MAX_WIDTH = 500
MAX_COMPARED = 4_000_000
"""Maximum product of both sides' lines (or words) to align; beyond it all count as replaced."""

Opcode = tuple[str, int, int, int, int]


# --- line endings ----------------------------------------------------------------------------


class Normalized:
    """A file's content with `\\r\\n` as `\\n`, and a mapping back to the original positions."""

    def __init__(self, data: bytes) -> None:
        self.data = data
        self.text = data.replace(b"\r\n", b"\n")
        self._crlf: list[int] = []
        """Positions in `text` of the newlines that are two bytes in `data`."""
        position = data.find(b"\r\n")
        while position >= 0:
            self._crlf.append(position - len(self._crlf))
            position = data.find(b"\r\n", position + 2)

    def original(self, position: int) -> int:
        """Map a position in `text` to the position in `data`."""
        return position + bisect.bisect_left(self._crlf, position)

    def ending(self, start: int, end: int) -> bytes:
        """Return the line ending for text that replaces `text[start:end]`: the one used there, or
        else in most of the file."""
        for low, high in ((start, end), (0, len(self.text))):
            two = bisect.bisect_left(self._crlf, high) - bisect.bisect_left(self._crlf, low)
            lines = self.text.count(b"\n", low, high)
            if lines:
                return b"\r\n" if two * 2 > lines else b"\n"
        return b"\n"

    def replace(self, edits: list[tuple[int, int, bytes]]) -> bytes:
        """Return the original with each `text[start:end]` replaced; edits are sorted and do not
        overlap. Text outside the edits keeps its bytes, mixed endings included."""
        pieces: list[bytes] = []
        position = 0
        for start, end, new in edits:
            start, end, new = _trim(self.text, start, end, new)
            pieces.append(self.data[position : self.original(start)])
            pieces.append(new.replace(b"\n", self.ending(start, end)))
            position = self.original(end)
        pieces.append(self.data[position:])
        return b"".join(pieces)


def _trim(text: bytes, start: int, end: int, new: bytes) -> tuple[int, int, bytes]:
    """Remove whole lines that old and new text share at both ends; return start, end, new text."""
    old = text[start:end]
    same = 0
    while (cut := old.find(b"\n", same) + 1) and old[same:cut] == new[same:cut]:
        same = cut
    old, new, start = old[same:], new[same:], start + same
    while (cut := old.rfind(b"\n")) >= 0 and new.endswith(old[cut:]):
        old, new = old[:cut], new[: len(new) - (len(old) - cut)]
    return start, start + len(old), new


def shown_text(data: bytes | None) -> str:
    """Return content for display: `\\n` line endings, no byte-order mark; "" for no file."""
    shown = (data or b"").replace(b"\r\n", b"\n").decode("utf-8", "replace")
    return shown.removeprefix("\ufeff")


def keep_style(before: bytes, content: bytes) -> bytes:
    """Return new content with the byte-order mark and the line endings of the old content."""
    if before.startswith(BOM) and not content.startswith(BOM):
        content = BOM + content
    lines = before.count(b"\n")
    if lines and before.count(b"\r\n") == lines and b"\r\n" not in content:
        content = content.replace(b"\n", b"\r\n")
    return content


# --- diffs -----------------------------------------------------------------------------------


def diff(before: str, after: str, most: int = MAX_ROWS) -> tuple[str, int]:
    """Return the changed lines with context, and the number of the first one (0: no change). A row
    `... 12` stands for 12 equal lines. `most`: maximum rows."""
    old, new = _lines(before), _lines(after)
    changes = [code for code in opcodes(old, new) if code[0] != "equal"]
    if not changes:
        return "", 0
    rows: list[str] = []
    position = max(0, changes[0][1] - CONTEXT)
    if position:
        rows.append(f"... {position}")
    for _, start, end, first, last in changes:
        rows += _context(old, position, start)
        rows += ["-" + line for line in old[start:end]]
        rows += ["+" + line for line in new[first:last]]
        position = end
    rows += [" " + line for line in old[position : position + CONTEXT]]
    if position + CONTEXT < len(old):
        rows.append(f"... {len(old) - position - CONTEXT}")
    return "\n".join(_bounded(rows, most)), changes[0][1] + 1


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


def _context(old: list[str], position: int, start: int) -> list[str]:
    between = old[position:start]
    if len(between) <= 2 * CONTEXT:
        return [" " + line for line in between]
    first = [" " + line for line in between[:CONTEXT]]
    return [
        *first,
        f"... {len(between) - 2 * CONTEXT}",
        *(" " + line for line in between[-CONTEXT:]),
    ]


def _bounded(rows: list[str], most: int) -> list[str]:
    if most > MAX_ROWS and sum(map(len, rows)) > MAX_SHOWN:
        most = MAX_ROWS
    if len(rows) > most:
        left_out = len(rows) - most
        rows = [*rows[: most // 2], f"... [{left_out} rows left out]", *rows[-most // 2 :]]
    return [row if len(row) <= MAX_WIDTH else row[:MAX_WIDTH] + "..." for row in rows]
