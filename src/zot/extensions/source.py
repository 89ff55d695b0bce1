"""What a runtime sees of its extensions: tools, a guard, a listener, commands.

Loads nothing of the extension host unless there are extensions: most users have none.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING

from zot import __version__
from zot.cancel import Cancel
from zot.core.events import Event
from zot.core.hook import (
    ALLOW,
    Allow,
    Block,
    Hook,
    HookContext,
    Permission,
    ReplaceArgs,
    ReplaceText,
    Subagent,
)
from zot.core.source import CommandInfo, CommandResult, ExtensionState, SourceHost
from zot.core.tool import Tool, ToolContext, ToolOutput
from zot.errors import CommandError, ConfigError
from zot.extensions.limits import ExtensionLimits
from zot.home import Surroundings, may_have_extensions
from zot.provider.types import Json, Message, ToolCall

if TYPE_CHECKING:
    from zot.extensions.extension import HostedExtension
    from zot.extensions.host import ExtensionHost


BUILTIN_COMMANDS = frozenset(
    (
        *("reload-ext", "help", "clear", "compact", "model", "reasoning", "sessions", "session"),
        *("skills", "settings", "login", "logout", "new", "exit", "quit"),
    )
)
"""Words that belong to zot wherever a person types commands; no extension can take them."""


class ExtensionOptions:
    """Where extensions come from, in plain strings: this is made on every start."""

    def __init__(
        self,
        cwd: str,
        around: Surroundings,
        *,
        explicit: Sequence[str] = (),
        search: bool = True,
        trusted: Callable[[], bool] = lambda: False,
        names: Sequence[str] | None = None,
        secrets: frozenset[str] = frozenset(),
        reserved: frozenset[str] = frozenset(),
        warn: Callable[[str], None] | None = None,
        hide: Callable[[], None] = lambda: None,
    ) -> None:
        """`names`: the only tools they may bring; `reserved`: names of built-in tools;
        `trusted`: whether those of the project may run; `hide` is called before the first program
        is started."""
        self.cwd = cwd
        self.around = around
        self.home = around.home
        self.explicit = tuple(explicit)
        self.search = search
        self.trusted = trusted
        self.names = names
        self.secrets = secrets
        self.reserved = reserved
        self.warn = warn
        self.hide = hide

    def check(self) -> None:
        """What was asked for by name may be a guard: without it nothing must run.

        Raises:
            ConfigError: a folder of `explicit` holds no extension.
        """
        for folder in self.explicit:
            if not os.access(f"{folder}/extension.json", os.F_OK):
                raise ConfigError(f"--ext {folder!r}: there is no extension.json in it")

    def any(self) -> bool:
        """Whether there can be an extension to start."""
        return may_have_extensions(self.explicit, self.cwd, self.home, search=self.search)


class Extensions(Hook):
    """The extensions of one runtime: a source of tools, commands and panels, and a Hook that asks
    them. It does nothing before it is started."""

    name = "extensions"
    instant = False
    prefix = ""

    def __init__(self, options: ExtensionOptions) -> None:
        self._options = options
        self._lock = threading.RLock()
        self._runtime: SourceHost | None = None
        self._host: ExtensionHost | None = None
        self._hook: Hook | None = None
        self._tools: tuple[Tool, ...] = ()
        self._session = ""
        self._stale = False
        self._closed = False

    # --- life --------------------------------------------------------------------------------

    def start(self, host: SourceHost) -> None:
        """Start them, if there are any; returns at once."""
        with self._lock:
            self._runtime = host
            if self._host is None and not self._closed and self._options.any():
                self._options.hide()
                self._host = self._make_host(host)
                self._announce_session(self._host, host)
                self._host.start()

    def prepare(self, cancel: Cancel) -> None:
        """Before a run: wait until they are ready, and take the tools they bring.

        Raises:
            Cancelled: the run was aborted meanwhile.
        """
        host, runtime = self._host, self._runtime
        if host is None or runtime is None:
            return
        host.wait_ready(cancel)
        host.model_changed(runtime.model.provider, runtime.model.id)
        self._announce_session(host, runtime)
        self._take_tools(host)

    def _take_tools(self, host: ExtensionHost) -> None:
        names = self._options.names
        tools = tuple(tool for tool in host.tools() if names is None or tool.name in names)
        if self._stale or list(map(_face, tools)) != list(map(_face, self._tools)):
            self._tools, self._stale = tools, False

    def _tools_changed(self) -> None:
        """A tool was activated, in the midst of a run."""
        if self._host is not None and self._runtime is not None:
            self._take_tools(self._host)
            self._runtime.tools_changed()

    def tools(self) -> Sequence[Tool]:
        return self._tools

    def reload(self) -> list[ExtensionState]:
        """Stop all and start those that are there now; between runs only."""
        host = self._host
        if host is None:
            return []
        self._stale = True
        host.reload()
        return [_state(extension) for extension in host.extensions()]

    def close(self) -> None:
        with self._lock:
            self._closed = True
            host = self._host
        if host is not None:
            host.close()

    # --- commands and panels -----------------------------------------------------------------

    def commands(self, cancel: Cancel | None = None) -> list[CommandInfo]:
        if self._host is None:
            return []
        self._host.wait_ready(cancel)
        return self._host.commands()

    def run_command(self, name: str, args: str, cancel: Cancel | None = None) -> CommandResult:
        """Run a command and wait for its answer.

        Raises:
            CommandError: there is no such command.
        """
        if self._host is None:
            raise CommandError(f"unknown extension command {name!r}", code="not_found")
        return self._host.run_command(name, args, cancel)

    def open_questions(self) -> Sequence[str]:
        return () if self._host is None else self._host.dialogs.open_questions()

    def answer(self, id: str, *, value: str | None, confirmed: bool, cancelled: bool) -> bool:
        """Answer an ExtensionAsk; False if it is not open."""
        return self._host is not None and self._host.dialogs.answer(
            id, value=value, confirmed=confirmed, cancelled=cancelled
        )

    def panel_key(self, extension: str, panel_id: str, key: str, text: str) -> bool:
        return self._host is not None and self._host.panel_key(extension, panel_id, key, text)

    def panel_resize(self, extension: str, panel_id: str, width: int, height: int) -> bool:
        host = self._host
        return host is not None and host.panel_resize(extension, panel_id, width, height)

    def panel_close(self, extension: str, panel_id: str) -> bool:
        return self._host is not None and self._host.panel_close(extension, panel_id)

    # --- listener and guard ------------------------------------------------------------------

    def listen(self, event: Event, run: object = None) -> None:
        if self._host is not None:
            self._host.listen(event, self._session)

    def before_start(self, system: str, context: HookContext) -> Allow | Block | ReplaceText:
        return ALLOW if self._hook is None else self._hook.before_start(system, context)

    def before_turn(self, step: int, context: HookContext) -> Allow | Block:
        return ALLOW if self._hook is None else self._hook.before_turn(step, context)

    def before_tool(self, call: ToolCall, context: HookContext) -> Allow | Block | ReplaceArgs:
        return ALLOW if self._hook is None else self._hook.before_tool(call, context)

    def before_reply(self, message: Message, context: HookContext) -> Allow | Block | ReplaceText:
        return ALLOW if self._hook is None else self._hook.before_reply(message, context)

    def tool_decided(self, call: ToolCall, permission: Permission) -> None:
        if self._host is not None:
            self._host.tool_decided(call, permission)

    def subagent_changed(self, subagent: Subagent) -> None:
        if self._host is not None:
            self._host.subagent_changed(subagent)

    # --- inside ------------------------------------------------------------------------------

    def _make_host(self, runtime: SourceHost) -> ExtensionHost:
        # Deferred: subprocess and the rest are loaded only where there are extensions.
        from pathlib import Path

        from zot.extensions.host import ExtensionHost, HostSettings

        options = self._options
        settings = HostSettings(
            cwd=Path(options.cwd),
            home=Path(options.home),
            zot_version=__version__,
            environ=options.around.environ,
            explicit=tuple(Path(options.around.absolute(word)) for word in options.explicit),
            search=options.search,
            trusted=options.trusted(),
            secrets=options.secrets,
            reserved_tools=options.reserved,
            reserved_commands=BUILTIN_COMMANDS,
            limits=ExtensionLimits(grace=_grace(options.around.environ)),
        )
        host = ExtensionHost(
            settings,
            provider=runtime.model.provider,
            model=runtime.model.id,
            warn=self._options.warn,
            run_tool=self._run_tool,
            submit=runtime.submit,
            on_tools=self._tools_changed,
            can_answer=lambda: runtime.can_answer("dialog"),
            questions_before=runtime.questions_before,
        )
        host.attach(runtime.show)
        self._hook = host.hook()
        return host

    def _announce_session(self, host: ExtensionHost, runtime: SourceHost) -> None:
        """Tell which conversation it is, when it is another one than before."""
        if self._session != runtime.session_id:
            if self._session:
                host.session_ended("session_switch")
            self._session = runtime.session_id
            host.session_started(self._session)

    def _run_tool(self, name: str, args: dict[str, Json], context: ToolContext) -> ToolOutput:
        """A tool of another source for an extension, with the guards of every other call."""
        runtime = self._runtime
        assert runtime is not None  # whoever asks was started with it
        call = ToolCall(context.call_id, name, args)
        return runtime.call_tool(self, call, context.cancel, runtime.show)


def _state(extension: HostedExtension) -> ExtensionState:
    registered = extension.registered
    return ExtensionState(
        extension.name,
        extension.installed.manifest.version,
        extension.state,
        tuple(registered.commands),
        tuple(registered.tools),
        extension.reason,
    )


def _face(tool: Tool) -> tuple[str, str, dict[str, Json]]:
    """What the model sees of a tool."""
    return tool.name, tool.description, tool.schema


def _grace(environ: Mapping[str, str]) -> float:
    """Seconds that extensions may take to be ready; a slow machine can give them more."""
    try:
        return max(0.1, float(environ.get("ZOT_EXT_GRACE", "") or 3.0))
    except ValueError:
        return 3.0
