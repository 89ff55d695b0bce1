"""Merge the work of many agents at once, and kill merges at random moments: is anything lost?

    .venv/bin/python bench/merge_storm.py [--merges 200] [--at-once 8] [--kills 200] [--files 600]

Part one: every agent's work is merged, by several processes at once, into one checkout. Each must
be in it afterwards, and nothing else. Part two: a merge of many files is killed (the process that
merges, or that and its git), and whoever comes next has to find the old state or the new one, with
an uncommitted edit of the user's as it was. Prints a row for each part; exit code 1 if one failed.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable
from functools import partial
from pathlib import Path

from zot.swarm.checkout import JOURNAL
from zot.swarm.worktrees import Worktree, Worktrees

ENVIRONMENT = {"PATH": os.environ["PATH"], "HOME": "/nonexistent"}


def git(directory: Path, *words: str) -> str:
    who = ("-c", "user.name=t", "-c", "user.email=t@t", "-c", "init.defaultBranch=main")
    done = subprocess.run(
        ["git", *who, *words], cwd=directory, capture_output=True, text=True, check=True
    )
    return done.stdout.strip()


def repository(folder: Path, files: int) -> Path:
    path = folder / "repository"
    for number in range(files):
        file = path / f"d{number % 17}" / f"f{number}.txt"
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(f"{number}\n" * 200)
    (path / "users.txt").write_text("as committed\n")
    git(path, "init", "-q")
    git(path, "add", "-A")
    git(path, "commit", "-qm", "first")
    return path


def forked(work: Callable[[], object]) -> int:
    """Run it in a process group of its own; its id."""
    child = os.fork()
    if child:
        return child
    code = 1
    try:
        os.setsid()
        work()
        code = 0
    except BaseException as error:
        sys.stderr.write(f"{error}\n")
    finally:
        os._exit(code)


def kill(child: int, *, everything: bool) -> None:
    with contextlib.suppress(ProcessLookupError):  # it is no group yet
        if everything:
            os.killpg(child, signal.SIGKILL)
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)


def merges_at_once(folder: Path, merges: int, at_once: int, deadline: float) -> bool:
    path, trees = repository(folder, 50), Worktrees(ENVIRONMENT)
    made = []
    for number in range(merges):
        tree = trees.make(str(path), f"agent-{number}", folder / "agents" / str(number))
        (Path(tree.path) / f"new{number}.txt").write_text("work\n")
        (Path(tree.path) / f"d{number % 17}" / f"own{number}.txt").write_text("work\n")
        trees.commit(tree, f"work {number}")
        made.append(tree)
    begun = time.monotonic()
    running: set[int] = set()
    failed = 0
    waiting = list(made)
    while (waiting or running) and time.monotonic() < deadline:
        while waiting and len(running) < at_once:
            tree = waiting.pop()
            running.add(forked(partial(trees.merge, tree, "Merge", squash=len(waiting) % 2 == 0)))
        pid, status = os.wait()
        running.discard(pid)
        failed += status != 0
    lost = [tree for number, tree in enumerate(made) if not (path / f"new{number}.txt").exists()]
    state = git(path, "status", "--porcelain")
    commits = git(path, "rev-list", "--count", "HEAD")
    seconds = time.monotonic() - begun
    print(
        f"{merges} merges, {at_once} at once: {failed} failed, {len(lost)} lost, "
        f"{commits} commits, status {state[:200]!r}, {seconds:.0f} s"
    )
    return not (failed or lost or state or waiting)


def busy_agent(folder: Path, path: Path, files: int) -> tuple[Worktrees, Worktree]:
    """An agent that changed, added and deleted files, and made a directory of one and a file of
    another."""
    trees = Worktrees(ENVIRONMENT)
    tree = trees.make(str(path), "busy", folder / "agents" / "busy")
    root = Path(tree.path)
    for number in range(files):
        file = root / f"d{number % 17}" / f"f{number}.txt"
        if number % 10 == 0:
            file.unlink()
        elif number % 10 == 1:
            file.with_suffix(".new").write_text("added\n" * 300)
        else:
            file.write_text(f"changed {number}\n" * 300)
    shutil.rmtree(root / "d3")
    (root / "d3").write_text("a file now\n")
    (root / "d4" / "f4.txt").unlink()
    (root / "d4" / "f4.txt").mkdir()
    (root / "d4" / "f4.txt" / "inside").write_text("a directory now\n")
    (root / "d5" / "f5.txt").unlink()
    (root / "d5" / "f5.txt").symlink_to("../users.txt")
    trees.commit(tree, "work")
    return trees, tree


def kills(folder: Path, count: int, files: int, deadline: float, seed: int) -> bool:
    path = repository(folder, files)
    trees, tree = busy_agent(folder, path, files)
    old = git(path, "rev-parse", "HEAD")
    dice = random.Random(seed)
    begun = time.monotonic()
    os.waitpid(forked(lambda: trees.merge(tree, "Merge")), 0)
    length = time.monotonic() - begun
    git(path, "reset", "-q", "--hard", old)
    results: Counter[str] = Counter()
    for number in range(count):
        if time.monotonic() > deadline:
            break
        (path / "users.txt").write_text("edited\n")
        child = forked(partial(trees.merge, tree, "Merge", squash=number % 2 == 0))
        time.sleep(dice.uniform(0.0, length * 1.1))
        everything = dice.random() < 0.7
        kill(child, everything=everything)
        results["in the middle"] += (path / ".git" / JOURNAL).exists()
        if dice.random() < 0.3:  # the repair is killed, too
            child = forked(partial(trees.settle, tree))
            time.sleep(dice.uniform(0.0, length * 0.5))
            kill(child, everything=True)
        trees.settle(tree)
        results[state_of(path, old)] += 1
        git(path, "reset", "-q", "--hard", old)
        git(path, "clean", "-qfd")
    leftovers = sorted(p.name for p in (path / ".git").glob("zot-*")) + sorted(
        p.name for p in (path / ".git").rglob("*.lock") if p.name != "zot.lock"
    )
    middle = results.pop("in the middle")
    print(f"{count} kills, {middle} in the middle: {dict(results)}, left {leftovers}")
    return results["old"] + results["new"] == count and not leftovers


def state_of(path: Path, old: str) -> str:
    """old or new; otherwise what is wrong."""
    status = git(path, "status", "--porcelain")
    if status.strip() != "M users.txt" or (path / "users.txt").read_text() != "edited\n":
        return f"wrong: {status[:300]}"
    if git(path, "rev-parse", "HEAD") == old:
        return "old"
    merged = git(path, "rev-parse", "HEAD^1")
    return "new" if merged == old else "wrong: HEAD"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--merges", type=int, default=200)
    parser.add_argument("--at-once", type=int, default=8)
    parser.add_argument("--kills", type=int, default=200)
    parser.add_argument("--files", type=int, default=600)
    parser.add_argument("--seconds", type=float, default=900.0)
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    deadline = time.monotonic() + options.seconds
    good = True
    for part in ("merges", "kills"):
        folder = Path(tempfile.mkdtemp(prefix="merge-storm-"))
        try:
            if part == "merges":
                good &= merges_at_once(folder, options.merges, options.at_once, deadline)
            else:
                good &= kills(folder, options.kills, options.files, deadline, options.seed)
        finally:
            shutil.rmtree(folder, ignore_errors=True)
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
