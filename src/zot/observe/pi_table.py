"""The frames of pi's protocol as facts. Frames that share a name with zot's are distinguished by
their fields."""

from __future__ import annotations

from typing import Any

from zot.observe import facts
from zot.observe.facts import count_of, list_of, number_of, object_of, text_of, text_of_blocks

DIALOGS = frozenset({"", "select", "confirm", "input", "editor"})
"""Methods of extension requests that need an answer; the others are notifications."""


def _message_start(fields: dict[str, Any]) -> facts.Fact | facts.Facts:
    message = object_of(fields, "message")
    match text_of(message, "role"):
        case "user":
            return facts.UserSaid(_content(message))
        case "assistant" | "":
            return facts.MessageStarted()
    return ()


def _message_update(fields: dict[str, Any]) -> facts.Fact:
    update = object_of(fields, "assistantMessageEvent")
    delta = text_of(update, "delta")
    match update.get("type"):
        case "text_delta":
            return facts.TextAdded(delta)
        case "thinking_delta":
            return facts.ThoughtAdded(delta)
        case "toolcall_delta":
            return facts.ToolArgsAdded(text_of(object_of(update, "toolCall"), "id"), delta)
    return facts.TextAdded("")


def _message_end(fields: dict[str, Any]) -> facts.Facts:
    message = object_of(fields, "message")
    if text_of(message, "role") not in ("assistant", ""):
        return ()
    ended: facts.Facts = (facts.MessageEnded(_content(message)),)
    if "usage" in message:
        ended = (*ended, _tokens(object_of(message, "usage")))
    if text_of(message, "model"):
        ended = (*ended, facts.RunsModel(text_of(message, "model")))
    match message.get("stopReason"):
        case "aborted":
            ended = (*ended, facts.TurnEnded("aborted"))
        case "error":
            reason = text_of(message, "errorMessage") or "unknown error"
            ended = (*ended, facts.TurnEnded("error", reason))
    return ended


def _content(message: dict[str, Any]) -> str:
    content = message.get("content")
    return content if isinstance(content, str) else _blocks(message)


def _blocks(result: dict[str, Any]) -> str:
    return text_of_blocks(list_of(result, "content"))


def _tokens(usage: dict[str, Any]) -> facts.UsedTokens:
    return facts.UsedTokens(
        input=count_of(usage, "input"),
        output=count_of(usage, "output"),
        cache_read=count_of(usage, "cacheRead"),
        cache_write=count_of(usage, "cacheWrite"),
        cost_usd=number_of(object_of(usage, "cost"), "total"),
    )


def _tool_start(fields: dict[str, Any]) -> facts.Facts:
    id, name = text_of(fields, "toolCallId"), text_of(fields, "toolName")
    return (facts.ToolWritten(id, name, object_of(fields, "args")), facts.ToolRuns(id))


def _tool_update(fields: dict[str, Any]) -> facts.ToolSaid:
    text = _blocks(object_of(fields, "partialResult"))
    return facts.ToolSaid(text_of(fields, "toolCallId"), text, whole=True)


def _tool_end(fields: dict[str, Any]) -> facts.ToolEnded:
    text = _blocks(object_of(fields, "result"))
    return facts.ToolEnded(text_of(fields, "toolCallId"), fields.get("isError") is True, text)


def _ui_request(fields: dict[str, Any]) -> facts.Fact | facts.Facts:
    asks = text_of(fields, "method") in DIALOGS
    return facts.dialog(fields, "id", "timeout") if asks else ()


def _retry_ended(fields: dict[str, Any]) -> facts.Fact | facts.Facts:
    if fields.get("success") is False:
        return facts.Failed(text_of(fields, "finalError") or "the retries failed")
    return ()


PI_TABLE: dict[str, facts.FrameReader] = {
    "agent_start": lambda f: facts.RunStarted(),
    "message_start": _message_start,
    "message_update": _message_update,
    "message_end": _message_end,
    "tool_execution_start": _tool_start,
    "tool_execution_update": _tool_update,
    "tool_execution_end": _tool_end,
    "agent_end": lambda f: facts.RunEnded(),
    "extension_ui_request": _ui_request,
    "auto_retry_start": lambda f: facts.Retrying(text_of(f, "errorMessage") or "it failed"),
    "auto_retry_end": _retry_ended,
    "compaction_start": lambda f: facts.CompactStarted(),
    "compaction_end": lambda f: facts.CompactEnded(text_of(object_of(f, "result"), "summary")),
}
