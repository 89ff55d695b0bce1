"""Directories the user trusts: only there may project files change dangerous settings.

A project is written by someone else. Until the user trusts it, its `.zot` may choose a model or a
theme, but not where requests (and keys) go or which programs run. Trust covers the `.zot` of that
directory only: a subdirectory may belong to another project.
"""

from __future__ import annotations

import os

import msgspec

from zot.errors import ConfigError
from zot.files import locked, read_bytes, write_atomic
from zot.text import indented_json


def trust_path(home: str) -> str:
    return os.path.join(home, "trust.json")


def trusted_directories(home: str) -> tuple[str, ...]:
    """Return the trusted directories; none if there is no file.

    Raises:
        ConfigError: the file is broken.
    """
    path = trust_path(home)
    data = read_bytes(path)
    if data is None:
        return ()
    try:
        return tuple(msgspec.json.decode(data, type=dict[str, list[str]])["directories"])
    except (msgspec.MsgspecError, UnicodeDecodeError, KeyError) as error:
        raise ConfigError(f"{path!r} cannot be read: {error}; repair it") from error


def is_trusted(directory: str, home: str) -> bool:
    """Return whether the user trusts the `.zot` of this directory."""
    try:
        return os.path.realpath(directory) in trusted_directories(home)
    except (ConfigError, OSError):
        return False  # a broken trust file must not grant trust


def trust(directory: str, home: str) -> None:
    _change(directory, home, trusted=True)


def distrust(directory: str, home: str) -> None:
    _change(directory, home, trusted=False)


def _change(directory: str, home: str, *, trusted: bool) -> None:
    here, path = os.path.realpath(directory), trust_path(home)
    with locked(path):
        others = [place for place in trusted_directories(home) if place != here]
        places = [*others, here] if trusted else others
        write_atomic(path, indented_json({"directories": places}))
