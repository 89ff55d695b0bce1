"""The frames of a durable session in a file beside it, each with its `seq`: what a client missed
it reads there, and others can follow. Knows lines and numbers, not what a frame says.

One line a frame, in order, with a checksum at its end: a damaged one is left out. A full file is
kept once, as `.1`; what is older is gone, and a head in each file says up to which number. Every
process begins with a head of its own: so one that lost the session to it, and does not know yet,
notices and adds nothing more.
"""

from __future__ import annotations

import binascii
import os
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from msgspec import UNSET, MsgspecError
from msgspec.json import decode

from zot.bugs import warn_once
from zot.lines import LineCutter
from zot.text import Frozen
from zot.wire.zot import stamped

MAX_FILE = 32 * 1024 * 1024
GAP = 1000
"""Numbers left out at each start: after a power cut a client may have heard more than was kept."""
CHUNK = 64 * 1024
TICK = 0.05
"""Seconds between two looks at a file that is followed."""
_FLAGS = os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW
_SEQ = b',"seq":'
_HEAD = b'{"type":"event_log","after":'
_DONE = b'{"type":"done"'
_TYPE = b'{"type":"'
_CRC = b',"crc":"'
_CRC_LENGTH = len(b',"crc":"00000000"}\n')


class EventPage(Frozen):
    lines: list[bytes]
    last: int
    """Number of the last line here; where there is none, the number that was asked for."""
    more: bool = False
    expired: bool = False
    """Some of what was asked for is gone: these are the lines from the oldest on."""


def log_path(session: str) -> str:
    return f"{session}.events"


class EventLog:
    """What the process that holds the session writes. The caller sees to it that one thread at a
    time does."""

    def __init__(self, session: str) -> None:
        """Raises OSError when the file cannot be opened."""
        self.path = log_path(session)
        self._fd = self._opened()
        self._size = _cut_torn_end(self._fd)
        self._broken = False
        self._over = False
        """Closed, or another process writes it now."""
        last = last_seq(self._fd, self._size, self.path)
        self.seq = last + GAP if last else 0
        """Number of the last frame, kept or not."""
        try:
            self._begin(self.seq)
        except OSError:
            pass  # a full disk: said with the first frame that cannot be kept

    def append(self, line: bytes, tag: Any = UNSET) -> bytes:
        """Number a frame and keep it; the line as it was kept. A full disk costs the log, never
        the run: who asks for what is missing is told so."""
        self.seq += 1
        line = stamped(line, self.seq, tag)
        try:
            if not self._over and self._is_ours():
                if self._broken or self._size > MAX_FILE:
                    self._turn()
                self._write(_sealed(line))
        except OSError as error:
            self._broken = True
            warn_once(f"the event log {self.path!r} cannot be written: {error.strerror}")
        return line

    def number(self) -> int:
        """The number of a frame that is not kept: an answer to a command."""
        self.seq += 1
        return self.seq

    @property
    def has_frames(self) -> bool:
        """Whether anything was ever kept."""
        return any(seq_of(line) for line in _good(_backwards(self._fd, self._size), self.path))

    def last_done(self) -> dict[str, Any] | None:
        """The last `done` that was kept."""
        for line in _good(_backwards(self._fd, self._size), self.path):
            if line.startswith(_DONE):
                frame: dict[str, Any] = decode(line)
                return frame
        return None

    def close(self) -> None:
        self._over = True
        os.close(self._fd)

    def _is_ours(self) -> bool:
        """Whether nobody has begun after this process. A last line of one before it may still
        come; who reads passes over it."""
        try:
            now = os.stat(self.path)  # noqa: PTH116  once a frame: a Path costs three times as much
        except FileNotFoundError:
            now = None
        if now is None or (now.st_ino == self._inode and now.st_size < self._size):
            self._broken = True  # somebody tidied up
        elif now.st_ino != self._inode:
            self._over = True
        elif now.st_size > self._size:
            added = _lines(self._fd, self._size, now.st_size)
            self._over = any(line.startswith(_HEAD) for line in added)
            self._size = now.st_size
        return not self._over

    def _turn(self) -> None:
        """Go on in an empty file. After a failure nothing older can be relied on."""
        if self._broken:
            Path(self.path).unlink(missing_ok=True)
            Path(f"{self.path}.1").unlink(missing_ok=True)
        else:
            Path(self.path).replace(f"{self.path}.1")
        old, self._fd = self._fd, self._opened()
        os.close(old)
        self._size = 0
        self._begin(self.seq - 1)
        self._broken = False

    def _opened(self) -> int:
        fd = os.open(self.path, _FLAGS, 0o600)
        self._inode = os.fstat(fd).st_ino
        return fd

    def _begin(self, after: int) -> None:
        self._write(_sealed(_HEAD + b"%d}\n" % after))

    def _write(self, line: bytes) -> None:
        written = os.write(self._fd, line)
        if written < len(line):
            os.ftruncate(self._fd, self._size)
            raise OSError(28, "no space left on device")
        self._size += written


# --- reading ---------------------------------------------------------------------------------


def read_events(session: str, after: int, limit: int = 1000, most: int = 8 << 20) -> EventPage:
    """The frames behind a number, at most so many and so many bytes; of a session that is in use
    or not."""
    lines: list[bytes] = []
    missing = True
    oldest = last = 0
    for path in (f"{log_path(session)}.1", log_path(session)):
        try:
            fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW)
        except FileNotFoundError:
            continue
        try:
            size = os.fstat(fd).st_size
            if missing:
                oldest, missing = _head(fd, size), False
            last = max(last, last_seq(fd, size, path))
            for line in _good(_lines(fd, _offset_behind(fd, size, after), size), path):
                if seq_of(line) <= (seq_of(lines[-1]) if lines else after):
                    continue  # known, or of a process that had lost the session
                if len(lines) >= limit or most < 0:
                    return EventPage(lines, seq_of(lines[-1]), True, after < oldest)
                lines.append(line)
                most -= len(line)
        finally:
            os.close(fd)
    expired = missing or after < oldest or after > last + GAP
    return EventPage(lines, seq_of(lines[-1]) if lines else max(after, last), False, expired)


