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
from zot.provider.types import Cost, Price, Rates, Usage

Number = TypeVar("Number", int, float)
MOST_TOKENS = 10**12
MOST_DOLLARS = 1e9
FREE = Cost()
IMAGE_TOKENS = 1_200


def priced(usage: Usage, price: Price | None) -> Usage:
    """Return the usage of one call with its cost filled in."""
    usage, price = plausible(usage), usable(price)
    if price is None:
        if usage.billed is not None:
            return replace(usage, cost=Cost(input=usage.billed), cost_known=True)
        return replace(usage, cost=Cost(), cost_known=usage.total == 0)
    rates: Rates = price
    if price.tiers:
        rates = rates_for(price, usage.input + usage.cache_read + usage.cache_write)
    input = output = read = 1.0
    if usage.service:
        input, output, read = _factors(price, usage.service)
    long = rates.cache_write if rates.cache_write_long is None else rates.cache_write_long
    written = rates.cache_write * (usage.cache_write - usage.cache_write_long)
    million = 1_000_000
    cost = Cost(
        input=usage.input * rates.input * input / million,
        output=usage.output * rates.output * output / million,
        cache_read=usage.cache_read * rates.cache_read * read / million,
        cache_write=(written + long * usage.cache_write_long) * input / million,
    )
    if usage.billed is not None:
        cost = _scaled(cost, usage.billed)
    return replace(usage, cost=cost, cost_known=True)


def rates_for(price: Price, input_tokens: int) -> Rates:
    """Return the rates of a request with so many input tokens, cached ones included."""
    rates: Rates = price
    for tier in price.tiers:
        if input_tokens > tier.above:
            rates = tier.rates
    return rates


def worst_cost(price: Price, input_tokens: int, output_tokens: int = 0) -> float:
    """Return the most that a request of this size can cost: nothing of it is cached yet."""
    rates = rates_for(price, input_tokens)
    dearest = max(rates.input, rates.cache_write, rates.cache_write_long or 0.0)
    return (input_tokens * dearest + output_tokens * rates.output) / 1_000_000


def _factors(price: Price, service: str) -> tuple[float, float, float]:
    """Return the factors on input, output and cache read for the way a call was served."""
    input = output = read = 1.0
    words = service.split()
    for factors in price.services:
        if factors.name in words:
            input *= factors.input
            output *= factors.output
            read *= factors.cache_read
    return input, output, read


def _scaled(cost: Cost, total: float) -> Cost:
    """Return the cost with this total, divided as the prices say."""
    if not cost.total:
        return Cost(input=total)
    return Cost(*(part * (total / cost.total) for part in astuple(cost)))


@lru_cache(maxsize=64)
def usable(price: Price | None) -> Price | None:
    """Return the price, or None if it is implausible."""
    if price is None:
        return None
    numbers = [*_numbers(price)]
    for tier in price.tiers:
        numbers += _numbers(tier.rates)
    for factors in price.services:
        numbers += factors.input, factors.output, factors.cache_read
    if all(0 <= part <= MOST_DOLLARS for part in numbers):
        return price
    warn_once(f"a price of {tuple(numbers)} USD counts as unknown")
    return None


def _numbers(rates: Rates) -> tuple[float, ...]:
    long = rates.cache_write if rates.cache_write_long is None else rates.cache_write_long
    return rates.input, rates.output, rates.cache_read, rates.cache_write, long


def plausible(usage: Usage) -> Usage:
    """Return the usage with every count and cost clamped to a plausible range."""
    if (
        0 <= usage.input <= MOST_TOKENS
        and 0 <= usage.output <= MOST_TOKENS
        and 0 <= usage.cache_read <= MOST_TOKENS
        and 0 <= usage.cache_write <= MOST_TOKENS
        and 0 <= (usage.reasoning or 0) <= MOST_TOKENS
        and 0 <= usage.cache_write_long <= usage.cache_write
        and usage.cost == FREE
        and (usage.billed is None or 0 <= usage.billed <= MOST_DOLLARS)
    ):
        return usage  # the common case
    cost = Cost(*(_within(part, MOST_DOLLARS, "cost") for part in astuple(usage.cost)))
    written, billed = _within(usage.cache_write, MOST_TOKENS, "cache write"), usage.billed
    return Usage(
        input=_within(usage.input, MOST_TOKENS, "input"),
        output=_within(usage.output, MOST_TOKENS, "output"),
        cache_read=_within(usage.cache_read, MOST_TOKENS, "cache read"),
        cache_write=written,
        reasoning=usage.reasoning and _within(usage.reasoning, MOST_TOKENS, "reasoning"),
        cost=cost,
        cost_known=usage.cost_known,
        cache_write_long=_within(usage.cache_write_long, written, "long cache write"),
        service=usage.service,
        billed=billed if billed is not None and 0 <= billed <= MOST_DOLLARS else None,
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
        cache_write_long=a.cache_write_long + b.cache_write_long,
    )


def cached_share(usage: Usage) -> float:
    """Return the share of the input that was read from the provider's cache."""
    input = usage.input + usage.cache_read + usage.cache_write
    return usage.cache_read / input if input else 0.0


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
