"""The directory that one agent works in: a worktree on a branch of its own, a copy of a directory
that is no repository, or (when asked) the directory itself. What was done there is never thrown
away unasked.
"""

from __future__ import annotations

import os
import shlex
import shutil
import tempfile
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Literal

from msgspec import Struct

from zot.errors import ZotError
from zot.files import ensure_dir, read_bytes
from zot.swarm.git import MAX_DIFF, Git, GitError, top_level

BRANCHES = "zot"
"""Branches of agents are called zot/ID."""
MAX_COPY = 2 * 1024 * 1024 * 1024
"""Bytes of a directory that are copied for an agent."""
DIFF = ("diff", "--cached", "--no-ext-diff", "--no-textconv")
ADD_PAUSES = (0.2, 0.5, 1.0, 2.0, None)
"""Seconds before a tree is tried again."""


class WorktreeError(ZotError):
    code = "worktree"


class MergeConflict(WorktreeError):
    code = "conflict"

    def __init__(self, message: str, paths: tuple[str, ...]) -> None:
        super().__init__(message)
        self.paths = paths


class TreeOrigin(Struct, frozen=True, kw_only=True):
    """What the tree of an agent is made from, and what its work is compared with."""

    origin: str
    """The checkout or directory it was made from."""
    inside: str = ""
    """The part of it that the task was given for, relative."""
    branch: str = ""
    base: str = ""
    """The commit it began with."""


class Worktree(TreeOrigin, frozen=True):
    """Where an agent works."""

    kind: Literal["worktree", "copy", "shared"]
    path: str
    git_dir: str = ""
    """Of a copy: the repository that remembers how it began, kept out of the agent's sight."""

    @property
    def cwd(self) -> str:
        return str(Path(self.path) / self.inside)


class DiffSize(Struct, frozen=True):
    files: int = 0
    added: int = 0
    removed: int = 0


