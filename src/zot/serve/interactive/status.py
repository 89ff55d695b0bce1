"""The lines below the transcript: activity, queue, editor, status line. Pure functions from facts
to lines."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING

from msgspec import Struct

from zot.errors import ConfigError
from zot.provider.model import clamped
from zot.tui.cells import EMPTY, Line, Span, cells, clean, clip, line_cells
from zot.tui.editor import Editor

if TYPE_CHECKING:
    from zot.runtime.runtime import State
    from zot.serve.interactive.own_shell import RunningShell
    from zot.serve.interactive.view import ShownRetry, View

PLACEHOLDER = "ask anything; / commands, @ files, ! shell, /help"
"""Shown in the editor until the first message."""
RIGHT, OFF = "right", "off"
NEVER_ASKS = "off"
DEFAULT_PARTS = (
    *("model", "context", "tokens", "cache", "cost", "jail", "approvals", "queue"),
    *(RIGHT, "cwd", "branch"),
)


class StatusFacts(Struct, frozen=True):
    """Facts that the line can show; empty and zero values are left out."""

    state: State
    branch: str
    """Branch checked out in the working directory."""
    approvals: str
    """on, off, or the tools that need approval."""


def amount(tokens: int) -> str:
    if tokens < 1_000:
        return str(tokens)
    return f"{tokens / 1_000:.1f}k" if tokens < 1_000_000 else f"{tokens / 1_000_000:.1f}M"


def folder(path: str) -> str:
    home = os.path.expanduser("~")  # noqa: PTH111  pathlib is not loaded for the first paint
    return "~" + path[len(home) :] if path == home or path.startswith(home + "/") else path


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
    line, end = _joined(left, " | "), _joined(right, " ")
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
    style = "warn" if status.approvals == NEVER_ASKS else "status"
    return style, f"approvals {status.approvals}" if status.approvals else ""


def _queue(status: StatusFacts) -> Span:
    return "status", f"{status.state.queued} queued" if status.state.queued else ""


PARTS: dict[str, Callable[[StatusFacts], Span]] = {
    "provider": lambda status: ("status", status.state.provider),
    "model": _model,
    "context": _context,
    "tokens": _tokens,
    "cache": _cache,
    "cost": _cost,
    "jail": lambda status: ("accent", "jail" if status.state.jail else ""),
    "approvals": _approvals,
    "queue": _queue,
    "session": lambda status: ("status", status.state.session_id),
    "cwd": lambda status: ("status", folder(status.state.cwd)),
    "branch": lambda status: ("status", f"({status.branch})" if status.branch else ""),
}
"""Functions that format each part, by its name in the settings."""


def waiting_lines(
    view: View | None, shells: Sequence[RunningShell], waiting: Iterable[str], columns: int
) -> list[Line]:
    """Return the lines for the agent's activity or a shell command, and for queued messages."""
    lines: list[Line] = []
    if view is not None and view.retry is not None:
        lines += [EMPTY, _retry_line(view.retry, columns)]
    elif view is not None and view.activity:
        since = elapsed(time.monotonic() - view.since)
        working = (("accent", view.activity), ("dim", f" {since}, esc stops"))
        lines += [EMPTY, clip(working, columns)]
    elif shells:
        since = elapsed(time.monotonic() - shells[-1].since)
        command = clean(shells[-1].command.split("\n", 1)[0])
        name = clip((("accent", f"!{command}"),), max(1, columns - len(since) - 14), "...")
        lines += [EMPTY, clip((*name, ("dim", f"  {since}, esc stops")), columns)]
    for text in waiting:
        line = (("dim", "  next: "), ("dim italic", clean(text.replace("\n", " "))))
        lines.append(clip(line, columns, "..."))
    return lines


def _retry_line(retry: ShownRetry, columns: int) -> Line:
    """Return the retry line; a long reason is cut, the attempt is not."""
    end = f"{retry.attempt()}, esc stops"
    room = columns - cells(end) - 2
    if room < 12:
        return clip((("warn", end),), columns)
    reason = clip((("warn", clean(retry.event.reason)),), room, "...")
    return (*reason, ("dim", f"; {end}"))


def editor_lines(
    editor: Editor, columns: int, height: int, *, is_normal: bool, is_new: bool
) -> tuple[list[Line], tuple[int, int]]:
    """Return the text with its mark, and the cursor. `is_normal`: vi's normal mode."""
    layout = editor.layout(max(2, columns - 3), height)
    mark = ("dim", ": ") if is_normal else ("prompt", "❯ ")
    if is_new and not editor.text:
        return [clip((mark, ("dim", PLACEHOLDER)), columns, "...")], (0, 2)
    marks: list[Line] = [(mark,), *[(("", "  "),)] * (len(layout.rows) - 1)]
    lines = [(*mark, *row) for mark, row in zip(marks, layout.rows, strict=True)]
    return lines, (layout.row, 2 + layout.column)


def elapsed(seconds: float) -> str:
    whole = int(seconds)
    return f"{whole} s" if whole < 60 else f"{whole // 60} min {whole % 60} s"
