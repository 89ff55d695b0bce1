"""Hides the files that the setting `deny_read` names from the file tools. Standard library only:
it also runs in the search process.

A pattern without a slash is a name, at any depth; one with a slash is a path, relative to the
working directory. A directory that matches is hidden with all in it.
"""

from __future__ import annotations

import os
from glob import iglob

from zot.tools.disk import READ, Disk, Outside
from zot.tools.jail.disk import Beneath, path_of
from zot.tools.search import wildcard

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from typing import Any

    from zot.tools.disk import DiskEntry


class HiddenPaths:
    """Patterns of files that must not be read."""

    def __init__(self, patterns: Sequence[str], cwd: str) -> None:
        """`patterns`: with `~` expanded; `cwd`: without symlinks.

        Raises:
            wildcard.BadPattern: a pattern is not valid.
        """
        self.patterns = tuple(patterns)
        every = [part for pattern in patterns for part in wildcard.braces(pattern)]
        paths = [part for part in every if "/" in part.rstrip("/")]
        whole = [path if path.startswith("/") else f"{cwd}/{path}" for path in paths]
        self._places = [os.path.normpath(path) for path in whole]
        names = [part.rstrip("/") for part in every if "/" not in part.rstrip("/")]
        self._paths = [wildcard.compile_segments(place) for place in self._places]
        self._names = [wildcard.compile_name(name) for name in names if name]

    def is_name(self, name: str) -> bool:
        """Return whether a file of this name is hidden wherever it is."""
        return any(pattern.match(name) for pattern in self._names)

    def covers(self, path: str) -> bool:
        """Return whether the absolute path, without symlinks, is hidden."""
        parts = [part for part in path.split("/") if part]
        if any(map(self.is_name, parts)):
            return True
        above = [parts[:end] for end in range(1, len(parts) + 1)]
        return any(wildcard.matches(pattern, some) for pattern in self._paths for some in above)

    def existing(self) -> Iterator[str]:
        """Yield the paths that exist for the patterns with a slash."""
        for place in self._places:
            yield from iglob(place, recursive=True, include_hidden=True)  # noqa: PTH207 (absolute)


class HidingDisk(Disk):
    """A disk without the files that are hidden."""

    def __init__(self, disk: Disk, hidden: HiddenPaths) -> None:
        self._disk = disk
        self._hidden = hidden

    def open(self, path: str, flags: int = READ) -> int:
        fd = self._disk.open(path, flags)
        try:
            self.check(path_of(fd), path)
        except OSError:
            os.close(fd)
            raise
        return fd

    def check(self, real: str, path: str) -> None:
        """Raise Outside if the real path is hidden."""
        if self._hidden.covers(real):
            raise Outside(f"path {path!r} is hidden from all tools by the setting deny_read")

    def stat(self, path: str) -> os.stat_result:
        self.check(self._disk.real(path), path)
        return self._disk.stat(path)

    def real(self, path: str) -> str:
        return self._disk.real(path)

    def entries(self, directory: str) -> Sequence[DiskEntry]:
        real = self._disk.real(directory)
        self.check(real, directory)
        entries = self._disk.entries(directory)
        covers = self._hidden.covers
        return [entry for entry in entries if not covers(f"{real}/{entry.name}")]

    def repository(self, directory: str) -> str | None:
        return self._disk.repository(directory)


class JailDisk(Disk):
    """The working directory and further directories as one disk."""

    def __init__(self, disks: Sequence[Beneath]) -> None:
        self._disks = disks

    def of(self, path: str) -> Beneath:
        """Return the disk for a path; the first one for a path outside, which it refuses."""
        return next((disk for disk in self._disks if disk.holds(path)), self._disks[0])

    def open(self, path: str, flags: int = READ) -> int:
        return self.of(path).open(path, flags)

    def stat(self, path: str) -> os.stat_result:
        return self.of(path).stat(path)

    def real(self, path: str) -> str:
        return self.of(path).real(path)

    def entries(self, directory: str) -> Sequence[DiskEntry]:
        return self.of(directory).entries(directory)

    def repository(self, directory: str) -> str | None:
        return self.of(directory).repository(directory)


def disk_for(bounds: dict[str, Any]) -> Disk:
    """Return the disk of the search process: `roots` as pairs of a path and the same without
    symlinks, none without a jail; `deny`: patterns; `cwd`."""
    disks = [Beneath(root, (), real) for root, real in bounds["roots"]]
    disk: Disk = (disks[0] if len(disks) == 1 else JailDisk(disks)) if disks else Disk()
    if not bounds["deny"]:
        return disk
    return HidingDisk(disk, HiddenPaths(bounds["deny"], bounds["cwd"]))
