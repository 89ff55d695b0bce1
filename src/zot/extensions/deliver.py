"""What a run's events look like to an extension: the name, and the fields of the frame."""

from __future__ import annotations

import binascii

from zot.core.events import (
    AssistantMessage,
    CompactDone,
    CompactFailed,
    CompactStart,
    Event,
    ToolCalled,
    ToolReturned,
    TurnEnd,
    TurnStart,
    UserMessage,
)
from zot.extensions.proto import Content, Result
from zot.provider.types import Image, Json, Message, Text, ToolCall, ToolResult

MAX_RESULT_BYTES = 256 * 1024
MAX_RESULT_BLOCKS = 128

NAMES: dict[type, str] = {
    UserMessage: "user_prompt_submit",
    TurnStart: "turn_start",
    TurnEnd: "turn_end",
    ToolCalled: "tool_call",
    ToolReturned: "tool_result",
    AssistantMessage: "assistant_message",
    CompactStart: "pre_compact",
    CompactDone: "post_compact",
    CompactFailed: "post_compact",
}


def fields(event: Event, compaction_id: str) -> dict[str, Json]:
    """The fields of the event's frame. Only for events that have a name in NAMES."""
    match event:
        case UserMessage(message=message):
            images = sum(isinstance(block, Image) for block in message.content)
            return {"text": text_of(message), "image_count": images}
        case TurnStart(step=step):
            return {"step": step}
        case TurnEnd(stop=stop, error=error):
            return {"stop": stop} if error is None else {"stop": stop, "error": error}
        case ToolCalled(call=call):
            return call_fields(call)
        case ToolReturned(call=call, result=result):
            status = "error" if result.is_error else "ok"
            return {**call_fields(call), "status": status, "result": _result(result)}
        case AssistantMessage(message=message):
            return {"text": text_of(message)}
        case CompactStart(reason=reason):
            return {"compaction_id": compaction_id, "reason": reason}
        case CompactDone():
            return {
                "compaction_id": compaction_id,
                "reason": event.reason,
                "status": "completed",
                "token_estimate": event.tokens_after,
            }
        case CompactFailed():
            status = "aborted" if event.aborted else "failed"
            base = {"compaction_id": compaction_id, "reason": event.reason}
            return {**base, "status": status, "error": event.error}
        case _:
            raise TypeError(f"{event!r} is not for extensions")


def call_fields(call: ToolCall) -> dict[str, Json]:
    return {"tool_id": call.id, "tool_name": call.name, "tool_args": call.args}


def text_of(message: Message) -> str:
    return "".join(block.text for block in message.content if isinstance(block, Text))


def content_of(blocks: tuple[Text | Image, ...]) -> tuple[tuple[Content, ...], bool]:
    """The blocks within the budget, and whether something was left out."""
    content: list[Content] = []
    left = MAX_RESULT_BYTES
    for block in blocks[:MAX_RESULT_BLOCKS]:
        if isinstance(block, Text):
            piece = Content("text", text=block.text[:left])
            size, whole = len(piece.text), len(block.text)
        else:
            data = binascii.b2a_base64(block.data, newline=False).decode("ascii")
            piece = Content("image", mime_type=block.mime_type, data=data)
            size = whole = len(data)
        if size > left:
            return tuple(content), True
        content.append(piece)
        left -= size
        if size < whole:
            return tuple(content), True
    return tuple(content), len(blocks) > MAX_RESULT_BLOCKS


def _result(result: ToolResult) -> Result:
    content, truncated = content_of(result.content)
    return Result(content, result.is_error, truncated)
