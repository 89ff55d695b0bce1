"""Caches the encoded turns of the last request: the next request mostly adds a few turns, and only
those are encoded. No API's words here; speed only, the bytes are the same.
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
"""Maximum cached bytes per client; later turns of a longer conversation are encoded every time."""


class Kept:
    """Cache of a client's last request. For one thread at a time."""

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
        """Approximate characters of all turns and tools."""
        self._same = 0
        """Number of leading turns that are identical to the encoded ones."""
        self._encoded: list[Turn] = []
        self._json = bytearray()
        """JSON items of the encoded turns, separated by commas."""
        self._ends: list[int] = []
        """End offset of each turn in `_json`."""
        self._start = ""
        """Digest of everything before the first turn; empty: thoughts are not bound."""
        self._digests: list[str] = []
        """Digest of the request up to and including each encoded turn."""
        self._before_last = ""
        """Digest of the request without its last turn."""
        self.digest = ""
        """Digest of the whole request, to which the answer is bound."""
        self._parts: dict[str, tuple[object, Raw]] = {}

    def part(self, name: str, source: object, make: Callable[[], Json]) -> Raw:
        """Return a rarely changing part of the body as JSON; rebuilt only if `source` changed."""
        known = self._parts.get(name)
        if known is None or known[0] != source:
            known = self._parts[name] = source, Raw(encode_json(make()))
        return known[1]

    def turns(self, request: Request) -> list[Turn]:
        """Return the turns of the request; those of unchanged messages are reused."""
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
        """Add the items of the last turn, without cache marks, to the request's digest."""
        data = b",".join(map(encode_json, items))
        self.digest = sha256(self._before_last.encode() + data).hexdigest() if self._start else ""

    def earlier(self, quirks: Quirks, encode_turn: EncodeTurn, start: str = "") -> list[Json]:
        """Return the items of all turns but the last, as a few pieces of JSON.

        The last one is left out, as an API may have to mark it. `start`: a digest of everything
        before; thoughts made with another prefix are left out (see binding.py).
        """
        if start != self._start:
            self._start = start
            self._forget_from(0)
        rest = self._encode(quirks, encode_turn)
        pieces: list[Json] = [Raw(self._json)] if self._json else []
        return [*pieces, *map(Raw, filter(None, rest))] if rest else pieces

    def earlier_turns(self, quirks: Quirks, encode_turn: EncodeTurn) -> list[list[Json]]:
        """Like `earlier`, but one list per turn."""
        rest = self._encode(quirks, encode_turn)
        view = memoryview(self._json)
        starts = [0, *(end + 1 if end else 0 for end in self._ends)]
        pieces = [view[start:end] for start, end in zip(starts, self._ends, strict=False)]
        pieces += [memoryview(data) for data in rest]
        return [[Raw(piece)] if piece else [] for piece in pieces]

    def _encode(self, quirks: Quirks, encode_turn: EncodeTurn) -> list[bytes]:
        """Cache the JSON of all turns but the last; return the JSON beyond the limit."""
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
