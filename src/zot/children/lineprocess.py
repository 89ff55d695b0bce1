"""A running program as a source and a sink of lines. Never blocks its caller.

One thread reads lines, one writes them, one copies stderr into the log. Lines are not interpreted
here.
"""

from __future__ import annotations

import os
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator

from zot.children.logfile import MIB, LogFile
from zot.children.process import ChildProcess
from zot.lines import LineSplitter, LineTooLong, ready
from zot.text import Frozen

CHUNK = 65_536
MAX_PIPE = 1024 * 1024
"""Maximum bytes read from a pipe after the program's end: more than a pipe holds."""
BAD_LINES = 100
"""Maximum number of invalid lines; one more and the program is stopped."""
QUEUE_LINES = 256
"""Maximum number of lines queued for the program; see also LineLimits.queue_bytes."""
LAST_WORDS = 2_000
"""Bytes of stderr that are kept for an error message."""


class LineLimits(Frozen):
    """Times in seconds, sizes in bytes."""

    terminate: float = 1.0
    line: int = 4 * MIB
    queue_bytes: int = 16 * MIB
    """Maximum of unread input queued for the program; beyond it, the program is stopped."""
    frames_per_second: float = 5_000
    log_bytes: int = 5 * MIB
    """Size beyond which a log is renamed to `.log.1`."""


class Bucket:
    """A rate limit: `burst` at once, then `rate` a second. Owned by one thread."""

    def __init__(self, rate: float, burst: float) -> None:
        self._rate = rate
        self._burst = burst
        self._tokens = burst
        self._at = time.monotonic()

    def take(self) -> float:
        """Take one token and return 0, or return the seconds until one is available."""
        now = time.monotonic()
        self._tokens = min(self._burst, self._tokens + (now - self._at) * self._rate)
        self._at = now
        if self._tokens >= 1:
            self._tokens -= 1
            return 0.0
        return (1 - self._tokens) / self._rate


