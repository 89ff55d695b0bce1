"""MCP as data: versions, request metadata, and the lists of servers. No I/O.

Servers are not trusted: sizes are bounded, and an unusable item is dropped with a reason, without
affecting the others.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from hashlib import sha256
from typing import Any, Literal

import msgspec
from msgspec import Raw, Struct

from zot import __version__
from zot.provider.types import Json
from zot.text import Frozen, prepared

MODERN = "2026-07-28"
LEGACY = ("2025-11-25", "2025-06-18", "2025-03-26", "2024-11-05")
"""Versions with a handshake, newest first."""
MODERN_ERRORS = (-32020, -32021, -32022)
"""Error codes of servers without a handshake only."""

META = "io.modelcontextprotocol/"
MAX_PAGES = 50
MAX_TOOLS = 2_000
MAX_DESCRIPTION = 16 * 1024
MAX_SCHEMA = 64 * 1024
MAX_DEPTH = 40
MAX_NAME = 128
MAX_LINE = 100
LONGEST_TOOL_NAME = 64
"""Length that every provider accepts."""

Era = Literal["modern", "legacy"]
_BAD = re.compile(r"[^A-Za-z0-9_-]")
_INVISIBLE = re.compile(
    "[\u00ad\u061c\u180e\u200b-\u200f\u202a-\u202e\u2060-\u206f\ufeff\U000e0000-\U000e007f]"
)
_HEADER = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")


class McpToolInfo(Frozen, omit_defaults=True):
    """A tool as listed by a server."""

    name: str
    description: str = ""
    schema: dict[str, Json] = {}
    reads_only: bool = False
    """The server's own claim."""
    headers: dict[str, str] = {}
    """Headers by the dotted names of arguments that are sent as headers too (HTTP)."""

    @property
    def face(self) -> str:
        """A hash of the parts that the model and the user see."""
        seen = (self.name, self.description, self.schema, self.reads_only)
        return sha256(msgspec.json.encode(seen, order="deterministic")).hexdigest()[:16]


class PromptInfo(Frozen, omit_defaults=True):
    name: str
    description: str = ""
    arguments: tuple[str, ...] = ()
    required: tuple[str, ...] = ()


class ServerLists(Frozen, omit_defaults=True):
    """Everything a server offers; cached on disk between runs."""

    tools: tuple[McpToolInfo, ...] = ()
    prompts: tuple[PromptInfo, ...] = ()
    has_resources: bool = False
    instructions: str = ""
    era: Era | None = None
    dropped: tuple[str, ...] = ()
    """Unusable tools, each with the reason."""


# --- requests --------------------------------------------------------------------------------


def client_info() -> dict[str, Json]:
    return {"name": "zot", "version": __version__}


def capabilities(*, dialogs: bool) -> dict[str, Json]:
    """Return the client capabilities: only those that someone can answer."""
    return {"elicitation": {"form": {}, "url": {}}} if dialogs else {}


def with_meta(
    params: dict[str, Json], version: str, *, dialogs: bool, token: str | None
) -> dict[str, Json]:
    """Return the parameters of a request with its `_meta`."""
    meta: dict[str, Json] = dict(params.get("_meta") or {})
    if version == MODERN:
        meta[META + "protocolVersion"] = version
        meta[META + "clientInfo"] = client_info()
        meta[META + "clientCapabilities"] = capabilities(dialogs=dialogs)
    if token is not None:
        meta["progressToken"] = token
    return {**params, "_meta": meta} if meta else params


def common_version(versions: Any) -> str | None:
    """Return the newest version in a server's list that zot supports."""
    offered = versions if isinstance(versions, list) else []
    return next((version for version in (MODERN, *LEGACY) if version in offered), None)


# --- tools -----------------------------------------------------------------------------------


class _Annotations(Struct):
    readOnlyHint: bool = False  # the wire's name


class _Tool(Struct):
    name: str
    title: str | None = None
    description: str | None = None
    inputSchema: dict[str, Json] = {}  # the wire's name
    annotations: Json = None


class _Argument(Struct):
    name: str
    required: bool | None = None


class _Prompt(Struct):
    name: str
    title: str | None = None
    description: str | None = None
    arguments: tuple[_Argument, ...] | None = None


prepared(_Tool, _Annotations, _Prompt)


class Unusable(ValueError):
    """The reason why a listed item is dropped."""


def read_tool(raw: Json, *, http: bool) -> McpToolInfo:
    """Parse a listed tool. Raises Unusable."""
    try:
        tool = msgspec.convert(raw, _Tool)
    except (msgspec.ValidationError, RecursionError) as error:
        raise Unusable(str(error)) from error
    if not tool.name or len(tool.name) > MAX_NAME:
        raise Unusable(f"its name has {len(tool.name)} characters")
    schema = _checked_schema(tool.inputSchema)
    headers = _header_arguments(schema) if http else {}
    try:
        hints = msgspec.convert(tool.annotations or {}, _Annotations)
    except msgspec.ValidationError:
        hints = _Annotations()  # invalid hints count as absent
    text = visible_text((tool.description or tool.title or "")[:MAX_DESCRIPTION])
    return McpToolInfo(tool.name, text, schema, hints.readOnlyHint, headers)


