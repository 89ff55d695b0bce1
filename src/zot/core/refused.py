"""Images that a provider refused: they stay in the transcript, but later requests omit them."""

from __future__ import annotations

from collections.abc import Sequence

from zot.provider.repair import with_notes
from zot.provider.types import Image, Message, ToolResult

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
