"""What a runtime sees of its extensions: tools, a guard, a listener, commands.

Loads nothing of the extension host unless there are extensions: most users have none.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from zot.cancel import Cancel
from zot.core.events import Event
from zot.core.hook import ALLOW, Allow, Block, Hook, HookContext, ReplaceArgs, ReplaceText
from zot.core.tool import Tool, ToolContext, ToolOutput
from zot.core.toolbox import Toolbox
from zot.errors import CommandError, ConfigError
from zot.provider.types import Json, Message, ToolCall

if TYPE_CHECKING:
    from zot.core.agent import Agent
    from zot.extensions.extension import Extension
    from zot.extensions.host import Command, CommandOutcome, ExtensionHost, HostSettings


RELOAD = "reload-ext"
BUILTIN_COMMANDS = frozenset(
    {RELOAD, "help", "clear", "compact", "model", "reasoning", "sessions", "session", "skills"}
    | {"settings", "login", "logout", "new", "exit", "quit"}
)
"""Words that belong to zot wherever a person types commands; no extension can take them."""


class ExtensionOptions:
    """Where extensions come from, in plain strings: this is made on every start."""

    def __init__(
        self,
        cwd: str,
        home: str,
        *,
        explicit: Sequence[str] = (),
        search: bool = True,
        trusted: bool = False,
        names: Sequence[str] | None = None,
        secrets: frozenset[str] = frozenset(),
        reserved: frozenset[str] = frozenset(),
        warn: Callable[[str], None] | None = None,
        hide: Callable[[], None] = lambda: None,
    ) -> None:
        """`names`: the only tools they may bring; `reserved`: names of built-in tools;
        `trusted`: run those of the project also where the user did not say so before; `hide` is
        called before the first program is started."""
        self.cwd = cwd
        self.home = home
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
        folders = (f"{self.cwd}/.zot/extensions", f"{self.home}/extensions")
        return bool(self.explicit) or (self.search and any(map(os.path.isdir, folders)))


class Extensions(Hook):
    """The extensions of one runtime; a Hook that asks them."""

    def __init__(self, options: ExtensionOptions, builtin: Sequence[Tool]) -> None:
        self._options = options
        self._builtin = tuple(builtin)
        self._lock = threading.RLock()
        self._host: ExtensionHost | None = None
        self._hook: Hook | None = None
        self._agent: Agent | None = None
        self._tell: Callable[[Event], None] = lambda event: None
        self._tools: tuple[Tool, ...] = ()
        self.can_answer: Callable[[], bool] = lambda: False
        """Whether somebody is there who sees the questions of extensions."""
        self._session = ""
        self._stale = False
        self._closed = False

    # --- life --------------------------------------------------------------------------------

    def bind(self, agent: Agent, tell: Callable[[Event], None]) -> None:
        """Whom they serve. Called once, before anything else."""
        self._agent = agent
        self._tell = tell

    def start(self) -> None:
        """Start them, if there are any; returns at once. Their events go to the listeners."""
        with self._lock:
            if self._host is None and not self._closed and self._options.any():
                self._options.hide()
                self._host = self._make_host()
                self._announce_session()
                self._host.start()

    def prepare(self, cancel: Cancel) -> None:
        """Before a run: wait until they are ready, and give the agent the tools they brought.

        Raises:
            Cancelled: the run was aborted meanwhile.
        """
        self.start()
        host, agent = self._host, self._agent
        if host is None or agent is None:
            return
        host.wait_ready(cancel)
        host.model_changed(agent.model.provider, agent.model.id)
        self._announce_session()
        names = self._options.names
        tools = tuple(each for each in host.tools() if names is None or each.name in names)
        if self._stale or list(map(_face, tools)) != list(map(_face, self._tools)):
            self._tools, self._stale = tools, False
            agent.set_tools((*self._builtin, *tools))

    def reload(self) -> list[Extension]:
        """Stop all and start those that are there now; between runs only."""
        running = self._host
        host = self.host
        if host is None:
            return []
        self._stale = True
        if running is None:
            host.wait_ready()
        else:
            host.reload()
        return host.extensions()

    def close(self) -> None:
        with self._lock:
            self._closed = True
            host = self._host
        if host is not None:
            host.close()

    # --- commands and panels -----------------------------------------------------------------

    def commands(self, cancel: Cancel | None = None) -> list[Command]:
        host = self.host
        if host is None:
            return []
        host.wait_ready(cancel)
        return host.commands()

    def run_command(self, name: str, args: str, cancel: Cancel | None = None) -> CommandOutcome:
        """Run a command and wait for its answer.

        Raises:
            CommandError: there is no such command.
        """
        host = self.host
        if host is None:
            raise CommandError(f"unknown extension command {name!r}", code="not_found")
        return host.run_command(name, args, cancel)

    def answer(
        self,
        id: str,
        *,
        value: str | None = None,
        confirmed: bool = False,
        cancelled: bool = False,
    ) -> bool:
        """Answer an ExtensionAsk; False if it is not open."""
        host = self._host
        return host is not None and host.dialogs.answer(
            id, value=value, confirmed=confirmed, cancelled=cancelled
        )

    @property
    def host(self) -> ExtensionHost | None:
        """The host, started; None when there are no extensions."""
        self.start()
        return self._host

    # --- listener and guard ------------------------------------------------------------------

    def listen(self, event: Event) -> None:
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

    # --- inside ------------------------------------------------------------------------------

    def _make_host(self) -> ExtensionHost:
        # Deferred: subprocess and the rest are loaded only where there are extensions.
        from zot.extensions.host import ExtensionHost

        assert self._agent is not None
        model = self._agent.model
        host = ExtensionHost(
            self._settings(),
            provider=model.provider,
            model=model.id,
            warn=self._options.warn,
            run_tool=self._run_tool,
        )
        host.dialogs.can_answer = lambda: self.can_answer()
        host.attach(self._tell)
        self._hook = host.hook()
        return host

    def _settings(self) -> HostSettings:
        from pathlib import Path

        from zot import __version__
        from zot.extensions.host import HostSettings
        from zot.extensions.limits import Limits
        from zot.settings.trust import is_trusted

        options = self._options
        return HostSettings(
            cwd=Path(options.cwd),
            home=Path(options.home),
            zot_version=__version__,
            explicit=tuple(Path(each).absolute() for each in options.explicit),
            search=options.search,
            trusted=options.trusted or is_trusted(options.cwd),
            secrets=options.secrets,
            reserved_tools=options.reserved,
            reserved_commands=BUILTIN_COMMANDS,
            limits=Limits(grace=_grace()),
        )

    def _announce_session(self) -> None:
        """Tell which conversation it is, when it is another one than before."""
        assert self._agent is not None
        if self._host is not None and self._session != self._agent.session.id:
            if self._session:
                self._host.session_ended("session_switch")
            self._session = self._agent.session.id
            self._host.session_started(self._session)

    def _run_tool(self, name: str, args: dict[str, Json], context: ToolContext) -> ToolOutput:
        """A built-in tool for an extension, with the guards of every other call."""
        assert self._agent is not None
        toolbox = Toolbox(self._builtin, self._agent.hooks)
        return toolbox.call(ToolCall(context.call_id, name, args), context.cancel, self._tell)


def _face(tool: Tool) -> tuple[str, str, dict[str, Json]]:
    """What the model sees of a tool."""
    return tool.name, tool.description, tool.schema


def _grace() -> float:
    """Seconds that extensions may take to be ready; a slow machine can give them more."""
    try:
        return max(0.1, float(os.environ.get("ZOT_EXT_GRACE", "") or 3.0))
    except ValueError:
        return 3.0
