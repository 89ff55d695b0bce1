"""The rules for a command at the level `files`: Landlock and a system call filter (landlock.py).

Rights only add up: a rule for a directory is a rule for all below it, and nothing takes a right
away. So a secret is kept by giving a right to each of its neighbours instead, up to the root; and
a protected name in a directory that can be written cannot be kept at all.
"""

from __future__ import annotations

import os
import shutil
import stat
import tempfile
from collections.abc import Collection, Iterator
from contextlib import contextmanager, suppress
from pathlib import PurePosixPath

from zot.tools.jail.landlock import CHANGE, READ_DIR, SEE, USE, Rule, abi

DEVICES = ("null", "zero", "full", "random", "urandom", "tty")
LACKS = {
    2: "it cannot move files from one directory to another",
    6: "it can send signals to your other processes",
}
"""Weaknesses of Landlock before these versions."""
GIT = ("config", "config.worktree", "hooks", "info")
"""The parts of a git directory that name programs, or are programs."""
MAX_STAMPS = 5_000
Stamps = dict[str, tuple[int, int, int]]
"""Paths with their inode, time of change and size."""


def rules(bases: Collection[str], kept: Collection[str], writable: Collection[str]) -> list[Rule]:
    """Return the rules for all but the working directory: `bases` can be read, without `kept`, and
    `writable` can be written."""
    found: list[Rule] = [("/proc", SEE), ("/run/current-system", SEE)]  # the latter: NixOS
    kept = {*kept, "/dev"}  # root, though without its powers, could read disks there
    for base in bases:
        found += [(path, SEE) for path in neighbours(kept, base)]
    found.append(("/", READ_DIR))  # names only; without it not even `ls /` works
    found += [(f"/dev/{name}", USE) for name in DEVICES]
    found += [(path, SEE | CHANGE) for path in writable]
    return found


def neighbours(kept: Collection[str], base: str) -> Iterator[str]:
    """Yield paths that together hold the directory with everything in it except what is kept."""
    above = {str(parent) for path in kept for parent in PurePosixPath(path).parents}
    waiting = [base]
    while waiting:
        path = waiting.pop()
        if path in kept:
            continue
        if path not in above:
            yield path
            continue
        with suppress(OSError), os.scandir(path) as entries:  # what cannot be listed is kept
            waiting += [entry.path for entry in entries]


@contextmanager
def temporary_directory() -> Iterator[str]:
    """Yield a new directory for one command; all of it is removed at the end."""
    path = os.path.realpath(tempfile.mkdtemp(prefix="zot-jail-"))
    try:
        yield path
    finally:
        _remove(path)


def _remove(path: str) -> None:
    for folder, names, _ in os.walk(path):  # a command may have made its directories unlistable
        for name in names:
            below = os.path.join(folder, name)
            with suppress(OSError):
                if not os.path.islink(below):
                    os.chmod(below, 0o700)
    shutil.rmtree(path, ignore_errors=True)


def weaknesses(root: str, *, read_only: bool) -> str:
    """Return a note on what this level does not do, for the first command."""
    version = abi()
    missing = [text for needed, text in LACKS.items() if version < needed]
    more = f" On this kernel {', and '.join(missing)}." if missing else ""
    obeyed = "" if read_only else ", and write what git and editors obey inside it"
    return (
        "jailed by rules on files only (level files): a command sees the names of files outside,"
        " other processes and their command lines; it can change modes and times of your files"
        f" outside {root!r}{obeyed}.{more}"
    )


# --- what other programs obey --------------------------------------------------------------------


def stamps(root: str, paths: Collection[str]) -> Stamps:
    """Return the state of things that other programs obey, and of the files in them."""
    found: Stamps = {}
    waiting = [os.path.join(root, path) for path in sorted(paths)]
    while waiting and len(found) < MAX_STAMPS:
        path = waiting.pop()
        with suppress(OSError):
            status = os.lstat(path)
            if not stat.S_ISDIR(status.st_mode):
                found[path] = status.st_ino, status.st_ctime_ns, status.st_size
                continue
            is_git = os.path.basename(path) == ".git"
            waiting += [os.path.join(path, name) for name in (GIT if is_git else os.listdir(path))]
    return found


def changed(before: Stamps, after: Stamps, root: str) -> list[str]:
    """Return a note on obeyed files that a command changed, made or removed; [] for none."""
    paths = sorted(
        os.path.relpath(path, root)
        for path in before.keys() | after.keys()
        if before.get(path) != after.get(path)
    )
    if not paths:
        return []
    more = f" and {len(paths) - 5} more" if len(paths) > 5 else ""
    listed = ", ".join(map(repr, paths[:5]))
    return [
        f"jailed: {listed}{more} changed meanwhile. Git, zot or an editor runs or obeys what is"
        " there, and at the level files it cannot be protected: look at it before you use them"
    ]
