"""Types of all frames that the zot wire sends, and their parser for clients. The SDK hands the same
types to embedders, `zot schema` prints them as JSON Schema.
"""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING, Any, ClassVar, Literal, TypeVar

import msgspec
from msgspec import UNSET, UnsetType

from zot.core import events
from zot.core.events import OpenCall as OpenCall
from zot.errors import CommandError, ZotError
from zot.lines import decode_line, encode_line
from zot.provider.types import Json, Stop
from zot.text import Frozen, whole_characters

T = TypeVar("T")

# --- content blocks and messages ---------------------------------------------------------------


class BlockShape(Frozen, tag_field="type"):
    """Base of the content blocks of a message."""


class TextBlock(BlockShape, tag="text"):
    """A text."""

    text: str


class ImageBlock(BlockShape, tag="image"):
    """An image, shown as a number of bytes."""

    mime_type: str
    bytes: int
    """Size of the image; the data is not repeated, to keep transcripts small."""


class ToolCallBlock(BlockShape, tag="tool_call"):
    """A request of the model to run a tool."""

    id: str
    name: str
    args: dict[str, Json] | None
    """null when the model's arguments were not a JSON object."""


class ToolResultBlock(BlockShape, tag="tool_result"):
    """The result of a tool call."""

    call_id: str
    is_error: bool
    content: tuple[TextBlock | ImageBlock, ...]


ContentBlock = TextBlock | ImageBlock | ToolCallBlock | ToolResultBlock


class MessageShape(Frozen):
    """A message of the transcript, as clients see it."""

    role: Literal["user", "assistant", "tool"]
    content: tuple[ContentBlock, ...]
    time: str
    """RFC 3339, in UTC."""


class CostShape(Frozen):
    """US dollars by the kind of token."""

    input: float
    """Input that was not in the provider's prompt cache."""
    output: float
    cache_read: float
    cache_write: float


class UsageShape(Frozen, omit_defaults=True):
    """Tokens and cost."""

    input: int
    output: int
    cache_read: int
    cache_write: int
    cost_usd: float
    cost_known: bool = True
    """Sent only when false: the price of the model is unknown."""
    cost: CostShape | UnsetType = UNSET
    """Feature `costs`: the parts of `cost_usd`."""


# --- events --------------------------------------------------------------------------------------


class Frame(Frozen, omit_defaults=True, tag_field="type"):
    """Base of all events. Fields that have their default value are omitted. A frame with the same
    content as a core event inherits the fields of that event."""

    streamed: ClassVar[bool] = False
    """Whether it comes in a fast stream, or right behind one."""

    def to_wire(self) -> dict[str, Any]:
        """Return the frame as the JSON object that `zot rpc` would send."""
        wire: dict[str, Any] = msgspec.json.decode(encode_line(self))
        return wire


class Said(Frame):
    content: tuple[ContentBlock, ...]
    time: str


class OfCall(Frame):
    id: str
    name: str
    args: dict[str, Json] | None
    """In `tool_start`: the arguments it runs with; a guard may have changed the model's."""


class OfQuestion(Frame):
    """A question to a person, or its outcome; the answer names this `request_id`."""

    request_id: str


class UserMessage(Said, tag="user_message"):
    """A message of the user, as it was added to the transcript."""


class TurnStart(Frame, events.TurnStart, tag="turn_start"):
    """A call of the model begins; `step` counts them from 1."""


class AssistantStart(Frame, tag="assistant_start"):
    """The model begins to answer."""


class TextDelta(Frame, tag="text_delta"):
    """A piece of the model's text."""

    streamed = True
    delta: str


class ThinkingDelta(Frame, tag="thinking_delta"):
    """A piece of the model's reasoning (feature `thinking`)."""

    streamed = True
    delta: str


class ToolUseStart(Frame, events.ToolCallStart, tag="tool_use_start"):
    """The model begins to write a tool call."""


class ToolUseArgs(Frame, events.ToolCallArgs, tag="tool_use_args"):
    """A piece of the call's arguments, as JSON text."""

    streamed = True


class ToolUseEnd(Frame, events.ToolCallEnd, tag="tool_use_end"):
    """The model has written the tool call; the tool has not run yet."""


class Usage(Frame, tag="usage"):
    """Tokens and cost of one model call."""

    streamed = True
    input: int
    output: int
    cache_read: int
    cache_write: int
    cost_usd: float
    cumulative: UsageShape
    cost_known: bool = True
    cost: CostShape | UnsetType = UNSET


