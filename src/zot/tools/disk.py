"""The whole file system as the tools see it. jail/disk.py has the disk limited to one directory.

Standard library only, and plain strings: it also runs in the search process (search/program.py).
"""

from __future__ import annotations

import os

TYPE_CHECKING = False
if TYPE_CHECKING:  # typing would cost the searching process its start
    from collections.abc import Sequence
    from typing import Protocol

    class DiskEntry(Protocol):
        """The members of os.DirEntry that are used."""

        @property
        def name(self) -> str: ...
        @property
        def path(self) -> str: ...
        def is_dir(self, *, follow_symlinks: bool = True) -> bool: ...
        def is_file(self, *, follow_symlinks: bool = True) -> bool: ...


READ = os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK
"""Flags for reading. Non-blocking, because pipes and some regular-looking /proc files never end."""
FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC


class Outside(OSError):
    """A path leads outside this disk; `str()` is the complete error message."""


class Disk:
    def open(self, path: str, flags: int = READ) -> int:
        return os.open(path, flags)

    def stat(self, path: str) -> os.stat_result:
        """Return the status, with symlinks followed."""
        return os.stat(path)

    def real(self, path: str) -> str:
        """Return the path without symlinks, as far as it exists."""
        return os.path.realpath(path)

    def entries(self, directory: str) -> Sequence[DiskEntry]:
        """Return the entries, sorted by name."""
        with os.scandir(directory) as entries:
            return sorted(entries, key=lambda entry: os.fsencode(entry.name))

    def repository(self, directory: str) -> str | None:
        """Return the nearest directory, from here upwards, that is a git repository's root."""
        while not os.path.lexists(os.path.join(directory, ".git")):
            parent = os.path.dirname(directory)
            if parent == directory:
                return None
            directory = parent
        return directory
