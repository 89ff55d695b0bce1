"""Runtime operations at the tools' workplace: the user's shell commands, the jail, rewind."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from msgspec.structs import replace

from zot.cancel import Cancel
from zot.core import shell as shells
from zot.core.agent import Agent
from zot.core.session import Body, Custom
from zot.errors import ConfigError, NotFoundError
from zot.provider.types import Message, Text
from zot.runtime import rewind
from zot.runtime.client import RuntimeClient
from zot.runtime.redact import RedactedStream, Redactor
from zot.runtime.runs import Listener, Runs

if TYPE_CHECKING:
    from zot.core.changes import Files
    from zot.core.session import ChangedFile
    from zot.core.shell import Shell, ShellOutput
    from zot.runtime.durable import Durable
    from zot.runtime.rewind import Checkpoint, Rewound


class Workplace(Runs):
    def __init__(
        self,
        agent: Agent,
        client: RuntimeClient,
        listeners: Sequence[Listener],
        durable: Durable | None,
        *,
        shell: Shell | None,
        files: Files | None,
        redactor: Redactor | None,
    ) -> None:
        super().__init__(agent, client, listeners, durable)
        self._shell = shell
        self._files = files
        self._redactor = redactor
        self._shell_runs: set[Cancel] = set()

    def tools_changed(self) -> None:
        """Update the tools for the next model call; overridden by Runtime."""

    # --- rewind ------------------------------------------------------------------------------

    def checkpoints(self) -> list[Checkpoint]:
        """Return the prompts of the conversation that `rewind` can go back to, oldest first."""
        return rewind.checkpoints(self.session)

    def rewind(
        self,
        to: str = "",
        *,
        conversation: bool = True,
        files: bool = True,
        preview: bool = False,
        force: bool = False,
    ) -> Rewound:
        """Rewind to before a prompt (default: the last one): the conversation, the files that tools
        changed since, or both. Files that something else also changed are left alone, unless
        `force`. `preview`: only report what would be done.

        Raises:
            BusyError: a run is in flight; nothing changes.
            CommandError: there is no such checkpoint, or files are not kept.
            SessionError: the session cannot be written.
        """
        with self._idle("rewind"):
            way = rewind.Rewind(self.session, self._files, to)
            if preview:
                return way.look(conversation=conversation, files=files)
            rewound = way.go(conversation=conversation, files=files, force=force)
            self.agent.forget()
            return rewound

    def go_to(self, entry: str) -> None:
        """Continue from any entry of the session, on any branch; files stay as they are.

        Raises:
            BusyError: a run is in flight; nothing changes.
            CommandError: there is no such entry.
        """
        with self._idle("go_to"):
            if entry not in self.session.entries:
                raise NotFoundError(f"the session has no entry {entry!r}")
            self.session.move(entry)
            # The last row of a session file determines where it continues.
            self.session.append(Custom("moved", {"to": entry}))
            self.agent.forget()

    def changed_files(self) -> list[ChangedFile]:
        """Return the files that tools changed in this session, with diffs from before to now."""
        return rewind.changed_files(self.session, self._files)

    # --- the shell ---------------------------------------------------------------------------

    def new_shell(self) -> Cancel:
        """Return a Cancel for a later `run_shell`, so that `abort_shell` already applies to it."""
        cancel = Cancel()
        with self._lock:
            self._shell_runs.add(cancel)
        return cancel

    def run_shell(
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
        aborts it itself or has it from `new_shell`.

        Raises:
            CommandError: there is nothing to run.
            ToolError: it could not be started.
        """
        cancel = cancel or self.new_shell()
        try:
            return self._run_shell(command, hidden, show, entry, cancel)
        finally:
            with self._lock:
                self._shell_runs.discard(cancel)

    def _run_shell(
        self,
        command: str,
        hidden: bool,
        show: Callable[[str], None],
        entry: Callable[[ShellOutput], Body] | None,
        cancel: Cancel,
    ) -> ShellOutput:
        if self._shell is None:
            raise NotFoundError("this runtime has no shell")
        redactor = self._redactor
        stream = RedactedStream(redactor, show) if redactor is not None else None

        def take(text: str) -> None:
            self.client.wait(cancel)
            (show if stream is None else stream.feed)(text)

        with self._lock:
            self._shell_runs.add(cancel)
        try:
            ran = self._shell.run(command, take, cancel)
        finally:
            if stream is not None:
                stream.finish()
        if redactor is not None:
            ran = replace(ran, command=redactor.text(command), output=redactor.text(ran.output))
        body = shells.entry_of(ran, hidden=hidden) if entry is None else entry(ran)

        def add() -> None:
            self.session.append(body)

        self.when_idle(add)
        return ran

    def add_message(self, text: str, then: Callable[[], None] = lambda: None) -> None:
        """Add a message that the model reads with the next prompt; the model is not called now.
        `then`: called once it is added, which is after the current run."""
        redactor = self._redactor
        told = text if redactor is None else redactor.text(text)

        def add() -> None:
            self.session.append(Message("user", (Text(told),), time.time()))
            then()

        self.when_idle(add)

    def abort_shell(self) -> None:
        """Abort all running or upcoming shell commands, without waiting for their end."""
        with self._lock:
            running = list(self._shell_runs)
        for cancel in running:
            cancel.set()

    @property
    def is_jailed(self) -> bool:
        """Whether the tools are confined to the working directory."""
        return self._shell is not None and self._shell.jailed

    @property
    def jail_root(self) -> str:
        """Directory that confines the tools, links resolved; empty: they are not jailed."""
        return "" if self._shell is None else self._shell.jail_root

    def set_jail(self, on: bool) -> None:
        """Turn the jail on or off: confine the tools to the working directory.

        Raises:
            BusyError: a run is in flight; nothing changes.
            ConfigError: the directory cannot be a jail; nothing changes.
        """
        if self._shell is None:
            raise ConfigError("there are no built-in tools to keep in a jail")
        with self._idle("set_jail"):
            self._shell.set_jail(on)
            self.tools_changed()

    @property
    def has_background(self) -> bool:
        """Whether background commands may be running; changing the session waits for them."""
        return self._shell is not None and self._shell.has_background

    # --- inside ------------------------------------------------------------------------------

    def _end_background(self) -> None:
        """Stop background commands, because they belong to one session."""
        if self._shell is not None:
            self._shell.end_background()
