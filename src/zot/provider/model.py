"""A model, and what it costs: what has to be known of one before it is asked anything. Apart from
the vocabulary of a conversation, because the first answer of `zot rpc` needs only this.
"""

from __future__ import annotations

from typing import Any, Literal

from zot.text import Frozen

Json = Any
"""JSON that was not parsed into a type: the one place where `Any` is right."""

Level = Literal["off", "minimum", "low", "medium", "high", "xhigh", "max"]
LEVELS: tuple[Level, ...] = ("off", "minimum", "low", "medium", "high", "xhigh", "max")
Api = Literal["anthropic", "openai-chat", "openai-responses", "google", "scripted"]


class Plain(Frozen, gc=False):
    """Base of messages, of what they are made of, and of what else is in a transcript: built once
    from JSON, they cannot form cycles, and a long one would slow down every garbage collection."""


class Price(Plain):
    """US dollars per million tokens."""

    input: float
    output: float
    cache_read: float = 0.0
    cache_write: float = 0.0


class Model(Frozen):
    id: str
    provider: str
    api: Api
    name: str = ""
    context_window: int = 128_000
    max_output: int = 8_192
    reasoning: bool = False
    images: bool = True
    price: Price | None = None
    """None: not known, and said so wherever a cost is shown."""
    base_url: str = ""
    """Overrides the provider's; empty for nearly all."""
    headers: dict[str, str] | None = None
    compat: dict[str, Json] | None = None
    """Quirks of this model, read by the API files only (see provider/providers.py)."""
    source: str = "catalog"
    """catalog, live, cache, user or unlisted."""
    ask: Literal["", "person", "always"] = ""
    """Whether its tool calls must be allowed first: where a person can be asked, or always."""
