"""The mapping of zot's and pi's frames to lifecycle events."""

from __future__ import annotations

from typing import Any, Literal, get_args

from zot.observe.facts import fields_of

Lifecycle = Literal[
    "agent_start",
    "turn_start",
    "message_start",
    "message_update",
    "message_end",
    "tool_execution_start",
    "tool_execution_update",
    "tool_execution_end",
    "turn_end",
    "error",
    "agent_end",
]

ZOT: dict[str, Lifecycle] = {
    "user_message": "message_update",
    "turn_start": "turn_start",
    "assistant_start": "message_start",
    "text_delta": "message_update",
    "tool_use_start": "tool_execution_start",
    "tool_use_args": "tool_execution_update",
    "tool_use_end": "tool_execution_update",
    "tool_progress": "tool_execution_update",
    "tool_result": "tool_execution_end",
    "assistant_message": "message_end",
    "turn_end": "turn_end",
    "error": "error",
    "done": "agent_end",
    # `response`, `usage` and the standalone `tool_call` change nothing: a call was already
    # announced by `tool_use_start`, and no tool may start twice.
}
PI: dict[str, Lifecycle] = {name: name for name in get_args(Lifecycle)}
_TABLE: dict[str, Lifecycle] = {**PI, **ZOT}


def normalize(frame: dict[str, Any] | bytes | str) -> Lifecycle | None:
    """Return the lifecycle event of a frame; None: it has none, or is no frame."""
    return lifecycle_of(fields_of(frame))


def lifecycle_of(fields: dict[str, Any]) -> Lifecycle | None:
    kind = fields.get("type")
    return _TABLE.get(kind) if isinstance(kind, str) else None
