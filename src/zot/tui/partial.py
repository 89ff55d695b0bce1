"""JSON that is still being written: the fields that can be read so far. It never raises."""

from __future__ import annotations

import re

import msgspec

_FIELD = re.compile(r'"((?:[^"\\]|\\.)*)"\s*:\s*"((?:[^"\\]|\\.)*)', re.DOTALL)
_MAX = 200_000


def partial_fields(text: str) -> dict[str, object]:
    """The object's fields; of one that is cut off, the texts among them, the last one as far as
    it goes. Inner fields come out with the outer ones: it is for showing, not for acting."""
    text = text[:_MAX]
    if not text.strip():
        return {}
    try:
        whole = msgspec.json.decode(text)
    except (msgspec.DecodeError, UnicodeEncodeError, RecursionError):
        return {_text(name): _text(value) for name, value in _FIELD.findall(text)}
    return whole if isinstance(whole, dict) else {}


def _text(escaped: str) -> str:
    for cut in range(min(7, len(escaped)) + 1):  # an escape may be cut in the middle
        try:
            return msgspec.json.decode(f'"{escaped[: len(escaped) - cut]}"', type=str)
        except (msgspec.DecodeError, UnicodeEncodeError):
            continue
    return ""
