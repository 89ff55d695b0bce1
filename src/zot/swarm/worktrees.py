"""The directory that one agent works in: a worktree on its own branch, a copy of a directory that
is no repository, or (on request) the directory itself. Only a person discards work done there."""

from __future__ import annotations

import os
import shlex
import shutil
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Literal

import msgspec
from msgspec import Struct

from zot.files import ensure_dir, read_bytes
from zot.git import MAX_DIFF, Git, GitError, allow, top_level, wall_around
from zot.swarm.checkout import (
    Checkout,
    MergeConflict,
    Move,
    WorktreeError,
    changing,
    remove_stale_lock,
)
from zot.swarm.snapshot import TreeSnapshot, commit_of, reopen_all, take_snapshot

BRANCHES = "zot"
"""Prefix of the agents' branches, zot/ID."""
OF_ONE_CHECKOUT = ("refs/worktree/", "refs/bisect/", "refs/rewritten/")
"""Refs that git keeps for each checkout, and removes with it."""
MAX_COPY = 2 * 1024 * 1024 * 1024
"""Maximum size of a directory that is copied for an agent, in bytes."""
DIFF = ("diff-tree", "-r", "-M", "--no-ext-diff", "--no-textconv", "--ignore-submodules=none")
"""Command that compares two trees: a submodule shows as a line with its commit, unread."""
ADD_PAUSES = (0.2, 0.5, 1.0, 2.0, None)
"""Seconds before each retry of `git worktree add`; None: no more retries."""


class TreeOrigin(Struct, frozen=True, kw_only=True):
    """The source of an agent's tree, and the base its work is compared with."""

    origin: str
    """The checkout or directory it was made from."""
    inside: str = ""
    """Relative path of the task's directory in it."""
    branch: str = ""
    base: str = ""
    """The commit it began with."""


