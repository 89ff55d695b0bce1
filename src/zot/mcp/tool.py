"""Tools of servers as the loop sees them: one tool each, or a single one for all."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import msgspec

from zot.core.check import problem
from zot.core.tool import ToolContext, ToolOutput
from zot.errors import McpError, ToolError
from zot.mcp import protocol
from zot.mcp.content import Shorten, output_of, resource_of
from zot.mcp.protocol import McpToolInfo, first_line
from zot.mcp.server import McpServer
from zot.provider.types import Json
from zot.text import Frozen, nearest

PROXY = "mcp"
RESOURCES = "mcp_resource"
MAX_LISTED = 16_000
"""Maximum length, in characters, of the tool list in the description of the single tool."""
MAX_MATCHES = 30


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
        return self.info.reads_only and self.server.believed

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
