"""The repository on a worker: a copy shared by all its tasks, a clone per attempt, and the agent's
work as bundles. Files ignored by .gitignore are not sent."""

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
"""Maximum number of local commits listed to the hub."""


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
        """Make a checkout on the agent's branch, with its uncommitted work restored."""
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
