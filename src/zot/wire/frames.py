"""Every frame the zot wire sends, as a type. The SDK hands the same types to embedders, `zot
schema` prints them as JSON Schema, and a client parses lines back into them.
"""

from __future__ import annotations

from typing import Any, Literal

import msgspec
from msgspec import UNSET, Struct, UnsetType

from zot.core import events
from zot.core.rule import Rule
from zot.core.shell import ShellOutput
from zot.core.source import ExtensionState
from zot.lines import encode_line
from zot.provider.types import Json, Stop
from zot.wire.commands import LimitsData

# --- content blocks and messages ---------------------------------------------------------------


class TextBlock(Struct, frozen=True, tag_field="type", tag="text"):
    text: str


class ImageBlock(Struct, frozen=True, tag_field="type", tag="image"):
    mime_type: str
    bytes: int
    """How large the image is; the data is not repeated, to keep transcripts small."""


class ToolCallBlock(Struct, frozen=True, tag_field="type", tag="tool_call"):
    id: str
    name: str
    args: dict[str, Json] | None
    """null when the model's arguments were not a JSON object."""


class ToolResultBlock(Struct, frozen=True, tag_field="type", tag="tool_result"):
    call_id: str
    is_error: bool
    content: tuple[TextBlock | ImageBlock, ...]


ContentBlock = TextBlock | ImageBlock | ToolCallBlock | ToolResultBlock


class MessageShape(Struct, frozen=True):
    role: Literal["user", "assistant", "tool"]
    content: tuple[ContentBlock, ...]
    time: str
    """RFC 3339, in UTC."""


class UsageShape(Struct, frozen=True, omit_defaults=True):
    input: int
    output: int
    cache_read: int
    cache_write: int
    cost_usd: float
    cost_known: bool = True
    """Only ever sent as false: the price of the model is not known."""


# --- events --------------------------------------------------------------------------------------


class Frame(Struct, frozen=True, omit_defaults=True, tag_field="type"):
    """Base of all events. Fields with a default are left out when they have it. A frame that says
    just what an event of the core says has the fields of that one."""

    def to_wire(self) -> dict[str, Any]:
        """The frame as `zot rpc` would have sent it."""
        wire: dict[str, Any] = msgspec.json.decode(encode_line(self))
        return wire


class UserMessage(Frame, frozen=True, tag="user_message"):
    content: tuple[ContentBlock, ...]
    time: str


class TurnStart(Frame, events.TurnStart, frozen=True, tag="turn_start"): ...


class AssistantStart(Frame, frozen=True, tag="assistant_start"): ...


class TextDelta(Frame, frozen=True, tag="text_delta"):
    delta: str


class ThinkingDelta(Frame, frozen=True, tag="thinking_delta"):
    """Feature `thinking`."""

    delta: str


class ToolUseStart(Frame, events.ToolCallStart, frozen=True, tag="tool_use_start"): ...


class ToolUseArgs(Frame, events.ToolCallArgs, frozen=True, tag="tool_use_args"): ...


class ToolUseEnd(Frame, events.ToolCallEnd, frozen=True, tag="tool_use_end"): ...


class Usage(Frame, frozen=True, tag="usage"):
    input: int
    output: int
    cache_read: int
    cache_write: int
    cost_usd: float
    cumulative: UsageShape
    cost_known: bool = True


class AssistantMessage(Frame, frozen=True, tag="assistant_message"):
    content: tuple[ContentBlock, ...]
    time: str


class ToolCall(Frame, frozen=True, tag="tool_call"):
    id: str
    name: str
    args: dict[str, Json] | None


class TurnEnd(Frame, frozen=True, tag="turn_end"):
    stop: Stop
    stop_reason: Literal["end_turn", "tool_use", "length", "error", "aborted"] | UnsetType = UNSET
    """Always sent; optional so that frames of other implementations can be parsed."""
    error: str | UnsetType = UNSET
    code: str | UnsetType = UNSET
    """Feature `codes`."""


class ToolStart(Frame, frozen=True, tag="tool_start"):
    """Feature `tools`: guards and approval are behind it, the tool begins."""

    id: str
    name: str
    args: dict[str, Json] | None
    """What it runs with: a guard may have changed what the model asked for."""


class ToolProgress(Frame, events.ToolProgress, frozen=True, tag="tool_progress"): ...


class ToolResult(Frame, frozen=True, tag="tool_result"):
    id: str
    is_error: bool
    content: tuple[TextBlock | ImageBlock, ...]


class Error(Frame, frozen=True, tag="error"):
    message: str
    code: str | UnsetType = UNSET
    """Feature `codes`."""


class Done(Frame, frozen=True, tag="done"):
    """The last event of every prompt and every compact."""

    run: str = ""
    """With --durable: the name of the run."""


class RunResumed(Frame, frozen=True, tag="run_resumed"):
    """A durable run that another process began goes on. A turn that was open is void."""

    run: str
    attempt: int
    away_ms: int
    open: tuple[events.OpenCall, ...]


class RunHeld(Frame, events.RunHeld, frozen=True, tag="run_held"):
    """A durable run that was cut off waits for a `resume_run` command."""


class RunSuspended(Frame, events.RunSuspended, frozen=True, tag="run_suspended"):
    """The process ends and the run does not: it goes on with the next start. No `done` follows."""


class CompactStart(Frame, frozen=True, tag="compact_start"):
    reason: Literal["manual", "threshold", "overflow"]


class CompactDone(Frame, frozen=True, tag="compact_done"):
    summary: str


class Retry(Frame, frozen=True, tag="retry"):
    """Feature `retries`."""

    attempt: int
    max_attempts: int
    delay_ms: int
    reason: str


