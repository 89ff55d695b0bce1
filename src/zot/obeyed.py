"""What other programs obey when they merely find it in a directory: `.git`, an editor's tasks, the
shape of a repository. A command in the jail could leave such a thing for the user's own git.

Nothing can forbid a name to a process that may write the directory. So what is there before a
command is made read-only for it (tools/jail.py), and what appeared is renamed when the command has
ended. By then its keeper has left no process of it, so nothing can put it back, and zot has told
nobody of the result yet: the next program outside does not meet it. While a command runs for long,
in the background above all, what appears is renamed from time to time (tools/jail.py: Watch).

A directory that cannot be listed could hide such a thing. One that was there before is read-only
for the command; one that a command made is opened up and looked into.

Standard library only: a keeper loads it when zot was killed.
"""

from __future__ import annotations

import os
import stat
import time
from collections import deque
from collections.abc import Callable, Collection, Iterable, Mapping
from contextlib import suppress
from typing import NamedTuple

from zot.beneath import FOLDER, LOOK, identity, open_plain, parts_of

PROTECTED = (".git", ".zot")
"""What git and zot would run or obey later, outside of any jail."""
OBEYED = frozenset(PROTECTED) | {
    *(".mcp.json", ".vscode", ".idea", ".envrc", ".claude", ".codex", ".cursor", ".husky"),
    *(".gemini", ".zed", ".kiro", ".githooks", ".pre-commit-config.yaml"),
}
"""Likewise, by these and by the programs they are named after. Not writable, at any depth."""
MAX_ENTRIES = 500_000
MAX_SECONDS = 5.0
FRESH = 100_000_000
"""Nanoseconds: a directory that changed this shortly before it was listed may change once more
without its time showing it."""
MAX_COVERS = 100
"""Mounts are made one by one for every command."""
LIST = os.O_RDONLY | FOLDER | getattr(os, "O_CLOEXEC", 0)
ROUNDS = 5
"""How often a tree is looked through again after something was renamed: in it may be more."""

Key = tuple[int, int]
"""A device and an inode: a directory above may be renamed."""


def is_obeyed(name: str) -> bool:
    return name[:1] == "." and name.casefold() in OBEYED  # some file systems take .GIT for .git


def is_repository(names: Collection[str]) -> bool:
    """Whether git takes a directory with these names for a repository, without any `.git`."""
    return "HEAD" in names and ("commondir" in names or ("objects" in names and "refs" in names))


class Thing(NamedTuple):
    path: str
    """Below the root. Of a repository's shape: its HEAD, without which git does not see it."""
    key: Key
    is_link: bool = False

    @property
    def cover(self) -> str:
        """What must be read-only, so that it stays as it is."""
        folder, _, name = self.path.rpartition("/")
        return self.path if is_obeyed(name) else folder or self.path


class Listed(NamedTuple):
    """A directory as it was when it was last listed."""

    key: Key
    changed: int
    folders: list[str]
    things: list[Thing]
    linked: list[tuple[Key, int, str]]
    """Files with several names: how many names, and the one here."""


class Look(NamedTuple):
    """What a survey saw of a tree."""

    things: Mapping[Key, Thing]
    closed: Mapping[Key, str]
    """Directories that cannot be listed."""
    linked: list[str]
    """Files with another name that is not in the tree: to write them is to write outside."""
    began: int
    """Nanoseconds of the clock that files have their times from."""
    finished: bool
    """False: there was no time for all of it; what lies deeper was not looked at."""
    opened: tuple[str, ...] = ()
    """Directories that could not be listed until this look changed their mode."""

    def had(self, thing: Thing, root: str) -> bool:
        """Whether it was there. Where there was no time to see it, it was if it has not changed
        since: the user's own must not be taken for a command's."""
        if thing.key in self.things or self.finished:
            return thing.key in self.things
        try:
            changed = os.lstat(os.path.join(root, thing.path)).st_ctime_ns
        except OSError:
            return True  # it is gone again
        return changed < self.began - FRESH


class Survey:
    """Finds them in a tree. A directory that did not change is not listed again."""

    def __init__(self, root: str, folder: int) -> None:
        """`folder`: the root's descriptor, which the caller holds."""
        self.root = root
        self._folder = folder
        self._known: dict[str, Listed] = {}

    def look(self, closed: Collection[Key] = (), *, opening: bool = False) -> Look:
        """`opening`: let a directory that cannot be listed be listed, if its owner is the user,
        unless it is one of the `closed`, which are not entered."""
        began, deadline = time.time_ns(), time.monotonic() + MAX_SECONDS
        seen: dict[str, Listed] = {}
        shut: dict[Key, str] = {}
        opened: list[str] = []
        waiting = deque([""])
        entries = 0
        while waiting and entries <= MAX_ENTRIES and time.monotonic() <= deadline:
            path = waiting.popleft()
            try:
                listed = self._listed(path)
            except PermissionError:
                key, path = self._shut(path)
                if opening and key not in closed and self._open_up(path):
                    opened.append(path)
                    waiting.append(path)
                else:
                    shut[key] = path
                continue
            except OSError:
                continue  # it went away
            if listed.key in closed:
                shut[listed.key] = path
                continue
            seen[path] = listed
            entries += 1 + len(listed.folders)
            waiting += [os.path.join(path, name) for name in listed.folders]
        self._known = seen
        things = {thing.key: thing for listed in seen.values() for thing in listed.things}
        linked = _linked_outside(seen.values())
        return Look(things, shut, linked, began, not waiting, tuple(opened))

    def _listed(self, path: str) -> Listed:
        now = time.time_ns()
        known = self._known.get(path)
        if known and self._is_unchanged(path, known):
            return known
        fd = open_plain(self._folder, path, LIST)
        try:
            status = os.fstat(fd)
            with os.scandir(fd) as entries:
                listed = _read(path, status, entries)
        finally:
            os.close(fd)
        is_fresh = status.st_ctime_ns > now - FRESH
        return listed._replace(changed=0) if is_fresh else listed

    def _is_unchanged(self, path: str, known: Listed) -> bool:
        try:
            status = os.stat(os.path.join(self.root, path), follow_symlinks=False)
        except OSError:
            return False  # it went away, or the path is too long to be said at once
        return (known.key, known.changed) == (identity(status), status.st_ctime_ns)

    def _shut(self, path: str) -> tuple[Key, str]:
        """The directory on the way to a path that keeps us from listing it. Raises OSError: it
        went away."""
        parts = parts_of(path)
        while True:
            try:
                fd = open_plain(self._folder, "/".join(parts), LOOK)
            except PermissionError:
                parts.pop()
                continue
            key = identity(os.fstat(fd))
            os.close(fd)
            return key, "/".join(parts)

    def _open_up(self, path: str) -> bool:
        """Give the user all rights to a directory that lacks some; False: it has them, or belongs
        to another user."""
        fd = open_plain(self._folder, path, LOOK)
        try:
            mode = stat.S_IMODE(os.fstat(fd).st_mode)
            if mode & 0o700 == 0o700:
                return False
            os.chmod(f"/proc/self/fd/{fd}", mode | 0o700)
        except OSError:
            return False
        finally:
            os.close(fd)
        return True


