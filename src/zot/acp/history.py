"""A stored session as the updates that a client would have received: for `session/load`."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import assert_never

from zot.acp import calls, shapes
from zot.acp.shapes import AgentChunk, ImageContent, SessionUpdate, TextContent, UserChunk
from zot.core.session import Cleared, Entry, Replaced, ResultNote
from zot.core.tool import title_of
from zot.provider.types import Image, Message, Reasoning, Text, ToolCall, ToolResult

Said = tuple[str, Message]
"""An id for the updates, and the message."""


def history(entries: Iterable[Entry], cwd: str) -> Iterator[SessionUpdate]:
    """Yield the messages of a branch, including those before a compaction, but not cleared ones."""
    said, results = _said(entries)
    for id, message in said:
        for number, block in enumerate(message.content):
            match block:
                case Text(text):
                    chunk = UserChunk if message.role == "user" else AgentChunk
                    if text:
                        yield chunk(TextContent(text), id)
                case Image(mime_type, data):
                    yield UserChunk(ImageContent(data, mime_type), id)
                case Reasoning(text):
                    if text:
                        yield shapes.ThoughtChunk(TextContent(text), f"{id}.{number}")
                case ToolCall():
                    yield _call(block, results.get(block.id), cwd)
                case ToolResult():
                    pass  # shown with its call
                case _:
                    assert_never(block)


def call_ids(entries: Iterable[Entry]) -> Iterator[str]:
    """Yield the ids of the tool calls of a branch, as the client knows them."""
    for entry in entries:
        if isinstance(entry.body, Message):
            yield from (block.id for block in entry.body.content if isinstance(block, ToolCall))


def _said(entries: Iterable[Entry]) -> tuple[list[Said], dict[str, ToolResult]]:
    said: list[Said] = []
    results: dict[str, ToolResult] = {}
    for entry in entries:
        match entry.body:
            case Message():
                said.append((entry.id, entry.body))
            case Cleared():
                said = []
            case Replaced(messages):
                said = [
                    (f"{entry.id}.{number}", said_message)
                    for number, said_message in enumerate(messages)
                ]
            case ResultNote(result):
                results[result.call_id] = result
            case _:
                pass
    for _, message in said:
        for block in message.content:
            if isinstance(block, ToolResult):
                results[block.call_id] = block
    return said, results


def _call(call: ToolCall, result: ToolResult | None, cwd: str) -> shapes.CallShown:
    done = result is not None and not result.is_error
    return shapes.CallShown(
        call.id,
        title_of(call),
        call.name,
        calls.kind_of(call.name),
        "completed" if done else "failed",
        content=calls.result_content(call.name, result.content if result is not None else ()),
        locations=calls.locations_of(call, cwd),
        raw_input=calls.input_of(call),
    )
