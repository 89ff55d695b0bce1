"""Registry of the session file formats that zot knows."""

from __future__ import annotations

from collections.abc import Iterator

from zot.sessions.format import ZOT, Format


def formats() -> Iterator[Format]:
    """Yield the formats, zot's own first; the others are loaded only if they are needed."""
    yield ZOT
    from zot.pi.format import PI

    yield PI


def format_named(name: str) -> Format:
    return next(format for format in formats() if format.name == name)


def format_of(line: bytes) -> Format:
    """Return the format of a file with this first line; zot's own if it is unknown."""
    return next((format for format in formats() if format.owns(line)), ZOT)
