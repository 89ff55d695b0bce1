"""The frames of `zot rpc` and `zot --json` as facts."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from zot.observe import facts


def _one(make: Callable[[dict[str, Any]], facts.Fact]) -> Callable[[dict[str, Any]], facts.Facts]:
    return lambda fields: (make(fields),)


def _usage(fields: dict[str, Any]) -> facts.Facts:
    """The call's own tokens, then the sum of the whole session with its cost."""
    return (_tokens(fields), _tokens(facts.object_of(fields, "cumulative"), total=True))


def _tokens(fields: dict[str, Any], *, total: bool = False) -> facts.UsedTokens:
    return facts.UsedTokens(
        input=facts.count_of(fields, "input"),
        output=facts.count_of(fields, "output"),
        cache_read=facts.count_of(fields, "cache_read"),
        cache_write=facts.count_of(fields, "cache_write"),
        cost_usd=None if fields.get("cost_known") is False else facts.number_of(fields, "cost_usd"),
        total=total,
    )


def _turn_end(fields: dict[str, Any]) -> facts.Facts:
    stop = facts.text_of(fields, "stop")
    error = (facts.text_of(fields, "error") or "unknown error") if stop == "error" else ""
    return (facts.TurnEnded(stop, error),)


def _approval_request(fields: dict[str, Any]) -> facts.Facts:
    name = facts.text_of(fields, "name")
    question = facts.Asked(
        id=facts.text_of(fields, "request_id"),
        kind="approval",
        title=f"approval of {name or 'a tool'}",
        tool=name,
        call_id=facts.text_of(fields, "id"),
        preview=facts.text_of(fields, "preview"),
        args=facts.object_of(fields, "args"),
        timeout_seconds=_timeout(fields),
    )
    return (question,)


def _timeout(fields: dict[str, Any]) -> float | None:
    return facts.number_of(fields, "timeout_ms") / 1000 or None


def _response(fields: dict[str, Any]) -> facts.Facts:
    """An answer that the server gave changes little: which model runs, and what was answered."""
    if fields.get("success") is not True:
        return ()
    data = facts.object_of(fields, "data")
    model = data.get("model")
    name = facts.text_of(model, "id") if isinstance(model, dict) else facts.text_of(data, "model")
    return (facts.RunsModel(name),) if name else ()


ZOT_TABLE: dict[str, Callable[[dict[str, Any]], facts.Facts]] = {
    "response": _response,
    "user_message": _one(
        lambda f: facts.UserSaid(facts.text_of_blocks(facts.list_of(f, "content")))
    ),
    "turn_start": _one(lambda f: facts.TurnStarted()),
    "assistant_start": _one(lambda f: facts.MessageStarted()),
    "text_delta": _one(lambda f: facts.TextAdded(facts.text_of(f, "delta"))),
    "thinking_delta": _one(lambda f: facts.ThoughtAdded(facts.text_of(f, "delta"))),
    "tool_use_start": _one(
        lambda f: facts.ToolWritten(facts.text_of(f, "id"), facts.text_of(f, "name"))
    ),
    "tool_use_args": _one(
        lambda f: facts.ToolArgsAdded(facts.text_of(f, "id"), facts.text_of(f, "delta"))
    ),
    "usage": _usage,
    "assistant_message": _one(
        lambda f: facts.MessageEnded(facts.text_of_blocks(facts.list_of(f, "content")))
    ),
    "tool_call": _one(
        lambda f: facts.ToolWritten(
            facts.text_of(f, "id"), facts.text_of(f, "name"), facts.object_of(f, "args")
        )
    ),
    "turn_end": _turn_end,
    "tool_start": _one(lambda f: facts.ToolRuns(facts.text_of(f, "id"))),
    "tool_progress": _one(
        lambda f: facts.ToolSaid(facts.text_of(f, "id"), facts.text_of(f, "text"))
    ),
    "tool_result": _one(
        lambda f: facts.ToolEnded(
            facts.text_of(f, "id"),
            f.get("is_error") is True,
            facts.text_of_blocks(facts.list_of(f, "content")),
        )
    ),
    "error": _one(
        lambda f: facts.Failed(
            facts.text_of(f, "message", "error") or "unknown error", f.get("code") == "limit"
        )
    ),
    "done": _one(lambda f: facts.RunEnded()),
    "run_resumed": _one(lambda f: facts.RunResumed()),
    "compact_start": _one(lambda f: facts.CompactStarted()),
    "compact_done": _one(lambda f: facts.CompactEnded(facts.text_of(f, "summary"))),
    "retry": _one(lambda f: facts.Retrying(facts.text_of(f, "reason") or "it failed")),
    "fallback": _one(
        lambda f: facts.RunsModel(facts.text_of(f, "model"), facts.text_of(f, "failed_model"))
    ),
    "approval_request": _approval_request,
    "approval_resolved": _one(
        lambda f: facts.Answered(facts.text_of(f, "request_id"), f.get("decision") != "deny")
    ),
    "ext_ask": lambda f: facts.dialog(f, "request_id", "timeout_ms"),
    "ext_notify": _one(lambda f: facts.Noted(facts.text_of(f, "message"))),
    "ext_display": _one(lambda f: facts.Noted(facts.text_of(f, "text"))),
}
