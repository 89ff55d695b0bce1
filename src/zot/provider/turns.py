"""A request's messages as the turns that an API's encoder reads, and the JSON of each turn.

A request repeats the whole conversation, so the JSON is kept: a request that goes on from the last
one encodes only its new messages. The bytes sent are those that a fresh encoding would give.

Some servers refuse a thought for good once the system prompt, the tools or any earlier message
differs: after a compaction, with late tools, on the next day. So a thought stores a digest of its
prefix, and is left out of a request with another prefix. Text and tool calls stay.

No I/O, no API's words.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from itertools import takewhile
from typing import assert_never

from msgspec import Raw, Struct
from msgspec.structs import replace

from zot.provider import types
from zot.provider.providers import Quirks
from zot.provider.repair import repaired, same_start
from zot.text import Frozen, encode_json, whole_characters

DEFAULT_OUTPUT = 32_000
"""Default output limit in tokens; only faulty answers are longer."""
IMAGE_TOKENS = 1_600
MAX_ID = 64
MODEL = "assistant"
BLOCK_END = b"}]}"
"""End of a message whose content is a list of objects."""
PREFIX = "prefix"
"""Key of the digest in a thought's opaque data."""


class ModelTurn(Frozen):
    """A message of a model, and whether it is from the one that is asked now."""

    blocks: tuple[types.Text | types.ToolCall | types.Reasoning, ...]
    same_provider: bool
    """Made by the requested provider: its opaque data can be sent back."""
    same_model: bool


class Encoder(Frozen):
    """An API's functions from a message to JSON items, one for each role."""

    user: Callable[[tuple[types.Text | types.Image, ...]], list[types.Json]]
    model: Callable[[ModelTurn, Quirks], list[types.Json]]
    results: Callable[[tuple[types.ToolResult, ...], Quirks], list[types.Json]]
    """For one result per call, in the order of the calls."""


# --- encoding --------------------------------------------------------------------------------


class EncodedTurn(Struct):
    role: types.Role
    data: bytes
    """JSON items, joined by commas."""
    size: int
    """Characters of all turns up to here, roughly."""
    digest: str = ""
    """Digest of everything up to here; empty until a thought needs it (`digest_of`)."""


class EncodedTurns:
    """The turns of the last request. For one thread at a time."""

    def __init__(self) -> None:
        self.turns: list[EncodedTurn] = []
        self.size = 0
        """Characters of all turns and tools, roughly."""
        self.start = b""
        """Everything before the messages; empty: thoughts are not bound to their prefix."""
        self._messages: tuple[types.Message, ...] = ()
        self._basis: tuple[object, ...] = ()
        """All else that the JSON of a turn depends on."""
        self._tools: tuple[types.ToolSpec, ...] = ()
        self._tools_size = 0
        self._parts: dict[str, tuple[object, Raw]] = {}

    def part(self, name: str, source: object, make: Callable[[], types.Json]) -> Raw:
        """Return the JSON of a part that seldom changes; it is made again for another source."""
        known = self._parts.get(name)
        if known is None or known[0] != source:
            known = self._parts[name] = source, Raw(encode_json(make()))
        return known[1]

    def update(
        self, request: types.Request, quirks: Quirks, encoder: Encoder, start: bytes = b""
    ) -> list[types.Json]:
        """Encode the request's messages, as far as they are new; return the items of the last one,
        in which the caller may set marks. `start`: everything before the messages, if thoughts are
        bound.
        """
        model, messages = request.model, tuple(request.messages)
        if not request.repaired:
            messages = repaired(messages, model.images)
        basis = model, quirks, start
        if basis != self._basis:
            self._basis, self._messages, self.start = basis, (), start
        # The last message is always encoded: its items are wanted.
        known = min(same_start(self._messages, messages), len(messages) - 1)
        del self.turns[known:]
        items: list[types.Json] = []
        for message in messages[known:]:
            items = self._add(message, model, quirks, encoder)
        self._messages = messages
        if request.tools is not self._tools:
            self._tools, self._tools_size = request.tools, tools_size(request.tools)
        self.size = self._tools_size + self.turns[-1].size
        return items

    def _add(
        self, message: types.Message, model: types.Model, quirks: Quirks, encoder: Encoder
    ) -> list[types.Json]:
        size = self.turns[-1].size if self.turns else 0
        blocks: tuple[types.Block, ...] = message.content
        # The types of the blocks are as repair.py leaves them.
        match message.role:
            case "user":
                items = encoder.user(blocks)  # type: ignore[arg-type]
            case "tool":
                items = encoder.results(blocks, quirks)  # type: ignore[arg-type]
            case "assistant":
                origin = message.origin
                same = origin is not None and origin.provider == model.provider
                same_model = same and origin is not None and origin.model == model.id
                turn = ModelTurn(blocks, same, same_model)  # type: ignore[arg-type]
                if self.start and has_thoughts(blocks):
                    turn = fitting(turn, digest_of(self.start, self.turns), encoder, quirks)
                items, blocks = encoder.model(turn, quirks), turn.blocks
            case _:
                assert_never(message.role)
        data = b",".join(map(encode_json, items))
        self.turns.append(EncodedTurn(message.role, data, size + size_of(blocks)))
        return items

    def earlier(self, mark: bytes = b"") -> list[types.Json]:
        """Return the items of all turns but the last, for a list of all items. `mark`: a JSON field
        for the last block of the last of them that is not the model's."""
        parts = [turn.data for turn in self.turns[:-1]]
        if mark:
            asked = (at for at in range(len(parts) - 1, -1, -1) if self.turns[at].role != MODEL)
            at = next(asked, None)
            if at is not None and parts[at].endswith(BLOCK_END):
                parts[at] = parts[at][: -len(BLOCK_END)] + mark + BLOCK_END
        return [Raw(b",".join(parts))] if parts else []


