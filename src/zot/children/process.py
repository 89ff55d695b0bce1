"""A child process with its three pipes; ends its whole process tree. Does not interpret its data.

The child is started by a keeper (see keeper.py), which ends when zot ends, however that happens.
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
    """A process, started by the constructor. The caller closes `stdin`, `stdout` and `stderr`.
    Raises OSError: the folder does not exist, or no process can be started."""

    def __init__(
        self, command: list[str], cwd: Path, env: dict[str, str], handed: bytes = b""
    ) -> None:
        """`handed`: the plan for the keeper of a jailed program; see walls.py."""
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
        """Descriptor that is readable when the keeper reports something, and at its end."""

    def wait(self, seconds: float) -> int | None:
        """Wait; return the exit code (negative: a signal), or None while something still runs."""
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
        """Pid of the program; None before it was started."""
        pid = self._report(keeper.STARTED)
        return None if pid is None else int(pid)

    @property
    def start_error(self) -> str | None:
        """Why the program could not be started; None if it was."""
        return self._report(keeper.NOT_STARTED)

    def is_gone(self) -> bool:
        """Return whether the keeper has ended, so that nothing will be written any more."""
        self._listen()
        return self._ended

    def terminate(self) -> None:
        self._tell(keeper.TERMINATE)

    def kill(self) -> None:
        self._tell(keeper.KILL)

    def close(self) -> None:
        """Close the keeper's socket. If the keeper was killed, end its program from here."""
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
        """Return everything received from the keeper so far."""
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
