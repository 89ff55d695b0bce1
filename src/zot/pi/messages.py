"""Conversion of messages to pi's form and back. Messages for pi are typed; messages from pi are
plain JSON objects, to which its users may add keys.

pi has more roles than models have. Messages of those roles become user messages for the model and
keep the original object, so that writing them again changes nothing.
"""

from __future__ import annotations

import binascii
from collections.abc import Iterable

from msgspec import UNSET, UnsetType

from zot.provider import types
from zot.sessions import signatures
from zot.sessions.format import BadRow
from zot.text import Frozen

ORIGINAL = "pi"
"""Key in a message's extra for the object pi wrote, where ours cannot express it all."""

_STOPS: dict[types.Stop, str] = {
    "end": "stop",
    "tool_use": "toolUse",
    "length": "length",
    "error": "error",
    "aborted": "aborted",
}
_FROM_STOPS: dict[str, types.Stop] = {word: stop for stop, word in _STOPS.items()}
LEVEL_WORDS: dict[types.Level, str] = {level: level for level in types.LEVELS} | {
    "minimum": "minimal"
}
WORD_LEVELS: dict[str, types.Level] = {word: level for level, word in LEVEL_WORDS.items()}
_APIS = {
    "anthropic": "anthropic-messages",
    "openai-chat": "openai-completions",
    "google": "google-generative-ai",
}
_FROM_APIS = {theirs: ours for ours, theirs in _APIS.items()}


def level_word(level: types.Level) -> str:
    return LEVEL_WORDS[level]


def api_word(api: str) -> str:
    return _APIS.get(api, api)


# --- to pi -----------------------------------------------------------------------------------


class PiPart(Frozen, tag_field="type"):
    """Base of the parts of a message."""


class TextPart(PiPart, tag="text"):
    text: str
    textSignature: str | UnsetType = UNSET


class ImagePart(PiPart, tag="image"):
    data: bytes
    mimeType: str


class ThinkingPart(PiPart, tag="thinking"):
    thinking: str
    thinkingSignature: str | UnsetType = UNSET
    redacted: bool | UnsetType = UNSET
    opaque: dict[str, types.Json] | UnsetType = UNSET
    """Our own field: provider data to send back, for which pi has no field."""


class CallPart(PiPart, tag="toolCall"):
    id: str
    name: str
    arguments: dict[str, types.Json]
    thoughtSignature: str | UnsetType = UNSET


Part = TextPart | ImagePart | ThinkingPart | CallPart


class PiPrice(Frozen):
    """Dollars per kind of token."""

    input: float
    output: float
    cacheRead: float
    cacheWrite: float


class PiCost(PiPrice):
    total: float


class PiTokens(Frozen):
    input: int
    output: int
    cacheRead: int
    cacheWrite: int


class PiUsage(PiTokens):
    totalTokens: int
    cost: PiCost


class PiUser(Frozen, tag_field="role", tag="user"):
    content: list[Part]
    timestamp: int
    attachments: types.Json = UNSET


class PiAssistant(Frozen, tag_field="role", tag="assistant"):
    content: list[Part]
    api: str
    provider: str
    model: str
    usage: PiUsage
    stopReason: str
    timestamp: int
    errorMessage: str | UnsetType = UNSET


class PiResult(Frozen, tag_field="role", tag="toolResult"):
    toolCallId: str
    toolName: str
    content: list[Part]
    isError: bool
    timestamp: int
    details: dict[str, types.Json] | UnsetType = UNSET


class PiSummary(Frozen, tag_field="role", tag="compactionSummary"):
    summary: str
    tokensBefore: int
    timestamp: int


class PiSystem(Frozen, tag_field="role", tag="system"):
    """The first message of a conversation in generation C."""

    sections: dict[str, str]
    toolsAdded: list[types.Json]
    timestamp: int
    content: str = ""


PiMessage = PiUser | PiAssistant | PiResult | PiSummary | PiSystem | dict[str, types.Json]
"""A message for pi; a dict is an object that pi wrote."""


def to_pi(message: types.Message) -> list[PiMessage]:
    """Convert a message; a tool message becomes one message per result."""
    extra = message.extra or {}
    if isinstance(original := extra.get(ORIGINAL), dict):
        return [original]
    stamp = round(message.time * 1000)
    match message.role:
        case "user":
            return [PiUser(_parts(message.content), stamp, extra.get("attachments") or UNSET)]
        case "assistant":
            return [assistant_to_pi(message)]
        case "tool":
            results = [block for block in message.content if isinstance(block, types.ToolResult)]
            return [result_to_pi(result, stamp) for result in results]


def assistant_to_pi(message: types.Message) -> PiAssistant:
    origin = message.origin or types.Origin("", "", "", "end")
    return PiAssistant(
        content=_parts(message.content),
        api=api_word(origin.api),
        provider=origin.provider,
        model=origin.model,
        usage=usage_to_pi(origin.usage),
        stopReason=_STOPS[origin.stop],
        timestamp=round(message.time * 1000),
        errorMessage=UNSET if origin.error is None else origin.error,
    )


def result_to_pi(result: types.ToolResult, stamp: int) -> PiResult:
    return PiResult(
        toolCallId=result.call_id,
        toolName=result.name,
        content=_parts(result.content),
        isError=result.is_error,
        timestamp=stamp,
        details=UNSET if result.details is None else result.details,
    )


def usage_to_pi(usage: types.Usage) -> PiUsage:
    cost = usage.cost
    shown = PiCost(cost.input, cost.output, cost.cache_read, cost.cache_write, cost.total)
    tokens = (usage.input, usage.output, usage.cache_read, usage.cache_write)
    return PiUsage(*tokens, usage.total, shown)


