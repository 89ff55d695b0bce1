"""Registrations of an extension (commands, tools, subscriptions), checked before use."""

from __future__ import annotations

import re
import threading

import msgspec

from zot.core.check import is_plain, validator
from zot.core.tool import REPLAYS, Replay
from zot.errors import ExtensionError
from zot.extensions import proto
from zot.provider.types import Json
from zot.text import Frozen

TOOL_NAME = re.compile(r"[A-Za-z0-9_-]{1,64}")
"""Tool names that every provider accepts."""
COMMAND_NAME = re.compile(r"[A-Za-z0-9_:.-]{1,64}")
MAX_SCHEMA_BYTES = 256 * 1024
MAX_DESCRIPTION = 16 * 1024
"""Maximum length, in characters: a tool's description is sent with every model request."""
TOOL_SECONDS = 60.0
"""Timeout, in seconds, of a tool that sets none."""
_REFERENCES = ("$ref", "$dynamicRef", "$recursiveRef")


class ToolInfo(Frozen):
    name: str
    description: str
    schema: dict[str, Json]
    timeout: float
    interactive: bool
    deferred: bool = False
    replay: Replay = "never"


class Registered:
    """The registrations of one process of the extension. Written by its reading thread."""

    def __init__(self) -> None:
        self.commands: dict[str, str] = {}
        self.tools: dict[str, ToolInfo] = {}
        self.active: set[str] = set()
        """Deferred tools that a result has activated."""
        self.events: frozenset[str] = frozenset()
        self.intercepts: frozenset[str] = frozenset()
        self.fail_closed = False
        self.subscribed = False

    def add(self, frame: proto.RegisterCommand | proto.RegisterTool | proto.Subscribe) -> None:
        """Take a registration. Raises ExtensionError, which says why it was refused."""
        match frame:
            case proto.RegisterCommand():
                name = frame.name.removeprefix("/")
                if not COMMAND_NAME.fullmatch(name):
                    raise ExtensionError(f"command {name!r:.80} was refused: not a usable name")
                self.commands[name] = frame.description[:MAX_DESCRIPTION]
            case proto.RegisterTool():
                self._add_tool(frame)
            case proto.Subscribe():
                self.subscribed = True
                self.events |= set(frame.events)
                self.intercepts |= set(frame.intercept)
                self.fail_closed |= frame.fail_closed

    def _add_tool(self, frame: proto.RegisterTool) -> None:
        name = frame.name
        if not TOOL_NAME.fullmatch(name):
            raise ExtensionError(f"tool {name!r:.80} was refused: not a usable name")
        try:
            schema = check_schema(frame.schema)
        except ExtensionError as error:
            raise ExtensionError(f"tool {name!r} was refused: {error}") from error
        wanted = frame.timeout if frame.timeout > 0 else TOOL_SECONDS
        self.tools[name] = ToolInfo(
            name,
            frame.description[:MAX_DESCRIPTION],
            schema,
            min(wanted, threading.TIMEOUT_MAX),
            frame.interactive,
            frame.deferred or frame.exposure == "deferred",
            next((word for word in REPLAYS if word == frame.replay), "never"),
        )


def check_schema(schema: Json) -> dict[str, Json]:
    """Return the schema of a tool, completed to an object schema, before a model gets it. Raises
    ExtensionError: no object schema, invalid, too large, or with a remote reference."""
    if schema is None:
        schema = {}
    if not isinstance(schema, dict):
        raise ExtensionError(f"its schema is no JSON object but {type(schema).__name__}")
    kind = schema.get("type", "object")
    if kind != "object":
        raise ExtensionError(f"its schema has type {kind!r}, not 'object'")
    if len(msgspec.json.encode(schema)) > MAX_SCHEMA_BYTES:
        raise ExtensionError("its schema is larger than 256 KiB")
    _refuse_remote(schema)
    complete = {"type": "object", "properties": {}, **schema}
    if not is_plain(complete):
        try:
            validator(complete)
        except ValueError as error:
            raise ExtensionError(f"its schema is not valid: {error}") from error
    return complete


def _refuse_remote(value: Json) -> None:
    if isinstance(value, dict):
        for key, item in value.items():
            if key in _REFERENCES and isinstance(item, str) and not item.startswith("#"):
                raise ExtensionError(f"its schema refers to {item!r}; only '#...' is allowed")
            if key in ("$id", "id") and isinstance(item, str) and "://" in item:
                raise ExtensionError(f"its schema has the remote {key} {item!r}; remove it")
            _refuse_remote(item)
    elif isinstance(value, list):
        for item in value:
            _refuse_remote(item)
