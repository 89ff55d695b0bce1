"""Store all files of a checkout as a git tree, without touching its index and without entering the
repositories inside it.

`git add -A` and `git status` run git in every nested repository, and with it the filters that its
configuration names. The plumbing used here reads nothing of them but their HEAD. They are left out
and reported.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import stat
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Literal

from msgspec import Struct

from zot.git import Git, GitError
from zot.text import printable

INDEX = "zot-index-"
"""Name prefix of private indexes, in the git directory of the checkout."""
GITLINK = "160000"
"""Mode of a nested repository in a tree."""


class TreeSnapshot(Struct, frozen=True):
    tree: str
    left_out: tuple[str, ...]
    """Notes on the parts of the checkout missing in the tree: repositories, unreadable files."""


class TreeChange(Struct, frozen=True):
    """A path that differs between two trees; mode 000000: it does not exist."""

    old_mode: str
    new_mode: str
    old: str
    new: str
    path: str

    def side(self, which: Literal["old", "new"]) -> tuple[str, str]:
        """Return mode and object id of one side."""
        return (self.old_mode, self.old) if which == "old" else (self.new_mode, self.new)

    @property
    def is_new_gitlink(self) -> bool:
        return self.new_mode == GITLINK != self.old_mode


def take_snapshot(git: Git, *, reopen: bool) -> TreeSnapshot:
    """Store the checkout as a tree. `reopen` allows changing it: files and directories that the
    agent made unreadable get the owner's rights back."""
    with private_index(git) as index:
        try:
            others, unread = _stage(git, index)
        except GitError as error:
            if not reopen:
                raise
            others, unread = [], [str(error)]
        if unread and reopen:
            reopen_all(git.directory)
            others, unread = _stage(git, index)
        nested = {name.rstrip("/") for name in others if name.endswith("/")}
        nested.update(_unstage_new_gitlinks(git, index))
        tree = git.run("write-tree", env=index).strip()
    nested.update(_filled_submodules(git))
    notes = [f"{path!r} is a repository of its own" for path in sorted(nested)]
    return TreeSnapshot(tree, (*notes, *unread))


def _stage(git: Git, index: dict[str, str]) -> tuple[list[str], list[str]]:
    """Update the index from the files; return all untracked names, and errors for what could not be
    read. A name with a trailing slash is a repository, which git lists but does not enter."""
    rows, closed = _listed(git, index, "diff-files", "--name-status", "--ignore-submodules=all")
    states = list(zip(rows[::2], rows[1::2], strict=True))
    others, unlisted = _listed(git, index, "ls-files", "--others", "--exclude-standard")
    _update(git, index, [path for state, path in states if state == "D"], "--force-remove")
    present = [path for state, path in states if state != "D"]
    present += [name for name in others if not name.endswith("/")]
    _update(git, index, present, "--add", "--remove", "--replace")
    return others, closed + unlisted


def _listed(git: Git, index: dict[str, str], *words: str) -> tuple[list[str], list[str]]:
    """Return the names that git prints, and its errors about unreadable files."""
    done = git.attempt(*words, "-z", env=index)
    complaints = done.stderr.decode(errors="replace").splitlines()
    if done.returncode:
        raise GitError(f"cannot read all of {git.directory!r}: {'; '.join(complaints)[:500]}")
    names = done.stdout.decode(errors="surrogateescape").split("\0")[:-1]
    return names, [printable(line) for line in complaints if _says_unread(line)]


def _says_unread(line: str) -> bool:
    """Whether git could not read a file; user configuration, which it ignores, is exempt."""
    return not line.startswith("warning: unable to access") and line.endswith("Permission denied")


def _update(git: Git, index: dict[str, str], paths: Sequence[str], *words: str) -> None:
    if paths:
        names = b"".join(os.fsencode(path) + b"\0" for path in paths)
        git.run("update-index", *words, "-z", "--stdin", env=index, stdin=names)


def _unstage_new_gitlinks(git: Git, index: dict[str, str]) -> list[str]:
    """Remove repositories from the index that were staged as new submodules; return their paths."""
    links = _gitlinks(git, index)
    if not links:
        return []
    rows = git.names("ls-tree", "-r", "-z", "--full-tree", "HEAD") if commit_of(git, "HEAD") else ()
    before = {row.partition("\t")[2] for row in rows if row.startswith(GITLINK)}
    fresh = [path for path in links if path not in before]
    _update(git, index, fresh, "--force-remove")
    return fresh


