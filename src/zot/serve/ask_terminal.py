"""Asks at the terminal whether a tool may run. Used by print mode; a client with its own user
interface answers approval events instead.
"""

from __future__ import annotations

import os
import termios
import time

from zot.cancel import Cancel
from zot.core.events import ApprovalRequest
from zot.lines import poke, ready, write_all
from zot.runtime.approval import Verdict

TTY = "/dev/tty"
QUESTION = "allow? [y]es, [n]o, [a]lways for this tool now, {project}or a reason why not: "
PROJECT = "[p] always here: {pattern}, "


def has_terminal() -> bool:
    """Return whether a person can see the question and type an answer."""
    return os.isatty(0) and os.isatty(2)


def ask_terminal(question: ApprovalRequest, cancel: Cancel) -> Verdict | None:
    try:
        fd = os.open(TTY, os.O_RDWR | os.O_NOCTTY | os.O_CLOEXEC)
    except OSError:
        return None
    try:
        # Discard input typed before the question was shown.
        termios.tcflush(fd, termios.TCIFLUSH)
        shown = "".join(f"  {_visible(line)}\n" for line in _shown(question).split("\n"))
        choices = QUESTION.format(project=_project(question))
        asking = f"\nzot wants to use {_visible(question.call.name)}:\n{shown}{choices}"
        write_all(fd, asking.encode("utf-8", "replace"))
        line = _read_line(fd, question.timeout, cancel)
    finally:
        os.close(fd)
    return None if line is None else understand(line)


def _shown(question: ApprovalRequest) -> str:
    """Return the diff if there is one (it says more than the arguments), else the preview."""
    if not question.diff:
        return question.preview
    return f"{(question.call.args or {}).get('path')}\n{question.diff}"


def _project(question: ApprovalRequest) -> str:
    return PROJECT.format(pattern=_visible(question.pattern)) if question.pattern else ""


def understand(line: str) -> Verdict:
    """Parse the answer. An empty one means no: a stray Enter must not run anything."""
    word = line.strip()
    match word.lower():
        case "y" | "yes":
            return Verdict("allow")
        case "a" | "always":
            return Verdict("allow_session")
        case "p" | "project":
            return Verdict("allow_project")
        case "" | "n" | "no":
            return Verdict("deny")
        case _:
            return Verdict("deny", word)


def _read_line(fd: int, seconds: float, cancel: Cancel) -> str | None:
    """Read one line; None on timeout, if the turn was aborted or if the terminal is gone."""
    deadline = time.monotonic() + seconds
    wake_read, wake_write = os.pipe()
    try:
        with cancel.calling(lambda: poke(wake_write)):
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


def _visible(line: str) -> str:
    """Escape control characters: a command must not hide behind them."""
    return "".join(
        char if char.isprintable() or char == "\t" else repr(char)[1:-1] for char in line
    )
