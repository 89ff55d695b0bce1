"""Framing: bytes to lines and objects to lines. It knows nothing of what a line means."""

from __future__ import annotations

import os
import re
import select
import sys
from collections.abc import Callable, Collection, Iterable, Iterator
from typing import Any

import msgspec

from zot.errors import CommandError
from zot.text import check_nesting, encode_json, escaped, plain_json, whole_escapes

MAX_LINE = 16 * 1024 * 1024
LONGEST_NUMBER = 4300
"""Digits; Python refuses to turn longer ones into an integer."""

START = 64 * 1024
"""Bytes that are kept of a line that is too long."""

_BOM = b"\xef\xbb\xbf"
_LONG_NUMBER = rb"(?<![0-9])[0-9]{%d}" % LONGEST_NUMBER


class LineTooLong:
    """Stands in for a line that was skipped because it went past the limit."""

    def __init__(self, limit: int, start: bytes) -> None:
        self.limit = limit
        self.start = start
        """Its first bytes, for whoever can tell from them what it was."""


class LineCutter:
    """Cuts bytes at LF, and only there: every line as it was, without its LF. What is not whole yet
    is kept, and joined once, however long the line becomes."""

    def __init__(self) -> None:
        self._held: list[bytes] = []

    def feed(self, data: bytes) -> list[bytes]:
        """The lines that `data` completes."""
        *lines, rest = data.split(b"\n")
        if lines and self._held:
            lines[0] = b"".join((*self._held, lines[0]))
            self._held.clear()
        if rest:
            self._held.append(rest)
        return lines


class LineSplitter:
    """Cuts a byte stream at LF, and only there. A line past the limit is skipped, not fatal: it is
    told at its end, when its sender has written it all, or `at_once`, as its end may never come.
    """

    def __init__(self, limit: int = MAX_LINE, *, at_once: bool = False) -> None:
        self._limit = limit
        self._at_once = at_once
        self._held = bytearray()  # not a list of pieces: a client may send one byte at a time
        self._skipping = False
        self._first = True

    def feed(self, data: bytes) -> Iterable[bytes | LineTooLong]:
        """The lines that `data` completes, stripped of white space; blank lines are dropped. All
        of them have to be taken before more is fed."""
        if (
            data.find(b"\n") != len(data) - 1
            or self._held
            or self._first
            or self._skipping
            or len(data) > self._limit
        ):
            return self._lines(data)
        line = data[:-1].strip(b" \t\r")  # one that came whole and alone, as most do
        return (line,) if line else ()

    def _lines(self, data: bytes) -> Iterator[bytes | LineTooLong]:
        *pieces, rest = data.split(b"\n")
        for piece in pieces:
            if self._held or self._first or self._skipping or len(piece) > self._limit:
                yield from self._add(piece)
                line = self.finish()
            else:
                line = piece.strip(b" \t\r") or None  # a line that came whole, as most do
            if line is not None:
                yield line
        if rest:
            yield from self._add(rest)

    def finish(self) -> bytes | LineTooLong | None:
        """What came after the last LF."""
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
    """Decode one line; half of a surrogate pair in it becomes U+FFFD. Raises CommandError:
    `parse_error`: it is not JSON; `invalid_params`: it is, of another shape."""
    try:
        check_nesting(line)
        return decode(readable(line))
    except LINE_ERRORS as error:
        raise line_error(error) from error


LINE_ERRORS = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)


def line_error(error: Exception) -> CommandError:
    """What to say when a decoder of a line raised one of LINE_ERRORS."""
    if isinstance(error, msgspec.ValidationError):
        return CommandError(f"invalid_params: {error}")
    reason = "it is nested too deeply" if isinstance(error, RecursionError) else str(error)
    return CommandError(f"parse_error: not a JSON line: {reason}", code="parse_error")


def readable(line: bytes) -> bytes:
    """The line with halves of surrogate pairs replaced, as a decoder can read it.

    Raises:
        UnicodeDecodeError: it is not UTF-8. A decoder skips fields it does not know without
            looking, and hands on raw ones; those bytes must not come back on the wire.
    """
    if not line.isascii():
        line.decode()
    return whole_escapes(line) if b"\\u" in line else line


def check_numbers(line: bytes) -> None:
    """Refuse a number that no Python integer can hold, also in a field that nobody reads. Raises
    msgspec.ValidationError: there is one."""
    if len(line) < LONGEST_NUMBER:
        return
    # A look at every 400th byte is enough to know that there is no such run, and much quicker.
    # A run is looked at from its start only: from each of its digits, it would cost their square.
    if re.search(rb"[0-9]{10}", line[::400]) and re.search(_LONG_NUMBER, line):
        msgspec.json.decode(line)  # says "out of range", unless the digits are inside a string


def encode_line(value: Any) -> bytes:
    """One object as one line that no reader can split wrongly; half a character becomes U+FFFD."""
    try:  # as encode_json, in one step less for each delta
        data = plain_json(value)
    except (ValueError, OverflowError):
        data = encode_json(value)
    return (data if data.isascii() else escaped(data)) + b"\n"


def write_all(fd: int, data: bytes) -> None:
    """Write every byte, also to a pipe that somebody set to non-blocking."""
    view = memoryview(data)
    while view:
        try:
            view = view[os.write(fd, view) :]
        except BlockingIOError:
            ready(writing=(fd,))


def poke(fd: int) -> None:
    """Wake whoever waits for the other end of a pipe."""
    try:
        os.write(fd, b"\0")
    except OSError:
        pass  # it is full of reasons to wake up, or the end has come


def ready(
    *reading: int, writing: Collection[int] = (), timeout: float | None = None
) -> Collection[int]:
    """Wait for one of the descriptors, up to `timeout` seconds; those that can be used, or failed.

    Not by select(), which takes no descriptors above 1023.
    """
    poll = select.poll()
    for fd in reading:
        poll.register(fd, select.POLLIN)
    for fd in writing:
        poll.register(fd, select.POLLOUT)
    events = poll.poll(None if timeout is None else max(0.0, timeout) * 1000)
    if sys.platform == "darwin" and any(flags & select.POLLNVAL for _, flags in events):
        return sum(select.select(reading, writing, (), timeout), [])  # it cannot poll a terminal
    return {fd for fd, _ in events}
