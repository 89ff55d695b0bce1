"""Framing: bytes to lines and objects to lines. It knows nothing of what a line means."""

from __future__ import annotations

import errno
import os
import re
import select
import stat
import sys
import threading
import time
from collections import deque
from collections.abc import Callable, Collection, Iterable, Iterator
from typing import Any

import msgspec

from zot.cancel import Cancel
from zot.errors import CommandError
from zot.text import encode_json, escaped, plain_json, whole_escapes

if sys.platform != "win32":
    import fcntl
    import termios

MAX_LINE = 16 * 1024 * 1024
BUFFER_LIMIT = 8 * 1024 * 1024
"""Bytes that may wait for a client that does not read, before the turn is slowed down."""
LEAST_SHARE = 16 * 1024
"""Of them, what each of many writers may have waiting at the very least."""
FEW = 8
"""Writers up to which one may write itself: of many, each would keep the others waiting."""
GATHER = 0.002
"""Seconds in which the lines of many writers gather, to be written in one go."""
AT_A_TURN = 64 * 1024
"""Bytes that one of several writers has written before the next one's turn comes."""
OVERFULL = 4 * BUFFER_LIMIT
AT_ONCE = 16
"""Lines that may come at once before those that follow are written together."""
MOST_LATER = 16
"""Lines that may wait to be made."""
SMALL = 1024
"""Bytes of a line that may be written beyond that, to a client that waits for it."""
REFILL = 0.0005
"""Seconds after which one more line may."""
LONGEST_NUMBER = 4300
"""Digits; Python refuses to turn longer ones into an integer."""

UNKNOWN_WORD = (errno.EOPNOTSUPP, errno.EINVAL, errno.ESPIPE, errno.ENOSYS, errno.EPERM)
"""What a system says, or a filter in front of it, that cannot be told to write and not to wait."""

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


class Lane:
    """The lines of one of several writers that share a LineWriter: each keeps its own order, they
    are written in turn, and one that floods fills its own share of the buffer only."""

    def __init__(self, writer: LineWriter) -> None:
        self._writer = writer
        self.waiting: deque[bytes] = deque()
        self.size = 0
        """Bytes that wait or are being written."""

    def put(self, data: bytes, *, held: bool = False) -> None:
        """Nothing is held of one of several writers: the others would be kept waiting with it."""
        self._writer.put(data, self)

    def put_later(self, make: Callable[[], bytes]) -> None:
        self._writer.put(make(), self)

    def wait(self, cancel: Cancel) -> None:
        """As LineWriter.wait, for this share."""
        self._writer.wait(cancel, self)

    def take(self) -> list[bytes]:
        """The lines of one turn; at least one."""
        lines, size = [], 0
        while self.waiting and size < AT_A_TURN:
            lines.append(self.waiting.popleft())
            size += len(lines[-1])
        return lines


