"""The `read` tool: a window of a text file, or an image. Reads in chunks, never a whole file."""

from __future__ import annotations

import os
import stat
import time
from pathlib import Path
from typing import BinaryIO

from zot.cancel import Cancel
from zot.core.image import MAX_IMAGE, image_type
from zot.core.tool import ToolContext, ToolOutput
from zot.errors import ToolError
from zot.provider.types import Image, Json, Text
from zot.tools import paths
from zot.tools.edit.text import BOM
from zot.tools.place import Place, PlacedTool

MAX_LINES = 2000
MAX_BYTES = 51_200
SNIFF = 8192
CHUNK = 1 << 20
SCAN_SECONDS = 20.0
"""Timeout in seconds for finding a line in a huge file."""
COUNT_LIMIT = 64 << 20
"""Maximum remaining bytes of a file in which the lines are still counted."""


class Read(PlacedTool):
    def run(self, args: dict[str, Json], context: ToolContext) -> ToolOutput | str:
        path = self._place.resolve(args.get("path"))
        offset = _positive(args.get("offset"), "offset", 1)
        limit = _positive(args.get("limit"), "limit", MAX_LINES)
        try:
            with _open(path, self._place) as file:
                return _read(file, self._place.shown(path), offset, limit, context.cancel)
        except OSError as error:
            raise paths.failed(f"cannot read {str(path)!r}", error) from error


def _positive(value: Json, name: str, default: int) -> int:
    if value is None:
        return default
    if not isinstance(value, int | float) or value != int(value) or value < 0:
        raise ToolError(f"{name} must be a positive whole number, not {value!r}")
    return int(value) or default


def _open(path: Path, place: Place) -> BinaryIO:
    """Open a regular file. Checks the type first: opening a pipe or device has side effects."""
    try:
        mode = place.disk.stat(str(path)).st_mode
    except FileNotFoundError:
        raise ToolError(place.missing(path)) from None
    except NotADirectoryError:
        raise ToolError(f"cannot read {str(path)!r}: a part of the path is a file") from None
    if stat.S_ISDIR(mode):
        raise ToolError(f"{path} is a directory; list it with glob or `ls` in bash")
    if not stat.S_ISREG(mode):
        raise ToolError(f"{path} is {paths.kind(mode)}, not a regular file; refusing to read it")
    return os.fdopen(place.disk.open(str(path)), "rb", buffering=0)


def _read(file: BinaryIO, name: str, offset: int, limit: int, cancel: Cancel) -> ToolOutput | str:
    head = _sniff(file)
    if mime := image_type(head):
        return _image(file, head, name, mime)
    if head.startswith((b"\xff\xfe", b"\xfe\xff")):
        raise ToolError(f"{name} is UTF-16; convert it first: iconv -f UTF-16 -t UTF-8")
    if b"\0" in head:
        raise ToolError(f"{name} looks binary; refusing to read as text")
    if not head:
        return "... [the file is empty]"
    window = Window(file, head, cancel)
    if not window.skip(offset - 1):
        raise ToolError(f"offset {offset} is past the end: {name} has {window.line} lines")
    return window.take(limit)


def _sniff(file: BinaryIO) -> bytes:
    head = b""
    while len(head) < SNIFF and (piece := file.read(SNIFF - len(head))):
        head += piece
    return head


def _image(file: BinaryIO, head: bytes, name: str, mime: str) -> ToolOutput:
    data = bytearray(head)
    while len(data) <= MAX_IMAGE and (piece := file.read(CHUNK)):
        data += piece
    if len(data) > MAX_IMAGE:
        size = os.fstat(file.fileno()).st_size
        raise ToolError(
            f"{name} is an image of {size} bytes; at most {MAX_IMAGE} can be sent: resize it first"
        )
    note = Text(f"{name} ({mime}, {len(data)} bytes)")
    return ToolOutput(content=(note, Image(mime_type=mime, data=bytes(data))))


