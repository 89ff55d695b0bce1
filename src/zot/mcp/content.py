"""Results of servers for the model: text and images, within the limits of other tools; and prompts
of servers with their arguments."""

from __future__ import annotations

import binascii
import shlex
from collections.abc import Callable

import msgspec
from msgspec import Struct

from zot.core.image import MAX_IMAGE, checked_image
from zot.core.tool import ToolOutput
from zot.errors import CommandError
from zot.mcp.protocol import PromptInfo
from zot.provider.types import Image, Json, Text, texts_in
from zot.text import Frozen, prepared

MAX_IMAGES = 20
MAX_BLOCKS = 10_000
MAX_DETAILS = 256 * 1024

Shorten = Callable[[str], str]
"""Shortens a text that is too long for a model; the rest goes into a file."""


class _Resource(Frozen):
    uri: str = ""
    mimeType: str | None = None  # the wire's name
    text: str | None = None
    blob: str | None = None


class _Block(Struct):
    type: str = ""
    text: str = ""
    data: str = ""
    mimeType: str = ""  # the wire's name
    uri: str = ""
    name: str = ""
    description: str | None = None
    resource: _Resource = _Resource()


prepared(_Block)


def output_of(result: dict[str, Json], shorten: Shorten) -> ToolOutput:
    """Convert a result of `tools/call` for the loop."""
    raw = result.get("content")
    blocks = [block_of(item) for item in (raw if isinstance(raw, list) else [])[:MAX_BLOCKS]]
    structured = result.get("structuredContent")
    if structured is not None and not _is_said(structured, blocks):
        blocks.append(Text(msgspec.json.encode(structured).decode()))
    details: dict[str, Json] | None = None
    if structured is not None and len(msgspec.json.encode(structured)) <= MAX_DETAILS:
        details = {"structured_content": structured}
    return ToolOutput(bounded(blocks, shorten), result.get("isError") is True, details)


def resource_of(result: dict[str, Json], shorten: Shorten) -> ToolOutput:
    """Convert a result of `resources/read`."""
    raw = result.get("contents")
    items = (raw if isinstance(raw, list) else [])[:MAX_BLOCKS]
    blocks = [block_of({"type": "resource", "resource": item}) for item in items]
    return ToolOutput(bounded(blocks, shorten))


def block_of(raw: Json) -> Text | Image:
    """Convert one block; an invalid one becomes a note."""
    try:
        block = msgspec.convert(raw, _Block)
    except (msgspec.ValidationError, RecursionError) as error:
        return Text(f"[a block that cannot be read: {error}]")
    match block.type:
        case "text":
            return Text(block.text)
        case "image":
            return _image(block.mimeType, block.data)
        case "audio":
            return Text(f"[audio of type {block.mimeType:.80}, {len(block.data) * 3 // 4} bytes]")
        case "resource_link":
            about = f": {block.description}" if block.description else ""
            return Text(f"[resource {block.uri} {block.name!r}{about}]")
        case "resource":
            return _resource(block.resource)
        case kind:
            return Text(f"[a block of the unknown type {kind!r:.80}]")


def _resource(resource: _Resource) -> Text | Image:
    if resource.text is not None:
        return Text(f"{resource.uri}\n{resource.text}")
    kind, blob = resource.mimeType or "", resource.blob or ""
    if kind.startswith("image/"):
        return _image(kind, blob)
    return Text(f"[{resource.uri}: {kind or 'bytes'}, {len(blob) * 3 // 4} bytes]")


def _image(kind: str, data: str) -> Text | Image:
    if len(data) * 3 // 4 > MAX_IMAGE:
        return Text(f"[an image of {len(data) * 3 // 4} bytes: the limit is {MAX_IMAGE}]")
    try:
        return checked_image(kind, binascii.a2b_base64(data), "it")
    except (ValueError, CommandError) as error:
        return Text(f"[an image that cannot be used: {error}]")


def bounded(blocks: list[Text | Image], shorten: Shorten) -> tuple[Text | Image, ...]:
    """Limit the blocks: the text in total to that of other tools, and the number of images."""
    images = [block for block in blocks if isinstance(block, Image)]
    texts = texts_in(blocks)
    if len(images) > MAX_IMAGES:
        texts.append(f"[{len(images) - MAX_IMAGES} more images are left out]")
    whole = "\n".join(texts)
    short = shorten(whole)
    if short == whole and len(images) <= MAX_IMAGES:
        return tuple(blocks)
    return (Text(short), *images[:MAX_IMAGES])


def _is_said(structured: Json, blocks: list[Text | Image]) -> bool:
    """Whether a text repeats the structured result, or the single value in it."""
    values = list(structured.values()) if isinstance(structured, dict) else []
    for block in blocks:
        if not isinstance(block, Text):
            continue
        if values == [block.text]:
            return True
        if block.text.lstrip()[:1] in ("{", "["):
            try:
                if msgspec.json.decode(block.text) == structured:
                    return True
            except (msgspec.MsgspecError, RecursionError):
                continue
    return False


# --- prompts ---------------------------------------------------------------------------------


def prompt_arguments(prompt: PromptInfo, args: str) -> dict[str, str]:
    """Parse typed arguments of a prompt: `name=value`, or by position; the last one takes the rest
    of the line. Raises CommandError: a required one is missing."""
    try:
        words = shlex.split(args)
    except ValueError:
        words = args.split()
    values: dict[str, str] = {}
    plain: list[str] = []
    for word in words:
        name, equals, value = word.partition("=")
        if equals and name in prompt.arguments:
            values[name] = value
        else:
            plain.append(word)
    free = [name for name in prompt.arguments if name not in values]
    for position, name in enumerate(free):
        if plain:
            last = position == len(free) - 1
            values[name] = " ".join(plain) if last else plain.pop(0)
    if missing := [name for name in prompt.required if name not in values]:
        raise CommandError(f"the prompt {prompt.name!r} needs {', '.join(missing)}")
    return values


def prompt_text(result: dict[str, Json]) -> str:
    """Join the messages of a prompt; images are replaced by a note."""
    messages = result.get("messages")
    texts = []
    for message in messages if isinstance(messages, list) else ():
        content = message.get("content") if isinstance(message, dict) else None
        block = block_of(content)
        text = block.text if isinstance(block, Text) else "[an image]"
        role = message.get("role") if isinstance(message, dict) else ""
        texts.append(f"(as the assistant:)\n{text}" if role == "assistant" else text)
    return "\n\n".join(texts)
