"""Every frame the zot wire sends, as a type. The SDK hands the same types to embedders, `zot
schema` prints them as JSON Schema, and a client parses lines back into them.
"""

from __future__ import annotations

from typing import Any, Literal

import msgspec
from msgspec import UNSET, UnsetType

from zot.core import events
from zot.core.events import OpenCall as OpenCall
from zot.core.rule import Rule
from zot.core.session import ChangedFile
from zot.core.shell import ShellOutput
from zot.core.source import ExtensionState
from zot.lines import encode_line
from zot.provider.types import Json, Stop
from zot.text import Frozen
from zot.wire.first import LimitsData

# --- content blocks and messages ---------------------------------------------------------------


class BlockShape(Frozen, tag_field="type"):
    """Base of what a message is made of."""


class TextBlock(BlockShape, tag="text"):
    text: str


class ImageBlock(BlockShape, tag="image"):
    mime_type: str
    bytes: int
    """How large the image is; the data is not repeated, to keep transcripts small."""


class ToolCallBlock(BlockShape, tag="tool_call"):
    id: str
    name: str
    args: dict[str, Json] | None
    """null when the model's arguments were not a JSON object."""


class ToolResultBlock(BlockShape, tag="tool_result"):
    call_id: str
    is_error: bool
    content: tuple[TextBlock | ImageBlock, ...]


ContentBlock = TextBlock | ImageBlock | ToolCallBlock | ToolResultBlock


class MessageShape(Frozen):
    role: Literal["user", "assistant", "tool"]
    content: tuple[ContentBlock, ...]
    time: str
    """RFC 3339, in UTC."""


class UsageShape(Frozen, omit_defaults=True):
    input: int
    output: int
    cache_read: int
    cache_write: int
    cost_usd: float
    cost_known: bool = True
    """Only ever sent as false: the price of the model is not known."""


# --- events --------------------------------------------------------------------------------------


class Frame(Frozen, omit_defaults=True, tag_field="type"):
    """Base of all events. Fields with a default are left out when they have it. A frame that says
    just what an event of the core says has the fields of that one."""

    def to_wire(self) -> dict[str, Any]:
        """The frame as `zot rpc` would have sent it."""
        wire: dict[str, Any] = msgspec.json.decode(encode_line(self))
        return wire


class Said(Frame):
    content: tuple[ContentBlock, ...]
    time: str


class OfCall(Frame):
    id: str
    name: str
    args: dict[str, Json] | None
    """Of `tool_start`: what it runs with. A guard may have changed what the model asked for."""


class OfQuestion(Frame):
    """A person is asked, or was; the answer names this `request_id`."""

    request_id: str


class UserMessage(Said, tag="user_message"): ...


class TurnStart(Frame, events.TurnStart, tag="turn_start"): ...


class AssistantStart(Frame, tag="assistant_start"): ...


class TextDelta(Frame, tag="text_delta"):
    delta: str


class ThinkingDelta(Frame, tag="thinking_delta"):
    """Feature `thinking`."""

    delta: str


class ToolUseStart(Frame, events.ToolCallStart, tag="tool_use_start"): ...


class ToolUseArgs(Frame, events.ToolCallArgs, tag="tool_use_args"): ...


class ToolUseEnd(Frame, events.ToolCallEnd, tag="tool_use_end"): ...


class Usage(Frame, tag="usage"):
    input: int
    output: int
    cache_read: int
    cache_write: int
    cost_usd: float
    cumulative: UsageShape
    cost_known: bool = True


class AssistantMessage(Said, tag="assistant_message"): ...


class ToolCall(OfCall, tag="tool_call"): ...


class TurnEnd(Frame, tag="turn_end"):
    stop: Stop
    stop_reason: Literal["end_turn", "tool_use", "length", "error", "aborted"] | UnsetType = UNSET
    """Always sent; optional so that frames of other implementations can be parsed."""
    error: str | UnsetType = UNSET
    code: str | UnsetType = UNSET
    """Feature `codes`."""


class ToolStart(OfCall, tag="tool_start"):
    """Feature `tools`: guards and approval are behind it, the tool begins."""


class ToolProgress(Frame, events.ToolProgress, tag="tool_progress"): ...


class ToolResult(Frame, tag="tool_result"):
    id: str
    is_error: bool
    content: tuple[TextBlock | ImageBlock, ...]


