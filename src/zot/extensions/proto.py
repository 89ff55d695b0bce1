"""The frames between zot and an extension: one JSON object per line, tagged by `type`.

Only their shapes. Their order and meaning are in extension.py.
"""

from __future__ import annotations

import json
import re
from typing import Any

import msgspec
from msgspec import UNSET, UnsetType

from zot.core.events import DialogText
from zot.lines import encode_line
from zot.provider.types import Json
from zot.text import Frozen, check_nesting, whole_value

PROTOCOL_VERSION = 1
MAX_LINE = 4 * 1024 * 1024
"""Maximum size of one line in bytes, in both directions."""

EVENTS = (
    "session_start",
    "session_end",
    "run_resumed",
    "user_prompt_submit",
    "turn_start",
    "turn_end",
    "tool_call",
    "tool_confirmation_requested",
    "permission_decision",
    "tool_result",
    "assistant_message",
    "pre_compact",
    "post_compact",
    "subagent_start",
    "subagent_stop",
)
"""Events to subscribe to. Other names are accepted and never sent."""

INTERCEPTS = ("tool_call", "turn_start", "assistant_message", "before_agent_start")
"""Events that an extension can block or change before they happen."""

MAX_PANEL_LINES = 500
MAX_PANEL_LINE = 1_000

CAPABILITIES = ("ask", "call_tool", "fail_closed", "tool_cancel", "tool_progress")
"""Features of this host beyond the basic frames; sent in `hello_ack`."""


class Content(Frozen, omit_defaults=True):
    """A block of a tool's result: text, or an image in base64."""

    type: str
    text: str = ""
    mime_type: str = ""
    data: str = ""
    format: str = ""
    """`markdown`: a hint for showing the text."""


class Panel(Frozen):
    """A small window that an extension draws as lines of text."""

    id: str = ""
    title: str = ""
    lines: tuple[str, ...] = ()
    footer: str = ""


def panel_dict(panel: Panel) -> dict[str, Json]:
    """Convert a panel for an event, cut to the maximum size."""
    return {
        "id": panel.id[:MAX_PANEL_LINE],
        "title": panel.title[:MAX_PANEL_LINE],
        "lines": [line[:MAX_PANEL_LINE] for line in panel.lines[:MAX_PANEL_LINES]],
        "footer": panel.footer[:MAX_PANEL_LINE],
    }


class ExtensionFrame(Frozen, tag_field="type"):
    """Base of all frames, in both directions."""


class IdFrame(ExtensionFrame):
    """A request, or a frame that belongs to one: an answer has the id of its request."""

    id: str


class NamedFrame(IdFrame):
    """A frame about a tool or a command."""

    name: str


class PanelFrame(ExtensionFrame):
    """A frame about an open panel."""

    panel_id: str


# --- extension to zot ------------------------------------------------------------------------


class Hello(ExtensionFrame, tag="hello"):
    """The first frame: name and version of the extension."""

    name: str
    version: str = ""
    capabilities: tuple[str, ...] = ()


class Registration(ExtensionFrame):
    name: str
    description: str = ""


class RegisterCommand(Registration, tag="register_command"): ...


class RegisterTool(Registration, tag="register_tool"):
    schema: Json = None
    """JSON Schema of the arguments; none means a tool without arguments."""
    timeout: float = 60.0
    """Timeout of a call in seconds."""
    interactive: bool = False
    """Waits for a person: has no timeout, and is refused where there is no user."""
    deferred: bool = False
    """Hidden from the model until a result names it in `activate_tools`."""
    exposure: str = ""
    """`deferred` equals `deferred: true`; any other value: visible at once."""
    replay: str = "never"
    """Handling of a call that a crash cut off, in a durable run: `never` (do not run it again),
    `reconcile` (send `tool_reconcile`), `idempotent` (run again, with the same key), `safe`."""


class Ready(ExtensionFrame, tag="ready"):
    """All initial registrations were sent."""


class Subscribe(ExtensionFrame, tag="subscribe"):
    events: tuple[str, ...] = ()
    intercept: tuple[str, ...] = ()
    fail_closed: bool = False
    """No answer (too late, crashed, stopped) blocks instead of allowing."""