def _read(path: str, status: os.stat_result, entries: Iterable[os.DirEntry[str]]) -> Listed:
    folders, things, linked, names = [], [], [], {}
    for entry in entries:
        below = os.path.join(path, entry.name)
        names[entry.name] = entry
        if not is_obeyed(entry.name) and entry.is_dir(follow_symlinks=False):
            folders.append(entry.name)
            continue
        try:
            # Not `inode()` and the directory's device: some file systems say others there.
            file = entry.stat(follow_symlinks=False)
        except FileNotFoundError:
            continue  # it went away, which must not hide the others
        if is_obeyed(entry.name):
            things.append(Thing(below, identity(file), entry.is_symlink()))
        elif stat.S_ISREG(file.st_mode) and file.st_nlink > 1:
            linked.append((identity(file), file.st_nlink, below))
    if is_repository(names):
        with suppress(FileNotFoundError):
            key = identity(names["HEAD"].stat(follow_symlinks=False))
            things.append(Thing(os.path.join(path, "HEAD"), key))
    return Listed(identity(status), status.st_ctime_ns, folders, things, linked)


def _linked_outside(folders: Iterable[Listed]) -> list[str]:
    names: dict[Key, list[str]] = {}
    counts: dict[Key, int] = {}
    for listed in folders:
        for key, count, path in listed.linked:
            names.setdefault(key, []).append(path)
            counts[key] = count
    return [path for key, paths in names.items() if len(paths) < counts[key] for path in paths]


class Aftermath(NamedTuple):
    """What was done about the things that commands left."""

    renamed: list[tuple[Thing, str]]
    """With the new name."""
    failed: list[tuple[str, OSError]]
    opened: list[str]
    """Directories that could not be listed, and can be now."""
    unseen: list[str]
    """Directories that still cannot."""
    finished: bool


def put_right(
    survey: Survey, folder: int, is_old: Callable[[Thing], bool], before: Look
) -> Aftermath:
    """Rename what is not old, so that nothing obeys it. `before`: the directories that could not
    be listed then were read-only, and are left alone."""
    after = Aftermath([], [], [], [], finished=True)
    now = before
    for _ in range(ROUNDS):
        now = survey.look(before.closed, opening=True)
        after.opened.extend(now.opened)
        fresh = [thing for thing in now.things.values() if not is_old(thing)]
        count = len(after.renamed)
        for thing in fresh:
            try:
                name = make_harmless(thing, folder)
            except OSError as error:
                after.failed.append((thing.path, error))
            else:
                if name:
                    after.renamed.append((thing, name))
        if len(after.renamed) == count:
            break
    after.unseen.extend(path for key, path in now.closed.items() if key not in before.closed)
    return after._replace(finished=now.finished)


def make_harmless(thing: Thing, root: int) -> str:
    """Rename it; its new name, or nothing if it is no longer there."""
    folder, _, name = thing.path.rpartition("/")
    changed = f"{name}.jailed-{os.urandom(3).hex()}"
    try:
        fd = open_plain(root, folder, LIST)
    except (FileNotFoundError, NotADirectoryError):
        return ""
    try:
        # Another one of that name may be the user's own, of a directory that was moved here.
        if identity(os.stat(name, dir_fd=fd, follow_symlinks=False)) != thing.key:
            return ""
        try:
            os.rename(name, changed, src_dir_fd=fd, dst_dir_fd=fd)
        except PermissionError:
            os.fchmod(fd, 0o700)
            os.rename(name, changed, src_dir_fd=fd, dst_dir_fd=fd)
    except FileNotFoundError:
        return ""
    finally:
        os.close(fd)
    return changed


def few_covers(paths: Iterable[str]) -> list[str]:
    """Paths that hold all of these; instead of too many, the directories that they are in."""
    covers = set(paths)
    while len(covers) > MAX_COVERS:
        depth = max(path.count("/") for path in covers)
        if not depth:
            break
        covers = {os.path.dirname(path) if path.count("/") == depth else path for path in covers}
    return sorted(path for path in covers if not any(above in covers for above in _above(path)))


def _above(path: str) -> list[str]:
    parts = path.split("/")
    return ["/".join(parts[:end]) for end in range(1, len(parts))]
