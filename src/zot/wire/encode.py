"""The zot dialect, other half: encodes events as frames, and the runtime's state as the data of
responses. No input or output."""

from __future__ import annotations

import time
from collections.abc import Collection, Iterable, Sequence
from functools import lru_cache
from typing import TYPE_CHECKING, assert_never

from msgspec import UNSET
from msgspec.structs import asdict, astuple, replace

from zot.core import events
from zot.core.events import Event
from zot.core.session import ChangedFile, SessionInfo
from zot.core.source import ServerState
from zot.provider import types
from zot.provider.types import Block, Image, Message, Reasoning, Text, Usage
from zot.sessions.rows import rfc3339
from zot.text import encode_json, escaped
from zot.wire import frames, shapes
from zot.wire.frames import ContentBlock, EventFrame, ImageBlock, TextBlock

if TYPE_CHECKING:
    from zot.runtime.rewind import Checkpoint, Rewound
    from zot.runtime.runtime import Runtime

# --- events --------------------------------------------------------------------------------------

Repeated = (
    events.TurnStart
    | events.ReasoningDelta
    | events.ToolCallStart
    | events.ToolCallArgs
    | events.ToolCallEnd
    | events.ToolProgress
    | events.CacheMissed
    | events.RunHeld
    | events.RunSuspended
    | events.ApprovalResolved
    | events.ExtensionNotify
    | events.ExtensionDisplay
    | events.ExtensionPanel
    | events.ServerChanged
)
"""Events whose frame has the same fields in the same order."""
_REPEATING: dict[type[Repeated], type[EventFrame]] = {
    events.TurnStart: frames.TurnStart,
    events.ReasoningDelta: frames.ThinkingDelta,
    events.ToolCallStart: frames.ToolUseStart,
    events.ToolCallArgs: frames.ToolUseArgs,
    events.ToolCallEnd: frames.ToolUseEnd,
    events.ToolProgress: frames.ToolProgress,
    events.CacheMissed: frames.CacheMiss,
    events.RunHeld: frames.RunHeld,
    events.RunSuspended: frames.RunSuspended,
    events.ApprovalResolved: frames.ApprovalResolved,
    events.ExtensionNotify: frames.ExtNotify,
    events.ExtensionDisplay: frames.ExtDisplay,
    events.ExtensionPanel: frames.ExtPanel,
    events.ServerChanged: frames.McpServer,
}


FEATURES: dict[type[Event], tuple[type[EventFrame], str]] = {
    events.ReasoningDelta: (frames.ThinkingDelta, "thinking"),
    events.ToolAllowed: (frames.ToolStart, "tools"),
    events.CacheMissed: (frames.CacheMiss, "costs"),
    events.Retrying: (frames.Retry, "retries"),
    events.QueueUpdate: (frames.QueueUpdate, "queue"),
    events.ApprovalRequest: (frames.ApprovalRequest, "approvals"),
    events.ApprovalResolved: (frames.ApprovalResolved, "approvals"),
    events.ExtensionAsk: (frames.ExtAsk, "dialogs"),
    events.ServerChanged: (frames.McpServer, "mcp"),
}
"""Frames sent only to clients that requested the feature in `hello`; the event log has all."""


def frame(event: Event, features: Collection[str] = ()) -> EventFrame | None:
    """Return the frame for an event; None: this wire or this client has none for it."""
    optional = FEATURES.get(type(event))
    if optional is not None and optional[1] not in features:
        return None
    match event:
        case events.TextDelta(text):  # by far the most common
            return frames.TextDelta(text)
        case events.UserMessage(message):
            return frames.UserMessage(content(message.content), timestamp(message.time))
        case events.AssistantStart():
            return frames.AssistantStart()
        case events.UsageReport(usage, cumulative):
            used = asdict(usage_shape(usage, features))
            return frames.Usage(**used, cumulative=usage_shape(cumulative, features))
        case events.AssistantMessage(message):
            return frames.AssistantMessage(content(message.content), timestamp(message.time))
        case events.ToolCalled(call):
            return frames.ToolCall(call.id, call.name, call.args)
        case events.TurnEnd(stop, error, code):
            return frames.TurnEnd(
                stop,
                "end_turn" if stop == "end" else stop,
                error if error is not None else UNSET,
                code if code is not None and "codes" in features else UNSET,
            )
        case events.ToolAllowed(call):
            return frames.ToolStart(call.id, call.name, call.args)
        case events.ToolReturned(call, result):
            return frames.ToolResult(call.id, result.is_error, simple_content(result.content))
        case events.ErrorRaised(message, code):
            return frames.Error(message, code if "codes" in features else UNSET)
        case events.Done(run=run):
            return frames.Done(run)
        case events.RunResumed(run, attempt, away, calls):
            return frames.RunResumed(run, attempt, round(away * 1000), calls)
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
        case events.ApprovalRequest():
            return approval_request(event)
        case events.ExtensionAsk():
            return extension_ask(event)
        case events.ToolStarted() | events.CompactFailed():
            return None  # covered by other frames, or used by other dialects only
        case _:
            return _REPEATING[type(event)](*astuple(event))


def approval_request(event: events.ApprovalRequest) -> frames.ApprovalRequest:
    call, timeout = event.call, round(event.timeout * 1000)
    fields = (event.id, call.id, call.name, call.args, event.preview, timeout)
    return frames.ApprovalRequest(*fields, event.pattern, event.diff, event.line, event.review)


def extension_ask(event: events.ExtensionAsk) -> frames.ExtAsk:
    timeout = round(event.timeout * 1000)
    fields = (event.id, event.extension, event.method, event.title, timeout, event.message)
    return frames.ExtAsk(*fields, event.options, event.placeholder, event.prefill)


# --- messages ------------------------------------------------------------------------------------


