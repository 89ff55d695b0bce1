"""Checks of images. An invalid image would make the provider refuse this and every later request of
the conversation, so every image is checked here on entry.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Protocol

from zot.errors import CommandError
from zot.provider.types import Image, Message, ToolResult

MAX_IMAGE = 3_750_000
"""Maximum bytes: five million as base64, the smallest limit among the providers."""
IMAGE_TYPES = ("image/png", "image/jpeg", "image/gif", "image/webp")


class Picture(Protocol):
    @property
    def mime_type(self) -> str: ...

    @property
    def data(self) -> bytes: ...


def image_type(head: bytes) -> str | None:
    """Return the MIME type of a supported image, from its first bytes."""
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
    """Return the checked image; `where` names its place in error messages.

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
    """Return the checked images of a command. Raises CommandError, as above."""
    return [
        checked_image(image.mime_type, image.data, f"invalid_params: images[{position}]")
        for position, image in enumerate(images or ())
    ]


def check_messages(messages: Iterable[Message]) -> None:
    """Check the images in a client's messages. Raises CommandError, as above."""
    for position, message in enumerate(messages):
        where = f"invalid_params: messages[{position}]"
        for block in message.content:
            parts = block.content if isinstance(block, ToolResult) else (block,)
            for part in parts:
                if isinstance(part, Image):
                    checked_image(part.mime_type, part.data, where)
