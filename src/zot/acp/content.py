"""The content blocks of a prompt as a runtime takes them: text, images, documents."""

from __future__ import annotations

import base64
import binascii
from typing import Any
from urllib.parse import unquote

from zot.core.image import IMAGE_TYPES, checked_image
from zot.errors import CommandError
from zot.provider.types import Image, Text
from zot.text import Frozen


class PromptContent(Frozen):
    text: str
    images: tuple[Image, ...] = ()
    documents: tuple[Text, ...] = ()
    """Resources embedded in the prompt, each with its address."""


def prompt_content(blocks: list[Any]) -> PromptContent:
    """Convert the blocks. Raises CommandError for an unusable block, with its position."""
    reader = _Reader()
    for position, block in enumerate(blocks):
        if not isinstance(block, dict):
            raise CommandError(f"prompt[{position}] is no content block")
        reader.take(block, f"prompt[{position}]")
    return PromptContent("".join(reader.texts), tuple(reader.images), tuple(reader.documents))


class _Reader:
    def __init__(self) -> None:
        self.texts: list[str] = []
        self.images: list[Image] = []
        self.documents: list[Text] = []

    def take(self, block: dict[str, Any], where: str) -> None:
        match block:
            case {"type": "text", "text": str(text)}:
                self.texts.append(text)
            case {"type": "image", "data": str(data), "mimeType": str(mime_type)}:
                self.images.append(checked_image(mime_type, _decoded(data, where), where))
            case {"type": "resource_link", "uri": str(uri)}:
                self.texts.append(_link(uri, str(block.get("name") or "")))
            case {"type": "resource", "resource": {"uri": str(uri), "text": str(text)}}:
                self.texts.append(_link(uri))
                self.documents.append(Text(f'<resource uri="{uri}">\n{text}\n</resource>'))
            case {"type": "resource", "resource": {"uri": str(uri), "blob": str(blob)}}:
                self._take_blob(uri, blob, str(block["resource"].get("mimeType") or ""), where)
            case {"type": "audio"}:
                raise CommandError(f"{where}: audio cannot be used: this agent takes none")
            case _:
                raise CommandError(f"{where}: no content block of type {block.get('type')!r}")

    def _take_blob(self, uri: str, blob: str, mime_type: str, where: str) -> None:
        data = _decoded(blob, where)
        self.texts.append(_link(uri))
        if mime_type in IMAGE_TYPES:
            self.images.append(checked_image(mime_type, data, where))
        else:
            kind = mime_type or "unknown type"
            self.documents.append(
                Text(f'<resource uri="{uri}">{len(data)} bytes, {kind}</resource>')
            )


def _decoded(data: str, where: str) -> bytes:
    try:
        return base64.b64decode(data, validate=True)
    except (binascii.Error, ValueError) as error:
        raise CommandError(f"{where}.data is not base64: {error}") from error


def _link(uri: str, name: str = "") -> str:
    """Return the text for an address: the path of a file, else the address itself."""
    if uri.startswith("file://"):
        return unquote(uri.removeprefix("file://"))
    return f"[{name}]({uri})" if name else uri
