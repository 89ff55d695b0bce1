"""What the status line says of a runtime."""

from __future__ import annotations

from pathlib import Path

from zot.files import read_own
from zot.runtime.runtime import Runtime
from zot.serve.interactive.status import StatusFacts

MAX_HEAD = 1_000


def status_of(runtime: Runtime, approvals: str = "") -> StatusFacts:
    state = runtime.state()
    usage = state.usage
    read = usage.input + usage.cache_read + usage.cache_write
    return StatusFacts(
        provider=state.provider,
        model=state.model.id,
        reasoning=state.reasoning,
        context_tokens=state.context_tokens,
        context_window=state.model.context_window,
        input=read,
        output=usage.output,
        cache_share=usage.cache_read / read if read else 0.0,
        cost=usage.cost.total,
        cost_known=usage.cost_known,
        cwd=state.cwd,
        branch=branch_of(state.cwd),
        jail=state.jail,
        approvals=approvals,
        queued=state.queued,
        session=state.session_id,
    )


def branch_of(cwd: str) -> str:
    """The git branch that is checked out there; empty when there is none to be read."""
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
    """Of a file that a stranger may have made: never a pipe, never all of a huge one."""
    return read_own(path, None, MAX_HEAD).decode("utf-8")
