"""The work of a remote agent on both machines: packed as bundles on its worker, stored in the local
repository. Files ignored by .gitignore are not sent.

A final commit gets its own ref before anything else changes: from then on it is safe. A process
killed later leaves that ref, and the next access to the work completes the rest.
"""

from __future__ import annotations

import hashlib
import shutil
import threading
import time
from collections.abc import Mapping
from pathlib import Path

from zot.files import ensure_dir
from zot.git import MAX_DIFF, Git, GitError, allow
from zot.swarm.checkout import remove_stale_lock
from zot.swarm.snapshot import commit_of, take_snapshot
from zot.swarm.task import SwarmError
from zot.swarm.worktrees import DIFF, TreeOrigin, Worktree, Worktrees

CHECKPOINT = "refs/zot/checkpoint"
MAX_HAVE = 64
"""Maximum number of local commits listed to the hub."""
CHECKOUT_PAUSES = (0.2, 0.5, 1.0, 2.0, 4.0, 8.0, 8.0, None)
"""Seconds before each retry of a checkout; None: no more retries."""
NOTHING = "0" * 40
_FETCH = ("fetch", "-q", "--no-tags")
_CLONE = ("clone", "-q", "--shared", "--no-checkout", "--template=")
_PROTOCOLS = ("file", "git", "http", "https", "ssh")
"""Protocols of the address that the worker's owner may name."""


# --- on the worker ------------------------------------------------------------------------------


class RepositoryCopy:
    """A bare repository with the start commits of all tasks of one origin."""

    def __init__(
        self, folder: Path, origin: str, source: str, environment: Mapping[str, str]
    ) -> None:
        name = hashlib.sha256(origin.encode()).hexdigest()[:16]
        self.path = folder / f"{name}.git"
        self._source = source
        self._environment = environment
        self._lock = threading.Lock()
        """Held while the repository is made: git refuses to do that twice at once."""

    def prepare(self) -> None:
        with self._lock:
            if (self.path / "ready").exists():
                return
            shutil.rmtree(self.path, ignore_errors=True)
            ensure_dir(self.path)
            git = self._git()
            git.run("init", "-q", "--bare", "--template=", ".")
            if self._source:
                refs = "+refs/heads/*:refs/source/*"
                git.run(*_FETCH, self._source, refs, env=allow(*_PROTOCOLS))
            (self.path / "ready").touch()

    def have(self) -> list[str]:
        words = ("--sort=-committerdate", f"--count={MAX_HAVE}", "--format=%(objectname)")
        return sorted(set(self._git().run("for-each-ref", *words).split()))

    def has(self, commit: str) -> bool:
        return self._git().succeeds("cat-file", "-e", f"{commit}^{{commit}}")

    def take(self, bundle: Path, id: str, tip: str) -> None:
        git = self._git()
        git.run("bundle", "unbundle", str(bundle))
        git.run("update-ref", f"refs/tasks/{id}", tip)

    def clone(self, path: Path, start: TreeOrigin, tip: str, *, is_checkpoint: bool) -> Worktree:
        """Make a checkout of the tip on the agent's branch. A checkpoint holds uncommitted work on
        top of its parent, which is uncommitted again."""
        self._git().run(*_CLONE, ".", str(path), env=allow("file"))
        inner = Git(str(path), self._environment)
        inner.run("remote", "remove", "origin")
        inner.run("checkout", "-q", "-B", start.branch, tip)
        if is_checkpoint:
            inner.run("reset", "-q", "--mixed", f"{tip}^")
        (path / start.inside).mkdir(parents=True, exist_ok=True)
        return Worktree(
            "worktree",
            str(path),
            origin=str(path),
            inside=start.inside,
            branch=start.branch,
            base=start.base,
        )

    def _git(self) -> Git:
        return Git(str(self.path), self._environment)


class CarriedWork:
    """Packs the agent's work for the hub."""

    def __init__(self, tree: Worktree, tip: str, environment: Mapping[str, str]) -> None:
        self._git = Git(tree.path, environment)
        self._there = tip
        """The last commit that the hub has."""
        self._last = tuple(self._git.run("rev-parse", "HEAD", f"{tip}^{{tree}}").split())
        """Parent and tree of the last state sent, committed or as a checkpoint."""

    def checkpoint(self, bundle: Path) -> str:
        """Pack everything, uncommitted work included; return the commit, or empty if unchanged."""
        tree = take_snapshot(self._git, reopen=True).tree
        head = self._git.line("rev-parse", "HEAD")
        if (head, tree) == self._last:
            return ""
        self._last = (head, tree)
        commit = self._git.commit_tree(tree, (head,), "zot: checkpoint")
        self._pack(commit, bundle)
        return commit

    def final(self, bundle: Path) -> str:
        """Pack the committed work and return its commit; the file stays empty if the hub has it."""
        commit = self._git.line("rev-parse", "HEAD")
        if self._git.line("rev-list", "--count", commit, f"^{self._there}") == "0":
            bundle.write_bytes(b"")
        else:
            self._pack(commit, bundle)
        return commit

    def _pack(self, commit: str, bundle: Path) -> None:
        self._git.run("update-ref", CHECKPOINT, commit)
        self._git.run("bundle", "create", "-q", str(bundle), CHECKPOINT, f"^{self._there}")

    def arrived(self, commit: str) -> None:
        self._there = commit


# --- on the supervisor's machine -----------------------------------------------------------------


