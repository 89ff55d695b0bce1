"""Files for completion: below the working directory by parts of names, elsewhere by path."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator

from zot.tools.disk import Disk
from zot.tools.search.walk import Tree
from zot.tui.menu import MenuItem, matching

MAX_FILES = 300_000
"""Maximum files in memory; the list says if there are more."""
MAX_MATCHES = 200
MAX_RANKED = 5_000
"""Maximum matches to rank, nearest first; a single letter matches nearly all files."""
ELSEWHERE = ("/", "~", "../", "./")
"""Prefixes of paths that are looked up directly."""


class FileIndex:
    """Files below a directory that .gitignore does not exclude, least nested first and hidden ones
    last."""

    def __init__(self, folder: str = "", paths: list[str] | None = None) -> None:
        self.folder = folder
        self._paths = sorted(paths or [], key=_rank)
        self._folded = [path.casefold() for path in self._paths]
        self.is_cut = len(self._paths) >= MAX_FILES

    @classmethod
    def of(cls, folder: str) -> FileIndex:
        return cls(folder, list(_below(folder)))

    def find(self, typed: str) -> list[MenuItem]:
        """Return up to MAX_MATCHES files whose path has the text, else its letters in order."""
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
    """Return the rank of a match: at the start (0), at the start of the last name (1), elsewhere
    (2)."""
    if path.startswith(word):
        return 0
    name = path.rstrip("/").rpartition("/")[2]
    return 1 if name.startswith(word) else 2


def is_elsewhere(typed: str) -> bool:
    return typed.startswith(ELSEWHERE) or typed == ".."


def files_at(typed: str, folder: str) -> list[MenuItem]:
    """Return the entries of the path's directory that begin with its last name. Hidden entries only
    if that begins with a dot."""
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
