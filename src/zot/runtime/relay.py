"""Client of an agent opened by a tool, for parent clients that cannot distinguish agents: forwards
approval requests in the parent's name, and shows the agent's tool calls as progress of the tool.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from msgspec.structs import replace

from zot.core import events
from zot.core.events import Event
from zot.errors import Cancelled
from zot.runtime.client import BETWEEN, RuntimeClient

if TYPE_CHECKING:
    from zot.cancel import Cancel
    from zot.core.source import Question
    from zot.runtime.run import Run
    from zot.runtime.runtime import Runtime


class Relay(RuntimeClient):
    def __init__(self, parent: Runtime, name: str, progress: Callable[[str], None]) -> None:
        self._parent = parent
        self._name = name
        self._progress = progress

    def listen(self, event: Event, run: Run | None) -> None:
        self.agent_event(self._name, self._parent.name, event)
        match event:
            case events.ApprovalRequest() | events.ApprovalResolved():
                named = replace(event, id=f"{self._name}{BETWEEN}{event.id}")
                self._parent.runs.tell(named, self._parent.runs.running)
            case events.ToolCalled(call):
                try:
                    self._progress(f"[{self._name}] {call.name}\n")
                except Cancelled:
                    pass  # the parent's run was given up
            case _:
                pass

    def agent_event(self, agent: str, parent: str, event: Event) -> None:
        """Forward an event, including those of agents that the agent opened."""
        self._parent.client.agent_event(agent, parent, event)

    def wait(self, cancel: Cancel) -> None:
        self._parent.client.wait(cancel)

    def overfull(self) -> bool:
        return self._parent.client.overfull()

    def can_answer(self, what: Question) -> bool:
        """Extension questions are not forwarded: they have no agent field."""
        return what == "approval" and self._parent.client.can_answer(what)
