"""The frames of `zot rpc` and `zot --json` as facts."""

from __future__ import annotations

from typing import Any

from zot.observe import facts
from zot.observe.facts import count_of, list_of, number_of, object_of, text_of, text_of_blocks


def _usage(fields: dict[str, Any]) -> facts.Facts:
    """Convert to the call's own tokens, then the session's total with its cost."""
    return (_tokens(fields), _tokens(object_of(fields, "cumulative"), total=True))


def _tokens(fields: dict[str, Any], *, total: bool = False) -> facts.UsedTokens:
    return facts.UsedTokens(
        input=count_of(fields, "input"),
        output=count_of(fields, "output"),
        cache_read=count_of(fields, "cache_read"),
        cache_write=count_of(fields, "cache_write"),
        cost_usd=None if fields.get("cost_known") is False else number_of(fields, "cost_usd"),
        total=total,
    )


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


def _said(fields: dict[str, Any]) -> str:
    return text_of_blocks(list_of(fields, "content"))


ZOT_TABLE: dict[str, facts.FrameReader] = {
    "response": _response,
    "user_message": lambda f: facts.UserSaid(_said(f)),
    "turn_start": lambda f: facts.TurnStarted(),
    "assistant_start": lambda f: facts.MessageStarted(),
    "text_delta": lambda f: facts.TextAdded(text_of(f, "delta")),
    "thinking_delta": lambda f: facts.ThoughtAdded(text_of(f, "delta")),
    "tool_use_start": lambda f: facts.ToolWritten(text_of(f, "id"), text_of(f, "name")),
    "tool_use_args": lambda f: facts.ToolArgsAdded(text_of(f, "id"), text_of(f, "delta")),
    "usage": _usage,
    "assistant_message": lambda f: facts.MessageEnded(_said(f)),
    "tool_call": lambda f: facts.ToolWritten(
        text_of(f, "id"), text_of(f, "name"), object_of(f, "args")
    ),
    "turn_end": _turn_end,
    "tool_start": lambda f: facts.ToolRuns(text_of(f, "id")),
    "tool_progress": lambda f: facts.ToolSaid(text_of(f, "id"), text_of(f, "text")),
    "tool_result": lambda f: facts.ToolEnded(text_of(f, "id"), f.get("is_error") is True, _said(f)),
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
