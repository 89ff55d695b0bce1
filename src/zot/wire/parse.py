"""Parser for frames of the zot wire: the inverse of zot_events. No input or output."""

from __future__ import annotations

from typing import Any, TypeVar

import msgspec
from msgspec import UNSET, UnsetType

from zot.errors import CommandError, ZotError
from zot.lines import decode_line
from zot.text import Frozen, whole_characters
from zot.wire.frames import EventFrame, Frame

T = TypeVar("T")


class FrameError(ZotError):
    """The received text is not a frame."""

    code = "parse_error"


class Response(Frame, tag="response"):
    """The answer to one command."""

    command: str
    success: bool
    id: str | int | float | UnsetType = UNSET
    data: Any = UNSET
    error: str | UnsetType = UNSET
    code: str | UnsetType = UNSET
    """Feature `codes`."""

    def data_as(self, type: type[T]) -> T:
        """Convert the data to a type of zot.wire.shapes. Raises FrameError: it has another
        shape."""
        try:
            return msgspec.convert(self.data, type)
        except msgspec.ValidationError as error:
            raise FrameError(f"the answer to {self.command!r} has another shape: {error}") from None


class Unknown(Frozen):
    """A frame of an unknown type, or whose fields do not match its type.

    Protocol version 1 may grow, so clients skip unknown frames.
    """

    type: str
    fields: dict[str, Any]
    """All fields of the frame, including its type."""
    problem: str = ""
    """Validation error of a frame whose type is known."""

    def to_wire(self) -> dict[str, Any]:
        """Return the frame as it came."""
        return self.fields


AnyFrame = EventFrame | Response | Unknown

_decode = msgspec.json.Decoder(EventFrame | Response).decode
KNOWN = frozenset(member.__struct_config__.tag for member in (*EventFrame.__args__, Response))
"""The `type` of every frame in this version."""


def parse_frame(frame: bytes | str | dict[str, Any]) -> AnyFrame:
    """Parse one frame, a line or an object, into its type: the inverse of `to_wire`. Raises
    FrameError: it is not a JSON object with a "type"."""
    if isinstance(frame, dict):
        return _converted(frame)
    line = whole_characters(frame).encode() if isinstance(frame, str) else frame
    try:
        parsed: AnyFrame = decode_line(line, _decode)
        return parsed
    except CommandError:
        pass  # unknown type, wrong shape or no JSON: decoded again below to tell them apart
    try:
        fields = decode_line(line, msgspec.json.decode)
    except CommandError as error:
        raise FrameError(f"not a frame: {shown(frame)}: {error}") from None
    if not isinstance(fields, dict):
        raise FrameError(f"not a frame: {shown(frame)}: it is no JSON object")
    return _converted(fields)


def _converted(fields: dict[str, Any]) -> AnyFrame:
    try:
        parsed: AnyFrame = msgspec.convert(fields, EventFrame | Response)
        return parsed
    except msgspec.ValidationError as error:
        return _unknown(fields, str(error))


def _unknown(fields: dict[str, Any], problem: str) -> Unknown:
    kind = fields.get("type")
    if not isinstance(kind, str):
        raise FrameError(f'not a frame: {shown(fields)}: it has no "type"')
    return Unknown(kind, fields, problem if kind in KNOWN else "")


def shown(frame: object) -> str:
    text = repr(frame)
    return text if len(text) <= 200 else text[:200] + "..."
