"""Decides what a jailed command must not change, and holds it: the covers of a jail's directory.

`Quiet` is the state of the directory when nothing ran in it. Commands overlap, and things that one
of them made do not become old because another began later. So the tree is searched when the first
begins, and the result is used until the last has ended. Each thing to cover stays open meanwhile:
its descriptor identifies it wherever its directory is moved, and its inode cannot be reused by
another file.

`protected` covers names in the root, such as `.git`, whether they exist or not.

Invariants: a cover names a thing by device and inode, never by its path alone; whatever cannot be
covered is an error, and no command runs.
"""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Collection, Iterable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from typing import NoReturn

from zot.beneath import LOOK, identity, is_below, open_plain
from zot.errors import ToolError
from zot.files import lock
from zot.tools import paths
from zot.tools.disk import FOLDER
from zot.tools.jail.aftermath import sentences
from zot.tools.jail.disk import path_of
from zot.tools.jail.obeyed import PROTECTED, Look, Survey, Thing, few_covers
from zot.tools.jail.record import Record, overlapping, recover
from zot.tools.jail.walls import Cover

GONE = " (deleted)"
"""Suffix of the path that Linux reports for an open file without a name."""
COVER = 0o1500
"""Mode of the empty directories that cover missing names; identifies them as made by zot."""


class Quiet:
    """The look at a quiet directory, with open descriptors of all that is covered. Raises
    ToolError: something there cannot be protected."""

    def __init__(
        self, survey: Survey, folder: int, record: str, known: Collection[str], hidden: list[str]
    ) -> None:
        """`known`: names in the root that are protected anyway; `hidden`: symlink-free paths that
        a command must not even read."""
        self.notes: list[str] = []
        self._root = survey.root
        self._folder = folder
        self._open = ExitStack()
        self._now: Look | None = None
        self._held: list[tuple[int, bool]] = []
        """Descriptor of each covered thing, and whether it is hidden."""
        after = recover(record, survey.root)  # of a zot that was killed
        if after is not None:
            self.notes += sentences(after, survey.root)
        opened = Record.open(record, create=True)
        assert opened is not None
        self._record = opened
        if not opened.is_alone:
            opened.share()
        try:
            self.look = self._looked(survey)
            paths = [path for path in self._paths() if path not in known]
            for path, is_hidden in [*((path, False) for path in paths)] + [
                (os.path.relpath(path, self._root), True) for path in hidden
            ]:
                self._hold(path, is_hidden)
        except BaseException:
            self.close()
            raise

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

    def touch(self) -> None:
        """Note in the record that something still runs."""
        self._record.touch()

    def is_alone(self) -> bool:
        """Return whether no other jail uses the directory; call it only just before leaving."""
        return self._record.take_alone()

    def close(self) -> None:
        self._open.close()
        self._record.leave()

    def _looked(self, survey: Survey) -> Look:
        look = self._now = survey.look()
        before = self._record.read(self._root)
        if not self._record.is_alone and before is not None:
            return self._shared(before, look)
        self._record.write(self._root, look)
        self._record.share()
        for place in overlapping(self._record.path, self._root):  # after ours can be seen
            raise ToolError(
                f"jailed: a command runs in a jail of {place!r}, which overlaps {self._root!r}: it"
                " could move things past the walls of this one. No command runs here until that"
                " one has ended; use the other tools"
            )
        return look

    def _shared(self, before: Look, now: Look) -> Look:
        """Return the look of another zot whose commands still run here, at the current paths; our
        commands use it too. Raises ToolError: a thing in it is gone."""
        things = {}
        for key, thing in before.things.items():
            try:
                fd = open_plain(self._folder, thing.path, LOOK)
            except OSError:
                is_there = False
            else:
                is_there = identity(os.fstat(fd)) == key
                os.close(fd)
            if not is_there and key not in now.things:
                self._missing(thing.path)
            things[key] = thing if is_there else now.things[key]
        return before._replace(things=things, linked=now.linked)

    def _missing(self, path: str) -> NoReturn:
        raise ToolError(
            f"jailed: {path!r} was moved or removed while a command runs in {self._root!r}; no"
            " other command runs there until that one has ended"
        )

    def _paths(self) -> list[str]:
        """Return the paths to make read-only."""
        paths = [thing.cover for thing in self.look.things.values()]
        paths += [*self.look.linked, *self.look.closed.values()]
        for thing in self.look.things.values():
            if thing.is_link:
                paths += self._behind(thing)
        if "" in paths:
            raise ToolError(
                f"jailed: {self._root!r} cannot be listed; no command runs. Give yourself the"
                " right to read it (chmod u+rwx), use the other tools, or run zot without --jail"
            )
        return few_covers(paths)

    def _behind(self, thing: Thing) -> list[str]:
        """Return the target of a symlink if it is inside the root, where a command could write."""
        link = os.path.join(self._root, thing.path)
        target = os.path.realpath(link)
        if not is_below(target, self._root):
            return []
        if not os.path.lexists(target) or is_below(link, target):
            raise ToolError(
                f"jailed: {link!r} is a symlink that other programs obey, and"
                f" {target!r} cannot be protected: it is missing, or holds the link; no command"
                " runs. Remove the link, use the other tools, or run zot without --jail"
            )
        return [os.path.relpath(target, self._root)]

    def _hold(self, path: str, is_hidden: bool) -> None:
        try:
            fd = open_plain(self._folder, path, LOOK)
        except FileNotFoundError:
            return  # a process outside of the jail has just removed it
        except OSError as error:
            raise ToolError(
                f"jailed: cannot protect {path!r} ({error.strerror}); no command runs. Use the"
                " other tools, or run zot without --jail"
            ) from error
        self._open.callback(os.close, fd)
        self._held.append((fd, is_hidden))


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
