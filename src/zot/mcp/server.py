"""A server: started on demand, its lists cached, its whole process tree ended on close."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from typing import TYPE_CHECKING

import msgspec

from zot.cancel import Cancel
from zot.children.logfile import MIB, LogFile
from zot.core.shell import Confine
from zot.core.source import ServerState
from zot.errors import Cancelled, McpError, ZotError
from zot.mcp.config import LONGEST, ServerConfig, expanded, fingerprint
from zot.mcp.dialogs import McpDialogs
from zot.mcp.link import McpGone, McpLogin, Patience
from zot.mcp.protocol import McpToolInfo, ServerLists
from zot.mcp.store import ServerStore, changed_tools, instructions_face
from zot.text import Frozen, mapped, without_secrets

if TYPE_CHECKING:
    from zot.mcp.connection import McpConnection

LOG_BYTES = 5 * MIB
RETRY_SECONDS = 3.0
"""Seconds for which callers get the error of a failed start, before a new attempt."""
INSTRUCTIONS = "(instructions)"
"""Pseudo tool name for changed instructions; no tool has this name."""
REFRESH_PAUSE = 1.0
"""Seconds between two refreshes of a server's lists, however often it reports changes."""


class ServerParts(Frozen):
    """The dependencies of a server."""

    home: str
    environ: Mapping[str, str]
    keys: Collection[str]
    """Variables that hold the user's API keys."""
    store: ServerStore
    dialogs: McpDialogs
    on_change: Callable[[McpServer], None] = lambda server: None
    """Called when the state of a server changed."""
    hide: Callable[[], None] = lambda: None
    """Called before a program is started."""
    show_page: Callable[[str], None] | None = None
    """Shows an address in the user's browser; None: nobody can log in here."""
    confine: Confine = lambda program, cancel, tell: nullcontext(program)
    """Confines a program like the agent's tools: in a jail, if they are in one."""
    warn: Callable[[str], None] = lambda text: None
    """Shows a warning to the user."""
    secrets: Callable[[], Sequence[str]] = tuple
    """Texts that neither a file nor the model may see."""


