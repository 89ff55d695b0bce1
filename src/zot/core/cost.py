"""Token counts and their cost, from the catalog's prices. Unknown prices are reported as unknown.

Servers and files may send any number: a negative or non-numeric cost would disable the cost limit.
So counts are clamped here, and odd prices count as unknown, both with a warning.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import lru_cache
from typing import TypeVar, assert_never

from msgspec.structs import astuple, replace

from zot.bugs import warn_once
from zot.provider import types
from zot.provider.types import Cost, Price, Usage

Number = TypeVar("Number", int, float)
MOST_TOKENS = 10**12
MOST_DOLLARS = 1e9
FREE = Cost()
IMAGE_TOKENS = 1_200


def priced(usage: Usage, price: Price | None) -> Usage:
    """Return the usage of one call with its cost filled in."""
    usage, price = plausible(usage), usable(price)
    if price is None:
        return replace(usage, cost=Cost(), cost_known=usage.total == 0)
    million = 1_000_000
    cost = Cost(
        input=usage.input * price.input / million,
        output=usage.output * price.output / million,
        cache_read=usage.cache_read * price.cache_read / million,
        cache_write=usage.cache_write * price.cache_write / million,
    )
    return replace(usage, cost=cost, cost_known=True)


@lru_cache(maxsize=64)
def usable(price: Price | None) -> Price | None:
    """Return the price, or None if it is implausible."""
    if price is None or all(0 <= part <= MOST_DOLLARS for part in astuple(price)):
        return price
    warn_once(f"a price of {astuple(price)} USD counts as unknown")
    return None


def plausible(usage: Usage) -> Usage:
    """Return the usage with every count and cost clamped to a plausible range."""
    if (
        0 <= usage.input <= MOST_TOKENS
        and 0 <= usage.output <= MOST_TOKENS
        and 0 <= usage.cache_read <= MOST_TOKENS
        and 0 <= usage.cache_write <= MOST_TOKENS
        and 0 <= (usage.reasoning or 0) <= MOST_TOKENS
        and usage.cost == FREE
    ):
        return usage  # the common case
    cost = Cost(*(_within(part, MOST_DOLLARS, "cost") for part in astuple(usage.cost)))
    return Usage(
        input=_within(usage.input, MOST_TOKENS, "input"),
        output=_within(usage.output, MOST_TOKENS, "output"),
        cache_read=_within(usage.cache_read, MOST_TOKENS, "cache read"),
        cache_write=_within(usage.cache_write, MOST_TOKENS, "cache write"),
        reasoning=usage.reasoning and _within(usage.reasoning, MOST_TOKENS, "reasoning"),
        cost=cost,
        cost_known=usage.cost_known,
    )


def _within(value: Number, most: Number, what: str) -> Number:
    if 0 <= value <= most:
        return value
    clamped = most if value > most else type(most)(0)
    warn_once(f"a model call's usage is odd: its {what} counts as {clamped:g}")
    return clamped


def add(a: Usage, b: Usage) -> Usage:
    reasoning = None
    if a.reasoning is not None or b.reasoning is not None:
        reasoning = (a.reasoning or 0) + (b.reasoning or 0)
    return Usage(
        input=a.input + b.input,
        output=a.output + b.output,
        cache_read=a.cache_read + b.cache_read,
        cache_write=a.cache_write + b.cache_write,
        reasoning=reasoning,
        cost=Cost(
            input=a.cost.input + b.cost.input,
            output=a.cost.output + b.cost.output,
            cache_read=a.cost.cache_read + b.cost.cache_read,
            cache_write=a.cost.cache_write + b.cost.cache_write,
        ),
        cost_known=a.cost_known and b.cost_known,
    )


def estimate(messages: Iterable[types.Message]) -> int:
    """Estimate tokens as characters / 4, where the provider has not counted them."""
    tokens = 0
    for message in messages:
        for block in message.content:
            tokens += _tokens(block)
    return tokens


def _tokens(block: types.Block) -> int:
    if type(block) is types.Text:  # the common case
        return len(block.text) // 4 + 1
    match block:
        case types.Image():
            return IMAGE_TOKENS
        case types.ToolCall():
            return 10 + (len(block.raw) or len(str(block.args))) // 4
        case types.ToolResult():
            return 10 + sum(map(_tokens, block.content))
        case types.Reasoning(text):
            return len(text) // 4
        case _:
            assert_never(block)
