"""The repository at a worker: a copy that all its tasks share, a clone for each attempt, and the
work of an agent as bundles. What .gitignore names does not travel.
"""

from __future__ import annotations

import hashlib
import shutil
import threading
from collections.abc import Mapping
from pathlib import Path

from zot.files import ensure_dir
from zot.git import Git
from zot.swarm.snapshot import take_snapshot
from zot.swarm.temporal.remote import Claim
from zot.swarm.worktrees import Worktree

CHECKPOINT = "refs/zot/checkpoint"
MAX_HAVE = 64
"""Commits that are named to the hub as being here."""


class RepositoryCopy:
    """A bare repository with what tasks of one origin begin with."""

    def __init__(
        self, folder: Path, origin: str, source: str, environment: Mapping[str, str]
    ) -> None:
        name = hashlib.sha256(origin.encode()).hexdigest()[:16]
        self.path = folder / f"{name}.git"
        self._source = source
        self._environment = environment
        self._lock = threading.Lock()
        """git itself would refuse when two make it at once."""

    def prepare(self) -> None:
        with self._lock:
            if (self.path / "ready").exists():
                return
            shutil.rmtree(self.path, ignore_errors=True)
            ensure_dir(self.path)
            git = self._git()
            git.run("init", "-q", "--bare", "--template=", ".")
            if self._source:
                git.run("fetch", "-q", "--no-tags", self._source, "+refs/heads/*:refs/source/*")
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

    def clone(self, path: Path, claim: Claim) -> Worktree:
        """A checkout on the agent's branch, with its uncommitted work as it was."""
        git = self._git()
        git.run("clone", "-q", "--shared", "--no-checkout", "--template=", ".", str(path))
        inner = Git(str(path), self._environment)
        inner.run("remote", "remove", "origin")
        inner.run("checkout", "-q", "-B", claim.branch, claim.tip)
        if claim.is_checkpoint:
            inner.run("reset", "-q", "--mixed", f"{claim.tip}^")
        (path / claim.inside).mkdir(parents=True, exist_ok=True)
        return Worktree(
            "worktree",
            str(path),
            origin=str(path),
            inside=claim.inside,
            branch=claim.branch,
            base=claim.base,
        )

    def _git(self) -> Git:
        return Git(str(self.path), self._environment)


class CarriedWork:
    """What the agent has done, packed for the hub."""

    def __init__(self, tree: Worktree, tip: str, environment: Mapping[str, str]) -> None:
        self._git = Git(tree.path, environment)
        self._there = tip
        """The last commit that the hub has."""
        self._last = tuple(self._git.run("rev-parse", "HEAD", f"{tip}^{{tree}}").split())
        """Parent and tree of what the hub has, committed or as a checkpoint."""

    def checkpoint(self, bundle: Path) -> str:
        """Pack everything as it is now, uncommitted work included; empty: nothing is new."""
        tree = take_snapshot(self._git, reopen=True).tree
        head = self._git.line("rev-parse", "HEAD")
        if (head, tree) == self._last:
            return ""
        self._last = (head, tree)
        commit = self._git.commit_tree(tree, (head,), "zot: checkpoint")
        self._pack(commit, bundle)
        return commit

    def final(self, bundle: Path) -> str:
        """Pack what is committed; the file stays empty when the hub has it."""
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
