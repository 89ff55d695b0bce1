"""Permissions that the user gave for good: trusted directories, and tool calls allowed per project.
Stored in zot's home, never in the project.

A project is written by someone else. Until the user trusts it, its `.zot` may choose a model or a
theme, but not where requests (and keys) go or which programs run. Trust covers the `.zot` of that
directory only: a subdirectory may belong to another project.
"""

from __future__ import annotations

import os
from typing import Any

import msgspec

from zot.core.hook import Rule
from zot.errors import ConfigError
from zot.files import locked, read_bytes, write_atomic
from zot.text import Frozen, indented_json, prepared

MAX_RULES = 1000
"""Maximum rules per project; the oldest are dropped."""

AllRules = dict[str, list[Rule]]
"""Allowed tool calls by project."""


class TrustFile(Frozen):
    directories: list[str]


prepared(AllRules, TrustFile)


def trust_path(home: str) -> str:
    return os.path.join(home, "trust.json")


def trusted_directories(home: str) -> list[str]:
    """Return the trusted directories. Raises ConfigError when the file is broken or unreadable."""
    content = _read(trust_path(home), TrustFile)
    return content.directories if content else []


def is_trusted(directory: str, home: str) -> bool:
    """Return whether the user trusts the `.zot` of this directory."""
    try:
        return os.path.realpath(directory) in trusted_directories(home)
    except ConfigError:
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
        _write(path, TrustFile(places))


# --- allowed tool calls ------------------------------------------------------------------------


class ProjectRules:
    """Rules of one directory, read from disk each time: another process may change them."""

    def __init__(self, home: str, project: str) -> None:
        self._path = approvals_path(home)
        self._project = os.path.realpath(project)

    def all(self) -> list[Rule]:
        return read_rules(self._path).get(self._project, [])

    def add(self, rule: Rule) -> None:
        with locked(self._path):
            rules = read_rules(self._path)
            own = [old for old in rules.get(self._project, ()) if old != rule]
            rules[self._project] = [*own, rule][-MAX_RULES:]
            _write(self._path, rules)

    def remove(self, rule: Rule) -> bool:
        with locked(self._path):
            rules = read_rules(self._path)
            own = rules.get(self._project, [])
            if rule not in own:
                return False
            own.remove(rule)
            if not own:
                del rules[self._project]
            _write(self._path, rules)
        return True


def approvals_path(home: str) -> str:
    return os.path.join(home, "approvals.json")


def read_rules(path: str) -> AllRules:
    """Read the rules of all projects. Raises ConfigError when the file is broken or unreadable."""
    return _read(path, AllRules) or {}


# --- files -----------------------------------------------------------------------------------


def _read(path: str, type: Any) -> Any:
    try:
        data = read_bytes(path)
        return None if data is None else msgspec.json.decode(data, type=type)
    except (msgspec.MsgspecError, UnicodeDecodeError, OSError) as error:
        raise ConfigError(f"{path!r} cannot be read: {error}; repair or remove it") from error


def _write(path: str, value: object) -> None:
    try:
        write_atomic(path, indented_json(value))
    except OSError as error:
        raise ConfigError(f"cannot write {path!r}: {error.strerror or error}") from error
