"""Which directories the user trusts: only there may files of a project change what is dangerous.

A project comes from somebody else. Until the user says otherwise, its `.zot` may choose a model
or a theme, but not where requests (and keys) go or which programs run.
"""

from __future__ import annotations

import os
from collections.abc import Callable

import msgspec

from zot.errors import ConfigError
from zot.files import locked, read_bytes, write_atomic
from zot.home import home_dir


def trust_path() -> str:
    return os.path.join(home_dir(), "trust.json")


def trusted_directories() -> tuple[str, ...]:
    """What the user trusts; a file that cannot be read trusts nothing.

    Raises:
        ConfigError: the file is broken.
    """
    data = read_bytes(trust_path())
    if data is None:
        return ()
    try:
        return tuple(msgspec.json.decode(data, type=dict[str, list[str]])["directories"])
    except (msgspec.MsgspecError, UnicodeDecodeError, KeyError) as error:
        raise ConfigError(f"{trust_path()!r} cannot be read: {error}; repair it") from error


def is_trusted(directory: str) -> bool:
    """Whether the user trusts this directory or one above it."""
    here = os.path.realpath(directory)
    try:
        trusted = trusted_directories()
    except (ConfigError, OSError):
        return False  # a guard that is broken must not be an open door
    return any(here == each or here.startswith(each.rstrip(os.sep) + os.sep) for each in trusted)


def trust(directory: str) -> None:
    """Trust a directory and all below it."""
    here = os.path.realpath(directory)
    _change(lambda trusted: [*(each for each in trusted if each != here), here])


def distrust(directory: str) -> None:
    here = os.path.realpath(directory)
    _change(lambda trusted: [each for each in trusted if each != here])


def _change(change: Callable[[tuple[str, ...]], list[str]]) -> None:
    with locked(trust_path()):
        data = msgspec.json.encode({"directories": change(trusted_directories())})
        write_atomic(trust_path(), msgspec.json.format(data, indent=2) + b"\n")
