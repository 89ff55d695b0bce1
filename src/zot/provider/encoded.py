"""The JSON of each message, kept beside the message, so that a request encodes only new ones.

A request repeats the whole conversation. At 200 turns this saves 1.4 ms of each request. The bytes
sent are those that a fresh encoding would give. Knows no API.
"""

from __future__ import annotations

from collections.abc import Callable
from hashlib import sha256

from msgspec import Raw, Struct

from zot.provider.binding import fitting
from zot.provider.providers import Quirks
from zot.provider.repair import repaired
from zot.provider.transcript import EncodeTurn, ModelTurn, Turn, tools_size, turn_of, turn_size
from zot.provider.types import Json, Message, Model, Request, ToolSpec
from zot.text import encode_json

MAX_KEPT = 32 * 1024 * 1024
"""Bytes of JSON kept for one client; messages past it are encoded for every request."""


class EncodedTurn(Struct):
    """A message, its turn for one model, and the JSON it was last sent as."""

    message: Message
    turn: Turn
    size: int
    """Characters, roughly."""
    data: bytes | None = None
    """Its items, joined by commas; None: not encoded yet, or too much to keep."""
    before: str = ""
    """Digest of everything in front of it; empty: thoughts are not bound."""
    after: str = ""
    """Digest including it."""

    def encode(self, before: str, quirks: Quirks, encode_turn: EncodeTurn) -> bytes:
        turn = self.turn
        if before and isinstance(turn, ModelTurn):
            turn = fitting(turn, before, encode_turn, quirks)
        data = b",".join(map(encode_json, encode_turn(turn, quirks)))
        self.data, self.before = data, before
        self.after = sha256(before.encode() + data).hexdigest() if before else ""
        return data


class EncodedTurns:
    """The messages of the last request, each with its JSON. For one thread at a time."""

    def __init__(self) -> None:
        self._model: Model | None = None
        self._quirks: Quirks | None = None
        self._known: dict[int, EncodedTurn] = {}
        """By the id of the message, which the entry keeps alive."""
        self._used: list[EncodedTurn] = []
        """Entries of the current request, in order."""
        self._tools: tuple[ToolSpec, ...] = ()
        self._tools_size = 0
        self._before_last = ""
        self.size = 0
        """Characters of all turns and tools, roughly."""
        self.digest = ""
        """Digest of the whole request, to which thoughts of its answer are bound; empty: none."""
        self._parts: dict[str, tuple[object, Raw]] = {}

    def part(self, name: str, source: object, make: Callable[[], Json]) -> Raw:
        """Return the JSON of a part that seldom changes; it is made again for another source."""
        known = self._parts.get(name)
        if known is None or known[0] != source:
            known = self._parts[name] = source, Raw(encode_json(make()))
        return known[1]

    def turns(self, request: Request) -> list[Turn]:
        """Return the turns of a request, repaired if it is not; the other methods use them."""
        model, messages = request.model, request.messages
        if not request.repaired:
            messages = repaired(messages, model.images)
        if model != self._model:
            self._model, self._known = model, {}
        self._used = [self._known.get(id(message)) or _new(message, model) for message in messages]
        self._known = {id(entry.message): entry for entry in self._used}
        if request.tools is not self._tools:
            self._tools, self._tools_size = request.tools, tools_size(request.tools)
        self.size = self._tools_size + sum([entry.size for entry in self._used])
        return [entry.turn for entry in self._used]

    def earlier(self, quirks: Quirks, encode_turn: EncodeTurn, start: str = "") -> list[Json]:
        """Return the items of all turns but the last, for a list of all items.

        The last one is left to the caller, as an API may want a mark in it. `start` is a digest of
        everything before the turns; thoughts made with another beginning are left out (binding.py).
        """
        data = b",".join(filter(None, self._pieces(quirks, encode_turn, start)))
        return [Raw(data)] if data else []

    def earlier_turns(self, quirks: Quirks, encode_turn: EncodeTurn) -> list[list[Json]]:
        """Like `earlier`, with a list for each turn."""
        return [[Raw(data)] if data else [] for data in self._pieces(quirks, encode_turn, "")]

    def end(self, items: list[Json]) -> None:
        """Complete the digest with the items of the last turn, before marks are set in them."""
        data = b",".join(map(encode_json, items))
        before = self._before_last
        self.digest = sha256(before.encode() + data).hexdigest() if before else ""

    def _pieces(self, quirks: Quirks, encode_turn: EncodeTurn, start: str) -> list[bytes]:
        """Encode what is new among all turns but the last."""
        if quirks != self._quirks:
            self._quirks = quirks
            for entry in self._used:
                entry.data = None
        pieces: list[bytes] = []
        size, digest = 0, start
        for entry in self._used[:-1]:
            data = entry.data
            if data is None or entry.before != digest:
                data = entry.encode(digest, quirks, encode_turn)
            digest = entry.after
            size += len(data)
            if size > MAX_KEPT:
                entry.data = None
            pieces.append(data)
        self._before_last = digest
        return pieces


def _new(message: Message, model: Model) -> EncodedTurn:
    turn = turn_of(message, model)
    return EncodedTurn(message, turn, turn_size(turn))
