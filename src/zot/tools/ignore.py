"""What .gitignore files say. Reads those files, and nothing else; git itself is not asked."""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Sequence

from zot.tools.disk import Disk
from zot.tools.wildcard import (
    DEEP,
    BadPattern,
    Segments,
    compile_segments,
    matches,
    name_regex,
)

MAX_SIZE = 1 << 20


class Rules:
    """The lines of one .gitignore. The last one that matches decides."""

    def __init__(self, text: str) -> None:
        parsed = [rule for line in text.split("\n") if (rule := _parse(line))]
        # Most lines are plain names such as `*.pyc` or `build/`: without exceptions among the
        # lines their order does not matter, and one expression answers for all of them.
        plain = [] if any(rule.negated for rule in parsed) else [r for r in parsed if r.name]
        self._rules = [rule for rule in parsed if rule not in plain]
        self._names = _joined([rule.name for rule in plain if not rule.only_dirs])
        self._dirs = _joined([rule.name for rule in plain])

    def verdict(self, path: Sequence[str], is_dir: bool) -> bool | None:
        """True: ignored; False: explicitly not; None: not mentioned."""
        plain = self._dirs if is_dir else self._names
        if plain is not None and plain.match(path[-1]):
            return True
        for rule in reversed(self._rules):
            if (is_dir or not rule.only_dirs) and matches(rule.segments, path):
                return not rule.negated
        return None


class Rule:
    def __init__(self, segments: Segments, negated: bool, only_dirs: bool, name: str) -> None:
        self.segments = segments
        self.negated = negated
        self.only_dirs = only_dirs
        self.name = name
        """The expression for the name alone, when the place does not matter; else empty."""


def _parse(line: str) -> Rule | None:
    line = _without_trailing_spaces(line.removesuffix("\r"))
    if not line or line.startswith("#"):
        return None
    negated = line.startswith("!")
    if negated:
        line = line[1:]
    only_dirs = line.endswith("/")
    line = line.rstrip("/") if only_dirs else line
    anchored = "/" in line
    if not line:
        return None
    try:
        segments = compile_segments(line)
        name = "" if anchored or line == "**" else name_regex(line)
    except BadPattern:
        return None  # as git does: a line without meaning matches nothing
    return Rule(segments if anchored else (DEEP, *segments), negated, only_dirs, name)


def _without_trailing_spaces(line: str) -> str:
    stripped = line.rstrip(" ")
    if stripped.endswith("\\") and stripped != line:
        return stripped + " "
    return stripped


def _joined(regexes: list[str]) -> re.Pattern[str] | None:
    return re.compile("|".join(f"(?:{each})" for each in regexes), re.DOTALL) if regexes else None


def rules_in(directory: str, disk: Disk) -> Rules | None:
    """The rules of a directory's own .gitignore, if it has one."""
    try:
        fd = disk.open(os.path.join(directory, ".gitignore"))
    except OSError:
        return None
    try:
        if not stat.S_ISREG(os.fstat(fd).st_mode):
            return None
        data = os.read(fd, MAX_SIZE)
    except OSError:
        return None
    finally:
        os.close(fd)
    return Rules(data.decode("utf-8", "surrogateescape").removeprefix("\ufeff"))
