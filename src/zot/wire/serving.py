"""Base of all line servers: splits stdin into lines, handles signals, a lost client and shutdown;
and the standard streams of such a process: stdout carries frames only, and writing to stderr never
blocks.

Lines are not interpreted here; `serve/rpc.py` and `pi/rpc.py` do that.
"""

from __future__ import annotations

import io
import os
import select
import signal
import sys
import threading
import time
from collections.abc import Callable
from typing import TYPE_CHECKING

from zot.errors import ZotError
from zot.lines import LineSplitter, LineTooLong, poke, ready
from zot.runtime.client import RuntimeClient
from zot.text import for_terminal
from zot.writer import LineWriter

if TYPE_CHECKING:
    from zot.cancel import Cancel
    from zot.runtime.runtime import Runtime

STOP_SECONDS = 3.0
"""Timeout after a signal for the turn to stop and for the client to read, in seconds."""


SIGNALS = tuple(
    getattr(signal, f"SIG{name}")
    for name in ("TERM", "INT", "HUP", "QUIT", "USR1", "USR2", "ALRM", "VTALRM", "PROF", "XCPU")
    + ("POLL", "PWR", "STKFLT")
    if hasattr(signal, f"SIG{name}")
)
"""Signals that end the process in an orderly way: all that are fatal by default, except SIGKILL and
those for a broken process (SIGSEGV, SIGABRT)."""
PIPE_BUF = 4096
"""Bytes that a writable pipe accepts at once on every system, at least."""


class Threads:
    """Threads for commands that may wait, so that the reader of commands never does."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._started: list[threading.Thread] = []

    def start(self, name: str, work: Callable[[], None]) -> None:
        """Run the work in a thread of its own. Raises RuntimeError: the system has none left."""
        thread = threading.Thread(target=work, name=name, daemon=True)
        with self._lock:
            self._started = [thread for thread in self._started if thread.is_alive()]
            thread.start()
            self._started.append(thread)

    def working(self) -> int:
        """Return the number of threads that have not ended."""
        with self._lock:
            return sum(thread.is_alive() for thread in self._started)

    def join(self, seconds: float | None = None) -> None:
        """Wait for the threads, for each of them at most `seconds`."""
        with self._lock:
            started = list(self._started)
        for thread in started:
            thread.join(seconds)


class ClientRefused(Exception):
    """The client was refused; the process ends."""


class LineServer(RuntimeClient):
    """Server that reads lines in the main thread until stdin closes, a signal comes or the client
    is gone.

    A subclass interprets the lines, and sets `built` once there is a runtime to close.
    """

    drain = True
    """Whether accepted commands finish after the end of input; False: they are aborted."""

    def __init__(self) -> None:
        self._stdout = claim_stdout()
        self._wake_read, self._wake_write = os.pipe()
        os.set_blocking(self._wake_write, False)
        self.writer = LineWriter(self._stdout, self._client_gone, self._wake)
        self.built: Runtime | None = None
        self._gone = False
        self._drained = False

    # --- for the subclass --------------------------------------------------------------------

    def take_line(self, line: bytes | LineTooLong) -> None:
        """Answer one line without waiting for a turn. Raises ClientRefused: the process ends."""
        raise NotImplementedError

    def is_whole(self, line: bytes) -> bool:
        """Return whether a last line without line feed is a complete command."""
        raise NotImplementedError

    def runtimes(self) -> list[Runtime]:
        """Return the runtimes to close. The root runtime is last; it closes the others."""
        return [] if self.built is None else [self.built]

    def input_ended(self) -> None:
        """Handle the end of input: the client sends nothing more, but runs may continue."""
        for runtime in self.runtimes():
            runtime.client_left()

    @property
    def has_runtime(self) -> bool:
        return bool(self.runtimes())

    def release(self) -> None:
        """Release every runtime, through the root."""
        for runtime in self.runtimes()[-1:]:
            runtime.release()

    def finish_commands(self) -> None:
        """Wait for pending commands; called in a thread at the end of input."""

    def closing(self) -> None:
        """Release the subclass's resources at shutdown."""

    # --- the runtime's client ----------------------------------------------------------------

    def wait(self, cancel: Cancel) -> None:
        self.writer.wait(cancel)

    def overfull(self) -> bool:
        return self.writer.overfull

    # --- life --------------------------------------------------------------------------------

    def serve(self) -> int:
        """Serve until the end; return the exit code. Raises ZotError: stdout cannot be written,
        for another reason than a lost client."""
        signal.set_wakeup_fd(self._wake_write)
        for number in SIGNALS:
            signal.signal(number, lambda *_: None)  # the wakeup byte on the pipe does the work
        try:
            code = self._read()
        except ClientRefused:
            code = 1
        try:
            self.closing()
            self.release()
        finally:
            self.writer.close(STOP_SECONDS)
            ignore_signals()
        failure = self.writer.failure
        if failure is not None and not isinstance(failure, BrokenPipeError):
            raise ZotError(f"the frames could not be written: {failure.strerror}")
        return code

    def _read(self) -> int:
        """Answer lines until the end; return the exit code."""
        splitter = LineSplitter()
        poll = self._poll()
        poll.register(0, select.POLLIN)
        while True:
            usable = {fd for fd, _ in poll.poll()}
            if (code := self._over(usable)) is not None:
                return code
            if 0 not in usable:
                continue
            if not (data := read_stdin()):
                return self._end_of_input(splitter)
            for line in splitter.feed(data):
                # Pause a client that sends commands but does not read the responses.
                while self.writer.overfull:
                    if (code := self._woken()) is not None:
                        return code
                self.take_line(line)

    def _poll(self) -> select.poll:
        """Return a poll for events that end the process: a byte on the wakeup pipe, or a client
        that closed stdout. A write would not notice the latter while nothing is written."""
        poll = select.poll()  # not select(): it cannot wait for descriptors above 1023
        poll.register(self._wake_read, select.POLLIN)
        poll.register(self._stdout, 0)
        return poll

    def _end_of_input(self, splitter: LineSplitter) -> int:
        """Finish or abort (see `drain`) the accepted commands; a signal ends it sooner."""
        line = splitter.finish()
        # A torn last line is dropped, not answered.
        if line is not None and not isinstance(line, LineTooLong) and self.is_whole(line):
            self.take_line(line)
        if not self.has_runtime:
            return self._signalled()
        self.input_ended()
        if not self.drain:
            self.abort_everything()
            return self._signalled()
        try:
            threading.Thread(target=self._drain, name="zot-drain", daemon=True).start()
        except RuntimeError:
            self._drain()  # no more threads: drain here, without handling signals
        while not self._drained:  # not is_alive(): the thread may outlive its byte
            if (code := self._woken()) is not None:
                return code
        return self._signalled()

    def _drain(self) -> None:
        self.finish_commands()
        for runtime in self.runtimes():
            runtime.close(drain=True)
        self._drained = True  # before the byte, so that the woken thread sees it
        self._wake()

    def _signalled(self) -> int:
        """Return the exit code after the end of input; a signal received with it wins."""
        poll = select.poll()
        poll.register(self._wake_read, select.POLLIN)
        while poll.poll(0):
            if (code := self._over({self._wake_read})) is not None:
                return code
        return 0

    def _woken(self) -> int | None:
        """Wait for an event; return the exit code if it ends the process."""
        return self._over({fd for fd, _ in self._poll().poll()})

    def _over(self, ready: set[int]) -> int | None:
        """Return the exit code if a signal came or the client is gone, else None."""
        received = os.read(self._wake_read, 64) if self._wake_read in ready else b""
        if self._gone or self._stdout in ready:
            self.abort_everything()
            return 0
        number = next((byte for byte in received if byte in SIGNALS), None)
        if number is None:
            return None
        self.abort_everything()
        return 128 + number

    def abort_everything(self) -> None:
        deadline = time.monotonic() + STOP_SECONDS
        runtimes = self.runtimes()
        for runtime in runtimes[:-1]:  # abort all first, then wait for each
            runtime.close(timeout=0)
        for runtime in runtimes:
            runtime.close(timeout=max(0.0, deadline - time.monotonic()))

    def _client_gone(self) -> None:
        self._gone = True
        self._wake()

    def _wake(self) -> None:
        poke(self._wake_write)


