"""Facts of a runtime for the status line."""

from __future__ import annotations

from pathlib import Path

from zot.files import read_own
from zot.runtime.runtime import Runtime
from zot.serve.interactive.status import StatusFacts

MAX_HEAD = 1_000


def status_of(runtime: Runtime, approvals: str) -> StatusFacts:
    state = runtime.state()
    return StatusFacts(state, branch_of(state.cwd), approvals)


def branch_of(cwd: str) -> str:
    """Return the git branch checked out there; empty if none can be read."""
    for folder in (Path(cwd), *Path(cwd).parents):
        place = folder / ".git"
        try:
            if not place.is_dir():  # a worktree: the file names its folder
                place = folder / _line(place).removeprefix("gitdir:").strip()
            head = _line(place / "HEAD")
        except (OSError, ValueError):
            continue
        return head.strip().removeprefix("ref: refs/heads/")[:60]
    return ""


def _line(path: Path) -> str:
    """Read the start of a possibly hostile file: no pipes, at most MAX_HEAD bytes."""
    return read_own(path, None, MAX_HEAD).decode("utf-8")
