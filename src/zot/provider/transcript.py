"""Converts a request's messages to the turns that an encoder reads: repaired, so that the rules in
repair.py hold, and with facts about the requested model. No JSON here.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Literal, assert_never

from zot.provider import types
from zot.provider.providers import Quirks
from zot.text import Frozen, whole_characters

DEFAULT_OUTPUT = 32_000
"""Default output limit in tokens; only faulty answers are longer."""
IMAGE_TOKENS = 1_600
MAX_ID = 64


class UserTurn(Frozen):
    blocks: tuple[types.Text | types.Image, ...]
    kind: Literal["user"] = "user"


class ModelTurn(Frozen):
    blocks: tuple[types.Text | types.ToolCall | types.Reasoning, ...]
    same_provider: bool
    """Made by the requested provider: its opaque data can be sent back."""
    same_model: bool
    kind: Literal["model"] = "model"


class ToolTurn(Frozen):
    results: tuple[types.ToolResult, ...]
    """Results in the order of the calls, one each."""
    kind: Literal["tool"] = "tool"


Turn = UserTurn | ModelTurn | ToolTurn


EncodeTurn = Callable[[Turn, Quirks], list[types.Json]]


def encoder(
    user: Callable[[UserTurn], list[types.Json]],
    model: Callable[[ModelTurn, Quirks], list[types.Json]],
    tool: Callable[[ToolTurn, Quirks], list[types.Json]],
) -> EncodeTurn:
    """Return a wire's encoder for turns, made from its encoders for each kind."""

    def encode_turn(turn: Turn, quirks: Quirks) -> list[types.Json]:
        match turn:
            case UserTurn():
                return user(turn)
            case ModelTurn():
                return model(turn, quirks)
            case ToolTurn():
                return tool(turn, quirks)
            case _:
                assert_never(turn)

    return encode_turn


def turn_of(message: types.Message, model: types.Model) -> Turn:
    """Convert a repaired message to a turn for this model."""
    match message.role:
        case "user":
            return UserTurn(message.content)  # type: ignore[arg-type]  # as repaired; no cast(),
        case "tool":  # which is a call
            return ToolTurn(message.content)  # type: ignore[arg-type]
        case "assistant":
            origin = message.origin
            same = origin is not None and origin.provider == model.provider
            same_model = same and origin is not None and origin.model == model.id
            return ModelTurn(message.content, same, same_model)  # type: ignore[arg-type]


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
    return f"{safe[: MAX_ID - 13]}_{_digest(id)[:12]}"


def short_id(id: str) -> str:
    """Return a tool id of nine letters and digits, the only form that Mistral accepts."""
    if len(id) == 9 and id.isascii() and id.isalnum():
        return id
    return _digest(id)[:9]


def _digest(id: str) -> str:
    from hashlib import sha256  # deferred: few ids need it, and OpenSSL is slow to load

    return sha256(whole_characters(id).encode()).hexdigest()


def args_of(call: types.ToolCall) -> dict[str, types.Json]:
    """Return the arguments to send as the model's; invalid ones are sent as empty."""
    return call.args if call.args is not None else {}


def object_schema(schema: dict[str, types.Json]) -> dict[str, types.Json]:
    """Convert a tool's schema to the object schema that every API requires."""
    out = {"type": "object", **schema}
    if out.get("type") == "object" and not isinstance(out.get("properties"), dict):
        out["properties"] = {}
    return out


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


def turn_size(turn: Turn) -> int:
    """Return the approximate characters of a turn; an image counts by its tokens."""
    blocks: Iterable[object]
    if turn.kind == "tool":
        blocks = [block for result in turn.results for block in result.content]
    else:
        blocks = turn.blocks
    size = 0
    for block in blocks:
        if type(block) is types.Text or isinstance(block, types.Reasoning):
            size += len(block.text)
        else:
            size += IMAGE_TOKENS * 4 if isinstance(block, types.Image) else 200
    return size
