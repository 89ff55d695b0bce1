"""Tables that convert the frames of each make to facts: zot, pi, Claude Code (`--output-format
stream-json`) and codex (`exec --json`). Frames of zot and pi that share a name are distinguished by
their fields. The lifecycle events of zot and pi have a table of their own."""

from __future__ import annotations

from typing import Any, Literal, get_args

from zot.observe import facts
from zot.observe.facts import (
    count_of,
    fields_of,
    list_of,
    number_of,
    object_of,
    text_of,
    text_of_blocks,
)


def _tokens(
    usage: dict[str, Any],
    names: tuple[str, str, str, str],
    cost_usd: float | None = 0.0,
    *,
    total: bool = False,
    message: str = "",
) -> facts.UsedTokens:
    """Convert token counts; `names`: the fields of input, output, cache reads and cache writes."""
    input, output, cache_read, cache_write = (count_of(usage, name) for name in names)
    return facts.UsedTokens(input, output, cache_read, cache_write, cost_usd, total, message)


def _content(message: dict[str, Any]) -> str:
    """Return the text of a message whose content is a string or a list of blocks."""
    content = message.get("content")
    if isinstance(content, str):
        return content[: facts.MAX_TEXT]
    return text_of_blocks(list_of(message, "content"))


# --- zot ------------------------------------------------------------------------------------------


ZOT_TOKENS = ("input", "output", "cache_read", "cache_write")


def _usage(fields: dict[str, Any]) -> facts.Facts:
    """Convert to the call's own tokens, then the session's total with its cost."""
    total = object_of(fields, "cumulative")
    return (
        _tokens(fields, ZOT_TOKENS, _zot_cost(fields)),
        _tokens(total, ZOT_TOKENS, _zot_cost(total), total=True),
    )


def _zot_cost(fields: dict[str, Any]) -> float | None:
    return None if fields.get("cost_known") is False else number_of(fields, "cost_usd")


def _turn_end(fields: dict[str, Any]) -> facts.TurnEnded:
    stop = text_of(fields, "stop")
    error = (text_of(fields, "error") or "unknown error") if stop == "error" else ""
    return facts.TurnEnded(stop, error)


def _approval_request(fields: dict[str, Any]) -> facts.Asked:
    name = text_of(fields, "name")
    return facts.Asked(
        id=text_of(fields, "request_id"),
        kind="approval",
        title=f"approval of {name or 'a tool'}",
        tool=name,
        call_id=text_of(fields, "id"),
        preview=text_of(fields, "preview"),
        args=object_of(fields, "args"),
        timeout_seconds=number_of(fields, "timeout_ms") / 1000 or None,
    )


def _response(fields: dict[str, Any]) -> facts.Facts:
    """Report the model that a successful response names; nothing else in a response matters."""
    if fields.get("success") is not True:
        return ()
    data = object_of(fields, "data")
    model = data.get("model")
    name = text_of(model, "id") if isinstance(model, dict) else text_of(data, "model")
    return (facts.RunsModel(name),) if name else ()


ZOT_TABLE: dict[str, facts.FrameReader] = {
    "response": _response,
    "user_message": lambda f: facts.UserSaid(_content(f)),
    "turn_start": lambda f: facts.TurnStarted(),
    "assistant_start": lambda f: facts.MessageStarted(),
    "text_delta": lambda f: facts.TextAdded(text_of(f, "delta")),
    "thinking_delta": lambda f: facts.ThoughtAdded(text_of(f, "delta")),
    "tool_use_start": lambda f: facts.ToolWritten(text_of(f, "id"), text_of(f, "name")),
    "tool_use_args": lambda f: facts.ToolArgsAdded(text_of(f, "id"), text_of(f, "delta")),
    "usage": _usage,
    "assistant_message": lambda f: facts.MessageEnded(_content(f)),
    "tool_call": lambda f: facts.ToolWritten(
        text_of(f, "id"), text_of(f, "name"), object_of(f, "args")
    ),
    "turn_end": _turn_end,
    "tool_start": lambda f: facts.ToolRuns(text_of(f, "id")),
    "tool_progress": lambda f: facts.ToolSaid(text_of(f, "id"), text_of(f, "text")),
    "tool_result": lambda f: facts.ToolEnded(
        text_of(f, "id"), f.get("is_error") is True, _content(f)
    ),
    "error": lambda f: facts.Failed(
        text_of(f, "message", "error") or "unknown error", f.get("code") == "limit"
    ),
    "done": lambda f: facts.RunEnded(),
    "run_resumed": lambda f: facts.RunResumed(),
    "compact_start": lambda f: facts.CompactStarted(),
    "compact_done": lambda f: facts.CompactEnded(text_of(f, "summary")),
    "retry": lambda f: facts.Retrying(
        text_of(f, "reason") or "it failed", f.get("dropped") is True
    ),
    "fallback": lambda f: facts.RunsModel(text_of(f, "model"), text_of(f, "failed_model")),
    "approval_request": _approval_request,
    "approval_resolved": lambda f: facts.Answered(
        text_of(f, "request_id"), f.get("decision") != "deny"
    ),
    "ext_ask": lambda f: facts.dialog(f, "request_id", "timeout_ms"),
    "ext_notify": lambda f: facts.Noted(text_of(f, "message")),
    "ext_display": lambda f: facts.Noted(text_of(f, "text")),
}


