"""Lines of an agent's log, and the rows that the supervisor adds there among the agent's frames."""

from __future__ import annotations

from typing import Any, Literal

from msgspec import Struct

from zot.swarm.worktrees import DiffSize, Worktree


class SwarmRow(Struct, frozen=True, omit_defaults=True, tag_field="type"):
    """Base of the rows that the supervisor writes into an agent's log."""


class Messaged(SwarmRow, frozen=True, tag="swarm_message"):
    """A message was accepted for the agent; the first is its task."""

    run: str
    text: str


class TreeMade(SwarmRow, frozen=True, tag="swarm_tree"):
    tree: Worktree


class AgentStarted(SwarmRow, frozen=True, tag="swarm_started"):
    attempt: int
    pid: int


class RunsOn(SwarmRow, frozen=True, tag="swarm_model"):
    """The model that the agent starts with, and its context window in tokens."""

    model: str
    context_window: int = 0

    def window_of(self, model: str) -> int:
        """Return the context window; 0: unknown, because the agent changed its model."""
        return self.context_window if model in ("", self.model) else 0


class Claimed(SwarmRow, frozen=True, tag="swarm_claimed"):
    """A remote worker claimed the task. The previous holder may add nothing more."""

    attempt: int
    worker: str

    @property
    def machine(self) -> str:
        """The worker's host; worker names are HOST-PID-NUMBER."""
        return self.worker.rsplit("-", 2)[0]


class RunOver(SwarmRow, frozen=True, tag="swarm_run_over"):
    run: str
    outcome: Literal["answered", "aborted", "failed", "limit"]
    error: str = ""


class Exited(SwarmRow, frozen=True, tag="swarm_exited"):
    code: int
    said: str = ""
    """The end of its stderr."""


class AgentCancelled(SwarmRow, frozen=True, tag="swarm_cancelled"):
    pass


class Lost(SwarmRow, frozen=True, tag="swarm_lost"):
    """The agent cannot go on; `retry` continues where it was."""

    reason: str


class Retried(SwarmRow, frozen=True, tag="swarm_retried"):
    pass


class Sized(SwarmRow, frozen=True, tag="swarm_size"):
    size: DiffSize


class Merged(SwarmRow, frozen=True, tag="swarm_merged"):
    tip: str
    squash: bool = False
    commit: str = ""
    """The resulting commit in the checkout; empty for a copy."""


class Collected(SwarmRow, frozen=True, tag="swarm_collected"):
    """The result of this run was passed to the conversation that started the agent."""

    run: str


AnySwarmRow = (
    Messaged | TreeMade | Claimed | AgentStarted | RunOver | Exited | AgentCancelled
    | Lost | Retried | Sized | Merged | Collected | RunsOn
)  # fmt: skip


class LogRow(Struct, frozen=True):
    """A line of an agent's log."""

    seq: int
    at: float
    frame: dict[str, Any]
