"""Locks that serialize changes to a repository, and the check which commits its owner still has."""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from zot.errors import ZotError
from zot.files import lock
from zot.git import Git

LOCK = "zot.lock"
"""Lock file in the git directory that all checkouts of a repository share."""
LOCK_SECONDS = 300.0
STALE_SECONDS = 2.0
"""Age from which the lock of a branch or an index may be left by a killed git."""
BRANCHES = "zot"
"""Prefix of the agents' branches, zot/ID."""


class WorktreeError(ZotError):
    code = "worktree"


class MergeConflict(WorktreeError):
    code = "conflict"

    def __init__(self, message: str, paths: tuple[str, ...]) -> None:
        super().__init__(message)
        self.paths = paths


@contextmanager
def changing(directory: str, environment: Mapping[str, str], git_dir: str = "") -> Iterator[Git]:
    """Lock a checkout and its repository's branches against other zot processes; yield its git.

    The kernel holds the lock: it ends with this process and the git processes it started. A
    directory that is no repository (`git_dir` is elsewhere) is locked itself.
    """
    where = Path(directory) if git_dir else Git(directory, environment).common_dir / LOCK
    fd = _lock(where, directory)
    try:
        yield Git(directory, environment, git_dir, held=(fd,))
    finally:
        os.close(fd)


def _lock(path: Path, directory: str) -> int:
    flags = os.O_RDONLY if path.is_dir() else os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW
    fd = os.open(path, flags | os.O_CLOEXEC, 0o600)
    deadline = time.monotonic() + LOCK_SECONDS
    while not lock(fd):
        if time.monotonic() > deadline:
            os.close(fd)
            raise WorktreeError(
                f"another zot has been changing {directory!r} for {LOCK_SECONDS:.0f} s: "
                "try again when it has ended"
            )
        time.sleep(0.02)
    return fd


def remove_stale_lock(git: Git) -> None:
    """Remove index.lock of an agent's own checkout if a killed git left it: git holds it only for a
    moment, and no git runs in this directory."""
    path = git.git_dir / "index.lock"
    with contextlib.suppress(FileNotFoundError):
        time.sleep(max(0.0, path.stat().st_mtime + STALE_SECONDS - time.time()))
        if path.exists() and not _runs_git_in(git.directory):
            path.unlink()


def _runs_git_in(directory: str) -> bool:
    """Whether git runs in the directory; False without /proc, where the lock's age must do."""
    for process in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            cwd = process.joinpath("cwd").readlink()
            name = process.joinpath("comm").read_text()
            if name.startswith("git") and cwd.is_relative_to(directory):
                return True
    return False


def is_in_users_hands(git: Git, commit: str, own_tree: str) -> bool:
    """Whether a ref of the user contains the commit: a branch, a tag, a remote branch, or HEAD of a
    checkout. Branches of agents and the agent's own tree do not count: they get removed."""
    words = ("for-each-ref", f"--contains={commit}", "--format=%(refname)")
    if not all(_is_an_agents(name) for name in git.run(*words).splitlines()):
        return True
    return any(
        git.succeeds("merge-base", "--is-ancestor", commit, head)
        for path, head, branch in _checkouts(git)
        if head and os.path.realpath(path) != own_tree and not _is_an_agents(branch)
    )


def _is_an_agents(ref: str) -> bool:
    return ref.startswith((f"refs/heads/{BRANCHES}/", "refs/zot/"))


def _checkouts(git: Git) -> Iterator[tuple[str, str, str]]:
    """Yield directory, commit and branch of each checkout; a bare repository has no commit, and a
    detached HEAD no branch."""
    for block in git.run("worktree", "list", "--porcelain", "-z").split("\0\0"):
        rows = [row.partition(" ") for row in block.split("\0")]
        about = {name: value for name, _, value in rows}
        head = about.get("HEAD", "").strip("0")
        yield about.get("worktree", ""), head and about["HEAD"], about.get("branch", "")
