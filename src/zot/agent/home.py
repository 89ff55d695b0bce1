"""Where zot keeps its files, and how it writes them: atomically, and for the user alone.

Plain string paths inside: `zot rpc` loads this before its first answer, and pathlib would cost
it several milliseconds. `home()` hands out a Path to those who have pathlib loaded anyway.
"""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    from pathlib import Path

StrPath = str | os.PathLike[str]
Dir = TypeVar("Dir", bound=StrPath)


def home_dir() -> str:
    """`$ZOT_HOME`, else the platform's place for state. Nothing is created by asking."""
    if explicit := os.environ.get("ZOT_HOME"):
        return os.path.expanduser(explicit)
    if state := os.environ.get("XDG_STATE_HOME"):
        return os.path.join(state, "zot")
    user = os.path.expanduser("~")
    if sys.platform == "darwin":
        return os.path.join(user, "Library", "Application Support", "zot")
    if sys.platform == "win32" and (local := os.environ.get("LOCALAPPDATA")):
        return os.path.join(local, "zot")
    return os.path.join(user, ".local", "state", "zot")


def home() -> Path:
    """The same as a Path."""
    from pathlib import Path  # start-up budget: see the top of the file

    return Path(home_dir())


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