class CacheMiss(Frame, events.CacheMissed, tag="cache_miss"):
    """Feature `costs`: the provider did not find a prefix in its prompt cache that it should have
    known. `cause` names the first part that differs from the last request."""


class AssistantMessage(Said, tag="assistant_message"):
    """The whole message of the model, as it was added to the transcript."""

    streamed = True


class ToolCall(OfCall, tag="tool_call"):
    """A tool is about to run with these arguments."""


class TurnEnd(Frame, tag="turn_end"):
    """The model call has ended; `stop` says why. With `tool_use` its tools run next."""

    streamed = True
    stop: Stop
    stop_reason: Literal["end_turn", "tool_use", "length", "error", "aborted"] | UnsetType = UNSET
    """Always sent; optional so that frames of other implementations can be parsed."""
    error: str | UnsetType = UNSET
    code: str | UnsetType = UNSET
    """Feature `codes`."""


class ToolStart(OfCall, tag="tool_start"):
    """Feature `tools`: the call has passed guards and approval; the tool starts."""


class ToolProgress(Frame, events.ToolProgress, tag="tool_progress"):
    """A piece of output of a tool that runs."""

    streamed = True


class ToolResult(Frame, tag="tool_result"):
    """The result of a tool call, as the model gets it."""

    id: str
    is_error: bool
    content: tuple[TextBlock | ImageBlock, ...]


class Error(Frame, tag="error"):
    """A failure of the run. The run goes on after some; the last `turn_end` decides."""

    message: str
    code: str | UnsetType = UNSET
    """Feature `codes`."""


class Done(Frame, tag="done"):
    """Last event of every prompt and every compact."""

    run: str = ""
    """Name of the run, with --durable."""


class RunResumed(Frame, tag="run_resumed"):
    """A durable run of an earlier process continues; discard the turn that was open."""

    run: str
    attempt: int
    away_ms: int
    open: tuple[OpenCall, ...]


class RunHeld(Frame, events.RunHeld, tag="run_held"):
    """An interrupted durable run waits for a `resume_run` command."""


class RunSuspended(Frame, events.RunSuspended, tag="run_suspended"):
    """The process ends but the run continues with the next start. No `done` follows."""


class CompactStart(Frame, tag="compact_start"):
    """The older part of the transcript is about to be summarised."""

    reason: Literal["manual", "threshold", "overflow"]


class CompactDone(Frame, tag="compact_done"):
    """The summary has replaced the older part of the transcript."""

    summary: str


class Retry(Frame, tag="retry"):
    """Feature `retries`: the model call failed and is repeated after a delay."""

    attempt: int
    """Number of the failed attempt, from 1."""
    max_attempts: int
    delay_ms: int
    reason: str
    code: str
    """Error code, as in `error`."""
    dropped: bool = False
    """Discard the deltas of this turn: the next turn repeats the answer."""


class Fallback(Frame, tag="fallback"):
    """The model failed permanently; the call continues with another model."""

    failed_model: str
    provider: str
    model: str
    reason: str


class QueueUpdate(Frame, tag="queue_update"):
    """The messages that wait for the model (feature `queue`)."""

    steering: tuple[str, ...]
    follow_up: tuple[str, ...]


class ApprovalRequest(OfQuestion, tag="approval_request"):
    """Feature `approvals`; answered by an `approve` command with this `request_id`."""

    id: str
    name: str
    args: dict[str, Json] | None
    preview: str
    timeout_ms: int
    pattern: str = ""
    """Pattern that `allow_project` or `deny_project` would store, unless the answer has another."""
    diff: str = ""
    """Diff of the change that the call would make to its file."""
    line: int = 0
    """Number of the first line that changes."""
    review: str = ""
    """Why the reviewer (`--approve auto`) leaves the decision to a person."""


class ApprovalResolved(OfQuestion, tag="approval_resolved"):
    """The outcome of an ApprovalRequest (feature `approvals`)."""

    id: str
    decision: Literal["allow", "deny"]
    source: Literal["client", "remembered", "timeout", "abort", "reviewer"]
    reason: str = ""
    """The reason of `reviewer`, a model that decided (`--approve auto`)."""


class ExtNotify(Frame, events.ExtensionNotify, tag="ext_notify"):
    """A notice of an extension for the user."""


class ExtDisplay(Frame, events.ExtensionDisplay, tag="ext_display"):
    """A text of an extension for the user; the model does not see it."""


class ExtPanel(Frame, events.ExtensionPanel, tag="ext_panel"):
    """An extension opens, draws or closes a panel."""


