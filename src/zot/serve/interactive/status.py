"""The status line: facts about the agent, in parts that the user's settings choose."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from msgspec import Struct

from zot.errors import ConfigError
from zot.files import read_own
from zot.provider.model import clamped
from zot.tui.cells import Line, Span, cells, clean, clip, line_cells

if TYPE_CHECKING:
    from zot.core.hook import ApprovalMode
    from zot.runtime.runtime import Runtime, State

RIGHT, OFF = "right", "off"
NEVER_ASKS = "off"
DEFAULT_PARTS = (
    *("mode", "model", "context", "cost", "jail", "commands", "queue", "tokens", "cache"),
    *(RIGHT, "cwd", "branch"),
)
MODES: dict[ApprovalMode, tuple[str, str]] = {
    "ask": ("ask", "mode.ask"),
    "edits": ("accept edits", "mode.edits"),
    "plan": ("plan", "mode.plan"),
    "yolo": ("auto", "mode.auto"),
    "ask_all": ("ask always", "mode.ask"),
}
"""Name and style of each mode."""
MAX_HEAD = 1_000
"""Maximum bytes read of git's HEAD."""


class StatusFacts(Struct, frozen=True):
    """Facts that the line can show; empty and zero values are left out."""

    state: State
    branch: str
    """Branch checked out in the working directory."""
    approvals: str
    """on, or the tools that need approval."""
    jail: str = ""
    """The jail in a word or two."""
    commands: int = 0
    """Number of commands that run in the background."""


class StatusLine:
    """The last line of the screen. It is drawn again only when its facts have changed."""

    def __init__(self) -> None:
        self.parts: tuple[str, ...] = DEFAULT_PARTS
        self.approvals = ""
        """on, or the tools that need approval."""
        self.hint = ""
        """Shown instead, until the next key."""
        self.problem = ""
        """Reason why there is no agent, and the way to get one."""
        self._facts: StatusFacts | None = None
        self._drawn: tuple[int, Line] | None = None

    def use_parts(self, parts: tuple[str, ...]) -> None:
        self.parts, self._drawn = parts, None

    def refresh(self, runtime: Runtime) -> None:
        state = runtime.state()
        report = runtime.shell.jail_report()
        jail = "" if report is None else report.word
        commands = 0
        if runtime.shell.has_background:
            commands = sum(command.running for command in runtime.shell.background.all())
        facts = StatusFacts(state, branch_of(state.cwd), self.approvals, jail, commands)
        self._facts, self._drawn = facts, None

    def lines(self, columns: int, *, loading: bool, has_agent: bool) -> list[Line]:
        """Return the line, or nothing if the person wants none."""
        if self.hint:
            return [clip((("warn", self.hint),), columns)]
        if loading:
            return [(("status", "loading"),)]
        if not self.parts:
            return []
        if not has_agent or self._facts is None:
            return [clip((("warn", self.problem),), columns)]
        if self._drawn is None or self._drawn[0] != columns:
            self._drawn = (columns, status_line(self._facts, columns, self.parts))
        return [self._drawn[1]]


def status_line(status: StatusFacts, width: int, parts: Sequence[str] = DEFAULT_PARTS) -> Line:
    """Return the status line. Parts after `right` are right-aligned; parts that do not fit are
    dropped from the end of the left side."""
    names = list(parts)
    at = names.index(RIGHT) if RIGHT in names else len(names)
    left, right = _spans(status, names[:at]), _spans(status, names[at + 1 :])
    while left and _size(left) + _size(right) + 2 * bool(right) > width:
        if len(left) == 1:
            right = []
            break
        left.pop()
    line, end = _joined(left, " · "), _joined(right, " ")
    gap = width - line_cells((*line, *end))
    return clip((*line, ("", " " * max(1, gap)), *end), width) if end else clip(line, width)


def checked_parts(parts: Sequence[str]) -> tuple[str, ...]:
    """Return the parts as tuple; `off` alone means none.

    Raises:
        ConfigError: there is no such part.
    """
    if list(parts) == [OFF]:
        return ()
    for name in parts:
        if name != RIGHT and name not in PARTS:
            known = ", ".join((*PARTS, RIGHT, OFF))
            raise ConfigError(f"status_line: there is no part {name!r}; there is: {known}")
    return tuple(parts)


def _size(spans: list[Span]) -> int:
    return sum(cells(text) + 3 for _, text in spans) - 3 * bool(spans)


def _joined(spans: list[Span], between: str) -> list[Span]:
    line: list[Span] = []
    for span in spans:
        line += [("status", between)] * bool(line) + [span]
    return line


