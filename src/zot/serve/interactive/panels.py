"""Panels of extensions: lines of text above the editor that take all keys."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from zot.core.events import ExtensionPanel
from zot.errors import CommandError
from zot.tui.cells import Line, clean, clip
from zot.tui.keys import KeyPress
from zot.tui.menu import Drawn, Overlay

if TYPE_CHECKING:
    from zot.serve.interactive.app import App

KEYS = frozenset(
    ("up", "down", "left", "right", "enter", "esc", "tab", "pageup", "pagedown", "home", "end")
    + ("backspace", "delete")
)
"""Keys that the protocol can name; others are not forwarded."""


class PanelBox(Overlay):
    """One panel. Ctrl+C always closes it."""

    def __init__(self, app: App, extension: str, id: str) -> None:
        self._app = app
        self.extension = extension
        self.panel = id
        self._title = self._footer = ""
        self._lines: list[str] = []
        self._size = (0, 0)

    def show(self, panel: dict[str, object]) -> None:
        lines = panel.get("lines")
        self._lines = [str(line) for line in lines] if isinstance(lines, list) else []
        self._title = str(panel.get("title") or "") or self._title
        self._footer = str(panel.get("footer") or "")

    def draw(self, width: int, height: int) -> Drawn:
        room = max(1, height - 2)
        self._tell_size(width, room)
        head: Line = (("heading", clean(self._title or self.extension)),)
        rows: list[Line] = [(("", clean(line)),) for line in self._lines[:room]]
        foot: Line = (("dim", clean(self._footer or "ctrl+c closes")),)
        return Drawn([clip(line, width) for line in (head, *rows, foot)][:height])

    def _tell_size(self, width: int, height: int) -> None:
        """Send the extension the available size when it changes."""
        if self._size != (width, height):
            self._size = (width, height)
            runtime = self._app.runtime
            self._send(runtime.commands.panel_resize, width, height)

    def key(self, key: KeyPress) -> None:
        runtime = self._app.runtime
        if key.name == "ctrl+c":
            self._app.close(self)
            self._send(runtime.commands.panel_close)
        elif key.name in ("text", "paste"):
            for letter in key.text:
                self._send(runtime.commands.panel_key, "rune", letter)
        elif key.name in KEYS:
            self._send(runtime.commands.panel_key, key.name)

    def spoken(self) -> list[str]:
        return [clean(line) for line in (self._title or self.extension, *self._lines, self._footer)]

    def take_line(self, text: str) -> bool:
        """Send the letters, then Enter; an empty line closes the panel."""
        if not text:
            self.key(KeyPress("ctrl+c"))
            return True
        self.key(KeyPress("text", text))
        self.key(KeyPress("enter"))
        return False

    def _send(self, send: Callable[..., None], *words: object) -> None:
        try:
            send(self.extension, self.panel, *words)
        except CommandError:
            self._app.close(self)  # the extension has ended


def take_panel(app: App, event: ExtensionPanel) -> None:
    """Open, draw or close a panel as the event says."""
    id = str(event.panel.get("id", ""))
    box = next(
        (
            box
            for box in app.overlays
            if isinstance(box, PanelBox) and (box.extension, box.panel) == (event.extension, id)
        ),
        None,
    )
    match event.action:
        case "open":
            if box is None:
                box = PanelBox(app, event.extension, id)
                app.open(box, unasked=True)
            box.show(event.panel)
        case "render":
            if box is not None:
                box.show(event.panel)
        case "close":
            if box is not None:
                app.close(box)