class ExtAsk(OfQuestion, tag="ext_ask"):
    """Feature `dialogs`; answered by an `answer` command with this `request_id`."""

    extension: str
    method: Literal["confirm", "select", "input", "editor"]
    title: str
    timeout_ms: int
    message: str = ""
    options: tuple[str, ...] = ()
    placeholder: str = ""
    prefill: str = ""


class McpServer(Frame, events.ServerChanged, tag="mcp_server"):
    """Feature `mcp`: the state of a server changed."""


MessageFrame = UserMessage | AssistantMessage
TurnFrame = TurnStart | AssistantStart | TextDelta | ThinkingDelta | Usage | CacheMiss | TurnEnd
CallFrame = (
    ToolUseStart | ToolUseArgs | ToolUseEnd | ToolCall | ToolStart | ToolProgress | ToolResult
)
RunFrame = Error | Done | RunResumed | RunHeld | RunSuspended | Retry | Fallback | QueueUpdate
CompactFrame = CompactStart | CompactDone
PersonFrame = ApprovalRequest | ApprovalResolved | ExtAsk | ExtNotify | ExtDisplay | ExtPanel
EventFrame = (
    MessageFrame | TurnFrame | CallFrame | RunFrame | CompactFrame | PersonFrame | McpServer
)


# --- parsing -------------------------------------------------------------------------------------


class FrameError(ZotError):
    """The received text is not a frame."""

    code = "parse_error"


class Response(Frame, tag="response"):
    """The answer to one command."""

    command: str
    success: bool
    id: str | int | float | UnsetType = UNSET
    data: Any = UNSET
    error: str | UnsetType = UNSET
    code: str | UnsetType = UNSET
    """Feature `codes`."""

    def data_as(self, type: type[T]) -> T:
        """Convert the data to a type of zot.wire.shapes. Raises FrameError: it has another
        shape."""
        try:
            return msgspec.convert(self.data, type)
        except msgspec.ValidationError as error:
            raise FrameError(f"the answer to {self.command!r} has another shape: {error}") from None


class Unknown(Frozen):
    """A frame of an unknown type, or whose fields do not match its type.

    Protocol version 1 may grow, so clients skip unknown frames.
    """

    type: str
    fields: dict[str, Any]
    """All fields of the frame, including its type."""
    problem: str = ""
    """Validation error of a frame whose type is known."""

    def to_wire(self) -> dict[str, Any]:
        """Return the frame as it came."""
        return self.fields


AnyFrame = EventFrame | Response | Unknown

KNOWN = frozenset(member.__struct_config__.tag for member in (*EventFrame.__args__, Response))
"""The `type` of every frame in this version."""


def parse_frame(frame: bytes | str | dict[str, Any]) -> AnyFrame:
    """Parse one frame, a line or an object, into its type: the inverse of `to_wire`. Raises
    FrameError: it is not a JSON object with a "type"."""
    fields: Any = frame
    if not isinstance(frame, dict):
        line = whole_characters(frame).encode() if isinstance(frame, str) else frame
        try:
            return _decoded(line)
        except CommandError:
            pass  # unknown type, wrong shape or no JSON: decoded again to tell them apart
        try:
            fields = decode_line(line, msgspec.json.decode)
        except CommandError as error:
            raise FrameError(f"not a frame: {_excerpt(frame)}: {error}") from None
    kind = fields.get("type") if isinstance(fields, dict) else None
    if not isinstance(kind, str):
        raise FrameError(f'not a frame: {_excerpt(frame)}: it is no JSON object with a "type"')
    try:
        return _converted(fields)
    except msgspec.ValidationError as error:
        return Unknown(kind, fields, str(error) if kind in KNOWN else "")


@cache
def _decoder() -> msgspec.json.Decoder[Any]:
    """Return the decoder of all frames; made on first use: a server needs none."""
    return msgspec.json.Decoder(EventFrame | Response)


def _decoded(line: bytes) -> EventFrame | Response:
    frame: EventFrame | Response = decode_line(line, _decoder().decode)
    return frame


def _converted(fields: dict[str, Any]) -> EventFrame | Response:
    frame: EventFrame | Response = msgspec.convert(fields, EventFrame | Response)
    return frame


def _excerpt(frame: object) -> str:
    text = repr(frame)
    return text if len(text) <= 200 else text[:200] + "..."


if not TYPE_CHECKING:  # embedders also look for response data in `zot.sdk.events`

    def __getattr__(name: str) -> object:
        if name.startswith("__"):  # Python checks whether a module is a package
            raise AttributeError(name)
        from zot.wire import shapes

        return getattr(shapes, name)
