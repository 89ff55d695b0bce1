"""Tools of servers as the loop sees them (one tool each, or a single one for all), and results of
servers for the model: text and images, within the limits of other tools."""

from __future__ import annotations

import binascii
import shlex
from collections.abc import Callable, Mapping, Sequence

import msgspec
from msgspec import Struct

from zot.core.arguments import fitted
from zot.core.check import problem
from zot.core.image import MAX_IMAGE, checked_image
from zot.core.tool import ToolContext, ToolOutput
from zot.errors import CommandError, McpError, ToolError
from zot.mcp import protocol
from zot.mcp.protocol import McpToolInfo, PromptInfo, first_line
from zot.mcp.server import McpServer
from zot.provider.types import Image, Json, Text, texts_in
from zot.text import Frozen, nearest, prepared

PROXY = "mcp"
RESOURCES = "mcp_resource"
MAX_LISTED = 16_000
"""Maximum length, in characters, of the tool list in the description of the single tool."""
MAX_MATCHES = 30
MAX_IMAGES = 20
MAX_BLOCKS = 10_000
MAX_DETAILS = 256 * 1024

Shorten = Callable[[str], str]
"""Shortens a text that is too long for a model; the rest goes into a file."""


class McpTool(Frozen):
    """A tool of a server."""

    server: McpServer
    info: McpToolInfo
    shorten: Shorten

    @property
    def name(self) -> str:
        """The name that the model calls, and that approvals use."""
        return protocol.tool_name(self.server.name, self.info.name)

    @property
    def short(self) -> str:
        return f"{self.server.name}/{self.info.name}"

    @property
    def description(self) -> str:
        return self.info.description or f"{self.info.name} of {self.server.name}"

    @property
    def schema(self) -> dict[str, Json]:
        return self.info.schema

    @property
    def runs_unasked(self) -> bool:
        return self.info.reads_only and self.server.is_trusted

    def run(self, args: dict[str, Json], context: ToolContext) -> ToolOutput:
        try:
            with self.server.calling(context.cancel, self.info.name) as (connection, patience):
                result = connection.call_tool(self.info, args, patience, context)
        except McpError as error:
            raise ToolError(str(error)) from error
        return output_of(result, self.shorten)


class McpProxy:
    """The single tool for all tools of servers: a fixed schema, and one line per tool instead of a
    schema each."""

    name = PROXY

    def __init__(self, tools: Sequence[McpTool]) -> None:
        self._tools: Mapping[str, McpTool] = {tool.short: tool for tool in tools}
        self.description = _about(tools)
        self.schema: dict[str, Json] = {
            "type": "object",
            "properties": {
                "action": {"type": "string", "enum": ["search", "describe", "call"]},
                "tool": {"type": "string", "description": "SERVER/TOOL, for describe and call"},
                "query": {"type": "string", "description": "words, for search"},
                "arguments": {"type": "object", "description": "for call"},
            },
            "required": ["action"],
        }

    def find(self, args: Mapping[str, Json]) -> McpTool | None:
        """Return the tool that the arguments would call."""
        if args.get("action") != "call":
            return None
        return self._tools.get(str(args.get("tool", "")))

    def run(self, args: dict[str, Json], context: ToolContext) -> ToolOutput | str:
        match args.get("action"):
            case "search":
                return self._search(str(args.get("query", "")))
            case "describe":
                tool = self._named(args)
                return _described(tool)
            case _:
                tool = self._named(args)
                arguments: dict[str, Json] = args.get("arguments") or {}
                if problem(arguments, tool.info.schema):
                    arguments, _ = fitted(arguments, tool.info.schema)
                if wrong := problem(arguments, tool.info.schema):
                    raise ToolError(f"{wrong}\n{_described(tool)}")
                return tool.run(arguments, context)

    def _named(self, args: Mapping[str, Json]) -> McpTool:
        name = str(args.get("tool", ""))
        tool = self._tools.get(name)
        if tool is None:
            near = nearest(name, self._tools, most=3)
            hint = f"; did you mean {', '.join(near)}?" if near else "; use action search"
            raise ToolError(f"there is no tool {name!r}{hint}")
        return tool

    def _search(self, query: str) -> str:
        words = query.lower().split()
        scored = []
        for short, tool in sorted(self._tools.items()):
            text = f"{short} {tool.info.description}".lower()
            if score := sum((word in short.lower()) * 2 + (word in text) for word in words):
                scored.append((-score, short, tool))
        lines = [_line(tool) for _, _, tool in sorted(scored, key=lambda row: row[:2])]
        if not lines:
            return f"no tool matches {query!r}; there are {len(self._tools)}"
        more = f"\n({len(lines) - MAX_MATCHES} more)" if len(lines) > MAX_MATCHES else ""
        return "\n".join(lines[:MAX_MATCHES]) + more


