"""Who drives a runtime and hears of it. A door overrides what it can do; the rest is harmless."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from zot.cancel import Cancel
    from zot.core.events import Event
    from zot.core.source import Question
    from zot.runtime.run import Run
    from zot.runtime.runtime import Runtime


BETWEEN = "/"
"""Between the name of an agent and the id of its question, where the question is asked in another
agent's name."""


class RuntimeClient:
    def listen(self, event: Event, run: Run | None) -> None:
        """Hear of one event, in order; must not block. No run: it belongs to none."""

    def wait(self, cancel: Cancel) -> None:
        """Called before each event of a run: where a slow client slows the turn down."""

    def overfull(self) -> bool:
        """Whether it reads so little that what nobody asked for should be left out."""
        return False

    def submit(self, text: str, slash: bool) -> bool:
        """An extension wants this said, or (`slash`) this command run; False: only the client
        itself does such things."""
        return False

    def for_agent(self, name: str, parent: str) -> RuntimeClient | None:
        """Who listens to an agent that a tool of `parent` opens; None: this client cannot tell
        agents apart."""
        return None

    def agent_event(self, agent: str, parent: str, event: Event) -> None:
        """Hear of what an agent does that a tool of `parent` opened, where it has no listener of
        its own; as `listen`."""

    def agent_opened(self, runtime: Runtime) -> None:
        """The agent that it listens to is there; nothing of it was told yet."""

    def agent_closed(self) -> None:
        """The agent is gone; nothing more will be told."""

    def can_answer(self, what: Question) -> bool:
        """Whether somebody is there who sees questions of this kind, and answers them."""
        return False
