"""The words zot and an extension exchange: one JSON object a line, told apart by `type`.

This file knows shapes only. Who sends what when, and what it means, is in extension.py.
"""

from __future__ import annotations

import re
from typing import Any, Literal

import msgspec
from msgspec import UNSET, UnsetType

from zot.core.events import DialogText
from zot.lines import encode_line
from zot.provider.types import Json
from zot.text import Frozen, check_nesting, whole_value

PROTOCOL_VERSION = 1
MAX_LINE = 4 * 1024 * 1024
"""Bytes of one line, in both directions."""

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
"""What an extension can subscribe to. Other names are accepted and never sent."""

INTERCEPTS = ("tool_call", "turn_start", "assistant_message", "before_agent_start")
"""What an extension can stop or change before it happens."""

MAX_PANEL_LINES = 500
MAX_PANEL_LINE = 1_000

CAPABILITIES = ("ask", "call_tool", "fail_closed", "tool_cancel", "tool_progress")
"""What this host offers beyond the frames every host knows; sent in `hello_ack`."""


class Content(Frozen, omit_defaults=True):
    """A piece of a tool's result: text, or an image in base64."""

    type: str
    text: str = ""
    mime_type: str = ""
    data: str = ""
    format: str = ""
    """`markdown`: how a user interface may show the text."""


class Panel(Frozen):
    """A small window an extension draws as lines of text."""

    id: str = ""
    title: str = ""
    lines: tuple[str, ...] = ()
    footer: str = ""


def panel_dict(panel: Panel) -> dict[str, Json]:
    """A panel as an event carries it, cut to what a window can show."""
    return {
        "id": panel.id[:MAX_PANEL_LINE],
        "title": panel.title[:MAX_PANEL_LINE],
        "lines": [line[:MAX_PANEL_LINE] for line in panel.lines[:MAX_PANEL_LINES]],
        "footer": panel.footer[:MAX_PANEL_LINE],
    }


class ExtensionFrame(Frozen, tag_field="type"):
    """Base of all frames, in both directions."""


class IdFrame(ExtensionFrame):
    """A request, or what belongs to one: the answer has the id of what it answers."""

    id: str


class NamedFrame(IdFrame):
    """About a tool or a command."""

    name: str


class PanelFrame(ExtensionFrame):
    """About a panel that is open."""

    panel_id: str


# --- extension to zot ------------------------------------------------------------------------


class Hello(ExtensionFrame, tag="hello"):
    """The first frame: who is there."""

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
    """Seconds a call may take."""
    interactive: bool = False
    """Waits for a person: has no timeout, and is refused where nobody sits."""
    deferred: bool = False
    """The model does not see it before a result names it in `activate_tools`."""
    exposure: str = ""
    """`deferred` means the same; every other word: the model sees it at once."""
    replay: str = "never"
    """What may be done with a call that a crash cut off, in a durable run: `never` (it is not run
    again), `reconcile` (`tool_reconcile` asks), `idempotent` (again, with the same key), `safe`."""


class Ready(ExtensionFrame, tag="ready"):
    """All first registrations were sent."""


class Subscribe(ExtensionFrame, tag="subscribe"):
    events: tuple[str, ...] = ()
    intercept: tuple[str, ...] = ()
    fail_closed: bool = False
    """No answer (too late, crashed, stopped) means blocked instead of allowed."""


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
    """Facts for user interfaces; the model does not see them."""
    activate_tools: tuple[str, ...] = ()
    """Deferred tools of this extension that the model is to see from now on."""
    state: str = "done"
    """To `tool_reconcile`: `done`, `not_done` or `unknown`."""


class ToolProgress(IdFrame, tag="tool_progress"):
    """A piece of output while a call is running."""

    text: str


class CommandResponse(IdFrame, tag="command_response"):
    """The answer to `command_invoked`; the field named like the action holds its text."""

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
    """Goes both ways: whoever closes the panel tells the other."""


class OpenPanel(ExtensionFrame, tag="open_panel"):
    """A panel nobody asked for with a command."""

    panel: Panel


class Notify(ExtensionFrame, tag="notify"):
    message: str
    level: str = "info"


class Ask(ExtensionFrame, DialogText, kw_only=True, tag="ask"):
    """A question to the person in front of zot; answered by `answer`."""

    id: str
    method: str
    """confirm, select, input or editor."""
    timeout: float = 300.0
    """Seconds; then the question counts as cancelled."""
    parent_id: str = ""
    """The `tool_call` in whose course it is asked: where several agents share the extension, the
    person in front of that one is asked."""


class Submit(ExtensionFrame, tag="submit"):
    """Start a run with this text, where the host allows it."""

    text: str


