"""A run's events as extensions receive them: the name, and the fields of the frame."""

from __future__ import annotations

import binascii

from msgspec.structs import replace

from zot.core import events
from zot.core.hook import Permission, Subagent
from zot.extensions.proto import Content, OpenToolCall, Result
from zot.provider.types import Image, Json, Message, Text, ToolCall, texts_in

MAX_RESULT_BYTES = 256 * 1024
MAX_RESULT_BLOCKS = 128

NAMES: dict[type, str] = {
    events.RunResumed: "run_resumed",
    events.UserMessage: "user_prompt_submit",
    events.TurnStart: "turn_start",
    events.TurnEnd: "turn_end",
    events.ToolCalled: "tool_call",
    events.ApprovalRequest: "tool_confirmation_requested",
    events.ToolReturned: "tool_result",
    events.AssistantMessage: "assistant_message",
    events.CompactStart: "pre_compact",
    events.CompactDone: "post_compact",
    events.CompactFailed: "post_compact",
}


def fields(event: events.Event, compaction_id: str) -> dict[str, Json]:
    """Return the fields of the event's frame. Only for events with a name in NAMES."""
    match event:
        case events.UserMessage(message=message, queued=queued):
            images = sum(isinstance(block, Image) for block in message.content)
            waited = {"queued": True} if queued else {}
            return {"text": text_of(message), "image_count": images, **waited}
        case events.RunResumed(run, attempt, away, open):
            calls = [OpenToolCall(call.id, call.name, call.started, call.replay) for call in open]
            return {"run": run, "attempt": attempt, "away": away, "open_calls": tuple(calls)}
        case events.TurnStart(step=step):
            return {"step": step}
        case events.TurnEnd(stop=stop, error=error):
            return {"stop": stop} if error is None else {"stop": stop, "error": error}
        case events.ToolCalled(call=call):
            return call_fields(call)
        case events.ToolReturned(call=call, result=result):
            content, truncated = content_of(result.content)
            return {
                **call_fields(call if event.args is None else replace(call, args=event.args)),
                "status": event.status,
                "executed": event.executed,
                "result": Result(content, result.is_error, truncated),
            }
        case events.ApprovalRequest(call=call, preview=preview):
            return {"tool_id": call.id, "tool_name": call.name, "tool_preview": preview}
        case events.AssistantMessage(message=message):
            return {"text": text_of(message)}
        case events.CompactStart():
            return _compaction(event, compaction_id, event.tokens)
        case events.CompactDone():
            base = _compaction(event, compaction_id, event.tokens_after)
            return {**base, "status": "completed"}
        case events.CompactFailed():
            base = _compaction(event, compaction_id, event.tokens)
            status = "cancelled" if event.aborted else "failed"
            return {**base, "status": status, "error": event.error}
        case _:
            raise TypeError(f"{event!r} is not for extensions")


def _compaction(
    event: events.CompactStart | events.CompactDone | events.CompactFailed, id: str, tokens: int
) -> dict[str, Json]:
    return {
        "compaction_id": id,
        "reason": event.reason,
        "message_count": event.messages,
        "token_estimate": tokens,
    }


def call_fields(call: ToolCall) -> dict[str, Json]:
    fields: dict[str, Json] = {"tool_id": call.id, "tool_name": call.name}
    if call.args is None:
        return {**fields, "tool_args_raw": call.raw}
    return {**fields, "tool_args": call.args}


def permission_fields(call: ToolCall, permission: Permission) -> dict[str, Json]:
    fields: dict[str, Json] = {
        "tool_id": call.id,
        "tool_name": call.name,
        "decision": permission.decision,
        "source": permission.source,
        "stage": permission.stage,
    }
    return {**fields, "reason": permission.reason} if permission.reason else fields


def subagent_fields(subagent: Subagent) -> dict[str, Json]:
    return {
        "agent_id": subagent.id,
        "agent_run_id": subagent.run,
        "name": subagent.id,
        "status": subagent.status,
    }


def text_of(message: Message) -> str:
    return "".join(texts_in(message.content))


def content_of(blocks: tuple[Text | Image, ...]) -> tuple[tuple[Content, ...], bool]:
    """Return the blocks within the limits, and whether something was left out."""
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
