"""JSON that is still being written: the texts that can be read so far. It never raises."""

from __future__ import annotations

import re

import msgspec

_NAME = re.compile(r'"((?:[^"\\]|\\.){0,200})"\s*:\s*"')
_VALUE = re.compile(r'(?:[^"\\]|\\u(?![dD][89abAB])\w{4}|\\u\w{4}\\u\w{4}|\\[^u])*')
"""Up to its end, or to an escape that is cut in the middle."""
_LONGEST_ESCAPE = 12
_LONGEST_NAME = 500
"""Characters of a name, all of them escapes, with its quotes and the colon."""
_MAX = 20_000
"""Characters of a text that are kept: its last ones are what is shown."""


class PartialFields:
    """The fields of an object that are texts, the last one as far as it goes. Inner fields come
    out with the outer ones: it is for showing, not for acting. What was read is not read again."""

    def __init__(self) -> None:
        self.fields: dict[str, object] = {}
        self._name = ""
        self._value: str | None = None
        """Of the field that is being written; None: between two of them."""
        self._rest = ""
        self._at = 0
        """How far the rest was read."""

    def add(self, text: str) -> None:
        self._rest += text
        self._at = 0  # not cut off piece by piece: one text may hold a million fields
        while self._begin() if self._value is None else self._go_on():
            pass
        self._rest = self._rest[self._at :]

    def _begin(self) -> bool:
        match = _NAME.search(self._rest, self._at)
        if match is None:
            # What stands further from the end cannot be the beginning of one.
            self._at = max(self._at, len(self._rest) - _LONGEST_NAME)
            return False
        self._name, self._value = _text(match[1]), ""
        self._at = match.end()
        return True

    def _go_on(self) -> bool:
        """Take what there is of the open text; whether there may be another field."""
        assert self._value is not None
        match = _VALUE.match(self._rest, self._at)
        assert match is not None  # of nothing, at least
        self._value = (self._value + _text(match[0]))[-_MAX:]
        self.fields[self._name] = self._value
        self._at = match.end()
        if self._rest.startswith('"', self._at):
            self._at += 1
            self._value = None
            return True
        if len(self._rest) - self._at < _LONGEST_ESCAPE:
            return False
        self._at += 1  # no escape at all
        return True


def _text(escaped: str) -> str:
    try:
        return msgspec.json.decode(f'"{escaped}"', type=str, strict=False)
    except (msgspec.DecodeError, UnicodeEncodeError):
        return escaped
