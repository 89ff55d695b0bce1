"""Frames of the zot wire back into types: the other direction of zot_events. No input or output."""

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
    """What was received is not a frame."""

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
        """The data as one of the types of zot.wire.shapes. Raises FrameError: it has another
        shape."""
        try:
            return msgspec.convert(self.data, type)
        except msgspec.ValidationError as error:
            raise FrameError(f"the answer to {self.command!r} has another shape: {error}") from None


class Unknown(Frozen):
    """A frame that this version has no type for, or whose fields are not those of its type.

    Protocol version 1 may grow, so a client passes over what it does not know.
    """

    type: str
    fields: dict[str, Any]
    """All of the frame, its type included."""
    problem: str = ""
    """What is wrong with a frame whose type is known."""

    def to_wire(self) -> dict[str, Any]:
        return self.fields


AnyFrame = EventFrame | Response | Unknown

_decode = msgspec.json.Decoder(EventFrame | Response).decode
KNOWN = frozenset(member.__struct_config__.tag for member in (*EventFrame.__args__, Response))
"""The `type` of every frame of this version."""


def parse_frame(frame: bytes | str | dict[str, Any]) -> AnyFrame:
    """One frame, as a line or as an object, as the type that `to_wire` came from. Raises
    FrameError: it is not a JSON object with a "type"."""
    if isinstance(frame, dict):
        return _converted(frame)
    line = whole_characters(frame).encode() if isinstance(frame, str) else frame
    try:
        parsed: AnyFrame = decode_line(line, _decode)
        return parsed
    except CommandError:
        pass  # another type or shape, or no JSON at all: a second look tells
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
