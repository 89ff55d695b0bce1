"""The built-in tools as a source, with their Place (jailed or not) and its shell."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, cast

from zot.cancel import Cancel
from zot.core.confinement import NO_JAIL, JailPolicy, JailReport, JailWords, with_words
from zot.core.source import ReadySource, SourceHost
from zot.core.tool import Tool
from zot.errors import CommandError
from zot.home import Surroundings
from zot.provider.types import ToolCall
from zot.tools import registry
from zot.tools.process.background import Background

if TYPE_CHECKING:
    from zot.core.changes import PlannedChange
    from zot.core.shell import Program, ShellOutput, Tell
    from zot.tools.bash import Bash
    from zot.tools.edit.edit import EditedFiles
    from zot.tools.jail.jail import Jail

SHORT = 2_000
"""Length in characters below which a text is never too long."""


class BuiltinTools(ReadySource):
    """A ToolSource, and the Shell and the Files of the same Place. Starts no process before one is
    needed."""

    name = "built-in"

    def __init__(
        self,
        cwd: str,
        around: Surroundings,
        names: Sequence[str] | None,
        secret_names: frozenset[str],
        supervisor: registry.SharedSupervisor,
        *,
        policy: JailPolicy = NO_JAIL,
        owns_helper: bool = True,
        every: bool = False,
    ) -> None:
        """`owns_helper`: close the supervisor with these tools, since no others use it; `every`:
        offer the tools for background commands from the start, as a replay never starts one.

        Raises:
            ConfigError: an unknown tool name, or a directory that cannot be a jail.
        """
        self._cwd, self._around = cwd, around
        self._names, self._every = names, every
        self._secret_names = secret_names
        self._supervisor, self._owns_helper = supervisor, owns_helper
        self._policy = policy
        self._place = registry.SharedPlace(cwd, around.environ)
        self._tools: list[Tool] = []
        self._host: SourceHost | None = None
        self._background = Background(self._tools_changed)
        self._later = [
            registry.BackgroundTool(name, self._background) for name in registry.BACKGROUND
        ]
        self._use(policy)

    # --- ToolSource --------------------------------------------------------------------------

    def start(self, host: SourceHost) -> None:
        self._host = host

    def tools(self) -> Sequence[Tool]:
        later = self._every or self._background.used
        return [*self._tools, *self._later] if later else self._tools

    def _tools_changed(self) -> None:
        if self._host is not None:
            self._host.tools_changed()

    def close(self) -> None:
        self._background.end_all()
        if self._owns_helper:
            self._supervisor.close()

    # --- Files -------------------------------------------------------------------------------

    def content(self, path: str) -> bytes | None:
        return self._files().content(path)

    def put(self, path: str, content: bytes | None, expected: bytes | None) -> None:
        self._files().put(path, content, expected)

    def diff(self, before: bytes | None, after: bytes | None) -> str:
        return self._files().diff(before, after)

    def planned(self, call: ToolCall) -> PlannedChange | None:
        return self._files().planned(call)

    def _files(self) -> EditedFiles:
        from zot.tools.edit.edit import EditedFiles

        return EditedFiles(self._place.get())

    # --- Shell -------------------------------------------------------------------------------

    @property
    def jailed(self) -> bool:
        return self._place.jail

    @property
    def jail_words(self) -> JailWords:
        return self._policy.words

    @property
    def jail_root(self) -> str:
        return self._jail().root if self.jailed else ""

    def jail_report(self) -> JailReport | None:
        return self._jail().report() if self.jailed else None

    def _jail(self) -> Jail:
        return cast("Jail", self._place.get())

    def set_jail(self, words: JailWords) -> None:
        policy = with_words(self._policy, words)
        if policy != self._policy:
            self._use(policy)

    def _use(self, policy: JailPolicy) -> None:
        environ, home = self._around.environ, self._around.home
        place = registry.SharedPlace(self._cwd, environ, home=home, policy=policy)
        self._tools = registry.builtin_tools(
            place, self._names, self._secret_names, self._supervisor, self._background
        )
        self._place, self._policy = place, policy

    def confined(
        self, program: Program, cancel: Cancel, tell: Tell
    ) -> contextlib.AbstractContextManager[Program]:
        """See core.shell.Confine."""
        if not self.jailed:
            return contextlib.nullcontext(program)
        return self._jail().confined(self._supervisor.get(), program, cancel, tell)

    @property
    def has_background(self) -> bool:
        return self._background.used

    @property
    def background(self) -> Background:
        return self._background

    def end_background(self) -> None:
        self._background.end_all()

    def shorten(self, text: str) -> str:
        """Shorten a text as `bash` does its output."""
        return text if len(text) < SHORT else self._bash().shorten(text)

    def run(self, command: str, show: Callable[[str], None], cancel: Cancel) -> ShellOutput:
        if not command.strip() or "\0" in command:
            raise CommandError("the command is empty, or holds a NUL character")
        return self._bash().run_typed(command, show, cancel)

    def _bash(self) -> Bash:
        from zot.tools.bash import Bash

        shared = self._supervisor
        return Bash(self._place.get(), shared.get(), self._secret_names, shared.secrets)