class Error(Frame, tag="error"):
    message: str
    code: str | UnsetType = UNSET
    """Feature `codes`."""


class Done(Frame, tag="done"):
    """The last event of every prompt and every compact."""

    run: str = ""
    """With --durable: the name of the run."""


class RunResumed(Frame, tag="run_resumed"):
    """A durable run that another process began goes on. A turn that was open is void."""

    run: str
    attempt: int
    away_ms: int
    open: tuple[OpenCall, ...]


class RunHeld(Frame, events.RunHeld, tag="run_held"):
    """A durable run that was cut off waits for a `resume_run` command."""


class RunSuspended(Frame, events.RunSuspended, tag="run_suspended"):
    """The process ends and the run does not: it goes on with the next start. No `done` follows."""


class CompactStart(Frame, tag="compact_start"):
    reason: Literal["manual", "threshold", "overflow"]


class CompactDone(Frame, tag="compact_done"):
    summary: str


class Retry(Frame, tag="retry"):
    """Feature `retries`."""

    attempt: int
    max_attempts: int
    delay_ms: int
    reason: str


class Fallback(Frame, tag="fallback"):
    """The model failed for good; the call goes on with another one."""

    failed_model: str
    provider: str
    model: str
    reason: str


class QueueUpdate(Frame, tag="queue_update"):
    """Feature `queue`."""

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
    """What `allow_project` would allow from now on, unless the answer says another pattern."""
    diff: str = ""
    """What the call would change in its file."""
    line: int = 0
    """The first line that changes."""


class ApprovalResolved(OfQuestion, tag="approval_resolved"):
    """Feature `approvals`."""

    id: str
    decision: Literal["allow", "deny"]
    source: Literal["client", "remembered", "timeout", "abort"]


class ExtNotify(Frame, events.ExtensionNotify, tag="ext_notify"): ...


class ExtDisplay(Frame, events.ExtensionDisplay, tag="ext_display"): ...


class ExtPanel(Frame, events.ExtensionPanel, tag="ext_panel"): ...


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
    """Feature `mcp`: a server is in another state than before."""


EventFrame = (
    UserMessage
    | TurnStart
    | AssistantStart
    | TextDelta
    | ThinkingDelta
    | ToolUseStart
    | ToolUseArgs
    | ToolUseEnd
    | Usage
    | AssistantMessage
    | ToolCall
    | TurnEnd
    | ToolStart
    | ToolProgress
    | ToolResult
    | Error
    | Done
    | RunResumed
    | RunHeld
    | RunSuspended
    | CompactStart
    | CompactDone
    | Retry
    | Fallback
    | QueueUpdate
    | ApprovalRequest
    | ApprovalResolved
    | ExtNotify
    | ExtDisplay
    | ExtPanel
    | ExtAsk
    | McpServer
)
FEATURES: dict[type[Frame], str] = {
    ThinkingDelta: "thinking",
    ToolStart: "tools",
    Retry: "retries",
    QueueUpdate: "queue",
    ApprovalRequest: "approvals",
    ApprovalResolved: "approvals",
    ExtAsk: "dialogs",
    McpServer: "mcp",
}
"""Frames for a client that asked for them in its `hello`; the log of a session has them all."""


# --- what responses carry ------------------------------------------------------------------------


class LimitsShape(LimitsData):
    """What one prompt may use up; null: no limit."""


class McpServerShape(Frozen, omit_defaults=True):
    """An MCP server, as it is now."""

    name: str
    state: str
    """disabled, untrusted, idle, starting, ready, failed or login."""
    origin: Literal["given", "user", "project"]
    tools: int = 0
    changed: tuple[str, ...] = ()
    """Tools that are off until the user agrees to what they have become."""
    error: str = ""


class SessionShape(Frozen, omit_defaults=True):
    """A session at a glance."""

    id: str
    path: str
    """Empty: it is kept in memory only."""
    message_count: int
    cwd: str = ""
    title: str = ""
    first_text: str = ""
    """How it began."""
    provider: str = ""
    model: str = ""
    started: str = ""
    modified: str = ""
    cost_usd: float = 0.0
    parent: str = ""
    """The session it was forked from."""


class Sessions(Frozen):
    sessions: tuple[SessionShape, ...]


class SessionLoaded(Frozen):
    session: SessionShape


