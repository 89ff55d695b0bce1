"""Messages of zot in ACP, version 1: answers, updates and questions as structs.

Names and fields are the protocol's; tests check all of them against its published schema.
"""

from __future__ import annotations

from typing import Any, Literal

from zot.errors import AuthError, ProviderError, ZotError
from zot.jsonrpc import INTERNAL_ERROR, INVALID_PARAMS, RpcFault
from zot.text import Frozen

# Error codes that the protocol adds to those of JSON-RPC.
AUTH_REQUIRED = -32000
NOT_FOUND = -32002

ToolKind = Literal["read", "edit", "search", "execute", "other"]
CallStatus = Literal["pending", "in_progress", "completed", "failed"]
StopReason = Literal["end_turn", "max_tokens", "max_turn_requests", "cancelled"]
OptionKind = Literal["allow_once", "allow_always", "reject_once", "reject_always"]
JsonObject = dict[str, Any]


class Shape(Frozen, rename="camel", omit_defaults=True):
    """A struct of the protocol; fields that have their default are omitted."""


# --- content ---------------------------------------------------------------------------------


class TextContent(Shape, tag_field="type", tag="text"):
    text: str


class ImageContent(Shape, tag_field="type", tag="image"):
    data: bytes
    mime_type: str


AcpContent = TextContent | ImageContent


class PlainContent(Shape, tag_field="type", tag="content"):
    content: AcpContent


class DiffContent(Shape, tag_field="type", tag="diff"):
    path: str
    old_text: str | None
    """None: a new file."""
    new_text: str


CallContent = PlainContent | DiffContent


class Location(Shape):
    path: str
    line: int | None = None


# --- updates ---------------------------------------------------------------------------------


class UpdateShape(Shape, tag_field="sessionUpdate"):
    """Base of all session updates."""


class MessageChunk(UpdateShape):
    content: AcpContent
    message_id: str


class UserChunk(MessageChunk, tag="user_message_chunk"): ...


class AgentChunk(MessageChunk, tag="agent_message_chunk"): ...


class ThoughtChunk(MessageChunk, tag="agent_thought_chunk"): ...


class CallShown(UpdateShape, tag="tool_call"):
    """The first update about a call."""

    tool_call_id: str
    title: str
    name: str
    kind: ToolKind
    status: CallStatus
    content: tuple[CallContent, ...] = ()
    locations: tuple[Location, ...] = ()
    raw_input: Any = None


class CallChanged(UpdateShape, tag="tool_call_update"):
    """A later update about a call; omitted fields are unchanged."""

    tool_call_id: str
    title: str | None = None
    name: str | None = None
    kind: ToolKind | None = None
    status: CallStatus | None = None
    content: tuple[CallContent, ...] | None = None
    locations: tuple[Location, ...] | None = None
    raw_input: Any = None
    raw_output: Any = None


class PlanEntry(Shape):
    content: str
    priority: Literal["high", "medium", "low"]
    status: Literal["pending", "in_progress", "completed"]


class PlanShown(UpdateShape, tag="plan"):
    entries: tuple[PlanEntry, ...]


class CommandHint(Shape):
    hint: str


class AvailableCommand(Shape):
    name: str
    description: str
    input: CommandHint | None = None


class CommandsShown(UpdateShape, tag="available_commands_update"):
    available_commands: tuple[AvailableCommand, ...]


class ModeChanged(UpdateShape, tag="current_mode_update"):
    current_mode_id: str


class SelectOption(Shape):
    value: str
    name: str
    description: str | None = None


class SelectGroup(Shape):
    group: str
    name: str
    options: tuple[SelectOption, ...]


class ConfigShape(Shape, tag_field="type"):
    id: str
    name: str
    category: str


class SelectConfig(ConfigShape, tag="select"):
    current_value: str
    options: tuple[SelectOption, ...] | tuple[SelectGroup, ...]
    description: str | None = None


class SwitchConfig(ConfigShape, tag="boolean"):
    current_value: bool
    description: str | None = None


AcpConfig = SelectConfig | SwitchConfig


class ConfigChanged(UpdateShape, tag="config_option_update"):
    config_options: tuple[AcpConfig, ...]


class InfoChanged(UpdateShape, tag="session_info_update"):
    title: str | None = None
    updated_at: str | None = None


class AcpCost(Shape):
    amount: float
    currency: str


class UsageShown(UpdateShape, tag="usage_update"):
    used: int
    size: int
    cost: AcpCost | None = None


class NoticeShown(UpdateShape, tag="notice"):
    severity: Literal["info", "warning", "error"]
    title: str
    description: str | None = None


class CompactionShown(UpdateShape, tag="compaction_update"):
    compaction_id: str
    status: Literal["in_progress", "completed", "failed", "cancelled"]
    summary: tuple[AcpContent, ...] | None = None
    error: str | None = None


SessionUpdate = (
    UserChunk
    | AgentChunk
    | ThoughtChunk
    | CallShown
    | CallChanged
    | PlanShown
    | CommandsShown
    | ModeChanged
    | ConfigChanged
    | InfoChanged
    | UsageShown
    | NoticeShown
    | CompactionShown
)


class UpdateParams(Shape):
    session_id: str
    update: SessionUpdate


# --- questions to the client -----------------------------------------------------------------


class AskedCall(Shape):
    tool_call_id: str
    title: str
    kind: ToolKind
    name: str | None = None
    content: tuple[CallContent, ...] | None = None
    locations: tuple[Location, ...] | None = None
    raw_input: Any = None


class PermissionOption(Shape):
    option_id: str
    name: str
    kind: OptionKind


class PermissionParams(Shape):
    session_id: str
    tool_call: AskedCall
    options: tuple[PermissionOption, ...]


class FormParams(Shape, tag_field="mode", tag="form"):
    session_id: str
    message: str
    requested_schema: JsonObject


# --- answers ---------------------------------------------------------------------------------


class AcpMode(Shape):
    id: str
    name: str
    description: str | None = None


class ModeState(Shape):
    current_mode_id: str
    available_modes: tuple[AcpMode, ...]


class SessionOpened(Shape):
    """The answer to `session/new` (with the id), `session/load` and `session/resume`."""

    modes: ModeState
    config_options: tuple[AcpConfig, ...]
    session_id: str | None = None


class ListedSession(Shape):
    session_id: str
    cwd: str
    title: str | None = None
    updated_at: str | None = None


class SessionsListed(Shape):
    sessions: tuple[ListedSession, ...]
    next_cursor: str | None = None


# --- errors ----------------------------------------------------------------------------------


def fault_of(error: ZotError) -> RpcFault:
    """Convert an error for the protocol; `data` holds zot's error code."""
    code = INTERNAL_ERROR
    refused_key = isinstance(error, ProviderError) and error.status in (401, 403)
    if isinstance(error, AuthError) or refused_key:
        code = AUTH_REQUIRED
    elif error.code in ("invalid_params", "usage", "config"):
        code = INVALID_PARAMS
    elif error.code == "not_found":
        code = NOT_FOUND
    return RpcFault(code, str(error), {"code": error.code})
