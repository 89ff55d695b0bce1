"""The zot dialect: what the runtime knows, as the data of responses. No input or output."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from zot.provider.types import Block, Message, Model, Text, ToolResult
from zot.wire import frames
from zot.wire.zot_events import message_shape, usage_shape

if TYPE_CHECKING:
    from zot.runtime.runtime import State


def state(state: State) -> frames.State:
    return frames.State(
        state.provider,
        state.model.id,
        state.cwd,
        state.message_count,
        state.busy,
        usage_shape(state.usage),
    )


def models(models: Iterable[Model]) -> frames.Models:
    return frames.Models(
        tuple(
            frames.ModelShape(
                model.id, model.provider, model.context_window, model.max_output, model.reasoning
            )
            for model in models
        )
    )


def messages(messages: Iterable[Message]) -> frames.Messages:
    return frames.Messages(tuple(message_shape(message) for message in messages))


def least_size(messages: Iterable[Message]) -> int:
    """Bytes these messages need on the wire at the very least; quick to say."""
    texts = (block for message in messages for block in message.content)
    return sum(_least(block) for block in texts)


def _least(block: Block) -> int:
    if isinstance(block, Text):
        return len(block.text)
    if isinstance(block, ToolResult):
        return sum(map(_least, block.content))
    return 0
