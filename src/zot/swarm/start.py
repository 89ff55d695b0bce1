"""What an agent of the swarm inherits of the conversation that starts it."""

from __future__ import annotations

from typing import Any, Protocol

from zot.provider.types import Model


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
