"""Says which paths of a command lie inside the project, and follows its `cd`.

Links are followed as they are now: a command that changes them meanwhile is not a case for rules
but for the jail.
"""

from __future__ import annotations

import fnmatch
import os
from collections.abc import Iterable

from msgspec.structs import replace

from zot.core.hook import Project
from zot.runtime.grammar import Item, Simple, Word
from zot.text import Frozen

MAX_NAMES = 500
"""Names of files that one word may stand for; a longer list is asked about."""
MAX_DIRECTORIES = 4
HARMLESS_FILES = ("/dev/null",)


class Place(Frozen):
    """Directories that a simple command may run in, all of them inside the project."""

    project: Project
    root: str
    """Real path of the project."""
    here: tuple[str, ...]

    def at(self, here: tuple[str, ...]) -> Place:
        """Return the place of a command that runs in other directories."""
        return replace(self, here=here)

    @property
    def moved(self) -> bool:
        """Whether a `cd` may have changed the directory."""
        return self.here != (self.root,)

    def holds(self, path: str) -> bool:
        """Whether a path leads inside the project, to nothing that is hidden."""
        return path in HARMLESS_FILES or all(self._holds(path, folder) for folder in self.here)

    def _holds(self, path: str, folder: str) -> bool:
        try:
            real = os.path.realpath(os.path.join(folder, path))
        except ValueError:
            return False  # a NUL character
        return is_inside(real, self.root) and not self.project.hidden(real)

    def is_folder(self, path: str) -> bool:
        return any(os.path.isdir(os.path.join(folder, path)) for folder in self.here)

    def texts(self, word: Word) -> list[str] | None:
        """Return the words that bash makes of this one: names of files where it is a pattern, else
        its text; None: unknown, or too many."""
        if word.tilde:
            return None
        if not word.glob:
            return [word.text]
        if "[" in word.glob:
            return None  # classes follow the locale
        names: list[str] = [word.text]
        for folder in self.here:
            found = _matches(folder, word.glob)
            if found is None:
                return None
            names += found
        return names if len(names) <= MAX_NAMES else None


def is_inside(path: str, root: str) -> bool:
    return path == root or path.startswith(root.rstrip(os.sep) + os.sep)


def _matches(folder: str, pattern: str) -> list[str] | None:
    """Return the paths that match `*` and `?`, also with a leading dot; None: too many."""
    first, *rest = pattern.split("/")
    found = ["/"] if not first else _names(folder, "", first)
    for part in rest:
        found = [path for base in found for path in _names(folder, _joined(base), part)]
        if len(found) > MAX_NAMES:
            return None
    return found


def _joined(base: str) -> str:
    return base if base.endswith("/") else f"{base}/"


def _names(folder: str, base: str, part: str) -> list[str]:
    if "*" not in part and "?" not in part:
        return [base + part]
    try:
        with os.scandir(os.path.join(folder, base)) as entries:
            names = [entry.name for entry in entries]
    except OSError:
        return []
    return [base + name for name in names if fnmatch.fnmatchcase(name, part)]


# --- cd --------------------------------------------------------------------------------------


class Step(Frozen):
    """A simple command, where it runs, and what feeds it."""

    command: Simple
    place: Place
    is_fed: bool
    """Its input comes from another command or a file."""


class _Path:
    """The directories while a list of commands is read from left to right."""

    def __init__(self, start: Place) -> None:
        self.here = self.everywhere = start.here
        self.only_and = True
        """Since the last `;` commands were joined by `&&` only: a `cd` before has worked."""
        self.is_fed = False

    def copy(self) -> _Path:
        other = object.__new__(_Path)
        other.__dict__.update(self.__dict__)
        return other

    def sign(self, sign: str) -> None:
        self.is_fed = sign in ("|", "|&")
        if sign != "&&":
            self.here = self.everywhere
            self.only_and = sign in (";", "&")

    def cd(self, moved: tuple[str, ...]) -> None:
        self.everywhere = _unique((*self.everywhere, *moved))
        self.here = moved if self.only_and else self.everywhere


def steps(items: Iterable[Item], start: Place) -> list[Step] | None:
    """Return each command with the directories that it may run in, but for `cd`; None: one of them
    may be outside the project."""
    path, above, found = _Path(start), list[_Path](), list[Step]()
    for item in items:
        if item == "(":
            above.append(path.copy())
        elif item == ")":
            path = above.pop()
        elif isinstance(item, str):
            path.sign(item)
        elif item.words[0].source == "cd":
            moved = _cd(item, start.at(path.here))
            if moved is None:
                return None
            path.cd(moved)
            if len(path.everywhere) > MAX_DIRECTORIES:
                return None
        else:
            feeds = any(redirection.sign == "<" for redirection in item.redirections)
            found.append(Step(item, start.at(path.here), path.is_fed or feeds))
    return found


def _cd(command: Simple, place: Place) -> tuple[str, ...] | None:
    """Return the directories that a `cd` leads to; None: outside, through a link, or unknown."""
    if len(command.words) != 2 or command.assigned or command.redirections:
        return None
    word = command.words[1]
    if word.glob or word.tilde or not word.text or word.text.startswith("-"):
        return None
    if not word.text.startswith(("./", "../", "/")) and place.project.environ.get("CDPATH"):
        return None
    moved = _unique(os.path.normpath(os.path.join(folder, word.text)) for folder in place.here)
    inside = all(is_inside(path, place.root) and os.path.realpath(path) == path for path in moved)
    return moved if inside else None


def _unique(paths: Iterable[str]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(paths))
