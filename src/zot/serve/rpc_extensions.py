"""The commands of `zot rpc` that wait for an extension: each is answered by a thread of its own, so
that the reader of commands never waits.
"""

from __future__ import annotations

import threading
from collections.abc import Callable

from zot.bugs import internal_error
from zot.cancel import Cancel
from zot.errors import BusyError, Cancelled, ClosedError, CommandError, ZotError
from zot.extensions.source import RELOAD, Extensions
from zot.runtime.runtime import Runtime
from zot.wire import commands, frames
from zot.wire.zot import Incoming

Waiting = commands.GetCommands | commands.RunCommand | commands.ReloadExt
MAX_WAITING = 64


class ExtensionCommands:
    def __init__(
        self,
        runtime: Runtime,
        answer: Callable[..., None],
        fail: Callable[[Incoming, ZotError], None],
    ) -> None:
        self._runtime = runtime
        self._answer = answer
        self._fail = fail
        self._cancel = Cancel()
        self._threads: list[threading.Thread] = []

    @property
    def _extensions(self) -> Extensions:
        if self._runtime.extensions is None:
            raise CommandError("this runtime has no extensions", code="not_found")
        return self._runtime.extensions

    def start(self, incoming: Incoming, command: Waiting) -> None:
        """Answer in a thread.

        Raises:
            CommandError: too many wait already.
        """
        self._threads = [each for each in self._threads if each.is_alive()]
        if len(self._threads) >= MAX_WAITING:
            raise BusyError(f"busy: {MAX_WAITING} commands wait for extensions already")
        if is_reload(command) and self._runtime.busy:
            raise BusyError("agent is busy: reload_ext has to wait for done, or abort first")
        thread = threading.Thread(
            target=self._take, args=(incoming, command), name="zot-ext-command", daemon=True
        )
        thread.start()
        self._threads.append(thread)

    def hand_over(self, command: commands.PanelKey | commands.PanelClose | commands.Answer) -> None:
        """Pass on what the person did; does not wait.

        Raises:
            CommandError: the extension does not run, or does not ask that.
        """
        if isinstance(command, commands.Answer):
            self._answer_dialog(command)
        else:
            self._panel(command)

    def _answer_dialog(self, command: commands.Answer) -> None:
        if not self._extensions.answer(
            command.request_id,
            value=command.value,
            confirmed=command.confirmed,
            cancelled=command.cancelled,
        ):
            raise CommandError(f"no question {command.request_id!r} is open", code="not_found")

    def _panel(self, command: commands.PanelKey | commands.PanelClose) -> None:
        host = self._extensions.host
        name, panel = command.extension, command.panel_id
        if host is None:
            sent = False
        elif isinstance(command, commands.PanelKey):
            sent = host.panel_key(name, panel, command.key, command.text)
        else:
            sent = host.panel_close(name, panel)
        if not sent:
            raise CommandError(f"extension {name!r} is not running", code="not_found")

    def finish(self) -> None:
        """Wait until all are answered: a command has its own limit."""
        for thread in self._threads:
            thread.join()

    def close(self) -> None:
        """Give up on what still waits."""
        self._cancel.set()
        for thread in self._threads:
            thread.join(1)

    def _take(self, incoming: Incoming, command: Waiting) -> None:
        try:
            match command:
                case commands.GetCommands():
                    self._answer(incoming, self._commands())
                case commands.RunCommand():
                    self._run(incoming, command)
                case commands.ReloadExt():
                    self._answer(incoming, self._reload())
        except ZotError as error:
            self._fail(incoming, error)
        except Cancelled:
            self._fail(incoming, ClosedError("the runtime was closed"))
        except Exception as error:  # around an extension: its bug, or ours, ends this command only
            self._fail(incoming, internal_error(error))

    def _commands(self) -> frames.Commands:
        found = self._extensions.commands(self._cancel)
        return frames.Commands(
            tuple(
                frames.CommandShape(each.name, each.description, each.extension) for each in found
            )
        )

    def _run(self, incoming: Incoming, command: commands.RunCommand) -> None:
        if is_reload(command):
            names = ", ".join(each.name for each in self._reload().extensions) or "none"
            text = f"reloaded extensions: {names}"
            self._answer(incoming, frames.CommandRan("display", "zot", display=text))
            return
        outcome = self._extensions.run_command(command.name, command.args, self._cancel)
        name, text = outcome.extension, outcome.text
        match outcome.action:
            case "error":
                raise CommandError(text, code="extension")
            case "prompt" if command.submit:
                self._runtime.prompt(
                    text,
                    tag=incoming.id,
                    accepted=lambda ahead: self._answer(
                        incoming,
                        frames.CommandRan("prompt", name, prompt=text, started=True, queued=ahead),
                        tag=incoming.id,
                    ),
                )
            case "prompt":
                self._answer(incoming, frames.CommandRan("prompt", name, prompt=text))
            case "insert":
                self._answer(incoming, frames.CommandRan("insert", name, insert=text))
            case "display":
                self._answer(incoming, frames.CommandRan("display", name, display=text))
            case action:
                self._answer(incoming, frames.CommandRan(action, name, panel=outcome.panel))

    def _reload(self) -> frames.Reloaded:
        return frames.Reloaded(
            tuple(
                frames.ExtensionShape(
                    each.name,
                    each.installed.manifest.version,
                    each.state,
                    tuple(each.registered.commands),
                    tuple(each.registered.tools),
                    each.reason,
                )
                for each in self._extensions.reload()
            )
        )


def is_reload(command: Waiting) -> bool:
    """`reload_ext`, or `/reload-ext` as a person would type it."""
    if isinstance(command, commands.RunCommand):
        return command.name.removeprefix("/") == RELOAD
    return isinstance(command, commands.ReloadExt)
