"""A model, its price and its reasoning levels. Separate from the conversation types, because the
first answer of `zot rpc` needs only this.
"""

from __future__ import annotations

from typing import Any, Literal

from zot.text import Frozen

Json = Any
"""JSON that was not parsed into a type; the only place where `Any` is right."""

Level = Literal["off", "minimum", "low", "medium", "high", "xhigh", "max"]
LEVELS: tuple[Level, ...] = ("off", "minimum", "low", "medium", "high", "xhigh", "max")
Api = Literal["anthropic", "openai-chat", "openai-responses", "google", "scripted"]


GRAMMAR_HOSTS = ("openai", "azure", "openai-codex")
"""Providers whose GPT models take grammar tools."""


class Plain(Frozen, gc=False):
    """Base of messages, their parts and other transcript data. Excluded from garbage collection:
    built once from JSON, they form no cycles, and a long transcript would slow down every
    collection."""


class Rates(Plain):
    """US dollars per million tokens."""

    input: float
    output: float
    cache_read: float = 0.0
    cache_write: float = 0.0
    cache_write_long: float | None = None
    """Written to the cache for an hour or longer; None: as `cache_write`."""


class PriceTier(Plain):
    above: int
    """Input tokens, with cached ones, above which the whole request is billed at `rates`."""
    rates: Rates


class ServiceFactors(Plain):
    """Factors on the rates for requests that a provider served in another way than usual."""

    name: str
    """Provider's word: flex, priority, batch, fast, or a region."""
    input: float
    """Also counts for tokens written to the cache."""
    output: float
    cache_read: float


class Price(Rates):
    """Rates of a model; those of its first tier are the fields of this object."""

    tiers: tuple[PriceTier, ...] = ()
    """Smallest first."""
    services: tuple[ServiceFactors, ...] = ()


class Model(Frozen):
    """A model: its limits, price and abilities."""

    id: str
    provider: str
    api: Api
    name: str = ""
    context_window: int = 128_000
    max_output: int = 8_192
    reasoning: bool = False
    images: bool = True
    price: Price | None = None
    """None: unknown, which is noted wherever a cost is shown."""
    base_url: str = ""
    """Overrides the provider's URL; nearly always empty."""
    headers: dict[str, str] | None = None
    compat: dict[str, Json] | None = None
    """Quirks of this model, read by the API files only (see provider/providers.py)."""
    source: str = "catalog"
    """catalog, live, cache, user or unlisted."""
    cache_seconds: tuple[int, int] | None = None
    """Lifetime of an entry in the provider's prompt cache, usual and long; None: unknown."""
    max_request_bytes: int | None = None
    max_images: int | None = None
    """Images in one request."""
    deprecation_date: str = ""
    """Date on which the provider ends it, as 2026-11-30; empty: unknown."""
    ask: Literal["", "person", "always"] = ""
    """Whether tool calls need approval: only if a user can be asked ("person"), or always."""


def takes_grammars(model: Model) -> bool:
    """Return whether the model takes tools whose input is a text of a grammar."""
    known = (model.compat or {}).get("grammar_tools")
    if known is not None or model.api != "openai-responses":
        return known is True
    family, _, version = model.id.rpartition("/")[2].partition("-")
    return family == "gpt" and model.provider in GRAMMAR_HOSTS and "5" <= version[:1] <= "9"


# --- reasoning levels ------------------------------------------------------------------------

_EVERY_MODEL_THINKS: tuple[Level, ...] = ("off", "minimum", "low", "medium", "high")


def levels(model: Model) -> list[Level]:
    """Return the reasoning levels of a model, lowest first."""
    if not model.reasoning:
        return ["off"]
    words = (model.compat or {}).get("levels")
    words = words if isinstance(words, dict) else {}
    plain = _EVERY_MODEL_THINKS
    return [
        level for level in LEVELS if words.get(level, "" if level in plain else None) is not None
    ]


def clamped(wanted: Level, model: Model) -> Level:
    """Return the level itself, or the next higher one that the model has, else the next lower one.
    A model that always thinks has no `off`, so its lowest level is used."""
    have = levels(model)
    if wanted in have:
        return wanted
    at = LEVELS.index(wanted)
    nearest = (*LEVELS[at:], *reversed(LEVELS[:at]))
    return next((level for level in nearest if level in have), "off")


def always_thinks(model: Model) -> bool:
    """Return whether thinking cannot be turned off."""
    return "off" not in levels(model)


def cannot_be_off(model: Model) -> str:
    """Return the notice for a user who turned off thinking for such a model."""
    lowest = clamped("off", model)
    return f"the model {model.id!r} always thinks: 'off' is its lowest level, {lowest!r}"


def can_be_warmed(model: Model, level: Level) -> bool:
    """Return whether the model takes its last request again for an answer of one token. Not with a
    thinking budget of Anthropic's: a shorter answer means another budget, which is not cached."""
    has_budget = model.api == "anthropic" and not (model.compat or {}).get("adaptive")
    return not (has_budget and model.reasoning and level != "off")


def default_level(provider: str) -> Level:
    """Return the reasoning level to use when none is set."""
    return "off" if provider in ("local", "scripted") else "medium"
