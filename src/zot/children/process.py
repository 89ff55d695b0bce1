"""One child process with its three pipes, and how its whole tree is ended. Knows no frames.

The child is started by a keeper (see keeper.py), which ends with zot, whatever ends zot.
"""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import threading
from pathlib import Path

from zot import trees
from zot.children import keeper


class ChildProcess:
    """Started at construction. `stdin`, `stdout` and `stderr` are the caller's to close. Raises
    OSError: the folder is not there, or no process can be started."""

    def __init__(
        self, command: list[str], cwd: Path, env: dict[str, str], handed: bytes = b""
    ) -> None:
        """`handed`: what the keeper of a jailed program must know; see walls.py."""
        child_in, self.stdin = os.pipe()
        self.stdout, child_out = os.pipe()
        self.stderr, child_err = os.pipe()
        self._control, theirs = socket.socketpair()
        try:
            self._popen = subprocess.Popen(
                trees.launch("children.keeper", str(theirs.fileno()), handed.hex(), *command),
                stdin=child_in,
                stdout=child_out,
                stderr=child_err,
                cwd=cwd,
                env=env,
                pass_fds=(theirs.fileno(),),
                start_new_session=True,
            )
        except BaseException:
            self._control.close()
            for fd in (self.stdin, self.stdout, self.stderr):
                os.close(fd)
            raise
        finally:
            theirs.close()
            for fd in (child_in, child_out, child_err):
                os.close(fd)
        trees.own.add(self._popen.pid)
        os.set_blocking(self.stdin, False)
        self._lock = threading.Lock()
        self._said = b""
        self._ended = False
        self.control = self._control.fileno()
        """Readable when there is news of the process, and at its end."""

    def wait(self, seconds: float) -> int | None:
        """The exit code (negative: the signal that ended it), or None while something runs."""
        try:
            self._popen.wait(seconds)
        except subprocess.TimeoutExpired:
            return None
        status = self._report(keeper.ENDED)
        if status is not None:
            return os.waitstatus_to_exitcode(int(status)) if int(status) >= 0 else -signal.SIGKILL
        return -signal.SIGKILL  # the keeper itself was killed

    @property
    def pid(self) -> int | None:
        """The program's own process, once it was started."""
        pid = self._report(keeper.STARTED)
        return None if pid is None else int(pid)

    @property
    def start_error(self) -> str | None:
        """Why there never was a process of the program's."""
        return self._report(keeper.NOT_STARTED)

    def is_gone(self) -> bool:
        """The keeper has ended, so nothing will be written any more."""
        self._listen()
        return self._ended

    def terminate(self) -> None:
        self._tell(keeper.TERMINATE)

    def kill(self) -> None:
        self._tell(keeper.KILL)

    def close(self) -> None:
        """Let go of the keeper. If somebody killed it, its program is ended from here."""
        trees.own.discard(self._popen.pid)
        if self._report(keeper.ENDED) is None and (pid := self.pid) is not None:
            trees.kill_group(pid, signal.SIGKILL)
            trees.end_strays()
        self._control.close()

    def _tell(self, what: bytes) -> None:
        try:
            self._control.send(what, socket.MSG_DONTWAIT)
        except OSError:
            pass  # it has ended

    def _report(self, kind: bytes) -> str | None:
        for line in self._listen().splitlines():
            if line[:1] == kind:
                return line[1:].decode("utf-8", "replace")
        return None

    def _listen(self) -> bytes:
        """All that the keeper has said so far."""
        with self._lock:
            try:
                while piece := self._control.recv(4096, socket.MSG_DONTWAIT):
                    self._said += piece
                self._ended = True
            except BlockingIOError:
                pass  # nothing new
            except OSError:
                self._ended = True  # closed, or the keeper was killed
            return self._said
