"""The frames of pi's wire as facts. Names that it shares with zot's wire but means otherwise are
told apart by their fields.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from zot.observe import facts

DIALOGS = frozenset({"select", "confirm", "input", "editor"})
"""What an extension may ask that somebody has to answer; the other methods only tell."""


def _role(fields: dict[str, Any]) -> str:
    return facts.text_of(facts.object_of(fields, "message"), "role")


def _message_start(fields: dict[str, Any]) -> facts.Facts:
    if _role(fields) == "user":
        return (facts.UserSaid(_content(facts.object_of(fields, "message"))),)
    return (facts.MessageStarted(),) if _role(fields) in ("assistant", "") else ()


def _message_update(fields: dict[str, Any]) -> facts.Facts:
    update = facts.object_of(fields, "assistantMessageEvent")
    match update.get("type"):
        case "text_delta":
            return (facts.TextAdded(facts.text_of(update, "delta")),)
        case "thinking_delta":
            return (facts.ThoughtAdded(facts.text_of(update, "delta")),)
        case "toolcall_delta":
            call = facts.object_of(update, "toolCall")
            return (facts.ToolArgsAdded(facts.text_of(call, "id"), facts.text_of(update, "delta")),)
    return (facts.TextAdded(""),)


def _message_end(fields: dict[str, Any]) -> facts.Facts:
    message = facts.object_of(fields, "message")
    if _role(fields) not in ("assistant", ""):
        return ()
    ended: facts.Facts = (facts.MessageEnded(_content(message)),)
    if "usage" in message:
        ended = (*ended, _tokens(facts.object_of(message, "usage")))
    if facts.text_of(message, "model"):
        ended = (*ended, facts.RunsModel(facts.text_of(message, "model")))
    match message.get("stopReason"):
        case "aborted":
            ended = (*ended, facts.TurnEnded("aborted"))
        case "error":
            reason = facts.text_of(message, "errorMessage") or "unknown error"
            ended = (*ended, facts.TurnEnded("error", reason))
    return ended


def _content(message: dict[str, Any]) -> str:
    content = message.get("content")
    return (
        content
        if isinstance(content, str)
        else facts.text_of_blocks(facts.list_of(message, "content"))
    )


def _tokens(usage: dict[str, Any]) -> facts.UsedTokens:
    return facts.UsedTokens(
        input=facts.count_of(usage, "input"),
        output=facts.count_of(usage, "output"),
        cache_read=facts.count_of(usage, "cacheRead"),
        cache_write=facts.count_of(usage, "cacheWrite"),
        cost_usd=facts.number_of(facts.object_of(usage, "cost"), "total"),
    )


def _tool_start(fields: dict[str, Any]) -> facts.Facts:
    id = facts.text_of(fields, "toolCallId")
    args = facts.object_of(fields, "args")
    return (facts.ToolWritten(id, facts.text_of(fields, "toolName"), args), facts.ToolRuns(id))


def _tool_update(fields: dict[str, Any]) -> facts.Facts:
    text = facts.text_of_blocks(facts.list_of(facts.object_of(fields, "partialResult"), "content"))
    return (facts.ToolSaid(facts.text_of(fields, "toolCallId"), text, whole=True),)


def _tool_end(fields: dict[str, Any]) -> facts.Facts:
    text = facts.text_of_blocks(facts.list_of(facts.object_of(fields, "result"), "content"))
    return (
        facts.ToolEnded(facts.text_of(fields, "toolCallId"), fields.get("isError") is True, text),
    )


def _ui_request(fields: dict[str, Any]) -> facts.Facts:
    method = facts.text_of(fields, "method")
    if method and method not in DIALOGS:
        return ()
    return facts.dialog(fields, "id", "timeout")


def _retry_ended(fields: dict[str, Any]) -> facts.Facts:
    if fields.get("success") is False:
        return (facts.Failed(facts.text_of(fields, "finalError") or "the retries failed"),)
    return ()


PI_TABLE: dict[str, Callable[[dict[str, Any]], facts.Facts]] = {
    "agent_start": lambda fields: (facts.RunStarted(),),
    "message_start": _message_start,
    "message_update": _message_update,
    "message_end": _message_end,
    "tool_execution_start": _tool_start,
    "tool_execution_update": _tool_update,
    "tool_execution_end": _tool_end,
    "agent_end": lambda fields: (facts.RunEnded(),),
    "extension_ui_request": _ui_request,
    "auto_retry_start": lambda fields: (
        facts.Retrying(facts.text_of(fields, "errorMessage") or "it failed"),
    ),
    "auto_retry_end": _retry_ended,
    "compaction_start": lambda fields: (facts.CompactStarted(),),
    "compaction_end": lambda fields: (
        facts.CompactEnded(facts.text_of(facts.object_of(fields, "result"), "summary")),
    ),
}
