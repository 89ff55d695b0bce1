"""From a path argument to an absolute path, and back to how it is shown. Reads no content."""

from __future__ import annotations

import os
import stat
from collections.abc import Mapping
from pathlib import Path

from zot.errors import ToolBlocked, ToolError
from zot.home import expand_user
from zot.tools.disk import Outside


def resolve(cwd: Path, argument: object, environ: Mapping[str, str], *, name: str = "path") -> Path:
    """The absolute path that an argument means: `~` expanded, relative to `cwd`, `..` folded.

    Symlinks stay as they are written: who reads or writes decides whether to follow them.

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
    """Whether `a/..` can be left out: where `a` is a symlink, a shell would go elsewhere."""
    before = Path(*path.parts[: path.parts.index("..")])
    # os.path, which takes what it may not see for no symlink; pathlib raises
    return not any(os.path.islink(part) for part in (before, *before.parents))  # noqa: PTH114


def shown(path: Path, cwd: Path) -> str:
    """The path as a model should repeat it: relative inside the working directory."""
    return "." if path == cwd else str(path).removeprefix(f"{str(cwd).rstrip('/')}/")


def executable(name: str, cwd: Path, environ: Mapping[str, str]) -> str | None:
    """The absolute path of a helper program on PATH, never one that lies inside `cwd`.

    A checked-out repository may bring its own `rg` or `git`; ours must not be that one.
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
        # Asked first: mostly it is not there, and this tells so without an exception.
        return os.access(path, os.X_OK) and stat.S_ISREG(os.stat(path).st_mode)  # noqa: PTH116
    except OSError:
        return False  # not there, or in a folder we may not look into


def shell(cwd: Path, environ: Mapping[str, str]) -> str:
    """/bin/bash, else bash on PATH, else /bin/sh."""
    if os.access("/bin/bash", os.X_OK):
        return "/bin/bash"
    return executable("bash", cwd, environ) or "/bin/sh"


def kind(mode: int) -> str:
    """What a file is when it is not a regular one, in words."""
    kinds = {
        stat.S_IFDIR: "a directory",
        stat.S_IFIFO: "a named pipe",
        stat.S_IFSOCK: "a socket",
        stat.S_IFCHR: "a device",
        stat.S_IFBLK: "a device",
    }
    return kinds.get(stat.S_IFMT(mode), "not a regular file")


def reason(error: OSError) -> str:
    """The system's words, without the number and the path that the caller already shows."""
    return (error.strerror or str(error)).lower()


def failed(what: str, error: OSError) -> ToolError:
    """The error for the model: what could not be done, and why."""
    if isinstance(error, Outside):
        return ToolBlocked(str(error))
    return ToolError(f"{what}: {reason(error)}")
