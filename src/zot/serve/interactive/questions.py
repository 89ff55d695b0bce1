"""Questions to the person: tool approvals, questions of extensions, and their panels."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import msgspec

from zot.core import events
from zot.errors import CommandError
from zot.runtime.approval import Decision
from zot.tui.cells import Line, clean, clip, visible, wrap
from zot.tui.diff import DiffLines, counts_line
from zot.tui.keys import KeyPress
from zot.tui.links import file_word
from zot.tui.menu import (
    AnswerKey,
    Drawn,
    MenuItem,
    Overlay,
    QuestionBox,
    ShownQuestion,
    TakesAnswer,
)

if TYPE_CHECKING:
    from zot.serve.interactive.app import App

PANEL_KEYS = frozenset(
    ("up", "down", "left", "right", "enter", "esc", "tab", "pageup", "pagedown", "home", "end")
    + ("backspace", "delete")
)
"""Keys that the protocol can name; others are not forwarded."""


class ApprovalQuestion:
    """A tool call that waits to be allowed, changed or refused."""

    def __init__(self, app: App, event: events.ApprovalRequest) -> None:
        self._app = app
        self._event = event
        self._diff: tuple[int, DiffLines] | None = None
        """The drawn diff and its width."""

    def ask(self) -> None:
        event, name = self._event, self._event.call.name
        every = f"yes, to every {name} in this session"
        replies = [AnswerKey("y", "yes", "allow")]
        replies.append(AnswerKey("a", every, "allow_session", short="all"))
        if event.pattern:
            label = f"yes, always in this project: {visible(event.pattern)}"
            replies.append(AnswerKey("p", label, "project", short="always"))
        no = "no, and tell the model why"
        replies += [
            AnswerKey("e", "change it first", "edit", short="edit"),
            AnswerKey("n", "no", "deny"),
            AnswerKey("r", no, "deny", wants_text=True, short="why"),
        ]
        title = f"May zot use {name}?"
        question = ShownQuestion(
            title, self._body, replies, subject=self._subject(), start=first_change
        )
        self._open(question, self._answered)

    def _path(self) -> str:
        return str((self._event.call.args or {}).get("path", ""))

    def _subject(self) -> Line:
        """Return the file that would change."""
        path = self._path()
        if not self._event.diff:
            return ()
        return (
            *((*counts_line(self._event.diff), ("", "  "))),
            (f"accent {file_word(path)}", visible(path)),
        )

    def _body(self, width: int) -> Sequence[Line]:
        event = self._event
        if not event.diff:
            return wrap([("", visible(event.preview))], width)
        if self._diff is None or self._diff[0] != width:
            self._diff = width, DiffLines(event.diff, width, self._path(), event.line)
        return self._diff[1]

    def _answered(self, value: object, text: str) -> None:
        match value:
            case "project":
                title = "Always allow in this project:"
                self._open(ShownQuestion(title, _PATTERNS, text=self._event.pattern), self._keep)
            case "edit":
                self._edit()
            case _:
                decisions: dict[object, Decision] = {
                    "allow": "allow",
                    "allow_session": "allow_session",
                }
                self._answer(decisions.get(value, "deny"), reason=text)

    def _keep(self, _: object, pattern: str) -> None:
        self._answer("allow_project", pattern=pattern.strip())

    def _edit(self) -> None:
        args = self._event.call.args or {}
        if isinstance(command := args.get("command"), str) and "\n" not in command:
            title, text = "Run instead:", command
        else:
            title, text = "Arguments, as JSON:", msgspec.json.encode(args).decode()
        self._open(ShownQuestion(title, text=text), lambda _, changed: self._run_changed(changed))

    def _run_changed(self, text: str) -> None:
        args = self._event.call.args or {}
        if isinstance(args.get("command"), str) and not text.lstrip().startswith("{"):
            changed: dict[str, Any] = {**args, "command": text}
        else:
            try:
                changed = msgspec.json.decode(text, type=dict[str, Any])
            except msgspec.MsgspecError as error:
                raise CommandError(f"these are no arguments: {error}") from error
        self._answer("allow", args=changed)

    def _answer(self, decision: Decision, reason: str = "", **more: Any) -> None:
        """Send the answer; close the question only once the runtime has accepted it."""
        self._app.runtime.approve(self._event.id, decision, reason, **more)
        self._app.dialogs.close_request(self._event.id)

    def _open(self, question: ShownQuestion, answer: TakesAnswer) -> None:
        """Open a question. Esc returns from a follow-up to the first one, where it refuses."""
        first = bool(question.replies)

        def leave() -> None:
            if first:
                self._answer("deny")
            else:
                self._app.dialogs.close(box)

        box = QuestionBox(question, answer, leave=leave)
        box.id = self._event.id
        self._app.dialogs.open(box, unasked=first)


def first_change(body: Sequence[Line]) -> int:
    """Return the index of the first changed line of a diff."""
    return body.first_change if isinstance(body, DiffLines) else 0


_PATTERNS = (
    "words and * for whatever follows them, or a folder and /*; enter keeps it, esc goes back"
)


def ask_for_extension(app: App, event: events.ExtensionAsk) -> None:
    title = f"[{event.extension}] {event.title}"

    def answer(**said: Any) -> None:
        app.runtime.dialogs.answer(event.id, **said)

    def cancel() -> None:
        answer(cancelled=True)

    match event.method:
        case "confirm":
            replies = [AnswerKey("y", "yes", True), AnswerKey("n", "no", False)]
            app.dialogs.ask(
                ShownQuestion(title, event.message, replies),
                lambda yes, _: answer(confirmed=yes),
                leave=cancel,
                unasked=True,
            )
        case "select":
            items = [MenuItem(option) for option in event.options]
            app.dialogs.choose(title, items, lambda o: answer(value=o), leave=cancel, unasked=True)
        case "input" | "editor":
            app.dialogs.ask(
                ShownQuestion(title, event.message or event.placeholder, text=event.prefill),
                lambda _, text: answer(value=text),
                leave=cancel,
                unasked=True,
            )


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
            self._app.dialogs.close(self)
            self._send(runtime.commands.panel_close)
        elif key.name in ("text", "paste"):
            for letter in key.text:
                self._send(runtime.commands.panel_key, "rune", letter)
        elif key.name in PANEL_KEYS:
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
            self._app.dialogs.close(self)  # the extension has ended


def take_panel(app: App, event: events.ExtensionPanel) -> None:
    """Open, draw or close a panel as the event says."""
    id = str(event.panel.get("id", ""))
    box = next(
        (
            box
            for box in app.dialogs.overlays
            if isinstance(box, PanelBox) and (box.extension, box.panel) == (event.extension, id)
        ),
        None,
    )
    match event.action:
        case "open":
            if box is None:
                box = PanelBox(app, event.extension, id)
                app.dialogs.open(box, unasked=True)
            box.show(event.panel)
        case "render":
            if box is not None:
                box.show(event.panel)
        case "close":
            if box is not None:
                app.dialogs.close(box)
