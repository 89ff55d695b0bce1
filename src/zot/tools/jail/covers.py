"""Decides what a jailed command must not change, and holds it: the covers of a jail's directory.

`Quiet` is the state of the directory when nothing ran in it. Commands overlap, and things that one
of them made do not become old because another began later. So the tree is searched when the first
begins, and the result is used until the last has ended. Each thing to cover stays open meanwhile:
its descriptor identifies it wherever its directory is moved, and its inode cannot be reused by
another file.

Several jails of one directory share a record (record.py). The first, while nothing runs, lists what
to cover by device and inode; the others hold the same things, wherever commands have moved them.

`protected` covers names in the root, such as `.git`, whether they exist or not.

Invariants: a cover names a thing by device and inode, never by its path alone; all jails of a
directory cover what the record lists; whatever cannot be covered is an error, and no command runs.
"""

from __future__ import annotations

import errno
import os
import random
import stat
import threading
import time
from collections import deque
from collections.abc import Collection, Iterable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from typing import NoReturn

from zot.beneath import LOOK, NO_LINK, identity, is_below, open_plain
from zot.errors import ToolError
from zot.files import lock
from zot.tools import paths
from zot.tools.disk import FOLDER
from zot.tools.jail.aftermath import sentences, too_deep
from zot.tools.jail.disk import path_of
from zot.tools.jail.obeyed import LIST, PROTECTED, Key, Look, Survey, Thing, few_covers
from zot.tools.jail.record import Record, overlapping, recover
from zot.tools.jail.targets import Targets
from zot.tools.jail.walls import Cover

GONE = " (deleted)"
"""Suffix of the path that Linux reports for an open file without a name."""
COVER = 0o1500
"""Mode of the empty directories that cover missing names; identifies them as made by zot."""
TOUCH_EVERY = 3.0
"""Seconds; much less than LATER in record.py, and independent of how long a look takes."""
TRIES = 10
"""Attempts to list what to cover while other processes change it or use the record."""
ROUNDS = 200
SEARCH_SECONDS = 5.0
"""Limits of the search for a covered thing that commands keep moving."""


