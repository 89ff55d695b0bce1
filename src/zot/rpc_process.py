"""A child process that speaks the wire of `zot rpc`: starts it, sends commands, pairs each response
with its command, passes on every line, ends it. Knows nothing about the meaning of a frame.

The client, the swarm and the conformance check are built on it.
"""

from __future__ import annotations

import itertools
import os
import subprocess
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from typing import Any, Generic, TypeVar

from zot.errors import ZotError
from zot.lines import LineCutter, LineSplitter, LineTooLong, encode_line, ready

STDERR_BYTES = 64 * 1024
"""Bytes of stderr that are kept: the last ones."""
EXIT_SECONDS = 5.0
"""Time for a process that closed its output to exit."""

R = TypeVar("R")


class ServerGoneError(ZotError, code="server_gone"):
    """The child has ended, or wrote an invalid frame. `returncode` is None if it still runs."""

    def __init__(self, message: str, returncode: int | None) -> None:
        super().__init__(message)
        self.returncode = returncode


class ClientTimeoutError(ZotError, code="timeout"):
    """The child did not answer in time."""


class RpcProcess(Generic[R]):
    """The child, and the commands whose responses (of type R) have not arrived. Safe to use from
    any thread."""

    def __init__(
        self,
        command: Sequence[str],
        *,
        cwd: str | os.PathLike[str] | None,
        env: Mapping[str, str],
        lines: LineSplitter | LineCutter,
        on_line: Callable[[bytes | LineTooLong], None],
        on_end: Callable[[], None],
        own_session: bool = False,
    ) -> None:
        """Start the command. A thread calls `on_line` with each line of output, then `on_end` once,
        when `gone` is set. A ZotError raised by `on_line` terminates the child.

        Raises:
            ServerGoneError: the command cannot be started.
        """
        self.gone: ServerGoneError | None = None
        """Set once the output has ended; says how, with the end of stderr."""
        self._lines = lines
        self._on_line = on_line
        self._on_end = on_end
        self._ids = itertools.count(1)
        self._lock = threading.Lock()
        self._write_lock = threading.Lock()
        self._pending: dict[str, Future[R]] = {}
        self._stderr = bytearray()
        try:
            self._process = subprocess.Popen(
                list(command),
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                cwd=cwd,
                env=dict(env),
                bufsize=0,
                start_new_session=own_session,
            )
        except OSError as error:
            raise ServerGoneError(f"cannot start {list(command)!r}: {error}", None) from error
        assert self._process.stdin is not None
        self._stdin = self._process.stdin
        os.set_blocking(self._stdin.fileno(), False)
        self._reader = threading.Thread(target=self._read, name="rpc-read", daemon=True)
        self._reader.start()

    @property
    def pid(self) -> int:
        return self._process.pid

    @property
    def stderr(self) -> str:
        return bytes(self._stderr).decode("utf-8", "replace")

    # --- commands ----------------------------------------------------------------------------

    def expect(self) -> tuple[str, Future[R]]:
        """Return a new command id and the future of its response, which fails with ServerGoneError
        if the child ends first. Raises ServerGoneError: it has ended."""
        answer: Future[R] = Future()
        answer.set_running_or_notify_cancel()  # nobody can cancel it now
        with self._lock:
            if self.gone is not None:
                raise self.gone
            id = str(next(self._ids))
            self._pending[id] = answer
        return id, answer

    def send(self, id: str, type: str, fields: Mapping[str, Any], timeout: float) -> None:
        """Write a command with an id of `expect`. Raises like `write`."""
        try:
            self.write(encode_line({"id": id, "type": type, **fields}), timeout)
        except BaseException:
            with self._lock:
                self._pending.pop(id, None)
            raise

    def answer(self, id: object, response: R) -> bool:
        """Complete the future of a command with its response; False: no command has this id."""
        with self._lock:
            answer = self._pending.pop(id, None) if isinstance(id, str) else None
        if answer is not None:
            answer.set_result(response)
        return answer is not None

    def write(self, data: bytes, timeout: float) -> None:
        """Write bytes to the child; nothing happens if it has ended.

        Raises:
            ClientTimeoutError: the child does not read. It is terminated if it got half the data.
        """
        deadline = time.monotonic() + timeout
        view = memoryview(data)
        with self._write_lock:
            while view and not self._stdin.closed:
                fd = self._stdin.fileno()
                if not ready(writing=(fd,), timeout=deadline - time.monotonic()):
                    if len(view) < len(data):
                        self._process.terminate()
                    raise ClientTimeoutError(f"the child did not read its input for {timeout:g} s")
                try:
                    view = view[os.write(fd, view) :]
                except BlockingIOError:
                    continue
                except OSError:
                    return  # the child has ended, which the reader reports

    # --- end ---------------------------------------------------------------------------------

    def close_input(self) -> None:
        """Close stdin: the child ends when its runs have ended."""
        with self._write_lock:
            self._stdin.close()

    def signal(self, number: int) -> None:
        self._process.send_signal(number)

    def wait(self, seconds: float) -> int | None:
        """Return the exit code; None: the child still runs after so many seconds."""
        try:
            return self._process.wait(max(0.0, seconds))
        except subprocess.TimeoutExpired:
            return None

    def end(self, seconds: float) -> int:
        """Close stdin; send SIGTERM after so many seconds, SIGKILL after as many more. Return the
        exit code, once the output is read."""
        self.close_input()
        for stop in (self._process.terminate, self._process.kill):
            if self.wait(seconds) is None:
                stop()
        code = self._process.wait()
        if self._reader is not threading.current_thread():
            self._reader.join(EXIT_SECONDS)
        return code

    # --- reading -----------------------------------------------------------------------------

    def _read(self) -> None:
        stdout, stderr = self._process.stdout, self._process.stderr
        assert stdout is not None
        assert stderr is not None
        problem = ""
        with stdout, stderr:
            try:
                self._read_lines(stdout.fileno(), stderr.fileno())
            except ZotError as error:
                problem = str(error)
                self._process.terminate()
            code = self.wait(EXIT_SECONDS)
            while ready(stderr.fileno(), timeout=0) and self._read_stderr(stderr.fileno()):
                pass  # an exited child has written all of it
        how = "closed its output" if code is None else f"ended with exit code {code}"
        text = problem or f"the server {how}"
        said = self.stderr.strip()
        with self._lock:
            self.gone = ServerGoneError(f"{text}; stderr: {said}" if said else text, code)
            pending, self._pending = self._pending, {}
        for answer in pending.values():
            answer.set_exception(self.gone)
        self._on_end()

    def _read_lines(self, stdout: int, stderr: int) -> None:
        """Read both streams until stdout ends."""
        streams = {stdout, stderr}
        while True:
            for fd in ready(*streams):
                if fd == stderr:
                    if not self._read_stderr(fd):
                        streams.remove(fd)
                    continue
                data = os.read(fd, 65536)
                if not data:
                    return
                for line in self._lines.feed(data):
                    self._on_line(line)

    def _read_stderr(self, fd: int) -> bool:
        data = os.read(fd, 65536)
        self._stderr += data
        del self._stderr[:-STDERR_BYTES]
        return bool(data)
