"""What every engine of the swarm can be asked, wherever its agents run."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, Literal, Protocol

from zot.swarm.agent import AgentSummary
from zot.swarm.task import LogRow


class SwarmEngine(Protocol):
    """Tasks in, rows of a log out. Agents are named by their id or the beginning of it."""

    def submit(self, prompt: str, directory: str = ".", **options: Any) -> str:
        """Have a task done by a new agent; its id. It is kept when this returns. The options are
        the fields of `SwarmTask`."""
        ...

    def agents(self) -> Sequence[AgentSummary]:
        """Every agent as it stands."""
        ...

    def events(
        self, beginning: str, start: int = 0, *, follow: bool = False
    ) -> Iterator[tuple[int, LogRow]]:
        """Rows of its log from a position on, each with the position after it: whoever comes back
        with the last one it has misses nothing and hears nothing twice."""
        ...

    def send(self, agent: str, text: str) -> str:
        """A further message for when it has ended what it does; the name of the run."""
        ...

    def steer(self, agent: str, text: str) -> None:
        """A message that is heard after the current tool."""
        ...

    def approve(
        self,
        agent: str,
        request_id: str,
        decision: Literal["allow", "deny", "allow_session"],
        reason: str = "",
    ) -> None:
        """Let a tool run, or not."""
        ...

    def answer(
        self,
        agent: str,
        request_id: str,
        *,
        value: str | None = None,
        confirmed: bool = False,
        cancelled: bool = False,
    ) -> None:
        """Answer what an extension asked."""
        ...

    def cancel(self, agent: str) -> None:
        """Stop it; what it did stays."""
        ...
