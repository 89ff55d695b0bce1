"""Shared code of the API modules: collects a stream into blocks, and cleans up models' output.

No API's words and no I/O.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Literal, TypeVar

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from zot.errors import BadResponse, ProviderError
from zot.provider import failure, types
from zot.provider.providers import Quirks
from zot.provider.turns import EncodedTurns, Encoder
from zot.text import MAX_NESTING, Frozen, check_nesting, whole_characters, whole_escapes

T = TypeVar("T")
StopWord = Literal["end", "tool_use", "length"]
MAX_ID = 256
MAX_ANSWER = 16 * 1024 * 1024
"""Maximum characters of one answer, to bound memory. No model writes this much."""
UNREADABLE = (msgspec.MsgspecError, UnicodeDecodeError, RecursionError)
PART_SIZE = 100
"""Characters counted per block beside its text: a million empty blocks fill the memory too."""


Counts = dict[str, types.Json] | None
"""Token counts as the server sent them; every server uses other field names."""


class AnswerReader:
    """Turns the events of one answer into StreamEvents. Each API has its own kind."""

    api = ""

    def __init__(self, provider: str) -> None:
        self.out = Assembler(provider, self.api)
        self.done = False
        """Whether the event that ends an answer of this API was seen."""

    @property
    def complete(self) -> bool:
        """Whether the answer is complete, though token counts or an end event may follow."""
        return self.done

    def read(self, data: bytes) -> None:
        """Process one event's data; the resulting events are in `out`.

        Raises:
            ProviderError: the event reports a failure, or cannot be read.
        """
        raise NotImplementedError

    def finish(self) -> types.Finished:
        """Return the whole answer, after the body ended.

        Raises:
            BadResponse: the body ended before the answer did.
            Refused: the model or a filter refused.
        """
        raise NotImplementedError


class Wire(Frozen):
    """An API: pure functions between zot's types and its JSON."""

    path: str
    """Path below the base URL, starting with the version; `{}` stands for the model's id."""
    body: Callable[[types.Request, Quirks, EncodedTurns], dict[str, types.Json]]
    """Returns the body of a request; keeps the JSON of its turns for the next one."""
    encoder: Encoder
    reader: Callable[[str], AnswerReader]
    """Returns a reader for one answer of the named provider."""
    headers: Callable[[types.Request, Quirks], dict[str, str]] = lambda request, quirks: {}


class ServerError(Struct):
    """An error reported in a stream; each API uses some of these fields."""

    message: str | None = None
    type: str | None = None
    code: str | int | None = None
    status: str | None = None


class Part:
    """A block that is still growing."""

    def __init__(self, kind: Literal["text", "reasoning", "call"], id: str = "", name: str = ""):
        self.kind = kind
        self.pieces: list[str] = []
        self.id = id
        self.name = name
        self.opaque: dict[str, types.Json] | None = None
        self.open = True


