"""Which directories the user trusts: only there may files of a project change what is dangerous.

A project comes from somebody else. Until the user says otherwise, its `.zot` may choose a model
or a theme, but not where requests (and keys) go or which programs run. Trust is for the `.zot` of
that directory: one below it may be of another project.
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
    """What the user trusts; a file that cannot be read trusts nothing.

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
    """Whether the user trusts the `.zot` of this directory."""
    try:
        return os.path.realpath(directory) in trusted_directories(home)
    except (ConfigError, OSError):
        return False  # a guard that is broken must not be an open door


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