def message_shape(message: Message) -> frames.MessageShape:
    return frames.MessageShape(message.role, content(message.content), timestamp(message.time))


def content(blocks: Sequence[Block]) -> tuple[ContentBlock, ...]:
    """Return blocks as the wire shows them: without reasoning, images as a count of bytes."""
    return tuple([_block(block) for block in blocks if not isinstance(block, Reasoning)])


def _block(block: Text | Image | types.ToolCall | types.ToolResult) -> ContentBlock:
    match block:
        case Text(text):
            return TextBlock(text)
        case Image(mime_type, data):
            return ImageBlock(mime_type, len(data))
        case types.ToolCall(id, name, args):
            return frames.ToolCallBlock(id, name, args)
        case types.ToolResult(call_id, inner, is_error):
            return frames.ToolResultBlock(call_id, is_error, simple_content(inner))
        case _:
            assert_never(block)


def simple_content(blocks: Iterable[Text | Image]) -> tuple[TextBlock | ImageBlock, ...]:
    return tuple(
        TextBlock(block.text)
        if isinstance(block, Text)
        else ImageBlock(block.mime_type, len(block.data))
        for block in blocks
    )


def usage_shape(usage: Usage, features: Collection[str] = ()) -> frames.UsageShape:
    tokens = (usage.input, usage.output, usage.cache_read, usage.cache_write)
    shown = frames.UsageShape(*tokens, usage.cost.total, usage.cost_known)
    if "costs" in features:
        return replace(shown, cost=frames.CostShape(*astuple(usage.cost)))
    return shown


def timestamp(seconds: float) -> str:
    """Format a time as RFC 3339 in UTC, to the millisecond."""
    whole, rest = divmod(round(seconds * 1000), 1000)
    return f"{_date_and_time(whole)}.{rest:03d}Z"


@lru_cache(maxsize=1)
def _date_and_time(seconds: int) -> str:
    return time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(seconds))


# --- data of responses ---------------------------------------------------------------------------


def state(runtime: Runtime, features: Collection[str] = ()) -> shapes.State:
    """Return the state, with the fields of the features that the client requested in `hello`."""
    now = runtime.state()
    shown = shapes.State(
        now.provider,
        now.model.id,
        now.cwd,
        now.message_count,
        now.busy,
        usage_shape(now.usage, features),
    )
    if "budgets" in features:
        shown = replace(shown, limits=shapes.LimitsShape(*astuple(runtime.agent.settings.limits)))
    if "approvals" in features:
        asked = tuple(map(approval_request, runtime.approvals.open_requests()))
        shown = replace(shown, questions=asked, mode=now.mode)
    if "dialogs" in features:
        shown = replace(shown, dialogs=tuple(map(extension_ask, runtime.dialogs.open())))
    if "jail" in features:
        shown = replace(shown, jail=runtime.shell.jail_report())
    if "mcp" in features:
        shown = replace(shown, mcp=servers(runtime.sources.servers()))
    if "sessions" in features:
        shown = replace(shown, session=session(runtime.sessions.info()))
    return shown


def session(info: SessionInfo) -> shapes.SessionShape:
    return shapes.SessionShape(
        id=info.id,
        path=info.path,
        message_count=info.messages,
        cwd=info.cwd,
        title=info.title,
        first_text=info.first_text,
        provider=info.provider,
        model=info.model,
        started=info.started,
        modified=rfc3339(info.modified) if info.modified else "",
        cost_usd=info.cost,
        parent=info.parent,
    )


def servers(servers: Iterable[ServerState]) -> tuple[shapes.McpServerShape, ...]:
    return tuple(shapes.McpServerShape(*astuple(server)) for server in servers)


def models(models: Iterable[types.Model]) -> tuple[shapes.ModelShape, ...]:
    return tuple(
        shapes.ModelShape(
            model.id, model.provider, model.context_window, model.max_output, model.reasoning
        )
        for model in models
    )


def checkpoint(moment: Checkpoint) -> shapes.CheckpointShape:
    id, time, *rest = astuple(moment)
    return shapes.CheckpointShape(id, timestamp(time), *rest)


def rewound(result: Rewound) -> shapes.Rewound:
    checkpoint, text, messages, files, preview = astuple(result)
    return shapes.Rewound(checkpoint, text, messages, changed(files), preview)


def changed(files: Iterable[ChangedFile]) -> tuple[shapes.ChangedFileShape, ...]:
    return tuple(shapes.ChangedFileShape(*astuple(file)) for file in files)


class MessageEncoder:
    """Encoder of `shapes.Messages` that caches each message of the last answer: the next answer
    encodes only new ones.
    """

    def __init__(self) -> None:
        self._encoded: dict[int, tuple[Message, bytes]] = {}
        """Message and bytes by `id(message)`, which is unique while the message is held here."""

    def least_size(self, messages: Iterable[Message]) -> int:
        """Return a lower bound of the answer's size in bytes; cheap."""
        size = 0
        for message in messages:
            known = self._encoded.get(id(message))
            size += len(known[1]) if known else sum(map(_least, message.content))
        return size

    def answer(self, messages: Iterable[Message]) -> list[bytes]:
        """Return the data of the answer, in pieces."""
        before, self._encoded = self._encoded, {}
        pieces: list[bytes] = []
        for message in messages:
            pair = before.get(id(message)) or (message, _encoded(message))
            self._encoded[id(message)] = pair
            pieces += (b",", pair[1])
        return [b'{"messages":[', *pieces[1:], b"]}"]


def _encoded(message: Message) -> bytes:
    return escaped(encode_json(message_shape(message)))


def _least(block: Block) -> int:
    if isinstance(block, Text):
        return len(block.text)
    return sum(map(_least, block.content)) if isinstance(block, types.ToolResult) else 0