def _parts(blocks: Iterable[types.Block]) -> list[Part]:
    return [_part(block) for block in blocks]


def _part(block: types.Block) -> Part:
    match block:
        case types.Text(text):
            return TextPart(text, signatures.of_text(block) or UNSET)
        case types.Image(mime_type, data):
            return ImagePart(data, mime_type)
        case types.Reasoning():
            return _thinking(block)
        case types.ToolCall(id, name, args):
            return CallPart(id, name, args or {}, signatures.of_call(block) or UNSET)
        case types.ToolResult():  # never mixed with other blocks in pi; kept readable
            return TextPart(text_of(block.content))


def _thinking(block: types.Reasoning) -> ThinkingPart:
    signature, redacted = signatures.of_thought(block)
    opaque = UNSET if signature or block.opaque is None else block.opaque
    return ThinkingPart(block.text, signature or UNSET, redacted or UNSET, opaque)


def text_of(blocks: Iterable[types.Block]) -> str:
    return "\n".join(types.texts_in(blocks))


# --- from pi ---------------------------------------------------------------------------------


class NotAMessage(BadRow):
    """The object is not a message of pi."""


def from_pi(value: types.Json) -> types.Message | None:
    """Convert pi's message; None if pi hides it from the model. Raises NotAMessage."""
    if not isinstance(value, dict):
        raise NotAMessage("a message that is no object")
    time = _number(value.get("timestamp")) / 1000
    content = _blocks(value.get("content"), _api(value))
    match value.get("role"):
        case "user":
            attachments = value.get("attachments")
            return types.Message(
                "user", content, time, extra={"attachments": attachments} if attachments else None
            )
        case "assistant":
            return types.Message("assistant", content, time, _origin(value))
        case "toolResult":
            return types.Message("tool", (_result(value, content),), time)
        case "bashExecution":
            return None if value.get("excludeFromContext") else _as_user(value, _shell(value), time)
        case "branchSummary" | "compactionSummary":
            return _as_user(value, str(value.get("summary", "")), time)
        case "custom" | "hookMessage":
            renamed = {**value, "role": "custom"}
            return (
                types.Message("user", content, time, extra={ORIGINAL: renamed}) if content else None
            )
        case "system":
            return None
        case role:
            raise NotAMessage(f"a message with the unknown role {role!r}")


def _as_user(original: dict[str, types.Json], text: str, time: float) -> types.Message:
    return types.Message("user", (types.Text(text),), time, extra={ORIGINAL: original})


def _shell(value: dict[str, types.Json]) -> str:
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


def _api(value: dict[str, types.Json]) -> str:
    api = str(value.get("api") or "")
    return _FROM_APIS.get(api, api)


def _origin(value: dict[str, types.Json]) -> types.Origin:
    error = value.get("errorMessage")
    return types.Origin(
        provider=str(value.get("provider") or ""),
        model=str(value.get("model") or ""),
        api=_api(value),
        stop=_FROM_STOPS.get(str(value.get("stopReason")), "end"),
        usage=usage_from_pi(value.get("usage")),
        error=error if isinstance(error, str) else None,
    )


def usage_from_pi(value: types.Json) -> types.Usage:
    if not isinstance(value, dict):
        return types.Usage()
    cost = value.get("cost")
    cost = cost if isinstance(cost, dict) else {}
    return types.Usage(
        int(_number(value.get("input"))),
        int(_number(value.get("output"))),
        int(_number(value.get("cacheRead"))),
        int(_number(value.get("cacheWrite"))),
        None,
        types.Cost(
            *(_number(cost.get(key)) for key in ("input", "output", "cacheRead", "cacheWrite"))
        ),
    )


def _result(value: dict[str, types.Json], content: tuple[types.Block, ...]) -> types.ToolResult:
    details = value.get("details")
    return types.ToolResult(
        str(value.get("toolCallId") or ""),
        tuple(block for block in content if isinstance(block, types.Text | types.Image)),
        bool(value.get("isError")),
        str(value.get("toolName") or ""),
        details if isinstance(details, dict) else None,
    )


def _blocks(value: types.Json, api: str) -> tuple[types.Block, ...]:
    if isinstance(value, str):
        return (types.Text(value),) if value else ()
    if not isinstance(value, list):
        return ()
    blocks = (_from_block(part, api) for part in value if isinstance(part, dict))
    return tuple(block for block in blocks if block is not None)


def _from_block(value: dict[str, types.Json], api: str) -> types.Block | None:
    match value.get("type"):
        case "text":
            signature = signatures.for_text(value.get("textSignature"))
            return types.Text(str(value.get("text") or ""), signature)
        case "image":
            return _image(value)
        case "thinking":
            signature, opaque = value.get("thinkingSignature"), value.get("opaque")
            data = signatures.for_thought(api, signature, value.get("redacted") is True)
            if data is None and isinstance(opaque, dict):
                data = opaque
            return types.Reasoning(str(value.get("thinking") or ""), api, data)
        case "toolCall":
            args, signature = value.get("arguments"), value.get("thoughtSignature")
            return types.ToolCall(
                str(value.get("id") or ""),
                str(value.get("name") or ""),
                args if isinstance(args, dict) else None,
                opaque=signatures.for_call(signature),
            )
        case _:
            return None


def _image(value: dict[str, types.Json]) -> types.Image | None:
    try:
        data = binascii.a2b_base64(str(value.get("data") or ""))
    except ValueError:
        return None
    return types.Image(str(value.get("mimeType") or "image/png"), data)


def _number(value: types.Json) -> float:
    return value if isinstance(value, int | float) and not isinstance(value, bool) else 0
