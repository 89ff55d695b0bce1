"""Bring commits into the user's checkout so that a crash leaves the old state or the new one.

    merged tree, commit     git objects only: nothing of the user's is touched, conflicts stop here
    journal                 zot-merge.json beside the index: from, to, branch
    index.lock              ours, with a mark in it: the user's git waits, as for any other git
    files, private index    `git read-tree -m -u`: the files that differ; refused if one is dirty
    HEAD                    from here on the merge has happened
    index                   replaced by the private one
    locks, journal          removed

The next process that changes the checkout, or the next supervisor, finds the journal and settles
it: before HEAD has moved, the written files are restored; afterwards the merge is completed. Files
edited in between are left alone.
"""

from __future__ import annotations

import contextlib
import os
import secrets
import shutil
import stat
import time
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Literal

import msgspec
from msgspec import Struct

from zot.beneath import FOLDER, LOOK, open_plain
from zot.errors import ZotError
from zot.files import lock, read_bytes, write_atomic
from zot.git import Git
from zot.swarm.snapshot import GITLINK, TreeChange, changes

LOCK = "zot.lock"
"""Lock file in the git directory that all checkouts of a repository share."""
LOCK_SECONDS = 300.0
STALE_SECONDS = 2.0
"""Age from which the lock of a branch or an index may be left by a killed git."""
JOURNAL = "zot-merge.json"
PRIVATE_INDEX = "zot-merge-index"
WAIT_SECONDS = 10.0
"""Seconds to wait for another git in the checkout."""
SHOWN = 10
"""Maximum number of file names in an error."""
ABSENT = "000000"
_UNFINISHED = {
    "MERGE_HEAD": "merge",
    "CHERRY_PICK_HEAD": "cherry-pick",
    "REVERT_HEAD": "revert",
    "rebase-merge": "rebase",
    "rebase-apply": "rebase",
}


class WorktreeError(ZotError):
    code = "worktree"


class MergeConflict(WorktreeError):
    code = "conflict"

    def __init__(self, message: str, paths: tuple[str, ...]) -> None:
        super().__init__(message)
        self.paths = paths


CommitId = Annotated[str, msgspec.Meta(pattern="^[0-9a-f]{40,64}$")]


class Move(Struct, frozen=True, kw_only=True):
    """A merge in progress, as its journal stores it. Untrusted: repositories may bring one."""

    old: CommitId
    new: CommitId
    ref: str
    """The branch that HEAD points to; empty: HEAD is detached."""
    mark: str
    """Content of our index.lock."""
    source: str = ""
    """The agent's branch."""
    tip: str = ""
    squash: bool = False