def _spans(status: StatusFacts, names: Sequence[str]) -> list[Span]:
    spans = [PARTS[name](status) for name in names if name in PARTS]
    return [(style, clean(text)) for style, text in spans if text]


def _model(status: StatusFacts) -> Span:
    reasoning = clamped(status.state.reasoning, status.state.model)
    return "status", status.state.model.id + (f" {reasoning}" if reasoning != "off" else "")


def _context(status: StatusFacts) -> Span:
    tokens, window = status.state.context_tokens, status.state.model.context_window
    if not tokens or not window:
        return "status", ""
    share = 100 * tokens / window
    style = "error" if share >= 90 else "warn" if share >= 70 else "status"
    return style, f"{share:.0f}% of {amount(window)}"


def _read(status: StatusFacts) -> int:
    usage = status.state.usage
    return usage.input + usage.cache_read + usage.cache_write


def _tokens(status: StatusFacts) -> Span:
    read, written = _read(status), status.state.usage.output
    return "status", f"{amount(read)} in, {amount(written)} out" if read or written else ""


def _cache(status: StatusFacts) -> Span:
    cached = status.state.usage.cache_read
    return "status", f"{100 * cached / _read(status):.0f}% cached" if cached else ""


def _cost(status: StatusFacts) -> Span:
    usage = status.state.usage
    if not usage.cost.total and usage.cost_known:
        return "status", ""
    return "status", f"{'' if usage.cost_known else 'at least '}${usage.cost.total:.3f}"


def _approvals(status: StatusFacts) -> Span:
    never = status.state.mode == "yolo"
    what = NEVER_ASKS if never else status.approvals
    return "warn" if never else "status", f"approvals {what}" if what else ""


def _mode(status: StatusFacts) -> Span:
    name, style = MODES[status.state.mode]
    return style, name


def _commands(status: StatusFacts) -> Span:
    many = "s" * (status.commands != 1)
    return "accent", f"{status.commands} command{many}" if status.commands else ""


def _queue(status: StatusFacts) -> Span:
    return "status", f"{status.state.queued} queued" if status.state.queued else ""


PARTS: dict[str, Callable[[StatusFacts], Span]] = {
    "mode": _mode,
    "provider": lambda status: ("status", status.state.provider),
    "model": _model,
    "context": _context,
    "tokens": _tokens,
    "cache": _cache,
    "cost": _cost,
    "jail": lambda status: ("accent", status.jail),
    "approvals": _approvals,
    "commands": _commands,
    "queue": _queue,
    "session": lambda status: ("status", status.state.session_id),
    "cwd": lambda status: ("status", folder(status.state.cwd)),
    "branch": lambda status: ("status", f"({status.branch})" if status.branch else ""),
}
"""Functions that format each part, by its name in the settings."""


def amount(tokens: int) -> str:
    if tokens < 1_000:
        return str(tokens)
    return f"{tokens / 1_000:.1f}k" if tokens < 1_000_000 else f"{tokens / 1_000_000:.1f}M"


def age(then: float) -> str:
    """Return how long ago a moment was: `5 min`, `3 h`, `12 d`."""
    seconds = max(0.0, time.time() - then)
    for limit, size, unit in ((3600, 60, "min"), (86_400, 3600, "h"), (float("inf"), 86_400, "d")):
        if seconds < limit:
            return f"{int(seconds // size)} {unit}"
    raise AssertionError("no age is infinite")


def folder(path: str) -> str:
    home = os.path.expanduser("~")  # noqa: PTH111  pathlib is not loaded for the first paint
    return "~" + path[len(home) :] if path == home or path.startswith(home + "/") else path


def branch_of(cwd: str) -> str:
    """Return the git branch checked out there; empty if none can be read."""
    names = cwd.split("/")
    for depth in range(len(names), 0, -1):
        place = "/".join(names[:depth])
        git = f"{place}/.git"
        try:
            if not os.path.isdir(git):  # noqa: PTH112  a worktree: the file names its folder
                git = os.path.join(place, _head(git).removeprefix("gitdir:").strip())  # noqa: PTH118
            return _head(f"{git}/HEAD").strip().removeprefix("ref: refs/heads/")[:60]
        except (OSError, ValueError):
            continue
    return ""


def _head(path: str) -> str:
    """Read the start of a possibly hostile file: no pipes, at most MAX_HEAD bytes."""
    return read_own(path, None, MAX_HEAD).decode("utf-8")
