"""Messages as pi writes them, and back. Plain JSON objects: pi's are open to keys of its users.

pi knows more roles than a model does. Those become user messages for the model, and keep the
original beside them, so that writing them again changes nothing.
"""

from __future__ import annotations

import binascii
from collections.abc import Iterable

from zot.provider.types import (
    LEVELS,
    Block,
    Cost,
    Image,
    Json,
    Level,
    Message,
    Origin,
    Reasoning,
    Stop,
    Text,
    ToolCall,
    ToolResult,
    Usage,
)
from zot.sessions import signatures

ORIGINAL = "pi"
"""Key of a message's extra: the object pi wrote, where ours cannot say it all."""

_STOPS: dict[Stop, str] = {
    "end": "stop",
    "tool_use": "toolUse",
    "length": "length",
    "error": "error",
    "aborted": "aborted",
}
_FROM_STOPS: dict[str, Stop] = {word: stop for stop, word in _STOPS.items()}
LEVEL_WORDS: dict[Level, str] = {each: each for each in LEVELS} | {"minimum": "minimal"}
WORD_LEVELS: dict[str, Level] = {word: level for level, word in LEVEL_WORDS.items()}
_APIS = {
    "anthropic": "anthropic-messages",
    "openai-chat": "openai-completions",
    "google": "google-generative-ai",
}
_FROM_APIS = {theirs: ours for ours, theirs in _APIS.items()}


def level_word(level: Level) -> str:
    return LEVEL_WORDS[level]


def api_word(api: str) -> str:
    return _APIS.get(api, api)


# --- to pi -----------------------------------------------------------------------------------


def to_pi(message: Message) -> list[dict[str, Json]]:
    """One message, or one for each result of a tool message."""
    if message.extra and isinstance(original := message.extra.get(ORIGINAL), dict):
        return [original]
    stamp = round(message.time * 1000)
    match message.role:
        case "user":
            attachments = (message.extra or {}).get("attachments")
            more = {"attachments": attachments} if attachments else {}
            content = _content(message.content)
            return [{"role": "user", "content": content, **more, "timestamp": stamp}]
        case "assistant":
            return [_assistant(message, stamp)]
        case "tool":
            results = [block for block in message.content if isinstance(block, ToolResult)]
            return [result_to_pi(result, stamp) for result in results]


def result_to_pi(result: ToolResult, stamp: int) -> dict[str, Json]:
    details = {} if result.details is None else {"details": result.details}
    return {
        "role": "toolResult",
        "toolCallId": result.call_id,
        "toolName": result.name,
        "content": _content(result.content),
        **details,
        "isError": result.is_error,
        "timestamp": stamp,
    }


def usage_to_pi(usage: Usage) -> dict[str, Json]:
    cost = usage.cost
    return {
        "input": usage.input,
        "output": usage.output,
        "cacheRead": usage.cache_read,
        "cacheWrite": usage.cache_write,
        "totalTokens": usage.total,
        "cost": {
            "input": cost.input,
            "output": cost.output,
            "cacheRead": cost.cache_read,
            "cacheWrite": cost.cache_write,
            "total": cost.total,
        },
    }


def _assistant(message: Message, stamp: int) -> dict[str, Json]:
    origin = message.origin or Origin("", "", "", "end")
    error = {} if origin.error is None else {"errorMessage": origin.error}
    return {
        "role": "assistant",
        "content": _content(message.content),
        "api": api_word(origin.api),
        "provider": origin.provider,
        "model": origin.model,
        "usage": usage_to_pi(origin.usage),
        "stopReason": _STOPS[origin.stop],
        **error,
        "timestamp": stamp,
    }


def _content(blocks: Iterable[Block]) -> list[dict[str, Json]]:
    return [_block(block) for block in blocks]


def _block(block: Block) -> dict[str, Json]:
    match block:
        case Text(text):
            return {"type": "text", "text": text}
        case Image(mime_type, data):
            encoded = binascii.b2a_base64(data, newline=False).decode()
            return {"type": "image", "data": encoded, "mimeType": mime_type}
        case Reasoning():
            return _thinking(block)
        case ToolCall():
            signature = signatures.of_call(block)
            more = {"thoughtSignature": signature} if signature else {}
            return {
                "type": "toolCall",
                "id": block.id,
                "name": block.name,
                "arguments": block.args or {},
                **more,
            }
        case ToolResult():  # never inside one message with others in pi; kept readable
            return {"type": "text", "text": text_of(block.content)}


def _thinking(block: Reasoning) -> dict[str, Json]:
    signature, redacted = signatures.of_thought(block)
    more: dict[str, Json] = {}
    if signature:
        more["thinkingSignature"] = signature
    elif block.opaque is not None:
        more["opaque"] = block.opaque
    if redacted:
        more["redacted"] = True
    return {"type": "thinking", "thinking": block.text, **more}


