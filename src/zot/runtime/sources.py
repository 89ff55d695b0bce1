"""The sources of one runtime's tools, and the services that it offers to them."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from typing import TYPE_CHECKING

from zot.cancel import Cancel
from zot.core.agent import Agent
from zot.core.events import Event, ExtensionAsk
from zot.core.source import (
    NEVER,
    PanelSource,
    PersonAnswer,
    Question,
    ReadySource,
    ServerState,
    SourceHost,
    ToolSource,
    has_panels,
    has_servers,
)
from zot.core.tool import ChangingFile, Tool, ToolOutput
from zot.core.toolbox import Toolbox
from zot.provider.types import Model, ToolCall
from zot.runtime.redact import AnyStruct, Redactor
from zot.runtime.run import keep_change

if TYPE_CHECKING:
    from zot.runtime.runtime import Runtime


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
        self.sources = tuple(sources)
        self._changing = [source for source in self.sources if source.next_look != NEVER]
        self._agent = agent
        self._host = host
        self._tools: list[Tool] = []
        self._started = False
        self.refresh()

    def start(self) -> None:
        """Start all sources in the background."""
        self._started = True
        for source in self.sources:
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
        tools = [tool for source in self.sources for tool in source.tools()]
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
        """Call a tool of another source than the asker; see SourceHost."""
        others = [source for source in self.sources if source is not asker]
        tools = [tool for source in others for tool in source.tools()]
        return Toolbox(tools, self._agent.hooks).call(call, cancel, emit, changing_file)

    def is_tool_of(self, name: str, owner: object) -> bool:
        """Whether a call of this name reaches a tool of that source."""
        for source in self.sources:
            if any(tool.name == name for tool in source.tools()):
                return source is owner
        return False

    def close(self) -> None:
        for source in reversed(self.sources):  # earlier sources are needed longest
            source.close()

    def servers(self) -> list[ServerState]:
        """Return the states of all MCP servers."""
        sources = (source for source in self.sources if has_servers(source))
        return [self.redacted(state) for source in sources for state in source.servers()]

    def redacted(self, output: AnyStruct) -> AnyStruct:
        """Return a source's output without secrets."""
        return output if self._redactor is None else self._redactor.struct(output)

    def open_questions(self) -> list[str]:
        return [id for source in self.panels() for id in source.open_questions()]

    def answer(self, id: str, answer: PersonAnswer) -> bool:
        return any(source.answer(id, answer) for source in self.panels())

    def panels(self) -> Iterator[PanelSource]:
        return (source for source in self.sources if has_panels(source))


class RuntimeHost:
    """Services of a runtime for its sources; implements core.source.SourceHost."""

    def __init__(self, runtime: Runtime, redactor: Redactor | None) -> None:
        self._runtime = runtime
        self._redactor = redactor

    @property
    def model(self) -> Model:
        return self._runtime.models.current

    @property
    def session_id(self) -> str:
        return self._runtime.session.id

    @property
    def questions_before(self) -> int:
        durable = self._runtime.runs.durable
        return 0 if durable is None else durable.journal.state.dialogs

    def show(self, event: Event) -> None:
        """Send an unsolicited event. It is dropped while the client does not read: it must neither
        fill the memory nor block, because guards answer over the same channel."""
        event = event if self._redactor is None else self._redactor.struct(event)
        if isinstance(event, ExtensionAsk):
            self._runtime.dialogs.ask(event)
        elif not self._runtime.client.overfull():
            self._runtime.runs.tell(event)

    def add_listener(
        self, listener: Callable[[Event, object], None], *, first: bool = False
    ) -> None:
        self._runtime.runs.add_listener(listener, first=first)

    def can_answer(self, what: Question) -> bool:
        return self._runtime.client.can_answer(what)

    def submit(self, text: str, slash: bool) -> bool:
        return self._runtime.client.submit(text, slash)

    def tools_changed(self) -> None:
        self._runtime.sources.refresh()

    def call_tool(
        self, asker: ToolSource, call: ToolCall, cancel: Cancel, emit: Callable[[Event], None]
    ) -> ToolOutput:
        keep = partial(keep_change, self._runtime.session)
        return self._runtime.sources.call_tool(asker, call, cancel, emit, keep)
