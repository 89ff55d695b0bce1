"""Types of the `data` of responses on the zot wire; a client parses them back."""

from __future__ import annotations

from typing import Any, Literal

from msgspec import UNSET, UnsetType

from zot.core.confinement import JailReport, JailWords
from zot.core.hook import ApprovalMode, Rule
from zot.core.session import ChangedFile
from zot.core.shell import ShellOutput
from zot.core.source import ExtensionState
from zot.provider.types import Json
from zot.text import Frozen
from zot.wire.commands import LimitsData
from zot.wire.frames import ApprovalRequest, ExtAsk, MessageShape, UsageShape


class LimitsShape(LimitsData):
    """Limits of one prompt; null: no limit."""


class ModelSet(Frozen, omit_defaults=True):
    model: str
    provider: str = ""
    """Present only when the provider changed."""


class ReasoningSet(Frozen):
    reasoning: str


class JailSet(Frozen):
    jail: JailWords


class ModeSet(Frozen):
    mode: ApprovalMode


class McpServerShape(Frozen, omit_defaults=True):
    """Current state of an MCP server."""

    name: str
    state: str
    """disabled, untrusted, idle, starting, ready, failed or login."""
    origin: Literal["given", "user", "project"]
    tools: int = 0
    changed: tuple[str, ...] = ()
    """Tools disabled because their definition changed, until the user accepts it."""
    error: str = ""


class SessionShape(Frozen, omit_defaults=True):
    """Summary of a session."""

    id: str
    path: str
    """Path of the session file; empty: in memory only."""
    message_count: int
    cwd: str = ""
    title: str = ""
    first_text: str = ""
    """Beginning of the first user message."""
    provider: str = ""
    model: str = ""
    started: str = ""
    modified: str = ""
    cost_usd: float = 0.0
    parent: str = ""
    """Session that this one was forked from."""


class Sessions(Frozen):
    sessions: tuple[SessionShape, ...]


class SessionLoaded(Frozen):
    session: SessionShape


class SessionExported(Frozen):
    format: str
    path: str | UnsetType = UNSET
    content: str | UnsetType = UNSET
    """Present when no path was given."""


class ApprovalShape(Rule):
    """Rule for calls that run without approval, or never (`deny`)."""


class Approvals(Frozen):
    approvals: tuple[ApprovalShape, ...]


class CheckpointShape(Frozen):
    """The state before a prompt, to which `rewind` can return."""

    id: str
    time: str
    text: str
    """Beginning of the prompt."""
    message_count: int
    """Number of messages before the prompt."""
    files: tuple[str, ...]
    """Files that tools changed between this prompt and the next one."""


class CheckpointList(Frozen):
    checkpoints: tuple[CheckpointShape, ...]


class ChangedFileShape(ChangedFile, omit_defaults=True): ...


class Rewound(Frozen):
    checkpoint: str
    text: str
    """Text of the prompt that `rewind` goes back to."""
    message_count: int
    """Number of messages that the conversation loses."""
    files: tuple[ChangedFileShape, ...]
    preview: bool


class Changes(Frozen):
    files: tuple[ChangedFileShape, ...]


class MessagesSet(Frozen):
    message_count: int


class State(Frozen):
    """State of an agent."""

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
    """Feature `approvals`: the open requests."""
    mode: ApprovalMode | UnsetType = UNSET
    """Feature `approvals`: what runs without a question."""
    dialogs: tuple[ExtAsk, ...] | UnsetType = UNSET
    """Feature `dialogs`: the open questions."""
    jail: JailReport | None | UnsetType = UNSET
    """Feature `jail`: the jail as it is on this system; null: none."""
    mcp: tuple[McpServerShape, ...] | UnsetType = UNSET
    """Feature `mcp`."""


class AgentOpened(Frozen):
    agent: str


class AgentShape(Frozen, omit_defaults=True):
    """Summary of an agent."""

    agent: str
    state: Literal["idle", "running", "waiting", "closing"]
    """`waiting`: a question is unanswered."""
    busy: bool
    queued: int
    seq: int
    """`seq` of its last frame; 0: no frame yet, or the feature `seq` is off."""
    provider: str
    model: str
    cwd: str
    session_id: str
    usage: UsageShape
    questions: tuple[str, ...] = ()
    """The `request_id` of each open question."""
    parent: str | UnsetType = UNSET
    """Agent whose tool `task` opened it, empty for the unnamed one; absent: a client opened it."""


class AgentList(Frozen):
    agents: tuple[AgentShape, ...]


class Snapshot(Frozen, omit_defaults=True):
    """Current state, for a client that cannot get the events that led to it."""

    state: State
    run: str = ""
    """Name of the durable run in progress."""


class EventsRead(Frozen, omit_defaults=True):
    """Frames that were sent before, oldest first, each with its `seq`."""

    events: tuple[Any, ...]
    """Frames as sent: objects with a `type`."""
    last: int
    """Value of `from` for the next `events`."""
    more: bool = False
    cursor_expired: bool = False
    """Some requested frames are no longer stored: `snapshot` has the current state."""
    snapshot: Snapshot | UnsetType = UNSET


class Messages(Frozen):
    messages: tuple[MessageShape, ...]


class ModelShape(Frozen):
    """A model that can be used."""

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
    """Name of the extension; empty: a skill or a prompt file."""
    kind: Literal["extension", "skill", "prompt"] = "extension"


class Commands(Frozen):
    commands: tuple[CommandShape, ...]


class CommandRan(Frozen, omit_defaults=True):
    """Result of a command; the field named after the action holds its text."""

    action: Literal["prompt", "insert", "display", "noop", "open_panel"]
    extension: str
    prompt: str = ""
    insert: str = ""
    display: str = ""
    panel: dict[str, Json] | None = None
    started: bool = False
    """Whether the prompt runs: its events and a `done` follow."""
    queued: int = 0
    """Number of runs queued ahead of it."""


class ShellRan(ShellOutput, omit_defaults=True):
    """A shell command of the user and its output."""


class ExtensionShape(ExtensionState, omit_defaults=True): ...


class Reloaded(Frozen):
    extensions: tuple[ExtensionShape, ...]
