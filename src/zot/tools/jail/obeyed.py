"""Finds and renames things that other programs obey merely because they are in a directory: `.git`,
an editor's tasks, files in the shape of a repository. A jailed command could plant one of them for
the user's own git.

A process that may write a directory cannot be forbidden a name in it. So things that exist before a
command are read-only for it (jail.py), and things that appeared are renamed when the command
has ended. By then its keeper has ended all its processes, so nothing can put them back, and zot has
not reported the result yet, so the next program outside does not meet them. While a command runs
for long, mostly in the background, new things are renamed periodically (aftermath.py: Watch).

A directory that cannot be listed could hide such a thing. If it existed before the command, it is
read-only for it; if a command made it, zot changes its mode and searches it.

Standard library only: a keeper loads it when zot was killed.
"""

from __future__ import annotations

import errno
import os
import stat
import time
from collections import deque
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from typing import NamedTuple

from zot.beneath import FOLDER, LOOK, identity, open_plain, parts_of

PROTECTED = (".git", ".zot")
"""Names that git and zot would run or obey later, outside of any jail."""
OBEYED = frozenset(PROTECTED) | {
    *(".mcp.json", ".vscode", ".idea", ".envrc", ".claude", ".codex", ".cursor", ".husky"),
    *(".gemini", ".zed", ".kiro", ".githooks", ".pre-commit-config.yaml", ".pi", ".windsurf"),
    *(".opencode", "opencode.json", ".devcontainer", ".aider.conf.yml", ".nvim.lua", ".exrc"),
    *("lefthook.yml", "mise.toml"),
}
"""PROTECTED and the names that editors and other agents obey. Not writable, at any depth."""
MAX_ENTRIES = 500_000
MAX_SECONDS = 5.0
FRESH = 100_000_000
"""Nanoseconds. A directory that changed this shortly before it was listed may change again with
the same timestamp."""
MAX_COVERS = 100
"""Number of covers beyond which directories are covered instead: mounts are made one by one."""
LIST = os.O_RDONLY | FOLDER | getattr(os, "O_CLOEXEC", 0)
MAX_DEPTH = 1000
"""Maximum number of obeyed directories inside each other that are renamed in one go."""

Key = tuple[int, int]
"""Device and inode, which stay the same when a directory above is renamed."""


def is_obeyed(name: str) -> bool:
    return name.casefold() in OBEYED  # some file systems ignore case


def is_repository(names: Collection[str]) -> bool:
    """Return whether git treats a directory with these names as a repository without a `.git`."""
    return "HEAD" in names and ("commondir" in names or ("objects" in names and "refs" in names))


def obeyed_above(path: str, top: str = "") -> str:
    """Return the nearest directory, from the path upwards, that other programs obey with all that
    is in it: by its name, or as a repository's git directory; "" if there is none. The search ends
    below `top`, or without one at the first directory with a `.git`, which is a work tree.

    `path` has no symlinks."""
    while path not in (top, os.path.dirname(path)):
        if is_obeyed(os.path.basename(path)) or is_repository(_marks(path)):
            return path
        if not top and os.path.lexists(os.path.join(path, ".git")):
            return ""
        path = os.path.dirname(path)
    return ""


def _marks(folder: str) -> list[str]:
    """Return the names of a git directory that are there, also in a directory that cannot be
    listed."""
    marks = ("HEAD", "commondir", "objects", "refs")
    return [name for name in marks if os.path.lexists(os.path.join(folder, name))]


class Thing(NamedTuple):
    path: str
    """Path below the root. For a bare repository: its HEAD, without which git does not see it."""
    key: Key
    is_link: bool = False

    @property
    def cover(self) -> str:
        """The path that must be read-only to keep the thing unchanged."""
        folder, _, name = self.path.rpartition("/")
        return (folder or self.path) if name == "HEAD" else self.path


class Listed(NamedTuple):
    """The cached listing of a directory."""

    key: Key
    changed: int
    folders: list[str]
    things: list[Thing]
    linked: list[tuple[Key, int, str]]
    """Files with several hard links: key, number of links, and the path here."""
    hidden: list[str] = []
    """Paths that must not be read."""


