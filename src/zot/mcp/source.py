"""The MCP servers of a runtime, as a source of tools and commands.

Loads no client code unless a server is configured, and starts no server before the first prompt.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING

from zot.cancel import Cancel
from zot.core.source import (
    LOOK_AGAIN,
    CommandInfo,
    CommandResult,
    ExtensionState,
    ServerState,
    SourceHost,
)
from zot.core.tool import Tool
from zot.errors import CommandError
from zot.provider.types import Json, ToolCall
from zot.text import Frozen

if TYPE_CHECKING:
    from zot.core.shell import Confine
    from zot.core.source import CommandSource, PanelSource, PersonAnswer, ServerSource, ToolSource
    from zot.mcp.servers import McpServerSet


class McpOptions(Frozen, kw_only=True):
    """Configuration sources and dependencies of the servers; built on every start."""

    cwd: str
    home: str
    environ: Mapping[str, str]
    entries: Mapping[str, Json]
    """Entries of a program that embeds zot."""
    files: bool
    """Use the files of the user and, if it is `trusted`, of the project."""
    trusted: Callable[[], bool]
    names: Sequence[str] | None
    """The only tools to offer; None: all."""
    keys: frozenset[str]
    """Variables that hold API keys."""
    shorten: Callable[[str], str]
    hide: Callable[[], None]
    """Called before a program is started."""
    jail: Callable[[], object]
    secrets: Callable[[], Sequence[str]]
    """Texts that neither a file nor the model may see."""
    confine: Confine
    """Confines a program like the tools, in a jail while `jail` says so."""

    def any(self) -> bool:
        """Whether a server may be configured."""
        paths = (f"{self.cwd}/.mcp.json", f"{self.home}/mcp.json")
        return bool(self.entries) or (self.files and any(map(os.path.exists, paths)))


class McpServers:
    """The servers of one runtime: a ToolSource, a CommandSource and a ServerSource, which also
    accepts the answers to their questions."""

    name = "mcp"
    instant = False
    prefix = "mcp:"

    def __init__(self, options: McpOptions) -> None:
        self._options = options
        self._lock = threading.Lock()
        self._host: SourceHost | None = None
        self._set: McpServerSet | None = None
        self._jail: object = False
        self._closed = False
        self.next_look = 0.0

    # --- ToolSource --------------------------------------------------------------------------

    def start(self, host: SourceHost) -> None:
        """Read the configuration, while the client thinks; starts no server."""
        self._host = host
        # Set only here: other callers that load servers do not give the agent their tools.
        self.next_look = 0.0 if self._loaded() else time.monotonic() + LOOK_AGAIN

    def prepare(self, cancel: Cancel) -> None:
        if self._set is None:
            return  # `start` has just looked
        if self._jail != self._options.jail():
            self.reload()  # servers that run outside must not serve a jail
        if (servers := self._loaded()) is not None:
            servers.prepare(cancel)

    def tools(self) -> Sequence[Tool]:
        return () if self._set is None else self._set.tools

    def close(self) -> None:
        with self._lock:
            self._closed = True
            servers = self._set
        if servers is not None:
            servers.close()

    def instructions(self) -> str:
        """Return the text for the system prompt; see McpServerSet."""
        return "" if self._set is None else self._set.instructions()

    # --- ServerSource, approval --------------------------------------------------------------

    def servers(self) -> Sequence[ServerState]:
        servers = self._loaded()
        return () if servers is None else [server.state for server in servers.servers]

    def subject(self, call: ToolCall) -> str | None:
        """See McpServerSet."""
        return None if self._set is None else self._set.subject(call)

    # --- CommandSource -----------------------------------------------------------------------

    def commands(self, cancel: Cancel | None = None) -> Sequence[CommandInfo]:
        servers = self._loaded()
        return () if servers is None else servers.commands()

    def run_command(self, name: str, args: str, cancel: Cancel | None = None) -> CommandResult:
        if (servers := self._loaded()) is None:
            raise CommandError(f"unknown command {name!r}: no MCP server is configured")
        return servers.run_command(name, args, cancel or Cancel())

    # --- PanelSource: questions and a reload -------------------------------------------------

    def open_questions(self) -> Sequence[str]:
        return () if self._set is None else self._set.dialogs.open_questions()

    def answer(self, id: str, answer: PersonAnswer) -> bool:
        return self._set is not None and self._set.dialogs.answer(id, answer)

    def panel_key(self, extension: str, panel_id: str, key: str, text: str) -> bool:
        return False  # servers have no panels

    def panel_resize(self, extension: str, panel_id: str, width: int, height: int) -> bool:
        return False

    def panel_close(self, extension: str, panel_id: str) -> bool:
        return False

    def reload(self) -> Sequence[ExtensionState]:
        """End all servers; the configuration is read again before the next prompt."""
        with self._lock:
            servers, self._set, self.next_look = self._set, None, 0.0
        if servers is not None:
            servers.close()
        return ()

    def _loaded(self) -> McpServerSet | None:
        with self._lock:
            host = self._host
            if self._set is not None or host is None or self._closed:
                return self._set
            if self._options.any():
                from zot.mcp import servers  # the door: loaded only where servers are configured

                self._jail = self._options.jail()
                self._set = servers.McpServerSet(self._options, host)
            return self._set


if TYPE_CHECKING:
    # Check the protocols that the runtime looks up at run time, where a mismatch is silent.
    _Kinds = tuple[type[ToolSource], type[CommandSource], type[PanelSource], type[ServerSource]]
    KINDS: _Kinds = (McpServers, McpServers, McpServers, McpServers)
