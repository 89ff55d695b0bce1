"""Opens a path that was looked at before, and nothing else. Standard library only.

A path that is checked and then resolved again leads elsewhere when somebody swaps a directory for
a symlink in between. Here each part is opened by itself, below the descriptor of the part before,
and no symlink is followed: whatever happens meanwhile, what is opened lies below the directory
that the caller holds. It needs no system call that a kernel may lack. tools/beneath.py has the
disk of a jail, which also follows the symlinks that stay inside.
"""

from __future__ import annotations

import os

LOOK = getattr(os, "O_PATH", os.O_RDONLY | getattr(os, "O_NONBLOCK", 0)) | getattr(
    os, "O_CLOEXEC", 0
)
"""To learn what a path is, without opening what is there."""
NO_LINK = getattr(os, "O_NOFOLLOW", 0)
FOLDER = getattr(os, "O_DIRECTORY", 0)


def parts_of(path: str) -> list[str]:
    return [part for part in path.split("/") if part not in ("", ".")]


def is_below(path: str, directory: str) -> bool:
    """Whether a path, without symlinks, is the directory or lies in it."""
    return path == directory or path.startswith(directory.rstrip("/") + "/")


def open_plain(folder: int, path: str, flags: int) -> int:
    """Open a path below an open directory.

    Raises:
        OSError: it is not there, or a part of it is a symlink or `..`: ENOTDIR or ELOOP. With
            O_PATH a symlink as the last part is opened itself.
    """
    parts = parts_of(path)
    if ".." in parts:
        raise NotADirectoryError(20, "a part of the path is `..`", path)
    at = os.open(".", LOOK | FOLDER, dir_fd=folder)
    try:
        for part in parts[:-1]:
            below = os.open(part, LOOK | FOLDER | NO_LINK, dir_fd=at)
            os.close(at)
            at = below
        return os.open(parts[-1] if parts else ".", flags | NO_LINK, dir_fd=at)
    finally:
        os.close(at)


def open_real(path: str, flags: int) -> int:
    """Open an absolute path that has no symlinks. Raises OSError: it has one now, or is gone."""
    if os.open not in os.supports_dir_fd:
        return os.open(path, flags | NO_LINK)  # Windows
    root = os.open("/", LOOK | FOLDER)
    try:
        return open_plain(root, path, flags)
    finally:
        os.close(root)


def identity(status: os.stat_result) -> tuple[int, int]:
    return status.st_dev, status.st_ino
