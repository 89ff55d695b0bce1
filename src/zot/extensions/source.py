"""The extensions of a runtime: tools, a guard, a listener, commands.

Loads no code of the extension host unless there are extensions: most users have none.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Hashable, Sequence
from typing import TYPE_CHECKING

from zot.cancel import Cancel
from zot.core import hook
from zot.core.events import Event
from zot.core.source import (
    LOOK_AGAIN,
    CommandInfo,
    CommandResult,
    ExtensionState,
    PersonAnswer,
    SourceHost,
)
from zot.core.tool import Tool, ToolContext, ToolOutput
from zot.errors import ConfigError, NotFoundError
from zot.home import Surroundings, may_have_extensions
from zot.provider.types import Json, Message, ToolCall
from zot.text import Frozen

if TYPE_CHECKING:
    from zot.extensions.extension import HostedExtension
    from zot.extensions.guest import Guest
    from zot.extensions.host import ExtensionHost


class ExtensionOptions(Frozen, kw_only=True):
    """Sources and dependencies of extensions, in plain strings: built on every start."""

    cwd: str
    around: Surroundings
    explicit: Sequence[str]
    """Folders given by name."""
    search: bool
    trusted: Callable[[], bool]
    """Whether the project's extensions may run."""
    names: Sequence[str] | None
    """The only tools to accept; None: all."""
    secrets: frozenset[str]
    reserved: frozenset[str]
    """Names of built-in tools."""
    warn: Callable[[str], None] | None
    hide: Callable[[], None]
    """Called before the first program is started."""

    @property
    def home(self) -> str:
        return self.around.home

    def check(self) -> None:
        """Check the named folders: one may be a guard, without which nothing must run. Raises
        ConfigError: a folder of `explicit` holds no extension."""
        for folder in self.explicit:
            if not os.access(f"{folder}/extension.json", os.F_OK):
                raise ConfigError(f"--ext {folder!r}: there is no extension.json in it")

    def any(self) -> bool:
        """Whether there may be an extension to start."""
        return may_have_extensions(self.explicit, self.cwd, self.home, search=self.search)