class McpResources:
    """Lists and reads resources of servers. Sends nothing before it is called."""

    name = RESOURCES

    def __init__(self, servers: Sequence[McpServer], shorten: Shorten) -> None:
        self._servers = {server.name: server for server in servers}
        self._shorten = shorten
        names = ", ".join(sorted(self._servers))
        self.description = (
            "Resources of MCP servers: without `uri` the list of what a server offers, with it the"
            f" content of one. Servers: {names}."
        )
        self.schema: dict[str, Json] = {
            "type": "object",
            "properties": {"server": {"type": "string"}, "uri": {"type": "string"}},
            "required": ["server"],
        }

    def server_of(self, args: Mapping[str, Json]) -> McpServer | None:
        return self._servers.get(str(args.get("server", "")))

    def run(self, args: dict[str, Json], context: ToolContext) -> ToolOutput | str:
        server = self.server_of(args)
        if server is None:
            known = ", ".join(sorted(self._servers))
            raise ToolError(
                f"there is no server {args.get('server')!r:.80} with resources: {known}"
            )
        uri = args.get("uri")
        try:
            with server.calling(context.cancel) as (connection, patience):
                if not uri:
                    lines = connection.resources(patience)
                    return self._shorten("\n".join(lines) or "it offers none")
                result = connection.call("resources/read", {"uri": uri}, patience, context)
        except McpError as error:
            raise ToolError(str(error)) from error
        return resource_of(result, self._shorten)


def _about(tools: Sequence[McpTool]) -> str:
    head = (
        "Tools of MCP servers. `describe` shows the arguments of one, `call` calls it,"
        " `search` finds some by words. They are:\n"
    )
    lines: list[str] = []
    size = 0
    for tool in sorted(tools, key=lambda tool: tool.short):
        line = _line(tool)
        size += len(line) + 1
        if size > MAX_LISTED:
            lines.append(f"and {len(tools) - len(lines)} more: use search")
            break
        lines.append(line)
    return head + "\n".join(lines)


def _line(tool: McpTool) -> str:
    about = first_line(tool.info.description)
    return f"{tool.short}: {about}" if about else tool.short


def _described(tool: McpTool) -> str:
    schema = msgspec.json.encode(tool.info.schema).decode()
    return f"{tool.short}: {tool.info.description}\narguments: {schema}"


# --- results ---------------------------------------------------------------------------------


class _Resource(Frozen):
    uri: str = ""
    mimeType: str | None = None  # the wire's name
    text: str | None = None
    blob: str | None = None


class _Block(Struct):
    type: str = ""
    text: str = ""
    data: str = ""
    mimeType: str = ""  # the wire's name
    uri: str = ""
    name: str = ""
    description: str | None = None
    resource: _Resource = _Resource()


prepared(_Block)


def output_of(result: dict[str, Json], shorten: Shorten) -> ToolOutput:
    """Convert a result of `tools/call` for the loop."""
    raw = result.get("content")
    blocks = [block_of(item) for item in (raw if isinstance(raw, list) else [])[:MAX_BLOCKS]]
    structured = result.get("structuredContent")
    if structured is not None and not _is_said(structured, blocks):
        blocks.append(Text(msgspec.json.encode(structured).decode()))
    details: dict[str, Json] | None = None
    if structured is not None and len(msgspec.json.encode(structured)) <= MAX_DETAILS:
        details = {"structured_content": structured}
    return ToolOutput(bounded(blocks, shorten), result.get("isError") is True, details)


def resource_of(result: dict[str, Json], shorten: Shorten) -> ToolOutput:
    """Convert a result of `resources/read`."""
    raw = result.get("contents")
    items = (raw if isinstance(raw, list) else [])[:MAX_BLOCKS]
    blocks = [block_of({"type": "resource", "resource": item}) for item in items]
    return ToolOutput(bounded(blocks, shorten))


