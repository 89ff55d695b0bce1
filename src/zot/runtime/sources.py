"""The sources of one runtime: provide tools between runs, and commands."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Sequence

from zot.cancel import Cancel
from zot.core.agent import Agent
from zot.core.events import Event
from zot.core.source import (
    NEVER,
    CommandInfo,
    CommandResult,
    CommandSource,
    PanelSource,
    PersonAnswer,
    ReadySource,
    ServerState,
    SourceHost,
    ToolSource,
    has_commands,
    has_panels,
    has_servers,
)
from zot.core.tool import ChangingFile, Tool, ToolOutput
from zot.core.toolbox import Toolbox
from zot.errors import NotFoundError
from zot.provider.types import ToolCall
from zot.runtime.redact import AnyStruct, Redactor
from zot.text import compiled

_TYPED = r"(?s)/(\S+)(?:\s+(.*))?\Z"


class GivenTools(ReadySource):
    """Source for the tools of an embedder, which never change."""

    name = "own"

    def __init__(self, tools: Iterable[Tool]) -> None:
        self._tools = tuple(tools)

    def tools(self) -> Sequence[Tool]:
        return self._tools


class Sources:
    def __init__(
        self,
        sources: Iterable[ToolSource],
        agent: Agent,
        host: SourceHost,
        redactor: Redactor | None = None,
    ) -> None:
        """`redactor`: applied to all output of sources."""
        self._redactor = redactor
        self._sources = tuple(sources)
        self._changing = [source for source in self._sources if source.next_look != NEVER]
        self._agent = agent
        self._host = host
        self._tools: list[Tool] = []
        self._started = False
        self.refresh()

    def start(self) -> None:
        """Start all sources in the background."""
        self._started = True
        for source in self._sources:
            source.start(self._host)

    def prepare(self, cancel: Cancel) -> None:
        """Wait, before a run, until all sources are ready, and give their current tools to the
        agent.

        Raises:
            Cancelled: the run was aborted meanwhile.
        """
        if not self._started:
            self.start()
        now, due = time.monotonic(), []
        for source in self._changing:
            if source.next_look <= now:
                source.start(self._host)
                due.append(source)
        if due:
            for source in due:
                source.prepare(cancel)
            self.refresh()

    def refresh(self) -> None:
        """Give the agent a new toolbox if the tools have changed; between runs only."""
        tools = [tool for source in self._sources for tool in source.tools()]
        if tools != self._tools:
            self._tools = tools
            self._agent.set_tools(tools)

    def call_tool(
        self,
        asker: ToolSource,
        call: ToolCall,
        cancel: Cancel,
        emit: Callable[[Event], None],
        changing_file: ChangingFile,
    ) -> ToolOutput:
        """See SourceHost."""
        others = [source for source in self._sources if source is not asker]
        tools = [tool for source in others for tool in source.tools()]
        return Toolbox(tools, self._agent.hooks).call(call, cancel, emit, changing_file)

    def is_tool_of(self, name: str, owner: object) -> bool:
        """Whether a call of this name reaches a tool of that source."""
        for source in self._sources:
            if any(tool.name == name for tool in source.tools()):
                return source is owner
        return False

    def close(self) -> None:
        for source in reversed(self._sources):  # earlier sources are needed longest
            source.close()

    # --- commands ----------------------------------------------------------------------------

    def commands(self, cancel: Cancel | None = None) -> list[CommandInfo]:
        """Return all slash commands, each name once."""
        infos: dict[str, CommandInfo] = {}
        for source in self._commanding():
            for info in source.commands(cancel):
                infos.setdefault(info.name, self._clean(info))
        return list(infos.values())

    def run_command(self, name: str, args: str, cancel: Cancel | None = None) -> CommandResult:
        """Run a command. Raises CommandError when there is no such command."""
        name = name.removeprefix("/")
        result = self._run(name, args, self._commanding(), cancel)
        if result is None:
            raise NotFoundError(f"unknown extension command {name!r}")
        return result

    def run_typed(self, text: str, cancel: Cancel | None = None) -> CommandResult | None:
        """Run typed text if it is `/name args` of a command; None: it is a prompt."""
        typed = text.startswith("/") and compiled(_TYPED).match(text)
        if not typed:
            return None
        return self._run(typed[1], (typed[2] or "").strip(), self._commanding(), cancel)

    def expand(self, text: str) -> str:
        """Return a prompt for the model, with `/name args` of a skill or prompt file expanded."""
        typed = text.startswith("/") and compiled(_TYPED).match(text)
        if not typed:
            return text
        instant = (source for source in self._commanding() if source.instant)
        result = self._run(typed[1], (typed[2] or "").strip(), instant, None)
        return text if result is None else result.text

    def _commanding(self) -> Iterator[CommandSource]:
        return (source for source in self._sources if has_commands(source))

    def _run(
        self, name: str, args: str, sources: Iterable[CommandSource], cancel: Cancel | None
    ) -> CommandResult | None:
        for source in sources:
            own = _named(name, source.commands(cancel))
            if own or (source.prefix and name.removeprefix(source.prefix) not in ("", name)):
                return self._clean(source.run_command(own or name, args, cancel))
        return None

    def _clean(self, said: AnyStruct) -> AnyStruct:
        return said if self._redactor is None else self._redactor.struct(said)

    def servers(self) -> list[ServerState]:
        """Return the states of all MCP servers."""
        sources = (source for source in self._sources if has_servers(source))
        return [self._clean(state) for source in sources for state in source.servers()]

    # --- what extensions show ----------------------------------------------------------------

    def open_questions(self) -> list[str]:
        return [id for source in self.panels() for id in source.open_questions()]

    def answer(self, id: str, answer: PersonAnswer) -> bool:
        return any(source.answer(id, answer) for source in self.panels())

    def panels(self) -> Iterator[PanelSource]:
        return (source for source in self._sources if has_panels(source))


def _named(name: str, infos: Sequence[CommandInfo]) -> str:
    """Return the command with that name, ignoring case; an exact match is preferred."""
    names = [info.name for info in infos]
    if name in names:
        return name
    folded = name.casefold()
    return next((own for own in names if own.casefold() == folded), "")
