"""Base class of a runtime's clients, with harmless defaults for unsupported operations."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from zot.cancel import Cancel
    from zot.core.events import Event
    from zot.core.source import Question
    from zot.runtime.run import Run
    from zot.runtime.runtime import Runtime


BETWEEN = "/"
"""Separator between agent name and request id, when a request is forwarded for another agent."""


class RuntimeClient:
    def listen(self, event: Event, run: Run | None) -> None:
        """Receive one event, in order; must not block. `run` None: the event belongs to no run."""

    def wait(self, cancel: Cancel) -> None:
        """Block a run before each event while the client is slow."""

    def overfull(self) -> bool:
        """Whether the client reads so slowly that unsolicited events should be dropped."""
        return False

    def submit(self, text: str, slash: bool) -> bool:
        """Submit a prompt, or (`slash`) a command, for an extension; False: not supported here."""
        return False

    def for_agent(self, name: str, parent: str) -> RuntimeClient | None:
        """Return the client for an agent that a tool of `parent` opens; None: not supported,
        because this client cannot distinguish agents."""
        return None

    def agent_event(self, agent: str, parent: str, event: Event) -> None:
        """Receive an event of an agent that a tool of `parent` opened and that has no client of its
        own; as `listen`."""

    def agent_opened(self, runtime: Runtime) -> None:
        """Attach the agent's runtime, before its first event."""

    def agent_closed(self) -> None:
        """Handle the end of the agent; no more events follow."""

    def can_answer(self, what: Question) -> bool:
        """Whether a person can see and answer questions of this kind."""
        return False
