"""Line mode of the terminal, for screen readers, dumb terminals and logs: labels, numbered menus,
no redrawing. The terminal itself edits the line.
"""

from __future__ import annotations

import os
import select
import signal
import termios
import time
from typing import TYPE_CHECKING

from zot.lines import LineCutter, write_all
from zot.serve.interactive.app import App
from zot.serve.interactive.loop import ENDING, Loop
from zot.text import printable
from zot.tui.blocks import NoteBlock, ThinkingBlock, ToolBlock, UserBlock
from zot.tui.cells import plain
from zot.tui.screen import LiveScreen
from zot.tui.theme import Theme

if TYPE_CHECKING:
    from collections.abc import Callable

    from zot.home import Surroundings
    from zot.settings.resolve import Plan
    from zot.tui.blocks import LiveBlock
    from zot.tui.menu import Overlay

WIDTH = 10_000
"""Columns: no wrapping, since the screen reader or terminal does that better."""
WELCOME = "zot, line by line (--linear). /help lists commands, Ctrl+C stops, Ctrl+D leaves."
MENU_SECONDS = 3.0
THEME = Theme(colour=False, links=False)


def run(find_plan: Callable[..., Plan], prompt: str, around: Surroundings) -> int:
    """Run until the person leaves; return the exit code."""
    loop = LinearLoop()
    app = LinearApp(loop, find_plan, around)
    say(WELCOME)
    try:
        if prompt:
            app.submit(prompt)
        app.load()
        code = loop.run_lines(app)
    finally:
        app.close()
    if app.fatal is not None:
        raise app.fatal
    return code


class LineTerminal:
    """Reads and writes lines; drops escape sequences written to the terminal."""

    def size(self) -> tuple[int, int]:
        return WIDTH, 1

    def write(self, text: str) -> None:
        """Ignore: titles, copies and bells are for terminals that draw."""


class LinearLoop(Loop):
    """Waits for lines instead of keys."""

    def __init__(self) -> None:
        super().__init__(LineTerminal(), LiveScreen(THEME))  # type: ignore[arg-type]  # all it uses
        self._lines = LineCutter()

    def run_lines(self, app: LinearApp) -> int:
        """Run until `end` is called; return the exit code."""
        self._listen_to_signals()
        poll = select.poll()
        poll.register(self._wake_read, select.POLLIN)
        poll.register(0, select.POLLIN)
        try:
            while self._code is None:
                self._do_posted()
                wait = app.tick()
                app.say_news()
                if self.ended:
                    continue
                ready = dict(poll.poll(None if wait is None else max(0.0, wait) * 1000))
                if self._wake_read in ready:
                    self._hear(app)
                if 0 in ready:
                    self._read(app)
        finally:
            signal.set_wakeup_fd(-1)
            if app.hidden:
                show_typing(True)
        return self._code

    def _hear(self, app: LinearApp) -> None:
        received = os.read(self._wake_read, 4096)
        self._awake = False  # after reading: see Loop
        for number in ENDING:
            if number in received:
                app.signalled(number)

    def _read(self, app: LinearApp) -> None:
        try:
            data = os.read(0, 65536)
        except OSError:
            data = b""
        if not data:
            self.end(0)
            return
        for line in self._lines.feed(data):
            app.take_line(line.decode("utf-8", "replace"))

    def use_theme(self, theme: Theme) -> None:
        """Ignore: there are no colours."""

    def open_full(self, overlay: Overlay, theme: Theme) -> None:
        for line in overlay.spoken():
            say(line)

    def close_full(self) -> None:
        """Do nothing: there is no alternate screen."""

    def release(self) -> None:
        """Do nothing: the terminal is in its normal mode."""

    def regain(self, *, from_guest: bool = False) -> None:
        """Do nothing: `release` changed nothing."""


def say(text: str) -> None:
    write_all(1, printable(text).encode("utf-8", "replace") + b"\n")