class Worktree(TreeOrigin, frozen=True):
    """The directory an agent works in."""

    kind: Literal["worktree", "copy", "shared"]
    path: str
    git_dir: str = ""
    """For a copy: repository with its original state, outside of the tree, hidden from the
    agent."""
    jailed: bool = False
    """Whether its agent is jailed; git then works in it behind a wall, too."""

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
        self._walls: dict[str, Sequence[str]] = {}
        """Walls of the trees of jailed agents, by path."""

    # --- making ------------------------------------------------------------------------------

    def make(
        self,
        directory: str,
        id: str,
        folder: Path,
        *,
        base: str = "",
        shared: bool = False,
        jailed: bool = False,
    ) -> Worktree:
        """Make a tree for agent `id` below `folder`; with `shared` use the directory itself."""
        tree = self._made(directory, id, folder, base, shared)
        return msgspec.structs.replace(tree, jailed=jailed)

    def _made(self, directory: str, id: str, folder: Path, base: str, shared: bool) -> Worktree:
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
        start = self._start(origin, directory, base)
        branch = f"{BRANCHES}/{id}"
        path = Path(os.path.realpath(ensure_dir(folder))) / "tree"
        with changing(origin, self._environment) as git:
            self._add(git, branch, path, start)
        inside = os.path.relpath(directory, origin)
        inside = "" if inside == os.curdir else inside
        (path / inside).mkdir(parents=True, exist_ok=True)  # may be new and not committed
        return Worktree(
            "worktree", str(path), origin=origin, inside=inside, branch=branch, base=start
        )

    def check_base(self, directory: str, base: str) -> None:
        """Raise WorktreeError if a tree cannot begin with this branch or commit."""
        self._start(top_level(directory, self._environment), directory, base)

    def _has_commits(self, origin: str) -> bool:
        return bool(origin) and bool(commit_of(self.at(origin), "@"))

    def _start(self, origin: str, directory: str, base: str) -> str:
        """Return the commit to begin with. Raises WorktreeError."""
        if not self._has_commits(origin):
            raise WorktreeError(f"{directory!r} has no commits to begin with, so no {base!r}")
        words = ("rev-parse", "--verify", "--end-of-options", f"{base or '@'}^{{commit}}")
        try:
            return self.at(origin).line(*words)
        except GitError as error:
            raise WorktreeError(f"{origin!r} has no branch or commit {base!r}") from error

    def _add(self, git: Git, branch: str, path: Path, start: str) -> None:
        """Add a worktree, with retries: git fails while another worktree of the repository is
        half-made, by the user's git or by one that was killed."""
        for pause in ADD_PAUSES:
            if commit_of(git, f"refs/heads/{branch}") or path.exists():
                self._clear_unused(git, branch, path)
            try:
                words = ("-q", "--no-checkout", "-b", branch, str(path), start)
                git.run("worktree", "add", *words)
                # By itself: other parts of the configuration may apply to the agent's branch.
                git.at(path).run("reset", "-q", "--hard")
                return
            except GitError:
                if pause is None:
                    self._clear_unused(git, branch, path)
                    raise
                time.sleep(pause)
                for entry, tree in _entries(git):
                    is_half_made = not read_bytes(entry / "commondir")
                    if tree.parent.parent == path.parent.parent and is_half_made:
                        shutil.rmtree(entry, ignore_errors=True)

    def _clear_unused(self, git: Git, branch: str, path: Path) -> None:
        """Remove a tree that was made before a crash but not logged: no agent has used it. Ids are
        unique, so it belongs to no other agent."""
        shutil.rmtree(path, ignore_errors=True)
        for entry, tree in _entries(git):
            if tree == path:  # also if git calls it locked: adding it was interrupted
                shutil.rmtree(entry, ignore_errors=True)
        if commit_of(git, f"refs/heads/{branch}"):
            git.run("update-ref", "-d", f"refs/heads/{branch}")

    def _copy(self, directory: str, folder: Path) -> Worktree:
        size = _size_of(directory)
        if size > MAX_COPY:
            raise WorktreeError(
                f"{directory!r} holds more than {MAX_COPY / 1e9:.0f} GB, too much to copy for an "
                "agent: make it a git repository, or let the agent work in it with --here"
            )
        path = ensure_dir(folder) / "tree"
        shutil.rmtree(path, ignore_errors=True)  # incomplete copy, left by a crash
        shutil.copytree(directory, path, symlinks=True)
        git_dir = str(folder / "began.git")
        self.at(str(path)).run("init", "-q", "--bare", git_dir)
        git = Git(str(path), self._environment, git_dir)
        git.run("config", "core.bare", "false")
        base = git.commit_tree(take_snapshot(git, reopen=True).tree, (), "as it began")
        git.run("update-ref", "HEAD", base)
        git.run("read-tree", base)
        return Worktree("copy", str(path), git_dir, origin=directory, base=base)

    # --- comparing ---------------------------------------------------------------------------

    def diff(self, tree: Worktree) -> str:
        """Return the diff against the base, including new files and uncommitted work."""
        now = self._snapshot(tree)
        text = self._in(tree).run(*DIFF, "-p", tree.base, now.tree)
        if len(text) > MAX_DIFF:
            text = text[:MAX_DIFF] + f"\n[cut: the diff has {len(text)} characters]\n"
        notes = (f"[left out: {note}]\n" for note in now.left_out)
        return text + "".join(notes)

    def size(self, tree: Worktree) -> DiffSize:
        if not tree.base:
            return DiffSize()
        now = self._snapshot(tree)
        rows = self._in(tree).run(*DIFF, "--numstat", tree.base, now.tree).splitlines()
        counts = [row.split("\t")[:2] for row in rows]
        return DiffSize(
            files=len(counts),
            added=sum(int(added) for added, _ in counts if added.isdigit()),
            removed=sum(int(removed) for _, removed in counts if removed.isdigit()),
        )

    def unsaved(self, tree: Worktree, merged: str = "", commit: str = "") -> str:
        """Say which work would be lost with the tree; empty: none. `merged`: its tip at the last
        merge, `commit`: the commit of that merge."""
        if tree.kind == "shared":
            return ""
        if Path(tree.path).is_dir():
            git, names = self._in(tree), ["HEAD", f"refs/heads/{tree.branch}"]
            now = self._snapshot(tree)
            if now.tree != git.line("rev-parse", "HEAD^{tree}"):
                return "changes that are not committed"
            if now.left_out:
                return f"something that zot does not keep ({now.left_out[0]})"
        elif tree.kind == "worktree" and Path(tree.origin).is_dir():
            git, names = self.at(tree.origin), [f"refs/heads/{tree.branch}"]  # may still exist
        else:
            return ""
        tips = {commit_of(git, name) for name in names} - {""}
        if tree.kind == "copy":
            return "changes that are not merged" if tips - {tree.base, merged} else ""
        for tip in tips:
            holders = (tip, commit) if tip == merged and commit else (tip,)
            is_base = git.succeeds("merge-base", "--is-ancestor", tip, tree.base)
            if not is_base and not any(is_in_users_hands(git, held, tree.path) for held in holders):
                return f"commits on {tree.branch} that are not merged"
        return ""

    # --- committing, merging, removing -------------------------------------------------------

    def commit(self, tree: Worktree, message: str) -> bool:
        """Commit the agent's uncommitted work; return whether there was any."""
        if tree.kind == "shared":
            return False
        git, now = self._in(tree), self._snapshot(tree)
        head = git.line("rev-parse", "HEAD")
        if now.tree == git.line("rev-parse", "HEAD^{tree}"):
            return False
        others = (read_bytes(git.git_dir / "MERGE_HEAD") or b"").decode().split()
        commit = git.commit_tree(now.tree, (head, *others), message)
        remove_stale_lock(git)
        git.run("read-tree", "--reset", now.tree)  # first: a crash leaves everything staged
        git.run("update-ref", "-m", "commit (zot)", "HEAD", commit, head)
        git.run("reset", "-q")  # ends a merge that the agent began
        return True

    def merge(self, tree: Worktree, message: str, *, squash: bool = False) -> tuple[str, str]:
        """Merge the work into the checkout it was made from; return the merged tip and the
        resulting commit (empty for a copy).

        A conflict or a crash leaves nothing half-done.
        """
        if tree.kind == "shared":
            raise WorktreeError(f"the agent worked in {tree.path!r} itself: nothing is to merge")
        git = self._in(tree)
        if self._snapshot(tree).tree != git.line("rev-parse", "HEAD^{tree}"):
            raise WorktreeError(f"{tree.path!r} has changes that are not committed: commit them")
        if tree.kind == "copy":
            return self._merge_copy(tree, message), ""
        with changing(tree.origin, self._environment) as git:
            return Checkout(git).merge(tree.branch, message, squash=squash)

    def resume(self, tree: Worktree) -> None:
        """Prepare the tree of an agent whose processes were killed for its next process."""
        if tree.kind == "worktree":
            remove_stale_lock(self._in(tree))

    def settle(self, tree: Worktree) -> Move | None:
        """Finish or undo an interrupted merge into this tree's origin; return it if it happened."""
        if tree.kind == "shared" or not Path(tree.origin).is_dir():
            return None
        origin = _origin_of_copy(tree) if tree.kind == "copy" else ""
        if origin and not Path(origin).is_dir():
            return None
        with changing(tree.origin, self._environment, origin) as git:
            return Checkout(git).settle()

    def remove(self, tree: Worktree, merged: str = "", commit: str = "") -> None:
        """Remove the tree and its branch. Raises WorktreeError when work would be lost."""
        if lost := self.unsaved(tree, merged, commit):
            raise WorktreeError(f"{tree.path!r} has {lost}: merge or save it first{_by_hand(tree)}")
        if tree.kind == "shared":
            return
        if tree.kind == "copy":
            reopen_all(tree.path)
            shutil.rmtree(tree.path, ignore_errors=True)
            shutil.rmtree(tree.git_dir, ignore_errors=True)
            return
        if not (Path(tree.origin).is_dir() or Path(tree.path).is_dir()):
            return  # the repository is gone with all its branches
        with changing(tree.origin, self._environment) as git:
            if Path(tree.path).is_dir():
                reopen_all(tree.path)
                # Forced: otherwise git itself looks for changes, also in nested repositories.
                git.run("worktree", "remove", "--force", tree.path)
            git.run("worktree", "prune")
            if commit_of(git, f"refs/heads/{tree.branch}"):
                git.run("branch", "-q", "-D", tree.branch)

    # --- helpers -----------------------------------------------------------------------------

    def at(self, directory: str) -> Git:
        """Return git for this directory, with the repository's hooks and filters disabled."""
        return Git(directory, self._environment)

    def _in(self, tree: Worktree) -> Git:
        wall = self._wall_of(tree) if tree.jailed and tree.kind != "shared" else ()
        return Git(tree.path, self._environment, tree.git_dir, wall=wall)

    def _wall_of(self, tree: Worktree) -> Sequence[str]:
        """Return the wall of a jailed agent's tree: git writes there and in the repository, but not
        what decides which programs git runs."""
        if tree.path not in self._walls:
            common = Path(tree.git_dir) if tree.git_dir else self.at(tree.origin).common_dir
            protected = [str(common / name) for name in ("hooks", "config", "config.worktree")]
            writable = (tree.path, str(common))
            self._walls[tree.path] = wall_around(self._environment, writable, protected)
        return self._walls[tree.path]

    def _snapshot(self, tree: Worktree) -> TreeSnapshot:
        if not tree.base:
            raise WorktreeError(f"{tree.path!r} is not a git repository: nothing to compare with")
        if tree.kind == "shared":
            return take_snapshot(self.at(tree.origin), reopen=False)
        return take_snapshot(self._in(tree), reopen=True)

    def _merge_copy(self, tree: Worktree, message: str) -> str:
        """Merge the changes of a copy into its original directory, as between two branches: the
        copy's first state is the base, the directory's current state the other side."""
        git_dir = _origin_of_copy(tree)
        with changing(tree.origin, self._environment, git_dir) as git:
            if Path(git_dir).is_dir():
                Checkout(git).settle()
                shutil.rmtree(git_dir)
            words = ("clone", "-q", "--bare", "--shared", tree.git_dir, git_dir)
            self.at(str(Path(tree.git_dir).parent)).run(*words, env=allow("file"))
            git.run("config", "core.bare", "false")
            branch = git.line("symbolic-ref", "--short", "HEAD")
            git.run("read-tree", "--empty")
            now = take_snapshot(git, reopen=False)
            ours = git.commit_tree(now.tree, (tree.base,), "as it is now")
            git.run("update-ref", "--no-deref", "HEAD", ours)
            git.run("read-tree", ours)
            try:
                tip, _ = Checkout(git).merge(branch, message, squash=False)
            except MergeConflict as error:
                raise MergeConflict(
                    f"{tree.origin!r} has changed since the agent began, in the same places: "
                    f"{', '.join(error.paths[:10])}; nothing was merged",
                    error.paths,
                ) from error
            shutil.rmtree(git_dir)
            return tip