class Fallback(Frame, frozen=True, tag="fallback"):
    """The model failed for good; the call goes on with another one."""

    failed_model: str
    provider: str
    model: str
    reason: str


class QueueUpdate(Frame, frozen=True, tag="queue_update"):
    """Feature `queue`."""

    steering: tuple[str, ...]
    follow_up: tuple[str, ...]


class ApprovalRequest(Frame, frozen=True, tag="approval_request"):
    """Feature `approvals`; answered by an `approve` command with this `request_id`."""

    request_id: str
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


class ApprovalResolved(Frame, frozen=True, tag="approval_resolved"):
    """Feature `approvals`."""

    request_id: str
    id: str
    decision: Literal["allow", "deny"]
    source: Literal["client", "remembered", "timeout", "abort"]


class ExtNotify(Frame, events.ExtensionNotify, frozen=True, tag="ext_notify"): ...


class ExtDisplay(Frame, events.ExtensionDisplay, frozen=True, tag="ext_display"): ...


class ExtPanel(Frame, events.ExtensionPanel, frozen=True, tag="ext_panel"): ...


class ExtAsk(Frame, frozen=True, tag="ext_ask"):
    """Feature `dialogs`; answered by an `answer` command with this `request_id`."""

    request_id: str
    extension: str
    method: Literal["confirm", "select", "input", "editor"]
    title: str
    timeout_ms: int
    message: str = ""
    options: tuple[str, ...] = ()
    placeholder: str = ""
    prefill: str = ""


class McpServer(Frame, events.ServerChanged, frozen=True, tag="mcp_server"):
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


class LimitsShape(LimitsData, frozen=True):
    """What one prompt may use up; null: no limit."""


class McpServerShape(Struct, frozen=True, omit_defaults=True):
    """An MCP server, as it is now."""

    name: str
    state: str
    """disabled, untrusted, idle, starting, ready, failed or login."""
    origin: Literal["given", "user", "project"]
    tools: int = 0
    changed: tuple[str, ...] = ()
    """Tools that are off until the user agrees to what they have become."""
    error: str = ""


class SessionShape(Struct, frozen=True, omit_defaults=True):
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


class Sessions(Struct, frozen=True):
    sessions: tuple[SessionShape, ...]


class SessionLoaded(Struct, frozen=True):
    session: SessionShape


class SessionExported(Struct, frozen=True):
    format: str
    path: str | UnsetType = UNSET
    content: str | UnsetType = UNSET
    """Where no path was given."""


class ApprovalShape(Rule, frozen=True):
    """What runs without a question."""


class Approvals(Struct, frozen=True):
    approvals: tuple[ApprovalShape, ...]


class CheckpointShape(Struct, frozen=True):
    """The moment before a prompt."""

    id: str
    time: str
    text: str
    """How the prompt begins."""
    message_count: int
    """How many messages came before it."""
    files: tuple[str, ...]
    """What tools changed after it and before the next one."""


class CheckpointList(Struct, frozen=True):
    checkpoints: tuple[CheckpointShape, ...]


class ChangedFileShape(Struct, frozen=True, omit_defaults=True):
    path: str
    action: Literal["restore", "create", "remove"]
    """What going back does to it."""
    state: Literal["ok", "changed", "lost", "failed"]
    """`changed`: by someone else too. `lost`: it cannot be put back. `failed`: it could not be."""
    diff: str
    note: str = ""


class Rewound(Struct, frozen=True):
    checkpoint: str
    text: str
    """The prompt that it goes back to."""
    message_count: int
    """How many messages the conversation loses."""
    files: tuple[ChangedFileShape, ...]
    preview: bool


class Changes(Struct, frozen=True):
    files: tuple[ChangedFileShape, ...]


class MessagesSet(Struct, frozen=True):
    message_count: int


class State(Struct, frozen=True):
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


class AgentOpened(Struct, frozen=True):
    agent: str


class AgentShape(Struct, frozen=True, omit_defaults=True):
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


class AgentList(Struct, frozen=True):
    agents: tuple[AgentShape, ...]


class Snapshot(Struct, frozen=True, omit_defaults=True):
    """Where things stand, for a client that cannot be told how they got there."""

    state: State
    run: str = ""
    """The durable run that goes on."""


class EventsRead(Struct, frozen=True, omit_defaults=True):
    """Frames that were sent before, oldest first, each with its `seq`."""

    events: tuple[Any, ...]
    """The frames as they are: objects with a `type`."""
    last: int
    """What to ask from next."""
    more: bool = False
    cursor_expired: bool = False
    """Some of what was asked for is not kept any more: `snapshot` says where things stand."""
    snapshot: Snapshot | UnsetType = UNSET


class Messages(Struct, frozen=True):
    messages: tuple[MessageShape, ...]


class ModelShape(Struct, frozen=True):
    id: str
    provider: str
    context_window: int
    max_output: int
    reasoning: bool


class Models(Struct, frozen=True):
    models: tuple[ModelShape, ...]


class CommandShape(Struct, frozen=True, omit_defaults=True):
    name: str
    description: str
    extension: str
    """Empty: it is a skill or a prompt file."""
    kind: Literal["extension", "skill", "prompt"] = "extension"


class Commands(Struct, frozen=True):
    commands: tuple[CommandShape, ...]


class CommandRan(Struct, frozen=True, omit_defaults=True):
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


class ShellRan(ShellOutput, frozen=True, omit_defaults=True):
    """A shell command of the user's, and what it printed."""


class ExtensionShape(ExtensionState, frozen=True, omit_defaults=True): ...


class Reloaded(Struct, frozen=True):
    extensions: tuple[ExtensionShape, ...]
