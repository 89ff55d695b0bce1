"""The frames of a durable session in a file beside it, each with its `seq`: what a client missed
it reads there, and others can follow. Knows lines and numbers, not what a frame says.

One line a frame, in order. A full file is kept once, as `.1`; what is older is gone, and a head in
each file says up to which number. Every process begins with a head of its own: so one that lost
the session to it, and does not know yet, notices and adds nothing more.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from msgspec import UNSET
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
        last = last_seq(self._fd, self._size)
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
                self._write(line)
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
        return any(seq_of(line) for line in _backwards(self._fd, self._size))

    def last_done(self) -> dict[str, Any] | None:
        """The last `done` that was kept."""
        for line in _backwards(self._fd, self._size):
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
        self._write(_HEAD + b"%d}\n" % after)

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
                oldest, missing = _head(fd), False
            last = max(last, last_seq(fd, size))
            for line in _lines(fd, _offset_behind(fd, size, after), size):
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
    digits = line[at + len(_SEQ) : at + len(_SEQ) + 20]
    return int(digits.partition(b",")[0].partition(b"}")[0])


def last_seq(fd: int, size: int) -> int:
    for line in _backwards(fd, size):
        if seq := seq_of(line):
            return seq
        if line.startswith(_HEAD):
            return int(decode(line)["after"])
    return 0


def _head(fd: int) -> int:
    line = os.pread(fd, CHUNK, 0).partition(b"\n")[0]
    return int(decode(line)["after"]) if line.startswith(_HEAD) else 0


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
        lines = _lines(fd, middle, high)
        skipped = next(lines, None)  # it began before the middle
        line = next(lines, None) if skipped is not None else None
        if skipped is None or line is None:
            high = middle
        elif seq_of(line) <= after:
            low = middle + len(skipped) + len(line)
        else:
            high = middle
    return low


def _cut_torn_end(fd: int) -> int:
    """Take half a line off the end; the size that is left."""
    size = os.fstat(fd).st_size
    while size and os.pread(fd, 1, size - 1) != b"\n":
        start = max(0, size - CHUNK)
        size = start + os.pread(fd, size - start, start).rfind(b"\n") + 1
    os.ftruncate(fd, size)
    return size
