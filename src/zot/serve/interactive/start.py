"""Opens the terminal, shows the editor, loads the agent in a thread, and restores the terminal."""

from __future__ import annotations

import io
import os
import sys
import threading
from collections.abc import Callable
from typing import TYPE_CHECKING

from zot.bugs import internal_error
from zot.errors import ConfigError, ZotError
from zot.serve.interactive.app import App
from zot.serve.interactive.loop import Loop
from zot.serve.interactive.status import DEFAULT_PARTS, NEVER_ASKS, checked_parts
from zot.settings.options import Options, chosen
from zot.tui import pictures, vi
from zot.tui.screen import LiveScreen, Reflow
from zot.tui.terminal import ESCAPE_SECONDS, Terminal
from zot.tui.theme import Theme

if TYPE_CHECKING:
    from collections.abc import Mapping

    from zot.home import Surroundings
    from zot.provider.types import Image, Message
    from zot.settings.resolve import Plan

STOP_SECONDS = 3.0
APPROVAL_SECONDS = 24 * 3600.0
"""Seconds to wait for an approval: a person may be away for a while."""
REPLAYED = 20
"""Messages shown when a session is resumed."""
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
        return _run_linear(find_plan, prompt, around)
    outputs = sys.stdout, sys.stderr
    with Terminal(1, ESCAPE_SECONDS * (4 if "SSH_CONNECTION" in environ else 1)) as terminal:
        theme = theme_for(environ)
        pause = TMUX_RESIZE_SECONDS if "TMUX" in environ else 0.0
        loop = Loop(terminal, LiveScreen(theme), reflow_of(environ), pause)
        app = App(loop, find_plan, around, theme=theme)
        app.margin = TMUX_MARGIN if pause else 0
        sys.stdout = sys.stderr = NoteStream(app)
        try:
            if prompt:
                app.send(prompt)
            loop.post(lambda: load_behind(app))
            code = loop.run(app)
        except Exception as error:
            from zot.serve.interactive import crash

            raise crash.crashed(error, around.home) from error
        finally:
            sys.stdout, sys.stderr = outputs
            loop.release()
            _wind_up(app)
    return _ended(app, code)


def _ended(app: App, code: int) -> int:
    if app.fatal is not None:
        raise app.fatal
    return code


def _run_linear(find_plan: Callable[..., Plan], prompt: str, around: Surroundings) -> int:
    theme = Theme(colour=False, links=False)
    from zot.serve.interactive import linear

    loop = linear.LinearLoop(theme)
    app = linear.LinearApp(loop, find_plan, around, theme=theme)
    app.begin()
    try:
        if prompt:
            app.send(prompt)
        load_behind(app)
        code = loop.run_lines(app)
    finally:
        _wind_up(app)
    return _ended(app, code)


def load_behind(app: App, **changes: str) -> None:
    """Load the agent in a thread, perhaps with other options; close the present one first."""
    old, app.built, app.loading = app.built, None, True

    def work() -> None:
        if old is not None:
            old.close(timeout=STOP_SECONDS)
            old.release()
        load(app, **changes)

    threading.Thread(target=work, name="zot-load", daemon=True).start()