class LineWriter:
    """Writes lines in the order in which they are put. `put` never blocks; a turn asks `wait`.

    A line into a pipe with room is written by whoever has it, which saves waking a thread. When
    the pipe is full or many lines come at once, a thread writes all that waits in one go; also the
    rest of a line that is larger than the room.

    Whoever has more to say at once lets a line be `held`: it is written with the next one that is
    not, or by `flush`. Each write wakes the client, who would be busy with a part of the news. Who
    has something more urgent to do first lets it be made then, too: `put_later`.

    A client that stops reading fills the buffer: the turn then pauses, commands are still read
    and answered. A client that is gone calls `gone`, once. Answers to a client that only asks
    and never reads make it `overfull`; `drained` is called when that is over.
    """

    def __init__(
        self,
        fd: int,
        gone: Callable[[], None] = lambda: None,
        drained: Callable[[], None] = lambda: None,
    ) -> None:
        self._fd = fd
        self._gone = gone
        self._drained = drained
        self._lock = threading.Lock()
        self._room: threading.Condition | None = None
        """Once somebody waited for some."""
        self._own = Lane(self)
        self._lanes = [self._own]
        self._direct = True
        self._busy: list[Lane] = []
        """Those with lines that wait, in the order of their turns."""
        self._size = 0
        self.overfull = False
        """So much waits that no more commands should be answered."""
        self._closed = False
        self.failure: OSError | None = None
        """Why nothing can be written any more."""
        # A lock as a doorbell: the thread sleeps on it, and is rung only when it sleeps.
        self._doorbell = threading.Lock()
        self._doorbell.acquire()
        self._asleep = True
        self._thread: threading.Thread | None = None
        self._held: list[bytes | Callable[[], bytes]] = []
        self._held_size = 0
        self._credit = float(AT_ONCE)
        self._last_put = 0.0
        self._at_once: int = getattr(os, "RWF_NOWAIT", 0)
        """Tells the system to write what it can now, and not to wait; 0: it does not know the
        word."""
        self._space: select.poll | None = None
        if is_pipe(fd):
            self._space = select.poll()
            self._space.register(fd, select.POLLOUT)
        else:
            self._start()  # nothing can be written without it

    def put(self, data: bytes, lane: Lane | None = None, *, held: bool = False) -> None:
        with self._lock:
            if self._closed:
                return
            if (
                held
                and self._direct
                and self._asleep
                and self._held_size + len(data) <= select.PIPE_BUF
            ):
                self._held.append(data)
                self._held_size += len(data)
                return
            if self._held:
                waiting = self._held[0]
                if len(self._held) > 1 or not isinstance(waiting, bytes):
                    waiting = b"".join(self._made())
                self._held, self._held_size = [], 0
                if lane is None:
                    data = waiting + data
                elif rest := self._write_now(waiting):
                    self._queue(rest, self._own)
            if rest := self._write_now(data):
                self._queue(rest, lane or self._own)
            if not self._busy:
                return
            alone = self._asleep and not self._ring()
        if alone:
            self._write_alone()

    def put_later(self, make: Callable[[], bytes]) -> None:
        """Hold what `make` gives; it is called when that is written, and must not raise."""
        with self._lock:
            if not self._closed and self._direct and self._asleep and len(self._held) < MOST_LATER:
                self._held.append(make)
                return
        self.put(make(), held=True)

    def _queue(self, data: bytes, lane: Lane) -> None:
        if not lane.waiting:
            self._busy.append(lane)
        lane.waiting.append(data)
        lane.size += len(data)
        self._size += len(data)
        self.overfull = self._size >= OVERFULL

    def flush(self, *, soon: bool = False) -> None:
        """Write what is held; or, where that is done `soon`, only make what is not made yet."""
        if not self._held:
            return
        if not soon:
            self.put(b"")
            return
        with self._lock:
            self._held = [*self._made()]

    def _made(self) -> list[bytes]:
        """What is held, as lines; the lock is held, too."""
        return [line if isinstance(line, bytes) else line() for line in self._held]

    def open_lane(self) -> Lane:
        """For one more writer, until `close_lane`; what waits then is written all the same."""
        lane = Lane(self)
        with self._lock:
            self._lanes.append(lane)
            self._direct = len(self._lanes) <= FEW
        return lane

    def close_lane(self, lane: Lane) -> None:
        with self._lock:
            self._lanes.remove(lane)
            self._direct = len(self._lanes) <= FEW
            self._tell_of_room()

    def wait(self, cancel: Cancel, lane: Lane | None = None) -> None:
        """Return when there is room, or at once when the turn is aborted."""
        lane = lane or self._own
        if lane.size < LEAST_SHARE or lane.size < self._share():
            return
        with self._lock:
            room = self._room = self._room or threading.Condition(self._lock)
        with cancel.waking(room), room:
            while lane.size >= self._share() and not self._closed and not cancel.is_set():
                room.wait()

    def _tell_of_room(self) -> None:
        """To those who wait for it; the lock is held."""
        if self._room is not None:
            self._room.notify_all()

    def _share(self) -> int:
        return max(LEAST_SHARE, BUFFER_LIMIT // len(self._lanes))

    def close(self, timeout: float) -> None:
        """Write what waits, for at most `timeout` seconds, and stop."""
        self.flush()
        with self._lock:
            self._closed = True
            if self._asleep and (self._busy or self._thread):
                self._ring()
            self._tell_of_room()
        if self._thread is not None:
            self._thread.join(timeout)

    def _write_now(self, data: bytes) -> bytes:
        """Write what can be written at once, without the thread; what is left to it."""
        if not self._direct or not self._asleep or self._busy or self._space is None:
            return data
        now = time.monotonic()
        credit = self._credit + (now - self._last_put) / REFILL
        self._last_put = now
        if credit < 1 and (len(data) > SMALL or not self._is_read()):
            self._credit = 0.0
            return data
        self._credit = max(0.0, (credit if credit < AT_ONCE else AT_ONCE) - 1)
        try:
            if self._at_once:
                return data[os.pwritev(self._fd, (data,), -1, self._at_once) :]
            # So much a pipe with room takes whole, without blocking.
            if len(data) <= select.PIPE_BUF and self._space.poll(0):
                return data[os.write(self._fd, data) :]
        except BlockingIOError:
            pass
        except OSError as error:
            if self._at_once and error.errno in UNKNOWN_WORD:
                self._at_once = 0  # an older system: it is asked first
                return self._write_now(data)
            # Whatever else it is, the thread will meet it too, and tell.
        return data

    def _is_read(self) -> bool:
        """Whether the client has read all there is: it asks one thing after the other."""
        unread = bytearray(4)
        try:
            fcntl.ioctl(self._fd, termios.FIONREAD, unread)
        except OSError:
            return False
        return not any(unread)

    def _ring(self) -> bool:
        """Wake the thread, or start it; False: the system has no thread left."""
        if self._thread is not None:
            self._asleep = False
            self._doorbell.release()
            return True
        try:
            self._start()
        except (RuntimeError, MemoryError):
            return False
        return True

    def _start(self) -> None:
        thread = threading.Thread(target=self._write, name="zot-stdout", daemon=True)
        self._asleep = False
        thread.start()
        self._thread = thread

    def _write(self) -> None:
        while (batch := self._next()) is not None and self._write_batch(batch):
            pass

    def _write_alone(self) -> None:
        """Be the thread until nothing waits."""
        while True:
            with self._lock:
                if not self._busy:
                    self._asleep = True
                    return
                batch = self._batch()
            if not self._write_batch(batch):
                return

    def _write_batch(self, batch: list[tuple[Lane, Collection[bytes]]]) -> bool:
        data = b"".join([line for _, lines in batch for line in lines])
        try:
            write_all(self._fd, data)
        except OSError as error:
            self.failure = error
            self._drop_everything()
            return False
        with self._lock:
            before = self.overfull
            self._size -= len(data)
            self.overfull = self._size >= OVERFULL
            for lane, lines in batch:
                lane.size -= sum(map(len, lines))
            drained = before and not self.overfull
            self._tell_of_room()
        if drained:
            self._drained()
        return True

    def _next(self) -> list[tuple[Lane, Collection[bytes]]] | None:
        """What is to be written next, as soon as something waits; None after the end."""
        if not self._direct and not self._closed:
            time.sleep(GATHER)  # of many writers, others have something to say too
        while True:
            with self._lock:
                if self._busy:
                    return self._batch()
                if self._closed:
                    return None
                self._asleep = True
            self._doorbell.acquire()

    def _batch(self) -> list[tuple[Lane, Collection[bytes]]]:
        """All that waits of a lone writer; of several, what each has for one turn."""
        if len(self._lanes) == 1 and self._busy == [self._own]:
            lines, self._own.waiting = self._own.waiting, deque()
            self._busy.clear()
            return [(self._own, lines)]
        batch: list[tuple[Lane, Collection[bytes]]] = [(lane, lane.take()) for lane in self._busy]
        self._busy = [lane for lane in self._busy if lane.waiting]
        return batch

    def _drop_everything(self) -> None:
        with self._lock:
            self._closed = True
            self._busy.clear()
            for lane in self._lanes:
                lane.waiting.clear()
                lane.size = 0
            self._size, self.overfull = 0, False
            self._tell_of_room()
        self._gone()


def is_pipe(fd: int) -> bool:
    try:
        return stat.S_ISFIFO(os.fstat(fd).st_mode)
    except OSError:
        return False


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
