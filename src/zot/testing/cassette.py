"""Lines of a cassette: conversion of types to JSON and back, comparison of requests."""

from __future__ import annotations

import difflib
import hashlib
import re
from base64 import b64decode, b64encode
from collections.abc import Sequence
from typing import Any

import msgspec
from msgspec import Struct

from zot import errors
from zot.core.tool import ToolOutput
from zot.errors import ProviderError, ToolError
from zot.provider import failure, model, types
from zot.provider.types import Block, Image, Model, Request, ToolResult
from zot.text import SECRET_GONE, mapped
from zot.tools.registry import BACKGROUND

CWD = "<cwd>"
DATE = re.compile(r"Current date: \d{4}-\d\d-\d\d")
DIFF_LINES = 40
Line = dict[str, Any]

_TYPES: dict[str, type[Struct]] = {
    name: value
    for module in (types, model)
    for name, value in vars(module).items()
    if isinstance(value, type) and issubclass(value, Struct)
} | {"ToolOutput": ToolOutput}

_FAILURES: dict[str, type[ProviderError]] = {
    name: value
    for module in (errors, failure)
    for name, value in vars(module).items()
    if isinstance(value, type) and issubclass(value, ProviderError)
}


class Packer:
    """Converter of structs to JSON that names their type, and back. The working directory becomes a
    placeholder, so that a cassette can be replayed elsewhere.
    """

    def __init__(self, cwd: str) -> None:
        self._cwd = cwd if len(cwd) > 1 else "\0"  # "/" is in every path

    def pack(self, value: Any) -> Any:
        match value:
            case Struct():
                fields = {name: self.pack(getattr(value, name)) for name in value.__struct_fields__}
                return {"$": type(value).__name__, **fields}
            case bytes():
                return {"$bytes": b64encode(value).decode()}
            case tuple():
                return [self.pack(item) for item in value]
            case _:
                return self.plain(value)

    def unpack(self, value: Any) -> Any:
        if isinstance(value, dict) and "$" in value:
            kind = _TYPES[value["$"]]
            return kind(**{k: self._field(v) for k, v in value.items() if k != "$"})
        if isinstance(value, dict) and "$bytes" in value:
            return b64decode(value["$bytes"])
        return self.filled(value)

    def _field(self, value: Any) -> Any:
        # Sequences in zot's types are tuples; lists of plain JSON occur only inside objects.
        if isinstance(value, list):
            return tuple(self.unpack(item) for item in value)
        return self.unpack(value)

    def plain(self, value: Any) -> Any:
        """Replace the working directory by the placeholder."""
        return _replaced(value, self._cwd, CWD)

    def filled(self, value: Any) -> Any:
        """Replace the placeholder by the working directory."""
        return _replaced(value, CWD, self._cwd)


def _replaced(value: Any, old: str, new: str) -> Any:
    return mapped(value, lambda leaf: leaf.replace(old, new) if isinstance(leaf, str) else leaf)


def unpacked_model(line: Line, packer: Packer) -> Model:
    unpacked = packer.unpack(line)
    assert isinstance(unpacked, Model)
    return unpacked


# --- requests ------------------------------------------------------------------------------------


def request_shape(request: Request, packer: Packer) -> Line:
    """Return the parts of a request to compare: no times, none of zot's ids, images as digests."""
    return {
        "model": request.model.id,
        "reasoning": request.reasoning,
        "max_output": request.max_output,
        "tool_choice": request.tool_choice,
        "tools": [tool.name for tool in request.tools if tool.name not in BACKGROUND],
        "system": packer.plain(DATE.sub("Current date: <date>", request.system)).split("\n"),
        "messages": [
            {"role": message.role, "content": [_block(block, packer) for block in message.content]}
            for message in request.messages
        ],
    }


def _block(block: Block, packer: Packer) -> Line:
    if isinstance(block, Image):
        digest = hashlib.sha256(block.data).hexdigest()
        return {"$": "Image", "mime_type": block.mime_type, "sha256": digest}
    if isinstance(block, ToolResult):
        content = [_block(part, packer) for part in block.content]
        failed = {"is_error": block.is_error}
        return {"$": "ToolResult", "call_id": block.call_id, "content": content, **failed}
    packed: Line = packer.pack(block)
    return packed


def same(recorded: Any, asked: Any) -> bool:
    """Return whether both are equal. A secret removed from the recorded one matches any text, as
    the replay may use another key or none.
    """
    match recorded, asked:
        case {"tools": list(tools)}, {"tools": list()} if not BACKGROUND.keys().isdisjoint(tools):
            # An older cassette, from when these tools were recorded.
            kept = [name for name in tools if name not in BACKGROUND]
            return same({**recorded, "tools": kept}, asked)
        case str(), str() if SECRET_GONE in recorded:
            return _has_in_order(asked, recorded.split(SECRET_GONE))
        case dict(), dict():
            names = recorded.keys()
            return names == asked.keys() and all(
                same(recorded[name], asked[name]) for name in names
            )
        case list(), list():
            return len(recorded) == len(asked) and all(map(same, recorded, asked))
        case _:
            return bool(recorded == asked)


def _has_in_order(text: str, parts: Sequence[str]) -> bool:
    first, *middle, last = parts
    if not text.startswith(first) or not text.endswith(last):
        return False
    at, end = len(first), len(text) - len(last)
    for part in middle:
        position = text.find(part, at, end)
        if position < 0:
            return False
        at = position + len(part)
    return at <= end


def nearest(asked: Line, recorded: Sequence[Line]) -> str:
    """Describe the most similar recorded request and the difference."""
    wanted = _lines(asked)
    texts = [_lines(request) for request in recorded]
    # Compares common lines in any order: fast also for long transcripts.
    scores = [difflib.SequenceMatcher(None, wanted, text).quick_ratio() for text in texts]
    best = max(range(len(texts)), key=scores.__getitem__)
    diff = difflib.unified_diff(texts[best], wanted, "recorded", "asked", n=1, lineterm="")
    shown = list(diff)[2:]
    if len(shown) > DIFF_LINES:
        shown = [*shown[:DIFF_LINES], f"... and {len(shown) - DIFF_LINES} more lines"]
    return f"the nearest one is call {best + 1}, which differs:\n" + "\n".join(shown)


def _lines(request: Line) -> list[str]:
    return msgspec.json.format(msgspec.json.encode(request), indent=1).decode().split("\n")


# --- failures ------------------------------------------------------------------------------------


def failure_shape(error: ProviderError) -> Line:
    return {
        "class": type(error).__name__,
        "message": str(error),
        "status": error.status,
        "retry_after": error.retry_after,
        "request_id": error.request_id,
    }


def tool_failure(name: str, text: str) -> ToolError:
    """Return the recorded error of a tool; its class tells how the call ended."""
    kind = {error.__name__: error for error in ToolError.__subclasses__()}.get(name, ToolError)
    return kind(text)


def failure_of(line: Line) -> ProviderError:
    """Return the recorded error; its class decides whether the call is retried."""
    kind = _FAILURES.get(line["class"], ProviderError)
    return kind(
        line["message"],
        status=line["status"],
        retry_after=line["retry_after"],
        request_id=line["request_id"],
    )