class EventInterceptResponse(IdFrame, tag="event_intercept_response"):
    block: bool = False
    reason: str = ""
    modified_args: dict[str, Json] | None = None
    replace_text: str | None = None
    system_prompt: str | None = None


class ToolResult(IdFrame, tag="tool_result"):
    """The answer to `tool_call` and `tool_reconcile`."""

    content: tuple[Content, ...] = ()
    is_error: bool = False
    structured_content: Json = None
    """Data for user interfaces; the model does not see it."""
    activate_tools: tuple[str, ...] = ()
    """Deferred tools of this extension to show to the model from now on."""
    state: str = "done"
    """To `tool_reconcile`: `done`, `not_done` or `unknown`."""


class ToolProgress(IdFrame, tag="tool_progress"):
    """A piece of output of a running call."""

    text: str


class CommandResponse(IdFrame, tag="command_response"):
    """The answer to `command_invoked`; the field named after the action holds its text."""

    action: str = "noop"
    prompt: str = ""
    insert: str = ""
    display: str = ""
    open_panel: Panel | None = None
    tool_name: str = ""
    """`tool_prompt`: the tool that runs after the prompt, before the model reads both."""
    tool_args: dict[str, Json] = {}
    error: str = ""


class PanelRender(PanelFrame, tag="panel_render"):
    title: str = ""
    lines: tuple[str, ...] = ()
    footer: str = ""


class PanelClose(PanelFrame, tag="panel_close"):
    """Sent in both directions, by the side that closes the panel."""


class OpenPanel(ExtensionFrame, tag="open_panel"):
    """Open a panel without a command."""

    panel: Panel


class Notify(ExtensionFrame, tag="notify"):
    message: str
    level: str = "info"


class Ask(ExtensionFrame, DialogText, kw_only=True, tag="ask"):
    """A question to the user; answered by `answer`."""

    id: str
    method: str
    """confirm, select, input or editor."""
    timeout: float = 300.0
    """Seconds; then the question is cancelled."""
    parent_id: str = ""
    """Id of the `tool_call` during which it is asked: if several agents share the extension, the
    user of that one is asked."""


class Submit(ExtensionFrame, tag="submit"):
    """Start a run with this text, where the host allows it."""

    text: str


class SubmitSlash(ExtensionFrame, tag="submit_slash"):
    """Run this slash command as if the user had typed it, where the host allows it."""

    text: str


class ClearNotes(ExtensionFrame, tag="clear_notes"):
    """Clear the extension's notes. Ignored: zot shows each note once."""


class CallTool(NamedFrame, tag="call_tool"):
    """Run one of zot's tools; answered by `tool_result`."""

    args: dict[str, Json] = {}
    parent_id: str = ""
    """Id of the `tool_call` during which this call is made."""


class CallToolCancel(IdFrame, tag="call_tool_cancel"): ...


class ShutdownAck(ExtensionFrame, tag="shutdown_ack"): ...


FromExtension = (
    Hello
    | RegisterCommand
    | RegisterTool
    | Ready
    | Subscribe
    | EventInterceptResponse
    | ToolResult
    | ToolProgress
    | CommandResponse
    | PanelRender
    | PanelClose
    | OpenPanel
    | Notify
    | Ask
    | Submit
    | SubmitSlash
    | ClearNotes
    | CallTool
    | CallToolCancel
    | ShutdownAck
)


class Unknown(Frozen):
    """A frame of an unknown type, from a newer SDK; it is ignored."""

    type: str


# --- zot to extension ------------------------------------------------------------------------


class HelloAck(ExtensionFrame, tag="hello_ack"):
    zot_version: str
    provider: str
    model: str
    cwd: str
    extension_dir: str
    data_dir: str
    """Folder for the extension's files: its own folder, if that is writable."""
    protocol_version: int = PROTOCOL_VERSION
    capabilities: tuple[str, ...] = CAPABILITIES


class CommandInvoked(NamedFrame, tag="command_invoked"):
    args: str = ""
    session_id: str | UnsetType = UNSET
    """The session in which it was typed."""