def block_of(raw: Json) -> Text | Image:
    """Convert one block; an invalid one becomes a note."""
    try:
        block = msgspec.convert(raw, _Block)
    except (msgspec.ValidationError, RecursionError) as error:
        return Text(f"[a block that cannot be read: {error}]")
    match block.type:
        case "text":
            return Text(block.text)
        case "image":
            return _image(block.mimeType, block.data)
        case "audio":
            return Text(f"[audio of type {block.mimeType:.80}, {len(block.data) * 3 // 4} bytes]")
        case "resource_link":
            about = f": {block.description}" if block.description else ""
            return Text(f"[resource {block.uri} {block.name!r}{about}]")
        case "resource":
            return _resource(block.resource)
        case kind:
            return Text(f"[a block of the unknown type {kind!r:.80}]")


def _resource(resource: _Resource) -> Text | Image:
    if resource.text is not None:
        return Text(f"{resource.uri}\n{resource.text}")
    kind, blob = resource.mimeType or "", resource.blob or ""
    if kind.startswith("image/"):
        return _image(kind, blob)
    return Text(f"[{resource.uri}: {kind or 'bytes'}, {len(blob) * 3 // 4} bytes]")


def _image(kind: str, data: str) -> Text | Image:
    if len(data) * 3 // 4 > MAX_IMAGE:
        return Text(f"[an image of {len(data) * 3 // 4} bytes: the limit is {MAX_IMAGE}]")
    try:
        return checked_image(kind, binascii.a2b_base64(data), "it")
    except (ValueError, CommandError) as error:
        return Text(f"[an image that cannot be used: {error}]")


def bounded(blocks: list[Text | Image], shorten: Shorten) -> tuple[Text | Image, ...]:
    """Limit the blocks: the text in total to that of other tools, and the number of images."""
    images = [block for block in blocks if isinstance(block, Image)]
    texts = texts_in(blocks)
    if len(images) > MAX_IMAGES:
        texts.append(f"[{len(images) - MAX_IMAGES} more images are left out]")
    whole = "\n".join(texts)
    short = shorten(whole)
    if short == whole and len(images) <= MAX_IMAGES:
        return tuple(blocks)
    return (Text(short), *images[:MAX_IMAGES])


def _is_said(structured: Json, blocks: list[Text | Image]) -> bool:
    """Whether a text repeats the structured result, or the single value in it."""
    values = list(structured.values()) if isinstance(structured, dict) else []
    for block in blocks:
        if not isinstance(block, Text):
            continue
        if values == [block.text]:
            return True
        if block.text.lstrip()[:1] in ("{", "["):
            try:
                if msgspec.json.decode(block.text) == structured:
                    return True
            except (msgspec.MsgspecError, RecursionError):
                continue
    return False


# --- prompts ---------------------------------------------------------------------------------


def prompt_arguments(prompt: PromptInfo, args: str) -> dict[str, str]:
    """Parse typed arguments of a prompt: `name=value`, or by position; the last one takes the rest
    of the line. Raises CommandError: a required one is missing."""
    try:
        words = shlex.split(args)
    except ValueError:
        words = args.split()
    values: dict[str, str] = {}
    plain: list[str] = []
    for word in words:
        name, equals, value = word.partition("=")
        if equals and name in prompt.arguments:
            values[name] = value
        else:
            plain.append(word)
    free = [name for name in prompt.arguments if name not in values]
    for position, name in enumerate(free):
        if plain:
            last = position == len(free) - 1
            values[name] = " ".join(plain) if last else plain.pop(0)
    if missing := [name for name in prompt.required if name not in values]:
        raise CommandError(f"the prompt {prompt.name!r} needs {', '.join(missing)}")
    return values


def prompt_text(result: dict[str, Json]) -> str:
    """Join the messages of a prompt; images are replaced by a note."""
    messages = result.get("messages")
    texts = []
    for message in messages if isinstance(messages, list) else ():
        content = message.get("content") if isinstance(message, dict) else None
        block = block_of(content)
        text = block.text if isinstance(block, Text) else "[an image]"
        role = message.get("role") if isinstance(message, dict) else ""
        texts.append(f"(as the assistant:)\n{text}" if role == "assistant" else text)
    return "\n\n".join(texts)
