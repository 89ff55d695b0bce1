"""The frames of pi's wire as facts. Names that it shares with zot's wire but means otherwise are
told apart by their fields.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from zot.observe.facts import (
    Asked,
    CompactEnded,
    CompactStarted,
    Facts,
    Failed,
    MessageEnded,
    MessageStarted,
    Retrying,
    RunEnded,
    RunsModel,
    RunStarted,
    TextAdded,
    ThoughtAdded,
    ToolArgsAdded,
    ToolEnded,
    ToolRuns,
    ToolSaid,
    ToolWritten,
    TurnEnded,
    UsedTokens,
    UserSaid,
    count_of,
    list_of,
    number_of,
    object_of,
    text_of,
    text_of_blocks,
)

DIALOGS = frozenset({"select", "confirm", "input", "editor"})
"""What an extension may ask that somebody has to answer; the other methods only tell."""


def _role(fields: dict[str, Any]) -> str:
    return text_of(object_of(fields, "message"), "role")


def _message_start(fields: dict[str, Any]) -> Facts:
    if _role(fields) == "user":
        return (UserSaid(_content(object_of(fields, "message"))),)
    return (MessageStarted(),) if _role(fields) in ("assistant", "") else ()


def _message_update(fields: dict[str, Any]) -> Facts:
    update = object_of(fields, "assistantMessageEvent")
    match update.get("type"):
        case "text_delta":
            return (TextAdded(text_of(update, "delta")),)
        case "thinking_delta":
            return (ThoughtAdded(text_of(update, "delta")),)
        case "toolcall_delta":
            call = object_of(update, "toolCall")
            return (ToolArgsAdded(text_of(call, "id"), text_of(update, "delta")),)
    return (TextAdded(""),)


def _message_end(fields: dict[str, Any]) -> Facts:
    message = object_of(fields, "message")
    if _role(fields) not in ("assistant", ""):
        return ()
    ended: Facts = (MessageEnded(_content(message)),)
    if "usage" in message:
        ended = (*ended, _tokens(object_of(message, "usage")))
    if text_of(message, "model"):
        ended = (*ended, RunsModel(text_of(message, "model")))
    match message.get("stopReason"):
        case "aborted":
            ended = (*ended, TurnEnded("aborted"))
        case "error":
            reason = text_of(message, "errorMessage") or "unknown error"
            ended = (*ended, TurnEnded("error", reason))
    return ended


def _content(message: dict[str, Any]) -> str:
    content = message.get("content")
    return content if isinstance(content, str) else text_of_blocks(list_of(message, "content"))


def _tokens(usage: dict[str, Any]) -> UsedTokens:
    return UsedTokens(
        input=count_of(usage, "input"),
        output=count_of(usage, "output"),
        cache_read=count_of(usage, "cacheRead"),
        cache_write=count_of(usage, "cacheWrite"),
        cost_usd=number_of(object_of(usage, "cost"), "total"),
    )


def _tool_start(fields: dict[str, Any]) -> Facts:
    id = text_of(fields, "toolCallId")
    args = object_of(fields, "args")
    return (ToolWritten(id, text_of(fields, "toolName"), args), ToolRuns(id))


def _tool_update(fields: dict[str, Any]) -> Facts:
    text = text_of_blocks(list_of(object_of(fields, "partialResult"), "content"))
    return (ToolSaid(text_of(fields, "toolCallId"), text, whole=True),)


def _tool_end(fields: dict[str, Any]) -> Facts:
    text = text_of_blocks(list_of(object_of(fields, "result"), "content"))
    return (ToolEnded(text_of(fields, "toolCallId"), fields.get("isError") is True, text),)


def _ui_request(fields: dict[str, Any]) -> Facts:
    method = text_of(fields, "method")
    if method and method not in DIALOGS:
        return ()
    question = Asked(
        id=text_of(fields, "id"),
        kind="answer",
        title=text_of(fields, "title") or "an answer of the user",
        preview=text_of(fields, "message"),
        options=tuple(str(option) for option in list_of(fields, "options")[:100]),
        method=method,
        timeout_seconds=number_of(fields, "timeout") / 1000 or None,
    )
    return (question,)


def _retry_ended(fields: dict[str, Any]) -> Facts:
    if fields.get("success") is False:
        return (Failed(text_of(fields, "finalError") or "the retries failed"),)
    return ()


PI_TABLE: dict[str, Callable[[dict[str, Any]], Facts]] = {
    "agent_start": lambda fields: (RunStarted(),),
    "message_start": _message_start,
    "message_update": _message_update,
    "message_end": _message_end,
    "tool_execution_start": _tool_start,
    "tool_execution_update": _tool_update,
    "tool_execution_end": _tool_end,
    "agent_end": lambda fields: (RunEnded(),),
    "extension_ui_request": _ui_request,
    "auto_retry_start": lambda fields: (Retrying(text_of(fields, "errorMessage") or "it failed"),),
    "auto_retry_end": _retry_ended,
    "compaction_start": lambda fields: (CompactStarted(),),
    "compaction_end": lambda fields: (
        CompactEnded(text_of(object_of(fields, "result"), "summary")),
    ),
}
