"""The frames of `zot rpc` and `zot --json` as facts."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from zot.observe.facts import (
    Answered,
    Asked,
    CompactEnded,
    CompactStarted,
    Fact,
    Facts,
    Failed,
    MessageEnded,
    MessageStarted,
    Noted,
    Retrying,
    RunEnded,
    RunResumed,
    RunsModel,
    TextAdded,
    ThoughtAdded,
    ToolArgsAdded,
    ToolEnded,
    ToolRuns,
    ToolSaid,
    ToolWritten,
    TurnEnded,
    TurnStarted,
    UsedTokens,
    UserSaid,
    count_of,
    list_of,
    number_of,
    object_of,
    text_of,
    text_of_blocks,
)


def _one(make: Callable[[dict[str, Any]], Fact]) -> Callable[[dict[str, Any]], Facts]:
    return lambda fields: (make(fields),)


def _usage(fields: dict[str, Any]) -> Facts:
    """The call's own tokens, then the sum of the whole session with its cost."""
    return (_tokens(fields), _tokens(object_of(fields, "cumulative"), total=True))


def _tokens(fields: dict[str, Any], *, total: bool = False) -> UsedTokens:
    return UsedTokens(
        input=count_of(fields, "input"),
        output=count_of(fields, "output"),
        cache_read=count_of(fields, "cache_read"),
        cache_write=count_of(fields, "cache_write"),
        cost_usd=None if fields.get("cost_known") is False else number_of(fields, "cost_usd"),
        total=total,
    )


def _turn_end(fields: dict[str, Any]) -> Facts:
    stop = text_of(fields, "stop")
    error = (text_of(fields, "error") or "unknown error") if stop == "error" else ""
    return (TurnEnded(stop, error),)


def _approval_request(fields: dict[str, Any]) -> Facts:
    name = text_of(fields, "name")
    question = Asked(
        id=text_of(fields, "request_id"),
        kind="approval",
        title=f"approval of {name or 'a tool'}",
        tool=name,
        call_id=text_of(fields, "id"),
        preview=text_of(fields, "preview"),
        args=object_of(fields, "args"),
        timeout_seconds=_timeout(fields),
    )
    return (question,)


def _ext_ask(fields: dict[str, Any]) -> Facts:
    question = Asked(
        id=text_of(fields, "request_id"),
        kind="answer",
        title=text_of(fields, "title") or "an answer of the user",
        preview=text_of(fields, "message"),
        options=tuple(str(option) for option in list_of(fields, "options")[:100]),
        method=text_of(fields, "method"),
        timeout_seconds=_timeout(fields),
    )
    return (question,)


def _timeout(fields: dict[str, Any]) -> float | None:
    return number_of(fields, "timeout_ms") / 1000 or None


def _response(fields: dict[str, Any]) -> Facts:
    """An answer that the server gave changes little: which model runs, and what was answered."""
    if fields.get("success") is not True:
        return ()
    data = object_of(fields, "data")
    model = data.get("model")
    name = text_of(model, "id") if isinstance(model, dict) else text_of(data, "model")
    return (RunsModel(name),) if name else ()


ZOT_TABLE: dict[str, Callable[[dict[str, Any]], Facts]] = {
    "response": _response,
    "user_message": _one(lambda f: UserSaid(text_of_blocks(list_of(f, "content")))),
    "turn_start": _one(lambda f: TurnStarted()),
    "assistant_start": _one(lambda f: MessageStarted()),
    "text_delta": _one(lambda f: TextAdded(text_of(f, "delta"))),
    "thinking_delta": _one(lambda f: ThoughtAdded(text_of(f, "delta"))),
    "tool_use_start": _one(lambda f: ToolWritten(text_of(f, "id"), text_of(f, "name"))),
    "tool_use_args": _one(lambda f: ToolArgsAdded(text_of(f, "id"), text_of(f, "delta"))),
    "usage": _usage,
    "assistant_message": _one(lambda f: MessageEnded(text_of_blocks(list_of(f, "content")))),
    "tool_call": _one(
        lambda f: ToolWritten(text_of(f, "id"), text_of(f, "name"), object_of(f, "args"))
    ),
    "turn_end": _turn_end,
    "tool_start": _one(lambda f: ToolRuns(text_of(f, "id"))),
    "tool_progress": _one(lambda f: ToolSaid(text_of(f, "id"), text_of(f, "text"))),
    "tool_result": _one(
        lambda f: ToolEnded(
            text_of(f, "id"), f.get("is_error") is True, text_of_blocks(list_of(f, "content"))
        )
    ),
    "error": _one(
        lambda f: Failed(
            text_of(f, "message", "error") or "unknown error", f.get("code") == "limit"
        )
    ),
    "done": _one(lambda f: RunEnded()),
    "run_resumed": _one(lambda f: RunResumed()),
    "compact_start": _one(lambda f: CompactStarted()),
    "compact_done": _one(lambda f: CompactEnded(text_of(f, "summary"))),
    "retry": _one(lambda f: Retrying(text_of(f, "reason") or "it failed")),
    "fallback": _one(lambda f: RunsModel(text_of(f, "model"), text_of(f, "failed_model"))),
    "approval_request": _approval_request,
    "approval_resolved": _one(
        lambda f: Answered(text_of(f, "request_id"), f.get("decision") != "deny")
    ),
    "ext_ask": _ext_ask,
    "ext_notify": _one(lambda f: Noted(text_of(f, "message"))),
    "ext_display": _one(lambda f: Noted(text_of(f, "text"))),
}
