"""User input other than prompts: commands of sources, keys for their panels, side questions."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Sequence

from zot.cancel import Cancel
from zot.core.aside import Aside, SideQuestion
from zot.core.cost import add
from zot.core.source import CommandInfo, CommandResult, ExtensionState, PanelSource
from zot.errors import CommandError, NotFoundError
from zot.provider.models import Models
from zot.provider.types import Message, ToolCall, ToolSpec
from zot.runtime.sources import Sources
from zot.runtime.workplace import Workplace
from zot.text import compiled, nearest

RELOAD = "reload-ext"
"""The only command built into zot."""
_COMMAND = r"/([A-Za-z][\w:.-]*)(?=\s|\Z)"
"""Input that can only be a command: a path has more slashes."""


class CommandedRuns(Workplace):
    _sources: Sources
    models: Models

    def start(self) -> None:
        """Start extensions; overridden by Runtime."""

    def ask_aside(
        self,
        question: str,
        show: Callable[[str], None] = lambda text: None,
        cancel: Cancel | None = None,
        earlier: Sequence[Message] = (),
        reads: Callable[[ToolCall], None] = lambda call: None,
    ) -> Aside:
        """Ask the model about the conversation without adding to it, even during a run. `show` gets
        the answer as it streams; `earlier`: messages of the previous side question, for a
        follow-up; `reads` gets each call that reads files.

        Raises:
            CommandError: nothing is asked.
            ProviderError: the model failed.
            Cancelled: the caller gave up.
        """
        if not question.strip():
            raise CommandError("there is no question")
        provider = self.models.connect(self.agent.model)  # a separate connection
        asked = SideQuestion(self.agent, provider, cancel or Cancel(), show=show, reads=reads)
        try:
            aside = asked.ask(question, earlier)
        finally:
            provider.close()
        with self._lock:
            self.agent.cumulative = add(self.agent.cumulative, aside.usage)
        return aside

    def tool_specs(self) -> Sequence[ToolSpec]:
        """Return the tool specs that are sent to the model."""
        return self.agent.toolbox.specs

    def is_full(self) -> bool:
        """Whether an automatic compaction is due before the next model call."""
        return self.agent.is_full()

    def expand(self, text: str) -> str:
        return self._sources.expand(text)

    def commands(self, cancel: Cancel | None = None) -> list[CommandInfo]:
        """Return all slash commands. Waits until extensions are ready."""
        self.start()
        return self._sources.commands(cancel)

    def run_command(self, name: str, args: str = "", cancel: Cancel | None = None) -> CommandResult:
        """Run a command of an extension, a skill or a prompt file, and wait for its result.

        Raises:
            CommandError: there is no such command.
            BusyError: it is `reload-ext`, and a run is in flight.
            Cancelled: the caller gave up.
        """
        self.start()
        if name.removeprefix("/").casefold() == RELOAD:
            names = ", ".join(state.name for state in self.reload_extensions()) or "none"
            return CommandResult("zot", "display", f"reloaded extensions: {names}")
        return self._sources.run_command(name, args, cancel)

    def run_typed(self, text: str, cancel: Cancel | None = None) -> CommandResult | None:
        """Run typed text if it is `/name args` of a command; None: it is a prompt."""
        if not text.startswith("/"):
            return None
        self.start()
        return self._sources.run_typed(text, cancel)

    def check_typed(self, text: str, more: Iterable[str] = ()) -> None:
        """Check typed text before it goes to the model, so that a misspelt command costs nothing.
        `more`: names of the front end's own commands.

        Raises:
            CommandError: it looks like a command and is none; says which is near.
        """
        typed = compiled(_COMMAND).match(text)
        if typed is None or os.path.exists(typed[0]):  # noqa: PTH110  a text, not a Path
            return  # /tmp is a directory, not a typo
        names = [*more, *(info.name for info in self.commands())]
        near = nearest(typed[1], names)
        meant = f" (did you mean /{near[0]}?)" if near else ""
        text = f"there is no command {typed[0]} here{meant}; to ask about it, put a word before it"
        raise NotFoundError(text)

    def reload_extensions(self) -> list[ExtensionState]:
        """Stop all extensions and start those installed now. Raises BusyError."""
        self._check_idle("reload_ext")
        self.start()
        return [state for source in self._sources.panels() for state in source.reload()]

    def panel_key(self, extension: str, panel_id: str, key: str, text: str = "") -> None:
        """Send a key to a panel; does not wait. Raises CommandError: no such extension runs."""
        self._to_panel(extension, lambda to: to.panel_key(extension, panel_id, key, text))

    def panel_resize(self, extension: str, panel_id: str, width: int, height: int) -> None:
        """Report the new size of a panel, in columns and rows."""
        self._to_panel(extension, lambda to: to.panel_resize(extension, panel_id, width, height))

    def panel_close(self, extension: str, panel_id: str) -> None:
        self._to_panel(extension, lambda to: to.panel_close(extension, panel_id))

    def _to_panel(self, extension: str, send: Callable[[PanelSource], bool]) -> None:
        if not any(map(send, self._sources.panels())):
            raise NotFoundError(f"extension {extension!r} is not running")