def _origin_of_copy(tree: Worktree) -> str:
    """Return the path of the temporary repository that merges a copy into its original."""
    return str(Path(tree.git_dir).with_name("merge.git"))


def _entries(git: Git) -> list[tuple[Path, Path]]:
    """Return the administrative folder and the path of each worktree of the repository."""
    common = Path(git.directory, git.line("rev-parse", "--git-common-dir")) / "worktrees"
    entries = []
    for entry in sorted(common.iterdir()) if common.is_dir() else ():
        link = read_bytes(entry / "gitdir")
        if link:
            entries.append((entry, Path(os.fsdecode(link.strip())).parent))
    return entries


def _size_of(directory: str) -> int:
    """Return the bytes below the directory; counting stops above MAX_COPY."""
    total = 0
    for at, _, names in os.walk(directory):
        for name in names:
            total += (Path(at) / name).lstat().st_size
        if total > MAX_COPY:
            break
    return total


def _by_hand(tree: Worktree) -> str:
    """Return the hint how to discard the work; only a person does that."""
    if tree.kind == "copy":
        return f", or throw its work away: rm -r {shlex.quote(tree.path)}"
    git = f"git -C {shlex.quote(tree.origin)}"
    return (
        f", or throw its work away: {git} worktree remove --force {shlex.quote(tree.path)} && "
        f"{git} branch -D {shlex.quote(tree.branch)}"
    )


