"""The event log: the frames of a durable session, in a file beside it, each with its `seq`. Clients
read there what they missed, and other processes can follow it.

One line per frame, in order, with a checksum at its end; damaged lines are skipped. A full file is
rotated to `.1` and the `.1` before it is lost; a head line in each file has the last lost number.
Every process begins by writing a head, so that a process that lost the session to it without
knowing notices the head and stops writing.
"""

from __future__ import annotations

import binascii
import os
import time
from collections.abc import Callable, Iterator, Set
from pathlib import Path
from typing import TYPE_CHECKING, Any

from msgspec import UNSET, MsgspecError
from msgspec.json import decode
from msgspec.structs import replace

from zot.bugs import warn_once
from zot.core import events
from zot.core.events import Event, UsageReport
from zot.errors import SessionError
from zot.lines import LineCutter, encode_line
from zot.sessions.files import FileStore
from zot.text import Frozen
from zot.wire import encode, shapes
from zot.wire.frames import EventFrame, Response, Unknown, parse_frame
from zot.wire.zot import FEATURES, stamped

if TYPE_CHECKING:
    from zot.runtime.runtime import Runtime

MAX_FILE = 32 * 1024 * 1024
GAP = 1000
"""Numbers skipped at each start: before a power cut a client may have received unsaved frames."""
CHUNK = 64 * 1024
TICK = 0.05
"""Polling interval of a followed file, in seconds."""
_FLAGS = os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW
_SEQ = b',"seq":'
_HEAD = b'{"type":"event_log","after":'
_DONE = b'{"type":"done"'
_TYPE = b'{"type":"'
_CRC = b',"crc":"'
_CRC_LENGTH = len(b',"crc":"00000000"}\n')
_ALL = frozenset(FEATURES)
_STORED = _ALL - {"costs"}
"""Features of a stored `usage`: clients without `costs` read it back, too."""
_FEATURE_OF = {kind.__struct_config__.tag: feature for kind, feature in encode.FEATURES.values()}


class EventPage(Frozen):
    lines: list[bytes]
    last: int
    """Number of the last line read; without lines, where the next read continues."""
    more: bool = False
    expired: bool = False
    """Some requested frames are lost: the lines start at the oldest one left."""


def log_path(session: str) -> str:
    return f"{session}.events"


def open_log(runtime: Runtime) -> EventLog:
    """Open the log of a durable runtime. Raises SessionError: it cannot be written."""
    store = runtime.session.store
    assert isinstance(store, FileStore)  # a durable runtime has one
    try:
        return EventLog(store.path)
    except OSError as error:
        raise SessionError(
            f"cannot write the event log of {store.path!r}: {error.strerror}"
        ) from error


class EventLog:
    """Writer of the log, in the process that holds the session. Not thread-safe: the caller must
    serialize calls, which also keeps log and wire in the same order."""

    def __init__(self, session: str) -> None:
        """Open the log. Raises OSError when the file cannot be opened."""
        self._session = session
        self.path = log_path(session)
        self._fd = self._opened()
        self._size = _cut_torn_end(self._fd)
        self._broken = False
        self._over = False
        """The log was closed, or another process has taken it over."""
        last = last_seq(self._fd, self._size, self.path)
        self.seq = last + GAP if last else 0
        """Number of the last frame, stored or not."""
        try:
            self._begin(self.seq)
        except OSError:
            pass  # a full disk: reported with the first frame that cannot be stored

    def record(
        self, event: Event, shown: EventFrame | None, features: Set[str], tag: Any
    ) -> bytes | None:
        """Store the event as a frame with all features. Return the line for this client, whose
        frame is `shown`; None: it gets none."""
        full = encode.frame(event, _STORED if isinstance(event, UsageReport) else _ALL)
        if full is None:
            return None
        line = self.append(encode_line(full), tag)
        if shown is None:
            return None
        if "seq" not in features:
            return encode_line(shown)
        return line if shown == full else stamped(encode_line(shown), self.seq, tag)

    def append(self, line: bytes, tag: Any = UNSET) -> bytes:
        """Number and store a frame; return the numbered line. A full disk breaks the log, never
        the run: readers of missing frames get `expired`."""
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
        """Return the number for a frame that is not stored: the response to a command."""
        self.seq += 1
        return self.seq

    def missed_end(self, runtime: Runtime) -> events.Done | None:
        """Return the end of the last run if the process was killed before it could report it."""
        ended = None if runtime.runs.durable is None else runtime.runs.durable.last_ended()
        if ended is None:
            return None
        end, has_frames = events.Done(ended.stop, ended.run), False
        for line in _good(_backwards(self._fd, self._size), self.path):
            if line.startswith(_DONE):
                return None if decode(line).get("run") == ended.run else end
            has_frames = has_frames or seq_of(line) > 0
        return end if has_frames else None

    def read(self, features: Set[str], after: int, limit: int) -> EventPage:
        """Return the frames after a number that a client with these features receives."""
        page = read_events(self._session, after, limit)
        return replace(page, lines=[line for line in page.lines if _is_for(line, features)])

    def close(self) -> None:
        self._over = True
        os.close(self._fd)

    def _is_ours(self) -> bool:
        """Return False once another process has taken the log over. An earlier process may still
        add one last line; readers skip it."""
        try:
            now = os.stat(self.path)  # noqa: PTH116  once a frame: a Path costs three times as much
        except FileNotFoundError:
            now = None
        if now is None or (now.st_ino == self._inode and now.st_size < self._size):
            self._broken = True  # the file was deleted or truncated
        elif now.st_ino != self._inode:
            self._over = True
        elif now.st_size > self._size:
            added = _lines(self._fd, self._size, now.st_size)
            self._over = any(line.startswith(_HEAD) for line in added)
            self._size = now.st_size
        return not self._over

    def _turn(self) -> None:
        """Rotate to an empty file; after a failure, delete the old files, which have gaps."""
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


