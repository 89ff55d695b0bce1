"""All extensions of one zot: a source of tools and commands, a Hook, and an event listener.

The rest of zot uses only this file, and does not know that extensions are processes.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Literal

from msgspec import UNSET

from zot import __version__
from zot.cancel import Cancel
from zot.children.logfile import LogFile
from zot.core.events import CompactStart, Event, ExtensionDisplay, ExtensionNotify, ExtensionPanel
from zot.core.hook import Permission, Subagent
from zot.core.source import CommandInfo, CommandResult
from zot.errors import NotFoundError
from zot.extensions import deliver, proto
from zot.extensions.extension import HostedExtension
from zot.extensions.guard import GUARDED, GuardMemory
from zot.extensions.guest import Guest, NoAnswer, TimedOut, refuse
from zot.extensions.manifest import ExtensionPlaces, Installed, discover, log_path
from zot.extensions.process import ExtensionLimits
from zot.extensions.source import ExtensionOptions
from zot.extensions.tool import ExtensionTool
from zot.files import ensure_dir
from zot.provider.types import Json, ToolCall

HostRequest = proto.CallTool | proto.CallToolCancel | proto.Ask | proto.Submit | proto.SubmitSlash
"""Frames by which an extension asks its host for something."""
EndReason = Literal["shutdown", "session_switch", "reload"]
RESERVED_COMMANDS = frozenset(
    (
        *("reload-ext", "help", "clear", "compact", "model", "reasoning", "sessions", "session"),
        *("skills", "settings", "login", "logout", "new", "exit", "quit"),
    )
)
"""Names that no extension may register, in any client. The terminal has more commands
(`serve/interactive/slash/table.py`); there its own win."""


class HostSettings(ExtensionPlaces, kw_only=True):
    environ: Mapping[str, str]
    """Base of the extensions' environment; the secrets are removed."""
    secrets: frozenset[str] = frozenset()
    """Variables an extension must not see."""
    reserved_tools: frozenset[str] = frozenset()
    limits: ExtensionLimits = ExtensionLimits()


def host_settings(options: ExtensionOptions) -> HostSettings:
    around = options.around
    try:  # a slow machine can give its extensions more time
        grace = max(0.1, float(around.environ.get("ZOT_EXT_GRACE", "") or 3.0))
    except ValueError:
        grace = 3.0
    return HostSettings(
        cwd=Path(options.cwd),
        home=Path(options.home),
        environ=around.environ,
        explicit=tuple(Path(around.absolute(word)) for word in options.explicit),
        search=options.search,
        trusted=options.trusted(),
        secrets=options.secrets,
        reserved_tools=options.reserved,
        limits=ExtensionLimits(grace=grace),
    )