def load(app: App, **changes: str) -> None:
    """Build the runtime for the app. Runs in a thread: the editor takes keys meanwhile."""
    from zot.serve.interactive import view as views

    view = views.View(spoken=app.spoken)
    try:
        plan = app.find_plan(**changes)
        _remember(app, plan.setup.cwd)
        options = plan.setup.options
        _dress(app, options, plan.setup.cwd)
        view = views.View(spoken=app.spoken, pictured=pictured(app, chosen(options, "images")))
        for text in (*plan.setup.warnings, *((plan.setup.notice,) if plan.setup.notice else ())):
            app.warn(text)
        approval = None
        if not options.yolo:
            from zot.runtime import approval as approvals

            approval = approvals.Approval(options.approve, client=app, seconds=APPROVAL_SECONDS)
        from zot import build as building

        added = building.Additions(
            keep=True,
            approval=approval,
            tasks=True,
            warn=app.warn,
            owns_process=True,
        )
        runtime = building.build_runtime(plan, app, added)
        messages = runtime.session.messages()
        first = first_shown(messages)
        if first:
            view.note(f"{first} earlier messages: page up shows them")
        views.replay(view, messages[first:])
        words = building.agent_words(plan.setup)
        app.loop.post(lambda: app.loaded(runtime, view, messages[:first], words))
        import zot.tui.document  # noqa: F401  the first answer needs it, and it takes a while
    except ZotError as error:
        failure = error
        app.loop.post(lambda: app.failed(view, failure))
    except Exception as error:
        bug = internal_error(error)
        app.loop.post(lambda: app.failed(view, bug))


def _remember(app: App, cwd: str) -> None:
    """Load history and draft, even if the agent cannot be loaded."""
    if app.written.is_kept:
        return  # it was loaded before, in another directory
    home = app.around.home
    cannot = app.written.cannot
    from zot.serve.interactive import kept

    history, draft = kept.History(home, cannot), kept.Draft(home, cwd, cannot)
    texts, left = history.load(), draft.recover()
    app.loop.post(lambda: app.remember(history, draft, texts, left))


def _dress(app: App, options: Options, cwd: str) -> None:
    """Apply the user's theme, keys, status line and links; warn about unusable ones."""
    home, environ = app.around.home, app.around.environ
    from zot.serve.interactive import look

    app.loop.post(lambda: app.loop.terminal.write(look.place(cwd)))
    asks = ", ".join(options.approve) if options.approve else "on"
    app.approvals = NEVER_ASKS if options.yolo else asks
    if options.vi:
        app.vi = app.vi or vi.ViKeys()

    def theme() -> None:
        if options.theme not in (None, "terminal"):
            choice = look.find_theme(options.theme, home, environ)
            app.loop.post(lambda: app.dress(choice))

    def keys() -> None:
        app.keymap = look.find_keymap(home)

    def status() -> None:
        if options.status_line is not None:
            parts = checked_parts(options.status_line or DEFAULT_PARTS)
            app.loop.post(lambda: app.use_status_parts(parts))

    def links() -> None:
        from zot.tui import links as file_links

        template = file_links.template_of(chosen(options, "file_links"))
        made = file_links.FileLinks(cwd, os.uname().nodename, template) if template else None
        app.loop.post(lambda: app.loop.screen.use_links(made))

    for choose in (theme, keys, status, links):
        try:
            choose()
        except ConfigError as error:
            app.warn(str(error))


def pictured(app: App, wanted: str) -> Callable[[Image], pictures.InlineImage] | None:
    """Return a function that draws images inline; None if the terminal cannot."""
    environ = app.around.environ
    protocol = pictures.protocol_of(environ, wanted)
    if protocol is None or app.spoken:
        return None
    in_tmux = pictures.in_multiplexer(environ)
    return lambda image: pictures.InlineImage(image.data, protocol, in_tmux)


def first_shown(messages: tuple[Message, ...]) -> int:
    """Return the index of the first message to show of a resumed session, preferably a prompt."""
    first = max(0, len(messages) - REPLAYED)
    while 0 < first < len(messages) and messages[first].role != "user":
        first += 1
    return first


def _wind_up(app: App) -> None:
    app.stop_work()
    if app.built is not None:
        app.built.client_left()
        app.built.close(timeout=STOP_SECONDS)
        app.built.release()
    app.loop.close()


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


def theme_for(environ: Mapping[str, str]) -> Theme:
    return Theme(colour=not environ.get("NO_COLOR"))


def reflow_of(environ: Mapping[str, str]) -> Reflow:
    """Return how the terminal reflows lines when it gets narrower."""
    if "XTERM_VERSION" in environ:
        return "none"
    return "above" if environ.get("TERM_PROGRAM") == "vscode" else "all"
