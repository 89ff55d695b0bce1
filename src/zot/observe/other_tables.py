"""Claude Code's `--output-format stream-json` and codex's `exec --json` as facts, based on their
documented formats."""

from __future__ import annotations

from typing import Any

from zot.observe import facts
from zot.observe.facts import count_of, list_of, number_of, object_of, text_of, text_of_blocks

# --- Claude Code ---------------------------------------------------------------------------------


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
    told: facts.Facts = ()
    for block in list_of(message, "content"):
        if isinstance(block, dict):
            told = (*told, *_claude_block(block))
    if message.get("usage"):
        told = (*told, _claude_tokens(object_of(message, "usage"), text_of(message, "id")))
    return told


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
    told: facts.Facts = ()
    for block in list_of(message, "content"):
        if isinstance(block, dict) and block.get("type") == "tool_result":
            told = (*told, _claude_result(block))
        elif isinstance(block, dict) and block.get("type") == "text":
            told = (*told, facts.UserSaid(text_of(block, "text")))
    return told


def _claude_result(block: dict[str, Any]) -> facts.ToolEnded:
    content = block.get("content")
    text = content if isinstance(content, str) else text_of_blocks(list_of(block, "content"))
    return facts.ToolEnded(text_of(block, "tool_use_id"), block.get("is_error") is True, text)


def _claude_tokens(usage: dict[str, Any], message: str) -> facts.UsedTokens:
    return facts.UsedTokens(
        input=count_of(usage, "input_tokens"),
        output=count_of(usage, "output_tokens"),
        cache_read=count_of(usage, "cache_read_input_tokens"),
        cache_write=count_of(usage, "cache_creation_input_tokens"),
        cost_usd=0.0,  # reported once, with the result
        message=message,
    )


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

# --- codex ---------------------------------------------------------------------------------------


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
