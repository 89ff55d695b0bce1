"""Writing files of ours: whole or not at all, for the user alone, one process at a time.

Plain string paths: this is loaded before the first answer, and pathlib costs milliseconds.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TypeVar

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


@contextmanager
def locked(path: StrPath, seconds: float = LOCK_SECONDS) -> Iterator[None]:
    """Hold the right to change a file against other processes (and threads) of ours.

    The lock is a file beside it: the file itself is replaced, and a lock on it would go with it.

    Raises:
        ConfigError: another process kept it for too long.
    """
    name = os.fspath(path) + ".lock"
    ensure_dir(os.path.dirname(name) or ".")
    deadline = time.monotonic() + seconds
    while (fd := lock_file(name)) is None:
        if time.monotonic() >= deadline:
            raise ConfigError(f"another process holds {name!r} for more than {seconds:g} seconds")
        time.sleep(0.02)
    try:
        yield
    finally:
        os.close(fd)
