"""The lines below the transcript: what goes on, what waits, and the editor. Lines, nothing else."""

from __future__ import annotations

import time
from collections.abc import Iterable
from typing import TYPE_CHECKING

from zot.serve.interactive.status import working_line
from zot.tui.cells import EMPTY, Line, clean, clip
from zot.tui.editor import Editor

if TYPE_CHECKING:
    from zot.serve.interactive.view import View

PLACEHOLDER = "ask anything; / commands, @ files, ! shell, /help"
"""Stands in the editor until the first thing was said."""


def waiting_lines(view: View | None, waiting: Iterable[str], columns: int) -> list[Line]:
    """What the agent does, and what is to be said to it next."""
    lines: list[Line] = []
    if view is not None and view.activity:
        lines += [EMPTY, working_line(view.activity, time.monotonic() - view.since, columns)]
    for text in waiting:
        line = (("dim", "  next: "), ("dim italic", clean(text.replace("\n", " "))))
        lines.append(clip(line, columns, "..."))
    return lines


def editor_lines(
    editor: Editor, columns: int, height: int, *, is_normal: bool, is_new: bool
) -> tuple[list[Line], tuple[int, int]]:
    """The text with its mark, and where the cursor is. `is_normal`: vi's mode of that name."""
    layout = editor.layout(max(2, columns - 3), height)
    mark = ("dim", ": ") if is_normal else ("prompt", "❯ ")
    if is_new and not editor.text:
        return [clip((mark, ("dim", PLACEHOLDER)), columns, "...")], (0, 2)
    marks: list[Line] = [(mark,), *[(("", "  "),)] * (len(layout.rows) - 1)]
    lines = [(*mark, *row) for mark, row in zip(marks, layout.rows, strict=True)]
    return lines, (layout.row, 2 + layout.column)
