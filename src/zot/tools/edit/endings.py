"""Line endings and byte-order marks: match with `\\n`, write what the file has. Bytes only."""

from __future__ import annotations

import bisect

BOM = b"\xef\xbb\xbf"


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


def text(data: bytes | None) -> str:
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
