"""Requests to the supervisor and its reply, one JSON object per line."""

from __future__ import annotations

from typing import Any, Literal

from msgspec import Struct

from zot.swarm.task import SwarmTask


class SwarmCommand(Struct, frozen=True, omit_defaults=True, tag_field="do"):
    pass


class OnAgent(SwarmCommand, frozen=True):
    agent: str
    """The agent's id or a prefix of it."""


class Submit(SwarmCommand, frozen=True, tag="submit"):
    task: SwarmTask
    environment: dict[str, str] = {}
    """Environment of the submitting terminal. Kept in memory only, as it holds keys."""


class ListAgents(SwarmCommand, frozen=True, tag="list"):
    pass


class Send(OnAgent, frozen=True, tag="send"):
    """Queue a message for after the agent's current run."""

    text: str


class TellAgent(OnAgent, frozen=True, tag="tell"):
    """Pass a command of `zot rpc` to the running agent, which checks the fields."""

    type: Literal["steer", "approve", "answer"]
    fields: dict[str, Any]


class CancelAgent(OnAgent, frozen=True, tag="cancel"):
    pass


class RetryAgent(OnAgent, frozen=True, tag="retry"):
    """Continue where the agent was, after a failure, a cancel or crashes."""


class DiffAgent(OnAgent, frozen=True, tag="diff"):
    pass


class MergeAgent(OnAgent, frozen=True, tag="merge"):
    squash: bool = False


class CollectAnswer(OnAgent, frozen=True, tag="collect"):
    """Mark the answer of this run as passed on, so that it is not reported again."""

    run: str


class RemoveAgent(OnAgent, frozen=True, tag="remove"):
    pass


class CollectGarbage(SwarmCommand, frozen=True, tag="gc"):
    """Remove agents whose work is merged or who did none; `try_only` only names them."""

    try_only: bool = False


class FreedAgent(Struct, frozen=True):
    """An agent that was removed, or would be."""

    id: str
    bytes: int
    """Size on disk."""


class StopSupervisor(SwarmCommand, frozen=True, tag="stop"):
    """Stop the supervisor. Running agents are interrupted; the next supervisor continues them."""


AnySwarmCommand = (
    Submit
    | ListAgents
    | Send
    | TellAgent
    | CancelAgent
    | RetryAgent
    | DiffAgent
    | MergeAgent
    | CollectAnswer
    | RemoveAgent
    | CollectGarbage
    | StopSupervisor
)


STOPPING = "stopping"
"""Code of a reply: the supervisor is ending and did not begin the command."""


class SwarmReply(Struct, frozen=True, omit_defaults=True):
    ok: bool
    data: Any = None
    error: str = ""
    code: str = ""