class LineProcess:
    """One process of a program, from start to end."""

    def __init__(
        self,
        name: str,
        process: ChildProcess,
        log: LogFile,
        limits: LineLimits,
        *,
        on_line: Callable[[bytes | LineTooLong], bool],
        on_end: Callable[[str], None],
    ) -> None:
        """`on_line` returns whether the line was valid. The reading thread calls it and `on_end`;
        `on_end` once, as the last."""
        self.name = name
        self.process = process
        self._log = log
        self._limits = limits
        self._on_line = on_line
        self._on_end = on_end
        self._lock = threading.Lock()
        self._wake = threading.Condition(self._lock)
        self._queue: deque[bytes] = deque()
        self._queued_bytes = 0
        self._finishing = False
        self._failed: str | None = None
        self.ended = threading.Event()
        self.last_words = b""
        """The last bytes written to stderr."""
        # Closing the write end wakes every thread that waits for the child's pipes.
        self._stop_read, self._stop_write = os.pipe()
        self._threads = [
            threading.Thread(target=target, name=f"{name}-{job}", daemon=True)
            for job, target in (
                ("read", self._read),
                ("write", self._write),
                ("log", self._copy_stderr),
            )
        ]

    def start(self) -> None:
        for thread in reversed(self._threads):  # the reader last: at the end it joins the others
            thread.start()

    def send_line(self, line: bytes) -> bool:
        """Queue a line for the program; return False if it no longer reads."""
        with self._lock:
            if self._finishing or self._failed is not None:
                return False
            if len(line) > self._limits.line:
                self._log.note(f"a frame of {len(line)} bytes was not sent: over the line limit")
                return False
            full = (
                len(self._queue) >= QUEUE_LINES
                or self._queued_bytes + len(line) > self._limits.queue_bytes
            )
            if not full:
                self._queue.append(line)
                self._queued_bytes += len(line)
                self._wake.notify()
                return True
        self.fail("stopped reading its stdin")
        return False

    @property
    def was_failed(self) -> bool:
        """Whether zot itself ended the program because it misbehaved."""
        return self._failed is not None

    def fail(self, reason: str) -> None:
        """End the program now, for a reason the user will read."""
        with self._lock:
            if self._failed is None:
                self._failed = reason
            self._wake.notify()
        self.process.kill()

    # --- the end -----------------------------------------------------------------------------

    def ask_to_stop(self, last: bytes = b"") -> None:
        """Send a last line, then close the program's stdin. Nothing can be sent afterwards."""
        with self._lock:
            if self._finishing or self._failed is not None:
                return
            if last:
                self._queue.append(last)
            self._finishing = True
            self._wake.notify()

    def close(self) -> None:
        """Kill the process if it still runs, and wait for the threads."""
        self.process.kill()
        self._stop()
        for thread in self._threads:
            if thread is not threading.current_thread() and thread.ident is not None:
                thread.join(5)

    def _stop(self) -> None:
        with self._lock:
            if self._stop_write >= 0:
                os.close(self._stop_write)
                self._stop_write = -1
            self._finishing = True
            self._wake.notify()

    # --- the three threads -------------------------------------------------------------------

    def _read(self) -> None:
        try:
            self._read_frames()
        finally:
            reason = self._end_process()
            self._stop()
            for thread in self._threads[1:]:
                thread.join()
            self.process.close()
            os.close(self.process.stdout)
            os.close(self._stop_read)
            self.ended.set()
            self._on_end(reason)

    def _read_frames(self) -> None:
        lines = LineSplitter(self._limits.line, at_once=True)
        rate = Bucket(self._limits.frames_per_second, self._limits.frames_per_second)
        bad = 0
        for chunk in self._chunks(self.process.stdout):
            for line in lines.feed(chunk):
                if isinstance(line, LineTooLong):
                    self._log.note(f"a line over {self._limits.line} bytes was dropped")
                bad += not self._on_line(line)
                if bad > BAD_LINES:
                    self.fail(f"more than {BAD_LINES} lines were no frames")
                if self._failed is not None:
                    return
                # Rate limit by back-pressure: the pipe fills, and the program blocks.
                while (wait := rate.take()) > 0:
                    if self.pause(wait):
                        return

    def pause(self, seconds: float) -> bool:
        """Sleep in the reading thread; True if the peer was stopped meanwhile."""
        return bool(ready(self._stop_read, timeout=seconds))

    def _write(self) -> None:
        try:
            while (line := self._next_line()) is not None:
                if not self._write_line(line):
                    return
        except OSError:
            pass  # it closed its stdin; the reading thread learns how it ended
        finally:
            with self._lock:
                self._finishing = True
            os.close(self.process.stdin)

    def _next_line(self) -> bytes | None:
        with self._lock:
            while not self._queue:
                if self._finishing or self._failed is not None:
                    return None
                self._wake.wait()
            line = self._queue.popleft()
            self._queued_bytes -= len(line)
            return line

    def _write_line(self, line: bytes) -> bool:
        view = memoryview(line)
        while view:
            if self._stop_read in ready(self._stop_read, writing=(self.process.stdin,)):
                return False
            try:
                view = view[os.write(self.process.stdin, view) :]
            except BlockingIOError:  # less room than one atomic write needs
                if self.pause(0.01):
                    return False
        return True

    def _copy_stderr(self) -> None:
        rate = Bucket(100, 100)
        for chunk in self._chunks(self.process.stderr):
            self._copy(chunk)
            if (wait := rate.take()) > 0:
                self.pause(wait)
        # The message of a crash may still be in the pipe, and it matters most.
        if self.process.stderr in ready(self.process.stderr, timeout=0):
            self._copy(os.read(self.process.stderr, CHUNK))
        os.close(self.process.stderr)

    def _copy(self, chunk: bytes) -> None:
        self.last_words = (self.last_words + chunk)[-LAST_WORDS:]
        self._log.write(chunk)

    def _chunks(self, fd: int) -> Iterator[bytes]:
        """Yield the data of a pipe until its end or until all processes of the program are gone."""
        control = self.process.control
        while self._stop_read not in (usable := ready(self._stop_read, fd, control)):
            if control in usable and self.process.is_gone():
                yield from _rest(fd)
                return
            if fd in usable:
                chunk = os.read(fd, CHUNK)
                if not chunk:
                    return
                yield chunk

    def _end_process(self) -> str:
        """End the process, which closed its stdout or was stopped; return the reason of its end."""
        code = self.process.wait(self._limits.terminate if not self._failed else 0)
        if code is None:
            self.fail("closed its stdout")
            code = self.process.wait(5)
        error = self.process.start_error
        if error is not None:
            return f"cannot be started: {error}"
        if self._failed is not None:
            return self._failed
        if code is None:
            return "could not be ended"
        if code < 0:
            return f"was ended by signal {-code}"
        return f"exited with code {code}"


def _rest(fd: int) -> Iterator[bytes]:
    """Yield the remaining data of a pipe without waiting for its end: an escaped process may hold
    it open."""
    os.set_blocking(fd, False)
    try:
        for _ in range(MAX_PIPE // CHUNK):
            chunk = os.read(fd, CHUNK)
            if not chunk:
                return
            yield chunk
    except BlockingIOError:
        return
