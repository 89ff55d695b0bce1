"""Event loop: waits for keys, signals and calls from other threads, and draws. One thread, no timer
while nothing happens: an idle terminal costs nothing.
"""

from __future__ import annotations

import os
import select
import signal
import time
from collections import deque
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from msgspec import Struct

from zot.lines import poke
from zot.tui.cells import Line
from zot.tui.keys import KeyPress
from zot.tui.menu import Overlay
from zot.tui.screen import FullScreen, LiveScreen, Reflow
from zot.tui.terminal import Terminal
from zot.tui.theme import Theme

if TYPE_CHECKING:
    from zot.serve.interactive.app import App

FRAME_SECONDS = 1 / 25
"""Minimum seconds between frames of streamed output; keys are echoed at once."""
ENDING = tuple(getattr(signal, f"SIG{name}") for name in ("TERM", "HUP", "INT", "QUIT"))
"""Signals that end the program in an orderly way; keys do not send them."""


class Drawing(Struct, frozen=True):
    """A frame: final lines, the live area, and the cursor in it."""

    settled: Sequence[Line]
    live: Sequence[Line]
    row: int
    column: int


class Loop:
    def __init__(
        self,
        terminal: Terminal,
        screen: LiveScreen,
        reflow: Reflow = "all",
        resize_seconds: float = 0.0,
    ) -> None:
        """`resize_seconds`: after a resize the terminal may change again for that long without a
        signal. Nothing is drawn meanwhile."""
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
        self._full: tuple[FullScreen, Overlay] | None = None
        """Owner of the alternate screen."""
        self._inline_columns = self._size[0]
        """Terminal width when the live area was last drawn."""
        self._rows = self._size[1]
        self._resize_seconds = resize_seconds
        self._still_until = 0.0

    # --- from any thread ---------------------------------------------------------------------

    def post(self, action: Callable[[], None]) -> None:
        """Run the action on the loop's thread soon, then draw."""
        self._posted.append(action)
        self.wake()

    def wake(self) -> None:
        """Wake the loop to draw."""
        if not self._awake:
            self._awake = True
            poke(self._wake_write)

    # --- its own thread ----------------------------------------------------------------------

    def end(self, code: int) -> None:
        self._code = code

    @property
    def ended(self) -> bool:
        """Whether `end` was called, perhaps by a posted action just before the next wait."""
        return self._code is not None

    def run(self, shown: App) -> int:
        """Run until `end` is called; return the exit code."""
        self._listen_to_signals()
        self._keys(shown, self.terminal.early())
        self.draw_now(shown)  # first: posted actions may start to load the agent
        self._stale = False
        try:
            while self._code is None:
                wait = self._draw(shown)
                if not self.ended:
                    self._take(shown, self._wait(wait))
        finally:
            signal.set_wakeup_fd(-1)
        return self._code

    def _wait(self, seconds: float | None) -> dict[int, int]:
        """Return the ready descriptors. While a frame is due, the wake-up pipe is not polled: it
        would only say again that there is something to draw."""
        poll = select.poll()
        poll.register(
            self.terminal.fd, select.POLLIN | (select.POLLOUT if self.terminal.busy else 0)
        )
        if not self._stale or seconds is None:
            poll.register(self._wake_read, select.POLLIN)
        return dict(poll.poll(None if seconds is None else max(0.0, seconds) * 1000))

    def _listen_to_signals(self) -> None:
        signal.set_wakeup_fd(self._wake_write, warn_on_full_buffer=False)
        for number in (*ENDING, signal.SIGWINCH, signal.SIGCONT):
            signal.signal(number, lambda *_: None)  # the byte on the pipe is what counts

    def _draw(self, shown: App) -> float | None:
        """Draw if it is time; return the seconds to the next frame, or None to wait for input."""
        self._do_posted()
        left = self._drawn_at + FRAME_SECONDS - time.monotonic()
        again = shown.tick()
        if self.terminal.busy:
            return None
        left = max(left, self._still_until - time.monotonic())
        if left > 0 and self._stale:
            return left
        if self._stale:
            self._woken(shown)  # whatever woke us is drawn now, not once more afterwards
            self._do_posted()  # also actions posted since the first call
            shown.tick()
            if self._still_until > time.monotonic():
                return self._still_until - time.monotonic()
            self._stale = False
            self.draw_now(shown)
        if self.terminal.waits:
            return self.terminal.escape_seconds
        return again

    def _do_posted(self) -> None:
        while self._posted:
            self._posted.popleft()()

    def draw_now(self, shown: App) -> None:
        columns, rows = self._size
        self._drawn_at = time.monotonic()
        if self._full is not None:
            screen, overlay = self._full
            drawn = overlay.draw(columns, rows)
            self.terminal.write(screen.frame(drawn.lines, *(drawn.cursor or (rows - 1, 0))))
            return
        picture = shown.picture(columns, rows)
        text = self.screen.frame(picture.settled, picture.live, picture.row, picture.column)
        if text:
            self.terminal.write(text)

    def _take(self, shown: App, ready: dict[int, int]) -> None:
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
            self._stale = True  # the timeout has passed

    def _keys(self, shown: App, keys: list[KeyPress]) -> None:
        for key in keys:
            shown.key(key)
        if keys:
            self._stale = True
            self._drawn_at = 0.0  # an echo does not wait for the next frame

    def _woken(self, shown: App) -> None:
        try:
            received = os.read(self._wake_read, 4096)
        except BlockingIOError:
            received = b""
        # Clear after reading: a byte written in between would be lost, and no other would follow.
        # The caller runs actions posted before this; later ones wake the loop again.
        self._awake = False
        if not received:
            return
        self._stale = True
        if signal.SIGWINCH in received or signal.SIGCONT in received:
            self.resized()
        for number in ENDING:
            if number in received:
                shown.signalled(number)

    def resized(self) -> None:
        """Update the size; redraw the full screen, or the live area if the size changed."""
        self._size = self.terminal.size()
        self._stale = True
        if self._full is not None:
            self._full[0].forget()
        elif self._size[0] != self._inline_columns or self._rows != self._size[1]:
            self._erase_live()

    def _erase_live(self) -> None:
        self._inline_columns, self._rows = self._size
        self.terminal.write(self.screen.resized(self._inline_columns, self._reflow))
        self._still_until = time.monotonic() + self._resize_seconds

    def open_full(self, overlay: Overlay, theme: Theme) -> None:
        """Give an overlay the alternate screen and all keys."""
        self._full = (FullScreen(theme), overlay)
        self.terminal.write(FullScreen.ENTER)
        self._stale = True

    def close_full(self) -> None:
        self._full = None
        self.terminal.write(FullScreen.LEAVE)
        self.resized()

    @property
    def full(self) -> Overlay | None:
        return self._full[1] if self._full is not None else None

    def redraw(self) -> None:
        """Redraw the live area in place, over other programs' output."""
        self.terminal.write(self.screen.leave())
        self._stale = True

    def use_theme(self, theme: Theme) -> None:
        """Redraw the live area in the new colours; settled lines keep theirs."""
        self.terminal.write(self.screen.leave())
        self.screen.use_theme(theme)
        self._stale = True

    def suspend(self) -> None:
        """Stop as other programs do on Ctrl+Z, until the shell continues us."""
        self.release()
        os.kill(os.getpid(), signal.SIGSTOP)
        self.regain()

    def release(self) -> None:
        """Hand the terminal to another program."""
        if self._full is not None:
            self.close_full()
        self.terminal.write(self.screen.leave())
        self.terminal.leave()

    def regain(self, *, from_guest: bool = False) -> None:
        """Take the terminal back. `from_guest`: from a program that we started and that may have
        died."""
        self.terminal.enter(as_found=from_guest)
        if from_guest:
            self.terminal.write(FullScreen.QUIT)
            self._forget_keys_of_guest()
        self._size = self.terminal.size()
        self._inline_columns, self._rows = self._size
        self.screen.forget()
        self._stale = True

    def _forget_keys_of_guest(self) -> None:
        """Drop SIGINT and SIGQUIT meant for the guest program; other signals still count."""
        try:
            received = os.read(self._wake_read, 4096)
        except BlockingIOError:
            return
        ours = bytes(n for n in received if n not in (signal.SIGINT, signal.SIGQUIT))
        os.write(self._wake_write, ours or b"\0")

    def close(self) -> None:
        os.close(self._wake_read)
        os.close(self._wake_write)
