"""A disk that ends at a directory: no path, symlink or race leads out of it.

The kernel resolves a path in one step that cannot leave the root (openat2); where it lacks that
call, each part is opened by itself and symlinks are resolved here. A check followed by an ordinary
open would lose a race against a program that swaps a directory for a symlink in between.
Standard library only, like tools/disk.py.

Invariants:
- Every path is resolved relative to the root's descriptor, which is opened once; a path that leads
  out of it raises Outside, whatever symlinks and renames happen meanwhile.
- A file is written by an open directory and a name that is not followed as a symlink, and only if
  the directory's real path, asked of the kernel, has no part that git, zot or an editor obeys.
- Outside the root only the files in `offered` are readable, and nothing is writable.
"""

from __future__ import annotations

import ctypes
import errno
import fcntl
import os
import stat
import sys

from zot.beneath import LOOK, is_below, open_real
from zot.beneath import parts_of as _parts
from zot.tools.disk import FOLDER, READ, Disk, Outside
from zot.tools.jail.obeyed import is_obeyed, is_repository

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

    from zot.tools.disk import DiskEntry

OPENAT2 = 437  # the same number on every machine that has it
BENEATH_NO_MAGIC = 0x08 | 0x02  # RESOLVE_BENEATH, RESOLVE_NO_MAGICLINKS
MAX_LINKS = 40
RACED = 100
"""Attempts of openat2 when a concurrent rename or a signal interrupts it."""
REPOSITORY = ("HEAD", "commondir", "objects", "refs")


class How(ctypes.Structure):
    _fields_ = (
        ("flags", ctypes.c_uint64),
        ("mode", ctypes.c_uint64),
        ("resolve", ctypes.c_uint64),
    )


_libc = ctypes.CDLL(None, use_errno=True)


def kernel_open(root: int, path: str, flags: int) -> int:
    """Call openat2. Raises OSError: EXDEV for a path that leads out, ENOSYS without openat2."""
    how = How(flags, 0, BENEATH_NO_MAGIC)
    size = ctypes.c_size_t(ctypes.sizeof(how))
    name = os.fsencode(path)
    number = 0
    for _ in range(RACED):
        fd: int = _libc.syscall(OPENAT2, root, name, ctypes.byref(how), size)
        if fd >= 0:
            return fd
        number = ctypes.get_errno()
        if number not in (errno.EAGAIN, errno.EINTR):
            break
    raise OSError(number, os.strerror(number), path)


def walk_open(root: int, path: str, flags: int) -> int:
    """Like kernel_open(), but one part at a time. `..` returns to the directory we came from, not
    to the parent in the file system, since the directory may have been moved."""
    came = [os.open(".", LOOK | os.O_DIRECTORY, dir_fd=root)]
    todo = _parts(path)[::-1]
    links = 0
    try:
        while todo:
            name = todo.pop()
            if name == "..":
                if len(came) == 1:
                    raise OSError(errno.EXDEV, os.strerror(errno.EXDEV), path)
                os.close(came.pop())
                continue
            link = read_link(name, came[-1])
            if link is None and not todo:
                return os.open(name, flags | os.O_NOFOLLOW, dir_fd=came[-1])
            if link is None:
                folder = LOOK | os.O_DIRECTORY | os.O_NOFOLLOW
                came.append(os.open(name, folder, dir_fd=came[-1]))
                continue
            links += 1
            if links > MAX_LINKS:
                raise OSError(errno.ELOOP, os.strerror(errno.ELOOP), path)
            if link.startswith("/"):
                raise OSError(errno.EXDEV, os.strerror(errno.EXDEV), path)
            todo.extend(_parts(link)[::-1])
        return os.open(".", flags, dir_fd=came[-1])
    finally:
        for fd in came:
            os.close(fd)


def read_link(name: str, folder: int) -> str | None:
    """Return the target of a symlink; None if the name is no symlink or does not exist."""
    try:
        return os.readlink(name, dir_fd=folder)
    except OSError as error:
        if error.errno in (errno.EINVAL, errno.ENOENT):
            return None
        raise


