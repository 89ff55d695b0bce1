"""Slash commands of extensions, skills and prompt files, and the panels of extensions."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Sequence

from zot.cancel import Cancel
from zot.core.source import (
    CommandInfo,
    CommandResult,
    CommandSource,
    ExtensionState,
    PanelSource,
    has_commands,
)
from zot.errors import NotFoundError
from zot.runtime.sources import Sources
from zot.text import compiled, nearest

RELOAD = "reload-ext"
"""The only command built into zot."""
_TYPED = r"(?s)/(\S+)(?:\s+(.*))?\Z"
_COMMAND = r"/([A-Za-z][\w:.-]*)(?=\s|\Z)"
"""Input that can only be a command: a path has more slashes."""


class Commands:
    def __init__(self, sources: Sources, check_idle: Callable[[str], None]) -> None:
        """`check_idle` raises BusyError if a run is active."""
        self._sources = sources
        self._check_idle = check_idle

    def all(self, cancel: Cancel | None = None) -> list[CommandInfo]:
        """Return all commands, each name once. Waits until extensions are ready."""
        self._sources.start()
        infos: dict[str, CommandInfo] = {}
        for source in self._commanding():
            for info in source.commands(cancel):
                infos.setdefault(info.name, self._sources.redacted(info))
        return list(infos.values())

    def run(self, name: str, args: str = "", cancel: Cancel | None = None) -> CommandResult:
        """Run a command and wait for its result.

        Raises:
            CommandError: there is no such command.
            BusyError: it is `reload-ext`, and a run is in flight.
            Cancelled: the caller gave up.
        """
        self._sources.start()
        name = name.removeprefix("/")
        if name.casefold() == RELOAD:
            names = ", ".join(state.name for state in self.reload_extensions()) or "none"
            return CommandResult("zot", "display", f"reloaded extensions: {names}")
        result = self._run(name, args, self._commanding(), cancel)
        if result is None:
            raise NotFoundError(f"unknown extension command {name!r}")
        return result

    def run_typed(self, text: str, cancel: Cancel | None = None) -> CommandResult | None:
        """Run typed text if it is `/name args` of a command; None: it is a prompt."""
        typed = compiled(_TYPED).match(text)
        if typed is None:
            return None
        self._sources.start()
        return self._run(typed[1], (typed[2] or "").strip(), self._commanding(), cancel)

    def expand(self, text: str) -> str:
        """Return a prompt for the model, with `/name args` of a skill or prompt file expanded."""
        typed = compiled(_TYPED).match(text)
        if typed is None:
            return text
        instant = (source for source in self._commanding() if source.instant)
        result = self._run(typed[1], (typed[2] or "").strip(), instant, None)
        return text if result is None else result.text

    def check_typed(self, text: str, more: Iterable[str] = ()) -> None:
        """Check typed text before it goes to the model, so that a misspelt command costs nothing.
        `more`: names of the front end's own commands.

        Raises:
            CommandError: it looks like a command and is none; says which is near.
        """
        typed = compiled(_COMMAND).match(text)
        if typed is None or os.path.exists(typed[0]):  # noqa: PTH110  a text, not a Path
            return  # /tmp is a directory, not a typo
        names = [*more, *(info.name for info in self.all())]
        near = nearest(typed[1], names)
        meant = f" (did you mean /{near[0]}?)" if near else ""
        text = f"there is no command {typed[0]} here{meant}; to ask about it, put a word before it"
        raise NotFoundError(text)

    def reload_extensions(self) -> list[ExtensionState]:
        """Stop all extensions and start those installed now. Raises BusyError."""
        self._check_idle("reload_ext")
        self._sources.start()
        return [state for source in self._sources.panels() for state in source.reload()]

    def _commanding(self) -> Iterator[CommandSource]:
        return (source for source in self._sources.sources if has_commands(source))

    def _run(
        self, name: str, args: str, sources: Iterable[CommandSource], cancel: Cancel | None
    ) -> CommandResult | None:
        for source in sources:
            own = _named(name, source.commands(cancel))
            if own or (source.prefix and name.removeprefix(source.prefix) not in ("", name)):
                return self._sources.redacted(source.run_command(own or name, args, cancel))
        return None

    # --- panels of extensions ----------------------------------------------------------------

    def panel_key(self, extension: str, panel_id: str, key: str, text: str = "") -> None:
        """Send a key to a panel; does not wait. Raises CommandError: no such extension runs."""
        self._to_panel(extension, lambda to: to.panel_key(extension, panel_id, key, text))

    def panel_resize(self, extension: str, panel_id: str, width: int, height: int) -> None:
        """Report the new size of a panel, in columns and rows."""
        self._to_panel(extension, lambda to: to.panel_resize(extension, panel_id, width, height))

    def panel_close(self, extension: str, panel_id: str) -> None:
        """Report that a panel was closed."""
        self._to_panel(extension, lambda to: to.panel_close(extension, panel_id))

    def _to_panel(self, extension: str, send: Callable[[PanelSource], bool]) -> None:
        if not any(map(send, self._sources.panels())):
            raise NotFoundError(f"extension {extension!r} is not running")


def _named(name: str, infos: Sequence[CommandInfo]) -> str:
    """Return the command with that name, ignoring case; an exact match is preferred."""
    names = [info.name for info in infos]
    if name in names:
        return name
    folded = name.casefold()
    return next((own for own in names if own.casefold() == folded), "")
