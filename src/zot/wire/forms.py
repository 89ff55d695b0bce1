"""Questions of extensions as elicitation forms, and filled forms as answers; used by ACP and MCP.
No input or output."""

from __future__ import annotations

from typing import Any, assert_never

from zot.core.events import ExtensionAsk
from zot.core.source import CANCELLED, PersonAnswer

CREATE = "elicitation/create"


def form_of(ask: ExtensionAsk) -> tuple[str, dict[str, Any]]:
    """Return the form's message and the JSON Schema of its fields."""
    title = ask.title or ask.message or ask.extension
    message = f"{title}\n{ask.message}" if ask.title and ask.message else title
    schema: dict[str, Any]
    match ask.method:
        case "confirm":
            name, schema = "confirmed", {"type": "boolean", "title": title}
        case "select":
            name = "value"
            schema = {"type": "string", "title": title, "enum": list(ask.options)}
        case "input" | "editor":
            name, schema = "value", {"type": "string", "title": title}
            if ask.placeholder:
                schema["description"] = ask.placeholder
            if ask.prefill:
                schema["default"] = ask.prefill
        case _:
            assert_never(ask.method)
    return message, {"type": "object", "properties": {name: schema}, "required": [name]}


def answer_of(ask: ExtensionAsk, filled: Any) -> PersonAnswer:
    """Convert a filled form to an answer; anything unclear counts as cancelled."""
    match filled:
        case {"action": "decline"} if ask.method == "confirm":
            return PersonAnswer()
        case {"action": "accept", "content": {"confirmed": agreed}} if ask.method == "confirm":
            return PersonAnswer(confirmed=agreed is True)
        case {"action": "accept"} if ask.method == "confirm":
            return PersonAnswer()
        case {"action": "accept", "content": {"value": str(value)}}:
            return PersonAnswer(value)
        case _:
            return CANCELLED
