"""What a client asks of the supervisor, one JSON object a line, and what it answers."""

from __future__ import annotations

from typing import Any, Literal

from msgspec import Struct

from zot.swarm.task import SwarmTask


class SwarmCommand(Struct, frozen=True, omit_defaults=True, tag_field="do"):
    pass


class Submit(SwarmCommand, frozen=True, tag="submit"):
    task: SwarmTask
    environment: dict[str, str] = {}
    """Of the terminal that it was given in. Kept in memory only: it has keys."""


class ListAgents(SwarmCommand, frozen=True, tag="list"):
    pass


class Send(SwarmCommand, frozen=True, tag="send"):
    """A further message, for when the agent has ended what it does."""

    agent: str
    text: str


class SteerAgent(SwarmCommand, frozen=True, tag="steer"):
    """A message that is heard after the current tool."""

    agent: str
    text: str


class AnswerAgent(SwarmCommand, frozen=True, tag="answer"):
    """An approval (decision), or what an extension asked (value, confirmed, cancelled)."""

    agent: str
    request_id: str
    decision: Literal["", "allow", "deny", "allow_session"] = ""
    reason: str = ""
    value: str | None = None
    confirmed: bool = False
    cancelled: bool = False


class CancelAgent(SwarmCommand, frozen=True, tag="cancel"):
    agent: str


class RetryAgent(SwarmCommand, frozen=True, tag="retry"):
    """Begin again where it was: after a failure, a cancel or crashes."""

    agent: str


class DiffAgent(SwarmCommand, frozen=True, tag="diff"):
    agent: str


class MergeAgent(SwarmCommand, frozen=True, tag="merge"):
    agent: str
    squash: bool = False


class CollectAnswer(SwarmCommand, frozen=True, tag="collect"):
    """The answer of this run was passed on: it is not told again."""

    agent: str
    run: str


class RemoveAgent(SwarmCommand, frozen=True, tag="remove"):
    agent: str


class CollectGarbage(SwarmCommand, frozen=True, tag="gc"):
    """Remove the agents whose work is merged or who did none; `try_only` names them."""

    try_only: bool = False


class FreedAgent(Struct, frozen=True):
    """One that was removed, or would be."""

    id: str
    bytes: int
    """On the disk."""


class StopSupervisor(SwarmCommand, frozen=True, tag="stop"):
    """End it. Agents that work are cut, and go on when it is started again."""


AnySwarmCommand = (
    Submit
    | ListAgents
    | Send
    | SteerAgent
    | AnswerAgent
    | CancelAgent
    | RetryAgent
    | DiffAgent
    | MergeAgent
    | CollectAnswer
    | RemoveAgent
    | CollectGarbage
    | StopSupervisor
)


class SwarmReply(Struct, frozen=True, omit_defaults=True):
    ok: bool
    data: Any = None
    error: str = ""
    code: str = ""
