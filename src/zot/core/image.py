"""Which images models take. One that is none would be refused by the provider, and with it every
later request of the conversation: so whatever brings an image in has it checked here.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Protocol

from zot.errors import CommandError
from zot.provider.types import Image, Message, ToolResult

MAX_IMAGE = 3_750_000
"""Bytes; five million as base64, the smallest limit among the providers."""
IMAGE_TYPES = ("image/png", "image/jpeg", "image/gif", "image/webp")


class Picture(Protocol):
    @property
    def mime_type(self) -> str: ...

    @property
    def data(self) -> bytes: ...


def image_type(head: bytes) -> str | None:
    """The MIME type of an image that models take, by its first bytes."""
    if head.startswith(b"\x89PNG\r\n\x1a\n"):
        return "image/png"
    if head.startswith(b"\xff\xd8\xff"):
        return "image/jpeg"
    if head.startswith((b"GIF87a", b"GIF89a")):
        return "image/gif"
    if head.startswith(b"RIFF") and head[8:12] == b"WEBP":
        return "image/webp"
    return None


def checked_image(mime_type: str, data: bytes, where: str) -> Image:
    """The image; `where` it stands is for the error.

    Raises:
        CommandError: it is of a type no model takes, empty, or not what it says it is.
    """
    if mime_type not in IMAGE_TYPES:
        known = ", ".join(IMAGE_TYPES)
        raise CommandError(f"{where}.mime_type must be one of {known}, not {mime_type!r}")
    if not data:
        raise CommandError(f"{where}.data is empty")
    kind = image_type(data[:16])
    if kind != mime_type:
        seen = f"looks like {kind}" if kind else "is no image that models take"
        raise CommandError(f"{where}.data {seen}, not {mime_type}")
    return Image(mime_type, data)


def checked_images(images: Iterable[Picture] | None) -> list[Image]:
    """The images of a command. Raises CommandError, as above."""
    return [
        checked_image(image.mime_type, image.data, f"invalid_params: images[{position}]")
        for position, image in enumerate(images or ())
    ]


def check_messages(messages: Iterable[Message]) -> None:
    """The images in the messages of a client. Raises CommandError, as above."""
    for position, message in enumerate(messages):
        where = f"invalid_params: messages[{position}]"
        for block in message.content:
            parts = block.content if isinstance(block, ToolResult) else (block,)
            for part in parts:
                if isinstance(part, Image):
                    checked_image(part.mime_type, part.data, where)
