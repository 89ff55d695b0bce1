"""The zot dialect, other half: encodes events as frames. No input or output."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterable, Sequence
from functools import lru_cache
from typing import Any, TypeVar, assert_never

from msgspec import UNSET

from zot.core import events
from zot.core.events import Event
from zot.provider.types import Block, Image, Message, Reasoning, Text, ToolCall, ToolResult, Usage
from zot.wire import frames
from zot.wire.frames import ContentBlock, EventFrame, ImageBlock, TextBlock

RunEvent = (
    events.ErrorRaised
    | events.RunResumed
    | events.RunHeld
    | events.RunSuspended
    | events.CompactStart
    | events.CompactDone
    | events.Retrying
    | events.FellBack
    | events.QueueUpdate
)
"""Events of a run as a whole."""
PersonEvent = (
    events.ApprovalRequest
    | events.ApprovalResolved
    | events.ExtensionNotify
    | events.ExtensionDisplay
    | events.ExtensionPanel
    | events.ExtensionAsk
    | events.ServerChanged
)
"""Events for the person at the client."""
OtherEvent = (
    events.ReasoningDelta
    | events.TurnEnd
    | events.ToolAllowed
    | events.ToolStarted
    | events.CompactFailed
    | RunEvent
    | PersonEvent
)
"""Events for `_other`: with no frame, a rare one, or one that depends on features."""


def frame(event: Event, features: Collection[str] = ()) -> EventFrame | None:
    """Return the frame for an event; None: this wire or this client has none for it."""
    kind = type(event)
    if kind is events.TextDelta:  # by far the most common
        return frames.TextDelta(event.text)  # type: ignore[union-attr]
    make = _FRAMES.get(kind)  # a match would test one kind after the other
    if make is not None:
        return make(event)
    shown = _other(event, features)  # type: ignore[arg-type]  # a test covers all kinds
    feature = None if shown is None else frames.FEATURES.get(type(shown))
    return shown if feature is None or feature in features else None


def _other(event: OtherEvent, features: Collection[str]) -> EventFrame | None:
    match event:
        case events.ReasoningDelta(delta):
            return frames.ThinkingDelta(delta)
        case events.TurnEnd():
            return _turn_end(event, features)
        case events.ToolAllowed(call):
            return frames.ToolStart(call.id, call.name, call.args)
        case events.ToolStarted() | events.CompactFailed():
            return None  # covered by other frames, or used by other dialects only
        case _:
            return _of_run(event, features) if isinstance(event, RunEvent) else _for_person(event)


def _of_run(event: RunEvent, features: Collection[str]) -> EventFrame:
    match event:
        case events.ErrorRaised(message, code):
            return frames.Error(message, code if "codes" in features else UNSET)
        case events.RunResumed(run, attempt, away, calls):
            return frames.RunResumed(run, attempt, round(away * 1000), calls)
        case events.RunHeld(run, attempt, reason):
            return frames.RunHeld(run, attempt, reason)
        case events.RunSuspended(run):
            return frames.RunSuspended(run)
        case events.CompactStart(reason):
            return frames.CompactStart(reason)
        case events.CompactDone(summary):
            return frames.CompactDone(summary)
        case events.Retrying(attempt, attempts, delay, why, code, dropped):
            return frames.Retry(attempt, attempts, round(delay * 1000), why, code, dropped)
        case events.FellBack(failed, provider, model, why):
            return frames.Fallback(failed, provider, model.id, why)
        case events.QueueUpdate(steering, follow_up):
            return frames.QueueUpdate(steering, follow_up)
        case _:
            assert_never(event)


def _for_person(event: PersonEvent) -> EventFrame:
    match event:
        case events.ApprovalRequest():
            return approval_request(event)
        case events.ApprovalResolved(id, call_id, decision, source):
            return frames.ApprovalResolved(id, call_id, decision, source)
        case events.ExtensionNotify(extension, level, message):
            return frames.ExtNotify(extension, level, message)
        case events.ExtensionDisplay(extension, text):
            return frames.ExtDisplay(extension, text)
        case events.ExtensionPanel(extension, action, panel):
            return frames.ExtPanel(extension, action, panel)
        case events.ExtensionAsk():
            return extension_ask(event)
        case events.ServerChanged(name, server_state, tools, error):
            return frames.McpServer(name, server_state, tools, error)
        case _:
            assert_never(event)


def _turn_end(event: events.TurnEnd, features: Collection[str]) -> frames.TurnEnd:
    return frames.TurnEnd(
        event.stop,
        "end_turn" if event.stop == "end" else event.stop,
        event.error if event.error is not None else UNSET,
        event.code if event.code is not None and "codes" in features else UNSET,
    )


def approval_request(event: events.ApprovalRequest) -> frames.ApprovalRequest:
    call, timeout = event.call, round(event.timeout * 1000)
    asked = (event.id, call.id, call.name, call.args, event.preview, timeout)
    return frames.ApprovalRequest(*asked, event.pattern, event.diff, event.line)


def extension_ask(event: events.ExtensionAsk) -> frames.ExtAsk:
    timeout = round(event.timeout * 1000)
    asked = (event.id, event.extension, event.method, event.title, timeout, event.message)
    return frames.ExtAsk(*asked, event.options, event.placeholder, event.prefill)


def usage_shape(usage: Usage) -> frames.UsageShape:
    return frames.UsageShape(*_counts(usage), usage.cost_known)


def _counts(usage: Usage) -> tuple[int, int, int, int, float]:
    return usage.input, usage.output, usage.cache_read, usage.cache_write, usage.cost.total


def message_shape(message: Message) -> frames.MessageShape:
    return frames.MessageShape(message.role, content(message.content), timestamp(message.time))


def content(blocks: Sequence[Block]) -> tuple[ContentBlock, ...]:
    """Return blocks as the wire shows them: without reasoning, images as a count of bytes."""
    if len(blocks) == 1 and type(blocks[0]) is Text:  # the usual case
        return (TextBlock(blocks[0].text),)
    return tuple([shown for block in blocks if (shown := _block(block)) is not None])


def _block(block: Block) -> ContentBlock | None:
    match block:
        case Text() | Image():
            return _simple(block)
        case ToolCall(id, name, args):
            return frames.ToolCallBlock(id, name, args)
        case ToolResult(call_id, inner, is_error):
            return frames.ToolResultBlock(call_id, is_error, simple_content(inner))
        case Reasoning():
            return None
        case _:
            assert_never(block)


def simple_content(blocks: Iterable[Text | Image]) -> tuple[TextBlock | ImageBlock, ...]:
    return tuple(_simple(block) for block in blocks)


def _simple(block: Text | Image) -> TextBlock | ImageBlock:
    if isinstance(block, Text):
        return TextBlock(block.text)
    return ImageBlock(block.mime_type, len(block.data))


def timestamp(seconds: float) -> str:
    """Format a time as RFC 3339 in UTC, to the millisecond."""
    whole, rest = divmod(round(seconds * 1000), 1000)
    return f"{_date_and_time(whole)}.{rest:03d}Z"


@lru_cache(maxsize=1)
def _date_and_time(seconds: int) -> str:
    return time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(seconds))


# --- events that every client gets, as the same frame ------------------------------------------

Told = TypeVar("Told")


def _told(
    kind: type[Told], make: Callable[[Told], EventFrame]
) -> tuple[type, Callable[[Any], EventFrame]]:
    return kind, make


_FRAMES = dict(
    [
        _told(events.ToolCallArgs, lambda event: frames.ToolUseArgs(event.id, event.delta)),
        _told(events.ToolCallStart, lambda event: frames.ToolUseStart(event.id, event.name)),
        _told(events.ToolCallEnd, lambda event: frames.ToolUseEnd(event.id)),
        _told(events.UserMessage, lambda event: frames.UserMessage(*_shown(event.message))),
        _told(events.TurnStart, lambda event: frames.TurnStart(event.step)),
        _told(events.AssistantStart, lambda event: frames.AssistantStart()),
        _told(events.UsageReport, lambda event: _usage(event.usage, event.cumulative)),
        _told(
            events.AssistantMessage, lambda event: frames.AssistantMessage(*_shown(event.message))
        ),
        _told(
            events.ToolCalled,
            lambda event: frames.ToolCall(event.call.id, event.call.name, event.call.args),
        ),
        _told(events.ToolProgress, lambda event: frames.ToolProgress(event.id, event.text)),
        _told(events.ToolReturned, lambda event: _tool_result(event.call, event.result)),
        _told(events.Done, lambda event: frames.Done(event.run)),
    ]
)


def _shown(message: Message) -> tuple[tuple[ContentBlock, ...], str]:
    return content(message.content), timestamp(message.time)


def _usage(usage: Usage, cumulative: Usage) -> frames.Usage:
    return frames.Usage(*_counts(usage), usage_shape(cumulative), usage.cost_known)


def _tool_result(call: ToolCall, result: ToolResult) -> frames.ToolResult:
    return frames.ToolResult(call.id, result.is_error, simple_content(result.content))
