"""The answer of one model call: as it streams in, for the listeners of a run, or beside a run."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import closing

from msgspec.structs import replace

from zot.cancel import Cancel
from zot.core import events
from zot.core.cost import add, priced
from zot.core.events import Event
from zot.errors import BadResponse
from zot.provider import types
from zot.provider.retry import RetryPolicy, stream_with_retry

Emit = Callable[[Event], None]
AnswerEvent = (
    types.Started
    | types.TextDelta
    | types.ReasoningDelta
    | types.ToolCallStart
    | types.ToolCallArgs
    | types.ToolCallEnd
    | types.UsageSeen
    | types.CacheMissed
    | types.Finished
)
"""Events of one attempt at a model call."""

DELTA_LIMIT = 256 * 1024
"""Maximum characters in one delta event; larger texts are split."""


class ModelAnswer:
    """Partial answer of one model call."""

    def __init__(self, model: types.Model, provider: str) -> None:
        self.model = model
        self.provider = provider
        self.text: list[str] = []
        self.usage = types.Usage()
        self.finished: types.Finished | None = None
        self._started = False
        self._has_more = False
        """Events other than text were emitted."""

    @property
    def has_content(self) -> bool:
        return self._has_more or bool(self.text)

    def begin_anew(self) -> None:
        """Reset the answer: the call was cut off and is repeated."""
        self.text, self.usage = [], types.Usage()
        self._started = self._has_more = False

    def origin(
        self, stop: types.Stop, usage: types.Usage, error: str | None = None
    ) -> types.Origin:
        return types.Origin(self.provider, self.model.id, self.model.api, stop, usage, error)

    def take(self, event: AnswerEvent, emit: Emit) -> None:
        # No `match`, which tests one type after the other: this runs for every delta.
        if type(event) is types.TextDelta:
            self.text.append(event.text)
            if len(event.text) <= DELTA_LIMIT:
                emit(event)
                return
            for piece in _pieces(event.text):
                emit(types.TextDelta(piece))
        elif type(event) is types.UsageSeen:
            self.usage = event.usage
        elif type(event) is types.Started:
            if not self._started:  # a retry must not start the message again
                self._started = True
                emit(events.AssistantStart(self.provider, self.model.id, self.model.api))
        elif type(event) is types.Finished:
            self.finished = event
        elif isinstance(event, types.CacheMissed):
            emit(event)
        else:
            self._take_other(event, emit)

    def _take_other(
        self,
        event: types.ReasoningDelta | types.ToolCallStart | types.ToolCallArgs | types.ToolCallEnd,
        emit: Emit,
    ) -> None:
        self._has_more = True
        match event:
            case types.ReasoningDelta(text) if len(text) > DELTA_LIMIT:
                for piece in _pieces(text):
                    emit(types.ReasoningDelta(piece))
            case types.ToolCallArgs(id, delta) if len(delta) > DELTA_LIMIT:
                for piece in _pieces(delta):
                    emit(types.ToolCallArgs(id, piece))
            case _:
                emit(event)


def _pieces(text: str) -> Iterator[str]:
    return (text[at : at + DELTA_LIMIT] for at in range(0, len(text), DELTA_LIMIT))


def consistent(finished: types.Finished) -> types.Finished:
    """Return the answer with a stop reason that agrees with its content.

    Some servers end an answer with tool calls with `stop`; the calls are meant to run. An answer
    cut at the length limit may have incomplete calls; these must not run.
    """
    if finished.stop == "length":
        kept = tuple(block for block in finished.content if not isinstance(block, types.ToolCall))
        return replace(finished, content=kept)
    stop: types.Stop = "end"
    for block in finished.content:
        if isinstance(block, types.ToolCall):
            stop = "tool_use"
    return finished if stop == finished.stop else replace(finished, stop=stop)


def with_text(message: types.Message, text: str) -> types.Message:
    """Replace the text of a message. Tool calls and reasoning before the text stay; reasoning after
    it belonged to the old text."""
    first: list[types.Block] = []
    for block in message.content:
        if not isinstance(block, types.Reasoning):
            break
        first.append(block)
    calls = [block for block in message.content if isinstance(block, types.ToolCall)]
    return replace(message, content=(*first, types.Text(text), *calls))


class SideCalls:
    """Model calls beside the turns of a run."""

    def __init__(self, provider: types.Provider, model: types.Model, retry: RetryPolicy) -> None:
        self._provider, self._model, self._retry = provider, model, retry
        self.spent = types.Usage()
        """Usage of all calls so far, also of those that failed."""

    def make(
        self,
        request: types.Request,
        cancel: Cancel,
        show: Callable[[str], None] = lambda text: None,
    ) -> types.Finished:
        """Make one call; `show` gets the text as it streams.

        Raises:
            ProviderError: the model failed.
            Cancelled: it was given up.
        """
        before = self.spent
        with closing(stream_with_retry(self._provider, request, cancel, self._retry)) as stream:
            for event in stream:
                if isinstance(event, types.UsageSeen | types.Finished):
                    self.spent = add(before, priced(event.usage, self._model.price))
                cancel.check()
                match event:
                    case types.TextDelta(text):
                        show(text)
                    case types.Retrying():
                        before = self.spent
                        if event.dropped:
                            show(f"\n\n[{event.reason}; the answer begins anew]\n\n")
                    case types.Finished():
                        return event
        raise BadResponse(f"{self._provider.name}: the stream ended without an end")