class Assembler:
    """Collects blocks in the model's order, and the events for them."""

    def __init__(self, provider: str, api: str) -> None:
        self.provider = provider
        self.api = api
        self.usage = types.Usage()
        self._parts: list[Part] = []
        self._last: Part | None = None
        self._ids: set[str] = set()
        self._size = 0
        self._events: list[types.StreamEvent] = []

    def take(self) -> list[types.StreamEvent]:
        """Return the events since the last call."""
        events = self._events
        self._events = []
        return events

    def text(self, text: str) -> None:
        if not text:
            return
        part = self._last
        if part is None or part.kind != "text":
            part = self._new(Part("text"))
        part.pieces.append(text)
        self._size += len(text)
        if self._size > MAX_ANSWER:
            self._count(0)
        self._events.append(types.TextDelta(text))

    def reasoning(self, text: str, part: Part | None = None) -> None:
        """Append to a thought; without `part`, to the growing one."""
        if text:
            self._grow(part or self.reasoning_part(), text)
            self._events.append(types.ReasoningDelta(text))

    def open_reasoning(self) -> Part:
        """Add a thought now, whose text may come later."""
        return self._new(Part("reasoning"))

    def keep_with_reasoning(self, opaque: dict[str, types.Json], *, fresh: bool = False) -> None:
        """Store opaque data with the current reasoning block, or with a new one."""
        part = self._new(Part("reasoning")) if fresh else self.reasoning_part()
        self._count(sum(len(str(value)) for value in opaque.values()))
        part.opaque = {**(part.opaque or {}), **opaque}

    def keep_with_text(self, opaque: dict[str, types.Json]) -> None:
        """Store opaque data with the growing text, if there is one."""
        if self._last is not None and self._last.kind == "text":
            self._last.opaque = {**(self._last.opaque or {}), **opaque}

    def add_to_text(self, key: str, value: types.Json) -> None:
        """Append a citation or the like to a list in the opaque data of the growing text."""
        part = self._last
        if part is None or part.kind != "text":
            part = self._new(Part("text"))
        self.charge(len(str(value)))
        part.opaque = part.opaque or {}
        part.opaque.setdefault(key, []).append(value)

    def charge(self, size: int) -> None:
        """Count characters that are kept elsewhere against the limit of an answer."""
        self._count(size)

    def reasoning_part(self) -> Part:
        """Return the growing reasoning block, or a new one."""
        part = self._last
        return (
            part if part is not None and part.kind == "reasoning" else self._new(Part("reasoning"))
        )

    def end_block(self, part: Part | None = None) -> None:
        """Make the next delta start a new block, whatever its kind; unless another block than
        `part` is growing.
        """
        if part is None or part is self._last:
            self._last = None

    def open_call(self, id: str, name: str) -> Part:
        part = self._new(Part("call", self._clean_id(id), name))
        self._events.append(types.ToolCallStart(part.id, name))
        return part

    def args(self, part: Part, delta: str) -> None:
        if delta:
            self._grow(part, delta)
            self._events.append(types.ToolCallArgs(part.id, delta))

    def close_call(self, part: Part) -> None:
        if part.open:
            part.open = False
            self._events.append(types.ToolCallEnd(part.id))
        if self._last is part:
            self._last = None

    def close_calls(self) -> None:
        for part in self._parts:
            if part.kind == "call":
                self.close_call(part)

    def has_content(self) -> bool:
        return any(map(has_said, self._parts))

    def set_usage(self, usage: types.Usage) -> None:
        if usage != self.usage:
            self.usage = usage
            self._events.append(types.UsageSeen(usage))

    def count(
        self,
        prompt: int | None,
        output: int | None,
        read: int | None,
        write: int | None = 0,
        reasoning: int | None = None,
        write_long: int | None = 0,
    ) -> None:
        """Set the tokens so far; `prompt` includes those read from and written to the cache."""
        prompt, output, read, write = prompt or 0, output or 0, read or 0, write or 0
        # Some gateways count tokens as written that were read.
        write = min(write, max(prompt - read, 0))
        old = self.usage
        self.set_usage(
            types.Usage(
                max(prompt - read - write, 0),
                output,
                read,
                write,
                reasoning,
                cache_write_long=min(write_long or 0, write),
                service=old.service,
                billed=old.billed,
            )
        )

    def bill(self, seen: Counts, service: str = "") -> None:
        """Set how the call was served, and its cost if the provider names it."""
        cost = cost_in(seen)
        if service or cost is not None:
            old = self.usage
            billed = old.billed if cost is None else cost
            self.set_usage(replace(old, service=service or old.service, billed=billed))

    def finished(self, stop: StopWord) -> types.Finished:
        """Return the whole answer. With calls it is a tool turn, whatever the stop reason."""
        blocks: list[types.Block] = []
        has_calls = False
        for part in self._parts:
            if has_said(part):
                blocks.append(self._block(part))
            has_calls = has_calls or part.kind == "call"
        if stop != "length":
            stop = "tool_use" if has_calls else "end"
        return types.Finished(tuple(blocks), stop, self.usage)

    def cut(self) -> BadResponse:
        """Return the error for a body that ended before the answer did."""
        error = BadResponse(f"{self.provider}: the answer ended before it was complete")
        error.retryable = True  # the connection was closed too early, if cleanly
        return error

    def failed(self, text: str, kind: str = "", status: int | None = None) -> ProviderError:
        """Return the error for a failure reported in the stream, by its kind or status."""
        text = failure.one_line(text or "an error without a message", failure.MAX_MESSAGE)
        if status:
            known = failure.class_for_status(status, text)
        else:
            known = failure.class_for_kind(kind, text)
        return known(f"{self.provider}: {text}", status=status)

    def _grow(self, part: Part, text: str) -> None:
        part.pieces.append(text)
        self._count(len(text))

    def _count(self, size: int) -> None:
        self._size += size
        if self._size > MAX_ANSWER:
            raise BadResponse(f"{self.provider}: an answer of more than {MAX_ANSWER} characters")

    def _new(self, part: Part) -> Part:
        self._count(PART_SIZE)
        self._parts.append(part)
        self._last = part
        return part

    def _clean_id(self, id: str) -> str:
        """Return the id, or a new one if the server's cannot match a result to its call."""
        if not id or len(id) > MAX_ID or id in self._ids or not id.isprintable():
            id = new_id()
        self._ids.add(id)
        return id

    def _block(self, part: Part) -> types.Block:
        text = "".join(part.pieces)
        if part.kind == "text":
            return types.Text(text, part.opaque)
        if part.kind == "reasoning":
            return types.Reasoning(text, self.api, part.opaque)
        args = parse_args(text)
        return types.ToolCall(
            part.id, part.name, args, "" if args is not None else text, part.opaque
        )