def text_of(blocks: Iterable[Block]) -> str:
    return "\n".join(block.text for block in blocks if isinstance(block, Text))


# --- from pi ---------------------------------------------------------------------------------


class NotAMessage(Exception):
    """An object that is none of pi's messages."""


def from_pi(value: Json) -> Message | None:
    """A message of the conversation; None for one that pi keeps from the model.

    Raises:
        NotAMessage: it is none.
    """
    if not isinstance(value, dict):
        raise NotAMessage("a message that is no object")
    time = _number(value.get("timestamp")) / 1000
    content = _blocks(value.get("content"), _api(value))
    match value.get("role"):
        case "user":
            kept = value.get("attachments")
            return Message("user", content, time, extra={"attachments": kept} if kept else None)
        case "assistant":
            return Message("assistant", content, time, _origin(value))
        case "toolResult":
            return Message("tool", (_result(value, content),), time)
        case "bashExecution":
            return None if value.get("excludeFromContext") else _told(value, _shell(value), time)
        case "branchSummary" | "compactionSummary":
            return _told(value, str(value.get("summary", "")), time)
        case "custom" | "hookMessage":
            renamed = {**value, "role": "custom"}
            return Message("user", content, time, extra={ORIGINAL: renamed}) if content else None
        case "system":
            return None
        case role:
            raise NotAMessage(f"a message with the unknown role {role!r}")


def _told(original: dict[str, Json], text: str, time: float) -> Message:
    return Message("user", (Text(text),), time, extra={ORIGINAL: original})


def _shell(value: dict[str, Json]) -> str:
    output = str(value.get("output") or "")
    lines = [
        f"Ran `{value.get('command', '')}`",
        f"```\n{output}\n```" if output else "(no output)",
    ]
    if value.get("cancelled"):
        lines.append("(it was cancelled)")
    elif value.get("exitCode"):
        lines.append(f"Exit code {value['exitCode']}")
    if value.get("truncated"):
        lines.append(f"(cut; all of it is in {value.get('fullOutputPath', 'a file')})")
    return "\n".join(lines)


def _api(value: dict[str, Json]) -> str:
    api = str(value.get("api") or "")
    return _FROM_APIS.get(api, api)


def _origin(value: dict[str, Json]) -> Origin:
    error = value.get("errorMessage")
    return Origin(
        provider=str(value.get("provider") or ""),
        model=str(value.get("model") or ""),
        api=_api(value),
        stop=_FROM_STOPS.get(str(value.get("stopReason")), "end"),
        usage=usage_from_pi(value.get("usage")),
        error=error if isinstance(error, str) else None,
    )


def usage_from_pi(value: Json) -> Usage:
    if not isinstance(value, dict):
        return Usage()
    cost = value.get("cost")
    cost = cost if isinstance(cost, dict) else {}
    return Usage(
        int(_number(value.get("input"))),
        int(_number(value.get("output"))),
        int(_number(value.get("cacheRead"))),
        int(_number(value.get("cacheWrite"))),
        None,
        Cost(*(_number(cost.get(key)) for key in ("input", "output", "cacheRead", "cacheWrite"))),
    )


def _result(value: dict[str, Json], content: tuple[Block, ...]) -> ToolResult:
    details = value.get("details")
    return ToolResult(
        str(value.get("toolCallId") or ""),
        tuple(block for block in content if isinstance(block, Text | Image)),
        bool(value.get("isError")),
        str(value.get("toolName") or ""),
        details if isinstance(details, dict) else None,
    )


def _blocks(value: Json, api: str) -> tuple[Block, ...]:
    if isinstance(value, str):
        return (Text(value),) if value else ()
    if not isinstance(value, list):
        return ()
    found = (_from_block(each, api) for each in value if isinstance(each, dict))
    return tuple(block for block in found if block is not None)


def _from_block(value: dict[str, Json], api: str) -> Block | None:
    match value.get("type"):
        case "text":
            return Text(str(value.get("text") or ""))
        case "image":
            return _image(value)
        case "thinking":
            signature, opaque = value.get("thinkingSignature"), value.get("opaque")
            kept = signatures.for_thought(api, signature, value.get("redacted") is True)
            if kept is None and isinstance(opaque, dict):
                kept = opaque
            return Reasoning(str(value.get("thinking") or ""), api, kept)
        case "toolCall":
            args, signature = value.get("arguments"), value.get("thoughtSignature")
            return ToolCall(
                str(value.get("id") or ""),
                str(value.get("name") or ""),
                args if isinstance(args, dict) else None,
                opaque=signatures.for_call(signature),
            )
        case _:
            return None


def _image(value: dict[str, Json]) -> Image | None:
    try:
        data = binascii.a2b_base64(str(value.get("data") or ""))
    except ValueError:
        return None
    return Image(str(value.get("mimeType") or "image/png"), data)


def _number(value: Json) -> float:
    return value if isinstance(value, int | float) and not isinstance(value, bool) else 0
