"""Framing: bytes to lines and objects to lines. Lines are not interpreted here."""

from __future__ import annotations

import os
import re
import select
import sys
from collections.abc import Callable, Collection, Iterator
from typing import Any

import msgspec

from zot.errors import CommandError
from zot.text import check_nesting, encode_json, escaped, whole_escapes

MAX_LINE = 16 * 1024 * 1024
LONGEST_NUMBER = 4300
"""Maximum number of digits; Python refuses to convert longer ones to an integer."""

START = 64 * 1024
"""Number of bytes kept of a line that is too long."""

_BOM = b"\xef\xbb\xbf"
_LONG_NUMBER = rb"(?<![0-9])[0-9]{%d}" % LONGEST_NUMBER


class LineTooLong:
    """Placeholder for a line that was skipped because it exceeded the limit."""

    def __init__(self, limit: int, start: bytes) -> None:
        self.limit = limit
        self.start = start
        """The first bytes of the line, from which callers may identify it."""


class LineCutter:
    """Splits bytes at LF only: every line unchanged, without its LF. Pieces of an incomplete line
    are buffered and joined once, however long the line becomes."""

    def __init__(self) -> None:
        self._held: list[bytes] = []

    def feed(self, data: bytes) -> list[bytes]:
        """Return the lines that `data` completes."""
        *lines, rest = data.split(b"\n")
        if lines and self._held:
            lines[0] = b"".join((*self._held, lines[0]))
            self._held.clear()
        if rest:
            self._held.append(rest)
        return lines


class LineSplitter:
    """Splits a byte stream at LF only. A line over the limit is skipped, not fatal: it is reported
    at its end, when its sender has written it all, or `at_once`, as its end may never come.
    """

    def __init__(self, limit: int = MAX_LINE, *, at_once: bool = False) -> None:
        self._limit = limit
        self._at_once = at_once
        self._held = bytearray()  # no list of pieces: a client may send one byte at a time
        self._skipping = False
        self._first = True

    def feed(self, data: bytes) -> Iterator[bytes | LineTooLong]:
        """Yield the lines that `data` completes, stripped of white space and without blank lines.
        The caller must consume all of them before the next call."""
        *pieces, rest = data.split(b"\n")
        for piece in pieces:
            yield from self._add(piece)
            if (line := self.finish()) is not None:
                yield line
        if rest:
            yield from self._add(rest)

    def finish(self) -> bytes | LineTooLong | None:
        """Return the data after the last LF as a line, or None, and reset."""
        line, skipped = bytes(self._held), self._skipping
        first, self._first = self._first, False
        self._held, self._skipping = bytearray(), False
        if skipped:
            return None if self._at_once else LineTooLong(self._limit, line)
        if first:
            line = line.removeprefix(_BOM)
        return line.strip(b" \t\r") or None

    def _add(self, piece: bytes) -> Iterator[LineTooLong]:
        if self._skipping:
            return
        self._held += piece
        if len(self._held) > self._limit:
            self._skipping = True
            del self._held[START:]
            if self._at_once:
                yield LineTooLong(self._limit, bytes(self._held))


def decode_line(line: bytes, decode: Callable[[bytes], Any]) -> Any:
    """Decode one line; half of a surrogate pair becomes U+FFFD. Raises CommandError:
    `parse_error` if it is not JSON, `invalid_params` if it has the wrong shape."""
    try:
        check_nesting(line)
        return decode(readable(line))
    except LINE_ERRORS as error:
        raise line_error(error) from error


LINE_ERRORS = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)


def line_error(error: Exception) -> CommandError:
    """Convert one of LINE_ERRORS, raised by a decoder, to a CommandError."""
    if isinstance(error, msgspec.ValidationError):
        return CommandError(f"invalid_params: {error}")
    reason = "it is nested too deeply" if isinstance(error, RecursionError) else str(error)
    return CommandError(f"parse_error: not a JSON line: {reason}", code="parse_error")


def readable(line: bytes) -> bytes:
    """Return the line with halves of surrogate pairs replaced, so that a decoder can read it.

    Raises:
        UnicodeDecodeError: it is not UTF-8. Decoders do not check unknown fields and pass on raw
            ones; such bytes must not come back on the wire.
    """
    if not line.isascii():
        line.decode()
    return whole_escapes(line) if b"\\u" in line else line


def check_numbers(line: bytes) -> None:
    """Refuse a number too long for a Python integer, even in an unused field. Raises
    msgspec.ValidationError."""
    if len(line) < LONGEST_NUMBER:
        return
    # Checking every 400th byte is enough to rule out such a run of digits, and much faster. A run
    # is matched from its start only: from each of its digits, the time would be quadratic.
    if re.search(rb"[0-9]{10}", line[::400]) and re.search(_LONG_NUMBER, line):
        msgspec.json.decode(line)  # raises "out of range", unless the digits are in a string


def encode_line(value: Any) -> bytes:
    """Encode an object as a line that no reader splits wrongly; half a character becomes U+FFFD."""
    data = encode_json(value)
    return (data if data.isascii() else escaped(data)) + b"\n"


def write_all(fd: int, data: bytes) -> None:
    """Write every byte, also to a non-blocking pipe."""
    view = memoryview(data)
    while view:
        try:
            view = view[os.write(fd, view) :]
        except BlockingIOError:
            ready(writing=(fd,))


def poke(fd: int) -> None:
    """Wake the reader at the other end of a pipe."""
    try:
        os.write(fd, b"\0")
    except OSError:
        pass  # the pipe is full, so the reader wakes anyway, or it is closed


def ready(
    *reading: int, writing: Collection[int] = (), timeout: float | None = None
) -> Collection[int]:
    """Wait for the descriptors, up to `timeout` seconds; return those that are ready or failed.

    select() is not used, since it takes no descriptors above 1023.
    """
    poll = select.poll()
    for fd in reading:
        poll.register(fd, select.POLLIN)
    for fd in writing:
        poll.register(fd, select.POLLOUT)
    events = poll.poll(None if timeout is None else max(0.0, timeout) * 1000)
    if sys.platform == "darwin" and any(flags & select.POLLNVAL for _, flags in events):
        return sum(select.select(reading, writing, (), timeout), [])  # macOS cannot poll terminals
    return {fd for fd, _ in events}