class LinearApp(App):
    """Prints each new block once, with a label."""

    spoken = True

    def __init__(
        self, loop: LinearLoop, find_plan: Callable[..., Plan], around: Surroundings
    ) -> None:
        super().__init__(loop, find_plan, around, theme=THEME)
        self._announced: Overlay | None = None
        self.hidden = False
        """True while a secret is typed, which the terminal must not echo."""
        self._waiting = False
        self._heard_at = 0.0
        """Time at which a line was typed last."""
        self._running = ""
        self._typed: list[str] = []

    def tick(self) -> float | None:
        waits = (super().tick(), self._menu_may_come() or None)
        return min((wait for wait in waits if wait is not None), default=None)

    def _menu_may_come(self) -> float:
        """Return the seconds left to wait for a menu that a command prepares in a thread; short, so
        that a login or download of minutes is not waited for."""
        return max(0.0, self._heard_at + MENU_SECONDS - time.monotonic()) if self.working else 0.0

    def say_news(self) -> None:
        """Print everything settled since the last call, then the question or prompt."""
        if self.view is None:
            return
        for block, is_first, lines in self.view.settled(WIDTH):
            self._say_block(block, is_first, [plain(line).rstrip() for line in lines])
        activity = self.view.activity
        if activity.startswith("running") and activity != self._running:
            self._line(f"tool: {activity}")
        self._running = activity
        self._ask()

    def _say_block(self, block: LiveBlock, is_first: bool, lines: list[str]) -> None:
        if isinstance(block, UserBlock) and block.text in self._typed:
            self._typed.remove(block.text)
            return  # it is on the screen already
        if isinstance(block, UserBlock):
            lines = block.text.split("\n")
        elif isinstance(block, ToolBlock):
            lines[0] = lines[0][2:] + (", failed" if block.failed else "")  # without its mark
        label = _label(block) if is_first else ""
        for index, line in enumerate(line for line in lines if line):
            self._line(f"{label}: {line}" if label and index == 0 else line)

    def _ask(self) -> None:
        """Print an open question, or the prompt once zot is idle."""
        overlay = self.dialogs.top
        if (overlay is not None and overlay.secret) != self.hidden:
            self.hidden = not self.hidden
            show_typing(not self.hidden)
        if overlay is not None:
            if overlay is not self._announced:
                label = "permission" if overlay.id else "question"
                for index, line in enumerate(overlay.spoken()):
                    self._line(f"{label}: {line}" if index == 0 else line)
            self._announced = overlay
            return
        self._announced = None
        busy = self.loading or (self.built is not None and self.built.runs.busy)
        busy = busy or self._menu_may_come() > 0
        if not busy and not self._waiting:
            write_all(1, b"you: ")
            self._waiting = True

    def _line(self, text: str) -> None:
        if self._waiting:
            write_all(1, b"\n")
            self._waiting = False
        say(text)

    def take_line(self, text: str) -> None:
        self._waiting = False
        self._heard_at = time.monotonic()
        if (overlay := self.dialogs.top) is not None:
            if not overlay.take_line(text):
                self._announced = None  # so that it is printed again
            return
        self._typed.append(text)
        self.editor.set(text)
        self.act("submit")

    def signalled(self, number: int) -> None:
        """Abort the turn on Ctrl+C, or exit if nothing runs."""
        if number == signal.SIGINT and self.built is not None and self.built.abort():
            return
        super().signalled(number)


def _label(block: LiveBlock) -> str:
    match block:
        case UserBlock():
            return "you"
        case ToolBlock():
            return "tool"
        case ThinkingBlock():
            return "thinking"
        case NoteBlock(level="error"):
            return "error"
        case NoteBlock():
            return "note"
        case _:
            return "zot"


def show_typing(on: bool) -> None:
    """Turn the terminal's echo on or off."""
    try:
        attributes = termios.tcgetattr(0)
        attributes[3] = attributes[3] | termios.ECHO if on else attributes[3] & ~termios.ECHO
        termios.tcsetattr(0, termios.TCSADRAIN, attributes)
    except termios.error:
        pass  # no terminal: there is no echo