def has_thoughts(blocks: Iterable[types.Block]) -> bool:
    return any(isinstance(block, types.Reasoning) for block in blocks)


def digest_of(start: bytes, turns: Sequence[EncodedTurn]) -> str:
    """Return the digest of a request up to the last of these turns. Each turn keeps its own, so
    that only new ones are read."""
    new = list(takewhile(lambda turn: not turn.digest, reversed(turns)))
    digest = turns[-len(new) - 1].digest if len(new) < len(turns) else sha256(start)
    for turn in reversed(new):
        digest = turn.digest = sha256(digest.encode() + turn.data)
    return digest


def fitting(turn: ModelTurn, digest: str, encoder: Encoder, quirks: Quirks) -> ModelTurn:
    """Return the turn without the thoughts made with another prefix than `digest`."""
    blocks: list[types.Block] = []
    for block in turn.blocks:
        if isinstance(block, types.Reasoning):
            made_with = (block.opaque or {}).get(PREFIX)
            if made_with != _before(blocks, digest, encoder, quirks):
                continue
        blocks.append(block)
    return turn if len(blocks) == len(turn.blocks) else replace(turn, blocks=tuple(blocks))


def bound(
    finished: types.Finished, digest: str, encoder: Encoder, quirks: Quirks
) -> types.Finished:
    """Return the answer with each thought bound to its prefix; `digest` is the request's."""
    blocks: list[types.Block] = []
    for block in finished.content:
        if isinstance(block, types.Reasoning):
            prefix = _before(blocks, digest, encoder, quirks)
            block = replace(block, opaque={**(block.opaque or {}), PREFIX: prefix})
        blocks.append(block)
    return replace(finished, content=tuple(blocks))


def _before(blocks: list[types.Block], digest: str, encoder: Encoder, quirks: Quirks) -> str:
    """Return the digest of the request and of the blocks before in the same answer."""
    if not blocks:
        return digest
    said = ModelTurn(tuple(blocks), same_provider=True, same_model=True)  # type: ignore[arg-type]
    data = b",".join(map(encode_json, encoder.model(said, quirks)))
    return sha256(digest.encode() + data)


def sha256(data: bytes) -> str:
    from hashlib import sha256  # loads OpenSSL: 3.7 MB that an agent at rest does not need

    return sha256(data).hexdigest()


# --- parts of a request that several APIs encode alike ---------------------------------------


def result_text(result: types.ToolResult) -> str:
    """Return a result's text in one piece; never empty, because some servers refuse that."""
    text = "\n".join(types.texts_in(result.content))
    if text.strip():
        return text
    return "(see the image)" if images_of(result) else "(no output)"


def images_of(result: types.ToolResult) -> list[types.Image]:
    return [block for block in result.content if isinstance(block, types.Image)]


def base64_of(image: types.Image) -> str:
    from binascii import b2a_base64  # deferred: images are rare

    return b2a_base64(image.data, newline=False).decode()


