"""The whole answer to a prompt, for embedders who do not want its events."""

from __future__ import annotations

from zot.provider.types import Stop
from zot.text import Frozen
from zot.wire import frames
from zot.wire.frames import EventFrame, MessageShape, TextBlock, UsageShape


class Answer(Frozen):
    """The result of `ask` for a run that ended well."""

    text: str
    """Text of the model's last message."""
    stop: Stop
    """Why the model stopped: `end`, or `length` when its output limit cut the text."""
    usage: UsageShape
    """Tokens and cost of all model calls of the prompt."""
    messages: tuple[MessageShape, ...]
    """Messages of the model, in order; those with tool calls included."""


class AnswerParts:
    """Collects an Answer from the events of one prompt."""

    def __init__(self) -> None:
        self._messages: list[MessageShape] = []
        self._usage = UsageShape(0, 0, 0, 0, 0.0)
        self._stop: Stop = "end"

    def take(self, event: EventFrame) -> None:
        match event:
            case frames.AssistantMessage(content, time):
                self._messages.append(MessageShape("assistant", content, time))
            case frames.Usage():
                self._usage = _sum(self._usage, event)
            case frames.TurnEnd(stop):
                self._stop = stop

    def answer(self) -> Answer:
        content = self._messages[-1].content if self._messages else ()
        text = "".join(block.text for block in content if isinstance(block, TextBlock))
        return Answer(text, self._stop, self._usage, tuple(self._messages))


def _sum(usage: UsageShape, more: frames.Usage) -> UsageShape:
    return UsageShape(
        usage.input + more.input,
        usage.output + more.output,
        usage.cache_read + more.cache_read,
        usage.cache_write + more.cache_write,
        usage.cost_usd + more.cost_usd,
        usage.cost_known and more.cost_known,
    )
