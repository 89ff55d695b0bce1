"""Waits for keys, signals and what other threads have to say, and draws. One thread, no timer when
nothing happens: an idle terminal costs nothing.
"""

from __future__ import annotations

import os
import select
import signal
import time
from collections import deque
from collections.abc import Callable, Sequence
from typing import Protocol

from msgspec import Struct

from zot.tui.cells import Line
from zot.tui.keys import KeyPress
from zot.tui.screen import LiveScreen, Reflow
from zot.tui.terminal import Terminal

FRAME_SECONDS = 1 / 60
ENDING = tuple(getattr(signal, f"SIG{name}") for name in ("TERM", "HUP", "INT", "QUIT"))
"""Signals that end the program in an orderly way; keys do not send them."""


class Picture(Struct, frozen=True):
    """What is to be seen: lines that are final, the live area, and the cursor in it."""

    settled: Sequence[Line]
    live: Sequence[Line]
    row: int
    column: int


class Drawn(Protocol):
    """What the loop shows, and who gets the keys."""

    def key(self, key: KeyPress) -> None: ...

    def picture(self, columns: int, rows: int) -> Picture: ...

    def tick(self) -> float | None:
        """Called before each frame; the seconds after which another one is due, if any."""
        ...

    def signalled(self, number: int) -> None:
        """A signal that ends the program."""
        ...


class Loop:
    def __init__(self, terminal: Terminal, screen: LiveScreen, reflow: Reflow = "all") -> None:
        self.terminal = terminal
        self.screen = screen
        self._reflow = reflow
        self._posted: deque[Callable[[], None]] = deque()
        self._wake_read, self._wake_write = os.pipe()
        os.set_blocking(self._wake_read, False)
        os.set_blocking(self._wake_write, False)
        self._awake = False
        self._code: int | None = None
        self._size = terminal.size()
        self._drawn_at = 0.0
        self._stale = True

    # --- from any thread ---------------------------------------------------------------------

    def post(self, action: Callable[[], None]) -> None:
        """Have the loop's thread do this soon, and draw."""
        self._posted.append(action)
        self.wake()

    def wake(self) -> None:
        """Something is to be drawn."""
        if not self._awake:
            self._awake = True
            self._wake(b"\0")

    def _wake(self, byte: bytes) -> None:
        try:
            os.write(self._wake_write, byte)
        except OSError:
            pass  # full of reasons to wake up, or the end has come

    # --- its own thread ----------------------------------------------------------------------

    def end(self, code: int) -> None:
        self._code = code

    def run(self, shown: Drawn) -> int:
        """Until `end` is called; the exit code."""
        self._listen_to_signals()
        poll = select.poll()
        poll.register(self._wake_read, select.POLLIN)
        self._keys(shown, self.terminal.early())
        try:
            while self._code is None:
                wait = self._draw(shown)
                events = select.POLLIN | (select.POLLOUT if self.terminal.busy else 0)
                poll.register(self.terminal.fd, events)
                ready = dict(poll.poll(None if wait is None else max(0.0, wait) * 1000))
                self._take(shown, ready)
        finally:
            signal.set_wakeup_fd(-1)
        return self._code

    def _listen_to_signals(self) -> None:
        signal.set_wakeup_fd(self._wake_write, warn_on_full_buffer=False)
        for number in (*ENDING, signal.SIGWINCH, signal.SIGCONT):
            signal.signal(number, lambda *_: None)  # the byte on the pipe is what counts

    def _draw(self, shown: Drawn) -> float | None:
        """Draw if it is time; how long to wait for the next frame, None: until something comes."""
        while self._posted:
            self._posted.popleft()()
        left = self._drawn_at + FRAME_SECONDS - time.monotonic()
        again = shown.tick()
        if self.terminal.busy:
            return None
        if left > 0 and self._stale:
            return left
        if self._stale:
            self._stale = False
            self.draw_now(shown)
        if self.terminal.waits:
            return self.terminal.escape_seconds
        return again

    def draw_now(self, shown: Drawn) -> None:
        columns, rows = self._size
        picture = shown.picture(columns, rows)
        text = self.screen.frame(picture.settled, picture.live, picture.row, picture.column)
        if text:
            self.terminal.write(text)
        self._drawn_at = time.monotonic()

    def _take(self, shown: Drawn, ready: dict[int, int]) -> None:
        if self._wake_read in ready:
            self._woken(shown)
        terminal = self.terminal
        happened = ready.get(terminal.fd, 0)
        if happened & select.POLLOUT:
            terminal.push()
            self._stale = True
        if happened & ~select.POLLOUT:
            keys = terminal.read()
            if keys is None:
                shown.signalled(signal.SIGHUP)
                return
            self._keys(shown, keys)
        elif not ready:
            if terminal.waits:
                self._keys(shown, terminal.flush())
            self._stale = True  # its time has come

    def _keys(self, shown: Drawn, keys: list[KeyPress]) -> None:
        for key in keys:
            shown.key(key)
        if keys:
            self._stale = True
            self._drawn_at = 0.0  # an echo does not wait for the next frame

    def _woken(self, shown: Drawn) -> None:
        self._awake = False  # before reading: what comes from now on wakes again
        received = os.read(self._wake_read, 4096)
        self._stale = True
        if signal.SIGWINCH in received or signal.SIGCONT in received:
            self.resized()
        for number in ENDING:
            if number in received:
                shown.signalled(number)

    def resized(self) -> None:
        """The terminal may have another size: the live area is drawn anew."""
        size = self.terminal.size()
        if size != self._size:
            self._size = size
            self.terminal.write(self.screen.resized(size[0], self._reflow))
        self._stale = True

    def redraw(self) -> None:
        """Draw the live area anew where it stands, over whatever somebody else wrote there."""
        self.terminal.write(self.screen.leave())
        self._stale = True

    def suspend(self) -> None:
        """Stop like any program of the shell; go on when it says so."""
        self.release()
        os.kill(os.getpid(), signal.SIGSTOP)
        self.regain()

    def release(self) -> None:
        """Give the terminal to somebody else."""
        self.terminal.write(self.screen.leave())
        self.terminal.leave()

    def regain(self) -> None:
        self.terminal.enter()
        self._size = self.terminal.size()
        self.screen.forget()
        self._stale = True

    def close(self) -> None:
        os.close(self._wake_read)
        os.close(self._wake_write)
