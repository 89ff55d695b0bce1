"""Replaces a user's file atomically, under a lock, and keeps everything but the content.

A file is replaced by a rename, so a reader (or a crash) sees the old content or the new, never
half. In three cases it is written in place instead, because a rename would lose something: it has
other hard links, it belongs to another user, or its directory cannot be written.
"""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Callable
from pathlib import Path

from zot.cancel import Cancel
from zot.errors import ToolError
from zot.files import lock
from zot.text import Frozen
from zot.tools import paths

LOCK_SECONDS = 10.0
ATTEMPTS = 5
"""Attempts when a program that takes no lock changes the file meanwhile."""
MAX_EDIT = 64 << 20


class Target(Frozen):
    """A file to write: an open directory and a name in it that is never followed as a symlink, so
    that the write cannot be redirected."""

    folder: int
    name: str
    path: Path
    """The path as the user knows it."""
    keeps_links: bool = True
    """Whether to write in place so that other hard links change too; else they are separated."""


def update(target: Target, change: Callable[[bytes | None], bytes], cancel: Cancel) -> None:
    """Replace the file's content by `change(content)`; None stands for a missing file.

    `change` may be called again when another program changed the file in between; if it raises
    ToolError, the file stays unchanged.

    Raises:
        ToolError: the file cannot be read or written, or other programs keep changing it.
    """
    path = str(target.path)
    try:
        _lock(target, cancel)
        for _ in range(ATTEMPTS):
            before = load(target)
            after = change(before)
            if after == before or _replace(target, before, after):
                return
            cancel.check()
    except OSError as error:
        raise ToolError(f"cannot write {path!r}: {paths.reason(error)}") from error
    raise ToolError(f"{path!r} is being changed by another program; read it and try again")


def remove(target: Target, check: Callable[[bytes | None], None], cancel: Cancel) -> None:
    """Remove the file, if `check` does not refuse its content.

    Raises:
        ToolError: it cannot be removed.
    """
    try:
        _lock(target, cancel)
        before = load(target)
        check(before)
        if before is not None:
            os.unlink(target.name, dir_fd=target.folder)
    except OSError as error:
        raise ToolError(f"cannot remove {str(target.path)!r}: {paths.reason(error)}") from error


def load(target: Target) -> bytes | None:
    try:
        fd = _open(target, os.O_RDONLY | os.O_NONBLOCK)
    except FileNotFoundError:
        return None
    try:
        status = os.fstat(fd)
        if not stat.S_ISREG(status.st_mode):
            kind = paths.kind(status.st_mode)
            raise ToolError(f"{str(target.path)!r} is {kind}, not a regular file")
        if status.st_size > MAX_EDIT:
            raise ToolError(
                f"{str(target.path)!r} has {status.st_size} bytes; files over {MAX_EDIT} are"
                " changed with bash (sed, python)"
            )
        with os.fdopen(fd, "rb", closefd=False) as file:
            return file.read()
    finally:
        os.close(fd)


def _open(target: Target, flags: int) -> int:
    return os.open(target.name, flags | os.O_CLOEXEC | os.O_NOFOLLOW, dir_fd=target.folder)


def _lock(target: Target, cancel: Cancel) -> None:
    """Lock the directory against other writers, also in other processes, until it is closed. The
    file itself cannot be locked: the rename replaces it, and a waiter would lock a deleted file."""
    waited = 0.0
    while not lock(target.folder):
        if waited >= LOCK_SECONDS:
            folder = str(target.path.parent)
            raise ToolError(f"another program holds a lock on {folder!r}; try again")
        cancel.sleep(0.005)
        waited += 0.005


def _replace(target: Target, before: bytes | None, after: bytes) -> bool:
    """Write the new content; return False if the file has changed meanwhile."""
    if before is None:
        return _write_beside(target, None, before, after)
    old = _open(target, os.O_WRONLY)  # a rename would not check the write permission
    try:
        if os.fstat(old).st_nlink > 1 and target.keeps_links:
            return _write_in_place(target, before, after)
        return _write_beside(target, old, before, after)
    finally:
        os.close(old)