class Checkout:
    """The user's checkout, while its repository is locked."""

    def __init__(self, git: Git) -> None:
        self._git = git
        self._folder = git.git_dir
        self._index = self._folder / "index"
        self._lock = self._folder / "index.lock"
        self._journal = self._folder / JOURNAL
        self._private = self._folder / PRIVATE_INDEX
        self._with_private = {"GIT_INDEX_FILE": str(self._private)}
        self._old_files = self._folder / f"{PRIVATE_INDEX}.old"
        self._with_old_files = {"GIT_INDEX_FILE": str(self._old_files)}

    # --- merging -----------------------------------------------------------------------------

    def merge(self, source: str, message: str, *, squash: bool) -> tuple[str, str]:
        """Merge a branch; return its tip, and the commit that contains it."""
        self.settle()
        self._refuse_unfinished()
        git = self._git
        old, ref = self._head()
        tip = git.line("rev-parse", "--verify", f"refs/heads/{source}^{{commit}}")
        if git.succeeds("merge-base", "--is-ancestor", tip, old):
            return tip, old
        tree = self._merged_tree(source, old, tip)
        if squash and tree == git.line("rev-parse", f"{old}^{{tree}}"):
            return tip, old
        new = git.commit_tree(tree, (old,) if squash else (old, tip), message)
        self._refuse_dirty(changes(git, old, new))
        mark = f"zot merge {secrets.token_hex(8)}\n"
        self._advance(
            Move(old=old, new=new, ref=ref, mark=mark, source=source, tip=tip, squash=squash)
        )
        return tip, new

    def _refuse_unfinished(self) -> None:
        for name, what in _UNFINISHED.items():
            if (self._folder / name).exists():
                raise WorktreeError(
                    f"{self._git.directory!r} is in the middle of a {what}: finish or abort it, "
                    "then merge again"
                )

    def _merged_tree(self, source: str, old: str, tip: str) -> str:
        """Return the merged tree. Raises MergeConflict."""
        git = self._git
        base = git.attempt("merge-base", old, tip).stdout.decode().strip()
        if base:
            self._refuse_gitlinks(source, changes(git, base, tip), changes(git, base, old))
        done = git.attempt("merge-tree", "--write-tree", "--name-only", "-z", old, tip)
        said = done.stdout.decode(errors="surrogateescape")
        if done.returncode == 0:
            return said.split("\0", 1)[0].strip()
        if done.returncode != 1:
            reason = done.stderr.decode(errors="replace").strip()
            if "usage:" in reason:
                reason = "git 2.38 or newer is needed (`git merge-tree --write-tree`)"
            raise WorktreeError(f"cannot merge {source} into {git.directory!r}: {reason[:500]}")
        # Output: a tree id, the conflicting paths, an empty field, then messages for people.
        paths = tuple(dict.fromkeys(said.split("\0\0", 1)[0].split("\0")[1:]))
        raise self._conflict(source, paths)

    def _refuse_gitlinks(
        self, source: str, theirs: Iterable[TreeChange], ours: Iterable[TreeChange]
    ) -> None:
        """Refuse changed submodules: git would look into their repositories to merge them."""
        theirs = list(theirs)
        if fresh := [change.path for change in theirs if change.is_new_gitlink]:
            raise WorktreeError(
                f"{source} adds repositories as submodules: {_shown(fresh)}; zot does not merge "
                f"these. {self._by_hand(source)}"
            )
        moved = {change.path for change in ours if GITLINK in (change.old_mode, change.new_mode)}
        both = [change.path for change in theirs if change.path in moved]
        if both:
            raise self._conflict(source, tuple(both))

    def _conflict(self, source: str, paths: tuple[str, ...]) -> MergeConflict:
        return MergeConflict(
            f"{source} and the checkout both changed {_shown(paths)}; nothing was merged. "
            f"{self._by_hand(source)}",
            paths,
        )

    def _by_hand(self, source: str) -> str:
        return f"Do it by hand: git -C {self._git.directory!r} merge {source}"

    def _refuse_dirty(self, moved: list[TreeChange]) -> None:
        """Raise WorktreeError for files that both the merge and the user have changed."""
        git, directory = self._git, Path(self._git.directory)
        self._copy_index()
        git.attempt(
            "update-index", "-q", "--ignore-submodules", "--refresh", env=self._with_private
        )
        words = ("--name-only", "-z", "--ignore-submodules=all")
        edited = set(git.names("diff-files", *words, env=self._with_private))
        edited.update(git.names("diff-index", "--cached", *words, "HEAD", env=self._with_private))
        self._discard_private()
        in_the_way = [
            change.path
            for change in moved
            if change.path in edited
            or (change.old_mode == ABSENT and _has_file(directory, change.path))
        ]
        if in_the_way:
            raise WorktreeError(
                f"{git.directory!r} has uncommitted changes in {_shown(in_the_way)}, which the "
                "merge changes, too: commit or stash them, then merge again"
            )

    # --- moving HEAD, index and files --------------------------------------------------------

    def _advance(self, move: Move) -> None:
        self._discard_private()
        write_atomic(self._journal, msgspec.json.encode(move))
        try:
            self._take_index_lock(move.mark)
            if self._head() != (move.old, move.ref):
                raise WorktreeError(f"{self._git.directory!r} has just changed: merge again")
            self._copy_index()
            words = ("read-tree", "-m", "-u", move.old, move.new)
            self._git.run(*words, env=self._with_private)
            note = f"merge {move.source} (zot)"
            self._git.run("update-ref", "-m", note, "HEAD", move.new, move.old)
        finally:
            self.settle()

    def _take_index_lock(self, mark: str) -> None:
        """Lock out the user's git. The file contains its mark from the start, so that one left by a
        crash is known to be ours."""
        fresh = self._folder / f"{PRIVATE_INDEX}.mark"
        write_atomic(fresh, mark.encode())
        deadline = time.monotonic() + WAIT_SECONDS
        while True:
            try:
                _create_whole(self._lock, fresh)
                break
            except FileExistsError as error:
                if time.monotonic() > deadline:
                    raise WorktreeError(
                        f"another git works in {self._git.directory!r}, or was killed there: try "
                        f"again, or remove {str(self._lock)!r} if no git runs"
                    ) from error
                time.sleep(0.05)
        fresh.unlink()

    def _discard_private(self) -> None:
        for ending in ("", ".lock", ".mark", ".old", ".old.lock"):
            (self._folder / f"{PRIVATE_INDEX}{ending}").unlink(missing_ok=True)

    def _copy_index(self) -> None:
        """Copy the index with its modification time, which git compares with those of files."""
        self._discard_private()  # left by a killed merge, or a link in a foreign repository
        if self._index.exists():
            shutil.copy2(self._index, self._private)
        else:
            self._git.run("read-tree", "--empty", env=self._with_private)
        words = ("update-index", "-q", "--ignore-submodules", "--refresh")
        self._git.attempt(*words, env=self._with_private)

    def _head(self) -> tuple[str, str]:
        """Return the commit and the branch; empty branch: HEAD is detached."""
        ref = self._git.attempt("symbolic-ref", "-q", "HEAD").stdout.decode().strip()
        return self._git.line("rev-parse", "--verify", "HEAD^{commit}"), ref

    # --- settling ----------------------------------------------------------------------------

    def settle(self) -> Move | None:
        """Complete or undo a merge that was begun; return it if it has happened."""
        data = read_bytes(self._journal)
        if data is None:
            self._discard_private()  # a merge was killed before it touched anything
            return None
        try:
            move = msgspec.json.decode(data, type=Move)
        except msgspec.DecodeError as error:
            raise WorktreeError(
                f"{str(self._journal)!r} is no journal of a merge ({error}): remove it"
            ) from error
        self._remove_stale_locks()
        has_lock = read_bytes(self._lock) == move.mark.encode()
        has_index = self._private.exists()
        landed = self._head() == (move.new, move.ref)
        if landed and has_index and has_lock:
            self._private.replace(self._index)
        elif landed and has_index:  # somebody removed our lock
            self._git.attempt("read-tree", "-i", "-m", move.old, move.new)
        elif has_index and self._head() == (move.old, move.ref):
            self._restore(move)
        if has_lock:
            self._lock.unlink()
        self._discard_private()
        self._journal.unlink()
        return move if landed else None

    def _remove_stale_locks(self) -> None:
        """Remove locks of our own killed git: the repository's lock guarantees that none runs."""
        (self._folder / f"{PRIVATE_INDEX}.lock").unlink(missing_ok=True)
        branch = self._git.common_dir / f"{self._head()[1]}.lock"
        for path in (self._folder / "HEAD.lock", branch):
            with contextlib.suppress(FileNotFoundError):
                time.sleep(max(0.0, path.stat().st_mtime + STALE_SECONDS - time.time()))
                path.unlink()

    def _restore(self, move: Move) -> None:
        """Restore the old files where the merge wrote new ones; keep files edited since."""
        moved = [
            c
            for c in changes(self._git, move.old, move.new)
            if GITLINK not in (c.old_mode, c.new_mode)
        ]
        unlike_old, unlike_new = self._differing(moved, "old"), self._differing(moved, "new")
        wrong = [
            change
            for change in moved
            if change.path in unlike_old
            and (change.path not in unlike_new or self._is_half_written(change))
        ]
        directory = Path(self._git.directory)
        for change in wrong:
            if change.old_mode == ABSENT:
                _remove_file(directory, change.path)
        old = [change.path for change in wrong if change.old_mode != ABSENT]
        self._fill(moved, "old")
        # Attributes first: they control how the other files are written.
        attributes = [path for path in old if path.endswith(".gitattributes")]
        for paths in (attributes, [path for path in old if path not in attributes]):
            names = b"".join(os.fsencode(path) + b"\0" for path in paths)
            words = ("checkout-index", "-f", "-q", "-z", "--stdin")
            self._git.run(*words, env=self._with_old_files, stdin=names)

    def _fill(self, moved: list[TreeChange], side: Literal["old", "new"]) -> None:
        """Make an index with only one side of the changes."""
        for ending in (".old", ".old.lock"):
            (self._folder / f"{PRIVATE_INDEX}{ending}").unlink(missing_ok=True)
        rows = [(*change.side(side), change.path) for change in moved]
        text = b"".join(
            b"%b %b\t%b\0" % (mode.encode(), id.encode(), os.fsencode(path))
            for mode, id, path in rows
            if mode != ABSENT
        )
        words = ("update-index", "-z", "--index-info")
        self._git.run(*words, env=self._with_old_files, stdin=text)

    def _differing(self, moved: list[TreeChange], side: Literal["old", "new"]) -> set[str]:
        """Return the paths whose file differs from this side."""
        git, directory = self._git, Path(self._git.directory)
        self._fill(moved, side)
        git.attempt("update-index", "-q", "--refresh", env=self._with_old_files)
        words = ("diff-files", "--name-only", "-z", "--ignore-submodules=all")
        differing = set(git.names(*words, env=self._with_old_files))
        absent = [change.path for change in moved if change.side(side)[0] == ABSENT]
        return differing | {path for path in absent if _has_file(directory, path)}

    def _is_half_written(self, change: TreeChange) -> bool:
        """Whether the file is missing or a prefix of the new one: git was killed writing it."""
        kind = _kind_of(Path(self._git.directory), change.path)
        if kind is None:
            return True
        if not stat.S_ISREG(kind) or change.new_mode == ABSENT:
            return False
        words = ("cat-file", "--filters", f"--path={change.path}", change.new)
        whole = self._git.attempt(*words).stdout
        with _folder_of(Path(self._git.directory), change.path) as (folder, name):
            fd = os.open(name, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK, dir_fd=folder)
            with os.fdopen(fd, "rb") as file:
                return whole.startswith(file.read(len(whole) + 1))


