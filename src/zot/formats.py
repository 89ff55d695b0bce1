"""The formats of session files that zot knows: the one place that names them."""

from __future__ import annotations

from collections.abc import Iterator

from zot.sessions.format import Format
from zot.sessions.jsonl import ZOT


def formats() -> Iterator[Format]:
    """Ours comes first; the others are loaded when a file is none of ours."""
    yield ZOT
    from zot.pi.format import PI

    yield PI


def format_named(name: str) -> Format:
    return next(format for format in formats() if format.name == name)


def format_of(line: bytes) -> Format:
    """The format of a file that begins so; ours, where nobody knows it."""
    return next((format for format in formats() if format.owns(line)), ZOT)
