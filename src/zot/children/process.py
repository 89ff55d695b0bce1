"""A child process with its three pipes; ends its whole process tree. Does not interpret its data.

The child is started by a keeper (tools/process/keeper.py), which ends when zot ends, however that
happens.
"""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path

from zot import trees
from zot.lines import ready
from zot.tools.process import keeper, link

KEEPER_SECONDS = 1.0
"""Seconds for a keeper to end after its program."""


class ChildProcess:
    """A process, started by the constructor. The caller closes `stdin`, `stdout` and `stderr`.
    Raises OSError: no process can be started."""

    def __init__(
        self, command: list[str], cwd: Path, env: dict[str, str], plan: bytes = b""
    ) -> None:
        """`plan`: for the keeper of a jailed program; see walls.py."""
        child_in, self.stdin = os.pipe()
        self.stdout, child_out = os.pipe()
        self.stderr, child_err = os.pipe()
        try:
            message = link.packed((command, str(cwd), env, None, 0, plan))
            self._keeper, control = link.start_process(keeper.KEEPER)
            try:
                link.send_all(control, message, child_in, child_out, child_err)
            except OSError:
                control.close()
                link.end_process(self._keeper, KEEPER_SECONDS)
                raise
        except BaseException:
            for fd in (self.stdin, self.stdout, self.stderr):
                os.close(fd)
            raise
        finally:
            for fd in (child_in, child_out, child_err):
                os.close(fd)
        os.set_blocking(self.stdin, False)
        self._link = link.KeeperLink(control)
        self.control = control.fileno()
        """Descriptor that is readable when the keeper reports something, and at its end."""

    def wait(self, seconds: float) -> int | None:
        """Wait; return the exit code (negative: a signal), or None while something still runs."""
        deadline = time.monotonic() + seconds
        while not self.is_gone():
            left = deadline - time.monotonic()
            if left <= 0:
                return None
            ready(self.control, timeout=left)
        report = self._link.report
        if report is None or report[1] < 0:
            return -signal.SIGKILL  # the keeper itself was killed
        return os.waitstatus_to_exitcode(report[1])

    @property
    def pid(self) -> int | None:
        """Pid of the program; None before it was started."""
        self._link.listen()
        return self._link.pid or None

    @property
    def start_error(self) -> str | None:
        """Why the program could not be started; None if it was."""
        report = self._link.report
        return report[4] or None if report is not None else None

    def is_gone(self) -> bool:
        """Return whether the keeper has ended, so that nothing will be written any more."""
        self._link.listen()
        return self._link.is_gone

    def terminate(self) -> None:
        self._link.ask(keeper.TERMINATE)

    def kill(self) -> None:
        self._link.ask(keeper.KILL)

    def close(self) -> None:
        """End the keeper and close its socket. If it was killed, end its program from here."""
        self._link.end()
        link.end_process(self._keeper, KEEPER_SECONDS)
        if self._link.report is None and (pid := self.pid) is not None:
            trees.kill_group(pid, signal.SIGKILL)
            trees.end_strays()
        self._link.control.close()
