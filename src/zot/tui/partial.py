"""Reads the strings of incomplete JSON. Never raises."""

from __future__ import annotations

import re

import msgspec

_NAME = re.compile(r'"((?:[^"\\]|\\.){0,200})"\s*:\s*"')
_VALUE = re.compile(r'(?:[^"\\]|\\u(?![dD][89abAB])\w{4}|\\u\w{4}\\u\w{4}|\\[^u])*')
"""Matches up to the end of the string, or to an incomplete escape."""
_LONGEST_ESCAPE = 12
_LONGEST_NAME = 500
"""Maximum characters of a name, all of them escapes, with its quotes and the colon."""
_MAX = 20_000
"""Maximum characters kept of a string: its end is shown."""


class PartialFields:
    """String fields of an object, the last one as far as it is written. Fields of inner objects are
    mixed with outer ones: for display only. Input is not read twice."""

    def __init__(self) -> None:
        self.fields: dict[str, object] = {}
        self._name = ""
        self._value: str | None = None
        """Value of the field being written; None: between fields."""
        self._rest = ""
        self._at = 0
        """Position in the rest up to which it was read."""

    def add(self, text: str) -> None:
        self._rest += text
        self._at = 0  # no slicing per field: one text may hold a million
        while self._begin() if self._value is None else self._go_on():
            pass
        self._rest = self._rest[self._at :]

    def _begin(self) -> bool:
        match = _NAME.search(self._rest, self._at)
        if match is None:
            # A name cannot begin further from the end.
            self._at = max(self._at, len(self._rest) - _LONGEST_NAME)
            return False
        self._name, self._value = _text(match[1]), ""
        self._at = match.end()
        return True

    def _go_on(self) -> bool:
        """Read the available part of the open string; return whether another field may follow."""
        assert self._value is not None
        match = _VALUE.match(self._rest, self._at)
        assert match is not None  # it matches the empty string
        self._value = (self._value + _text(match[0]))[-_MAX:]
        self.fields[self._name] = self._value
        self._at = match.end()
        if self._rest.startswith('"', self._at):
            self._at += 1
            self._value = None
            return True
        if len(self._rest) - self._at < _LONGEST_ESCAPE:
            return False
        self._at += 1  # not an escape at all
        return True


def _text(escaped: str) -> str:
    try:
        return msgspec.json.decode(f'"{escaped}"', type=str, strict=False)
    except (msgspec.DecodeError, UnicodeEncodeError):
        return escaped
