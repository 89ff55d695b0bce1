"""Opens the terminal, shows the editor, loads the agent behind it, and restores the terminal."""

from __future__ import annotations

import io
import os
import sys
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

from zot.errors import ZotError
from zot.files import ensure_dir, write_atomic
from zot.serve.interactive.app import App
from zot.serve.interactive.loop import Loop
from zot.tui.screen import LiveScreen, Reflow
from zot.tui.terminal import ESCAPE_SECONDS, Terminal
from zot.tui.theme import Theme

if TYPE_CHECKING:
    from zot.home import Surroundings
    from zot.settings.resolve import Plan

TMUX_MARGIN = 4
TMUX_RESIZE_SECONDS = 0.3
"""tmux reports a new size at most every quarter of a second, but reflows lines at once."""


def run(
    find_plan: Callable[..., Plan], prompt: str, around: Surroundings, *, linear: bool = False
) -> int:
    """Run until the person leaves; return the exit code. `find_plan` gets the options that a later
    `/cd` or login changes; `linear`: line mode."""
    environ = around.environ
    if linear or environ.get("TERM", "dumb") == "dumb":
        from zot.serve.interactive import linear as lines

        return lines.run(find_plan, prompt, around)
    outputs = sys.stdout, sys.stderr
    with Terminal(1, ESCAPE_SECONDS * (4 if "SSH_CONNECTION" in environ else 1)) as terminal:
        theme = Theme(colour=not environ.get("NO_COLOR"))
        pause = TMUX_RESIZE_SECONDS if "TMUX" in environ else 0.0
        loop = Loop(terminal, LiveScreen(theme), reflow_of(environ), pause)
        app = App(loop, find_plan, around, theme=theme)
        app.margin = TMUX_MARGIN if pause else 0
        sys.stdout = sys.stderr = NoteStream(app)
        try:
            if prompt:
                app.submit(prompt)
            loop.post(app.load)
            code = loop.run(app)
        except Exception as error:
            raise crashed(error, around.home) from error
        finally:
            sys.stdout, sys.stderr = outputs
            loop.release()
            farewell = app.farewell
            app.close()
    if app.fatal is not None:
        raise app.fatal
    if farewell and code == 0:
        sys.stdout.write(f"{farewell}\n")
    return code


class NoteStream(io.TextIOBase):
    """Turns output printed while the terminal is in use into notes, so that it does not corrupt the
    screen."""

    def __init__(self, app: App) -> None:
        super().__init__()
        self._app = app

    def writable(self) -> bool:
        return True

    def write(self, text: str) -> int:
        if text.strip():
            self._app.warn(text.strip())
        return len(text)


def reflow_of(environ: Mapping[str, str]) -> Reflow:
    """Return how the terminal reflows lines when it gets narrower."""
    if "XTERM_VERSION" in environ:
        return "none"
    return "above" if environ.get("TERM_PROGRAM") == "vscode" else "all"


def crashed(error: Exception, home: str) -> ZotError:
    """Return one line for the person; write the traceback to a file for developers."""
    import traceback

    path = os.path.join(home, "crash.log")  # noqa: PTH118  pathlib is not loaded for the first paint
    try:
        ensure_dir(home)
        write_atomic(path, "".join(traceback.format_exception(error)).encode("utf-8", "replace"))
        where = f"{path!r} says where"
    except OSError as failure:
        where = f"{path!r} cannot be written: {failure.strerror}"
    return ZotError(
        f"internal error: {type(error).__name__}: {error}; {where}. What was said is in the "
        "session (zot -c goes on), what was written comes back at the next start"
    )
