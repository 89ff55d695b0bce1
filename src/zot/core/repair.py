"""Makes any transcript valid for the next request: every tool call has exactly one result, right
after it. It changes what is sent, never what is stored.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from msgspec.structs import replace

from zot.provider.types import Block, Image, Message, Model, Text, ToolCall, ToolResult

NOT_RECORDED = "the tool call was interrupted; no result was recorded"
NO_IMAGES = "[an image was left out: this model takes no images]"


def repaired(messages: Iterable[Message]) -> tuple[Message, ...]:
    """The messages, with lost results made up, orphans dropped and split results joined."""
    out: list[Message] = []
    for message in messages:
        if not message.content:
            continue
        if message.role != "tool":
            _close_calls(out, message.time)
            out.append(message)
        elif out and out[-1].role == "tool":
            out[-1] = replace(out[-1], content=out[-1].content + message.content)
        elif out and _calls(out[-1]):
            out.append(message)
    _close_calls(out, out[-1].time if out else 0.0)
    return tuple(out)


def fitting(messages: Sequence[Message], model: Model) -> tuple[Message, ...]:
    """The messages with what the model cannot take replaced by a note."""
    if model.images:
        return tuple(messages)
    return tuple(replace(each, content=_without_images(each.content)) for each in messages)


def _close_calls(out: list[Message], time: float) -> None:
    """Before the conversation goes on, settle the calls of the last assistant message."""
    if out and out[-1].role == "tool":
        results, asked = out.pop(), out[-1]
        content = _settled(_calls(asked), results.content)
        out.append(replace(results, content=content))
    elif out and (calls := _calls(out[-1])):
        out.append(Message("tool", _settled(calls, ()), time))


def _settled(calls: Sequence[ToolCall], given: Sequence[Block]) -> tuple[Block, ...]:
    results: dict[str, ToolResult] = {}
    for block in given:
        if isinstance(block, ToolResult):
            results.setdefault(block.call_id, block)
    lost = (Text(NOT_RECORDED),)
    return tuple(
        results.get(call.id) or ToolResult(call.id, lost, is_error=True, name=call.name)
        for call in calls
    )


def _calls(message: Message) -> list[ToolCall]:
    if message.role != "assistant":
        return []
    return [block for block in message.content if isinstance(block, ToolCall)]


def _without_images(content: tuple[Block, ...]) -> tuple[Block, ...]:
    return tuple(_without_image(block) for block in content)


def _without_image(block: Block) -> Block:
    if isinstance(block, Image):
        return Text(NO_IMAGES)
    if isinstance(block, ToolResult) and any(isinstance(each, Image) for each in block.content):
        content = tuple(
            Text(NO_IMAGES) if isinstance(each, Image) else each for each in block.content
        )
        return replace(block, content=content)
    return block
