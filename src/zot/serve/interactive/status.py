"""The status line, and the line that says what is going on. Words from numbers, nothing else."""

from __future__ import annotations

import os

from msgspec import Struct

from zot.tui.cells import Line, Span, cells, clean, clip, line_cells


class Status(Struct, frozen=True):
    """What the line can show; empty and zero are left out."""

    model: str = ""
    reasoning: str = ""
    context_tokens: int = 0
    context_window: int = 0
    input: int = 0
    output: int = 0
    cache_share: float = 0.0
    cost: float = 0.0
    cost_known: bool = True
    cwd: str = ""
    branch: str = ""
    jail: bool = False
    approvals: str = ""
    queued: int = 0
    session: str = ""


def amount(tokens: int) -> str:
    if tokens < 1_000:
        return str(tokens)
    return f"{tokens / 1_000:.1f}k" if tokens < 1_000_000 else f"{tokens / 1_000_000:.1f}M"


def folder(path: str) -> str:
    home = os.path.expanduser("~")  # noqa: PTH111  pathlib is not loaded for the first paint
    return "~" + path[len(home) :] if path == home or path.startswith(home + "/") else path


def status_line(status: Status, width: int) -> Line:
    """The folder on the right; what does not fit falls away from the end of the left."""
    right: list[Span] = [("status", clean(folder(status.cwd)))]
    if status.branch:
        right.append(("status", f" ({clean(status.branch)})"))
    parts = _parts(status)
    while parts and sum(cells(text) + 3 for _, text in parts) + line_cells(tuple(right)) > width:
        if len(parts) == 1:
            right = []
            break
        parts.pop()
    left: list[Span] = []
    for span in parts:
        left += [("status", " | ")] * bool(left) + [span]
    gap = width - line_cells((*left, *right))
    return clip((*left, ("", " " * max(1, gap)), *right), width) if right else clip(left, width)


def _parts(status: Status) -> list[Span]:
    thinks = status.reasoning not in ("", "off")
    model = status.model + (f" {status.reasoning}" if thinks else "")
    parts: list[Span] = [("status", model)] if model else []
    if status.context_tokens and status.context_window:
        share = 100 * status.context_tokens / status.context_window
        style = "error" if share >= 90 else "warn" if share >= 70 else "status"
        parts.append((style, f"{share:.0f}% of {amount(status.context_window)}"))
    if status.input or status.output:
        text = f"{amount(status.input)} in, {amount(status.output)} out"
        if status.cache_share:
            text += f", {100 * status.cache_share:.0f}% cached"
        parts.append(("status", text))
    if status.cost or not status.cost_known:
        parts.append(("status", f"{'' if status.cost_known else 'at least '}${status.cost:.3f}"))
    if status.jail:
        parts.append(("accent", "jail"))
    if status.approvals:
        parts.append(("status", status.approvals))
    if status.queued:
        parts.append(("status", f"{status.queued} queued"))
    return parts


def working_line(what: str, seconds: float, width: int) -> Line:
    line: Line = (("accent", what), ("dim", f" {elapsed(seconds)}, esc stops"))
    return clip(line, width)


def elapsed(seconds: float) -> str:
    whole = int(seconds)
    return f"{whole} s" if whole < 60 else f"{whole // 60} min {whole % 60} s"