class Look(NamedTuple):
    """The result of one survey of a tree."""

    things: Mapping[Key, Thing]
    closed: Mapping[Key, str]
    """Directories that cannot be listed."""
    linked: list[str]
    """Files with a hard link outside the tree: writing them writes outside."""
    began: int
    """Start time in nanoseconds, on the clock of file timestamps."""
    finished: bool
    """False if MAX_ENTRIES or MAX_SECONDS was reached and deeper directories were not searched."""
    opened: tuple[str, ...] = ()
    """Directories that could not be listed until this look changed their mode."""
    covers: tuple[tuple[str, int, int, bool], ...] = ()
    """In a record: what all jails of the tree must cover (walls.py: Cover)."""
    obeyed: tuple[str, ...] = ()
    """Paths below the root that counted as obeyed, whatever their name."""
    hidden: tuple[str, ...] = ()
    """Paths whose names the survey was made to look for."""

    def had(self, thing: Thing, root: str) -> bool:
        """Return whether the thing was there. After an unfinished look, an unchanged thing counts
        as old: the user's own must not be mistaken for a command's."""
        if thing.key in self.things or self.finished:
            return thing.key in self.things
        try:
            changed = os.lstat(os.path.join(root, thing.path)).st_ctime_ns
        except OSError as error:
            return is_gone(error)
        return changed < self.began - FRESH


def is_gone(error: OSError) -> bool:
    """Return whether a thing went away; a path too long for one system call is still there."""
    return error.errno != errno.ENAMETOOLONG


class Survey:
    """Finds obeyed things in a tree. A directory that did not change is not listed again."""

    def __init__(self, root: str, folder: int, hides: Callable[[str], bool] | None = None) -> None:
        """`folder`: the root's descriptor, which the caller holds; `hides`: whether a file of this
        name must not be read."""
        self.root = root
        self._hides = hides
        self._folder = folder
        self._known: dict[str, Listed] = {}
        self.obeyed: frozenset[str] = frozenset()
        """Paths below the root that count as obeyed, whatever their name (targets.py)."""

    def obey(self, paths: Iterable[str]) -> bool:
        """Set these paths as obeyed; return False if they are so already."""
        before, self.obeyed = self.obeyed, frozenset(paths)
        for path in before ^ self.obeyed:
            self._known.pop(os.path.dirname(path), None)
        return before != self.obeyed

    def look(
        self,
        closed: Collection[Key] = (),
        *,
        opening: bool = False,
        within: Sequence[str] = ("",),
    ) -> Look:
        """Search the tree, or only the directories `within`. `opening`: make the user's directories
        listable where they are not. Directories in `closed` are neither changed nor entered."""
        began, deadline = time.time_ns(), time.monotonic() + MAX_SECONDS
        seen: dict[str, Listed] = {}
        shut: dict[Key, str] = {}
        opened: list[str] = []
        waiting = deque(within)
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
        self._known = seen if "" in within else {**self._known, **seen}
        things = {thing.key: thing for listed in seen.values() for thing in listed.things}
        return Look(
            things,
            shut,
            _linked_outside(seen.values()),
            began,
            not waiting,
            tuple(opened),
            obeyed=tuple(sorted(self.obeyed)),
            hidden=tuple(path for listed in seen.values() for path in listed.hidden),
        )

    def twins(self, paths: Collection[str]) -> list[str]:
        """Return the paths of all files of the last look that are one of these by another name."""
        linked = [link for listed in self._known.values() for link in listed.linked]
        keys = {key for key, _, path in linked if path in paths}
        return [path for key, _, path in linked if key in keys]

    def _listed(self, path: str) -> Listed:
        now = time.time_ns()
        known = self._known.get(path)
        if known and self._is_unchanged(path, known):
            return known
        fd = open_plain(self._folder, path, LIST)
        try:
            status = os.fstat(fd)
            with os.scandir(fd) as entries:
                listed = _read(path, status, entries, self.obeyed, self._hides)
        finally:
            os.close(fd)
        is_fresh = status.st_ctime_ns > now - FRESH
        return listed._replace(changed=0) if is_fresh else listed

    def _is_unchanged(self, path: str, known: Listed) -> bool:
        try:
            status = os.stat(os.path.join(self.root, path), follow_symlinks=False)
        except OSError:
            return False  # it went away, or the path is too long for one system call
        return (known.key, known.changed) == (identity(status), status.st_ctime_ns)

    def _shut(self, path: str) -> tuple[Key, str]:
        """Return the deepest directory on a path that can be opened: it prevents the listing.
        Raises OSError: it went away."""
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
        """Give the user all missing rights to a directory; return False if none is missing, or it
        belongs to another user."""
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


