"""Writing files of ours: whole or not at all, for the user alone, one process at a time.

Plain string paths: most callers have no others.
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
"""How long to wait for another process that changes the same file."""


def ensure_dir(path: Dir) -> Dir:
    """Create a directory of ours, and its parents, readable by the user alone."""
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
    """Replace a file of ours in one step: a reader sees the old one or the new one, never half."""
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
    """Make a new or renamed name in a directory survive a power cut, where the system can."""
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
    """The content of a file, or None if there is no such file.

    Raises:
        OSError: it is there and cannot be read.
    """
    try:
        with open(path, "rb") as file:
            return file.read()
    except (FileNotFoundError, NotADirectoryError):
        return None


def read_own(path: StrPath, inside: StrPath | None, limit: int) -> bytes:
    """The beginning of a file that becomes part of a request or decides what runs: at most `limit`
    bytes and one more, by which the caller sees that there is more.

    Whoever can make a link in a project could otherwise put any file of the user's into a request.
    So: a regular file, owned by the user or root, and with its links resolved below `inside` (None:
    a place that only the user can write to).

    Raises:
        OSError: there is no such file, or it is not such a one; `strerror` says which.
    """
    target = os.path.realpath(path, strict=True)
    if inside is not None and not _is_below(target, os.path.realpath(inside)):
        raise PermissionError(errno.EPERM, "it is a link to a file elsewhere; copy it instead")
    # What was resolved is what is opened: no link is followed any more, in no part of the path.
    # O_NONBLOCK: a pipe would be waited for.
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
    """The user and root; for root also the user who called sudo."""
    user = os.geteuid()
    caller = os.environ.get("SUDO_UID", "")
    return {0, user} | ({int(caller)} if user == 0 and caller.isdigit() else set())


def lock(fd: int, *, shared: bool = False, wait: bool = False) -> bool:
    """Take a file or directory against other processes until the descriptor is closed; False:
    another one has it. Where the file system has no locks, everybody gets one.
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
    """A locked descriptor of a file that is only there for that; None: another one has it."""
    fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    if lock(fd, shared=shared, wait=wait):
        return fd
    os.close(fd)
    return None


class locked:
    """Hold the right to change a file against other processes (and threads) of ours.

    The lock is a file beside it: the file itself is replaced, and a lock on it would go with it.

    Raises:
        ConfigError: another process kept it for too long.
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
