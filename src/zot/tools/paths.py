"""Turns a path argument into an absolute path, and a path into its shown form. Reads no content."""

from __future__ import annotations

import os
import stat
from collections.abc import Mapping
from pathlib import Path

from zot.errors import ToolBlocked, ToolError
from zot.home import expand_user
from zot.tools.disk import Outside


def resolve(cwd: Path, argument: object, environ: Mapping[str, str], *, name: str = "path") -> Path:
    """Return the absolute path of an argument: `~` expanded, relative to `cwd`, `..` folded.

    Symlinks stay as they are: the code that reads or writes decides whether to follow them.

    Raises:
        ToolError: empty, not a string, or not a possible file name.
    """
    if not isinstance(argument, str) or not argument:
        raise ToolError(f"{name} is required")
    if "\0" in argument:
        raise ToolError(f"{name} {argument!r} holds a NUL character; no file can have that name")
    try:
        os.fsencode(argument)
    except UnicodeEncodeError:
        raise ToolError(f"{name} {argument!r} holds half a character; give valid text") from None
    joined = cwd / expand_user(argument, environ)
    return Path(os.path.normpath(joined)) if ".." in joined.parts and _folds(joined) else joined


def _folds(path: Path) -> bool:
    """Return whether `a/..` can be left out: if `a` is a symlink, `..` leads elsewhere."""
    before = Path(*path.parts[: path.parts.index("..")])
    # os.path.islink returns False for a path without permission, where pathlib raises
    return not any(os.path.islink(part) for part in (before, *before.parents))  # noqa: PTH114


def shown(path: Path, cwd: Path) -> str:
    """Return the path in the form a model should repeat: relative inside the working directory."""
    return "." if path == cwd else str(path).removeprefix(f"{str(cwd).rstrip('/')}/")


def executable(name: str, cwd: Path, environ: Mapping[str, str]) -> str | None:
    """Return the absolute path of a helper program on PATH, never one that lies inside `cwd`.

    A checked-out repository may contain its own `rg` or `git`, which must not be run.
    """
    search = environ.get("PATH", os.defpath)
    here = Path(os.path.realpath(cwd))
    for folder in search.split(os.pathsep):
        candidate = Path(folder, name)
        if not candidate.is_absolute() or not is_program(candidate):
            continue
        real = Path(os.path.realpath(candidate))
        home = Path(os.path.realpath(folder))
        inside = real.is_relative_to(here) or home.is_relative_to(here)
        if not inside or here == Path(here.anchor):
            return str(candidate)
    return None


def is_program(path: str | Path) -> bool:
    try:
        # access() first: mostly the file is missing, and it reports that without an exception.
        return os.access(path, os.X_OK) and stat.S_ISREG(os.stat(path).st_mode)  # noqa: PTH116
    except OSError:
        return False  # missing, or in a directory without permission


def shell(cwd: Path, environ: Mapping[str, str]) -> str:
    """Return /bin/bash, else bash on PATH, else /bin/sh."""
    if os.access("/bin/bash", os.X_OK):
        return "/bin/bash"
    return executable("bash", cwd, environ) or "/bin/sh"


def kind(mode: int) -> str:
    """Return the kind of a non-regular file, in words."""
    kinds = {
        stat.S_IFDIR: "a directory",
        stat.S_IFIFO: "a named pipe",
        stat.S_IFSOCK: "a socket",
        stat.S_IFCHR: "a device",
        stat.S_IFBLK: "a device",
    }
    return kinds.get(stat.S_IFMT(mode), "not a regular file")


def reason(error: OSError) -> str:
    """Return the system's message, without the number and the path (the caller shows that)."""
    return (error.strerror or str(error)).lower()


def failed(what: str, error: OSError) -> ToolError:
    """Return the error for the model: what failed, and why."""
    if isinstance(error, Outside):
        return ToolBlocked(str(error))
    return ToolError(f"{what}: {reason(error)}")
