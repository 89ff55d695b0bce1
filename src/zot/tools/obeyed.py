"""What other programs obey when they merely find it in a directory: `.git`, an editor's tasks, the
shape of a repository. A command in the jail could leave such a thing for the user's own git.

Nothing can forbid a name to a process that may write the directory. So what is there before a
command is made read-only for it (jail.py), and what appeared is renamed when the command has ended.
By then the supervisor has left no process of it, so nothing can put it back, and zot has told
nobody of the result yet: the next program outside does not meet it. While a command runs for long,
in the background above all, what appears is renamed from time to time (Watch).
"""

from __future__ import annotations

import os
import stat
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Sequence

from msgspec import Struct

from zot.text import Frozen
from zot.tools.beneath import Beneath, is_obeyed, is_repository
from zot.tools.disk import FOLDER

MAX_ENTRIES = 500_000
MAX_SECONDS = 5.0
FRESH = 100_000_000
"""Nanoseconds: a directory that changed this shortly before it was listed may change once more
without its time showing it."""
WATCH_AFTER = 10.0
"""Seconds that a command may have a repository of its own: a test that makes one is common."""
WATCH_EVERY = 2.0
WATCH_REST = 20.0
"""A look that takes so long is followed by a pause of so many times its length."""
MAX_NOTES = 20
MAX_COVERS = 100
"""Mounts are made one by one for every command."""


class Thing(Frozen):
    path: str
    """Below the root. Of a repository's shape: its HEAD, without which git does not see it."""
    inode: int

    @property
    def cover(self) -> str:
        """What must be read-only, so that it stays as it is."""
        folder, _, name = self.path.rpartition("/")
        return self.path if is_obeyed(name) else folder or self.path


class Listed(Struct):
    """A directory as it was when it was last listed."""

    inode: int
    changed: int
    folders: list[str]
    things: list[Thing]


class Look(Frozen, eq=False):
    """What a survey saw of a tree."""

    things: dict[int, Thing]
    """By inode: a directory above may be renamed."""
    began: int
    """Nanoseconds of the clock that files have their times from."""
    finished: bool
    """False: there was no time for all of it; what lies deeper was not looked at."""

    def had(self, thing: Thing, root: str) -> bool:
        """Whether it was there. Where there was no time to see it, it was if it has not changed
        since: the user's own must not be taken for a command's."""
        if thing.inode in self.things or self.finished:
            return thing.inode in self.things
        try:
            changed = os.lstat(os.path.join(root, thing.path)).st_ctime_ns
        except OSError:
            return True  # it is gone again
        return changed < self.began - FRESH


class Survey:
    """Finds them in a tree. A directory that did not change is not listed again."""

    def __init__(self, root: str) -> None:
        self._root = root
        self._known: dict[str, Listed] = {}

    def look(self) -> Look:
        began, deadline = time.time_ns(), time.monotonic() + MAX_SECONDS
        seen: dict[str, Listed] = {}
        things: dict[int, Thing] = {}
        waiting = deque([""])
        entries = 0
        while waiting:
            if entries > MAX_ENTRIES or time.monotonic() > deadline:
                break
            path = waiting.popleft()
            try:
                listed = self._listed(path)
            except OSError:
                continue  # it went away, or nobody can look into it
            seen[path] = listed
            entries += 1 + len(listed.folders)
            waiting += [os.path.join(path, name) for name in listed.folders]
            things |= {thing.inode: thing for thing in listed.things}
        self._known = seen
        return Look(things, began, finished=not waiting)

    def _listed(self, path: str) -> Listed:
        full = os.path.join(self._root, path)
        now = time.time_ns()
        status = os.stat(full, follow_symlinks=False)
        known = self._known.get(path)
        if known and (known.inode, known.changed) == (status.st_ino, status.st_ctime_ns):
            return known
        folders, things, names = [], [], set()
        with os.scandir(full) as entries:
            for entry in entries:
                names.add(entry.name)
                if is_obeyed(entry.name):
                    things.append(Thing(os.path.join(path, entry.name), entry.inode()))
                elif entry.is_dir(follow_symlinks=False):
                    folders.append(entry.name)
        if is_repository(names):
            head = os.path.join(path, "HEAD")
            things.append(Thing(head, os.lstat(os.path.join(self._root, head)).st_ino))
        is_fresh = status.st_ctime_ns > now - FRESH
        return Listed(status.st_ino, 0 if is_fresh else status.st_ctime_ns, folders, things)


class Watch:
    """Looks at what appears while a command runs; the pause is long beside what a look costs."""

    def __init__(self, look: Callable[[], Sequence[str]], tell: Callable[[str], None]) -> None:
        self._look = look
        self._tell = tell
        self._over = threading.Event()
        self._told: list[str] = []
        self._thread = threading.Thread(target=self._watch, name="jail-watch", daemon=True)

    def __enter__(self) -> None:
        self._thread.start()

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._thread.join()

    def _watch(self) -> None:
        pause = WATCH_AFTER
        while not self._over.wait(pause):
            started = time.monotonic()
            for note in self._look():
                if note not in self._told and len(self._told) < MAX_NOTES:
                    self._told.append(note)
                    self._tell(note)
            pause = max(WATCH_EVERY, WATCH_REST * (time.monotonic() - started))


def make_harmless(thing: Thing, beneath: Beneath) -> str:
    """Rename it, so that nothing obeys it; what to say of it."""
    folder, _, name = thing.path.rpartition("/")
    changed = f"{name}.jailed-{os.urandom(3).hex()}"
    fd = beneath.open(os.path.join(beneath.root, folder), FOLDER)  # not by its path: no way out
    try:
        os.rename(name, changed, src_dir_fd=fd, dst_dir_fd=fd)
    except PermissionError:
        os.fchmod(fd, 0o700)
        os.rename(name, changed, src_dir_fd=fd, dst_dir_fd=fd)
    finally:
        os.close(fd)
    return (
        f"jailed: {thing.path!r} was renamed to {changed!r}: other programs would run or obey it,"
        " outside of the jail"
    )


def linked_files(root: str) -> tuple[list[str], bool]:
    """Files below the root with another name that is not: to write them is to write outside. And
    whether all of the tree was looked at."""
    deadline = time.monotonic() + MAX_SECONDS
    names: dict[tuple[int, int], list[str]] = {}
    links: dict[tuple[int, int], int] = {}
    finished = True
    for folder, folders, files in os.walk(root):
        if time.monotonic() > deadline:
            finished = False
            break
        folders[:] = [name for name in folders if not is_obeyed(name)]  # read-only as they are
        for name in files:
            try:
                status = os.lstat(os.path.join(folder, name))
            except OSError:
                continue
            if status.st_nlink > 1 and stat.S_ISREG(status.st_mode):
                key = status.st_dev, status.st_ino
                names.setdefault(key, []).append(os.path.relpath(os.path.join(folder, name), root))
                links[key] = status.st_nlink
    outside = [name for key, held in names.items() if len(held) < links[key] for name in held]
    return outside, finished


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
