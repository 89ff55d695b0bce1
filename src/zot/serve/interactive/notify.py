"""Calls a person back to the terminal, who has gone to another window. Never while they look."""

from __future__ import annotations

from collections.abc import Mapping

from zot.tui.cells import clean
from zot.tui.terminal import through_tmux

MAX_TEXT = 200


def notification(text: str, environ: Mapping[str, str]) -> str:
    """What to write to the terminal: a bell, and a message where the terminal shows such."""
    shown = clean(text).replace("\n", " ").replace(";", ",")[:MAX_TEXT]
    program = environ.get("TERM_PROGRAM", "")
    if "KITTY_WINDOW_ID" in environ:
        message = f"\x1b]99;;{shown}\x1b\\"
    elif program in ("iTerm.app", "ghostty", "WezTerm"):
        message = f"\x1b]9;{shown}\x1b\\"
    elif "VTE_VERSION" in environ:
        message = f"\x1b]777;notify;zot;{shown}\x1b\\"
    else:
        return "\a"
    if "TMUX" in environ:
        message = through_tmux(message)
    return message + "\a"
