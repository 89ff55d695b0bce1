"""The conversation as it was last sent, encoded turn by turn: the next request is longer by a few
turns, and only those are encoded. No API's words here; speed only, the bytes are the same.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from operator import is_

from msgspec import Raw, Struct

from zot.provider.repair import Repair
from zot.provider.transcript import Turn, turn_of, turn_size
from zot.provider.types import Json, Message, Model, Request
from zot.text import encode_json

MAX_KEPT = 32 * 1024 * 1024
"""Bytes kept for one client; what follows in a longer conversation is encoded every time."""

EncodeTurn = Callable[[Turn], list[Json]]


class Encoded(Struct, frozen=True):
    turn: Turn
    items: list[Json]
    """JSON, as `msgspec.Raw`."""
    size: int


class Kept:
    """What one client sent last. For one thread at a time."""

    def __init__(self) -> None:
        self._model: Model | None = None
        self._settings: object = None
        self._repair = Repair()
        self._messages: tuple[Message, ...] = ()
        self._turns: list[Turn] = []
        self._sizes: list[int] = []
        self._encoded: list[Encoded] = []
        self._parts: dict[str, tuple[object, Raw]] = {}

    def part(self, name: str, source: object, make: Callable[[], Json]) -> Raw:
        """A part of the body that seldom changes, as JSON: made anew for another source only."""
        known = self._parts.get(name)
        if known is None or known[0] != source:
            known = self._parts[name] = source, Raw(encode_json(make()))
        return known[1]

    def turns(self, request: Request) -> list[Turn]:
        """The turns; those of messages that were there the last time are not made anew."""
        model = request.model
        messages = self._repair.of(request.messages, model.images)
        start = same_at_start(self._messages, messages) if model == self._model else 0
        rest = [turn_of(message, model) for message in messages[start:]]
        self._model, self._messages = model, messages
        self._turns = self._turns[:start] + rest
        self._sizes = self._sizes[:start] + [turn_size(turn) for turn in rest]
        return self._turns

    @property
    def size(self) -> int:
        """Roughly the characters of all turns."""
        return sum(self._sizes)

    def encoded(
        self, conversation: Sequence[Turn], settings: object, encode_turn: EncodeTurn
    ) -> list[list[Json]]:
        """The items of each turn. All but the last turn's may be JSON already, as `msgspec.Raw`.

        The last turn's are not, as an API may want a mark in them. `settings`: what else the
        encoding depends on; it is kept for the same ones only.
        """
        known = self._encoded if settings == self._settings else []
        count = same_at_start([row.turn for row in known], conversation[:-1])
        for turn, row in zip(conversation[count:-1], known[count:], strict=False):
            if turn != row.turn:
                break
            count += 1
        kept = known[:count]
        items = [row.items for row in kept]
        size = sum([row.size for row in kept])
        for turn in conversation[count:-1]:
            raw: list[Json] = [Raw(encode_json(item)) for item in encode_turn(turn)]
            items.append(raw)
            row = Encoded(turn, raw, sum(len(bytes(item)) for item in raw))
            size += row.size
            if size <= MAX_KEPT and len(kept) == len(items) - 1:
                kept.append(row)
        self._settings, self._encoded = settings, kept
        return [*items, encode_turn(conversation[-1])]


def same_at_start(old: Sequence[object], new: Sequence[object]) -> int:
    """How many of the first ones are the very same."""
    length = min(len(old), len(new))
    if all(map(is_, old, new)):  # nearly always, and much quicker than a look at each
        return length
    return next(at for at in range(length) if old[at] is not new[at])
