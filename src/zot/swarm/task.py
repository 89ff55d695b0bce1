"""The stored records of a swarm agent: its task, and the rows the supervisor adds to its log."""

from __future__ import annotations

import re
import secrets
from typing import Any, Literal

from msgspec import Struct

from zot.errors import ZotError
from zot.provider.types import Model

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
    jail: bool | str = False
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
    jail: bool | str


def inherited(conversation: Conversation, words: tuple[str, ...]) -> dict[str, Any]:
    """Return the options of a task with the conversation's model and directory, and no more
    permissions than it has. `words` are arguments for its `zot rpc`."""
    return {
        "directory": conversation.cwd,
        "provider": conversation.model.provider,
        "model": conversation.model.id,
        "approve": conversation.asked_tools,
        "jail": conversation.jail,
        "parent": conversation.session_id,
        "words": words,
    }


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
