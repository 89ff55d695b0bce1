"""Writes zot's own files: atomically, readable by the user only, one process at a time.

Takes plain string paths, which most callers have.
"""

from __future__ import annotations

import errno
import os
import stat
import sys
import time
from typing import TypeVar

from zot.beneath import open_real
from zot.errors import ConfigError

if sys.platform != "win32":
    import fcntl

StrPath = str | os.PathLike[str]
Dir = TypeVar("Dir", bound=StrPath)

LOCK_SECONDS = 30.0
"""Timeout in seconds for another process that changes the same file."""


def ensure_dir(path: Dir) -> Dir:
    """Create a directory and its parents, readable by the user only."""
    missing = []
    at = str(path)
    while at and not os.path.isdir(at):
        missing.append(at)
        parent = os.path.dirname(at)
        if parent == at:
            break
        at = parent
    for directory in reversed(missing):
        try:
            os.mkdir(directory, 0o700)
        except FileExistsError:
            if not os.path.isdir(directory):
                raise
    return path


def write_atomic(path: StrPath, data: bytes, mode: int = 0o600) -> None:
    """Replace a file atomically: a reader sees the old one or the new one, never half."""
    directory, name = os.path.split(os.fspath(path))
    ensure_dir(directory or ".")
    temporary = os.path.join(directory, f".{name}.{os.getpid()}.{os.urandom(4).hex()}.tmp")
    fd = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, mode)
    try:
        with os.fdopen(fd, "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, path)
        sync_dir(directory or ".")
    except BaseException:
        if os.path.lexists(temporary):
            os.unlink(temporary)
        raise


def sync_dir(path: StrPath) -> None:
    """Make a new or renamed file in a directory survive a power cut, if the system supports it."""
    try:
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return  # Windows opens no directories, and a directory may be writable but not readable
    try:
        os.fsync(fd)
    except OSError:
        pass  # some network file systems refuse; the file itself was synced
    finally:
        os.close(fd)


def read_bytes(path: StrPath) -> bytes | None:
    """Return the content of a file, or None if there is no such file.

    Raises:
        OSError: it exists and cannot be read.
    """
    try:
        with open(path, "rb") as file:
            return file.read()
    except (FileNotFoundError, NotADirectoryError):
        return None


def read_own(path: StrPath, inside: StrPath | None, limit: int) -> bytes:
    """Read a file that becomes part of a request or decides what runs: at most `limit` + 1 bytes,
    so that the caller sees whether there is more.

    A link planted in a project must not put any of the user's files into a request. So the file
    must be regular, owned by the user or root, and after resolving links below `inside` (None: a
    place that only the user can write to).

    Raises:
        OSError: the file does not exist or breaks one of these rules; `strerror` says which.
    """
    target = os.path.realpath(path, strict=True)
    if inside is not None and not _is_below(target, os.path.realpath(inside)):
        raise PermissionError(errno.EPERM, "it is a link to a file elsewhere; copy it instead")
    # Open exactly the resolved path: no link is followed in any part of it. O_NONBLOCK: opening a
    # pipe would block.
    fd = open_real(target, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
    with os.fdopen(fd, "rb") as file:
        status = os.fstat(fd)
        if not stat.S_ISREG(status.st_mode):
            raise PermissionError(errno.EPERM, "it is not a regular file")
        if status.st_uid not in _trusted_owners():
            raise PermissionError(errno.EPERM, "it belongs to another user")
        return file.read(limit + 1)


def _is_below(path: str, directory: str) -> bool:
    return path.startswith(directory.rstrip(os.sep) + os.sep)


def _trusted_owners() -> set[int]:
    """Return the ids of the user and root; for root also of the user who called sudo."""
    user = os.geteuid()
    caller = os.environ.get("SUDO_UID", "")
    return {0, user} | ({int(caller)} if user == 0 and caller.isdigit() else set())


def lock(fd: int, *, shared: bool = False, wait: bool = False) -> bool:
    """Lock a file or directory against other processes until the descriptor is closed; return
    False if another one holds it. Without lock support in the file system, always succeeds.
    """
    if sys.platform == "win32":
        return True
    kind = fcntl.LOCK_SH if shared else fcntl.LOCK_EX
    try:
        fcntl.flock(fd, kind if wait else kind | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError:
        pass
    return True


def lock_file(path: StrPath, *, shared: bool = False, wait: bool = False) -> int | None:
    """Return a locked descriptor of a lock file; None if another process holds it."""
    fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    if lock(fd, shared=shared, wait=wait):
        return fd
    os.close(fd)
    return None


class locked:
    """Context manager: lock a file against other zot processes (and threads) that change it.

    The lock is a separate file, because the file itself is replaced, and a lock on it with it.

    Raises:
        ConfigError: another process held it for too long.
    """

    def __init__(self, path: StrPath, seconds: float = LOCK_SECONDS) -> None:
        self._name = os.fspath(path) + ".lock"
        self._seconds = seconds
        self._fd = -1

    def __enter__(self) -> None:
        ensure_dir(os.path.dirname(self._name) or ".")
        deadline = time.monotonic() + self._seconds
        while (fd := lock_file(self._name)) is None:
            if time.monotonic() >= deadline:
                raise ConfigError(
                    f"another process holds {self._name!r} for more than {self._seconds:g} seconds"
                )
            time.sleep(0.02)
        self._fd = fd

    def __exit__(self, *_: object) -> None:
        os.close(self._fd)
