"""The conversation in the one shape that every API accepts, whatever was handed in. No JSON here.

The core repairs transcripts and keeps them; this is the last guard before a request, so that an
encoder can rely on the rules: it starts and ends with the other side's turn, every call has its
result right after it, nothing is empty.
"""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Iterable, Sequence
from typing import Literal, TypeGuard

from msgspec import Struct

from zot.provider.types import (
    Image,
    Json,
    Message,
    Reasoning,
    Request,
    Text,
    ToolCall,
    ToolResult,
)

DEFAULT_OUTPUT = 32_000
"""Tokens asked for when nobody said how many; above it only slips of the model are longer."""
IMAGE_TOKENS = 1_600
CONTINUE = "(continue)"
NO_RESULT = "(no result: the call was interrupted)"
NO_IMAGES = "(an image that this model cannot see)"


class UserTurn(Struct, frozen=True):
    blocks: tuple[Text | Image, ...]
    kind: Literal["user"] = "user"


class ModelTurn(Struct, frozen=True):
    blocks: tuple[Text | ToolCall | Reasoning, ...]
    same_provider: bool
    """Made by the provider that is asked now: what it wants back can be given back."""
    same_model: bool
    kind: Literal["model"] = "model"


class ToolTurn(Struct, frozen=True):
    results: tuple[ToolResult, ...]
    """In the order of the calls, one for each."""
    kind: Literal["tool"] = "tool"


Turn = UserTurn | ModelTurn | ToolTurn


def turns(request: Request) -> list[Turn]:
    """The request's messages as turns that any API accepts."""
    out: list[Turn] = []
    used: set[str] = set()
    messages = request.messages
    index = 0
    while index < len(messages):
        message = messages[index]
        index += 1
        if message.role == "assistant":
            turn, names = model_turn(message, request, used)
            results: list[ToolResult] = []
            while index < len(messages) and messages[index].role == "tool":
                results += [b for b in messages[index].content if isinstance(b, ToolResult)]
                index += 1
            if turn.blocks:
                out.append(turn)
            if names:
                out.append(ToolTurn(answers(turn, names, results)))
        elif message.role == "user":
            blocks = tuple(b for b in message.content if is_said(b))
            if blocks:
                out.append(UserTurn(blocks))
    if not out or not isinstance(out[0], UserTurn):
        out.insert(0, UserTurn((Text(CONTINUE),)))
    if isinstance(out[-1], ModelTurn):
        out.append(UserTurn((Text(CONTINUE),)))
    return out


def is_said(block: object) -> TypeGuard[Text | Image]:
    return isinstance(block, Image) or (isinstance(block, Text) and bool(block.text.strip()))


def model_turn(
    message: Message, request: Request, used: set[str]
) -> tuple[ModelTurn, dict[str, str]]:
    """The turn, and the ids of its calls: as they were, to as they are sent."""
    blocks: list[Text | ToolCall | Reasoning] = []
    names: dict[str, str] = {}
    for block in message.content:
        if isinstance(block, ToolCall):
            if block.id in names:
                continue
            names[block.id] = unused(block.id, used)
            blocks.append(
                ToolCall(names[block.id], block.name, block.args, block.raw, block.opaque)
            )
        elif isinstance(block, Reasoning) or (isinstance(block, Text) and block.text.strip()):
            blocks.append(block)
    origin = message.origin
    same_provider = origin is not None and origin.provider == request.model.provider
    same_model = same_provider and origin is not None and origin.model == request.model.id
    if all(isinstance(block, Reasoning) for block in blocks):
        blocks = []  # thoughts without an answer: no API takes them back
    return ModelTurn(tuple(blocks), same_provider, same_model), names


def unused(id: str, used: set[str]) -> str:
    """The id, with a number when an earlier turn had the same one."""
    fresh, number = id, 1
    while fresh in used:
        number += 1
        fresh = f"{id}_{number}"
    used.add(fresh)
    return fresh


def answers(
    turn: ModelTurn, names: dict[str, str], results: Sequence[ToolResult]
) -> tuple[ToolResult, ...]:
    """One result for each call, in the calls' order; those that answer no call are left out."""
    tools = {block.id: block.name for block in turn.blocks if isinstance(block, ToolCall)}
    found: dict[str, ToolResult] = {}
    for result in results:
        found.setdefault(result.call_id, result)
    out = []
    for old, new in names.items():
        result = found.get(old) or ToolResult(old, (Text(NO_RESULT),), is_error=True)
        out.append(ToolResult(new, result.content, result.is_error, tools[new]))
    return tuple(out)


def result_text(result: ToolResult) -> str:
    """A result's text in one piece; never empty, because some servers refuse that."""
    text = "\n".join(block.text for block in result.content if isinstance(block, Text))
    if text.strip():
        return text
    return "(see the image)" if images_of(result) else "(no output)"


def images_of(result: ToolResult) -> list[Image]:
    return [block for block in result.content if isinstance(block, Image)]


def base64_of(image: Image) -> str:
    return b64encode(image.data).decode()


def wire_id(id: str, limit: int = 64) -> str:
    """A tool id in the letters every server takes; the same for a call and its result."""
    safe = "".join(
        char if char.isascii() and (char.isalnum() or char in "_-") else "_" for char in id
    )
    if safe == id and 0 < len(id) <= limit:
        return id
    return f"{safe[: limit - 13]}_{_digest(id)[:12]}"


def short_id(id: str) -> str:
    """A tool id of nine letters and digits, which is all that Mistral takes."""
    if len(id) == 9 and id.isascii() and id.isalnum():
        return id
    return _digest(id)[:9]


def _digest(id: str) -> str:
    from hashlib import sha256  # deferred: few ids need it, and OpenSSL is slow to load

    return sha256(id.encode("utf-8", "surrogatepass")).hexdigest()


def args_of(call: ToolCall) -> dict[str, Json]:
    """The arguments to show as the model's; bad ones are not sent back as if they had been good."""
    return call.args if call.args is not None else {}


def object_schema(schema: dict[str, Json]) -> dict[str, Json]:
    """A tool's schema as the object schema that every API wants."""
    out = {"type": "object", **schema}
    if out.get("type") == "object" and not isinstance(out.get("properties"), dict):
        out["properties"] = {}
    return out


def output_limit(request: Request, size: int) -> int:
    """Tokens the answer may have: what was asked for, within the model's limit and window.

    `size`: of all turns together.
    """
    model = request.model
    wanted = request.max_output or min(model.max_output, DEFAULT_OUTPUT)
    size += len(request.system) + sum(len(tool.description) + 400 for tool in request.tools)
    room = model.context_window - size // 4  # a token is roughly four characters
    return max(min(wanted, model.max_output, room), min(1_024, model.max_output), 1)


def turn_size(turn: Turn) -> int:
    """Roughly the characters of a turn; an image counts as its tokens do."""
    blocks: Iterable[object]
    if isinstance(turn, ToolTurn):
        blocks = [block for result in turn.results for block in result.content]
    else:
        blocks = turn.blocks
    size = 0
    for block in blocks:
        if isinstance(block, Text | Reasoning):
            size += len(block.text)
        else:
            size += IMAGE_TOKENS * 4 if isinstance(block, Image) else 200
    return size
