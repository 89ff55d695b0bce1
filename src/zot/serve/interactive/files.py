"""Files that a person may mean: those below the working directory, found by parts of their names,
and any others by their path."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator

from zot.tools.disk import Disk
from zot.tools.walk import Tree
from zot.tui.menu import MenuItem, matching

MAX_FILES = 300_000
"""More are not kept in memory; the list says so."""
MAX_MATCHES = 200
MAX_RANKED = 5_000
"""Of those with the text in their path the nearest; a letter alone is in nearly all of them."""
ELSEWHERE = ("/", "~", "../", "./")
"""A path that begins like this is looked up where it leads."""


class FileIndex:
    """The files below a directory, past what .gitignore leaves out; the nearest first, and those
    whose names begin with a dot behind the others."""

    def __init__(self, folder: str = "", paths: list[str] | None = None) -> None:
        self.folder = folder
        self._paths = sorted(paths or [], key=_rank)
        self._folded = [path.casefold() for path in self._paths]
        self.is_cut = len(self._paths) >= MAX_FILES

    @classmethod
    def of(cls, folder: str) -> FileIndex:
        return cls(folder, list(_below(folder)))

    def find(self, typed: str) -> list[MenuItem]:
        """Those with the text in their path, else those with its letters; a few of them."""
        word = typed.casefold()
        hits = [at for at, path in enumerate(self._folded) if word in path]
        if hits:
            best = sorted(hits[:MAX_RANKED], key=lambda at: _place(self._folded[at], word))
            return [item_of(self._paths[at]) for at in best[:MAX_MATCHES]]
        letters = re.compile(
            "".join(f"[^{re.escape(letter)}]*{re.escape(letter)}" for letter in word)
        )
        loose = [at for at, path in enumerate(self._folded) if letters.match(path)]
        items = [item_of(self._paths[at]) for at in loose[: MAX_MATCHES * 10]]
        return matching(typed, items)[:MAX_MATCHES]


def _below(folder: str) -> Iterator[str]:
    count = 0
    for path, entry in Tree(folder, folder, Disk()).walk(hidden=True, check=lambda: None):
        name = "/".join(path)
        if not name.isprintable():
            continue
        yield name + "/" if entry.is_dir(follow_symlinks=False) else name
        count += 1
        if count >= MAX_FILES:
            return


def _rank(path: str) -> tuple[bool, int]:
    return path.startswith(".") or "/." in path, path.rstrip("/").count("/")


def _place(path: str, word: str) -> int:
    """How well it is hit: at its beginning, at that of its last name, or anywhere."""
    if path.startswith(word):
        return 0
    name = path.rstrip("/").rpartition("/")[2]
    return 1 if name.startswith(word) else 2


def is_elsewhere(typed: str) -> bool:
    return typed.startswith(ELSEWHERE) or typed == ".."


def files_at(typed: str, folder: str) -> list[MenuItem]:
    """The entries of the directory that a path leads to, as far as they begin like its last name.
    Those whose names begin with a dot come for who types one."""
    if typed in ("~", ".."):
        return [item_of(f"{typed}/")]
    above, _, begun = typed.rpartition("/")
    where = os.path.join(folder, os.path.expanduser(f"{above}/"))  # noqa: PTH111, PTH118  as typed
    try:
        with os.scandir(where) as entries:
            names = [entry.name + "/" * entry.is_dir() for entry in entries]
    except OSError:
        return []
    word = begun.casefold()
    shown = [name for name in names if name.casefold().startswith(word) and name.isprintable()]
    shown = [name for name in shown if begun.startswith(".") or not name.startswith(".")]
    return [item_of(f"{above}/{name}") for name in sorted(shown)[:MAX_MATCHES]]


def item_of(path: str) -> MenuItem:
    return MenuItem(path, value=f"@{path}" if path.endswith("/") else f"@{path} ")
