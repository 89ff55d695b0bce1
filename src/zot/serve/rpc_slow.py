"""Commands of `zot rpc` that wait for an extension or a shell command. A thread answers each, so
that the reader of commands never waits.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, assert_never

from msgspec.structs import asdict

from zot.bugs import internal_error
from zot.cancel import Cancel
from zot.core.source import CommandResult
from zot.errors import BusyError, Cancelled, ClosedError, CommandError, ZotError
from zot.runtime.commands import RELOAD
from zot.wire import commands, shapes
from zot.wire.serving import Threads
from zot.wire.zot import Incoming

if TYPE_CHECKING:
    from zot.serve.rpc_served import ServedAgent

MAX_WAITING = 64


class SlowCommands:
    def __init__(self, agent: ServedAgent) -> None:
        self._agent = agent
        self._cancel = Cancel()
        self._threads = Threads()

    def start(self, incoming: Incoming, command: commands.Slow) -> None:
        """Answer in a thread.

        Raises:
            CommandError: too many commands are waiting, or a reload would disturb a run.
        """
        if self._threads.working() >= MAX_WAITING:
            raise BusyError(f"busy: {MAX_WAITING} commands wait for extensions already")
        if is_reload(command) and self._agent.runtime.runs.busy:
            raise BusyError("agent is busy: reload_ext has to wait for done, or abort first")
        # Here, not in the thread: an `abort_shell` right behind it must find it.
        cancel = (
            self._agent.runtime.shell.new_cancel()
            if isinstance(command, commands.RunShell)
            else None
        )
        self._threads.start("zot-slow-command", partial(self._take, incoming, command, cancel))

    def finish(self) -> None:
        """Wait until all are answered: an extension's command has its own timeout."""
        self._threads.join()

    def close(self) -> None:
        """Cancel the commands that still wait."""
        self._cancel.set()
        if self._agent.built is not None:
            self._agent.built.shell.abort()
        self._threads.join(1)

    def _take(self, incoming: Incoming, command: commands.Slow, shell: Cancel | None) -> None:
        try:
            match command:
                case commands.GetCommands():
                    self._agent.answer(incoming, self._commands())
                case commands.RunCommand(name, args):
                    result = self._agent.runtime.commands.run(name, args, self._cancel)
                    self._answer_result(incoming, result, submit=command.submit)
                case commands.ReloadExt():
                    self._agent.answer(incoming, self._reloaded())
                case commands.RunShell(text, hidden):
                    ran = self._agent.runtime.shell.run(text, hidden=hidden, cancel=shell)
                    self._agent.answer(incoming, shapes.ShellRan(**asdict(ran)))
                case _:
                    assert_never(command)
        except ZotError as error:
            self._agent.fail(incoming, error)
        except Cancelled:
            self._agent.fail(incoming, ClosedError("the runtime was closed"))
        except Exception as error:  # a bug around an extension ends this command only
            self._agent.fail(incoming, internal_error(error))

    def _commands(self) -> shapes.Commands:
        infos = self._agent.runtime.commands.all(self._cancel)
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
                self._agent.runtime.prompt(
                    text,
                    tag=incoming.id,
                    call=result.call,
                    accepted=lambda ahead: self._agent.answer(
                        incoming,
                        shapes.CommandRan("prompt", name, prompt=text, started=True, queued=ahead),
                        tag=incoming.id,
                    ),
                )
            case "prompt":
                self._agent.answer(incoming, shapes.CommandRan("prompt", name, prompt=text))
            case "insert":
                self._agent.answer(incoming, shapes.CommandRan("insert", name, insert=text))
            case "display":
                self._agent.answer(incoming, shapes.CommandRan("display", name, display=text))
            case "noop" | "open_panel":
                self._agent.answer(
                    incoming, shapes.CommandRan(result.action, name, panel=result.panel)
                )
            case _:
                assert_never(result.action)

    def _reloaded(self) -> shapes.Reloaded:
        states = self._agent.runtime.commands.reload_extensions()
        return shapes.Reloaded(tuple(shapes.ExtensionShape(**asdict(state)) for state in states))


def is_reload(command: commands.Slow) -> bool:
    """Return whether this is `reload_ext`, or `/reload-ext` as a person would type it."""
    if isinstance(command, commands.RunCommand):
        return command.name.removeprefix("/").casefold() == RELOAD
    return isinstance(command, commands.ReloadExt)