# --- pi -------------------------------------------------------------------------------------------


PI_TOKENS = ("input", "output", "cacheRead", "cacheWrite")
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
        usage = object_of(message, "usage")
        cost = number_of(object_of(usage, "cost"), "total")
        ended = (*ended, _tokens(usage, PI_TOKENS, cost))
    if text_of(message, "model"):
        ended = (*ended, facts.RunsModel(text_of(message, "model")))
    match message.get("stopReason"):
        case "aborted":
            ended = (*ended, facts.TurnEnded("aborted"))
        case "error":
            reason = text_of(message, "errorMessage") or "unknown error"
            ended = (*ended, facts.TurnEnded("error", reason))
    return ended


def _tool_start(fields: dict[str, Any]) -> facts.Facts:
    id, name = text_of(fields, "toolCallId"), text_of(fields, "toolName")
    return (facts.ToolWritten(id, name, object_of(fields, "args")), facts.ToolRuns(id))


def _tool_update(fields: dict[str, Any]) -> facts.ToolSaid:
    text = _content(object_of(fields, "partialResult"))
    return facts.ToolSaid(text_of(fields, "toolCallId"), text, whole=True)


def _tool_end(fields: dict[str, Any]) -> facts.ToolEnded:
    text = _content(object_of(fields, "result"))
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


# --- Claude Code ----------------------------------------------------------------------------------


CLAUDE_TOKENS = (
    *("input_tokens", "output_tokens"),
    *("cache_read_input_tokens", "cache_creation_input_tokens"),
)


def _system(fields: dict[str, Any]) -> facts.Facts:
    match fields.get("subtype"):
        case "init":
            return (facts.RunStarted(), facts.RunsModel(text_of(fields, "model")))
        case "status" if fields.get("status") == "compacting":
            return (facts.CompactStarted(),)
        case "compact_boundary":
            return (facts.CompactEnded(),)
    return ()


def _assistant(fields: dict[str, Any]) -> facts.Facts:
    """Convert one or more content blocks of a message; each message is one model call."""
    message = object_of(fields, "message")
    converted: facts.Facts = ()
    for block in list_of(message, "content"):
        if isinstance(block, dict):
            converted = (*converted, *_claude_block(block))
    if message.get("usage"):
        # The cost is reported once, with the result.
        usage = object_of(message, "usage")
        converted = (*converted, _tokens(usage, CLAUDE_TOKENS, message=text_of(message, "id")))
    return converted


def _claude_block(block: dict[str, Any]) -> facts.Facts:
    match block.get("type"):
        case "text":
            return (facts.MessageEnded(text_of(block, "text")),)
        case "thinking":
            return (facts.ThoughtAdded(text_of(block, "thinking")),)
        case "tool_use":
            id = text_of(block, "id")
            return (
                facts.ToolWritten(id, text_of(block, "name"), object_of(block, "input")),
                facts.ToolRuns(id),
            )
    return ()


def _claude_user(fields: dict[str, Any]) -> facts.Facts:
    """Convert the user's text or tool results."""
    message = object_of(fields, "message")
    content = message.get("content")
    if isinstance(content, str):
        return (facts.UserSaid(content),)
    converted: facts.Facts = ()
    for block in list_of(message, "content"):
        if isinstance(block, dict) and block.get("type") == "tool_result":
            converted = (*converted, _claude_result(block))
        elif isinstance(block, dict) and block.get("type") == "text":
            converted = (*converted, facts.UserSaid(text_of(block, "text")))
    return converted


def _claude_result(block: dict[str, Any]) -> facts.ToolEnded:
    failed = block.get("is_error") is True
    return facts.ToolEnded(text_of(block, "tool_use_id"), failed, _content(block))


