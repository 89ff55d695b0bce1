"""The data of responses on the zot wire, as types; a client parses them back."""

from __future__ import annotations

from typing import Any, Literal

from msgspec import UNSET, UnsetType

from zot.core.rule import Rule
from zot.core.session import ChangedFile
from zot.core.shell import ShellOutput
from zot.core.source import ExtensionState
from zot.provider.types import Json
from zot.text import Frozen
from zot.wire.commands import LimitsData
from zot.wire.frames import ApprovalRequest, ExtAsk, MessageShape, UsageShape


class LimitsShape(LimitsData):
    """What one prompt may use up; null: no limit."""


class ModelSet(Frozen, omit_defaults=True):
    model: str
    provider: str = ""
    """Only where it is another one than before."""


class ReasoningSet(Frozen):
    reasoning: str


class JailSet(Frozen):
    jail: bool


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