class Quiet:
    """The look at a quiet directory, with open descriptors of all that is covered. Raises
    ToolError: something there cannot be protected."""

    def __init__(
        self,
        survey: Survey,
        targets: Targets,
        folder: int,
        record: str,
        known: Collection[str],
        hidden: list[str],
    ) -> None:
        """`known`: names in the root that are protected anyway; `hidden`: symlink-free paths that
        a command must not even read."""
        self.notes: list[str] = []
        self._root = survey.root
        self._targets = targets
        self._folder = folder
        self._open = ExitStack()
        self._now: Look | None = None
        self._held: list[tuple[int, bool]] = []
        """Descriptor of each covered thing, and whether it is hidden."""
        self._places: set[tuple[Key, str]] = set()
        """Directory and name of each: a file with several names is covered at each of them."""
        self._over = threading.Event()
        self._touching = threading.Thread(target=self._touch, name="jail-touch", daemon=True)
        after = recover(record, survey.root)  # of a zot that was killed
        if after is not None and after.too_deep:
            raise ToolError(too_deep(after, survey.root))
        if after is not None:
            self.notes += sentences(after, survey.root)
        opened = Record.open(record, create=True)
        assert opened is not None
        self._record = opened
        try:
            self.look = self._agreed(survey, hidden)
            survey.obey(self.look.obeyed)
            self._hold([cover for cover in self.look.covers if cover[0] not in known])
            self._hide(hidden)
            if self._now is None:
                self._now = survey.look()
                self._hold_links(self._now.linked, known)
        except BaseException:
            self.close()
            raise
        self._touching.start()

    def had(self, thing: Thing) -> bool:
        return self.look.had(thing, self._root)

    def first_look(self) -> Look | None:
        """Return the look taken on creation, once; None on later calls, when it is out of date."""
        look, self._now = self._now, None
        return look

    def covers(self) -> list[Cover]:
        """Return a cover for each held descriptor, at its current path."""
        covers = []
        for fd, is_hidden in self._held:
            status, path = os.fstat(fd), path_of(fd)
            if not status.st_nlink or path.endswith(GONE):
                continue  # only a process outside of the jail can remove it
            if not is_below(path, self._root):
                self._missing(path)  # it could be moved back
            covers.append((path[len(self._root) + 1 :], *identity(status), is_hidden))
        return covers

    def _touch(self) -> None:
        """Note in the record, over and over, that something still runs: what a command makes
        before zot is killed is never much newer than the last touch."""
        while not self._over.wait(TOUCH_EVERY):
            with suppress(OSError):
                self._record.touch()

    def is_alone(self) -> bool:
        """Return whether no other jail uses the directory; call it only just before leaving."""
        return self._record.take_alone()

    def close(self, *, is_right: bool = True) -> None:
        """`is_right`: all that commands left was renamed; otherwise the record stays valid, and the
        next command or zot goes on with it."""
        self._over.set()
        if self._touching.ident is not None:
            self._touching.join()
        self._open.close()
        if is_right:
            self._record.leave()
        else:
            self._record.close()

    def _agreed(self, survey: Survey, hidden: list[str]) -> Look:
        """Return the look that all jails of this directory use now: the recorded one if something
        runs in one of them, otherwise ours, which is recorded. Raises ToolError."""
        for _ in range(TRIES):
            if self._record.is_alone and not self._wrote(survey, hidden):
                continue
            self._record.share()  # until it is granted, another process may end or replace ours
            look = self._record.read(self._root)
            if look is not None:
                if self._now is not None:
                    self._refuse_overlapping()
                return look
            time.sleep(random.uniform(0, 0.02))  # else two that wait for each other never end
            self._record.take_alone()
        raise ToolError(
            f"jailed: what is to be protected in {self._root!r} keeps changing; no command runs."
            " Try again when fewer programs work there, or use the other tools"
        )

    def _wrote(self, survey: Survey, hidden: list[str]) -> bool:
        """Look and write the record, while nothing runs in a jail here. Return False if what was
        seen changed meanwhile."""
        look = self._targets.look(survey)
        covers = self._listed(look, hidden)
        if covers is None:
            return False
        self._now = look
        self._record.write(self._root, look._replace(covers=covers))
        return True

    def _refuse_overlapping(self) -> None:
        for place in overlapping(self._record.path, self._root):  # after ours can be seen
            raise ToolError(
                f"jailed: a command runs in a jail of {place!r}, which overlaps {self._root!r}: it"
                " could move things past the walls of this one. No command runs here until that"
                " one has ended; use the other tools"
            )

    def _listed(self, look: Look, hidden: list[str]) -> tuple[Cover, ...] | None:
        """Return the covers; None if a thing is no longer what the look saw."""
        seen = {thing.path: thing.key for thing in look.things.values()}
        seen |= {path: key for key, path in look.closed.items()}
        to_hide = {os.path.relpath(path, self._root) for path in hidden}
        covers = []
        for path in sorted({*self._paths(look), *to_hide}):
            try:
                fd = open_plain(self._folder, path, LOOK)
            except (FileNotFoundError, NotADirectoryError):
                return None
            except OSError as error:
                raise ToolError(
                    f"jailed: cannot protect {path!r} ({error.strerror}); no command runs. Use the"
                    " other tools, or run zot without --jail"
                ) from error
            key = identity(os.fstat(fd))
            os.close(fd)
            if key != seen.get(path, key):
                return None
            covers.append((path, *key, path in to_hide))
        return tuple(covers)

    def _missing(self, path: str) -> NoReturn:
        raise ToolError(
            f"jailed: {path!r} was moved or removed while a command runs in {self._root!r}; no"
            " other command runs there until that one has ended"
        )

    def _paths(self, look: Look) -> list[str]:
        """Return the paths to make read-only."""
        paths = [thing.cover for thing in look.things.values()]
        paths += [*look.linked, *look.closed.values()]
        if "" in paths:
            raise ToolError(
                f"jailed: {self._root!r} cannot be listed; no command runs. Give yourself the"
                " right to read it (chmod u+rwx), use the other tools, or run zot without --jail"
            )
        return few_covers(paths)

    def _hold(self, covers: Collection[Cover]) -> None:
        """Open each thing by device and inode, whatever its path is now. Raises ToolError: it is
        not found."""
        missing: dict[Key, list[Cover]] = {}
        hidden = {cover[1:3] for cover in covers if cover[3]}  # hidden by all its names
        for path, device, inode, _ in covers:
            key = device, inode
            missing.setdefault(key, []).append((path, *key, key in hidden))
        deadline = time.monotonic() + SEARCH_SECONDS
        for _ in range(ROUNDS):
            for cover in [cover for names in missing.values() for cover in names]:
                folder, name = os.path.split(cover[0])
                with suppress(OSError), self._opened(folder, LOOK | FOLDER) as fd:
                    self._take(fd, name, missing)
            if not missing:
                return
            self._search(missing, deadline)
            if time.monotonic() > deadline:
                break
        for names in missing.values():
            self._missing(names[0][0])

    def _search(self, missing: dict[Key, list[Cover]], deadline: float) -> None:
        """Go through the tree for what is missing, and hold it. What moves meanwhile may be
        overlooked."""
        waiting = deque([""])
        while waiting and missing and time.monotonic() <= deadline:
            path = waiting.popleft()
            with suppress(OSError), self._opened(path, LIST) as fd, os.scandir(fd) as entries:
                for entry in entries:
                    with suppress(OSError):  # it went away
                        if identity(entry.stat(follow_symlinks=False)) in missing:
                            self._take(fd, entry.name, missing)
                    if entry.is_dir(follow_symlinks=False):
                        waiting.append(os.path.join(path, entry.name))

    @contextmanager
    def _opened(self, path: str, flags: int) -> Iterator[int]:
        fd = open_plain(self._folder, path, flags)
        try:
            yield fd
        finally:
            os.close(fd)

    def _take(self, folder: int, name: str, missing: dict[Key, list[Cover]]) -> None:
        """Hold the file of that name if it is missing. Raises OSError: it went away."""
        fd = os.open(name, LOOK | NO_LINK, dir_fd=folder)
        key, place = identity(os.fstat(fd)), (identity(os.fstat(folder)), name)
        if key not in missing or place in self._places:
            os.close(fd)
            return
        self._open.callback(os.close, fd)
        self._places.add(place)
        names = missing[key]
        self._held.append((fd, names.pop()[3]))
        if not names:
            del missing[key]

    def _hide(self, hidden: list[str]) -> None:
        """Hold also the secrets that the jail which wrote the record did not know of, as with
        another home directory. Raises ToolError: one is not found."""
        recorded = {cover[0] for cover in self.look.covers if cover[3]}
        for path in {os.path.relpath(path, self._root) for path in hidden} - recorded:
            try:
                fd = open_plain(self._folder, path, LOOK)
            except OSError:
                self._missing(path)
            self._open.callback(os.close, fd)
            self._held.append((fd, True))

    def _hold_links(self, linked: list[str], known: Collection[str]) -> None:
        """Hold also what a process outside of the jails has linked since the record was written;
        no jailed command can make such a link."""
        covered = [*known, *(cover[0] for cover in self.look.covers)]
        fresh = [path for path in linked if not any(is_below(path, above) for above in covered)]
        for path in few_covers(fresh):
            folder, name = os.path.split(path)
            with suppress(OSError), self._opened(folder, LOOK | FOLDER) as fd:
                key = identity(os.stat(name, dir_fd=fd, follow_symlinks=False))
                self._take(fd, name, {key: [(path, *key, False)]})


