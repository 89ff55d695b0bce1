"""A side chat that sees the conversation and never becomes part of it. Drawn while open, also
during a turn, and discarded when closed.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from zot.cancel import Cancel
from zot.core.aside import Aside
from zot.errors import Cancelled, ZotError
from zot.provider.types import Message, ToolCall
from zot.tui.blocks import LiveBlock, NoteBlock, UserBlock
from zot.tui.cells import EMPTY, Line, clip
from zot.tui.editor import Editor
from zot.tui.keys import KeyPress
from zot.tui.markdown import MarkdownBlock
from zot.tui.menu import Drawn, Overlay, type_into

if TYPE_CHECKING:
    from zot.runtime.runtime import Runtime
    from zot.serve.interactive.app import App

TITLE = "On the side"
HINT = "nothing of this enters the conversation; enter asks, esc {}, page up scrolls"
STEP = 5
"""Lines scrolled per key press."""


class SideChat(Overlay):
    tall = True

    def __init__(self, app: App, runtime: Runtime) -> None:
        self._app = app
        self._runtime = runtime
        self._field = Editor()
        self._blocks: list[LiveBlock] = []
        self._said: tuple[Message, ...] = ()
        """Messages of the chat so far, sent with the next question."""
        self._asking: Cancel | None = None
        self._answer = MarkdownBlock()
        self._back = 0
        """Lines scrolled up."""

    # --- asking ------------------------------------------------------------------------------

    def ask(self, question: str) -> None:
        app, runtime = self._app, self._runtime
        cancel = self._asking = Cancel()
        self._back = 0
        self._add(UserBlock(question))
        self._begin_answer()

        def show(piece: str) -> None:
            app.loop.post(lambda: self._answer.add(piece))

        def reads(call: ToolCall) -> None:
            app.loop.post(lambda: self._looked(call))

        def work() -> Aside | None:
            try:
                return runtime.ask_aside(question, show, cancel, self._said, reads)
            except Cancelled:
                return None
            except ZotError as error:
                text = str(error)
                app.loop.post(lambda: self._add(NoteBlock(text, "error")))
                return None
            finally:
                app.loop.post(lambda: self._ended(cancel))

        app.work(work, self._answered)

    def _begin_answer(self) -> None:
        self._answer = MarkdownBlock(spoken=self._app.spoken)
        self._add(self._answer)

    def _looked(self, call: ToolCall) -> None:
        """Note that the model reads a file; begin a new paragraph."""
        self._answer.close()
        what = (call.args or {}).get("path") or (call.args or {}).get("pattern") or ""
        self._add(NoteBlock(f"{call.name} {what}"))
        self._begin_answer()

    def _answered(self, aside: Aside | None) -> None:
        if aside is not None:
            self._said = aside.messages
        self._app.refresh_status()

    def _ended(self, cancel: Cancel) -> None:
        self._answer.close()
        if cancel.is_set():
            self._add(NoteBlock("stopped"))
        if self._asking is cancel:
            self._asking = None

    def _add(self, block: LiveBlock) -> None:
        if self._app.spoken:  # line mode has no overlay to draw in
            self._app.show(block)
        else:
            self._blocks.append(block)

    # --- an overlay --------------------------------------------------------------------------

    def draw(self, width: int, height: int) -> Drawn:
        lines: list[Line] = []
        for block in self._blocks:
            drawn = block.lines(width)
            lines += [EMPTY, *drawn] if lines and drawn else drawn
        room = max(0, height - 3)
        self._back = max(0, min(self._back, len(lines) - room))
        end = len(lines) - self._back
        busy = self._asking is not None
        layout = self._field.layout(max(2, width - 2), 1)
        field: Line = (("prompt", "❯ "), *(layout.rows[0] if layout.rows else EMPTY))
        hint = HINT.format("stops" if busy else "leaves")
        head: Line = (("heading", TITLE), ("accent", "  answering" if busy else ""))
        drawn_lines = [clip(head, width), *lines[max(0, end - room) : end], field]
        foot: Line = (("dim", hint),)
        return Drawn([*drawn_lines, clip(foot, width)], (len(drawn_lines) - 1, 2 + layout.column))

    def key(self, key: KeyPress) -> None:
        match key.name:
            case "enter" if self._asking is None and self._field.text.strip():
                question = self._field.take()
                self.ask(question)
            case "esc" if self._asking is not None:
                self._asking.set()
            case "esc" | "ctrl+c":
                self._close()
            case "pageup" | "pagedown":
                self._back += STEP if key.name == "pageup" else -STEP
            case _:
                type_into(self._field, key)

    def spoken(self) -> list[str]:
        return [f"{TITLE}: ask; an empty line leaves"]

    def take_line(self, text: str) -> bool:
        if not text.strip():
            self._close()
        elif self._asking is None:
            self.ask(text)
        return True

    def _close(self) -> None:
        if self._asking is not None:
            self._asking.set()
        self._app.dialogs.close(self)
