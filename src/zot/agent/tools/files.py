"""Replacing a user's file: in one step, under a lock, with everything but the content kept.

A file is replaced by a rename, so a reader (or a crash) sees the old content or the new, never
half. In three cases it is written in place instead, because a rename would lose something: it has
other hard links, it belongs to someone else, or its directory cannot be written.
"""

from __future__ import annotations

import errno
import fcntl
import os
import stat
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from zot.agent.tools import paths
from zot.cancel import Cancel
from zot.errors import ToolError

LOCK_SECONDS = 10.0
ATTEMPTS = 5
"""How often to start over when a program that takes no lock changes the file meanwhile."""
MAX_EDIT = 64 << 20


def target(path: Path) -> Path:
    """The file that a write means: symlinks are written through.

    Raises:
        ToolError: it is a directory, a device, or cannot be reached.
    """
    real = Path(os.path.realpath(path))
    try:
        mode = real.lstat().st_mode
    except FileNotFoundError:
        return real
    except NotADirectoryError:
        raise ToolError(f"cannot write {str(path)!r}: a part of the path is a file") from None
    except OSError as error:
        raise ToolError(f"cannot write {str(path)!r}: {paths.reason(error)}") from error
    if stat.S_ISLNK(mode):
        raise ToolError(f"cannot write {str(path)!r}: its symlinks lead in a circle")
    if not stat.S_ISREG(mode):
        raise ToolError(f"cannot write {str(path)!r}: it is {paths.kind(mode)}")
    return real


def make_parents(path: Path) -> None:
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
    except (FileExistsError, NotADirectoryError):
        raise ToolError(f"cannot write {str(path)!r}: a part of the path is a file") from None
    except OSError as error:
        raise ToolError(f"cannot create {str(path.parent)!r}: {paths.reason(error)}") from error


def update(path: Path, change: Callable[[bytes | None], bytes], cancel: Cancel) -> None:
    """Replace the file's content by `change(content)`; None stands for a file that is not there.

    `change` may be called again when someone else changed the file in between; it may raise
    ToolError, and then nothing happened.

    Raises:
        ToolError: the file cannot be read or written, or others keep changing it.
    """
    try:
        with _locked(path.parent, cancel):
            for _ in range(ATTEMPTS):
                before = load(path)
                after = change(before)
                if after == before or _replace(path, before, after):
                    return
                cancel.check()
    except OSError as error:
        raise ToolError(f"cannot write {str(path)!r}: {paths.reason(error)}") from error
    raise ToolError(f"{str(path)!r} is being changed by another program; read it and try again")


def load(path: Path) -> bytes | None:
    try:
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
    except FileNotFoundError:
        return None
    with os.fdopen(fd, "rb") as file:
        status = os.fstat(fd)
        if not stat.S_ISREG(status.st_mode):
            raise ToolError(f"{str(path)!r} is {paths.kind(status.st_mode)}, not a regular file")
        if status.st_size > MAX_EDIT:
            raise ToolError(
                f"{str(path)!r} has {status.st_size} bytes; files over {MAX_EDIT} are changed"
                " with bash (sed, python)"
            )
        return file.read()


@contextmanager
def _locked(directory: Path, cancel: Cancel) -> Iterator[None]:
    """One writer a directory, across processes. The file itself cannot carry the lock: the rename
    replaces it, and whoever waited would hold a lock on a file that is gone."""
    fd = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        waited = 0.0
        while not _try_lock(fd):
            if waited >= LOCK_SECONDS:
                raise ToolError(f"another program holds a lock on {str(directory)!r}; try again")
            cancel.sleep(0.005)
            waited += 0.005
        yield
    finally:
        os.close(fd)


def _try_lock(fd: int) -> bool:
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError as error:
        # Some network file systems have no locks; comparing the content still guards the write.
        if error.errno not in (errno.ENOLCK, errno.ENOTSUP, errno.EBADF, errno.EINVAL):
            raise
    return True


def _replace(path: Path, before: bytes | None, after: bytes) -> bool:
    """Write the new content unless the file is no longer what it was; False if so."""
    status = None if before is None else path.stat()
    if status is not None:
        os.close(os.open(path, os.O_WRONLY | os.O_CLOEXEC))  # a rename would not ask for the right
    if status is not None and status.st_nlink > 1:
        return _write_in_place(path, before, after)
    temporary = path.with_name(f".{path.name[:200]}.{os.urandom(6).hex()}.tmp")
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
    try:
        fd = os.open(temporary, flags, 0o666 if status is None else 0o600)
    except PermissionError:
        if status is None:
            raise
        return _write_in_place(path, before, after)
    try:
        with os.fdopen(fd, "wb") as file:
            file.write(after)
            file.flush()
            kept = status is None or _keep(fd, path, status)
            os.fsync(fd)
        if not kept:
            return _write_in_place(path, before, after)
        return _move(temporary, path, before)
    finally:
        temporary.unlink(missing_ok=True)


def _move(temporary: Path, path: Path, before: bytes | None) -> bool:
    if before is None:
        try:
            os.link(temporary, path)  # fails where a rename would overwrite
        except FileExistsError:
            return False
        except OSError:
            if path.exists():
                return False
            temporary.replace(path)  # a file system without hard links
        return True
    if load(path) != before:
        return False
    temporary.replace(path)
    return True


def _keep(fd: int, path: Path, status: os.stat_result) -> bool:
    """Give the new file the old one's owner, mode and attributes; False if that is not allowed."""
    mine = os.fstat(fd)
    if (mine.st_uid, mine.st_gid) != (status.st_uid, status.st_gid):
        try:
            os.fchown(fd, status.st_uid, status.st_gid)
        except PermissionError:
            return False
    os.fchmod(fd, stat.S_IMODE(status.st_mode))
    if hasattr(os, "listxattr"):
        try:
            for name in os.listxattr(path):
                os.setxattr(fd, name, os.getxattr(path, name))
        except OSError as error:
            if error.errno not in (errno.ENOTSUP, errno.EPERM, errno.ENODATA):
                raise
    return True


def _write_in_place(path: Path, before: bytes | None, after: bytes) -> bool:
    fd = os.open(path, os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW)
    with os.fdopen(fd, "r+b") as file:
        if file.read() != before:
            return False
        file.seek(0)
        file.write(after)
        file.truncate()
        file.flush()
        os.fsync(fd)
    return True