class Worktrees:
    """Makes, compares, merges and removes the trees of agents."""

    def __init__(self, environment: Mapping[str, str]) -> None:
        self._environment = environment
        self._adding = threading.Lock()

    # --- making ------------------------------------------------------------------------------

    def make(
        self, directory: str, id: str, folder: Path, *, base: str = "", shared: bool = False
    ) -> Worktree:
        """A tree for the agent `id`, below `folder`; with `shared` the directory itself."""
        directory = os.path.realpath(directory)
        origin = top_level(directory, self._environment)
        has_commits = self._has_commits(origin)
        if shared:
            start = self._start(origin, directory, "") if has_commits else ""
            return Worktree("shared", directory, origin=origin or directory, base=start)
        if has_commits or base:
            return self._branch_off(origin, directory, id, folder, base)
        return self._copy(directory, folder)

    def _branch_off(
        self, origin: str, directory: str, id: str, folder: Path, base: str
    ) -> Worktree:
        git, start = self.at(origin), self._start(origin, directory, base)
        branch = f"{BRANCHES}/{id}"
        path = Path(os.path.realpath(ensure_dir(folder))) / "tree"
        with self._adding:
            self._add(git, branch, path, start)
        inside = os.path.relpath(directory, origin)
        inside = "" if inside == os.curdir else inside
        (path / inside).mkdir(parents=True, exist_ok=True)  # it may be new, and not committed yet
        return Worktree(
            "worktree", str(path), origin=origin, inside=inside, branch=branch, base=start
        )

    def check_base(self, directory: str, base: str) -> None:
        """Raises WorktreeError where a tree could not begin with this branch or commit."""
        self._start(top_level(directory, self._environment), directory, base)

    def _has_commits(self, origin: str) -> bool:
        return bool(origin) and self.at(origin).succeeds("rev-parse", "-q", "--verify", "@")

    def _start(self, origin: str, directory: str, base: str) -> str:
        """The commit to begin with. Raises WorktreeError."""
        if not self._has_commits(origin):
            raise WorktreeError(f"{directory!r} has no commits to begin with, so no {base!r}")
        words = ("rev-parse", "--verify", "--end-of-options", f"{base or '@'}^{{commit}}")
        try:
            return self.at(origin).line(*words)
        except GitError as error:
            raise WorktreeError(f"{origin!r} has no branch or commit {base!r}") from error

    def _add(self, git: Git, branch: str, path: Path, start: str) -> None:
        """Git fails while another tree of the repository is half-made: by a supervisor that was
        killed, whose git goes on for a moment, or by a git that was killed itself."""
        for pause in ADD_PAUSES:
            if git.succeeds("rev-parse", "-q", "--verify", f"refs/heads/{branch}") or path.exists():
                self._clear_unused(git, branch, path)
            try:
                git.run("worktree", "add", "-q", "-b", branch, str(path), start)
                return
            except GitError:
                if pause is None:
                    raise
                time.sleep(pause)
                for entry, tree in _entries(git):
                    is_half_made = not read_bytes(entry / "commondir")
                    if tree.parent.parent == path.parent.parent and is_half_made:
                        shutil.rmtree(entry, ignore_errors=True)

    def _clear_unused(self, git: Git, branch: str, path: Path) -> None:
        """A crash came between making the tree and writing that it was made: no agent has been in
        it. Ids do not come twice, so it can be nobody else's."""
        shutil.rmtree(path, ignore_errors=True)
        for entry, tree in _entries(git):
            if tree == path:  # also one that git calls locked: it was cut in the middle
                shutil.rmtree(entry, ignore_errors=True)
        if git.succeeds("rev-parse", "-q", "--verify", f"refs/heads/{branch}"):
            git.run("update-ref", "-d", f"refs/heads/{branch}")

    def _copy(self, directory: str, folder: Path) -> Worktree:
        size = _size_of(directory)
        if size > MAX_COPY:
            raise WorktreeError(
                f"{directory!r} holds more than {MAX_COPY / 1e9:.0f} GB, too much to copy for an "
                "agent: make it a git repository, or let the agent work in it with --here"
            )
        path = ensure_dir(folder) / "tree"
        shutil.rmtree(path, ignore_errors=True)  # half a copy: a crash cut it
        shutil.copytree(directory, path, symlinks=True)
        git_dir = str(folder / "began.git")
        self.at(str(path)).run("init", "-q", "--bare", git_dir)
        git = Git(str(path), self._environment, git_dir)
        git.run("config", "core.bare", "false")
        git.run("add", "-A")
        git.commit("as it began", "--allow-empty")
        base = git.line("rev-parse", "HEAD")
        return Worktree("copy", str(path), git_dir, origin=directory, base=base)

    # --- looking -----------------------------------------------------------------------------

    def diff(self, tree: Worktree) -> str:
        """What changed since the base, new files and uncommitted work included."""
        with self._all_staged(tree) as (git, index):
            text = git.run(*DIFF, tree.base, env=index)
        if len(text) > MAX_DIFF:
            return text[:MAX_DIFF] + f"\n[cut: the diff has {len(text)} characters]\n"
        return text

    def size(self, tree: Worktree) -> DiffSize:
        if not tree.base:
            return DiffSize()
        with self._all_staged(tree) as (git, index):
            rows = git.run(*DIFF, "--numstat", tree.base, env=index).splitlines()
        counts = [row.split("\t")[:2] for row in rows]
        return DiffSize(
            files=len(counts),
            added=sum(int(added) for added, _ in counts if added.isdigit()),
            removed=sum(int(removed) for _, removed in counts if removed.isdigit()),
        )

    def unsaved(self, tree: Worktree, merged: str = "") -> str:
        """What would be lost with the tree; empty: nothing. `merged`: its tip at the last merge."""
        if tree.kind == "shared":
            return ""
        if Path(tree.path).is_dir():
            git, names = self._in(tree), ["HEAD", f"refs/heads/{tree.branch}"]
            if _is_dirty(git):
                return "changes that are not committed"
        elif tree.kind == "worktree" and Path(tree.origin).is_dir():
            git, names = self.at(tree.origin), [f"refs/heads/{tree.branch}"]  # may be there
        else:
            return ""
        seen = [git.attempt("rev-parse", "-q", "--verify", f"{name}^{{commit}}") for name in names]
        tips = {done.stdout.decode().strip() for done in seen if done.returncode == 0}
        tips -= {tree.base, merged}
        if tips and tree.kind == "copy":
            return "changes that are not merged"
        others = ("--not", f"--exclude={tree.branch}", "--branches", "--remotes")
        if not tips or git.line("rev-list", "--count", *tips, *others) == "0":
            return ""
        return f"commits on {tree.branch} that are not merged"

    # --- keeping -----------------------------------------------------------------------------

    def commit(self, tree: Worktree, message: str) -> bool:
        """Commit what the agent left uncommitted; whether there was something."""
        if tree.kind == "shared":
            return False
        git = self._in(tree)
        if not _is_dirty(git):
            return False
        git.run("add", "-A")
        git.commit(message)
        return True

    def merge(self, tree: Worktree, message: str, *, squash: bool = False) -> tuple[str, str]:
        """Bring the work into the checkout it was made from; the tip that was merged, and the
        commit that came of it (of a copy: none).

        Tried without touching anything first: at a conflict it stops with nothing half-done.
        """
        if tree.kind == "shared":
            raise WorktreeError(f"the agent worked in {tree.path!r} itself: nothing is to merge")
        if _is_dirty(self._in(tree)):
            raise WorktreeError(f"{tree.path!r} has changes that are not committed: commit them")
        if tree.kind == "copy":
            return self._apply(tree), ""
        git = self.at(tree.origin)
        if git.run("status", "--porcelain", "--untracked-files=no").strip():
            raise WorktreeError(
                f"{tree.origin!r} has uncommitted changes: commit or stash them, then merge again"
            )
        tip = git.line("rev-parse", "--verify", f"refs/heads/{tree.branch}^{{commit}}")
        self._refuse_conflicts(git, tree, tip)
        if squash:
            git.run("merge", "-q", "--squash", tip)
            git.commit(message, "--allow-empty")
        else:
            git.run("merge", "-q", "--no-ff", "-m", message, tip, env=git.identity())
        return tip, git.line("rev-parse", "HEAD")

    def remove(self, tree: Worktree, merged: str = "") -> None:
        """Take the tree and its branch away. Raises WorktreeError when work would be lost."""
        if lost := self.unsaved(tree, merged):
            raise WorktreeError(f"{tree.path!r} has {lost}: merge it first{_by_hand(tree)}")
        if tree.kind == "shared":
            return
        if tree.kind == "copy":
            shutil.rmtree(tree.path, ignore_errors=True)
            shutil.rmtree(tree.git_dir, ignore_errors=True)
            return
        if not (Path(tree.origin).is_dir() or Path(tree.path).is_dir()):
            return  # the repository is gone, and all its branches with it
        git = self.at(tree.origin)
        if Path(tree.path).is_dir():
            git.run("worktree", "remove", tree.path)
        git.run("worktree", "prune")
        if git.succeeds("rev-parse", "-q", "--verify", f"refs/heads/{tree.branch}"):
            git.run("branch", "-q", "-D", tree.branch)

    # --- inside ------------------------------------------------------------------------------

    def at(self, directory: str) -> Git:
        """git in this directory, with nothing of the repository's running along."""
        return Git(directory, self._environment)

    def _in(self, tree: Worktree) -> Git:
        return Git(tree.path, self._environment, tree.git_dir)

    @contextmanager
    def _all_staged(self, tree: Worktree) -> Iterator[tuple[Git, dict[str, str]]]:
        """An index of its own with all of the tree: the agent's own index is not touched."""
        if not tree.base:
            raise WorktreeError(f"{tree.path!r} is not a git repository: nothing to compare with")
        git = self._in(tree)
        with tempfile.TemporaryDirectory(prefix="zot-index-") as folder:
            index = {"GIT_INDEX_FILE": str(Path(folder) / "index")}
            git.run("read-tree", "HEAD", env=index)
            git.run("add", "-A", env=index)
            yield git, index

    def _refuse_conflicts(self, git: Git, tree: Worktree, tip: str) -> None:
        done = git.attempt("merge-tree", "--write-tree", "--name-only", "-z", "@", tip)
        if done.returncode == 0:
            return
        if done.returncode != 1:
            said = done.stderr.decode(errors="replace").strip()[:500]
            raise WorktreeError(f"cannot merge {tree.branch} into {tree.origin!r}: {said}")
        # The id of a tree, the paths, and after an empty one notes for people.
        said = done.stdout.decode(errors="replace").split("\0\0", 1)[0]
        paths = tuple(dict.fromkeys(said.split("\0")[1:]))
        raise MergeConflict(
            f"{tree.branch} and the checkout both changed {', '.join(paths[:10])}; nothing was "
            f"merged. Do it by hand: git -C {tree.origin!r} merge {tree.branch}",
            paths,
        )

    def _apply(self, tree: Worktree) -> str:
        """Apply what changed in a copy to the directory it is of."""
        with self._all_staged(tree) as (git, index):
            said = git.run(*DIFF, "--binary", tree.base, env=index)
            patch = said.encode(errors="surrogateescape")
            tip = git.line("rev-parse", "HEAD")
        if not patch:
            return tip
        # The directory is in no repository, and git must not find one above it.
        above = str(Path(tree.origin).parent)
        git = Git(tree.origin, self._environment)
        outside = {"GIT_CEILING_DIRECTORIES": above}
        tried = git.attempt("apply", "--check", "--binary", "-", env=outside, given=patch)
        if tried.returncode:
            said = tried.stderr.decode(errors="replace").strip()[:1000]
            raise MergeConflict(
                f"{tree.origin!r} has changed since the agent began; nothing was merged: {said}", ()
            )
        git.run("apply", "--binary", "-", env=outside, given=patch)
        return tip


