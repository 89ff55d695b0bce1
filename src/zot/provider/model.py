"""A model, what it costs and how much it can think: known before it is asked anything. Apart from
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
    deprecation_date: str = ""
    """The day on which its provider ends it, as 2026-11-30; empty: none is known."""
    ask: Literal["", "person", "always"] = ""
    """Whether its tool calls must be allowed first: where a person can be asked, or always."""


# --- how much it thinks ----------------------------------------------------------------------

_EVERY_MODEL_THINKS: tuple[Level, ...] = ("off", "minimum", "low", "medium", "high")


def levels(model: Model) -> list[Level]:
    """How much a model can think, the least first."""
    if not model.reasoning:
        return ["off"]
    words = (model.compat or {}).get("levels")
    words = words if isinstance(words, dict) else {}
    plain = _EVERY_MODEL_THINKS
    return [
        level for level in LEVELS if words.get(level, "" if level in plain else None) is not None
    ]


def clamped(wanted: Level, model: Model) -> Level:
    """The level itself, or the next one above it that the model has, else the next one below. A
    model that always thinks has no `off`: its lowest level is the next one above."""
    have = levels(model)
    if wanted in have:
        return wanted
    at = LEVELS.index(wanted)
    nearest = (*LEVELS[at:], *reversed(LEVELS[:at]))
    return next((level for level in nearest if level in have), "off")


def always_thinks(model: Model) -> bool:
    """Whether thinking cannot be turned off."""
    return "off" not in levels(model)


def cannot_be_off(model: Model) -> str:
    """What a user is told who turned the thinking of such a model off."""
    lowest = clamped("off", model)
    return f"the model {model.id!r} always thinks: 'off' is its lowest level, {lowest!r}"


def default_level(provider: str) -> Level:
    """How much a model thinks when nobody says so."""
    return "off" if provider in ("local", "scripted") else "medium"