def follow_lines(session: str, after: int, wait: Callable[[], bool]) -> Iterator[bytes]:
    """The frames behind a number, and those that come, until `wait` (called when there are none
    for now) says False. A line of the type `cursor_expired` stands for what is gone."""
    seen: tuple[int, int] | None = None
    while True:
        try:
            status = Path(log_path(session)).stat()
            now = (status.st_ino, status.st_size)
        except FileNotFoundError:
            now = None
        if now == seen or now is None:
            if not wait():
                return
            continue
        page = read_events(session, after)
        if page.expired:
            yield b'{"type":"cursor_expired","from":%d}\n' % after
        yield from page.lines
        after = page.last
        if not page.more:
            seen = now


def tick() -> bool:
    time.sleep(TICK)  # nothing tells portably when a file has grown
    return True


def seq_of(line: bytes) -> int:
    """The number of a frame; 0: it has none. It stands last but for the prompt's id."""
    at = line.rfind(_SEQ)
    if at < 0:
        return 0
    digits = line[at + len(_SEQ) : at + len(_SEQ) + 20].partition(b",")[0].partition(b"}")[0]
    return int(digits) if digits.isdigit() else 0


def last_seq(fd: int, size: int, path: str) -> int:
    for line in _good(_backwards(fd, size), path):
        if seq := seq_of(line):
            return seq
        if line.startswith(_HEAD):
            return _after(line)
    return 0


def _head(fd: int, size: int) -> int:
    """Up to which number frames are not in this file."""
    for line in map(_unsealed, _lines(fd, 0, size)):
        if line is None:
            continue  # the head, perhaps: then the first frame says it
        return _after(line) if line.startswith(_HEAD) else max(0, seq_of(line) - 1)
    return 0


def _after(head: bytes) -> int:
    after = decode(head).get("after")
    return after if isinstance(after, int) else 0


# --- checksums -------------------------------------------------------------------------------


def _sealed(line: bytes) -> bytes:
    body = line[:-2]
    return b'%b%b%08x"}\n' % (body, _CRC, binascii.crc32(body))


def _unsealed(line: bytes) -> bytes | None:
    """The line without its checksum; None: it is damaged. Older files have none: there a line
    counts when it is a frame with a number, or a head."""
    end = line[-_CRC_LENGTH:]
    if end.startswith(_CRC) and end.endswith(b'"}\n'):
        body = line[:-_CRC_LENGTH]
        digits = b"%08x" % binascii.crc32(body)
        return body + b"}\n" if end[len(_CRC) : -3] == digits else None
    try:
        frame = decode(line) if line.startswith(_TYPE) else None
    except (MsgspecError, UnicodeDecodeError, RecursionError):
        return None
    if not isinstance(frame, dict):
        return None
    # Only the prompt's id may stand behind the number: anything else is a damaged checksum.
    last = [name for name in frame if name != "prompt_id"][-1]
    return line if last in ("seq", "after") and isinstance(frame[last], int) else None


def _good(lines: Iterator[bytes], path: str) -> Iterator[bytes]:
    """Those that are as they were written, without their checksums."""
    for line in lines:
        whole = _unsealed(line)
        if whole is not None:
            yield whole
        else:
            warn_once(f"the event log {path!r} has damaged lines; they are left out")


def _lines(fd: int, start: int, end: int) -> Iterator[bytes]:
    """The whole lines between two places; half a line at the end is being written."""
    lines = LineCutter()
    while start < end and (data := os.pread(fd, min(CHUNK, end - start), start)):
        start += len(data)
        for line in lines.feed(data):
            yield line + b"\n"


def _backwards(fd: int, end: int) -> Iterator[bytes]:
    """The whole lines from the last to the first."""
    pieces: list[bytes] = []  # of the line whose beginning was not read yet, the last one first
    while end > 0:
        start = max(0, end - CHUNK)
        first, *whole = os.pread(fd, end - start, start).split(b"\n")
        end = start
        for piece in reversed(whole):
            if line := b"".join((piece, *reversed(pieces))):
                yield line + b"\n"
            pieces.clear()
        pieces.append(first)
    if line := b"".join(reversed(pieces)):
        yield line + b"\n"


def _offset_behind(fd: int, size: int, after: int) -> int:
    """Where a line begins behind which all frames have higher numbers; near, not exact."""
    low, high = 0, size
    while high - low > 4 * CHUNK:
        middle = (low + high) // 2
        seq, end = _next_seq(fd, middle, high)
        if not seq:
            high = middle
        elif seq <= after:
            low = end
        else:
            high = middle
    return low


def _next_seq(fd: int, start: int, end: int) -> tuple[int, int]:
    """The number of the first whole and good frame behind a place, and where it ends; 0: none."""
    lines = _lines(fd, start, end)
    at = start + len(next(lines, b""))  # it began before
    for line in lines:
        at += len(line)
        if (whole := _unsealed(line)) is not None and (seq := seq_of(whole)):
            return seq, at
    return 0, end


def _cut_torn_end(fd: int) -> int:
    """Take half a line off the end; the size that is left."""
    size = os.fstat(fd).st_size
    while size and os.pread(fd, 1, size - 1) != b"\n":
        start = max(0, size - CHUNK)
        size = start + os.pread(fd, size - start, start).rfind(b"\n") + 1
    os.ftruncate(fd, size)
    return size
