"""The conversation as it was last sent, encoded turn by turn: the next request is longer by a few
turns, and only those are encoded. No API's words here; speed only, the bytes are the same.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from operator import is_

from msgspec import Raw

from zot.provider.repair import Repair
from zot.provider.transcript import Turn, turn_of, turn_size
from zot.provider.types import Json, Message, Model, Request
from zot.text import encode_json

MAX_KEPT = 32 * 1024 * 1024
"""Bytes kept for one client; what follows in a longer conversation is encoded every time."""

EncodeTurn = Callable[[Turn], list[Json]]


class Kept:
    """What one client sent last. For one thread at a time."""

    def __init__(self) -> None:
        self._model: Model | None = None
        self._settings: object = None
        self._repair = Repair()
        self._messages: tuple[Message, ...] = ()
        self._turns: list[Turn] = []
        self._sizes: list[int] = []
        self.size = 0
        """Roughly the characters of all turns."""
        self._encoded: list[Turn] = []
        self._items: list[list[Json]] = []
        """Of each encoded turn, as `msgspec.Raw`."""
        self._bytes: list[int] = []
        self._weight = 0
        """Of all of them."""
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
        messages = request.messages
        if not request.repaired:
            messages = self._repair.of(messages, model.images)
        start = same_at_start(self._messages, messages) if model == self._model else 0
        rest = [turn_of(message, model) for message in messages[start:]]
        self._model, self._messages = model, messages
        self.size -= sum(self._sizes[start:])
        del self._turns[start:], self._sizes[start:]
        self._turns += rest
        self._sizes += map(turn_size, rest)
        self.size += sum(self._sizes[start:])
        return self._turns

    def encoded(
        self, conversation: Sequence[Turn], settings: object, encode_turn: EncodeTurn
    ) -> list[list[Json]]:
        """The items of each turn. All but the last turn's may be JSON already, as `msgspec.Raw`.

        The last turn's are not, as an API may want a mark in them. `settings`: what else the
        encoding depends on; it is kept for the same ones only.
        """
        if settings != self._settings:
            self._forget_from(0)
        count = min(same_at_start(self._encoded, conversation), len(conversation) - 1)
        for old, turn in zip(self._encoded[count:], conversation[count:-1], strict=False):
            if old != turn:
                break
            count += 1
        self._settings = settings
        self._forget_from(count)
        too_much: list[list[Json]] = []
        for turn in conversation[count:-1]:
            raw: list[Json] = [Raw(encode_json(item)) for item in encode_turn(turn)]
            weight = sum(map(len, map(bytes, raw)))
            if too_much or self._weight + weight > MAX_KEPT:
                too_much.append(raw)
                continue
            self._encoded.append(turn)
            self._items.append(raw)
            self._bytes.append(weight)
            self._weight += weight
        return [*self._items, *too_much, encode_turn(conversation[-1])]

    def _forget_from(self, count: int) -> None:
        self._weight -= sum(self._bytes[count:])
        del self._encoded[count:], self._items[count:], self._bytes[count:]


def same_at_start(old: Sequence[object], new: Sequence[object]) -> int:
    """How many of the first ones are the very same."""
    length = min(len(old), len(new))
    if all(map(is_, old, new)):  # nearly always, and much quicker than a look at each
        return length
    return next(at for at in range(length) if old[at] is not new[at])
