"""Makes any transcript valid for the next request: every tool call has an id of its own and exactly
one result, right after it. It changes what is sent, never what is stored.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from msgspec.structs import replace

from zot.provider.types import Block, Image, Message, Model, Reasoning, Text, ToolCall, ToolResult

NOT_RECORDED = "the tool call was interrupted; no result was recorded"
NO_IMAGES = "[an image was left out: this model takes no images]"


def repaired(messages: Iterable[Message]) -> tuple[Message, ...]:
    """The messages, with lost results made up, orphans dropped and split results joined."""
    out: list[Message] = []
    taken: set[str] = set()
    asked: Message | None = None
    given: list[ToolResult] = []
    for message in messages:
        if message.role == "tool":
            given += [block for block in message.content if isinstance(block, ToolResult)]
            if asked is not None and out[-1] is asked:
                out.append(message)  # settled when it is known what follows
            continue
        _settle(out, asked, given, taken)
        asked, given = None, []
        if content := _in_place(message):
            out.append(message if content == message.content else replace(message, content=content))
            asked = out[-1] if _calls(out[-1]) else None
    _settle(out, asked, given, taken)
    return tuple(out)


def fitting(messages: Sequence[Message], model: Model) -> tuple[Message, ...]:
    """The messages with what the model cannot take replaced by a note."""
    if model.images:
        return tuple(messages)
    return tuple(replace(each, content=_without_images(each.content)) for each in messages)


def _settle(
    out: list[Message], asked: Message | None, given: Sequence[ToolResult], taken: set[str]
) -> None:
    """Before the conversation goes on, give each call of the last message its one result."""
    if asked is None:
        return
    results = out.pop() if out[-1] is not asked else Message("tool", (), asked.time)
    ids = _own_ids(_calls(asked), taken)
    content = _with_ids(asked.content, ids)
    if content != asked.content:
        out[-1] = replace(asked, content=content)
    settled = _settled(_calls(asked), ids, given)
    out.append(results if settled == results.content else replace(results, content=settled))


def _settled(
    calls: Sequence[ToolCall], ids: Sequence[str], given: Sequence[ToolResult]
) -> tuple[Block, ...]:
    """One result for each call, in call order: of several with its id, the next one not used."""
    left = list(given)
    settled: list[Block] = []
    for call, id in zip(calls, ids, strict=True):
        found = next((result for result in left if result.call_id == call.id), None)
        if found is None:
            found = ToolResult(id, (Text(NOT_RECORDED),), is_error=True, name=call.name)
        else:
            left.remove(found)
        settled.append(found if found.call_id == id else replace(found, call_id=id))
    return tuple(settled)


def _own_ids(calls: Sequence[ToolCall], taken: set[str]) -> list[str]:
    """An id for each call that no call before it has: servers refuse empty and repeated ones."""
    ids: list[str] = []
    for call in calls:
        id, number = call.id, 1
        while not id or id in taken:
            number += 1
            id = f"{call.id or 'call'}_{number}"
        taken.add(id)
        ids.append(id)
    return ids


def _with_ids(content: tuple[Block, ...], ids: Sequence[str]) -> tuple[Block, ...]:
    rest = iter(ids)
    return tuple(
        replace(block, id=next(rest)) if isinstance(block, ToolCall) else block for block in content
    )


def _in_place(message: Message) -> tuple[Block, ...]:
    """The blocks that may stand in a message of this role."""
    allowed = (Text, Image) if message.role == "user" else (Text, Image, ToolCall, Reasoning)
    return tuple(block for block in message.content if isinstance(block, allowed))


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
