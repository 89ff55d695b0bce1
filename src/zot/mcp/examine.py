"""The work of `zot mcp`: find servers, start one for inspection, edit the files. No output."""

from __future__ import annotations

import os
import time
from collections.abc import Collection, Mapping

from msgspec.structs import replace

from zot.cancel import Cancel
from zot.errors import ConfigError, McpError
from zot.files import locked, write_atomic
from zot.home import Surroundings
from zot.mcp import config
from zot.mcp.config import expanded
from zot.mcp.dialogs import McpDialogs
from zot.mcp.oauth import LoginFile, ShowPage
from zot.mcp.protocol import McpToolInfo, ServerLists
from zot.mcp.server import McpServer, ServerParts
from zot.mcp.store import ServerStore
from zot.provider.types import Json
from zot.text import Frozen

LOGIN_SECONDS = 600.0


class Examined(Frozen):
    """The result of starting a server for inspection."""

    listed: ServerLists
    version: str
    seconds: float
    changed: tuple[McpToolInfo, ...]
    instructions_changed: bool = False


class ConfiguredServers:
    """The servers of the user and of a project, for `zot mcp`."""

    def __init__(
        self, around: Surroundings, cwd: str, keys: Collection[str], *, trusted: bool
    ) -> None:
        """`trusted`: include the project's servers; `keys`: variables that hold API keys."""
        self._around = around
        self._cwd = cwd
        self.store = ServerStore(around.home)
        configured = config.read_all(cwd, around.home, {}, files=True, trusted=trusted)
        self.problems = configured.problems
        self.hint = configured.hint
        self._parts = ServerParts(around.home, around.environ, keys, self.store, McpDialogs())
        self.servers = [McpServer(server, self._parts) for server in configured.servers]

    def find(self, name: str) -> McpServer:
        """Return the server of that name. Raises ConfigError when there is none."""
        for server in self.servers:
            if server.name == name:
                return server
        known = ", ".join(server.name for server in self.servers) or "none"
        raise ConfigError(f"there is no MCP server {name!r}; there is: {known}")

    def examine(self, name: str) -> Examined:
        """Start a server, and list what it offers. Raises ConfigError, McpError."""
        return self._examine(self.find(name))

    def log_in(self, name: str, show: ShowPage) -> Examined:
        """Let the user log in to a server again, then examine it. Raises as above."""
        self.log_out(name)
        config = replace(self.find(name).config, startup_timeout=LOGIN_SECONDS)
        return self._examine(McpServer(config, replace(self._parts, show_page=show)))

    def log_out(self, name: str) -> bool:
        """Delete the login for a server; False if there was none. Raises ConfigError."""
        config = self.find(name).config
        if not config.url:
            raise ConfigError(f"the MCP server {name!r} is a program: it has no login of zot's")
        filled = expanded(config, self._around.environ, self._parts.keys)
        return LoginFile(self._around.home).remove(filled.url)

    def _examine(self, server: McpServer) -> Examined:
        name = server.name
        if not server.may_start:
            hint = f"; run `zot mcp trust {name}`" if server.config.enabled else ""
            raise ConfigError(f"the MCP server {name!r} is {server.state.state}{hint}")
        began = time.monotonic()
        try:
            connection = server.connection(Cancel())
            server.wait_done(began + server.config.startup_timeout, Cancel())
            if server.listed is None or server.error:
                raise McpError(f"the MCP server {name!r} cannot be used: {server.error}")
            seconds = time.monotonic() - began
            changed = tuple(server.changed())
            return Examined(
                server.listed, connection.version, seconds, changed, server.instructions_changed
            )
        finally:
            server.close()

    def trust(self, name: str, *, hints: bool | None) -> McpServer:
        """Let a server start, and accept its tools as last listed."""
        server = self.find(name)
        server.allow(hints=hints)
        server.accept()
        return server

    # --- the files ---------------------------------------------------------------------------

    def path(self, *, project: bool) -> str:
        return config.project_path(self._cwd) if project else config.user_path(self._around.home)

    def add(self, name: str, entry: Mapping[str, Json], *, project: bool) -> McpServer:
        """Add an entry. Raises ConfigError when it is invalid, or the name is taken."""
        server = config.parse_server(name, entry, "project" if project else "user", self._cwd)
        path = self.path(project=project)
        if any(other.name == name for other in self.servers):
            raise ConfigError(f"there is an MCP server {name!r} already: zot mcp remove {name}")
        self._write(path, name, entry, project=project)
        added = McpServer(server, self._parts)
        if project:
            added.allow()  # adding it is consent
        return added

    def remove(self, name: str, *, project: bool) -> None:
        """Remove an entry. Raises ConfigError when there is none."""
        self._write(self.path(project=project), name, None, project=project)
        for server in self.servers:
            if server.name == name:
                self.store.forget(server.fingerprint)

    def _write(
        self, path: str, name: str, entry: Mapping[str, Json] | None, *, project: bool
    ) -> None:
        try:
            if project:  # a file of the project: leave no lock file beside it
                mode = os.stat(path).st_mode & 0o777 if os.path.exists(path) else 0o644
                write_atomic(path, config.changed_file(path, name, entry), mode)
                return
            with locked(path):
                write_atomic(path, config.changed_file(path, name, entry))
        except OSError as error:
            raise ConfigError(f"cannot write {path!r}: {error.strerror or error}") from error