class ToolCall(NamedFrame, tag="tool_call"):
    args: dict[str, Json] = {}
    key: str | UnsetType = UNSET
    """In a durable run: identifies the call, equal in every attempt."""
    session_id: str | UnsetType = UNSET
    """The session of the call: agents in one directory share their extensions."""


class ToolReconcile(NamedFrame, tag="tool_reconcile"):
    """Ask what became of a call that a crash cut off, without running anything."""

    args: dict[str, Json]
    key: str


class ToolCancel(IdFrame, tag="tool_cancel"):
    """The call was cancelled or timed out; its answer will be ignored."""


class Result(Frozen, omit_defaults=True):
    content: tuple[Content, ...]
    is_error: bool = False
    truncated: bool = False


class OpenToolCall(Frozen):
    """A tool call that a crash cut off, and how it is handled."""

    tool_id: str
    tool_name: str
    started: bool
    """The call had begun, and may have taken effect."""
    replay: str


class EventHead(ExtensionFrame, kw_only=True):
    """Fields of every event."""

    event: str
    session_id: str
    cwd: str
    sequence: int
    """Increases with every event of the host; gaps are events without a subscription."""


class Payload(EventHead, kw_only=True):
    """Fields of events; which are present depends on the event."""

    reason: str | UnsetType = UNSET
    """session_end: shutdown, session_switch or reload."""
    text: str | UnsetType = UNSET
    image_count: int | UnsetType = UNSET
    step: int | UnsetType = UNSET
    stop: str | UnsetType = UNSET
    error: str | UnsetType = UNSET
    tool_id: str | UnsetType = UNSET
    tool_name: str | UnsetType = UNSET
    tool_args: dict[str, Json] | UnsetType = UNSET
    """tool_result: as changed by the guards."""
    tool_args_raw: str | UnsetType = UNSET
    """Instead of `tool_args`, if the model wrote no JSON object."""
    tool_preview: str | UnsetType = UNSET
    """tool_confirmation_requested: the call as shown to the user."""
    queued: bool | UnsetType = UNSET
    """user_prompt_submit: the prompt arrived during a run, and was queued."""
    decision: str | UnsetType = UNSET
    """permission_decision: approved, denied or cancelled."""
    source: str | UnsetType = UNSET
    """permission_decision: user, remembered, policy or yolo (nobody was asked)."""
    stage: str | UnsetType = UNSET
    """permission_decision: pre_execution, or tool_execution where the tool itself refused."""
    status: str | UnsetType = UNSET
    """tool_result: completed, failed, blocked, cancelled or timed_out. post_compact: the first
    two, or cancelled. subagent_start: running; subagent_stop: as tool_result, but never blocked."""
    executed: bool | UnsetType = UNSET
    """tool_result: the tool was entered."""
    result: Result | UnsetType = UNSET
    compaction_id: str | UnsetType = UNSET
    message_count: int | UnsetType = UNSET
    """pre_compact, post_compact: messages in the context."""
    token_estimate: int | UnsetType = UNSET
    agent_id: str | UnsetType = UNSET
    """subagent_start, subagent_stop: the agent's name on zot's wire."""
    agent_run_id: str | UnsetType = UNSET
    """The id of its session."""
    run: str | UnsetType = UNSET
    """run_resumed: the name of the run that another process began."""
    attempt: int | UnsetType = UNSET
    away: float | UnsetType = UNSET
    """run_resumed: seconds since the last sign of life of that process."""
    open_calls: tuple[OpenToolCall, ...] | UnsetType = UNSET
    """run_resumed: the calls that were cut off."""
    name: str | UnsetType = UNSET
    system_prompt: str | UnsetType = UNSET


class Event(Payload, kw_only=True, tag="event"):
    """Something happened; no answer is expected."""


class EventIntercept(Payload, kw_only=True, tag="event_intercept"):
    """Something is about to happen; answered by `event_intercept_response` within 5 seconds."""

    id: str


class PanelKey(PanelFrame, tag="panel_key"):
    key: str
    """up down left right enter esc tab pageup pagedown home end backspace delete, or rune."""
    text: str = ""
    """The character, when the key is `rune`."""


