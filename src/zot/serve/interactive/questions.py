"""Questions to the person: tool approvals and questions of extensions."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec

from zot.core import events
from zot.errors import CommandError
from zot.runtime.approval import Decision
from zot.serve.interactive.panels import take_panel
from zot.tui.blocks import diff_lines
from zot.tui.cells import Line, visible, wrap
from zot.tui.links import file_word
from zot.tui.menu import AnswerKey, MenuItem, QuestionBox, ShownQuestion, TakesAnswer

if TYPE_CHECKING:
    from zot.core.events import Event
    from zot.serve.interactive.app import App


def take(app: App, event: Event) -> None:
    """Open a question for an event, or close one that was answered elsewhere."""
    match event:
        case events.ApprovalRequest():
            app.call_back(f"zot wants to use {event.call.name}")
            ApprovalQuestion(app, event).ask()
        case events.ApprovalResolved(id):
            _close(app, id)
        case events.ExtensionAsk():
            app.call_back(f"{event.extension} asks: {event.title}")
            ask_for_extension(app, event)
        case events.ExtensionPanel():
            take_panel(app, event)
        case events.TurnStart():
            app.failure = ""
        case events.ErrorRaised(_, code):
            app.failure = code
        case events.Done(stop):
            app.call_back("zot is done")
            if stop == "error" and not app.runtime.runs.busy:
                from zot.serve.interactive.slash import models as slash_models

                slash_models.rescue(app, app.failure)
        case _:
            pass


class ApprovalQuestion:
    """A tool call that waits to be allowed, changed or refused."""

    def __init__(self, app: App, event: events.ApprovalRequest) -> None:
        self._app = app
        self._event = event

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
        return ((f"accent {file_word(path)}", visible(path)),) if self._event.diff else ()

    def _body(self, width: int) -> list[Line]:
        event = self._event
        if not event.diff:
            return wrap([("", visible(event.preview))], width)
        return diff_lines(event.diff, event.line, width, self._path())

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
        _close(self._app, self._event.id)

    def _open(self, question: ShownQuestion, answer: TakesAnswer) -> None:
        """Open a question. Esc returns from a follow-up to the first one, where it refuses."""
        first = bool(question.replies)

        def leave() -> None:
            if first:
                self._answer("deny")
            else:
                self._app.close(box)

        box = QuestionBox(question, answer, leave=leave)
        box.id = self._event.id
        self._app.open(box, unasked=first)


def first_change(body: list[Line]) -> int:
    """Return the index of the first changed line of a diff."""
    changed = (at for at, line in enumerate(body) if {"add", "del"} & {style for style, _ in line})
    return next(changed, 0)


def _close(app: App, id: str) -> None:
    app.overlays[:] = [overlay for overlay in app.overlays if overlay.id != id]


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
            app.ask(
                ShownQuestion(title, event.message, replies),
                lambda yes, _: answer(confirmed=yes),
                leave=cancel,
                unasked=True,
            )
        case "select":
            items = [MenuItem(option) for option in event.options]
            app.choose(title, items, lambda o: answer(value=o), leave=cancel, unasked=True)
        case "input" | "editor":
            app.ask(
                ShownQuestion(title, event.message or event.placeholder, text=event.prefill),
                lambda _, text: answer(value=text),
                leave=cancel,
                unasked=True,
            )
