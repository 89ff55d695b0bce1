"""Opens a path without following symlinks, safe against races. Standard library only.

A path that is checked and then resolved again leads elsewhere when a process swaps a directory for
a symlink in between. Here each part is opened by itself, relative to the descriptor of the part
before, and no symlink is followed: the result always lies below the directory that the caller
holds open. No system call is needed that a kernel may lack. tools/jail/disk.py has the disk of a
jail, which also follows symlinks that stay inside.
"""

from __future__ import annotations

import os

LOOK = getattr(os, "O_PATH", os.O_RDONLY | getattr(os, "O_NONBLOCK", 0)) | getattr(
    os, "O_CLOEXEC", 0
)
"""Flags to get a descriptor for a path without opening the file itself, where O_PATH exists."""
NO_LINK = getattr(os, "O_NOFOLLOW", 0)
FOLDER = getattr(os, "O_DIRECTORY", 0)


def parts_of(path: str) -> list[str]:
    return [part for part in path.split("/") if part not in ("", ".")]


def is_below(path: str, directory: str) -> bool:
    """Return whether a path (without symlinks) is the directory or lies in it."""
    return path == directory or path.startswith(directory.rstrip("/") + "/")


def open_plain(folder: int, path: str, flags: int) -> int:
    """Open a path below an open directory. With O_PATH, a symlink may be opened as the last part.

    Raises:
        OSError: the path does not exist, or a part of it is a symlink or `..` (ENOTDIR or ELOOP).
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
    """Open an absolute path without symlinks. Raises OSError: it contains one now, or is gone."""
    if os.open not in os.supports_dir_fd:
        return os.open(path, flags | NO_LINK)  # Windows
    root = os.open("/", LOOK | FOLDER)
    try:
        return open_plain(root, path, flags)
    finally:
        os.close(root)


def identity(status: os.stat_result) -> tuple[int, int]:
    return status.st_dev, status.st_ino
