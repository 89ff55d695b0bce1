"""Where zot keeps its files, and how it writes them: atomically, and for the user alone."""

from __future__ import annotations

import os
import sys
from pathlib import Path


def home() -> Path:
    """`$ZOT_HOME`, else the platform's place for state. Nothing is created by asking."""
    if explicit := os.environ.get("ZOT_HOME"):
        return Path(explicit).expanduser()
    if state := os.environ.get("XDG_STATE_HOME"):
        return Path(state) / "zot"
    if sys.platform == "darwin":
        return Path.home() / "Library" / "Application Support" / "zot"
    if sys.platform == "win32" and (local := os.environ.get("LOCALAPPDATA")):
        return Path(local) / "zot"
    return Path.home() / ".local" / "state" / "zot"


def ensure_dir(path: Path) -> Path:
    """Create a directory of ours, and its parents, readable by the user alone."""
    if not path.is_dir():
        missing = [path, *path.parents]
        for directory in reversed([each for each in missing if not each.exists()]):
            directory.mkdir(mode=0o700, exist_ok=True)
    return path


def write_atomic(path: Path, data: bytes, mode: int = 0o600) -> None:
    """Replace a file of ours in one step: a reader sees the old one or the new one, never half."""
    ensure_dir(path.parent)
    temporary = path.with_name(f".{path.name}.{os.getpid()}.{os.urandom(4).hex()}.tmp")
    fd = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, mode)
    try:
        with os.fdopen(fd, "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(path)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise
