"""Finds the secrets in the user's files as they are written, also in parts that zot cannot use.
auth.json is read by the redactor itself; zot.mcp adds what entries of mcp.json expand to.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator

import msgspec

from zot.files import read_bytes
from zot.provider.types import Json
from zot.secret_values import (
    argument_secrets,
    header_secrets,
    looks_secret,
    url_secrets,
    variable_secrets,
)


def file_secrets(home: str, files: Iterable[str]) -> set[str]:
    """Return the secrets of the files; a file that cannot be read has none."""
    found: set[str] = set()
    for name in files:
        try:
            data = read_bytes(os.path.join(home, name))
            content = msgspec.json.decode(data) if data else None
        except (OSError, msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
            continue
        found.update(_secrets_in(content, ""))
    return found


def _secrets_in(value: Json, name: str) -> Iterator[str]:
    """Yield the secrets of a JSON value. `name` is that of the field that holds it."""
    if isinstance(value, dict):
        by_place = {"headers": header_secrets, "env": variable_secrets}.get(name)
        for key, part in value.items():
            if by_place is not None and isinstance(part, str):
                yield from by_place(key, part)
            else:
                yield from _secrets_in(part, key)
    elif isinstance(value, list):
        yield from argument_secrets([part for part in value if isinstance(part, str)])
        for part in value:
            yield from _secrets_in(part, name)
    elif isinstance(value, str):
        if "://" in value:
            yield from url_secrets(value)
        elif looks_secret(name, value):
            yield value
