"""One frame of the screen: settled lines, blocks that still change, activity, queue, the editor or
the open dialog, completion and the status line.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from zot.serve.interactive.loop import Drawing
from zot.tui.cells import EMPTY, Line, cells, clean, clip

if TYPE_CHECKING:
    from zot.serve.interactive.app import App
    from zot.serve.interactive.view import ShownRetry

PLACEHOLDER = "ask anything; / commands, @ files, ! shell, /help"
"""Shown in the editor until the first message."""
MAX_OPEN_LINES = 14
"""Maximum lines of a block that still changes; few, so that a window can be made smaller."""
SMALL_ROWS = 16
"""Rows below which a window shows nothing above an open question."""
PADDED_HEIGHT = 7
"""Height of the editor from which it has a blank row above and below."""
MIN_OVERLAY = 8
"""Minimum lines of a question, even if that exceeds its share of the window."""


def picture(app: App, columns: int, rows: int) -> Drawing:
    view = app.view
    settled = view.settle(columns) if view is not None else []
    margin = [EMPTY] * app.margin if rows > SMALL_ROWS else []
    if settled and margin:
        settled, margin, app.margin = [*margin, *settled], [], 0
    below = _waiting_lines(app, columns)[-max(0, rows - 6) :] if rows > 6 else []
    if app.dialogs.top is not None and rows < SMALL_ROWS:
        below = []
    fields, (row, column) = _fields(app, columns, rows)
    has_agent = app.built is not None
    foot = app.status.lines(columns, loading=app.loading, has_agent=has_agent) if rows > 3 else []
    if app.completion.is_open and app.dialogs.top is None and rows > 12:
        foot = [*app.completion.lines(columns), *foot]
    others = len(margin) + len(below) + len(fields) + len(foot)
    room = min(MAX_OPEN_LINES, rows - 3 - others)
    live = view.live(columns, room) if view is not None and room > 0 else []
    above = [*margin, *live, *below, EMPTY]
    return Drawing(settled, [*above, *fields, *foot], len(above) + row, column)


def _fields(app: App, columns: int, rows: int) -> tuple[list[Line], tuple[int, int]]:
    """Return the lines that take keys (the open dialog or the editor), and the cursor."""
    overlay = app.dialogs.top
    if overlay is None:
        return _editor_lines(app, columns, max(1, rows // 3))
    share = 2 / 3 if overlay.tall else 1 / 2
    drawn = overlay.draw(columns, max(1, int(rows * share), min(rows - 3, MIN_OVERLAY)))
    return drawn.lines, drawn.cursor or (max(0, len(drawn.lines) - 1), 0)


def _editor_lines(app: App, columns: int, height: int) -> tuple[list[Line], tuple[int, int]]:
    """Return the text on its background, and the cursor."""
    lines, (row, column) = _text_lines(app, columns, height)
    fill = ("editor fill", "")
    framed: list[Line] = [
        (fill, *((f"editor {style}", text) for style, text in line)) for line in lines
    ]
    if height < PADDED_HEIGHT:
        return framed, (row, column)
    # No rules: in a narrower window a line as wide as the old one may take two rows, or one.
    return [(fill,), *framed, (fill,)], (row + 1, column)


def _text_lines(app: App, columns: int, height: int) -> tuple[list[Line], tuple[int, int]]:
    layout = app.editor.layout(max(2, columns - 3), height)
    is_normal = app.vi is not None and not app.vi.inserts
    mark = ("dim", ": ") if is_normal else ("prompt", "❯ ")
    is_new = not app.loading and app.view is not None and not app.view.record
    if is_new and not app.editor.text:
        return [clip((mark, ("dim", PLACEHOLDER)), columns, "...")], (0, 2)
    marks: list[Line] = [(mark,), *[(("", "  "),)] * (len(layout.rows) - 1)]
    lines = [(*mark, *row) for mark, row in zip(marks, layout.rows, strict=True)]
    return lines, (layout.row, 2 + layout.column)


def _waiting_lines(app: App, columns: int) -> list[Line]:
    """Return the lines for the agent's activity or a shell command, and for queued messages."""
    lines: list[Line] = []
    view, shells = app.view, app.shells
    if view is not None and view.retry is not None:
        lines += [EMPTY, _retry_line(view.retry, columns)]
    elif view is not None and view.activity:
        since = _elapsed(time.monotonic() - view.since)
        working = (("accent", view.activity), ("dim", f" {since}, esc stops"))
        lines += [EMPTY, clip(working, columns)]
    elif shells:
        since = _elapsed(time.monotonic() - shells[-1].since)
        command = clean(shells[-1].command.split("\n", 1)[0])
        name = clip((("accent", f"!{command}"),), max(1, columns - len(since) - 14), "...")
        lines += [EMPTY, clip((*name, ("dim", f"  {since}, esc stops")), columns)]
    for text in app.queue.texts:
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


def _elapsed(seconds: float) -> str:
    whole = int(seconds)
    return f"{whole} s" if whole < 60 else f"{whole // 60} min {whole % 60} s"