def is_in_users_hands(git: Git, commit: str, own_tree: str) -> bool:
    """Whether a ref of the user contains the commit: a branch, a tag, a remote branch, or HEAD of a
    checkout that is there. Branches of agents, the agent's own tree and the refs of it alone do not
    count: they get removed."""
    words = ("for-each-ref", f"--contains={commit}", "--format=%(refname)")
    if not all(_is_an_agents(name) for name in git.run(*words).splitlines()):
        return True
    return any(
        git.succeeds("merge-base", "--is-ancestor", commit, head)
        for path, head, branch in _checkouts(git)
        if head and os.path.realpath(path) != own_tree and not _is_an_agents(branch)
    )


def _is_an_agents(ref: str) -> bool:
    return ref.startswith((f"refs/heads/{BRANCHES}/", "refs/zot/", *OF_ONE_CHECKOUT))


def _checkouts(git: Git) -> Iterator[tuple[str, str, str]]:
    """Yield directory, commit and branch of each checkout; a bare repository has no commit, and a
    detached HEAD no branch."""
    for block in git.run("worktree", "list", "--porcelain", "-z").split("\0\0"):
        rows = [row.partition(" ") for row in block.split("\0")]
        about = {name: value for name, _, value in rows}
        if "prunable" in about:
            continue  # its directory is gone
        head = about.get("HEAD", "").strip("0")
        yield about.get("worktree", ""), head and about["HEAD"], about.get("branch", "")