def path_of(fd: int) -> str:
    """Return the current path of an open file, as the kernel reports it."""
    if sys.platform == "darwin":
        return os.fsdecode(fcntl.fcntl(fd, fcntl.F_GETPATH, bytes(1024)).rstrip(b"\0"))
    return os.readlink(f"/proc/self/fd/{fd}")


def has_openat2() -> bool:
    """Return whether this kernel and its system call filters permit openat2."""
    if not sys.platform.startswith("linux"):
        return False
    root = os.open("/", LOOK | os.O_DIRECTORY)
    try:
        os.close(kernel_open(root, ".", LOOK))
    except OSError:
        return False
    finally:
        os.close(root)
    return True


class Beneath(Disk):
    """A disk limited to one root. `protected`: additional names, in the root only, below which
    nothing is written. `real`: the root without symlinks, if the caller has already resolved it.

    The root stays open, so swapping it for another directory or a symlink has no effect.

    Raises:
        OSError: there is no such directory.
    """

    def __init__(self, root: str, protected: Collection[str] = (), real: str = "") -> None:
        self.root = real or os.path.realpath(root)
        self.folder = open_real(self.root, LOOK | os.O_DIRECTORY)
        self._protected = frozenset(protected)
        self._names = (os.path.abspath(root), self.root)
        """Spellings of the root with which a path may begin."""
        self._open_beneath = kernel_open if has_openat2() else walk_open
        self.offered: set[str] = set()
        """Files of zot's outside the root that may be read: the full output of commands."""
        self.obeyed: Collection[str] = ()
        """Paths below the root that count as obeyed, whatever their name; nothing is written."""

    def __del__(self) -> None:
        if hasattr(self, "folder"):
            os.close(self.folder)

    def holds(self, path: str) -> bool:
        """Return whether the path is spelled as one below the root."""
        return any(is_below(path, name) for name in self._names)

    # --- as any disk -------------------------------------------------------------------------

    def open(self, path: str, flags: int = READ) -> int:
        if path in self.offered:
            return os.open(path, flags | os.O_NOFOLLOW)
        return self._open(self._relative(path), flags, path)

    def stat(self, path: str) -> os.stat_result:
        fd = self.open(path, LOOK)
        try:
            return os.fstat(fd)
        finally:
            os.close(fd)

    def real(self, path: str) -> str:
        try:
            fd = self.open(path, LOOK)
        except Outside:
            raise
        except OSError:
            return os.path.normpath(os.path.join(self.root, self._relative(path)))
        try:
            return path_of(fd)
        finally:
            os.close(fd)

    def entries(self, directory: str) -> Sequence[DiskEntry]:
        fd = self.open(directory, FOLDER)
        try:
            with os.scandir(fd) as entries:
                # Read everything while the descriptor is open: its number may be reused later.
                below = [BeneathEntry(entry, directory, self) for entry in entries]
        finally:
            os.close(fd)
        return sorted(below, key=lambda entry: os.fsencode(entry.name))

    def repository(self, directory: str) -> str | None:
        while directory != self.root and len(directory) > len(self.root):
            if self._exists(os.path.join(directory, ".git")):
                return directory
            directory = os.path.dirname(directory)
        return self.root if self._exists(os.path.join(self.root, ".git")) else None

    def _exists(self, path: str) -> bool:
        try:
            self.stat(path)
        except OSError:
            return False
        return True

    # --- to write ----------------------------------------------------------------------------

    def place(self, path: str, *, create: bool) -> tuple[int, str]:
        """Return the open directory and the name of the file to write, with symlinks followed. The
        caller closes the directory and must not follow a symlink at that name.

        Raises:
            Outside: the path leads outside, or to a protected name.
            OSError: a directory is missing (unless they are to be created), or cannot be opened.
        """
        relative = self._relative(path)
        for _ in range(MAX_LINKS):
            above, _, name = relative.rstrip("/").rpartition("/")
            if name in ("", ".", ".."):
                raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), path)
            self._guard(relative, path)  # before a directory is made for it
            folder = self._folder(above or ".", path, create)
            try:
                real = self._guard_place(folder, name, path)
                while real != self.root:
                    real, _, part = real.rpartition("/")
                    self._guard_repository(real, part, path)
                link = read_link(name, folder)
                if link is None:
                    return os.dup(folder), name
            finally:
                os.close(folder)
            if link.startswith("/"):
                raise self._outside(path)
            relative = os.path.join(above, link)
        raise OSError(errno.ELOOP, os.strerror(errno.ELOOP), path)

    def _folder(self, relative: str, path: str, create: bool) -> int:
        """Open the directory; with `create`, make its missing parts."""
        missing: list[str] = []
        folder = -1
        while folder < 0:
            try:
                folder = self._open(relative or ".", FOLDER, path)
            except FileNotFoundError:
                if not create or relative in ("", "."):
                    raise
                relative, _, name = relative.rstrip("/").rpartition("/")
                missing.append(name)
        while missing:
            name = missing.pop()
            relative = os.path.join(relative, name)
            try:
                self._guard_place(folder, name, path)
                os.mkdir(name, dir_fd=folder)
            except FileExistsError:
                pass  # made by another process; opening it fails if it is no directory
            finally:
                os.close(folder)
            folder = self._open(relative, FOLDER, path)
        return folder

    def _guard_place(self, folder: int, name: str, path: str) -> str:
        """Refuse names that git or zot would obey, by the real path, so that symlinks cannot hide
        them. Return the directory's real path."""
        real = path_of(folder)
        if not is_below(real, self.root):
            raise self._outside(path)  # the directory was moved out of the root meanwhile
        self._guard(f"{real[len(self.root) :]}/{name}", path)
        self._guard_repository(real, name, path)
        return real

    def _guard_repository(self, folder: str, name: str, path: str) -> None:
        """Refuse a name that makes the directory a bare repository, or lies in one."""
        present = {part for part in REPOSITORY if os.path.lexists(f"{folder}/{part}")}
        if is_repository(present | {name}):
            raise self._protected_path(path)

    def _guard(self, below: str, path: str) -> None:
        parts = _parts(below)
        inside = "/".join(parts)
        led_to = any(is_below(inside, obeyed) for obeyed in self.obeyed)
        if led_to or any(map(is_obeyed, parts)) or parts[0] in self._protected:
            raise self._protected_path(path)

    def _protected_path(self, path: str) -> Outside:
        return Outside(
            f"jailed: path {path!r} is protected: git, zot or an editor would run or obey what is"
            " written there; run zot without --jail to write it"
        )

    # --- the way in --------------------------------------------------------------------------

    def _relative(self, path: str) -> str:
        for name in self._names:
            if path == name:
                return "."
            if path.startswith(name.rstrip("/") + "/"):
                return path[len(name.rstrip("/")) + 1 :].lstrip("/") or "."
        raise self._outside(path)

    def _open(self, relative: str, flags: int, path: str) -> int:
        try:
            return self._open_beneath(self.folder, relative, flags)
        except OSError as error:
            if error.errno == errno.EXDEV:
                raise self._outside(path) from None
            raise

    def _outside(self, path: str) -> Outside:
        return Outside(
            f"jailed: path {path!r} is outside {self.root!r}; run zot without --jail to allow it"
        )


class BeneathEntry:
    """A directory entry whose type was determined when the directory was read."""

    def __init__(self, entry: os.DirEntry[str], directory: str, disk: Disk) -> None:
        self.name = entry.name
        self.path = os.path.join(directory, entry.name)
        self._disk = disk
        self._is_dir = entry.is_dir(follow_symlinks=False)
        self._is_file = entry.is_file(follow_symlinks=False)

    def is_dir(self, *, follow_symlinks: bool = True) -> bool:
        return self._is_dir or (follow_symlinks and stat.S_ISDIR(self._mode_behind()))

    def is_file(self, *, follow_symlinks: bool = True) -> bool:
        return self._is_file or (follow_symlinks and stat.S_ISREG(self._mode_behind()))

    def _mode_behind(self) -> int:
        """Return the mode of the symlink's target; 0 for a directory or regular file."""
        return 0 if self._is_dir or self._is_file else self._disk.stat(self.path).st_mode
