"""The zot dialect: what the runtime knows, as the data of responses. No input or output."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from zot.agent.wire import frames
from zot.agent.wire.zot_events import message_shape, usage_shape
from zot.provider.types import Message, Model

if TYPE_CHECKING:
    from zot.agent.runtime import State


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