def _stream_event(fields: dict[str, Any]) -> facts.Facts:
    """Convert the provider's stream, sent with `--include-partial-messages`."""
    event = object_of(fields, "event")
    delta = object_of(event, "delta")
    if event.get("type") == "content_block_delta" and delta.get("type") == "text_delta":
        return (facts.TextAdded(text_of(delta, "text")),)
    return ()


def _result(fields: dict[str, Any]) -> facts.Facts:
    tokens = facts.UsedTokens(cost_usd=number_of(fields, "total_cost_usd"))
    subtype = text_of(fields, "subtype")
    if fields.get("is_error") is not True and subtype in ("success", ""):
        return (tokens, facts.RunEnded())
    what = text_of(fields, "result", "error") or subtype.replace("_", " ")
    return (
        tokens,
        facts.Failed(what or "unknown error", subtype.startswith("error_max")),
        facts.RunEnded(),
    )


CLAUDE_TABLE: dict[str, facts.FrameReader] = {
    "system": _system,
    "assistant": _assistant,
    "user": _claude_user,
    "stream_event": _stream_event,
    "result": _result,
}

# --- codex ----------------------------------------------------------------------------------------


def _item(fields: dict[str, Any]) -> facts.Facts:
    item = object_of(fields, "item")
    id = text_of(item, "id")
    over = fields.get("type") == "item.completed"
    match item.get("type"):
        case "agent_message" if over:
            return (facts.MessageEnded(text_of(item, "text")),)
        case "reasoning" if over:
            return (facts.ThoughtAdded(text_of(item, "text")),)
        case "error":
            return (facts.Failed(text_of(item, "message") or "unknown error"),)
        case "command_execution":
            args = {"command": text_of(item, "command")}
            return _codex_tool(id, "shell", args, item, over=over)
        case "file_change":
            return _codex_tool(id, "edit", {"changes": list_of(item, "changes")}, item, over=over)
        case "mcp_tool_call":
            name = f"{text_of(item, 'server')}.{text_of(item, 'tool')}"
            return _codex_tool(id, name, object_of(item, "arguments"), item, over=over)
        case "web_search":
            args = {"query": text_of(item, "query")}
            return _codex_tool(id, "web_search", args, item, over=over)
    return ()


def _codex_tool(
    id: str, name: str, args: dict[str, Any], item: dict[str, Any], *, over: bool
) -> facts.Facts:
    output = text_of(item, "aggregated_output")
    if not over:
        running = (facts.ToolWritten(id, name, args), facts.ToolRuns(id))
        return (*running, facts.ToolSaid(id, output, whole=True)) if output else running
    failed = item.get("status") in ("failed", "declined")
    return (facts.ToolWritten(id, name, args), facts.ToolEnded(id, failed, output))


def _codex_turn_completed(fields: dict[str, Any]) -> facts.Facts:
    usage = object_of(fields, "usage")
    cached = count_of(usage, "cached_input_tokens")
    tokens = facts.UsedTokens(
        input=max(0, count_of(usage, "input_tokens") - cached),
        output=count_of(usage, "output_tokens"),
        cache_read=cached,
    )
    return (tokens, facts.RunEnded())


def _codex_turn_failed(fields: dict[str, Any]) -> facts.Facts:
    reason = text_of(object_of(fields, "error"), "message") or "unknown error"
    return (facts.TurnEnded("error", reason), facts.RunEnded())


CODEX_TABLE: dict[str, facts.FrameReader] = {
    "thread.started": lambda fields: (),
    "turn.started": lambda fields: (facts.RunStarted(), facts.TurnStarted()),
    "turn.completed": _codex_turn_completed,
    "turn.failed": _codex_turn_failed,
    "item.started": _item,
    "item.updated": _item,
    "item.completed": _item,
}


TABLE = {**CODEX_TABLE, **CLAUDE_TABLE, **PI_TABLE, **ZOT_TABLE}
"""Reader of each frame by its `type`."""


def facts_of(frame: dict[str, Any] | bytes | str) -> facts.Facts:
    """Return the facts of a frame; none if it is unknown or no frame."""
    fields = fields_of(frame)
    kind = fields.get("type")
    read = TABLE.get(kind) if isinstance(kind, str) else None
    converted = read(fields) if read is not None else ()
    return converted if isinstance(converted, tuple) else (converted,)


# --- lifecycle events -----------------------------------------------------------------------------


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
