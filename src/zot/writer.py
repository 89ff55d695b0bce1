"""Writes lines to a client in order, without blocking the caller. Lines are not interpreted here.

The caller writes a line itself if nothing is queued and the pipe has room for it, unless the line
is one of a fast stream; otherwise a thread writes it, in one go with all that is queued. Waking the
thread for every line would make a prompt of one delta take a third longer; a system call for every
delta would halve the speed of a fast stream.
"""

from __future__ import annotations

import os
import select
import stat
import threading
import time
from collections import deque
from collections.abc import Callable

from zot.cancel import Cancel
from zot.lines import write_all

BUFFER_LIMIT = 8 * 1024 * 1024
"""Bytes queued for a slow client at which the turn is slowed down."""
MIN_SHARE = 16 * 1024
"""Minimum buffer per lane, in bytes."""
OVERFULL = 4 * BUFFER_LIMIT
"""Queued bytes at which no more commands are answered."""
TURN = 64 * 1024
"""Bytes that one lane writes before the next lane."""
STREAM_GAP = 0.001
"""Seconds; streamed lines that come faster are gathered."""


class Lane:
    """The lines of one agent. Lanes are written in turn, so one that floods delays no other."""

    def __init__(self, writer: LineWriter) -> None:
        self._writer = writer
        self.waiting: deque[bytes] = deque()
        self.size = 0
        """Bytes queued or being written."""

    def put(self, line: bytes, *, streamed: bool = True) -> None:
        self._writer.put(line, self, streamed=streamed)

    def wait(self, cancel: Cancel) -> None:
        """Return when this lane has room, or at once when the turn is aborted."""
        self._writer.wait(cancel, self)

    def take(self, limit: float) -> bytes:
        """Remove and return the lines of one turn: `limit` bytes, or one line that is longer."""
        lines: list[bytes] = []
        while self.waiting and limit > 0:
            lines.append(self.waiting.popleft())
            limit -= len(lines[-1])
        return b"".join(lines)


class LineWriter:
    """A bounded queue of lines and the thread that writes them.

    `put` never blocks; a turn calls `wait`, which pauses it while the client does not read. `gone`
    is called once, when the client is gone. A client that sends requests and never reads makes the
    writer `overfull`; `drained` is called when that is over.
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
        self._lock = threading.RLock()
        self._changed = threading.Condition(self._lock)
        """Notified when lines were queued or written, and at the end."""
        self._main = Lane(self)
        self._lanes = [self._main]
        self._ready: list[Lane] = []
        """Lanes with waiting lines, in the order of their turns."""
        self._size = 0
        """Bytes queued or being written."""
        self.overfull = False
        """Whether so much is queued that no more commands should be answered."""
        self._closed = False
        self.failure: OSError | None = None
        """The error after which nothing can be written any more."""
        self._thread: threading.Thread | None = None
        self._streamed_at = 0.0
        """Time of the last streamed line."""
        self._room = select.poll()
        """Tells whether the pipe has room; empty if it is no pipe: then only the thread writes."""
        if is_pipe(fd):
            self._room.register(fd, select.POLLOUT)

    def put(self, line: bytes, lane: Lane | None = None, *, streamed: bool = True) -> None:
        """Write or queue the line. `streamed`: it may be one of many that come at once."""
        with self._lock:
            if self._closed or (not self._size and self._write_directly(line, streamed)):
                return
            lane = lane or self._main
            was_idle = not self._ready
            if not lane.waiting:
                self._ready.append(lane)
            lane.waiting.append(line)
            lane.size += len(line)
            self._size += len(line)
            self.overfull = self._size >= OVERFULL
            if was_idle:
                self._wake_thread()

    def wait(self, cancel: Cancel, lane: Lane | None = None) -> None:
        """Return when there is room, or at once when the turn is aborted."""
        lane = lane or self._main
        if lane.size < MIN_SHARE:
            return
        with cancel.waking(self._changed), self._lock:
            while lane.size >= self._share() and not self._closed and not cancel.is_set():
                self._changed.wait()

    def open_lane(self) -> Lane:
        """Add a lane for one more agent, until `close_lane`; its last lines are still written."""
        lane = Lane(self)
        with self._lock:
            self._lanes.append(lane)
        return lane

    def close_lane(self, lane: Lane) -> None:
        with self._lock:
            self._lanes.remove(lane)
            self._changed.notify_all()

    def close(self, timeout: float) -> None:
        """Write all queued lines, for at most `timeout` seconds, and stop."""
        with self._lock:
            self._closed = True
            self._changed.notify_all()
        if self._thread is not None:
            self._thread.join(timeout)

    def _share(self) -> int:
        return max(MIN_SHARE, BUFFER_LIMIT // len(self._lanes))

    def _write_directly(self, line: bytes, streamed: bool) -> bool:
        """Write the line if that cannot block; False: queue it. The caller holds the lock."""
        if streamed:
            before, self._streamed_at = self._streamed_at, time.monotonic()
            if self._streamed_at - before < STREAM_GAP:
                return False
        if len(line) > select.PIPE_BUF or not self._room.poll(0):
            return False
        try:
            os.write(self._fd, line)  # whole: a pipe with room takes PIPE_BUF bytes at once
        except OSError:
            return False  # the thread gets the same error and reports it
        return True

    def _wake_thread(self) -> None:
        """Let the thread write; start it if necessary."""
        if self._thread is None:
            thread = threading.Thread(target=self._run, name="zot-stdout", daemon=True)
            try:
                thread.start()
            except (RuntimeError, MemoryError):  # the system has no thread left
                self._drain()
                return
            self._thread = thread
        self._changed.notify_all()

    def _run(self) -> None:
        while True:
            with self._lock:
                while not self._ready and not self._closed:
                    self._changed.wait()
                if not self._ready:
                    return
            self._drain()

    def _drain(self) -> None:
        """Write batches until the queue is empty: all of a lone lane, or one turn of each."""
        while self._ready:
            with self._lock:
                limit = TURN if len(self._lanes) > 1 else float("inf")
                batch = [(lane, lane.take(limit)) for lane in self._ready]
                self._ready = [lane for lane in self._ready if lane.waiting]
            try:
                write_all(self._fd, b"".join([data for _, data in batch]))
            except OSError as error:
                self._fail(error)
                return
            self._forget(batch)

    def _forget(self, batch: list[tuple[Lane, bytes]]) -> None:
        """Count the batch as written."""
        with self._lock:
            for lane, data in batch:
                lane.size -= len(data)
                self._size -= len(data)
            was_overfull, self.overfull = self.overfull, self._size >= OVERFULL
            self._changed.notify_all()
        if was_overfull and not self.overfull:
            self._drained()

    def _fail(self, error: OSError) -> None:
        """Drop everything: the client is gone, or the file is full."""
        with self._lock:
            self.failure = error
            self._closed = True
            self._ready.clear()
            for lane in self._lanes:
                lane.waiting.clear()
                lane.size = 0
            self._size, self.overfull = 0, False
            self._changed.notify_all()
        self._gone()


def is_pipe(fd: int) -> bool:
    try:
        return stat.S_ISFIFO(os.fstat(fd).st_mode)
    except OSError:
        return False
