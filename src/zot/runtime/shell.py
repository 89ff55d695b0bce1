"""Shell commands of the user, and the jail of the tools."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from msgspec.structs import replace

from zot.cancel import Cancel
from zot.core import shell as shells
from zot.core.confinement import JailReport, JailWords
from zot.core.session import Body, Custom
from zot.errors import ConfigError, NotFoundError
from zot.runtime.redact import RedactedStream, Redactor
from zot.runtime.runs import Runs

if TYPE_CHECKING:
    from zot.core.shell import BackgroundCommands, Shell, ShellOutput


class UserShell:
    """The shell of one runtime; without a Shell it only refuses."""

    def __init__(
        self,
        runs: Runs,
        shell: Shell | None,
        redactor: Redactor | None,
        tools_changed: Callable[[], None],
    ) -> None:
        self._runs = runs
        self._shell = shell
        self._redactor = redactor
        self._tools_changed = tools_changed
        self._running: set[Cancel] = set()

    def new_cancel(self) -> Cancel:
        """Return a Cancel for a later `run`, so that `abort` already applies to it."""
        cancel = Cancel()
        with self._runs.lock:
            self._running.add(cancel)
        return cancel

    def run(
        self,
        command: str,
        *,
        hidden: bool = False,
        show: Callable[[str], None] = lambda text: None,
        entry: Callable[[ShellOutput], Body] | None = None,
        cancel: Cancel | None = None,
    ) -> ShellOutput:
        """Run a shell command of the user, and add it to the transcript when no prompt is running.
        The model does not see a `hidden` one. `cancel`: for this command alone, for a caller who
        aborts it itself or has it from `new_cancel`.

        Raises:
            CommandError: there is nothing to run.
            ToolError: it could not be started.
        """
        cancel = cancel or self.new_cancel()
        with self._runs.lock:
            self._running.add(cancel)
        try:
            ran = self._output(command, show, cancel)
        finally:
            with self._runs.lock:
                self._running.discard(cancel)
        body = shells.entry_of(ran, hidden=hidden) if entry is None else entry(ran)

        def add() -> None:
            self._runs.agent.session.append(body)

        self._runs.when_idle(add)
        return ran

    def _output(self, command: str, show: Callable[[str], None], cancel: Cancel) -> ShellOutput:
        """Run the command; return its output, and show it meanwhile, both without secrets."""
        if self._shell is None:
            raise NotFoundError("this runtime has no shell")
        redactor = self._redactor
        stream = RedactedStream(redactor, show) if redactor is not None else None

        def take(text: str) -> None:
            self._runs.client.wait(cancel)
            (show if stream is None else stream.feed)(text)

        try:
            ran = self._shell.run(command, take, cancel)
        finally:
            if stream is not None:
                stream.finish()
        if redactor is None:
            return ran
        return replace(ran, command=redactor.text(command), output=redactor.text(ran.output))

    def abort(self) -> None:
        """Abort all running or upcoming shell commands, without waiting for their end."""
        with self._runs.lock:
            running = list(self._running)
        for cancel in running:
            cancel.set()

    @property
    def jailed(self) -> bool:
        """Whether the tools are confined to the working directory."""
        return self._shell is not None and self._shell.jailed

    @property
    def jail_root(self) -> str:
        """Directory that confines the tools, links resolved; empty: they are not jailed."""
        return "" if self._shell is None else self._shell.jail_root

    @property
    def jail_words(self) -> JailWords:
        """The setting `jail` that the tools follow now."""
        return False if self._shell is None else self._shell.jail_words

    def jail_report(self) -> JailReport | None:
        """Return the jail as it really is on this system; None: the tools are not jailed."""
        return None if self._shell is None else self._shell.jail_report()

    def set_jail(self, words: JailWords) -> None:
        """Set the jail, which confines the tools to the working directory: true, false, or words
        such as `read-only`. A change is recorded in the session.

        Raises:
            BusyError: a run is in flight; nothing changes.
            ConfigError: the directory cannot be a jail, or there is no such word; nothing changes.
        """
        if self._shell is None:
            raise ConfigError("there are no built-in tools to keep in a jail")
        with self._runs.idle("set_jail"):
            before = self._shell.jail_words
            self._shell.set_jail(words)
            self._tools_changed()
            if self._shell.jail_words != before:  # so that a reader knows what was possible when
                self._runs.agent.session.append(Custom("jail", {"jail": self._shell.jail_words}))

    @property
    def background(self) -> BackgroundCommands:
        """The commands that run in the background. Raises CommandError: there is no shell."""
        if self._shell is None:
            raise NotFoundError("this runtime has no shell")
        return self._shell.background

    @property
    def has_background(self) -> bool:
        """Whether background commands may be running; changing the session waits for them."""
        return self._shell is not None and self._shell.has_background

    def end_background(self) -> None:
        """Stop background commands, because they belong to one session."""
        if self._shell is not None:
            self._shell.end_background()
