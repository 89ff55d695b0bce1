"""What tokens cost, from the catalog's prices. An unknown price is said to be unknown."""

from __future__ import annotations

from msgspec.structs import replace

from zot.provider.types import Cost, Price, Usage


def priced(usage: Usage, price: Price | None) -> Usage:
    """The usage of one call with its cost."""
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


def add(a: Usage, b: Usage) -> Usage:
    return Usage(
        input=a.input + b.input,
        output=a.output + b.output,
        cache_read=a.cache_read + b.cache_read,
        cache_write=a.cache_write + b.cache_write,
        reasoning=_add_optional(a.reasoning, b.reasoning),
        cost=Cost(
            input=a.cost.input + b.cost.input,
            output=a.cost.output + b.cost.output,
            cache_read=a.cost.cache_read + b.cost.cache_read,
            cache_write=a.cost.cache_write + b.cost.cache_write,
        ),
        cost_known=a.cost_known and b.cost_known,
    )


def _add_optional(a: int | None, b: int | None) -> int | None:
    return b if a is None else a if b is None else a + b