class Window:
    """Walks a file in chunks: skips lines by counting, then takes lines up to the limits."""

    def __init__(self, file: BinaryIO, head: bytes, cancel: Cancel) -> None:
        self._file = file
        self._buffer = head.removeprefix(BOM)
        self._cancel = cancel
        self._deadline = time.monotonic() + SCAN_SECONDS
        self._ended = True
        self.line = 0
        """Number of lines passed so far."""

    def _late(self) -> bool:
        self._cancel.check()
        return time.monotonic() > self._deadline

    def _more(self) -> bool:
        if self._late():
            raise ToolError(
                f"gave up after {SCAN_SECONDS:.0f} s at line {self.line + 1}: the file is too"
                " large to search by line; use bash (tail -c, dd, sed) for a part of it"
            )
        self._buffer = self._file.read(CHUNK) or b""
        return bool(self._buffer)

    def skip(self, lines: int) -> bool:
        """Move past `lines` lines; return False if the file ends before another line."""
        while self._buffer or self._more():
            missing = lines - self.line
            if missing == 0:
                return True
            here = self._buffer.count(b"\n")
            if here < missing:
                self.line += here
                self._ended = self._buffer.endswith(b"\n")
                self._buffer = b""
                continue
            position = -1
            for _ in range(missing):
                position = self._buffer.index(b"\n", position + 1)
            self.line = lines
            self._ended = True
            self._buffer = self._buffer[position + 1 :]
        if not self._ended:
            self.line += 1  # the last line has no newline
        return False

    def take(self, limit: int) -> str:
        first = self.line + 1
        window = self._gather()
        lines = window.split(b"\n")
        tail = lines.pop()
        if tail and len(window) <= MAX_BYTES:
            lines.append(tail)  # the end of the file, without a newline
        if not lines:
            return self._take_part(window, limit)
        lines = lines[: min(limit, MAX_LINES)]
        used = sum(map(len, lines)) + len(lines)
        self._buffer = window[used:] + self._buffer
        self.line += len(lines)
        return _text(lines, self._rest_note(first, limit, len(lines)))

    def _gather(self) -> bytes:
        """Return MAX_BYTES + 1 bytes; fewer only at the end of the file."""
        window = self._buffer
        while len(window) <= MAX_BYTES and self._more():
            window += self._buffer
        self._buffer = window[MAX_BYTES + 1 :]
        return window[: MAX_BYTES + 1]

    def _take_part(self, window: bytes, limit: int) -> str:
        """Return the beginning of a single line that exceeds the limit."""
        cut = MAX_BYTES
        while cut > 0 and window[cut] & 0xC0 == 0x80:  # not inside a character
            cut -= 1
        self._buffer = window[cut:] + self._buffer
        self.line += 1
        notes = self._long_note(cut), self._rest_note(self.line, limit, 1)
        return _text([window[:cut]], *notes)

    def _long_note(self, shown: int) -> str:
        length = shown + self._drop_line()
        return (
            f"... [line {self.line} has {length} bytes; the first {shown} are shown."
            f" For the rest use bash: sed -n {self.line}p FILE | cut -b{shown + 1}-{2 * shown}]"
        )

    def _drop_line(self) -> int:
        """Skip the rest of an over-long line; return its length."""
        dropped = 0
        while not self._late() and (self._buffer or self._more()):
            end = self._buffer.find(b"\n")
            if end >= 0:
                self._buffer = self._buffer[end + 1 :]
                return dropped + end
            dropped += len(self._buffer)
            self._buffer = b""
        return dropped

    def _rest_note(self, first: int, limit: int, shown: int) -> str:
        """Return a note on how to read on, if there is more, with the total if cheap to count."""
        if not self._buffer and not self._more():
            return ""
        last = first + shown - 1
        total = self._count_rest()
        of = f" of {total}" if total else ""
        cut = "" if limit <= shown else f", cut at {MAX_LINES} lines or {MAX_BYTES} bytes"
        return f"... [lines {first}-{last}{of}{cut}; read on with offset={last + 1}]"

    def _count_rest(self) -> int | None:
        size = os.fstat(self._file.fileno()).st_size
        if size - self._file.tell() > COUNT_LIMIT:
            return None
        total, last, seen = self.line, b"\n", 0
        while seen <= COUNT_LIMIT and not self._late() and (self._buffer or self._more()):
            total += self._buffer.count(b"\n")
            last = self._buffer[-1:]
            seen += len(self._buffer)
            self._buffer = b""
        if seen > COUNT_LIMIT or self._late():
            return None
        return total + (last != b"\n")


def _text(lines: list[bytes], *notes: str) -> str:
    joined = b"\n".join(lines).replace(b"\r\n", b"\n").removesuffix(b"\r")
    shown = joined.decode("utf-8", "replace")
    return shown.replace("\0", "\ufffd") + "\n" + "".join(f"\n{note}" for note in notes if note)
