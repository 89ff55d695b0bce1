"""Explains prompt cache misses: compares each request with the last one of its conversation.

Only references to the parts of the last request are kept: earlier turns of a conversation are the
same objects in the next request, so a comparison costs little more than a list copy. No I/O.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from itertools import zip_longest

from zot.provider.turns import EncodedTurn
from zot.provider.types import CacheCause, CacheMissed, Request, ToolSpec, Usage
from zot.text import Frozen

MAX_WATCHED = 16
"""Conversations watched for each client."""
LEAST = 1_024
"""Tokens that a provider may leave out of its cache: it stores whole blocks only."""
IMPLICIT_LEAST = 4_096
"""Smallest prompt that every provider caches without being asked to."""
USUAL_SECONDS = 300
"""Lifetime of an entry in the cache of a provider that does not name another one."""


class SentRequest(Frozen):
    """The parts of a request in the order in which providers match prefixes."""

    model: str
    settings: tuple[str, str]
    tools: tuple[ToolSpec, ...]
    system: str
    turns: tuple[EncodedTurn, ...]
    time: float
    """Monotonic seconds."""
    lifetime: int
    """Seconds that the cache keeps its entries."""


def sent(request: Request, turns: Sequence[EncodedTurn], *, long: bool = False) -> SentRequest:
    usual, longer = request.model.cache_seconds or (USUAL_SECONDS, USUAL_SECONDS)
    return SentRequest(
        request.model.id,
        (request.reasoning, request.tool_choice),
        request.tools,
        request.system,
        tuple(turns),
        time.monotonic(),
        longer if long else usual,
    )


class CacheWatch:
    """The last request of each conversation with one client. Its calls may overlap."""

    def __init__(self) -> None:
        self._last: dict[str, tuple[SentRequest, int]] = {}
        """Last request by the conversation's key, and the tokens of it that should be cached."""

    def check(self, request: Request, now: SentRequest, usage: Usage) -> CacheMissed | None:
        """Return the miss of an answered request, if there was one."""
        key = request.cache_key
        if not key:
            return None
        before = self._last.pop(key, None)
        self._last[key] = now, cached_tokens(request, usage)
        if len(self._last) > MAX_WATCHED:
            del self._last[next(iter(self._last))]
        if before is None:
            return None
        last, expected = before
        if expected - usage.cache_read <= max(LEAST, expected // 10):
            return None
        cause, position, detail = first_change(last, now)
        seconds = round(now.time - last.time, 3)
        return CacheMissed(cause, expected, usage.cache_read, position, detail, seconds)


def cached_tokens(request: Request, usage: Usage) -> int:
    """Return the tokens of a request that the next one should find in the cache."""
    if usage.cache_write or not usage.cache_read:
        explicit = usage.cache_read + usage.cache_write
        if explicit:
            return explicit
    # A provider that caches by itself and does not count what it writes.
    price, prompt = request.model.price, usage.input + usage.cache_read
    is_cheaper = price is not None and price.cache_read < price.input
    if prompt < IMPLICIT_LEAST or not (usage.cache_read or is_cheaper):
        return usage.cache_read
    return prompt // 128 * 128


def first_change(last: SentRequest, now: SentRequest) -> tuple[CacheCause, int | None, str]:
    """Return what differs first, the position among its kind, and a word about it."""
    if now.model != last.model:
        return "model", None, f"{last.model} -> {now.model}"
    if now.tools != last.tools:
        for at, (old, new) in enumerate(zip_longest(last.tools, now.tools)):
            if old != new:
                return "tools", at, (new or old).name
    if now.system != last.system:
        pairs = zip_longest(last.system, now.system)
        at = next(at for at, (old, new) in enumerate(pairs) if old != new)
        return "system", at, now.system[at : at + 40]
    if now.settings != last.settings:
        return "settings", None, " ".join((*last.settings, "->", *now.settings))
    for at, (old_turn, turn) in enumerate(zip_longest(last.turns, now.turns[: len(last.turns)])):
        if old_turn is not turn and (turn is None or old_turn.data != turn.data):
            return "message", at, turn.role if turn else "missing"
    if now.time - last.time > last.lifetime:
        return "timeout", None, f"{last.lifetime} s"
    return "unknown", None, ""
