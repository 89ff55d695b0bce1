"""Walks a directory tree in the order of its names, without entries ignored by .gitignore.

Symlinks to directories are not entered, so there are no loops. Uses only the standard library and
plain strings: it also runs in the search process (program.py).
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence

from zot.tools.disk import Disk
from zot.tools.search.ignore import IgnoreRules, rules_in

TYPE_CHECKING = False
if TYPE_CHECKING:
    from zot.tools.disk import DiskEntry

Chain = tuple[tuple[int, IgnoreRules], ...]
"""Rules with the depth of their directory, outermost first."""


class Tree:
    """A directory to walk, with the ignore rules of the directories above it."""

    def __init__(self, root: str, cwd: str, disk: Disk) -> None:
        root, cwd = disk.real(root), disk.real(cwd)
        self.root = root
        self._disk = disk
        self.repository = disk.repository(root)
        top = self.repository or (cwd if _inside(root, cwd) else root)
        relative = os.path.relpath(root, top)
        self._prefix = () if relative == "." else tuple(relative.split(os.sep))
        chain: list[tuple[int, IgnoreRules]] = []
        for depth in range(len(self._prefix)):
            rules = rules_in(os.path.join(top, *self._prefix[:depth]), disk)
            if rules is not None:
                chain.append((depth, rules))
        self.inherited: Chain = tuple(chain)

    def walk(
        self, *, hidden: bool, check: Callable[[], None], max_depth: int | None = None
    ) -> Iterator[tuple[tuple[str, ...], DiskEntry]]:
        """Yield each entry with its path below the root. `check` is called for every directory and
        may raise to end the walk; a directory that cannot be read is skipped."""
        base = len(self._prefix)
        stack = [(self._prefix, iter(self._entries(self.root)), self._enter(self.root, base, ()))]
        check()
        while stack:
            above, entries, chain = stack[-1]
            entry = next(entries, None)
            if entry is None:
                stack.pop()
                continue
            name = entry.name
            if name == ".git" or (name.startswith(".") and not hidden):
                continue
            path = (*above, name)
            is_dir = entry.is_dir(follow_symlinks=False)
            if chain and ignored(chain, path, is_dir):
                continue
            yield path[base:], entry
            if is_dir and (max_depth is None or len(path) - base < max_depth):
                check()
                inner = self._enter(entry.path, len(path), chain)
                stack.append((path, iter(self._entries(entry.path)), inner))

    def _enter(self, directory: str, depth: int, chain: Chain) -> Chain:
        if depth == len(self._prefix):
            chain = self.inherited
        elif os.path.lexists(os.path.join(directory, ".git")):
            chain = ()  # a nested repository: the outer rules end here
        rules = rules_in(directory, self._disk)
        return chain if rules is None else (*chain, (depth, rules))

    def _entries(self, directory: str) -> Sequence[DiskEntry]:
        try:
            return self._disk.entries(directory)
        except OSError:
            return ()


def ignored(chain: Chain, path: tuple[str, ...], is_dir: bool) -> bool:
    """Return whether the path is ignored; the innermost file with a matching rule decides."""
    for depth, rules in reversed(chain):
        verdict = rules.verdict(path[depth:], is_dir)
        if verdict is not None:
            return verdict
    return False


def _inside(path: str, directory: str) -> bool:
    return os.path.commonpath([path, directory]) == directory
