"""The file system as the tools see it: all of it. beneath.py has the one that ends at a directory.

Standard library only, and plain strings: it also runs in the process that searches (search.py).
"""

from __future__ import annotations

import os

TYPE_CHECKING = False
if TYPE_CHECKING:  # typing would cost the searching process its start
    from collections.abc import Sequence
    from typing import Protocol

    class DiskEntry(Protocol):
        """What of os.DirEntry is used."""

        @property
        def name(self) -> str: ...
        @property
        def path(self) -> str: ...
        def is_dir(self, *, follow_symlinks: bool = True) -> bool: ...
        def is_file(self, *, follow_symlinks: bool = True) -> bool: ...


READ = os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK
"""Not blocking: a pipe has no end, and some files of /proc look regular and wait for ever."""
FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC


class Outside(OSError):
    """A path leads where this disk does not go; `str()` is the whole sentence."""


class Disk:
    def open(self, path: str, flags: int = READ) -> int:
        return os.open(path, flags)

    def stat(self, path: str) -> os.stat_result:
        """Symlinks followed."""
        return os.stat(path)

    def real(self, path: str) -> str:
        """The path without symlinks, as far as it exists."""
        return os.path.realpath(path)

    def entries(self, directory: str) -> Sequence[DiskEntry]:
        """In the order of their names."""
        with os.scandir(directory) as entries:
            return sorted(entries, key=lambda entry: os.fsencode(entry.name))

    def repository(self, directory: str) -> str | None:
        """The nearest directory, from here upwards, that is the root of a git repository."""
        while not os.path.lexists(os.path.join(directory, ".git")):
            parent = os.path.dirname(directory)
            if parent == directory:
                return None
            directory = parent
        return directory
