"""Commands of `zot rpc` that wait for an extension or a shell command. A thread answers each, so
that the reader of commands never waits.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import assert_never

from msgspec.structs import asdict

from zot.bugs import internal_error
from zot.cancel import Cancel
from zot.core.source import CommandResult
from zot.errors import BusyError, Cancelled, ClosedError, CommandError, ZotError
from zot.runtime.commands import RELOAD
from zot.runtime.runtime import Runtime
from zot.wire import commands, shapes
from zot.wire.zot import Incoming

Slow = commands.GetCommands | commands.RunCommand | commands.ReloadExt | commands.RunShell
MAX_WAITING = 64


class SlowCommands:
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

    def start(self, incoming: Incoming, command: Slow) -> None:
        """Answer in a thread.

        Raises:
            CommandError: too many commands are waiting, or a reload would disturb a run.
        """
        self._threads = [thread for thread in self._threads if thread.is_alive()]
        if len(self._threads) >= MAX_WAITING:
            raise BusyError(f"busy: {MAX_WAITING} commands wait for extensions already")
        if is_reload(command) and self._runtime.runs.busy:
            raise BusyError("agent is busy: reload_ext has to wait for done, or abort first")
        # Here, not in the thread: an `abort_shell` right behind it must find it.
        cancel = (
            self._runtime.shell.new_cancel() if isinstance(command, commands.RunShell) else None
        )
        thread = threading.Thread(
            target=self._take,
            args=(incoming, command, cancel),
            name="zot-slow-command",
            daemon=True,
        )
        thread.start()
        self._threads.append(thread)

    def finish(self) -> None:
        """Wait until all are answered: an extension's command has its own timeout."""
        for thread in self._threads:
            thread.join()

    def close(self) -> None:
        """Cancel the commands that still wait."""
        self._cancel.set()
        self._runtime.shell.abort()
        for thread in self._threads:
            thread.join(1)

    def _take(self, incoming: Incoming, command: Slow, shell: Cancel | None) -> None:
        try:
            match command:
                case commands.GetCommands():
                    self._answer(incoming, self._commands())
                case commands.RunCommand(name, args):
                    result = self._runtime.commands.run(name, args, self._cancel)
                    self._answer_result(incoming, result, submit=command.submit)
                case commands.ReloadExt():
                    self._answer(incoming, self._reloaded())
                case commands.RunShell(text, hidden):
                    ran = self._runtime.shell.run(text, hidden=hidden, cancel=shell)
                    self._answer(incoming, shapes.ShellRan(**asdict(ran)))
                case _:
                    assert_never(command)
        except ZotError as error:
            self._fail(incoming, error)
        except Cancelled:
            self._fail(incoming, ClosedError("the runtime was closed"))
        except Exception as error:  # a bug around an extension ends this command only
            self._fail(incoming, internal_error(error))

    def _commands(self) -> shapes.Commands:
        infos = self._runtime.commands.all(self._cancel)
        listed = (
            shapes.CommandShape(info.name, info.description, info.source, info.kind)
            for info in infos
        )
        return shapes.Commands(tuple(listed))

    def _answer_result(self, incoming: Incoming, result: CommandResult, *, submit: bool) -> None:
        name, text = result.source, result.text
        match result.action:
            case "error":
                raise CommandError(text, code="extension")
            case "prompt" if submit:
                self._runtime.prompt(
                    text,
                    tag=incoming.id,
                    call=result.call,
                    accepted=lambda ahead: self._answer(
                        incoming,
                        shapes.CommandRan("prompt", name, prompt=text, started=True, queued=ahead),
                        tag=incoming.id,
                    ),
                )
            case "prompt":
                self._answer(incoming, shapes.CommandRan("prompt", name, prompt=text))
            case "insert":
                self._answer(incoming, shapes.CommandRan("insert", name, insert=text))
            case "display":
                self._answer(incoming, shapes.CommandRan("display", name, display=text))
            case "noop" | "open_panel":
                self._answer(incoming, shapes.CommandRan(result.action, name, panel=result.panel))
            case _:
                assert_never(result.action)

    def _reloaded(self) -> shapes.Reloaded:
        states = self._runtime.commands.reload_extensions()
        return shapes.Reloaded(tuple(shapes.ExtensionShape(**asdict(state)) for state in states))


def is_reload(command: Slow) -> bool:
    """Return whether this is `reload_ext`, or `/reload-ext` as a person would type it."""
    if isinstance(command, commands.RunCommand):
        return command.name.removeprefix("/").casefold() == RELOAD
    return isinstance(command, commands.ReloadExt)
