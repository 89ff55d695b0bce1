"""Asks the person at the terminal whether a tool may run. Used by print mode; a client with a
user interface of its own answers approval events instead.
"""

from __future__ import annotations

import os
import termios
import time

from zot.cancel import Cancel
from zot.lines import ready
from zot.provider.types import ToolCall
from zot.runtime.approval import Verdict

TTY = "/dev/tty"
QUESTION = "allow? [y]es, [n]o, [a]lways for this tool, or a reason why not: "


def has_terminal() -> bool:
    """A person can see our question and type an answer."""
    return os.isatty(0) and os.isatty(2)


def ask_terminal(call: ToolCall, preview: str, seconds: float, cancel: Cancel) -> Verdict | None:
    try:
        fd = os.open(TTY, os.O_RDWR | os.O_NOCTTY | os.O_CLOEXEC)
    except OSError:
        return None
    try:
        # What was typed before the question was seen is no answer to it.
        termios.tcflush(fd, termios.TCIFLUSH)
        shown = "".join(f"  {_visible(line)}\n" for line in preview.split("\n"))
        _write(fd, f"\nzot wants to use {_visible(call.name)}:\n{shown}{QUESTION}")
        line = _read_line(fd, seconds, cancel)
    finally:
        os.close(fd)
    return None if line is None else understand(line)


def understand(line: str) -> Verdict:
    """An empty answer is a no: a stray Enter must not run anything."""
    word = line.strip()
    match word.lower():
        case "y" | "yes":
            return Verdict("allow")
        case "a" | "always":
            return Verdict("allow_session")
        case "" | "n" | "no":
            return Verdict("deny")
        case _:
            return Verdict("deny", word)


def _read_line(fd: int, seconds: float, cancel: Cancel) -> str | None:
    """One line, or None when the time is over, the turn was aborted or the terminal is gone."""
    deadline = time.monotonic() + seconds
    wake_read, wake_write = os.pipe()
    try:
        with cancel.calling(lambda: _wake(wake_write)):
            while (left := deadline - time.monotonic()) > 0:
                usable = ready(fd, wake_read, timeout=left)
                if wake_read in usable:
                    return None
                if fd in usable:
                    data = os.read(fd, 4096)
                    return data.decode("utf-8", "replace") if data else None
    finally:
        os.close(wake_read)
        os.close(wake_write)
    return None


def _wake(fd: int) -> None:
    os.write(fd, b"\0")


def _write(fd: int, text: str) -> None:
    data = text.encode("utf-8", "replace")
    while data:
        data = data[os.write(fd, data) :]


def _visible(line: str) -> str:
    """A command must not hide behind control characters."""
    return "".join(
        char if char.isprintable() or char == "\t" else repr(char)[1:-1] for char in line
    )