def _create_whole(path: Path, source: Path) -> None:
    """Create a file with its content atomically. Raises FileExistsError."""
    try:
        os.link(source, path)
    except FileExistsError:
        raise
    except OSError:  # a file system without hard links
        with path.open("xb") as file:
            file.write(source.read_bytes())


@contextmanager
def _folder_of(directory: Path, path: str) -> Iterator[tuple[int, str]]:
    """Yield the open folder of a path in the checkout, and the name in it. No link is followed,
    even if one replaces a folder meanwhile: a program may work there. Raises OSError."""
    above, _, name = path.rpartition("/")
    root = os.open(directory, LOOK | FOLDER)
    try:
        folder = open_plain(root, above, LOOK | FOLDER)
    finally:
        os.close(root)
    try:
        yield folder, name
    finally:
        os.close(folder)


def _kind_of(directory: Path, path: str) -> int | None:
    """Return the mode of what is in the checkout itself, not behind a link; None: nothing."""
    try:
        with _folder_of(directory, path) as (folder, name):
            return os.stat(name, dir_fd=folder, follow_symlinks=False).st_mode
    except OSError:
        return None


def _has_file(directory: Path, path: str) -> bool:
    """Whether a file or link exists; a directory is left for git to judge."""
    kind = _kind_of(directory, path)
    return kind is not None and not stat.S_ISDIR(kind)


def _remove_file(directory: Path, path: str) -> None:
    """Remove a file, and the directories that are empty then."""
    with contextlib.suppress(OSError):
        with _folder_of(directory, path) as (folder, name):
            os.unlink(name, dir_fd=folder)
        while path := path.rpartition("/")[0]:
            with _folder_of(directory, path) as (folder, name):
                os.rmdir(name, dir_fd=folder)


def _shown(paths: Iterable[str]) -> str:
    paths = list(paths)
    more = f" and {len(paths) - SHOWN} more" if len(paths) > SHOWN else ""
    return ", ".join(paths[:SHOWN]) + more


# --- locks of a repository -----------------------------------------------------------------------


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
