"""Standard streams of a process that serves a wire: stdout carries frames only, and writing to
stderr never blocks.
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
"""Signals that end the process in an orderly way: all that are fatal by default, except SIGKILL and
those for a broken process (SIGSEGV, SIGABRT)."""
PIPE_BUF = 4096
"""Bytes that a writable pipe accepts at once on every system, at least."""


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