class StoredWork:
    """Stored work of one agent. Methods block, and must not run concurrently."""

    def __init__(self, trees: Worktrees, id: str) -> None:
        self._trees = trees
        self._checkpoint = f"refs/zot/{id}"
        self._final = f"refs/zot-final/{id}"

    def tip(self, tree: Worktree) -> tuple[str, bool]:
        """Return the commit where the next attempt begins, and whether it is a checkpoint."""
        git = self._finished(tree)
        if commit := commit_of(git, self._checkpoint):
            return commit, True
        self._trees.commit(tree, "zot: edited by hand between two runs")
        return git.line("rev-parse", "HEAD"), False

    def bundle(self, tree: Worktree, have: list[str]) -> bytes:
        """Pack the commits of the tip that the worker lacks; empty: none."""
        tip, is_checkpoint = self.tip(tree)
        git = self._trees.at(tree.path)
        known = [f"^{commit}" for commit in have if commit_of(git, commit)]
        if git.line("rev-list", "--count", tip, *known) == "0":
            return b""
        ref = self._checkpoint if is_checkpoint else f"refs/heads/{tree.branch}"
        done = git.attempt("bundle", "create", "-q", "-", ref, *known)
        if done.returncode:
            said = done.stderr.decode(errors="replace").strip()[:500]
            raise SwarmError(f"cannot pack {ref} for a worker: {said}")
        return done.stdout

    def diff(self, tree: Worktree) -> str | None:
        """Return the diff of the last checkpoint; None: there is none, the tree has everything."""
        git = self._finished(tree)
        commit = commit_of(git, self._checkpoint)
        if not commit:
            return None
        return git.run(*DIFF, "-p", tree.base, commit)[:MAX_DIFF]

    def take_checkpoint(self, tree: Worktree, commit: str, bundle: bytes) -> None:
        git = self._take_objects(tree, commit, bundle)
        self._name(git, self._checkpoint, commit)

    def take_final(self, tree: Worktree, commit: str, bundle: bytes) -> None:
        """Store the final commit of the branch. Storing it again changes nothing."""
        self._store_final(tree, self._take_objects(tree, commit, bundle), commit)

    def settle(self, tree: Worktree, message: str) -> None:
        """Put the last checkpoint on the branch: no worker will deliver more."""
        git = self._finished(tree)
        commit = commit_of(git, self._checkpoint)
        if not commit:
            return
        parent = git.line("rev-parse", f"{commit}^")
        if git.line("rev-parse", f"{parent}^{{tree}}") == git.line(
            "rev-parse", f"{commit}^{{tree}}"
        ):
            final = parent
        else:
            words = ("commit-tree", f"{commit}^{{tree}}", "-p", parent, "-m", message)
            final = _synced(git, *words).strip()
        self._store_final(tree, git, final)

    # --- helpers -----------------------------------------------------------------------------

    def _take_objects(self, tree: Worktree, commit: str, bundle: bytes) -> Git:
        git = self._trees.at(tree.path)
        if bundle:
            _unpack(git, bundle)
        if not git.succeeds("merge-base", "--is-ancestor", tree.base, commit):
            raise SwarmError(
                f"{commit[:12]} is not based on the commit that the agent started from"
            )
        git.run("rev-list", "--objects", "--quiet", commit, f"^{tree.base}")  # none is missing
        return git

    def _store_final(self, tree: Worktree, git: Git, commit: str) -> None:
        is_there = git.line("rev-parse", "HEAD") == commit
        if not is_there and commit_of(git, self._final) != commit:
            self._set_aside_edits(git, tree)
        self._name(git, self._final, commit)
        self._finished(tree)

    def _finished(self, tree: Worktree) -> Git:
        """Return git for the tree, after checking out a final commit that only had its ref."""
        git = self._trees.at(tree.path)
        if commit := commit_of(git, self._final):
            if git.line("rev-parse", "HEAD") != commit:
                _check_out(git, commit)
            for ref in (self._checkpoint, self._final):
                git.run("update-ref", "-d", ref)
        return git

    def _name(self, git: Git, ref: str, commit: str) -> None:
        """Set a ref, unless another process changed it meanwhile."""
        _synced(git, "update-ref", ref, commit, commit_of(git, ref) or NOTHING[: len(commit)])

    def _set_aside_edits(self, git: Git, tree: Worktree) -> None:
        """Save edits made by hand in the local tree on a branch of their own."""
        now = take_snapshot(git, reopen=True).tree
        if now != git.line("rev-parse", "HEAD^{tree}"):
            head = git.line("rev-parse", "HEAD")
            edits = git.commit_tree(now, (head,), "zot: edited by hand during a run")
            git.run("update-ref", f"refs/heads/{tree.branch}-edits", edits)
            git.run("read-tree", now)  # so that the reset removes new files


def _synced(git: Git, *words: str) -> str:
    """Run git with fsync, so that its files are on disk when it returns."""
    return git.run("-c", "core.fsync=all", *words, env=git.identity())


def _check_out(git: Git, commit: str) -> None:
    """Reset the tree, with retries: the lock of a killed git is removed once it is old enough."""
    for pause in CHECKOUT_PAUSES:
        try:
            git.run("reset", "-q", "--hard", commit)
            return
        except GitError:
            if pause is None:
                raise
            time.sleep(pause)
            remove_stale_lock(git)


def _unpack(git: Git, bundle: bytes) -> None:
    """Import the objects of a bundle. Not `git bundle unbundle`: it also reads the repository's
    other worktrees, and fails while one of them is being made."""
    _, blank, pack = bundle.partition(b"\n\n")
    if not blank:
        raise SwarmError("what the worker sent is not a bundle")
    git.run("index-pack", "--stdin", "--fix-thin", stdin=pack)