class SessionExported(Frozen):
    format: str
    path: str | UnsetType = UNSET
    content: str | UnsetType = UNSET
    """Where no path was given."""


class ApprovalShape(Rule):
    """What runs without a question."""


class Approvals(Frozen):
    approvals: tuple[ApprovalShape, ...]


class CheckpointShape(Frozen):
    """The moment before a prompt."""

    id: str
    time: str
    text: str
    """How the prompt begins."""
    message_count: int
    """How many messages came before it."""
    files: tuple[str, ...]
    """What tools changed after it and before the next one."""


class CheckpointList(Frozen):
    checkpoints: tuple[CheckpointShape, ...]


class ChangedFileShape(ChangedFile, omit_defaults=True): ...


class Rewound(Frozen):
    checkpoint: str
    text: str
    """The prompt that it goes back to."""
    message_count: int
    """How many messages the conversation loses."""
    files: tuple[ChangedFileShape, ...]
    preview: bool


class Changes(Frozen):
    files: tuple[ChangedFileShape, ...]


class MessagesSet(Frozen):
    message_count: int


class State(Frozen):
    provider: str
    model: str
    cwd: str
    message_count: int
    busy: bool
    usage: UsageShape
    limits: LimitsShape | UnsetType = UNSET
    """Feature `budgets`."""
    session: SessionShape | UnsetType = UNSET
    """Feature `sessions`."""
    questions: tuple[ApprovalRequest, ...] | UnsetType = UNSET
    """Feature `approvals`: what waits for an answer."""
    dialogs: tuple[ExtAsk, ...] | UnsetType = UNSET
    """Feature `dialogs`: what waits for an answer."""
    mcp: tuple[McpServerShape, ...] | UnsetType = UNSET
    """Feature `mcp`."""


class AgentOpened(Frozen):
    agent: str


class AgentShape(Frozen, omit_defaults=True):
    """An agent at a glance."""

    agent: str
    state: Literal["idle", "running", "waiting", "closing"]
    """`waiting`: for the answer to a question."""
    busy: bool
    queued: int
    seq: int
    """Of its last frame; 0: there was none, or the feature `seq` is off."""
    provider: str
    model: str
    cwd: str
    session_id: str
    usage: UsageShape
    questions: tuple[str, ...] = ()
    """The `request_id` of each question that is open."""
    parent: str | UnsetType = UNSET
    """The agent whose tool `task` opened it, empty for the unnamed one; absent: a client did."""


class AgentList(Frozen):
    agents: tuple[AgentShape, ...]


class Snapshot(Frozen, omit_defaults=True):
    """Where things stand, for a client that cannot be told how they got there."""

    state: State
    run: str = ""
    """The durable run that goes on."""


class EventsRead(Frozen, omit_defaults=True):
    """Frames that were sent before, oldest first, each with its `seq`."""

    events: tuple[Any, ...]
    """The frames as they are: objects with a `type`."""
    last: int
    """What to ask from next."""
    more: bool = False
    cursor_expired: bool = False
    """Some of what was asked for is not kept any more: `snapshot` says where things stand."""
    snapshot: Snapshot | UnsetType = UNSET


class Messages(Frozen):
    messages: tuple[MessageShape, ...]


class ModelShape(Frozen):
    id: str
    provider: str
    context_window: int
    max_output: int
    reasoning: bool


class Models(Frozen):
    models: tuple[ModelShape, ...]


class CommandShape(Frozen, omit_defaults=True):
    name: str
    description: str
    extension: str
    """Empty: it is a skill or a prompt file."""
    kind: Literal["extension", "skill", "prompt"] = "extension"


class Commands(Frozen):
    commands: tuple[CommandShape, ...]


class CommandRan(Frozen, omit_defaults=True):
    """What a command did; the field named like the action holds its text."""

    action: Literal["prompt", "insert", "display", "noop", "open_panel"]
    extension: str
    prompt: str = ""
    insert: str = ""
    display: str = ""
    panel: dict[str, Json] | None = None
    started: bool = False
    """The prompt runs: events follow, and a `done`."""
    queued: int = 0
    """Runs ahead of it."""


class ShellRan(ShellOutput, omit_defaults=True):
    """A shell command of the user's, and what it printed."""


class ExtensionShape(ExtensionState, omit_defaults=True): ...


class Reloaded(Frozen):
    extensions: tuple[ExtensionShape, ...]