def _write_beside(target: Target, old: int | None, before: bytes | None, after: bytes) -> bool:
    folder = target.folder
    temporary = f".{target.name[:200]}.{os.urandom(6).hex()}.tmp"
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
    try:
        fd = os.open(temporary, flags, 0o666 if old is None else 0o600, dir_fd=folder)
    except PermissionError:
        if old is None or before is None:
            raise
        return _write_in_place(target, before, after)
    try:
        with os.fdopen(fd, "wb") as file:
            file.write(after)
            file.flush()
            is_same_owner = old is None or _keep(fd, old)
            os.fsync(fd)
        if not is_same_owner and before is not None:
            return _write_in_place(target, before, after)
        return _move(temporary, target, before)
    finally:
        try:
            os.unlink(temporary, dir_fd=folder)
        except FileNotFoundError:
            pass  # it was renamed to the file's name


def _move(temporary: str, target: Target, before: bytes | None) -> bool:
    folder, name = target.folder, target.name
    if before is None:
        try:
            # link() fails where a rename would overwrite
            os.link(temporary, name, src_dir_fd=folder, dst_dir_fd=folder)
        except FileExistsError:
            return False
        except OSError:
            if load(target) is not None:
                return False
            # a file system without hard links
            os.replace(temporary, name, src_dir_fd=folder, dst_dir_fd=folder)
        return True
    if load(target) != before:
        return False
    os.replace(temporary, name, src_dir_fd=folder, dst_dir_fd=folder)
    return True


def _keep(fd: int, old: int) -> bool:
    """Give the new file the old one's owner, mode and attributes; return False if not permitted."""
    mine, status = os.fstat(fd), os.fstat(old)
    if (mine.st_uid, mine.st_gid) != (status.st_uid, status.st_gid):
        try:
            os.fchown(fd, status.st_uid, status.st_gid)
        except PermissionError:
            return False
    os.fchmod(fd, stat.S_IMODE(status.st_mode))
    if hasattr(os, "listxattr"):
        try:
            for name in os.listxattr(old):
                os.setxattr(fd, name, os.getxattr(old, name))
        except OSError as error:
            if error.errno not in (errno.ENOTSUP, errno.EPERM, errno.ENODATA):
                raise
    return True


def _write_in_place(target: Target, before: bytes, after: bytes) -> bool:
    """Overwrite the old content. It is the only copy, so a failure (a full disk, a quota) must
    leave it unchanged."""
    fd = _open(target, os.O_RDWR)
    try:
        with os.fdopen(fd, "rb", closefd=False) as file:
            if file.read() != before:
                return False
        try:
            _reserve(fd, len(after))
            _write_over(fd, after)
        except OSError as error:
            _write_back(fd, before, error)
            raise
    finally:
        os.close(fd)
    return True


def _reserve(fd: int, size: int) -> None:
    """Allocate the space for the new content before the old one is overwritten."""
    try:
        if size:
            os.posix_fallocate(fd, 0, size)
    except AttributeError:
        return  # macOS
    except OSError as error:
        if error.errno not in (errno.EOPNOTSUPP, errno.EINVAL, errno.ENODEV):
            raise


def _write_over(fd: int, data: bytes) -> None:
    written = 0
    while written < len(data):
        written += os.pwrite(fd, data[written : written + (1 << 20)], written)
    os.ftruncate(fd, len(data))
    os.fsync(fd)


def _write_back(fd: int, before: bytes, failure: OSError) -> None:
    """Restore the old content; its blocks still belong to the file, so this needs no space."""
    try:
        _write_over(fd, before)
    except OSError as error:
        raise OSError(
            failure.errno,
            f"{failure.strerror}, and its old content was lost on the way: {error.strerror}",
        ) from failure
