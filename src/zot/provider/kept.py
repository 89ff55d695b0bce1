"""The conversation as it was last sent, encoded turn by turn: the next request is longer by a few
turns, and only those are looked at. No API's words here; speed only, the bytes are the same.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from hashlib import sha256

from msgspec import Raw

from zot.provider.binding import fitting
from zot.provider.providers import Quirks
from zot.provider.repair import Repair
from zot.provider.transcript import (
    EncodeTurn,
    ModelTurn,
    Turn,
    tools_size,
    turn_of,
    turn_size,
)
from zot.provider.types import Json, Message, Model, Request, ToolSpec, same_at_start
from zot.text import encode_json

MAX_KEPT = 32 * 1024 * 1024
"""Bytes kept for one client; what follows in a longer conversation is encoded every time."""


class Kept:
    """What one client sent last. For one thread at a time."""

    def __init__(self) -> None:
        self._model: Model | None = None
        self._quirks: Quirks | None = None
        self._encode_turn: EncodeTurn | None = None
        self._repair = Repair()
        self._messages: Sequence[Message] = ()
        self._turns: list[Turn] = []
        self._sizes: list[int] = []
        self._tools: tuple[ToolSpec, ...] = ()
        self._tools_size = 0
        self.size = 0
        """Roughly the characters of all turns and tools."""
        self._same = 0
        """How many turns are the very ones that were encoded."""
        self._encoded: list[Turn] = []
        self._json = bytearray()
        """The items of the encoded turns, with a comma between two."""
        self._ends: list[int] = []
        """Where in it each turn ends."""
        self._start = ""
        """A digest of what stands before the first turn; empty: thoughts are not bound to it."""
        self._digests: list[str] = []
        """The same with each of the encoded turns."""
        self._before_last = ""
        """The same with all turns but the last."""
        self.digest = ""
        """The same of the whole request; what answers it is bound to that."""
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
        start = 0
        if model is self._model or model == self._model:
            start = same_at_start(self._messages, messages)
        if request.tools is not self._tools:
            self.size -= self._tools_size
            self._tools, self._tools_size = request.tools, tools_size(request.tools)
            self.size += self._tools_size
        self._model, self._messages = model, messages
        self._same = min(self._same, start)
        self.size -= sum(self._sizes[start:])
        del self._turns[start:], self._sizes[start:]
        for message in messages[start:]:
            turn = turn_of(message, model)
            size = turn_size(turn)
            self._turns.append(turn)
            self._sizes.append(size)
            self.size += size
        return self._turns

    def end(self, items: list[Json]) -> None:
        """Hear of the items of the last turn, without marks: they make the request whole."""
        data = b",".join(map(encode_json, items))
        self.digest = sha256(self._before_last.encode() + data).hexdigest() if self._start else ""

    def earlier(self, quirks: Quirks, encode_turn: EncodeTurn, start: str = "") -> list[Json]:
        """The items of all turns but the last, in a few pieces of JSON: for a list of all items.

        Not those of the last one, as an API may want a mark in them. `start`: a digest of what
        stands before; thoughts that were made with another beginning are left out (see binding.py).
        """
        if start != self._start:
            self._start = start
            self._forget_from(0)
        rest = self._encode(quirks, encode_turn)
        pieces: list[Json] = [Raw(self._json)] if self._json else []
        return [*pieces, *map(Raw, filter(None, rest))] if rest else pieces

    def earlier_turns(self, quirks: Quirks, encode_turn: EncodeTurn) -> list[list[Json]]:
        """The same turn by turn."""
        rest = self._encode(quirks, encode_turn)
        view = memoryview(self._json)
        starts = [0, *(end + 1 if end else 0 for end in self._ends)]
        pieces = [view[start:end] for start, end in zip(starts, self._ends, strict=False)]
        pieces += [memoryview(data) for data in rest]
        return [[Raw(piece)] if piece else [] for piece in pieces]

    def _encode(self, quirks: Quirks, encode_turn: EncodeTurn) -> list[bytes]:
        """Keep the JSON of all turns but the last; of those that are too much, it is returned."""
        turns = self._turns
        self._encode_turn = encode_turn
        if quirks is not self._quirks and quirks != self._quirks:
            self._quirks = quirks
            self._forget_from(0)
        count = min(self._same, len(self._encoded), len(turns) - 1)
        for old, turn in zip(self._encoded[count:], turns[count:-1], strict=False):
            if old != turn:
                break
            count += 1
        if count < len(self._encoded):
            self._forget_from(count)
        return self._keep(turns[count:-1], quirks, encode_turn)

    def _keep(self, turns: list[Turn], quirks: Quirks, encode_turn: EncodeTurn) -> list[bytes]:
        too_much: list[bytes] = []
        digest = self._digests[-1] if self._digests else self._start
        for turn in turns:
            sent = turn
            if digest and isinstance(turn, ModelTurn):
                sent = fitting(turn, digest, encode_turn, quirks)
            data = b",".join(map(encode_json, encode_turn(sent, quirks)))
            digest = sha256(digest.encode() + data).hexdigest() if digest else ""
            if too_much or len(self._json) + len(data) > MAX_KEPT:
                too_much.append(data)
                continue
            if data and self._json:
                self._json += b","
            self._json += data
            self._encoded.append(turn)
            self._ends.append(len(self._json))
            self._digests.append(digest)
        self._before_last = digest
        self._same = len(self._encoded)
        return too_much

    def _forget_from(self, count: int) -> None:
        del self._encoded[count:], self._ends[count:], self._digests[count:]
        del self._json[self._ends[-1] if self._ends else 0 :]
