"""Questions of the agent to the person: may this tool run, and what extensions ask."""

from __future__ import annotations

from typing import TYPE_CHECKING

from zot.core import events
from zot.runtime.approval import Decision
from zot.tui.menu import AnswerKey, Menu, MenuItem, QuestionBox

if TYPE_CHECKING:
    from zot.core.events import Event
    from zot.serve.interactive.app import App


def take(app: App, event: Event) -> None:
    """Open a question when an event asks one, and close it when it was answered elsewhere."""
    match event:
        case events.ApprovalRequest():
            ask_approval(app, event)
        case events.ApprovalResolved(id):
            for overlay in [box for box in app.overlays if getattr(box, "id", "") == id]:
                app.close(overlay)
        case events.ExtensionAsk():
            ask_for_extension(app, event)
        case _:
            pass


class ApprovalBox(QuestionBox):
    """Whether a tool may run."""

    id = ""


def ask_approval(app: App, event: events.ApprovalRequest) -> None:
    def answer(value: object, text: str) -> None:
        app.close(box)
        decision: Decision = "deny"
        if value in ("allow", "allow_session"):
            decision = "allow" if value == "allow" else "allow_session"
        app.runtime.approve(event.id, decision, text)

    name = event.call.name
    replies = [
        AnswerKey("y", "yes", "allow"),
        AnswerKey("a", f"yes, and do not ask again for {name} in this session", "allow_session"),
        AnswerKey("n", "no", "deny"),
        AnswerKey("r", "no, and tell the model why", "deny", wants_text=True),
    ]
    box = ApprovalBox(
        f"May zot use {name}?", event.preview, replies, answer, leave=lambda: answer("deny", "")
    )
    box.id = event.id
    app.open(box, unasked=True)


def ask_for_extension(app: App, event: events.ExtensionAsk) -> None:
    title = f"[{event.extension}] {event.title}"

    def value(picked: object, text: str = "") -> None:
        app.close(box)
        app.runtime.answer(event.id, value=text or (picked if isinstance(picked, str) else ""))

    def confirm(picked: object, text: str) -> None:
        app.close(box)
        app.runtime.answer(event.id, confirmed=picked == "yes")

    def cancel() -> None:
        app.close(box)
        app.runtime.answer(event.id, cancelled=True)

    box: QuestionBox | Menu
    match event.method:
        case "confirm":
            keys = [AnswerKey("y", "yes", "yes"), AnswerKey("n", "no", "no")]
            box = QuestionBox(title, event.message, keys, confirm, leave=cancel)
        case "select":
            items = [MenuItem(option) for option in event.options]
            box = Menu(title, items, value, leave=cancel)
        case "input" | "editor":
            text = event.message or event.placeholder
            box = QuestionBox(title, text, [], value, leave=cancel, text=event.prefill)
    app.open(box, unasked=True)
