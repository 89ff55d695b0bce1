"""One model call as it streams in: what was said so far, told to the listeners piece by piece."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import assert_never

from zot.core import events
from zot.core.events import Event
from zot.provider.types import (
    FellBack,
    Finished,
    Model,
    Origin,
    ReasoningDelta,
    Retrying,
    Started,
    Stop,
    StreamEvent,
    TextDelta,
    ToolCallArgs,
    ToolCallEnd,
    ToolCallStart,
    Usage,
    UsageSeen,
)

Emit = Callable[[Event], None]

DELTA_LIMIT = 256 * 1024
"""Characters in one delta event; a larger piece of text becomes several."""


class ModelAnswer:
    """What one model call has said so far."""

    def __init__(self, model: Model, provider: str) -> None:
        self.model = model
        self.provider = provider
        self.text: list[str] = []
        self.usage = Usage()
        self.finished: Finished | None = None
        self._started = False

    def origin(self, stop: Stop, usage: Usage, error: str | None = None) -> Origin:
        return Origin(self.provider, self.model.id, self.model.api, stop, usage, error)

    def take(self, event: StreamEvent, emit: Emit) -> None:  # noqa: C901  one flat match
        # By far the most common one, and a match takes four times as long.
        if type(event) is TextDelta and len(event.text) <= DELTA_LIMIT:
            self.text.append(event.text)
            emit(event)
            return
        match event:
            case TextDelta(text):
                self.text.append(text)
                for piece in _pieces(text):
                    emit(TextDelta(piece))
            case ReasoningDelta(text) if len(text) > DELTA_LIMIT:
                for piece in _pieces(text):
                    emit(ReasoningDelta(piece))
            case ToolCallArgs(id, delta) if len(delta) > DELTA_LIMIT:
                for piece in _pieces(delta):
                    emit(ToolCallArgs(id, piece))
            case ReasoningDelta() | ToolCallArgs() | ToolCallStart() | ToolCallEnd() | Retrying():
                emit(event)
            case Started():
                self._start(emit)
            case UsageSeen(usage):
                self.usage = usage
            case FellBack():
                self.provider, self.model = event.provider, event.model
                emit(event)
            case Finished():
                self.finished = event
            case _:
                assert_never(event)

    def _start(self, emit: Emit) -> None:
        if not self._started:  # a retried call starts again, the message does not
            self._started = True
            emit(events.AssistantStart(self.provider, self.model.id, self.model.api))


def _pieces(text: str) -> Iterator[str]:
    return (text[at : at + DELTA_LIMIT] for at in range(0, len(text), DELTA_LIMIT))