def _is_for(line: bytes, features: Set[str]) -> bool:
    """Return whether a client with these features receives this line."""
    kind = line[len(_TYPE) : line.index(b'"', len(_TYPE))].decode()
    feature = _FEATURE_OF.get(kind)
    return kind != "event_log" and (feature is None or feature in features)


def events_read(
    page: EventPage, runtime: Runtime, state: Callable[[], shapes.State], make: Callable[..., Any]
) -> shapes.EventsRead:
    """Return the response to `events`, each line converted by `make`. Where frames were lost, add
    a snapshot from which the client can continue."""
    snapshot: Any = UNSET
    if page.expired:
        running = runtime.runs.running
        snapshot = shapes.Snapshot(state(), "" if running is None else running.id)
    lines = tuple(make(line[:-1]) for line in page.lines)
    return shapes.EventsRead(lines, page.last, page.more, page.expired, snapshot)


def read_events(session: str, after: int, limit: int = 1000, most: int = 8 << 20) -> EventPage:
    """Return the frames after a number: at most `limit` frames, and about `most` bytes. The
    session may be in use."""
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
                    continue  # already read, or from a process that had lost the session
                if len(lines) >= limit or most < 0:
                    return EventPage(lines, seq_of(lines[-1]), True, after < oldest)
                lines.append(line)
                most -= len(line)
        finally:
            os.close(fd)
    expired = missing or after < oldest or after > last + GAP
    return EventPage(lines, seq_of(lines[-1]) if lines else max(after, last), False, expired)


def follow_lines(session: str, after: int, wait: Callable[[], bool]) -> Iterator[bytes]:
    """Yield the frames after a number and new ones as they come, until `wait` (called when there
    are none) returns False. A line of type `cursor_expired` stands for lost frames."""
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


class KeptEvent(Frozen):
    """An event of the event log."""

    seq: int
    """Number of the event; pass it as `after` to read the events that follow."""
    event: EventFrame | Unknown
    """`Unknown` of type `cursor_expired` when some requested events are no longer stored."""


def follow(
    session: str | os.PathLike[str],
    after: int = 0,
    *,
    once: bool = False,
    wait: Callable[[], bool] | None = None,
) -> Iterator[KeptEvent]:
    """Yield the events of a durable session after a number, and new ones as they come. Read-only;
    works in any process of this machine, while the session runs and afterwards. `once`: stop after
    the last stored event. `wait` is called when there are no events; False ends the iteration.
    """
    pause = wait or ((lambda: False) if once else tick)
    for line in follow_lines(os.fspath(session), after, pause):
        event = parse_frame(line)
        if seq := seq_of(line):
            after = seq
        if not isinstance(event, Response):
            yield KeptEvent(after, event)


def tick() -> bool:
    time.sleep(TICK)  # there is no portable notification of file growth
    return True


def seq_of(line: bytes) -> int:
    """Return a frame's number, or 0. Only the prompt's id may follow it in the line."""
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
    """Return the number before the first frame of this file."""
    for line in map(_unsealed, _lines(fd, 0, size)):
        if line is None:
            continue  # perhaps the damaged head: use the first frame instead
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
    """Return the line without its checksum; None: it is damaged. Older files have no checksums:
    there, a frame with a number or a head is valid."""
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
    # Only the prompt's id may follow the number: anything else is a damaged checksum.
    last = [name for name in frame if name != "prompt_id"][-1]
    return line if last in ("seq", "after") and isinstance(frame[last], int) else None


def _good(lines: Iterator[bytes], path: str) -> Iterator[bytes]:
    """Yield the undamaged lines, without their checksums."""
    for line in lines:
        whole = _unsealed(line)
        if whole is not None:
            yield whole
        else:
            warn_once(f"the event log {path!r} has damaged lines; they are left out")


def _lines(fd: int, start: int, end: int) -> Iterator[bytes]:
    """Yield the complete lines between two offsets; a partial last line is still being written."""
    lines = LineCutter()
    while start < end and (data := os.pread(fd, min(CHUNK, end - start), start)):
        start += len(data)
        for line in lines.feed(data):
            yield line + b"\n"


def _backwards(fd: int, end: int) -> Iterator[bytes]:
    """Yield the complete lines, last one first."""
    pieces: list[bytes] = []  # parts of the line whose start is not read yet, last part first
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
    """Return the offset of a line at or shortly before the first frame numbered above `after`."""
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
    """Return number and end offset of the first undamaged frame after `start`; number 0: none."""
    lines = _lines(fd, start, end)
    at = start + len(next(lines, b""))  # may be the rest of a line begun before
    for line in lines:
        at += len(line)
        if (whole := _unsealed(line)) is not None and (seq := seq_of(whole)):
            return seq, at
    return 0, end


def _cut_torn_end(fd: int) -> int:
    """Truncate a partial last line; return the remaining size."""
    size = os.fstat(fd).st_size
    while size and os.pread(fd, 1, size - 1) != b"\n":
        start = max(0, size - CHUNK)
        size = start + os.pread(fd, size - start, start).rfind(b"\n") + 1
    os.ftruncate(fd, size)
    return size
