"""Texts from outside, made fit for where they go."""

from __future__ import annotations

import re

_OBEYED = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f"  # escape codes, backspaces, a cursor that returns
    "\u200e\u200f\u2028-\u202e\u2066-\u2069"  # what makes letters change places
    "\ud800-\udfff]"  # halves of a character, which cannot be written
)


def printable(text: str) -> str:
    """Without what a terminal would obey; joined emoji and all kinds of spaces stay."""
    return _OBEYED.sub("\ufffd", text.replace("\r\n", "\n"))
