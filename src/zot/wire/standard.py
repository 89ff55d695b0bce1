"""The standard files of a process that speaks a wire: stdout holds frames and nothing else, and
stderr never makes anyone wait.
"""

from __future__ import annotations

import io
import os
import select
import signal
import sys
import threading

from zot.text import for_terminal

SIGNALS = tuple(
    getattr(signal, f"SIG{name}")
    for name in ("TERM", "INT", "HUP", "QUIT", "USR1", "USR2", "ALRM", "VTALRM", "PROF", "XCPU")
    + ("POLL", "PWR", "STKFLT")
    if hasattr(signal, f"SIG{name}")
)
"""What ends the process in an orderly way: all that would end it otherwise, but for SIGKILL and
those that say that the process itself is broken (SIGSEGV, SIGABRT)."""
PIPE_BUF = 4096
"""A pipe that is ready takes at least this much at once, on every system."""


def claim_stdout() -> int:
    """Keep stdout for frames: whatever else in this process prints goes to stderr.

    Call it before opening anything: a standard file that was closed when the process started
    would lend its number to the next file.
    """
    open_missing()
    wire = os.dup(1)
    os.dup2(2, 1)
    sys.stderr = Stderr()
    return wire


def open_missing() -> None:
    """Open what the parent closed as the null device, so that reading and writing are harmless."""
    for fd, mode in ((0, os.O_RDONLY), (1, os.O_WRONLY), (2, os.O_WRONLY)):
        try:
            os.fstat(fd)
        except OSError:
            opened = os.open(os.devnull, mode)
            if opened != fd:
                os.dup2(opened, fd)
                os.close(opened)


def ignore_signals() -> None:
    """The exit code is decided: while Python winds up, one more signal must not change it."""
    for number in SIGNALS:
        signal.signal(number, signal.SIG_IGN)


class Stderr(io.TextIOBase):
    """Writes to descriptor 2, and drops what a full pipe or a closed reader would not take. A
    terminal is not told to do what an extension or a file name wants it to.
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
                    break  # nobody reads it any more
        return len(text)
