"""Checks of images. An invalid image would make the provider refuse this and every later request of
the conversation, so every image is checked here on entry; images that a provider refused all the
same stay in the transcript, but later requests omit them.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Protocol

from zot.errors import CommandError
from zot.provider.repair import with_notes
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


# --- refused images ----------------------------------------------------------------------------

LEFT_OUT = "[an image was left out: the provider refused it for its size]"


class RefusedImages:
    """Images of one conversation that are not sent again."""

    def __init__(self) -> None:
        self._refused: list[Image] = []
        self.any = False

    def add_from(self, messages: Sequence[Message]) -> bool:
        """Mark images after a request with these messages was refused; False: there is none to
        leave out.

        Images before the last answer were accepted once, so images after it are left out first.
        """
        answered = max((at for at, m in enumerate(messages) if m.role == "assistant"), default=-1)
        images = _images(messages[answered + 1 :]) or _images(messages)
        self._refused += images
        self.any = bool(self._refused)
        return bool(images)

    def left_out(self, messages: Sequence[Message]) -> Sequence[Message]:
        """Return the messages with a note in place of each refused image."""
        return tuple(with_notes(message, self._note) for message in messages)

    def _note(self, image: Image) -> str:
        return LEFT_OUT if any(image is refused for refused in self._refused) else ""


def _images(messages: Sequence[Message]) -> list[Image]:
    blocks = [block for message in messages for block in message.content]
    inner = [b for block in blocks if isinstance(block, ToolResult) for b in block.content]
    return [block for block in (*blocks, *inner) if isinstance(block, Image)]
