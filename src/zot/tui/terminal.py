"""The terminal as a device: raw mode, what is asked of it, reading, writing that never blocks, and
leaving it as it was. Nothing here knows what is drawn.
"""

from __future__ import annotations

import os
import select
import termios
import time
from typing import Any

from zot.tui.keys import KeyDecoder, KeyPress

WANTED = (
    "\x1b[?2004h"  # a paste is told from typing
    "\x1b[?1004h"  # whether somebody looks
    "\x1b[?7l"  # a line that is too wide is cut, and moves nothing
    "\x1b[>1u"  # kitty's keys: Shift+Enter and its like
    "\x1b[>4;1m"  # xterm's for the same
    "\x1b[22;2t"  # keep the title
)
GIVEN_BACK = "\x1b[23;2t\x1b[>4m\x1b[<u\x1b[?7h\x1b[?1004l\x1b[?2004l\x1b[?25h\x1b[m"
Attributes = list[Any]
"""As termios hands them out."""
ESCAPE_SECONDS = 0.05
"""After this long an escape character was the Esc key."""
LEAVE_SECONDS = 1.0
"""How long a terminal that does not read may delay the end."""


class Terminal:
    """Owns the terminal between `enter` and `leave`; both can be called again."""

    def __init__(self, fd: int = 1, escape_seconds: float = ESCAPE_SECONDS) -> None:
        # An own description of the device: that it does not block must not be so for the shell.
        self.fd = os.open(os.ttyname(fd), os.O_RDWR | os.O_NOCTTY | os.O_CLOEXEC | os.O_NONBLOCK)
        self._decoder = KeyDecoder()
        self._before: Attributes | None = None
        self._found: Attributes | None = None
        """How the terminal was when it became ours the last time."""
        self._pending = bytearray()
        self._early = b""
        self.escape_seconds = escape_seconds

    def __enter__(self) -> Terminal:
        self.enter()
        return self

    def __exit__(self, *_: object) -> None:
        self.leave()
        os.close(self.fd)

    def enter(self, *, as_found: bool = False) -> None:
        """`as_found`: whoever had it meanwhile was a guest, and how they left it does not count."""
        if self._before is None:
            known = self._found if as_found else None
            self._before = self._found = known or termios.tcgetattr(self.fd)
            termios.tcsetattr(self.fd, termios.TCSADRAIN, _raw(self._before))
            self._take_early()
            self.write(WANTED)

    def _take_early(self) -> None:
        """What was typed before: the terminal made line feeds of its Enter keys."""
        try:
            self._early += os.read(self.fd, 65536).replace(b"\n", b"\r")
        except OSError:
            pass  # there is none

    def leave(self) -> None:
        """Give the terminal back as it was; safe to call at any time."""
        if self._before is None:
            return
        before, self._before = self._before, None
        try:
            self.write(GIVEN_BACK)
            self._finish_writing()
            # An answer of the terminal that is under way must not become input of the shell.
            termios.tcsetattr(self.fd, termios.TCSAFLUSH, before)
        except (OSError, termios.error):
            pass  # the terminal is gone

    def size(self) -> tuple[int, int]:
        """Columns and rows."""
        try:
            size = os.get_terminal_size(self.fd)
        except OSError:
            return 80, 24
        return size.columns or 80, size.lines or 24

    # --- reading -----------------------------------------------------------------------------

    def read(self) -> list[KeyPress] | None:
        """The keys that came; None when the terminal is gone."""
        try:
            data = os.read(self.fd, 65536)
        except BlockingIOError:
            return []
        except OSError:
            return None
        return self._decoder.feed(data) if data else None

    @property
    def waits(self) -> bool:
        return self._decoder.waits

    def early(self) -> list[KeyPress]:
        """Keys from before the terminal was ours."""
        data, self._early = self._early, b""
        return self._decoder.feed(data)

    def flush(self) -> list[KeyPress]:
        return self._decoder.flush()

    # --- writing -----------------------------------------------------------------------------

    @property
    def busy(self) -> bool:
        """It has not taken all that was written: wait with the next frame until it can."""
        return bool(self._pending)

    def write(self, text: str) -> None:
        self._pending += text.encode("utf-8", "replace")
        self.push()

    def push(self) -> None:
        """Write as much as the terminal takes."""
        while self._pending:
            try:
                count = os.write(self.fd, self._pending)
            except BlockingIOError:
                return
            except OSError:
                self._pending.clear()  # it is gone; reading tells so
                return
            del self._pending[:count]

    def _finish_writing(self) -> None:
        deadline = time.monotonic() + LEAVE_SECONDS
        poll = select.poll()
        poll.register(self.fd, select.POLLOUT)
        while self._pending and (left := deadline - time.monotonic()) > 0:
            poll.poll(left * 1000)
            self.push()
        self._pending.clear()


def through_tmux(sequence: str) -> str:
    """For the terminal behind tmux."""
    return "\x1bPtmux;" + sequence.replace("\x1b", "\x1b\x1b") + "\x1b\\"


def _raw(attributes: Attributes) -> Attributes:
    """No echo, no lines, no signals by keys; output goes out as it is written."""
    raw = list(attributes)
    raw[0] = raw[0] & ~(
        termios.BRKINT | termios.ICRNL | termios.INPCK | termios.ISTRIP | termios.IXON
    )
    raw[1] = raw[1] & ~termios.OPOST
    raw[3] = raw[3] & ~(termios.ECHO | termios.ICANON | termios.IEXTEN | termios.ISIG)
    control = list(raw[6])
    control[termios.VMIN], control[termios.VTIME] = 1, 0
    raw[6] = control
    return raw