class PanelResize(PanelFrame, tag="panel_resize"):
    width: int
    height: int


class Answer(IdFrame, tag="answer"):
    """The answer to `ask`."""

    value: str | None = None
    """The chosen or typed text."""
    confirmed: bool = False
    cancelled: bool = False
    """No user was there, the time was over, or the user declined."""


class HostToolResult(NamedFrame, tag="tool_result"):
    """The answer to `call_tool`."""

    content: tuple[Content, ...]
    is_error: bool = False
    truncated: bool = False


class Shutdown(ExtensionFrame, tag="shutdown"): ...


ToExtension = (
    HelloAck
    | CommandInvoked
    | ToolCall
    | ToolReconcile
    | ToolCancel
    | Event
    | EventIntercept
    | PanelKey
    | PanelResize
    | PanelClose
    | Answer
    | HostToolResult
    | Shutdown
)


# --- lines -----------------------------------------------------------------------------------


class BadFrame(ValueError):
    """A line that is no frame; the text says why."""


_from_extension: msgspec.json.Decoder[FromExtension] = msgspec.json.Decoder(FromExtension)
_to_extension: msgspec.json.Decoder[ToExtension] = msgspec.json.Decoder(ToExtension)
_KNOWN = frozenset(kind.__struct_config__.tag for kind in FromExtension.__args__)


def encode(frame: ToExtension | FromExtension) -> bytes:
    """Encode a frame as one line, ended by LF, that no reader can split wrongly."""
    return encode_line(frame)


def decode(line: bytes) -> FromExtension | Unknown:
    """Decode a line of an extension. Raises BadFrame: not JSON, not an object, or a known type with
    invalid fields."""
    try:
        check_nesting(line)
    except RecursionError as error:
        raise BadFrame(f"not JSON: {error}") from error
    try:
        return _from_extension.decode(line)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return _decode_leniently(line)


def id_of(start: bytes) -> str | None:
    """Return the id in the first bytes of a line that is too long to be read."""
    shown = re.search(rb'"id"\s*:\s*"([^"\\]{1,64})"', start)
    return shown[1].decode("ascii", "replace") if shown else None


def decode_from_host(line: bytes) -> ToExtension:
    """Decode a line of zot, like an extension; for tests and documentation."""
    return _to_extension.decode(line)


def _decode_leniently(line: bytes) -> FromExtension | Unknown:
    """Accept null for an empty list or text, as Go programs write it, and unknown types of newer
    SDKs."""
    try:
        # Half an emoji is no JSON to msgspec, but many programs write it.
        value = whole_value(json.loads(line.decode("utf-8", "replace")))
    except (ValueError, RecursionError) as error:
        raise BadFrame(f"not JSON: {error}") from error
    if not isinstance(value, dict) or not isinstance(value.get("type"), str):
        raise BadFrame("not an object with a 'type'")
    if value["type"] not in _KNOWN:
        return Unknown(value["type"])
    try:
        return msgspec.convert(_without_nulls(value), FromExtension)  # type: ignore[no-any-return]  # a union is no type
    except msgspec.ValidationError as error:
        raise BadFrame(f"bad {value['type']!r} frame: {error}") from error


def _without_nulls(value: dict[str, Json]) -> dict[str, Json]:
    return {
        key: _without_nulls(item) if key in ("panel", "open_panel") and item else item
        for key, item in value.items()
        if item is not None
    }


# --- schema ----------------------------------------------------------------------------------


def json_schema() -> dict[str, Any]:
    """Return the JSON Schema of the protocol: `from_extension` and `to_extension` describe a line
    each."""
    (from_extension, to_extension), components = msgspec.json.schema_components(
        [FromExtension, ToExtension],
        ref_template="#/$defs/{name}",
    )
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "zot extension protocol",
        "description": "One JSON object a line on the extension's stdin and stdout.",
        "protocol_version": PROTOCOL_VERSION,
        "anyOf": [{"$ref": "#/$defs/from_extension"}, {"$ref": "#/$defs/to_extension"}],
        "$defs": {
            "from_extension": from_extension,
            "to_extension": to_extension,
            **dict(sorted(components.items())),
        },
    }