def _entries(git: Git) -> list[tuple[Path, Path]]:
    """What the repository keeps of each of its trees, and where that tree is."""
    common = Path(git.directory, git.line("rev-parse", "--git-common-dir")) / "worktrees"
    entries = []
    for entry in sorted(common.iterdir()) if common.is_dir() else ():
        link = read_bytes(entry / "gitdir")
        if link:
            entries.append((entry, Path(os.fsdecode(link.strip())).parent))
    return entries


def _is_dirty(git: Git) -> bool:
    return bool(git.run("status", "--porcelain", "--untracked-files=normal").strip())


def _size_of(directory: str) -> int:
    """Bytes below the directory, counted until there are too many."""
    total = 0
    for at, _, names in os.walk(directory):
        for name in names:
            total += (Path(at) / name).lstat().st_size
        if total > MAX_COPY:
            break
    return total


def _by_hand(tree: Worktree) -> str:
    """How to throw work away, which only a person does."""
    if tree.kind == "copy":
        return f", or throw its work away: rm -r {shlex.quote(tree.path)}"
    git = f"git -C {shlex.quote(tree.origin)}"
    return (
        f", or throw its work away: {git} worktree remove --force {shlex.quote(tree.path)} && "
        f"{git} branch -D {shlex.quote(tree.branch)}"
    )