def cost_in(seen: Counts) -> float | None:
    """Return the US dollars that a gateway charges for a call; None if it does not say so. With the
    user's own key at the model's provider, that provider's bill is added."""
    cost = seen.get("cost") if seen else None
    if seen is None or isinstance(cost, bool) or not isinstance(cost, int | float):
        return None
    if not seen.get("is_byok"):
        return float(cost)
    details = seen.get("cost_details")
    upstream = details.get("upstream_inference_cost") if isinstance(details, dict) else None
    return cost + upstream if isinstance(upstream, int | float) else None


def counted(seen: Counts, *places: str) -> int | None:
    """Return the first nonzero count at one of these paths, such as `details.cached_tokens`; None
    if no path has a count."""
    count: int | None = None
    for place in places:
        value: types.Json = seen
        for name in place.split("."):
            value = value.get(name) if isinstance(value, dict) else None
        if not count and isinstance(value, int):
            count = value
    return count


def has_said(part: Part) -> bool:
    return part.kind != "reasoning" or bool(part.pieces or part.opaque)


def new_id() -> str:
    return f"call_{os.urandom(12).hex()}"


def decode(decoder: msgspec.json.Decoder[T], data: bytes | str, provider: str) -> T:
    """Decode one event's data.

    Half of a surrogate pair, or bytes that are not UTF-8, become U+FFFD: models do send them.

    Raises:
        BadResponse: it is not what this API sends; the text shows its beginning.
    """
    try:
        return _bounded(decoder, data)
    except UNREADABLE:
        try:
            return _bounded(decoder, mended(data))
        except (msgspec.MsgspecError, RecursionError) as error:
            limit = failure.SHOWN
            raw = data if isinstance(data, str) else data[: limit * 4].decode("utf-8", "replace")
            shown = failure.one_line(raw, limit)
            raise BadResponse(f"{provider}: cannot read an event ({error}): {shown}") from error


def _bounded(decoder: msgspec.json.Decoder[T], data: bytes | str) -> T:
    """Decode data unless it is nested too deeply. Raises UNREADABLE."""
    if len(data) > MAX_NESTING:
        check_nesting(data if isinstance(data, bytes) else data.encode("utf-8", "replace"))
    return decoder.decode(data)


def mended(data: bytes | str) -> bytes:
    text = data if isinstance(data, str) else data.decode("utf-8", "replace")
    return whole_escapes(whole_characters(text).encode())


_ANY_OBJECT = msgspec.json.Decoder(dict[str, types.Json])


def parse_args(raw: str) -> dict[str, types.Json] | None:
    """Parse a tool's arguments; None if they are no JSON object. Empty text means no arguments."""
    if not raw.strip():
        return {}
    try:
        return decode(_ANY_OBJECT, raw, "")
    except BadResponse:
        return None
