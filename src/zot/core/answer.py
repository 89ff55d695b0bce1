"""One model call as it streams in: what was said so far, told to the listeners piece by piece."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import assert_never

from zot.core import events
from zot.core.events import Event
from zot.provider import types

Emit = Callable[[Event], None]

DELTA_LIMIT = 256 * 1024
"""Characters in one delta event; a larger piece of text becomes several."""


class ModelAnswer:
    """What one model call has said so far."""

    def __init__(self, model: types.Model, provider: str) -> None:
        self.model = model
        self.provider = provider
        self.text: list[str] = []
        self.usage = types.Usage()
        self.finished: types.Finished | None = None
        self._started = False

    def origin(
        self, stop: types.Stop, usage: types.Usage, error: str | None = None
    ) -> types.Origin:
        return types.Origin(self.provider, self.model.id, self.model.api, stop, usage, error)

    def take(self, event: types.StreamEvent, emit: Emit) -> None:  # noqa: C901  one flat match
        # By far the most common one, and a match takes four times as long.
        if type(event) is types.TextDelta and len(event.text) <= DELTA_LIMIT:
            self.text.append(event.text)
            emit(event)
            return
        match event:
            case types.TextDelta(text):
                self.text.append(text)
                for piece in _pieces(text):
                    emit(types.TextDelta(piece))
            case types.ReasoningDelta(text) if len(text) > DELTA_LIMIT:
                for piece in _pieces(text):
                    emit(types.ReasoningDelta(piece))
            case types.ToolCallArgs(id, delta) if len(delta) > DELTA_LIMIT:
                for piece in _pieces(delta):
                    emit(types.ToolCallArgs(id, piece))
            case (
                types.ReasoningDelta()
                | types.ToolCallArgs()
                | types.ToolCallStart()
                | types.ToolCallEnd()
                | types.Retrying()
            ):
                emit(event)
            case types.Started():
                self._start(emit)
            case types.UsageSeen(usage):
                self.usage = usage
            case types.FellBack():
                self.provider, self.model = event.provider, event.model
                emit(event)
            case types.Finished():
                self.finished = event
            case _:
                assert_never(event)

    def _start(self, emit: Emit) -> None:
        if not self._started:  # a retried call starts again, the message does not
            self._started = True
            emit(events.AssistantStart(self.provider, self.model.id, self.model.api))


def _pieces(text: str) -> Iterator[str]:
    return (text[at : at + DELTA_LIMIT] for at in range(0, len(text), DELTA_LIMIT))
