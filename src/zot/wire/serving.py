"""What every line server shares: stdin to lines, signals, a client that leaves, the end.

It knows nothing of what a line means; `serve/rpc.py` and `pi/rpc.py` do.
"""

from __future__ import annotations

import os
import select
import signal
import threading
import time
from typing import TYPE_CHECKING

from zot.errors import ZotError
from zot.lines import LineSplitter, LineTooLong, poke, ready
from zot.runtime.client import RuntimeClient
from zot.wire.standard import SIGNALS, claim_stdout, ignore_signals
from zot.writer import LineWriter

if TYPE_CHECKING:
    from collections.abc import Callable

    from zot.cancel import Cancel
    from zot.runtime.run import Run
    from zot.runtime.runtime import Runtime

STOP_SECONDS = 3.0
"""How long a signal waits for the turn to wind up and for the client to read."""


class ClientRefused(Exception):
    """The client is not let in; the process ends."""


class LineServer(RuntimeClient):
    """Reads lines in the main thread until stdin closes, a signal comes or the client is gone.

    A subclass says what a line means, and sets `built` once there is a runtime to wind up.
    """

    drain = True
    """At the end of input: whether what was accepted finishes, or is aborted."""

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
        """Answer one line; must not wait for a turn. Raises ClientRefused: the process ends."""
        raise NotImplementedError

    def is_whole(self, line: bytes) -> bool:
        """Whether a last line without its line feed is a command, and not torn."""
        raise NotImplementedError

    def runtimes(self) -> list[Runtime]:
        """Those to wind up. Last is the first one: it holds the others, and lets go of them."""
        return [] if self.built is None else [self.built]

    def input_ended(self) -> None:
        """Nobody will ask or answer anything any more; runs may still be going on."""
        for runtime in self.runtimes():
            runtime.client_left()

    @property
    def has_runtime(self) -> bool:
        return bool(self.runtimes())

    def release(self) -> None:
        """Let go of every runtime."""
        for runtime in self.runtimes()[-1:]:
            runtime.release()

    def finish_commands(self) -> None:
        """Wait for commands that are still being answered; in a thread, at the end of input."""

    def closing(self) -> None:
        """The end has come: let go of what the subclass holds."""

    # --- the runtime's client ----------------------------------------------------------------

    def wait(self, cancel: Cancel) -> None:
        self.writer.wait(cancel)

    def overfull(self) -> bool:
        return self.writer.overfull

    # --- life --------------------------------------------------------------------------------

    def serve(self) -> int:
        """Serve until the end; the exit code. Raises ZotError: stdout cannot be written to. A
        client that is gone is none."""
        signal.set_wakeup_fd(self._wake_write)
        for number in SIGNALS:
            signal.signal(number, lambda *_: None)  # the byte on the pipe is what counts
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
        """Answer line after line; the exit code when there are no more."""
        splitter = LineSplitter()
        poll = self._poll()
        poll.register(0, select.POLLIN)
        only_input = [(0, select.POLLIN)]
        while True:
            ready = poll.poll()
            if ready != only_input:
                fds = {fd for fd, _ in ready}
                if (code := self._over(fds)) is not None:
                    return code
                if 0 not in fds:
                    continue
            try:
                data = os.read(0, 65536)
            except OSError:
                data = read_stdin()  # which knows what to make of it
            if not data:
                return self._end_of_input(splitter)
            for line in splitter.feed(data):
                # A client that asks and never reads is not answered until it has read.
                while self.writer.overfull:
                    if (code := self._woken()) is not None:
                        return code
                self.take_line(line)

    def _poll(self) -> select.poll:
        """What can end the process: a byte on the pipe, and a client that no longer reads. The
        latter must be watched: while a command or a provider is quiet, nothing is written."""
        poll = select.poll()  # not select(): it cannot wait for descriptors above 1023
        poll.register(self._wake_read, select.POLLIN)
        poll.register(self._stdout, 0)
        return poll

    def _end_of_input(self, splitter: LineSplitter) -> int:
        """Accept nothing more; what was accepted finishes, unless a signal comes."""
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
            self._drain()  # no thread is left: here, deaf to signals
        while not self._drained:  # not is_alive(): the thread may outlive its byte
            if (code := self._woken()) is not None:
                return code
        return self._signalled()

    def _drain(self) -> None:
        self.finish_commands()
        for runtime in self.runtimes():
            runtime.close(drain=True)
        self._drained = True  # before the byte: whoever is woken by it must find it so
        self._wake()

    def _signalled(self) -> int:
        """The exit code of an end of input; a signal that came with it counts for more."""
        poll = select.poll()
        poll.register(self._wake_read, select.POLLIN)
        while poll.poll(0):
            if (code := self._over({self._wake_read})) is not None:
                return code
        return 0

    def _woken(self) -> int | None:
        """Wait until there is something to look at; the exit code if it ends the process."""
        return self._over({fd for fd, _ in self._poll().poll()})

    def _over(self, ready: set[int]) -> int | None:
        """Whether what is ready ends the process, by a signal or a lost client: the exit code."""
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
        for runtime in runtimes[:-1]:  # told all at once, then waited for
            runtime.close(timeout=0)
        for runtime in runtimes:
            runtime.close(timeout=max(0.0, deadline - time.monotonic()))

    def _client_gone(self) -> None:
        self._gone = True
        self._wake()

    def _wake(self) -> None:
        poke(self._wake_write)


def note_signals() -> list[int]:
    """Signals that ask for the end are only noted from now on; the list grows with them."""
    noted: list[int] = []
    for number in SIGNALS:
        signal.signal(number, lambda number, _: noted.append(number))
    return noted


def finish(run: Run, runtime: Runtime, stop: Callable[[], bool], wire: int) -> None:
    """Wait for a run to end; it is aborted when `stop` says so, and when nobody reads any more."""
    wait_or_abort(run.ended.wait, runtime.abort, stop, wire)


def wait_or_abort(
    ended: Callable[[float], bool], abort: Callable[[], object], stop: Callable[[], bool], wire: int
) -> None:
    """Wait for the end of something; abort it, once, when `stop` says so or nobody reads `wire`.

    Not in the handler: it may run while this very thread holds a lock that the abort needs, and
    a second signal would find the first one's abort half done, with its lock held.
    """
    aborted = False
    poll = select.poll()
    poll.register(wire, 0)
    while not ended(0.1):
        if not aborted and (stop() or poll.poll(0)):
            aborted = True
            abort()


def read_stdin() -> bytes:
    """What stdin has; nothing at its end, and when it cannot be read."""
    while True:
        try:
            return os.read(0, 65536)
        except BlockingIOError:  # somebody set it to non-blocking, and it was read meanwhile
            ready(0)
        except OSError:
            return b""