def read_stdin() -> bytes:
    """Read from stdin; return b"" at its end and on errors."""
    while True:
        try:
            return os.read(0, 65536)
        except BlockingIOError:  # another process made it non-blocking, and has read the data
            ready(0)
        except OSError:
            return b""


# --- standard streams ----------------------------------------------------------------------------


def claim_stdout() -> int:
    """Reserve stdout for frames and return its new descriptor; all other output of this process
    goes to stderr.

    Call it before opening any file: if a standard stream was closed when the process started, the
    next file would get its descriptor.
    """
    open_missing()
    wire = os.dup(1)
    os.dup2(2, 1)
    sys.stderr = Stderr()
    return wire


def open_missing() -> None:
    """Open streams that the parent closed as the null device, so that using them is harmless."""
    for fd, mode in ((0, os.O_RDONLY), (1, os.O_WRONLY), (2, os.O_WRONLY)):
        try:
            os.fstat(fd)
        except OSError:
            opened = os.open(os.devnull, mode)
            if opened != fd:
                os.dup2(opened, fd)
                os.close(opened)


def ignore_signals() -> None:
    """Ignore signals while Python shuts down, so that they do not change the exit code."""
    for number in SIGNALS:
        signal.signal(number, signal.SIG_IGN)


class Stderr(io.TextIOBase):
    """Writer to descriptor 2 that drops text when the pipe is full or its reader is gone. On a
    terminal, control characters (from an extension or a file name) are made harmless.
    """

    def __init__(self) -> None:
        super().__init__()
        self._lock = threading.Lock()
        self._poll = select.poll()
        self._poll.register(2, select.POLLOUT)

    def writable(self) -> bool:
        return True

    def fileno(self) -> int:
        return 2

    def write(self, text: str) -> int:
        data = for_terminal(text, 2).encode("utf-8", "backslashreplace")
        with self._lock:
            for start in range(0, len(data), PIPE_BUF):
                if not self._poll.poll(0):
                    break
                try:
                    os.write(2, data[start : start + PIPE_BUF])
                except OSError:
                    break  # the reader is gone
        return len(text)