def _gitlinks(git: Git, index: dict[str, str] | None = None) -> list[str]:
    rows = git.names("ls-files", "--stage", "-z", env=index)
    return [row.partition("\t")[2] for row in rows if row.startswith(GITLINK)]


def _filled_submodules(git: Git) -> list[str]:
    """Return the submodules that contain files; zot does not read those."""
    return [path for path in _gitlinks(git) if _has_files(Path(git.directory, path))]


def _has_files(directory: Path) -> bool:
    try:
        return any(directory.iterdir())
    except (NotADirectoryError, FileNotFoundError):
        return False
    except PermissionError:
        return True


def commit_of(git: Git, name: str) -> str:
    """Return the id of the commit that a ref names; empty: there is none."""
    done = git.attempt("rev-parse", "-q", "--verify", f"{name}^{{commit}}")
    return done.stdout.decode().strip() if done.returncode == 0 else ""


def changes(git: Git, old: str, new: str) -> list[TreeChange]:
    """Return the paths that differ between two commits or trees."""
    words = ("-r", "-z", "--raw", "--no-renames", "--full-index", "--ignore-submodules=none")
    rows = git.names("diff-tree", *words, old, new)
    differences = []
    for about, path in zip(rows[::2], rows[1::2], strict=True):
        old_mode, new_mode, old_id, new_id, _ = about.removeprefix(":").split(" ")
        differences.append(TreeChange(old_mode, new_mode, old_id, new_id, path))
    return differences


# --- private indexes ---------------------------------------------------------------------------


@contextmanager
def private_index(git: Git) -> Iterator[dict[str, str]]:
    """Copy the checkout's index; yield the environment variable that makes git use the copy."""
    folder = git.git_dir
    clear_indexes(folder)
    path = folder / f"{INDEX}{os.getpid()}-{os.urandom(4).hex()}"
    index = {"GIT_INDEX_FILE": str(path)}
    try:
        if (folder / "index").exists():
            shutil.copy2(folder / "index", path)  # with its mtime, which git compares with files
        elif commit_of(git, "HEAD"):
            git.run("read-tree", "HEAD", env=index)
        else:
            git.run("read-tree", "--empty", env=index)
        yield index
    finally:
        path.unlink(missing_ok=True)
        path.with_name(f"{path.name}.lock").unlink(missing_ok=True)


def clear_indexes(folder: Path) -> None:
    """Remove private indexes of processes that have died."""
    for path in folder.glob(f"{INDEX}*"):
        pid = path.name.removeprefix(INDEX).partition("-")[0]
        if pid.isdigit() and not _is_alive(int(pid)):
            path.unlink(missing_ok=True)


def _is_alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except OSError:
        return True
    return True


# --- unreadable directories ----------------------------------------------------------------------


def reopen_all(directory: str) -> None:
    """Give the owner read access to everything below the directory, as far as possible. Links are
    never followed, even if one replaces a directory meanwhile."""
    with contextlib.suppress(OSError):
        Path(directory).chmod(stat.S_IMODE(os.lstat(directory).st_mode) | stat.S_IRWXU)
    for _, folders, files, fd in os.fwalk(directory):
        for names, rights in ((folders, stat.S_IRWXU), (files, stat.S_IRUSR)):
            for name in names:
                with contextlib.suppress(OSError):
                    _add_rights(name, rights, fd)


def _add_rights(name: str, rights: int, folder: int) -> None:
    mode = os.stat(name, dir_fd=folder, follow_symlinks=False).st_mode
    if stat.S_ISLNK(mode) or mode & rights == rights:
        return
    if sys.platform != "linux":
        os.chmod(name, stat.S_IMODE(mode) | rights, dir_fd=folder, follow_symlinks=False)
        return
    fd = os.open(name, os.O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=folder)
    try:
        if stat.S_IFMT(os.fstat(fd).st_mode) == stat.S_IFMT(mode):
            Path(f"/proc/self/fd/{fd}").chmod(stat.S_IMODE(mode) | rights)
    finally:
        os.close(fd)
