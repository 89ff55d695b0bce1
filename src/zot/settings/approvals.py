"""Tool calls the user allowed permanently, per project; stored in zot's home, not the project."""

from __future__ import annotations

import os

import msgspec

from zot.core.rule import Rule
from zot.errors import ConfigError
from zot.files import locked, read_bytes, write_atomic
from zot.text import indented_json, prepared

MAX_RULES = 1000
"""Maximum rules per project; the oldest are dropped."""

AllRules = dict[str, list[Rule]]


prepared(AllRules)


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
            own = [kept for kept in rules.get(self._project, ()) if kept != rule]
            rules[self._project] = [*own, rule][-MAX_RULES:]
            write_rules(self._path, rules)

    def remove(self, rule: Rule) -> bool:
        with locked(self._path):
            rules = read_rules(self._path)
            own = rules.get(self._project, [])
            if rule not in own:
                return False
            own.remove(rule)
            if not own:
                del rules[self._project]
            write_rules(self._path, rules)
        return True


def approvals_path(home: str) -> str:
    return os.path.join(home, "approvals.json")


def read_rules(path: str) -> AllRules:
    """Read the rules of all projects. Raises ConfigError when the file is broken or unreadable."""
    try:
        data = read_bytes(path)
        return {} if data is None else msgspec.json.decode(data, type=AllRules)
    except (msgspec.MsgspecError, UnicodeDecodeError, OSError) as error:
        raise ConfigError(f"{path!r} cannot be read: {error}; repair or remove it") from error


def write_rules(path: str, rules: AllRules) -> None:
    try:
        write_atomic(path, indented_json(rules))
    except OSError as error:
        raise ConfigError(f"cannot write {path!r}: {error.strerror or error}") from error
