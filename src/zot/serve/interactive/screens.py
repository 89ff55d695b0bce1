"""Views over the editor: the pager, the history search, the external editor."""

from __future__ import annotations

import os
import shlex
import subprocess
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from zot.errors import ZotError
from zot.serve.interactive.attach import paste_clipboard as paste_clipboard
from zot.serve.interactive.slash.work import copy_text
from zot.settings.known import visible_environment
from zot.text import whole_characters
from zot.tui.blocks import ToolBlock, UserBlock
from zot.tui.menu import MenuItem
from zot.tui.pager import Pager

if TYPE_CHECKING:
    from zot.serve.interactive.app import App

MAX_HISTORY = 2_000


def search_history(app: App) -> None:
    """Pick an earlier prompt; the current text goes to the history first."""
    unique = list(dict.fromkeys(reversed(app.editor.history)))[:MAX_HISTORY]
    items = [MenuItem(text.replace("\n", " "), value=text) for text in unique]
    if not items:
        app.note("there is no history yet")
        return

    def pick(value: object) -> None:
        if app.editor.text:
            app.editor.add_history(app.editor.full_text)
        app.editor.set(str(value))

    app.choose("history", items, pick)


def edit_outside(app: App) -> None:
    """Edit the text in the person's own editor."""
    app.loop.release()
    try:
        text = _edited(app.editor.full_text, visible_environment(app.around))
    finally:
        app.loop.regain(from_guest=True)
    if text is not None:
        app.editor.chips.clear()
        app.editor.set(text)


def _edited(text: str, environ: Mapping[str, str]) -> str | None:
    """Return the edited text; None if the editor exited with an error.

    Raises:
        ZotError: the editor cannot be started.
    """
    command = environ.get("VISUAL") or environ.get("EDITOR") or "vi"
    with tempfile.TemporaryDirectory(prefix="zot-") as folder:
        path = Path(folder) / "prompt.md"
        fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        with os.fdopen(fd, "w", encoding="utf-8") as file:
            file.write(whole_characters(text))
        try:
            done = subprocess.run([*shlex.split(command), str(path)], env=environ, check=False)
        except (OSError, ValueError) as error:
            raise ZotError(f"the editor {command!r} cannot be started: {error}") from error
        if done.returncode != 0:
            return None
        return path.read_text(encoding="utf-8", errors="replace").removesuffix("\n")


def open_pager(app: App, *, unfold: bool = False) -> None:
    """Show the whole transcript; with `unfold`, at the last tool call and with all output."""
    if app.view is None:
        return
    sections = app.transcript()
    at = None
    if unfold:
        folded = (i for i in range(len(sections) - 1, -1, -1) if isinstance(sections[i], ToolBlock))
        at = next(folded, None)

    pager = Pager(
        sections,
        lambda section: isinstance(section, UserBlock),
        leave=app.loop.close_full,
        copy=lambda text: copy_text(app, text, "it"),
        at=at,
        folded=not unfold,
    )
    app.loop.open_full(pager, app.theme)
