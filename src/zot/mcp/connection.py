"""A session with one server, of either era: handshake, lists, calls and questions.

Independent of the transport (see link.py) and of the loop's tools (see tool.py).
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from itertools import count

import msgspec
from msgspec import Raw, Struct

from zot.cancel import Cancel
from zot.children.logfile import LogFile
from zot.core.tool import ToolContext
from zot.errors import McpError
from zot.jsonrpc import METHOD_NOT_FOUND, RpcFault, RpcHandler, RpcId
from zot.mcp import protocol
from zot.mcp.config import ServerConfig
from zot.mcp.dialogs import ServerDialogs
from zot.mcp.http import HttpLink, header_value
from zot.mcp.link import Link, LinkRequest, McpFault, McpSessionLost, McpTimeout, Patience
from zot.mcp.oauth import McpAuth
from zot.mcp.server import ServerParts
from zot.mcp.stdio import StdioLink, server_program
from zot.provider.types import Json
from zot.text import prepared

PROBE_SECONDS = 5.0
"""Seconds to wait for an answer about the version before trying the older handshake."""
MAX_ROUNDS = 8
"""Maximum number of times that one call may return with questions."""
MAX_STATE = 64 * 1024
"""Maximum size, in bytes, of questions and their request state that are saved for a resume."""
MAX_INSTRUCTIONS = 4_096

TakeProgress = Callable[[str], None]
MakeLink = Callable[[RpcHandler], Link]


class McpConnection:
    """A connection, ready after `open`. Thread-safe: each request waits on its own."""

    def __init__(
        self, make_link: MakeLink, asker: ServerDialogs, changed: Callable[[], None]
    ) -> None:
        """`changed` is called when the server reports changed lists."""
        self._asker = asker
        self._changed = changed
        self._tokens = count(1)
        self._capabilities: dict[str, Json] = {}
        self.version = protocol.MODERN
        self.instructions = ""
        self.link = make_link(self)

    @property
    def era(self) -> protocol.Era:
        return "modern" if self.version == protocol.MODERN else "legacy"

    # --- the handshake -----------------------------------------------------------------------

    def open(self, era: protocol.Era | None, patience: Patience) -> None:
        """Negotiate the version; `era` is the one of the last run. Raises McpError: no answer, or
        no common version; Cancelled: the start was aborted."""
        self.link.start()
        silent = False
        if era != "legacy":
            try:
                short = Patience(min(PROBE_SECONDS, patience.left / 2), patience.cancel)
                self._discover(patience if self.link.is_http else short)
                return
            except McpTimeout:
                silent = True
            except McpFault as error:
                if self._offered(error) == protocol.MODERN:
                    self._discover(patience)  # the server wants a second request
                    return
        try:
            self._initialize(patience)
        except McpFault:
            if not silent and era is None:
                raise
            # The server started slowly, or is no longer what it was in the last run.
            self._discover(patience)

    def _offered(self, error: McpFault) -> str | None:
        """Return the version offered by a server that refused ours; None: it offered none."""
        fault = error.fault
        if fault.code not in protocol.MODERN_ERRORS or not isinstance(fault.data, dict):
            return None
        version = protocol.common_version(fault.data.get("supported"))
        if version is None:
            raise McpError(f"it speaks no version of MCP that zot does: {error}") from error
        return version

    def _discover(self, patience: Patience) -> None:
        self.version = protocol.MODERN
        result = self._ask("server/discover", {}, patience, quiet=True)
        offered = result.get("supportedVersions")
        version = protocol.common_version(offered)
        if version is None and isinstance(offered, list):
            raise McpError("it speaks no version of MCP that zot does")
        if version != protocol.MODERN:  # some servers answer unknown methods with an empty result
            self._initialize(patience)
            return
        self._learn(result)
        lists = (self._capabilities.get("tools"), self._capabilities.get("prompts"))
        if any(isinstance(part, dict) and part.get("listChanged") for part in lists):
            wanted = {"notifications": {"toolsListChanged": True, "promptsListChanged": True}}
            self.link.listen("subscriptions/listen", self._with_meta(wanted, None))

    def _initialize(self, patience: Patience) -> None:
        self.version = protocol.LEGACY[0]
        params = {
            "protocolVersion": self.version,
            "capabilities": protocol.capabilities(dialogs=self._asker.can_ask()),
            "clientInfo": protocol.client_info(),
        }
        result = self._ask("initialize", params, patience)
        version = result.get("protocolVersion")
        if version not in protocol.LEGACY:
            raise McpError(f"it wants version {version!r:.80} of MCP, which zot does not speak")
        self.version = version
        self._learn(result)
        self.link.peer.notify("notifications/initialized", {})
        self.link.listen("", {})

    def _learn(self, result: dict[str, Json]) -> None:
        offered = result.get("capabilities")
        self._capabilities = offered if isinstance(offered, dict) else {}
        instructions = result.get("instructions")
        if isinstance(instructions, str):
            self.instructions = protocol.visible_text(instructions[:MAX_INSTRUCTIONS])

    # --- lists -------------------------------------------------------------------------------

    def list_all(self, patience: Patience) -> protocol.ServerLists:
        """Return everything the server offers. Raises McpError, Cancelled."""
        tools: dict[str, protocol.McpToolInfo] = {}
        dropped: list[str] = []
        if "tools" in self._capabilities:
            for raw in self._pages("tools/list", "tools", patience):
                try:
                    tool = protocol.read_tool(raw, http=self.link.is_http)
                    tools.setdefault(tool.name, tool)
                except protocol.Unusable as error:
                    name = raw.get("name") if isinstance(raw, dict) else None
                    dropped.append(f"{name!r:.80}: {error}")
        return protocol.ServerLists(
            tuple(tools.values()),
            tuple(self._prompts(patience)),
            "resources" in self._capabilities,
            self.instructions,
            self.era,
            tuple(dropped[:50]),
        )

    def _prompts(self, patience: Patience) -> Iterator[protocol.PromptInfo]:
        if "prompts" not in self._capabilities:
            return
        try:
            for raw in self._pages("prompts/list", "prompts", patience):
                try:
                    yield protocol.read_prompt(raw)
                except protocol.Unusable:
                    continue  # prompts are a convenience: keep the others
        except McpFault:
            return  # it announced prompts, but has none

    def resources(self, patience: Patience) -> list[str]:
        """Return a line for each resource and template. Raises McpError, Cancelled."""
        pages = self._pages("resources/list", "resources", patience)
        lines = [_resource_line(raw, "uri") for raw in pages]
        try:
            for raw in self._pages("resources/templates/list", "resourceTemplates", patience):
                lines.append(_resource_line(raw, "uriTemplate"))
        except McpFault:
            pass  # many servers have no templates, and answer with an error
        return lines

    def _pages(self, method: str, field: str, patience: Patience) -> Iterator[Json]:
        """Yield the items of all pages of a list; stop when the server repeats a cursor."""
        cursor: str | None = None
        cursors: set[str] = set()
        total = 0
        for _ in range(protocol.MAX_PAGES):
            params = {} if cursor is None else {"cursor": cursor}
            result = self._ask(method, params, patience)
            items = result.get(field)
            for item in items if isinstance(items, list) else ():
                total += 1
                if total > protocol.MAX_TOOLS:
                    return
                yield item
            cursor = result.get("nextCursor")
            if not isinstance(cursor, str) or cursor in cursors:
                return
            cursors.add(cursor)

    # --- calls -------------------------------------------------------------------------------

    def call_tool(
        self,
        tool: protocol.McpToolInfo,
        args: dict[str, Json],
        patience: Patience,
        context: ToolContext,
    ) -> dict[str, Json]:
        """Call a tool. Raises McpError, Cancelled."""
        params: dict[str, Json] = {"name": tool.name, "arguments": args}
        if context.trace:
            params["_meta"] = {"traceparent": context.trace}
        headers = argument_headers(tool, args) if self.link.is_http else {}
        return self.call("tools/call", params, patience, context, headers)

    def call(
        self,
        method: str,
        params: dict[str, Json],
        patience: Patience,
        context: ToolContext,
        headers: dict[str, str] | None = None,
    ) -> dict[str, Json]:
        """Send a request that may return with questions first. Raises McpError, Cancelled."""
        answers: dict[str, Json] = {}
        result: dict[str, Json] | None = context.state
        for _ in range(MAX_ROUNDS):
            if result is None:
                request = {**params, **answers}
                result = self._ask(method, request, patience, context.progress, headers=headers)
            match result.get("resultType", "complete"):
                case "complete":
                    return result
                case "input_required":
                    # The server has answered and holds no state: another process may continue.
                    if len(msgspec.json.encode(result)) <= MAX_STATE:
                        context.pause(result)
                    answers, result = self._answers(result, context.cancel), None
                    context.pause(None)
                    patience.extend()  # the person took the time, not the server
                case other:
                    raise McpError(f"its result is of the unknown type {other!r:.80}")
        raise McpError(f"it asked for more input {MAX_ROUNDS} times")

    def _answers(self, result: dict[str, Json], cancel: Cancel) -> dict[str, Json]:
        """Answer the questions of a result, and return the parameters to repeat the call with."""
        requests = result.get("inputRequests")
        responses = {}
        for key, request in requests.items() if isinstance(requests, dict) else ():
            method = request.get("method") if isinstance(request, dict) else None
            if method != "elicitation/create" or not self._asker.can_ask():
                raise McpError(f"it asks for {method!r:.80}, and nobody here can answer that")
            responses[key] = self._asker.elicit(request.get("params"), cancel)
        answers: dict[str, Json] = {"inputResponses": responses} if responses else {}
        if "requestState" in result:
            answers["requestState"] = result["requestState"]
        if not answers:
            raise McpError("it asks for input, but not which")
        return answers

    def _ask(
        self,
        method: str,
        params: dict[str, Json],
        patience: Patience,
        progress: TakeProgress | None = None,
        *,
        headers: dict[str, str] | None = None,
        quiet: bool = False,
    ) -> dict[str, Json]:
        """Send a request, and return its result; anything but an object becomes an empty one."""
        token = f"zot-{next(self._tokens)}" if progress is not None else None
        show = progress or (lambda text: None)

        def ask() -> dict[str, Json]:
            request = LinkRequest(
                method,
                self._with_meta(params, token),
                patience,
                self.version,
                token,
                lambda raw: show(progress_text(raw)),
                headers or {},
                quiet,
            )
            return protocol.decoded(self.link.request(request))

        try:
            return ask()
        except McpSessionLost:
            self._initialize(patience)
            return ask()

    def _with_meta(self, params: dict[str, Json], token: str | None) -> dict[str, Json]:
        dialogs = self._asker.can_ask()
        return protocol.with_meta(params, self.version, dialogs=dialogs, token=token)

    # --- messages from the server (RpcHandler) -----------------------------------------------

    def take_notification(self, method: str, params: Raw) -> None:
        if method in ("notifications/tools/list_changed", "notifications/prompts/list_changed"):
            self._changed()

    def take_request(self, id: RpcId, method: str, params: Raw) -> None:
        match method:
            case "ping":
                self.link.peer.answer(id, {})
            case "elicitation/create" if self._asker.can_ask():

                def ask() -> None:
                    answer = self._asker.elicit(protocol.decoded(params), Cancel())
                    self.link.peer.answer(id, answer)

                # In a separate thread: the reading thread must not wait for a person.
                threading.Thread(target=ask, name="mcp-elicit", daemon=True).start()
            case _:
                fault = RpcFault(METHOD_NOT_FOUND, f"{method} is not offered")
                self.link.peer.answer(id, fault)

    def close(self) -> None:
        self.link.close()


def connect(
    config: ServerConfig,
    parts: ServerParts,
    log: LogFile,
    era: protocol.Era | None,
    changed: Callable[[], None],
    closed: Cancel,
) -> McpConnection:
    """Start a server, or connect to it, and shake hands. Raises McpError, Cancelled."""

    def make_link(handler: RpcHandler) -> Link:
        if config.url:
            auth = McpAuth(config.name, config.url, config.oauth, parts.home, parts.show_page)
            has_own = "authorization" in map(str.lower, config.headers)
            return HttpLink(config, log, handler, None if has_own else auth)
        program = server_program(config, parts.environ)
        parts.hide()
        return StdioLink(config, parts.confine(program, closed, parts.warn), log, handler)

    connection = McpConnection(make_link, ServerDialogs(parts.dialogs, config.name), changed)
    try:
        connection.open(era, Patience(config.startup_timeout, closed))
    except BaseException as error:
        words, hint = connection.link.last_words(), connection.link.hint
        connection.close()
        more = f"; it said:\n{words}" if words and words not in str(error) else ""
        more += f"\n({hint})" if hint else ""
        if isinstance(error, McpError) and more:
            raise McpError(f"{error}{more}") from error
        raise
    return connection


def _resource_line(raw: Json, field: str) -> str:
    entry = raw if isinstance(raw, dict) else {}
    about = str(entry.get("description") or entry.get("title") or "")
    line = f"{entry.get(field, '')} {entry.get('name', '')}"
    return protocol.visible_text(f"{line}: {protocol.first_line(about)}" if about else line)[:500]


class _Progress(Struct):
    progress: float = 0.0
    total: float | None = None
    message: str | None = None


prepared(_Progress)


def progress_text(params: Raw) -> str:
    """Format a progress notification as a line of output."""
    try:
        report = msgspec.json.decode(params, type=_Progress)
    except (msgspec.MsgspecError, RecursionError):
        return ""
    done = f"{report.progress:g}" + (f"/{report.total:g}" if report.total is not None else "")
    return (
        f"{done} {protocol.visible_text(report.message[:500])}\n" if report.message else f"{done}\n"
    )


def argument_headers(tool: protocol.McpToolInfo, args: dict[str, Json]) -> dict[str, str]:
    """Return the arguments that a server wants as headers too (HTTP, see `x-mcp-header`)."""
    headers = {}
    for path, name in tool.headers.items():
        value: Json = args
        for part in path.split("."):
            value = value.get(part) if isinstance(value, dict) else None
        if isinstance(value, bool):
            headers[f"Mcp-Param-{name}"] = "true" if value else "false"
        elif isinstance(value, str | int):
            headers[f"Mcp-Param-{name}"] = header_value(str(value))
    return headers