# --- names in the root ------------------------------------------------------------------------


@contextmanager
def protected(folder: int, root: str, names: Iterable[str]) -> Iterator[list[Cover]]:
    """Yield covers that make these names in the root read-only and that keep them from appearing.

    A missing name is covered by an empty directory, which exists while the command runs.
    """
    with ExitStack() as stack:
        covers: list[Cover] = []
        for name in names:
            path = os.path.join(root, name)
            try:
                fd = stack.enter_context(_opened(folder, name))
            except OSError as error:
                if error.errno in (errno.EACCES, errno.EPERM, errno.EROFS):
                    continue  # if zot cannot make it, neither can the command
                raise paths.failed(f"jailed: cannot protect {path!r}", error) from error
            status = os.fstat(fd)
            if stat.S_ISLNK(status.st_mode):
                raise ToolError(
                    f"jailed: {path!r} is a symlink, which cannot be protected; no command"
                    " runs. Use the other tools, or run zot without --jail"
                )
            covers.append((name, *identity(status), False))
        yield covers


@contextmanager
def _opened(folder: int, name: str) -> Iterator[int]:
    """Yield a descriptor of the name; of a shared empty directory if it is missing or empty."""
    try:
        fd = open_plain(folder, name, LOOK)
    except FileNotFoundError:
        fd = -1
    try:
        if fd >= 0 and not is_empty(folder, name):
            yield fd
            return
    finally:
        if fd >= 0:
            os.close(fd)
    with held(folder, name) as fd:
        yield fd


def remove_covers(folder: int) -> None:
    """Remove the empty directories that a killed zot left behind, unless another one uses them."""
    for name in PROTECTED:
        if is_empty(folder, name):
            fd = open_plain(folder, name, FOLDER)
            _remove_if_last(fd, folder, name)
            os.close(fd)


def is_empty(folder: int, name: str) -> bool:
    try:
        fd = open_plain(folder, name, FOLDER)
    except OSError:
        return False  # `.git` of a worktree is a file
    try:
        with os.scandir(fd) as entries:
            return next(entries, None) is None
    finally:
        os.close(fd)


@contextmanager
def held(folder: int, name: str) -> Iterator[int]:
    """Yield a descriptor of an empty directory of that name. Commands share it; only the last one
    removes it, since removal uncovers the name for the others. One not made by zot stays."""
    while True:
        try:
            os.mkdir(name, COVER, dir_fd=folder)
        except FileExistsError:
            pass
        try:
            fd = open_plain(folder, name, FOLDER)
        except FileNotFoundError:
            continue
        try:
            lock(fd, shared=True, wait=True)
            if not os.fstat(fd).st_nlink:
                continue  # another command removed it meanwhile
            yield fd
            return
        finally:
            _remove_if_last(fd, folder, name)
            os.close(fd)


def _remove_if_last(fd: int, folder: int, name: str) -> None:
    status = os.fstat(fd)
    if not status.st_nlink or stat.S_IMODE(status.st_mode) != COVER:
        return
    if lock(fd):  # otherwise another command uses it
        with suppress(OSError):  # no longer empty
            os.rmdir(name, dir_fd=folder)