def _read(
    path: str,
    status: os.stat_result,
    entries: Iterable[os.DirEntry[str]],
    obeyed: Collection[str],
    hides: Callable[[str], bool] | None,
) -> Listed:
    folders, things, linked, names = [], [], [], {}
    hidden: list[str] = []
    for entry in entries:
        below = os.path.join(path, entry.name)
        names[entry.name] = entry
        if hides is not None and hides(entry.name):
            hidden.append(below)
        is_thing = is_obeyed(entry.name) or below in obeyed
        if not is_thing and entry.is_dir(follow_symlinks=False):
            folders.append(entry.name)
            continue
        try:
            # `inode()` and the directory's device differ from stat on some file systems.
            file = entry.stat(follow_symlinks=False)
        except FileNotFoundError:
            continue  # it went away; still look at the other entries
        if is_thing:
            things.append(Thing(below, identity(file), entry.is_symlink()))
        elif stat.S_ISREG(file.st_mode) and file.st_nlink > 1:
            linked.append((identity(file), file.st_nlink, below))
    if is_repository(names):
        with suppress(FileNotFoundError):
            key = identity(names["HEAD"].stat(follow_symlinks=False))
            things.append(Thing(os.path.join(path, "HEAD"), key))
    return Listed(identity(status), status.st_ctime_ns, folders, things, linked, hidden)


def _linked_outside(folders: Iterable[Listed]) -> list[str]:
    names: dict[Key, list[str]] = {}
    counts: dict[Key, int] = {}
    for listed in folders:
        for key, count, path in listed.linked:
            names.setdefault(key, []).append(path)
            counts[key] = count
    return [path for key, paths in names.items() if len(paths) < counts[key] for path in paths]


class Aftermath(NamedTuple):
    """Actions taken on the things that commands left."""

    renamed: list[tuple[Thing, str]]
    """Each thing with its new name."""
    failed: list[tuple[str, OSError]]
    opened: list[str]
    """Directories that were made listable."""
    unseen: list[str]
    """Directories that still cannot be listed."""
    finished: bool
    too_deep: str = ""
    """The path at which MAX_DEPTH was reached: obeyed things may be left inside."""


def put_right(
    survey: Survey, folder: int, is_old: Callable[[Thing], bool], before: Look
) -> Aftermath:
    """Rename things that are not old, so that nothing obeys them, and then those inside of them.
    Directories that could not be listed in `before` were read-only for the command and are left
    alone."""
    after = Aftermath([], [], [], [], finished=True)
    within = [""]
    for _ in range(MAX_DEPTH):
        now = survey.look(before.closed, opening=True, within=within)
        after.opened.extend(now.opened)
        after.unseen.extend(path for key, path in now.closed.items() if key not in before.closed)
        after = after._replace(finished=after.finished and now.finished)
        fresh = [thing for thing in now.things.values() if not is_old(thing)]
        within = _rename_all(fresh, folder, after)
        if not within:
            return after
    return after._replace(too_deep=within[0])


def _rename_all(things: Iterable[Thing], folder: int, after: Aftermath) -> list[str]:
    """Rename the things and note it in `after`; return their new paths."""
    renamed = []
    for thing in things:
        try:
            name = make_harmless(thing, folder)
        except OSError as error:
            after.failed.append((thing.path, error))
            continue
        if name:
            after.renamed.append((thing, name))
            renamed.append(os.path.join(os.path.dirname(thing.path), name))
    return renamed


def make_harmless(thing: Thing, root: int) -> str:
    """Rename the thing; return its new name, or "" if it is no longer there."""
    folder, _, name = thing.path.rpartition("/")
    changed = f"{name}.jailed-{os.urandom(3).hex()}"
    try:
        fd = open_plain(root, folder, LIST)
    except (FileNotFoundError, NotADirectoryError):
        return ""
    try:
        # A different file of that name may be the user's, in a directory that was moved here.
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
    """Return paths that contain all of these; beyond MAX_COVERS, directories above them instead."""
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
