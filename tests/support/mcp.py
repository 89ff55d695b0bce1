"""What tests of MCP share: configurations with the test server, and servers without a runtime."""

from __future__ import annotations

import json
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from support.patience import PATIENCE

from zot.cancel import Cancel
from zot.core.tool import ToolContext
from zot.errors import ToolError
from zot.mcp.config import parse_server
from zot.mcp.dialogs import McpDialogs
from zot.mcp.server import McpServer, ServerParts
from zot.mcp.store import ServerStore
from zot.mcp.tool import McpTool

PROGRAM = str(Path(__file__).with_name("mcp_server.py"))


def entry(**options: object) -> dict:
    """What starts the test server with these options."""
    return {"command": sys.executable, "args": ["-I", "-S", PROGRAM, json.dumps(options)]}


def configure(path: Path, **servers: dict) -> None:
    """Write a file of servers."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps({"mcpServers": servers}))


class Alone:
    """One server without a runtime around it."""

    def __init__(self, home: Path, config: dict, environ: dict[str, str]) -> None:
        self.home = home
        self.states: list[str] = []
        self.news = threading.Condition()
        self.dialogs = McpDialogs()
        self.store = ServerStore(str(home))
        parts = ServerParts(str(home), environ, (), self.store, self.dialogs, self._told)
        self.server = McpServer(parse_server("test", config, "user", str(home)), parts)

    def _told(self, server: McpServer) -> None:
        with self.news:
            if self.states[-1:] != [server.state.state]:
                self.states.append(server.state.state)
            self.news.notify_all()

    def wait(self, what, seconds: float = PATIENCE) -> None:
        with self.news:
            assert self.news.wait_for(what, seconds), self.states

    def listed(self) -> list[str]:
        """The names of its tools, after a start."""
        self.server.connection(Cancel())
        self.server.wait_done(time.monotonic() + PATIENCE, Cancel())
        return [tool.name for tool in self.server.tools()]

    def call(self, name: str, args: dict | None = None, cancel: Cancel | None = None):
        """Call a tool as the loop does; its output and what it told meanwhile."""
        told: list[str] = []
        if self.server.listed is None:
            self.listed()
        info = next(tool for tool in self.server.listed.tools if tool.name == name)
        context = ToolContext("1", cancel or Cancel(), told.append)
        output = McpTool(self.server, info, lambda text: text).run(args or {}, context)
        return output, "".join(told)

    def call_or_error(self, name: str, args: dict) -> str:
        """What the model would read, whether it worked or not."""
        try:
            return self.text(name, args)
        except ToolError as error:
            return str(error)

    def text(self, name: str, args: dict | None = None) -> str:
        output, _ = self.call(name, args)
        return "\n".join(getattr(block, "text", "[image]") for block in output.content)


@contextmanager
def alone(home: Path, *, entry: dict, environ: dict[str, str] | None = None) -> Iterator[Alone]:
    server = Alone(home, entry, {"PATH": "/usr/bin:/bin", **(environ or {})})
    try:
        yield server
    finally:
        server.server.close()