class McpServer:
    """A server; thread-safe. A start is independent of the callers that wait for it: it continues
    after an aborted turn, and `close` ends it."""

    def __init__(self, config: ServerConfig, parts: ServerParts) -> None:
        self.config = config
        self.name = config.name
        self.fingerprint = fingerprint(config)
        self.error = ""
        self.started_at = 0.0
        self._parts = parts
        self._news = threading.Condition()
        self._connection: McpConnection | None = None
        self._starting = False
        self._failed_at = 0.0
        self._needs_login = False
        self._stale = False
        self._closed = Cancel()
        self._threads: list[threading.Thread] = []
        self._consent = parts.store.consent(self.fingerprint)
        self.listed = parts.store.listed(self.fingerprint)
        """The last known lists."""

    # --- state -------------------------------------------------------------------------------

    @property
    def log_path(self) -> str:
        return server_log(self._parts.home, self.name)

    @property
    def may_start(self) -> bool:
        """Whether it is enabled, and approved by the user if it belongs to a project."""
        config = self.config
        return config.enabled and (config.origin != "project" or self._consent.start)

    @property
    def is_used(self) -> bool:
        """Whether there is something to close."""
        return self._starting or self._connection is not None or bool(self._threads)

    @property
    def is_trusted(self) -> bool:
        """Whether its read-only annotations are trusted."""
        return self.config.trust or self._consent.hints

    @property
    def state(self) -> ServerState:
        config = self.config
        if not config.enabled:
            word = "disabled"
        elif not self.may_start:
            word = "untrusted"
        elif self._connection is not None:
            word = "ready"
        elif self._starting:
            word = "starting"
        else:
            word = ("login" if self._needs_login else "failed") if self.error else "idle"
        changed = tuple(tool.name for tool in self.changed())
        if self.instructions_changed:
            changed = (*changed, INSTRUCTIONS)
        return ServerState(
            self.name,
            word,  # type: ignore[arg-type]  # the words of the branches above
            config.origin,
            len(self.tools()),
            changed,
            self.error,
        )

    def tools(self) -> list[McpToolInfo]:
        """Return the tools that may be offered: enabled in the configuration, and accepted."""
        if self.listed is None or not self.may_start:
            return []
        off = {tool.name for tool in self.changed()}
        return [tool for tool in self._wanted(self.listed) if tool.name not in off]

    def changed(self) -> list[McpToolInfo]:
        """Return the tools that differ from those the user accepted."""
        if self.listed is None or not self._consent.seen:
            return []
        return changed_tools(self._consent, self._wanted(self.listed))

    @property
    def instructions(self) -> str:
        """The server's instructions for the model: only if the server is trusted and the text was
        accepted."""
        listed = self.listed
        may = listed is not None and self.may_start and self.is_trusted
        return listed.instructions if listed and may and not self.instructions_changed else ""

    @property
    def instructions_changed(self) -> bool:
        """Whether the instructions differ from those the user accepted; always False for a server
        that is not trusted, because they are not used."""
        if self.listed is None or not self._consent.seen or not self.is_trusted:
            return False
        return instructions_face(self.listed) not in ("", self._consent.instructions)

    def _wanted(self, listed: ServerLists) -> list[McpToolInfo]:
        names = self.config.tools
        return [tool for tool in listed.tools if names is None or tool.name in names]

    # --- consent of the user -----------------------------------------------------------------

    def allow(self, *, hints: bool | None = None) -> None:
        """Record that the user lets it start. Raises ConfigError when that cannot be saved."""
        self._parts.store.allow(self.fingerprint, self.name, hints=hints)
        self._consent = self._parts.store.consent(self.fingerprint)
        self._parts.on_change(self)

    def accept(self) -> None:
        """Record that the user accepts its tools as they are now."""
        listed = self.listed
        if listed is not None:
            self._parts.store.accept(self.fingerprint, self.name, listed)
            self._consent = self._parts.store.consent(self.fingerprint)
            self._parts.on_change(self)

    # --- start and end -----------------------------------------------------------------------

    def start(self) -> None:
        """Start in the background, unless it runs or may not start; returns at once."""
        with self._news:
            running = self._connection is not None or self._starting
            if running or not self.may_start or self._closed.is_set():
                return
            self._starting = True
            self.started_at = time.monotonic()
            self.error = ""
        self._parts.on_change(self)
        self._spawn("start", self._start)

    def wait_listed(self, deadline: float, cancel: Cancel) -> None:
        """Wait until its lists are known or its start has failed. Raises Cancelled."""
        self._wait(lambda: self.listed is None and self._starting, deadline, cancel)

    def wait_done(self, deadline: float, cancel: Cancel) -> None:
        """Wait until its start has succeeded or failed. Raises Cancelled."""
        self._wait(lambda: self._starting, deadline, cancel)

    def connection(self, cancel: Cancel) -> McpConnection:
        """Return the open connection, starting the server if needed. Raises McpError: it is
        unavailable; Cancelled: the turn was aborted."""
        if not self.may_start:
            raise McpError(f"the MCP server {self.name!r} is {self.state.state}")
        with self._news:
            dead = self._connection
        if dead is not None and not dead.link.is_alive():
            self._drop(dead)
        recently = time.monotonic() - self._failed_at < RETRY_SECONDS
        if not (self.error and recently):
            self.start()
        deadline = time.monotonic() + self.config.startup_timeout + 5
        self._wait(lambda: self._connection is None and self._starting, deadline, cancel)
        connection = self._connection
        if connection is None:
            why = self.error or f"it did not start within {self.config.startup_timeout:g} s"
            raise McpError(f"the MCP server {self.name!r} cannot be used: {why}")
        return connection

    def close(self) -> None:
        self._closed.set()
        with self._news:
            connection, self._connection = self._connection, None
            self._news.notify_all()
        if connection is not None:
            connection.close()
        for thread in self._threads:
            thread.join(10)

    def _wait(self, pends: Callable[[], bool], deadline: float, cancel: Cancel) -> None:
        cancel.wait_for(self._news, lambda: self._closed.is_set() or not pends(), deadline)
        cancel.check()

    def _spawn(self, job: str, work: Callable[[], None]) -> None:
        thread = threading.Thread(target=work, name=f"mcp-{self.name}-{job}", daemon=True)
        self._threads = [*(old for old in self._threads if old.is_alive()), thread]
        thread.start()

    def _start(self) -> None:
        connection: McpConnection | None = None
        error = ""
        self._needs_login = False
        try:
            connection = self._connect()
            with self._news:
                self._connection = connection
                self._news.notify_all()
            self._parts.on_change(self)
            self._list(connection)
        except ZotError as failure:
            error = str(failure)
            self._needs_login = isinstance(failure, McpLogin)
        except Cancelled:
            error = "zot stopped it"
        if error or self._closed.is_set():
            self._drop(connection)
        with self._news:
            self._starting = False
            self.error = error
            self._failed_at = time.monotonic() if error else 0.0
            self._news.notify_all()
        self._parts.on_change(self)

    def _connect(self) -> McpConnection:
        """Raises McpError, Cancelled."""
        # The door of the client: with cached lists a prompt needs nothing of it.
        from zot.mcp import connection

        config = expanded(self.config, self._parts.environ, self._parts.keys)
        era = self.listed.era if self.listed is not None else None
        return connection.connect(
            config, self._parts, self._log(), era, self._lists_changed, self._closed
        )

    def _log(self) -> LogFile:
        return LogFile(self.log_path, LOG_BYTES, self._parts.secrets)

    # --- its lists ---------------------------------------------------------------------------

    def _list(self, connection: McpConnection) -> None:
        """Fetch its lists and cache them. Raises McpError, Cancelled."""
        listed = connection.list_all(Patience(self.config.startup_timeout, self._closed))
        listed = _without(listed, self._parts.secrets())
        store = self._parts.store
        for problem in listed.dropped:
            self._log().note(f"a tool is left out: {problem}")
        if not self._consent.seen:
            # The user added it, or approved its start: the first lists are the accepted ones.
            store.accept(self.fingerprint, self.name, listed)
            self._consent = store.consent(self.fingerprint)
        if listed != self.listed:
            store.keep_listed(self.fingerprint, listed)
        with self._news:
            self.listed = listed
            self._news.notify_all()

    def _lists_changed(self) -> None:
        """Fetch the lists in another thread, because the reading thread calls this."""
        with self._news:
            if self._stale or self._closed.is_set():
                return
            self._stale = True
        self._spawn("lists", self._refresh)

    def _refresh(self) -> None:
        try:
            self._closed.sleep(REFRESH_PAUSE)
            with self._news:
                self._stale = False
                connection = self._connection
            if connection is not None:
                self._list(connection)
                self._parts.on_change(self)
        except McpGone:
            pass  # the next call reports it
        except ZotError as error:
            self._log().note(f"its lists cannot be fetched: {error}")
        except Cancelled:
            pass

    # --- calls -------------------------------------------------------------------------------

    @contextmanager
    def calling(self, cancel: Cancel, tool: str = "") -> Iterator[tuple[McpConnection, Patience]]:
        """Yield the open connection, for one call; `tool` is the tool it calls. Nothing is retried:
        a server that ended halfway may have carried out the call.

        Raises:
            McpError: it failed, or is unavailable.
            Cancelled: the turn was aborted meanwhile.
        """
        connection = self.connection(cancel)
        if tool:
            self._check_consent(tool, cancel)
        # Progress extends the timeout, up to an hour.
        seconds = self.config.timeout
        try:
            yield connection, Patience(seconds, cancel, max(LONGEST, seconds))
        except McpGone as error:
            self._drop(connection)
            self._parts.on_change(self)
            raise McpError(f"the MCP server {self.name!r} has ended: {error}") from error
        except McpError as error:
            raise McpError(f"the MCP server {self.name!r}: {error}") from error

    def _check_consent(self, tool: str, cancel: Cancel) -> None:
        """Check the tool against the fresh lists: those of the started program may differ from the
        cache."""
        self.wait_done(time.monotonic() + self.config.startup_timeout, cancel)
        if any(changed.name == tool for changed in self.changed()):
            raise McpError(
                f"the MCP server {self.name!r} changed its tool {tool!r}, which is off until the "
                f"user agrees: zot mcp test {self.name} shows it, zot mcp trust {self.name} agrees"
            )

    def _drop(self, connection: McpConnection | None) -> None:
        """Close a connection that is no longer usable."""
        if connection is None:
            return
        with self._news:
            if self._connection is connection:
                self._connection = None
        connection.close()


def server_log(home: str, name: str) -> str:
    return os.path.join(home, "logs", f"mcp-{name}.log")


def _without(listed: ServerLists, secrets: Sequence[str]) -> ServerLists:
    """Redact secrets that the server repeats: the lists are stored on disk and sent to the
    model."""
    raw = msgspec.to_builtins(listed)
    clean = mapped(raw, lambda leaf: without_secrets(leaf, secrets) if type(leaf) is str else leaf)
    return listed if clean == raw else msgspec.convert(clean, ServerLists)
