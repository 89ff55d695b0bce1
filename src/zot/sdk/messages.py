"""Checks and converts what a caller hands in: messages in the wire's shape, and images."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import assert_never

from zot.errors import CommandError
from zot.provider.types import Block, Image, Message, Text, ToolCall, ToolResult
from zot.wire import frames


def full_message(message: Message | frames.MessageShape) -> Message:
    """Convert a message for the transcript. Raises CommandError: it has an image without data, or
    an invalid time."""
    if isinstance(message, Message):
        return message
    if not isinstance(message, frames.MessageShape):
        raise CommandError(f"invalid_params: not a message: {message!r:.80}")
    try:
        time = datetime.fromisoformat(message.time).timestamp()
    except ValueError as error:
        raise CommandError(f"invalid_params: not a time: {message.time!r}") from error
    return Message(message.role, tuple(_block(block) for block in message.content), time)


def _block(block: frames.ContentBlock) -> Block:
    match block:
        case frames.TextBlock(text):
            return Text(text)
        case frames.ToolCallBlock(id, name, args):
            return ToolCall(id, name, args)
        case frames.ToolResultBlock(call_id, is_error, content):
            return ToolResult(call_id, tuple(_text(part) for part in content), is_error)
        case frames.ImageBlock():
            return _text(block)
        case _:
            assert_never(block)


def _text(block: frames.TextBlock | frames.ImageBlock) -> Text:
    if isinstance(block, frames.ImageBlock):
        raise CommandError(
            "invalid_params: a message shows an image only as a count of bytes; "
            "set_messages needs the data: keep full_messages() instead of messages()"
        )
    return Text(block.text)


def checked_images(images: Sequence[Image]) -> Sequence[Image]:
    """Check the type of each image, for callers without a type checker. Raises CommandError."""
    for image in images:
        if not isinstance(image, Image):
            raise CommandError(f"invalid_params: an image must be a zot Image, not {image!r:.80}")
    return images
