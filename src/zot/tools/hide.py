"""Wipes secrets from what the system shows of this process: its environment and command line.

A command's own environment has none of them, but it can read `/proc/PID/environ` of every process
of its user, and zot is one of its ancestors. Only for a process that is zot's own: C code in it
finds the variables empty afterwards. `os.environ` keeps its copy.
"""

from __future__ import annotations

import ctypes
import sys
from collections.abc import Collection

from zot import trees

SHORT = 8
"""A shorter value ("1", "none") is no secret and would hit words of the command line."""


def hide_process(names: Collection[str], values: Collection[str]) -> None:
    """Wipe the secrets of this process, and let no other one of the user read its memory."""
    hide_secrets(names, values)
    trees.own_process()


def hide_server(names: Collection[str]) -> None:
    """The same for a process that runs no commands itself, but has agents that do."""
    hide_secrets(names)
    trees.hide_memory()


def hide_secrets(names: Collection[str], values: Collection[str] = ()) -> None:
    """Wipe the variables with these names, and arguments that hold these values."""
    if sys.platform != "linux":
        return
    try:
        stat = _shown("stat").rpartition(b")")[2].split()
        arguments, environment = _shown("cmdline"), _shown("environ")
        # Fields 48 and 50 of proc(5): where the arguments and the environment begin.
        _wipe(int(stat[45]), arguments, _arguments(arguments, values))
        _wipe(int(stat[47]), environment, _variables(environment, names))
    except (OSError, IndexError, ValueError):
        return  # a system that shows less than this has nothing to hide


def _shown(name: str) -> bytes:
    """What the system shows of this process."""
    with open(f"/proc/self/{name}", "rb") as file:  # noqa: PTH123  loaded before the helper starts
        return file.read()


def _variables(data: bytes, names: Collection[str]) -> list[tuple[int, int]]:
    """Where the values of these variables are, under whatever name: (start, length)."""
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
        return  # a program changed its title: not the memory we were told of
    for start, length in places:
        ctypes.memset(address + start, 0, length)