class ExtensionHost:
    def __init__(
        self,
        settings: HostSettings,
        *,
        provider: str = "",
        model: str = "",
        warn: Callable[[str], None] | None = None,
    ) -> None:
        self.settings = settings
        self._provider = provider
        self._model = model
        self._warn = warn
        self._guests: list[Guest] = []
        """The runtimes it serves, in order of arrival."""
        self._panels: dict[tuple[str, str], Guest] = {}
        """Owner of each open panel, by extension and panel id."""
        self._extensions: list[HostedExtension] = []
        self._lock = threading.Lock()
        self._life = threading.Lock()
        """Held while extensions start or stop, so that reload and close do not overlap."""
        self._settling = threading.Condition()
        self._settled = False
        self._starter: threading.Thread | None = None
        self._closed = False
        self._sequence = 0
        self.generation = 0
        """Number of reloads."""
        self._wanted: frozenset[str] = frozenset()
        self._noted: set[tuple[str, str, str]] = set()
        self._guards = GuardMemory(settings.home)

    # --- start and end -----------------------------------------------------------------------

    def start(self) -> None:
        """Start all extensions in parallel; returns at once."""
        self._starter = threading.Thread(target=self._start_all, name="ext-start", daemon=True)
        self._starter.start()

    def join(self, guest: Guest) -> None:
        """Serve another guest."""
        with self._lock:
            self._guests.append(guest)

    def leave(self, guest: Guest) -> bool:
        """Stop serving a guest; True: it was the last one, and the caller has to call `close`."""
        with self._lock:
            last = self._guests == [guest]
            if not last:
                self._guests.remove(guest)
                self._panels = {key: own for key, own in self._panels.items() if own is not guest}
        if not last:
            guest.leave()
            self.session_ended("shutdown", guest)
        return last

    def wait_ready(self, cancel: Cancel | None = None) -> None:
        """Wait until every extension is ready or was given up, at most for the grace. Raises
        Cancelled: the turn was aborted meanwhile."""
        deadline = time.monotonic() + self.settings.limits.grace + 2
        (cancel or Cancel()).wait_for(
            self._settling, lambda: self._starter is None or self._settled, deadline
        )

    def _set_settled(self, settled: bool) -> None:
        with self._settling:
            self._settled = settled
            self._settling.notify_all()

    def reload(self) -> None:
        """Stop all, discover extensions again, and start them; the session continues."""
        self._set_settled(False)
        with self._life:
            self._stop_all("reload")
            self.generation += 1
        self._start_all()

    def close(self) -> None:
        self._closed = True
        for guest in self.guests():
            guest.close()
        with self._life:
            self._stop_all("shutdown")
        self._set_settled(True)
        if self._starter is not None:
            self._starter.join(10)

    def _start_all(self) -> None:
        try:
            with self._life:
                if self._closed:
                    return
                installed = discover(self.settings)
                extensions = [
                    self._new_extension(extension)
                    for extension in installed.extensions
                    if extension.manifest.enabled and extension.manifest.exec
                ]
                with self._lock:
                    self._extensions = extensions
                for extension in extensions:
                    extension.start()
            for problem in installed.problems:
                self.problem(problem.name, problem.message)
            for extension in extensions:
                extension.settle()
        finally:
            self._set_settled(True)

    def _new_extension(self, installed: Installed) -> HostedExtension:
        limits = self.settings.limits
        log = LogFile(log_path(self.settings.home, installed.name), limits.log_bytes)
        environ, secrets = self.settings.environ, self.settings.secrets
        extension = HostedExtension(
            installed, self, log=log, limits=limits, environ=environ, secrets=secrets
        )
        expected = self._guards.expected(installed)
        extension.expected, extension.is_new = expected or frozenset(), expected is None
        return extension

    def _stop_all(self, reason: EndReason) -> None:
        with self._lock:
            extensions, self._extensions = self._extensions, []
        for guest in self.guests():
            if guest.session_id is not None:
                self._deliver("session_end", {"reason": reason}, extensions, guest)
        for extension in extensions:
            extension.begin_close()
        deadline = time.monotonic() + self.settings.limits.shutdown
        closers = [
            threading.Thread(
                target=extension.finish_close, args=(deadline,), name=f"ext-{extension.name}-close"
            )
            for extension in extensions
        ]
        for closer in closers:
            closer.start()
        for closer in closers:
            closer.join()

    def guests(self) -> list[Guest]:
        with self._lock:
            return list(self._guests)

    # --- tools and commands ------------------------------------------------------------------

    def extensions(self) -> list[HostedExtension]:
        """Return the extensions in load order."""
        with self._lock:
            return list(self._extensions)

    def tools(self, guest: Guest) -> list[ExtensionTool]:
        """Return tools with unique names: zot's own win, then the extension that was loaded
        first."""
        tools: dict[str, ExtensionTool] = {}
        for extension in self.extensions():
            registered = extension.registered
            for name, info in list(registered.tools.items()):
                if info.deferred and name not in registered.active:
                    continue
                if self._is_free("tool", name, extension, tools, self.settings.reserved_tools):
                    tools[name] = ExtensionTool(extension, info, guest)
        return list(tools.values())

    def commands(self) -> list[CommandInfo]:
        return [command for command, _ in self._commands().values()]

    def _commands(self) -> dict[str, tuple[CommandInfo, HostedExtension]]:
        commands: dict[str, tuple[CommandInfo, HostedExtension]] = {}
        for extension in self.extensions():
            for name, description in list(extension.registered.commands.items()):
                if self._is_free("command", name, extension, commands, RESERVED_COMMANDS):
                    commands[name] = (CommandInfo(name, description, extension.name), extension)
        return commands

    def _is_free(
        self,
        kind: str,
        name: str,
        extension: HostedExtension,
        taken: Mapping[str, object],
        reserved: frozenset[str],
    ) -> bool:
        if name not in taken and name not in reserved:
            return True
        key = (kind, extension.name, name)
        if key not in self._noted:
            self._noted.add(key)
            winner = "zot itself" if name in reserved else "an extension loaded before"
            extension.log.note(f"{kind} {name!r} is shadowed: the name belongs to {winner}")
        return False

    def run_command(
        self, name: str, args: str, guest: Guest, cancel: Cancel | None = None
    ) -> CommandResult:
        """Run an extension's command and wait for its answer. Raises CommandError: there is no such
        command; Cancelled: the caller gave up."""
        cancel = cancel or Cancel()
        self.wait_ready(cancel)
        registered = self._commands().get(name.removeprefix("/"))
        if registered is None:
            raise NotFoundError(f"unknown extension command {name!r}")
        command, extension = registered
        limit = self.settings.limits.command
        deadline = time.monotonic() + limit
        with extension.question(guest) as question:
            if not (extension.wait_live(time.monotonic() + 5, cancel)) or not extension.send(
                proto.CommandInvoked(
                    question.id, command.name, args.strip(), guest.session_id or UNSET
                )
            ):
                return self._command_failed(command, extension.unavailable())
            answer = question.wait(deadline, cancel)
        match answer:
            case proto.CommandResponse():
                return self._outcome(command, answer, guest)
            case TimedOut():
                return self._command_failed(command, f"no answer within {limit:g} s")
            case NoAnswer(reason=reason):
                return self._command_failed(command, reason)
            case _:
                return self._command_failed(command, "it sent another kind of answer")

    def _command_failed(self, command: CommandInfo, reason: str) -> CommandResult:
        text = f"extension {command.source}/{command.name} failed: {reason}"
        return CommandResult(command.source, "error", text)

    def _outcome(
        self, command: CommandInfo, answer: proto.CommandResponse, guest: Guest
    ) -> CommandResult:
        name = command.source
        if answer.error:
            return CommandResult(name, "error", answer.error)
        match answer.action:
            case "prompt":
                return CommandResult(name, "prompt", answer.prompt)
            case "tool_prompt":
                # A random id, which cannot collide with one that a model made.
                call = ToolCall(f"call_{os.urandom(8).hex()}", answer.tool_name, answer.tool_args)
                return CommandResult(name, "prompt", answer.prompt, call=call)
            case "insert":
                return CommandResult(name, "insert", answer.insert)
            case "display":
                guest.emit(ExtensionDisplay(name, answer.display))
                return CommandResult(name, "display", answer.display)
            case "open_panel" if answer.open_panel is not None:
                panel = proto.panel_dict(answer.open_panel)
                self._panels[name, str(panel["id"])] = guest
                guest.emit(ExtensionPanel(name, "open", panel))
                return CommandResult(name, "open_panel", panel=panel)
            case "noop" | "":
                return CommandResult(name, "noop")
            case action:
                return self._command_failed(command, f"its action {action!r:.80} is unknown")

    # --- panels ------------------------------------------------------------------------------

    def panel_key(self, extension: str, panel_id: str, key: str, text: str = "") -> bool:
        """Send a key to the extension whose panel has the focus; False if it is not running."""
        return self._send(extension, proto.PanelKey(panel_id, key, text))

    def panel_resize(self, extension: str, panel_id: str, width: int, height: int) -> bool:
        return self._send(extension, proto.PanelResize(panel_id, width, height))

    def panel_close(self, extension: str, panel_id: str) -> bool:
        return self._send(extension, proto.PanelClose(panel_id))

    def _send(self, name: str, frame: proto.ToExtension) -> bool:
        named = (extension for extension in self.extensions() if extension.name == name)
        return any(extension.send(frame) for extension in named)

    # --- events to extensions ----------------------------------------------------------------

    def listen(self, event: Event, session_id: str, guest: Guest) -> None:
        """Send an event to its subscribers. Never blocks; called for every event of a run."""
        name = deliver.NAMES.get(type(event))
        if name is None:
            return
        if isinstance(event, CompactStart):
            guest.compactions += 1
        if name in self._wanted:
            guest.session_id = session_id
            fields = deliver.fields(event, f"{session_id}-{guest.compactions}")
            self._deliver(name, fields, self.extensions(), guest)

    def tool_decided(self, call: ToolCall, permission: Permission, guest: Guest) -> None:
        self._tell("permission_decision", deliver.permission_fields(call, permission), guest)

    def subagent_changed(self, subagent: Subagent, guest: Guest) -> None:
        name = "subagent_start" if subagent.status == "running" else "subagent_stop"
        self._tell(name, deliver.subagent_fields(subagent), guest)

    def _tell(self, name: str, fields: dict[str, Json], guest: Guest) -> None:
        if name in self._wanted:
            self._deliver(name, fields, self.extensions(), guest)

    def session_started(self, session_id: str, guest: Guest) -> None:
        """Send `session_start` to its subscribers: a session begins, or another one continues."""
        with self._lock:
            guest.session_id = session_id
        for extension in self.extensions():
            extension.announced.discard(guest)
            self._announce_session(extension, guest)

    def session_ended(self, reason: EndReason, guest: Guest) -> None:
        if guest.session_id is not None:
            self._deliver("session_end", {"reason": reason}, self.extensions(), guest)
        guest.session_id = None
        for extension in self.extensions():
            extension.announced.discard(guest)

    def model_changed(self, provider: str, model: str) -> None:
        """Set the model that extensions which start later get in `hello_ack`."""
        self._provider, self._model = provider, model

    def _announce_session(self, extension: HostedExtension, guest: Guest) -> None:
        """Send `session_start` once; also to late subscribers and restarted extensions."""
        with self._lock:
            due = (
                guest.session_id is not None
                and guest not in extension.announced
                and extension.live
                and "session_start" in extension.registered.events
            )
            if due:
                extension.announced.add(guest)
        if due:
            self._deliver("session_start", {}, [extension], guest)

    def _deliver(
        self,
        name: str,
        fields: dict[str, Json],
        extensions: Sequence[HostedExtension],
        guest: Guest,
    ) -> None:
        # The lock keeps delivery in the order of the sequence numbers.
        with self._lock:
            line = proto.encode(proto.Event(**self._payload(name, fields, guest)))
            for extension in extensions:
                if name in extension.registered.events:
                    extension.send_line(line)

    def interceptors(self, event: str) -> list[HostedExtension]:
        """Return the extensions to ask, in load order, including guards that do not run: those
        block."""
        return [extension for extension in self.extensions() if _may_stop(extension, event)]

    def intercept_frame(
        self, id: str, event: str, fields: dict[str, Json], guest: Guest
    ) -> proto.EventIntercept:
        with self._lock:
            return proto.EventIntercept(id=id, **self._payload(event, fields, guest))

    def _payload(self, event: str, fields: dict[str, Json], guest: Guest) -> dict[str, Json]:
        """Return the fields of an event, with a new sequence number; the caller holds the lock."""
        self._sequence += 1
        session, cwd = guest.session_id or "", str(self.settings.cwd)
        head = {"event": event, "session_id": session, "cwd": cwd, "sequence": self._sequence}
        return {**head, **fields}

    # --- requests of extensions --------------------------------------------------------------

    def emit(self, extension: HostedExtension, event: Event) -> None:
        """Emit to the guest that it works for; a panel stays with the guest for which it was
        opened."""
        guest = self._works_for(extension)
        if isinstance(event, ExtensionPanel):
            key = (extension.name, str(event.panel["id"]))
            guest = self._panels.setdefault(key, guest) if guest is not None else None
            if event.action == "close":
                self._panels.pop(key, None)
        if guest is not None:
            guest.emit(event)

    def _works_for(self, extension: HostedExtension) -> Guest | None:
        """Return the guest with the latest open call; else the oldest guest. None: there is
        none."""
        asking = extension.asking()
        if asking:
            return asking[-1]
        guests = self.guests()
        return guests[0] if guests else None

    def _asking(self, extension: HostedExtension, parent_id: str) -> list[Guest]:
        """Return the guests for which it may act during that call, the likeliest last; none if
        several share it and the call is over."""
        guests = self.guests()
        if len(guests) < 2:
            return guests
        asking = extension.asking(parent_id)
        return guests[:1] if not asking and not parent_id else asking

    def tools_changed(self, extension: HostedExtension) -> None:
        if (guest := self._works_for(extension)) is not None:
            guest.tools_changed()

    def problem(self, name: str, message: str) -> None:
        """Report a problem with an extension to the user."""
        for guest in self.guests()[:1]:
            guest.emit(ExtensionNotify(name, "warn", message))
        if self._warn is not None:
            self._warn(f"extension {name}: {message}")

    def changed(self, extension: HostedExtension) -> None:
        with self._lock:
            subscribed = (running.registered.events for running in self._extensions)
            self._wanted = frozenset().union(*subscribed)
        for guest in self.guests():
            self._announce_session(extension, guest)
        if extension.live and not extension.undecided:
            self._guards.remember(extension)

    def hello_ack(self, extension: HostedExtension) -> proto.HelloAck:
        data_dir = self._data_dir(extension.installed)
        return proto.HelloAck(
            zot_version=__version__,
            provider=self._provider,
            model=self._model,
            cwd=str(self.settings.cwd),
            extension_dir=str(extension.installed.directory),
            data_dir=str(data_dir),
        )

    def _data_dir(self, installed: Installed) -> Path:
        """Return the extension's own folder; or its folder in zot's home, if that has files already
        or the own folder is not writable."""
        apart = self.settings.home / "extension-data" / installed.name
        with suppress(OSError):
            if any(apart.iterdir()):
                return apart
        if os.access(installed.directory, os.W_OK):
            return installed.directory
        ensure_dir(apart)
        return apart

    def take_request(self, extension: HostedExtension, request: HostRequest) -> None:
        match request:
            case proto.CallTool():
                self._call_tool(extension, request)
            case proto.CallToolCancel(id):
                for guest in self.guests():
                    guest.calls.cancel(extension, id)
            case proto.Ask():
                asking = self._asking(extension, request.parent_id)
                if asking:
                    asking[-1].dialogs.ask(extension, request)
                else:
                    extension.send(proto.Answer(request.id, cancelled=True))
            case proto.Submit(text):
                self._submit(extension, text, slash=False)
            case proto.SubmitSlash(text):
                self._submit(extension, text, slash=True)

    def _call_tool(self, extension: HostedExtension, call: proto.CallTool) -> None:
        """Run a tool with the tools and guards of the guest it works for. If that is ambiguous
        nothing runs: another guest may not allow it."""
        asking = self._asking(extension, call.parent_id)
        guest = asking[-1] if asking else None
        if guest is None or any(other is not guest for other in asking):
            refuse(
                extension,
                call,
                "several agents have calls open here: say in `parent_id` for which tool call it is",
            )
        else:
            guest.calls.start(extension, call)

    def _submit(self, extension: HostedExtension, text: str, *, slash: bool) -> None:
        guest = self._works_for(extension)
        submit = None if guest is None else guest.submit
        if slash and not text.startswith("/"):
            extension.log.note(f"submit_slash was ignored: {text!r:.80} does not begin with a /")
        elif submit is None or not submit(text, slash):
            extension.log.note("submit was ignored: this host does not start runs for extensions")

    def ended(self, extension: HostedExtension) -> None:
        for guest in self.guests():
            guest.dialogs.drop(extension)


def _may_stop(extension: HostedExtension, event: str) -> bool:
    """Whether to ask it: also a guard that does not run, which blocks, and an extension that has
    not said yet what it guards."""
    if event in extension.registered.intercepts or event in extension.expected:
        return True
    if event in GUARDED and extension.undecided:
        return True
    closed = extension.installed.manifest.fail_closed
    return closed and event == "tool_call" and not extension.live