class SharedHosts:
    """Extension hosts shared by the runtimes of one process: one for each directory, trust and
    choice of extensions."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._hosts: dict[Hashable, ExtensionHost] = {}

    def join(self, key: Hashable, guest: Guest, make: Callable[[], ExtensionHost]) -> ExtensionHost:
        """Return the host of this key; make and start it for the first guest."""
        with self._lock:
            host = self._hosts.get(key)
            if host is None:
                host = self._hosts[key] = make()
                host.join(guest)
                host.start()
            else:
                host.join(guest)
            return host

    def leave(self, key: Hashable, guest: Guest) -> None:
        """Leave the host, and close it after its last guest."""
        with self._lock:
            host = self._hosts[key]
            last = host.leave(guest)
            if last:
                del self._hosts[key]
        if last:
            host.close()


class ServedBy(Frozen):
    """The host of a runtime's extensions, and the runtime's guest there."""

    host: ExtensionHost
    guest: Guest


class Extensions(hook.Hook):
    """The extensions of one runtime: a source of tools, commands and panels, and a Hook that asks
    them. Inactive until it is started."""

    name = "extensions"
    instant = False
    prefix = ""

    def __init__(self, options: ExtensionOptions, hosts: SharedHosts) -> None:
        self._options = options
        self._hosts = hosts
        self._key: Hashable = None
        self._served: ServedBy | None = None
        """None: nothing was started."""
        self._lock = threading.RLock()
        self._runtime: SourceHost | None = None
        self._hook: hook.Hook | None = None
        self._tools: tuple[Tool, ...] = ()
        self._session = ""
        self._generation = 0
        """Generation of the host when the tools were taken: a reload makes new ones."""
        self._closed = False
        self.idle = True
        self.next_look = 0.0

    # --- start and end -----------------------------------------------------------------------

    def start(self, host: SourceHost) -> None:
        """Start the extensions, if there are any; returns at once."""
        with self._lock:
            self._runtime = host
            if self._served is not None or self._closed:
                return
            if not self._options.any():
                self.next_look = time.monotonic() + LOOK_AGAIN
                return
            self._options.hide()
            self._served = self._join(host)
            self._announce_session(self._served, host)
            host.add_listener(self.listen, first=True)
            self.next_look = 0.0  # tools may change before every run

    def prepare(self, cancel: Cancel) -> None:
        """Before a run: wait until the extensions are ready, and take their tools. Raises
        Cancelled: the run was aborted meanwhile."""
        served, runtime = self._served, self._runtime
        if served is None or runtime is None:
            return
        served.host.wait_ready(cancel)
        served.host.model_changed(runtime.model.provider, runtime.model.id)
        self._announce_session(served, runtime)
        self._take_tools(served)

    def _take_tools(self, served: ServedBy) -> None:
        names, generation = self._options.names, served.host.generation
        every = served.host.tools(served.guest)
        tools = tuple(tool for tool in every if names is None or tool.name in names)
        reloaded = generation != self._generation
        if reloaded or list(map(_face, tools)) != list(map(_face, self._tools)):
            self._tools, self._generation = tools, generation

    def _tools_changed(self) -> None:
        """Update the tools during a run, after one was activated."""
        if self._served is not None and self._runtime is not None:
            self._take_tools(self._served)
            self._runtime.tools_changed()

    def tools(self) -> Sequence[Tool]:
        return self._tools

    def reload(self) -> list[ExtensionState]:
        """Stop all extensions and start those on disk; between runs only. Affects all runtimes that
        share them: their open questions fail, and they take the new tools."""
        if self._served is None:
            return []
        host = self._served.host
        host.reload()
        return [_state(extension) for extension in host.extensions()]

    def close(self) -> None:
        with self._lock:
            if self._closed:
                return
            self._closed = True
            served = self._served
        if served is not None:
            self._hosts.leave(self._key, served.guest)

    # --- commands and panels -----------------------------------------------------------------

    def commands(self, cancel: Cancel | None = None) -> list[CommandInfo]:
        if self._served is None:
            return []
        self._served.host.wait_ready(cancel)
        return self._served.host.commands()

    def run_command(self, name: str, args: str, cancel: Cancel | None = None) -> CommandResult:
        """Run a command and wait for its answer. Raises CommandError: there is no such command."""
        if (served := self._served) is None:
            raise NotFoundError(f"unknown extension command {name!r}")
        return served.host.run_command(name, args, served.guest, cancel)

    def open_questions(self) -> Sequence[str]:
        return () if self._served is None else self._served.guest.dialogs.open_questions()

    def answer(self, id: str, answer: PersonAnswer) -> bool:
        """Answer an ExtensionAsk; False if it is not open."""
        return self._served is not None and self._served.guest.dialogs.answer(id, answer)

    def panel_key(self, extension: str, panel_id: str, key: str, text: str) -> bool:
        served = self._served
        return served is not None and served.host.panel_key(extension, panel_id, key, text)

    def panel_resize(self, extension: str, panel_id: str, width: int, height: int) -> bool:
        served = self._served
        return served is not None and served.host.panel_resize(extension, panel_id, width, height)

    def panel_close(self, extension: str, panel_id: str) -> bool:
        return self._served is not None and self._served.host.panel_close(extension, panel_id)

    # --- listener and guard ------------------------------------------------------------------

    def listen(self, event: Event, run: object = None) -> None:
        if (served := self._served) is not None:
            served.host.listen(event, self._session, served.guest)

    def before_start(
        self, system: str, context: hook.HookContext
    ) -> hook.Allow | hook.Block | hook.ReplaceText:
        return hook.ALLOW if self._hook is None else self._hook.before_start(system, context)

    def before_turn(self, step: int, context: hook.HookContext) -> hook.Allow | hook.Block:
        return hook.ALLOW if self._hook is None else self._hook.before_turn(step, context)

    def before_tool(
        self, call: ToolCall, context: hook.HookContext
    ) -> hook.Allow | hook.Block | hook.ReplaceArgs:
        return hook.ALLOW if self._hook is None else self._hook.before_tool(call, context)

    def before_reply(
        self, message: Message, context: hook.HookContext
    ) -> hook.Allow | hook.Block | hook.ReplaceText:
        return hook.ALLOW if self._hook is None else self._hook.before_reply(message, context)

    def tool_decided(self, call: ToolCall, permission: hook.Permission) -> None:
        if (served := self._served) is not None:
            served.host.tool_decided(call, permission, served.guest)

    def subagent_changed(self, subagent: hook.Subagent) -> None:
        if (served := self._served) is not None:
            served.host.subagent_changed(subagent, served.guest)

    # --- inside ------------------------------------------------------------------------------

    def _join(self, runtime: SourceHost) -> ServedBy:
        """Join the host of runtimes with equal settings, or make one."""
        from zot.extensions import guard  # the door: most users have no extensions
        from zot.extensions import guest as guests
        from zot.extensions import host as hosts

        guest = guests.Guest(
            run_tool=self._run_tool,
            submit=runtime.submit,
            on_tools=self._tools_changed,
            can_answer=lambda: runtime.can_answer("dialog"),
            questions_before=runtime.questions_before,
        )
        guest.attach(runtime.show)
        settings = hosts.host_settings(self._options)
        self._key = (
            settings.cwd,
            settings.explicit,
            settings.search,
            settings.trusted,
            settings.secrets,
            settings.reserved_tools,
        )
        model, warn = runtime.model, self._options.warn

        def make() -> ExtensionHost:
            return hosts.ExtensionHost(settings, provider=model.provider, model=model.id, warn=warn)

        host = self._hosts.join(self._key, guest, make)
        self._hook, self.idle = guard.ExtensionHook(host, guest), False
        return ServedBy(host, guest)

    def _announce_session(self, served: ServedBy, runtime: SourceHost) -> None:
        """Announce the session if it changed."""
        if self._session != runtime.session_id:
            if self._session:
                served.host.session_ended("session_switch", served.guest)
            self._session = runtime.session_id
            served.host.session_started(self._session, served.guest)

    def _run_tool(self, name: str, args: dict[str, Json], context: ToolContext) -> ToolOutput:
        """Run a tool of another source for an extension, with the guards of any other call."""
        runtime = self._runtime
        assert runtime is not None  # extensions start after `_runtime` is set
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
    """Return the parts of a tool that the model sees."""
    return tool.name, tool.description, tool.schema
