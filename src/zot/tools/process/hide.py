"""Wipes secrets from this process's environment and command line as shown in /proc.

A command's own environment has no secrets, but it can read `/proc/PID/environ` of every process
of its user, and zot is one of its ancestors. Use it only if zot owns the process: C code in it
finds the variables empty afterwards. `os.environ` keeps its copy.
"""

from __future__ import annotations

import ctypes
import sys
from collections.abc import Collection

from zot import trees

SHORT = 8
"""Minimum length of a secret: shorter values ("1", "none") would match ordinary words."""


def hide_process(names: Collection[str], values: Collection[str]) -> None:
    """Wipe the secrets of this process and keep the user's other processes from its memory."""
    hide_secrets(names, values)
    trees.own_process()


def hide_server(names: Collection[str]) -> None:
    """Like hide_process(), for a process that runs no commands itself, but whose agents do."""
    hide_secrets(names)
    trees.hide_memory()


def hide_secrets(names: Collection[str], values: Collection[str] = ()) -> None:
    """Wipe the variables with these names, and arguments that hold these values."""
    if sys.platform != "linux":
        return
    try:
        stat = _shown("stat").rpartition(b")")[2].split()
        arguments, environment = _shown("cmdline"), _shown("environ")
        # Fields 48 and 50 of proc(5): addresses of the arguments and the environment.
        _wipe(int(stat[45]), arguments, _arguments(arguments, values))
        _wipe(int(stat[47]), environment, _variables(environment, names))
    except (OSError, IndexError, ValueError):
        return  # without these files there is nothing to hide


def _shown(name: str) -> bytes:
    """Return the content of a /proc file of this process."""
    with open(f"/proc/self/{name}", "rb") as file:  # noqa: PTH123  loaded before the helper starts
        return file.read()


def _variables(data: bytes, names: Collection[str]) -> list[tuple[int, int]]:
    """Return (start, length) of these variables' values, also where another name has the value."""
    wanted = {name.encode() for name in names}
    entries = [entry.partition(b"=") for entry in data.split(b"\0")]
    values = {value for name, _, value in entries if name in wanted and len(value) >= SHORT}
    places, at = [], 0
    for name, equals, value in entries:
        if value and (name in wanted or value in values):
            places.append((at + len(name) + 1, len(value)))
        at += len(name) + len(equals) + len(value) + 1
    return places


def _arguments(data: bytes, values: Collection[str]) -> list[tuple[int, int]]:
    places = []
    for value in (value.encode() for value in values if len(value) >= SHORT):
        at = data.find(value)
        while at >= 0:
            places.append((at, len(value)))
            at = data.find(value, at + 1)
    return places


def _wipe(address: int, data: bytes, places: list[tuple[int, int]]) -> None:
    if not places or ctypes.string_at(address, len(data)) != data:
        return  # the process title was changed: this is other memory
    for start, length in places:
        ctypes.memset(address + start, 0, length)