class SubmitSlash(ExtensionFrame, tag="submit_slash"):
    """Run this slash command as if the person had typed it, where the host allows it."""

    text: str


class ClearNotes(ExtensionFrame, tag="clear_notes"):
    """The extension's notes are out of date. zot writes a note once, so there is nothing to do."""


class CallTool(NamedFrame, tag="call_tool"):
    """Run one of zot's tools; answered by `tool_result`."""

    args: dict[str, Json] = {}
    parent_id: str = ""
    """The `tool_call` in whose course this one is made."""


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
    """A frame of a type this zot does not know: from a newer SDK, and no reason to stop."""

    type: str


# --- zot to extension ------------------------------------------------------------------------


class HelloAck(ExtensionFrame, tag="hello_ack"):
    zot_version: str
    provider: str
    model: str
    cwd: str
    extension_dir: str
    data_dir: str
    """Where the extension keeps its files: its own folder, where that can be written to."""
    protocol_version: int = PROTOCOL_VERSION
    capabilities: tuple[str, ...] = CAPABILITIES


class CommandInvoked(NamedFrame, tag="command_invoked"):
    args: str = ""
    session_id: str | UnsetType = UNSET
    """The conversation in which it was typed."""


class ToolCall(NamedFrame, tag="tool_call"):
    args: dict[str, Json] = {}
    key: str | UnsetType = UNSET
    """In a durable run: names the call, the same at every attempt."""
    session_id: str | UnsetType = UNSET
    """The conversation whose call it is: agents of one directory share their extensions."""


class ToolReconcile(NamedFrame, tag="tool_reconcile"):
    """What became of a call that a crash cut off? Nothing is to be done."""

    args: dict[str, Json]
    key: str


class ToolCancel(IdFrame, tag="tool_cancel"):
    """The call was given up; its answer will be ignored."""


class Result(Frozen, omit_defaults=True):
    content: tuple[Content, ...]
    is_error: bool = False
    truncated: bool = False


class OpenToolCall(Frozen):
    """A tool call that a crash cut off, and what is done about it."""

    tool_id: str
    tool_name: str
    started: bool
    """It had begun, and may have taken effect."""
    replay: str


class EventHead(ExtensionFrame, kw_only=True):
    """What every event tells."""

    event: str
    session_id: str
    cwd: str
    sequence: int
    """Grows with every event of the host; gaps are events that were not subscribed to."""


class Payload(EventHead, kw_only=True):
    """Which of these are there depends on the event."""

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
    """tool_result: as the guards left them."""
    tool_args_raw: str | UnsetType = UNSET
    """In the place of `tool_args`: what the model wrote is not a JSON object."""
    tool_preview: str | UnsetType = UNSET
    """tool_confirmation_requested: the call as the person sees it."""
    queued: bool | UnsetType = UNSET
    """user_prompt_submit: it came while a run was at work, and waited."""
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
    """The id of its conversation."""
    run: str | UnsetType = UNSET
    """run_resumed: the name of the run that another process began."""
    attempt: int | UnsetType = UNSET
    away: float | UnsetType = UNSET
    """run_resumed: seconds since that process was last heard of."""
    open_calls: tuple[OpenToolCall, ...] | UnsetType = UNSET
    """run_resumed: what was cut off."""
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
    """What was chosen or typed."""
    confirmed: bool = False
    cancelled: bool = False
    """Nobody was there, nobody answered in time, or the person did not want to."""


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
    """One line, ended by LF, that no reader can split wrongly."""
    return encode_line(frame)


def decode(line: bytes) -> FromExtension | Unknown:
    """A line of an extension. Raises BadFrame: not JSON, not an object, or a known type with fields
    of the wrong kind."""
    try:
        check_nesting(line)
    except RecursionError as error:
        raise BadFrame(f"not JSON: {error}") from error
    try:
        return _from_extension.decode(line)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return _decode_leniently(line)


def id_of(start: bytes) -> str | None:
    """Whose answer a line was that is too long to be read, from its first bytes."""
    shown = re.search(rb'"id"\s*:\s*"([^"\\]{1,64})"', start)
    return shown[1].decode("ascii", "replace") if shown else None


def decode_from_host(line: bytes) -> ToExtension:
    """A line of zot, as an extension sees it; for tests and documentation."""
    return _to_extension.decode(line)


def _decode_leniently(line: bytes) -> FromExtension | Unknown:
    """Go programs write null for an empty list or text, and newer ones use unknown types."""
    try:
        # Half an emoji is no JSON to msgspec, but many programs write it; loaded for those only.
        import json

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

Direction = Literal["from_extension", "to_extension"]


def json_schema() -> dict[str, Any]:
    """JSON Schema of the protocol: `from_extension` and `to_extension` describe one line each."""
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
