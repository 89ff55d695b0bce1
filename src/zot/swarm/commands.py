"""What a client asks of the supervisor, one JSON object a line, and what it answers."""

from __future__ import annotations

from typing import Any, Literal

from msgspec import Struct

from zot.swarm.task import SwarmTask


class SwarmCommand(Struct, frozen=True, omit_defaults=True, tag_field="do"):
    pass


class OnAgent(SwarmCommand, frozen=True):
    agent: str
    """Its id, or the beginning of it."""


class Submit(SwarmCommand, frozen=True, tag="submit"):
    task: SwarmTask
    environment: dict[str, str] = {}
    """Of the terminal that it was given in. Kept in memory only: it has keys."""


class ListAgents(SwarmCommand, frozen=True, tag="list"):
    pass


class Send(OnAgent, frozen=True, tag="send"):
    """A further message, for when the agent has ended what it does."""

    text: str


class TellAgent(OnAgent, frozen=True, tag="tell"):
    """A command for the agent that runs, in the words of `zot rpc`, which checks the fields."""

    type: Literal["steer", "approve", "answer"]
    fields: dict[str, Any]


class CancelAgent(OnAgent, frozen=True, tag="cancel"):
    pass


class RetryAgent(OnAgent, frozen=True, tag="retry"):
    """Begin again where it was: after a failure, a cancel or crashes."""


class DiffAgent(OnAgent, frozen=True, tag="diff"):
    pass


class MergeAgent(OnAgent, frozen=True, tag="merge"):
    squash: bool = False


class CollectAnswer(OnAgent, frozen=True, tag="collect"):
    """The answer of this run was passed on: it is not told again."""

    run: str


class RemoveAgent(OnAgent, frozen=True, tag="remove"):
    pass


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


class SwarmReply(Struct, frozen=True, omit_defaults=True):
    ok: bool
    data: Any = None
    error: str = ""
    code: str = ""