def read_prompt(raw: Json) -> PromptInfo:
    """Parse a listed prompt. Raises Unusable."""
    try:
        prompt = msgspec.convert(raw, _Prompt)
    except (msgspec.ValidationError, RecursionError) as error:
        raise Unusable(str(error)) from error
    arguments = prompt.arguments or ()
    return PromptInfo(
        prompt.name[:MAX_NAME],
        visible_text((prompt.description or prompt.title or "")[:MAX_DESCRIPTION]),
        tuple(argument.name for argument in arguments),
        tuple(argument.name for argument in arguments if argument.required),
    )


def visible_text(text: str) -> str:
    """Escape invisible characters, so that the model reads nothing that a person reading the same
    text would miss."""
    return _INVISIBLE.sub(lambda match: f"\\u{{{ord(match[0]):x}}}", text)


def _checked_schema(schema: dict[str, Json]) -> dict[str, Json]:
    if schema.get("type", "object") != "object":
        raise Unusable(f"its schema is of type {schema['type']!r:.80}, not object")
    if _depth(schema, MAX_DEPTH) > MAX_DEPTH:
        raise Unusable("its schema is nested too deeply")
    size = len(msgspec.json.encode(schema))
    if size > MAX_SCHEMA:
        raise Unusable(f"its schema has {size} bytes, the limit is {MAX_SCHEMA}")
    properties = schema.get("properties", {})
    if not isinstance(properties, dict):
        raise Unusable("its schema has no proper `properties`")
    return {**schema, "type": "object", "properties": properties}


def _depth(value: Json, limit: int) -> int:
    """Return the nesting depth of a value; counting stops above the limit."""
    level, layer = 0, [value]
    while layer and level <= limit:
        level += 1
        layer = [
            inner
            for item in layer
            for inner in (item.values() if isinstance(item, dict) else item)
            if isinstance(inner, dict | list)
        ]
    return level


def _header_arguments(schema: dict[str, Json]) -> dict[str, str]:
    """Return the arguments to send as headers too. Raises Unusable for an invalid mark."""
    marked: dict[str, str] = {}
    for path, part, reachable in _schema_parts(schema):
        if "x-mcp-header" not in part:
            continue
        header = part["x-mcp-header"]
        if not reachable:
            raise Unusable(f"x-mcp-header stands where no argument is ({path or 'the root'})")
        if not isinstance(header, str) or _HEADER.fullmatch(header) is None:
            raise Unusable(f"x-mcp-header of {path!r} is {header!r:.80}, which is no header's name")
        if part.get("type") not in ("string", "integer", "boolean"):
            raise Unusable(f"x-mcp-header of {path!r} needs a string, an integer or a boolean")
        if header.lower() in (name.lower() for name in marked.values()):
            raise Unusable(f"two arguments have the header {header!r}")
        marked[path] = header
    return marked


def _schema_parts(schema: dict[str, Json]) -> Iterator[tuple[str, dict[str, Json], bool]]:
    """Yield every object inside a schema: the dotted name of its argument, the object, and whether
    it describes an argument (reached by `properties` only)."""
    waiting: list[tuple[str, Json, bool]] = [("", schema, False)]
    while waiting:
        path, part, reachable = waiting.pop()
        if isinstance(part, list):
            waiting += [(path, item, False) for item in part]
        if not isinstance(part, dict):
            continue
        yield path, part, reachable
        inside = reachable or part is schema
        for name, value in part.items():
            if name == "properties" and isinstance(value, dict) and inside:
                waiting += [
                    (f"{path}.{key}" if path else key, item, True) for key, item in value.items()
                ]
            elif name not in ("default", "examples", "enum", "const", "x-mcp-header"):
                waiting.append((path, value, False))


# --- names -----------------------------------------------------------------------------------


def tool_name(server: str, tool: str) -> str:
    """Return the name that the model calls: plain characters, 64 at most, unique for each tool."""
    raw = f"mcp__{server}__{tool}"
    plain = _BAD.sub("_", raw)
    if plain == raw and len(plain) <= LONGEST_TOOL_NAME:
        return plain
    mark = sha256(raw.encode("utf-8", "replace")).hexdigest()[:8]
    return f"{plain[: LONGEST_TOOL_NAME - 9]}_{mark}"


def first_line(text: str) -> str:
    line = next((line.strip() for line in text.splitlines() if line.strip()), "")
    return line if len(line) <= MAX_LINE else f"{line[: MAX_LINE - 3]}..."


def decoded(raw: Raw) -> dict[str, Json]:
    """Decode a result; anything but an object becomes an empty one."""
    try:
        value = msgspec.json.decode(raw)
    except (msgspec.MsgspecError, RecursionError):
        return {}
    return value if isinstance(value, dict) else {}
