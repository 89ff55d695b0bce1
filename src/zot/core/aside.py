"""A question on the side: answered from the conversation as it is, and not added to it."""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import closing

from zot.cancel import Cancel
from zot.core.agent import Agent
from zot.core.cost import priced
from zot.errors import BadResponse
from zot.provider.retry import stream_with_retry
from zot.provider.types import Finished, Message, Provider, Request, Text, TextDelta, Usage

NOTE = (
    "[This is a question on the side. Answer it from what you know and from the conversation, "
    "briefly and without using tools. Neither it nor your answer becomes part of the conversation.]"
)


def ask_aside(
    agent: Agent, provider: Provider, question: str, show: Callable[[str], None], cancel: Cancel
) -> tuple[str, Usage]:
    """The answer, told piece by piece, and what it cost.

    Raises:
        ProviderError: the model failed.
        Cancelled: it was given up.
    """
    message = Message("user", (Text(f"{question}\n\n{NOTE}"),), time.time())
    request = Request(
        model=agent.model,
        system=agent.system(),
        messages=(*agent.messages(), message),
        # A transcript with calls in it is refused without their tools.
        tools=agent.toolbox.specs,
        cache_key=agent.session.id,
    )
    said: list[str] = []
    stream = stream_with_retry(provider, request, cancel, agent.settings.retry, ())
    with closing(stream):
        for event in stream:
            cancel.check()
            if isinstance(event, TextDelta):
                said.append(event.text)
                show(event.text)
            elif isinstance(event, Finished):
                return "".join(said), priced(event.usage, agent.model.price)
    raise BadResponse(f"{provider.name}: the stream ended without an end")
