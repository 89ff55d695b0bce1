"""The terminal as a device: raw mode, its settings, reading, non-blocking writing, and restoring
it. Independent of what is drawn.
"""

from __future__ import annotations

import os
import select
import termios
import time
from typing import Any

from zot.tui.keys import KeyDecoder, KeyPress

WANTED = (
    "\x1b[?2004h"  # bracketed paste
    "\x1b[?1004h"  # focus reports
    "\x1b[?7l"  # no wrapping: a line that is too wide is cut
    "\x1b[>1u"  # kitty's keys: Shift+Enter and similar
    "\x1b[>4;1m"  # xterm's equivalent
    "\x1b[22;2t"  # save the title
)
GIVEN_BACK = "\x1b[23;2t\x1b[>4m\x1b[<u\x1b[?7h\x1b[?1004l\x1b[?2004l\x1b[?25h\x1b[m"
Attributes = list[Any]
"""Terminal attributes as returned by termios."""
ESCAPE_SECONDS = 0.05
"""Seconds after which an escape character counts as the Esc key."""
LEAVE_SECONDS = 1.0
"""Maximum seconds that a terminal that does not read may delay the end."""


class Terminal:
    """Owns the terminal between `enter` and `leave`; both can be called again."""

    def __init__(self, fd: int = 1, escape_seconds: float = ESCAPE_SECONDS) -> None:
        # A separate open file description: the shell's must not become non-blocking.
        self.fd = os.open(os.ttyname(fd), os.O_RDWR | os.O_NOCTTY | os.O_CLOEXEC | os.O_NONBLOCK)
        self._decoder = KeyDecoder()
        self._before: Attributes | None = None
        self._found: Attributes | None = None
        """Attributes when the terminal was last entered."""
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
        """Set raw mode. `as_found`: restore the last known attributes later, not those that a guest
        program left."""
        if self._before is None:
            known = self._found if as_found else None
            self._before = self._found = known or termios.tcgetattr(self.fd)
            termios.tcsetattr(self.fd, termios.TCSADRAIN, _raw(self._before))
            self._take_early()
            self.write(WANTED)

    def _take_early(self) -> None:
        """Read keys typed before; the terminal had turned Enter into line feeds."""
        try:
            self._early += os.read(self.fd, 65536).replace(b"\n", b"\r")
        except OSError:
            pass  # there are none

    def leave(self) -> None:
        """Restore the terminal; safe to call at any time."""
        if self._before is None:
            return
        before, self._before = self._before, None
        try:
            self.write(GIVEN_BACK)
            self._finish_writing()
            # A reply of the terminal in flight must not become input of the shell.
            termios.tcsetattr(self.fd, termios.TCSAFLUSH, before)
        except (OSError, termios.error):
            pass  # the terminal is gone

    def size(self) -> tuple[int, int]:
        """Return columns and rows."""
        try:
            size = os.get_terminal_size(self.fd)
        except OSError:
            return 80, 24
        return size.columns or 80, size.lines or 24

    # --- reading -----------------------------------------------------------------------------

    def read(self) -> list[KeyPress] | None:
        """Return the keys that arrived; None if the terminal is gone."""
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
        """Return the keys typed before the terminal was entered."""
        data, self._early = self._early, b""
        return self._decoder.feed(data)

    def flush(self) -> list[KeyPress]:
        return self._decoder.flush()

    # --- writing -----------------------------------------------------------------------------

    @property
    def busy(self) -> bool:
        """True while output is pending: the next frame must wait."""
        return bool(self._pending)

    def write(self, text: str) -> None:
        self._pending += text.encode("utf-8", "replace")
        self.push()

    def push(self) -> None:
        """Write as much as the terminal accepts."""
        while self._pending:
            try:
                count = os.write(self.fd, self._pending)
            except BlockingIOError:
                return
            except OSError:
                self._pending.clear()  # it is gone; reading reports that
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
    """Wrap a sequence for the terminal behind tmux."""
    return "\x1bPtmux;" + sequence.replace("\x1b", "\x1b\x1b") + "\x1b\\"


def _raw(attributes: Attributes) -> Attributes:
    """Return attributes without echo, line editing, key signals and output processing."""
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
