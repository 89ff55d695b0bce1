"""The stored records of a swarm agent: its task, and the rows the supervisor adds to its log."""

from __future__ import annotations

import re
import secrets
from typing import Any, Literal

from msgspec import Struct

from zot.errors import ZotError
from zot.provider.types import Model
from zot.swarm.worktrees import DiffSize, Worktree

SLUG_LENGTH = 24


class SwarmError(ZotError):
    code = "swarm"


class NoSuchAgent(SwarmError):
    code = "not_found"


class BadTask(SwarmError):
    code = "invalid_params"


class SwarmTask(Struct, frozen=True, omit_defaults=True):
    """A task. Written once, when it is accepted; never changed."""

    id: str
    prompt: str
    directory: str
    created: float
    """Seconds since 1970."""
    provider: str = ""
    model: str = ""
    base: str = ""
    """The branch or commit to begin with; empty: HEAD."""
    here: bool = False
    """Work in the directory itself, without a separate tree."""
    approve: tuple[str, ...] = ()
    jail: bool = False
    max_cost: float | None = None
    max_tokens: int | None = None
    max_seconds: float | None = None
    max_steps: int | None = None
    priority: int = 0
    after: tuple[str, ...] = ()
    """Agents that must be done before this one begins."""
    parent: str = ""
    """The conversation or agent that started it."""
    words: tuple[str, ...] = ()
    """Further arguments for `zot rpc`."""
    engine: Literal["", "temporal"] = ""
    """The engine that runs the task; empty: the supervisor, in a child process."""


class Conversation(Struct, frozen=True):
    """The part of a runtime that agents started from it need."""

    model: Model
    cwd: str
    session_id: str
    asked_tools: tuple[str, ...]
    """Tools that need approval."""
    jailed: bool


def inherited(conversation: Conversation, words: tuple[str, ...]) -> dict[str, Any]:
    """Return the options of a task with the conversation's model and directory, and no more
    permissions than it has. `words` are arguments for its `zot rpc`."""
    return {
        "directory": conversation.cwd,
        "provider": conversation.model.provider,
        "model": conversation.model.id,
        "approve": conversation.asked_tools,
        "jail": conversation.jailed,
        "parent": conversation.session_id,
        "words": words,
    }


# --- the swarm's own rows in the log, among the agent's frames ------------------------------------


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


def new_id(prompt: str) -> str:
    """Return a unique id that starts with words of the prompt, so that it is easy to type."""
    words = re.sub(r"[^a-z0-9]+", "-", prompt.lower()).strip("-")[:SLUG_LENGTH].strip("-")
    return f"{words or 'task'}-{secrets.token_hex(3)}"


def pick(ids: list[str], beginning: str) -> str:
    """Return the one id with this prefix. Raises NoSuchAgent."""
    if beginning in ids:
        return beginning
    matching = [id for id in ids if beginning and id.startswith(beginning)]
    if len(matching) == 1:
        return matching[0]
    if not matching:
        raise NoSuchAgent(f"no agent {beginning!r}; `zot swarm list` shows them")
    raise NoSuchAgent(f"{beginning!r} could be {', '.join(matching[:5])}: give more of the id")