def data_url(image: types.Image) -> str:
    return f"data:{image.mime_type};base64,{base64_of(image)}"


def wire_id(id: str) -> str:
    """Return a tool id with characters every server accepts; same for a call and its result."""
    if 0 < len(id) <= MAX_ID and id.isascii() and id.replace("_", "").replace("-", "").isalnum():
        return id
    safe = "".join(
        char if char.isascii() and (char.isalnum() or char in "_-") else "_" for char in id
    )
    if safe == id and 0 < len(id) <= MAX_ID:
        return id  # nothing but _ and -
    return f"{safe[: MAX_ID - 13]}_{sha256(whole_characters(id).encode())[:12]}"


def short_id(id: str) -> str:
    """Return a tool id of nine letters and digits, the only form that Mistral accepts."""
    if len(id) == 9 and id.isascii() and id.isalnum():
        return id
    return sha256(whole_characters(id).encode())[:9]


def args_of(call: types.ToolCall) -> dict[str, types.Json]:
    """Return the arguments to send as the model's; invalid ones are sent as empty."""
    return call.args if call.args is not None else {}


def object_schema(schema: dict[str, types.Json]) -> dict[str, types.Json]:
    """Convert a tool's schema to the object schema that every API requires."""
    out = {"type": "object", **schema}
    if out.get("type") == "object" and not isinstance(out.get("properties"), dict):
        out["properties"] = {}
    return out


STRICT_WORDS = {"type", "description", "properties", "required", "items", "enum"}


def strict_schema(schema: types.Json, *, nullable: bool) -> dict[str, types.Json] | None:
    """Return a schema in the form that constrained sampling needs; None if it has others' words.

    `nullable`: every property is required, and optional ones may be null (OpenAI).
    """
    if not isinstance(schema, dict) or not schema.keys() <= STRICT_WORDS:
        return None
    out = dict(schema)
    if "items" in out:
        out["items"] = strict_schema(out["items"], nullable=nullable)
    if out.get("type") == "object":
        fields = {
            name: strict_schema(field, nullable=nullable)
            for name, field in out.get("properties", {}).items()
        }
        if nullable:
            for name, field in fields.items():
                if field is not None and name not in out.get("required", ()):
                    field["type"] = [field.get("type"), "null"]
            out["required"] = list(fields)
        out |= {"properties": fields, "additionalProperties": False}
        if None in fields.values():
            return None
    return None if out.get("items", {}) is None else out


def closed_schema(schema: types.Json, depth: int = 0) -> types.Json:
    """Return an answer's schema whose objects take no other properties, as providers require it;
    words that they refuse are left out: the answer is checked here."""
    if not isinstance(schema, dict) or depth > 32:
        return schema
    out = {key: value for key, value in schema.items() if key in ANSWER_WORDS}
    for key in ("properties", "$defs"):
        if isinstance(fields := out.get(key), dict):
            out[key] = {name: closed_schema(field, depth + 1) for name, field in fields.items()}
    if "items" in out:
        out["items"] = closed_schema(out["items"], depth + 1)
    if isinstance(choices := out.get("anyOf"), list):
        out["anyOf"] = [closed_schema(choice, depth + 1) for choice in choices]
    return {**out, "additionalProperties": False} if "properties" in out else out


ANSWER_WORDS = {*STRICT_WORDS, "title", "anyOf", "$ref", "$defs", "const"}


def output_limit(request: types.Request, size: int, usual: int = DEFAULT_OUTPUT) -> int:
    """Return the answer's token limit: as requested, within the model's limit and window.

    `size`: of all turns and tools together. `usual`: default if the request sets none.
    """
    model = request.model
    wanted = request.max_output or min(model.max_output, usual)
    size += len(request.system)
    room = model.context_window - size // 4  # a token is roughly four characters
    return max(min(wanted, model.max_output, room), min(1_024, model.max_output), 1)


def tools_size(tools: Iterable[types.ToolSpec]) -> int:
    """Return the approximate characters of the tools."""
    return sum(len(tool.description) + 400 for tool in tools)


def size_of(blocks: Iterable[types.Block]) -> int:
    """Return the approximate characters of a message; an image counts by its tokens."""
    size = 0
    for block in blocks:
        if isinstance(block, types.Text | types.Reasoning):
            size += len(block.text)
        elif isinstance(block, types.ToolResult):
            size += size_of(block.content)
        else:
            size += IMAGE_TOKENS * 4 if isinstance(block, types.Image) else 200
    return size
