"""What the swarm keeps of an agent: the task it was given, and rows of what happened since."""

from __future__ import annotations

import re
import secrets
from typing import Any, Literal, Protocol

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
    """Written once, when the task is taken; never changed."""

    id: str
    prompt: str
    directory: str
    created: float
    """Seconds since 1970."""
    provider: str = ""
    model: str = ""
    base: str = ""
    """The branch or commit to begin with; empty: what is checked out."""
    here: bool = False
    """Work in the directory itself, without a tree of its own."""
    approve: tuple[str, ...] = ()
    jail: bool = False
    max_cost: float | None = None
    max_tokens: int | None = None
    max_seconds: float | None = None
    max_steps: int | None = None
    priority: int = 0
    after: tuple[str, ...] = ()
    """Agents that have to be done before this one begins."""
    parent: str = ""
    """The conversation or agent that started it."""
    words: tuple[str, ...] = ()
    """Further words for `zot rpc`."""
    engine: Literal["", "temporal"] = ""
    """Who runs it; empty: the supervisor, as a child of its own."""


class Conversation(Protocol):
    """A runtime, as far as an agent beside it is concerned."""

    @property
    def model(self) -> Model: ...

    @property
    def cwd(self) -> str: ...

    @property
    def session_id(self) -> str: ...

    @property
    def asked_tools(self) -> tuple[str, ...]: ...

    @property
    def is_jailed(self) -> bool: ...


def inherited(conversation: Conversation, words: tuple[str, ...]) -> dict[str, Any]:
    """Options of a task: the same model and directory, and no more freedom than there. `words` are
    for its `zot rpc`."""
    return {
        "directory": conversation.cwd,
        "provider": conversation.model.provider,
        "model": conversation.model.id,
        "approve": conversation.asked_tools,
        "jail": conversation.is_jailed,
        "parent": conversation.session_id,
        "words": words,
    }


# --- rows of the swarm itself, among the frames of the agent --------------------------------------


class SwarmRow(Struct, frozen=True, omit_defaults=True, tag_field="type"):
    """Base of the rows that the supervisor writes into an agent's log."""


class Messaged(SwarmRow, frozen=True, tag="swarm_message"):
    """A message was taken for the agent; the first is its task."""

    run: str
    text: str


class TreeMade(SwarmRow, frozen=True, tag="swarm_tree"):
    tree: Worktree


class AgentStarted(SwarmRow, frozen=True, tag="swarm_started"):
    attempt: int
    pid: int


class RunsOn(SwarmRow, frozen=True, tag="swarm_model"):
    """The model that it begins with, and how much that reads at most."""

    model: str
    context_window: int = 0

    def window_of(self, model: str) -> int:
        """0: it runs on another one by now, whose window nobody has told."""
        return self.context_window if model in ("", self.model) else 0


class Claimed(SwarmRow, frozen=True, tag="swarm_claimed"):
    """A worker elsewhere took it. Whoever had it before may add nothing more."""

    attempt: int
    worker: str

    @property
    def machine(self) -> str:
        """Of the worker, whose name is HOST-PID-NUMBER."""
        return self.worker.rsplit("-", 2)[0]


class RunOver(SwarmRow, frozen=True, tag="swarm_run_over"):
    run: str
    outcome: Literal["answered", "aborted", "failed", "limit"]
    error: str = ""


class Exited(SwarmRow, frozen=True, tag="swarm_exited"):
    code: int
    said: str = ""
    """The end of what it wrote to stderr."""


class AgentCancelled(SwarmRow, frozen=True, tag="swarm_cancelled"):
    pass


class Lost(SwarmRow, frozen=True, tag="swarm_lost"):
    """It cannot go on; `retry` begins again where it was."""

    reason: str


class Retried(SwarmRow, frozen=True, tag="swarm_retried"):
    pass


class Sized(SwarmRow, frozen=True, tag="swarm_size"):
    size: DiffSize


class Merged(SwarmRow, frozen=True, tag="swarm_merged"):
    tip: str
    squash: bool = False
    commit: str = ""
    """What came of it in the checkout; of a copy: none."""


class Collected(SwarmRow, frozen=True, tag="swarm_collected"):
    """The conversation that started it has heard how this run ended."""

    run: str


AnySwarmRow = (
    Messaged | TreeMade | Claimed | AgentStarted | RunOver | Exited | AgentCancelled
    | Lost | Retried | Sized | Merged | Collected | RunsOn
)  # fmt: skip


class LogRow(Struct, frozen=True):
    """One line of an agent's log."""

    seq: int
    at: float
    frame: dict[str, Any]


def new_id(prompt: str) -> str:
    """A name that a person can type the beginning of, and that does not come twice."""
    words = re.sub(r"[^a-z0-9]+", "-", prompt.lower()).strip("-")[:SLUG_LENGTH].strip("-")
    return f"{words or 'task'}-{secrets.token_hex(3)}"


def pick(ids: list[str], beginning: str) -> str:
    """The one id that begins like this. Raises NoSuchAgent."""
    if beginning in ids:
        return beginning
    matching = [id for id in ids if beginning and id.startswith(beginning)]
    if len(matching) == 1:
        return matching[0]
    if not matching:
        raise NoSuchAgent(f"no agent {beginning!r}; `zot swarm list` shows them")
    raise NoSuchAgent(f"{beginning!r} could be {', '.join(matching[:5])}: give more of the id")
