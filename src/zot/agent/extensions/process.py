"""One child process with its three pipes, and how its whole tree is ended. Knows no frames."""

from __future__ import annotations

import os
import signal
import subprocess
from pathlib import Path


class ChildProcess:
    """Started at construction. `stdin`, `stdout` and `stderr` are the caller's to close.

    Raises:
        OSError: the program cannot be started.
    """

    def __init__(self, command: list[str], cwd: Path, env: dict[str, str]) -> None:
        child_in, self.stdin = os.pipe()
        self.stdout, child_out = os.pipe()
        self.stderr, child_err = os.pipe()
        try:
            self._popen = subprocess.Popen(
                command,
                stdin=child_in,
                stdout=child_out,
                stderr=child_err,
                cwd=cwd,
                env=env,
                start_new_session=True,
            )
        except BaseException:
            for fd in (self.stdin, self.stdout, self.stderr):
                os.close(fd)
            raise
        finally:
            for fd in (child_in, child_out, child_err):
                os.close(fd)
        os.set_blocking(self.stdin, False)
        self.pid = self._popen.pid

    def wait(self, seconds: float) -> int | None:
        """The exit code (negative: the signal that ended it), or None while it runs."""
        try:
            return self._popen.wait(seconds)
        except subprocess.TimeoutExpired:
            return None

    def terminate(self) -> None:
        self._signal(signal.SIGTERM)

    def kill(self) -> None:
        self._signal(signal.SIGKILL)

    def _signal(self, number: int) -> None:
        try:
            os.killpg(self.pid, number)
        except (ProcessLookupError, PermissionError):
            pass  # nobody is left
