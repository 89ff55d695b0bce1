"""Loads the agent in a thread, while the editor takes keys, and applies the user's settings to the
terminal.
"""

from __future__ import annotations

import os
from collections.abc import Callable

from zot import __version__
from zot.bugs import internal_error
from zot.build import Additions, agent_words, build_runtime, find_skills
from zot.errors import ConfigError, ZotError
from zot.provider.types import Image
from zot.runtime.approval import Approval
from zot.runtime.prompt import context_paths
from zot.runtime.runtime import Runtime
from zot.serve.interactive import look
from zot.serve.interactive.app import App
from zot.serve.interactive.drafts import SavedTexts
from zot.serve.interactive.status import DEFAULT_PARTS, age, checked_parts, folder
from zot.serve.interactive.view import View, first_shown, replay
from zot.sessions import library
from zot.settings.options import Options, chosen
from zot.settings.resolve import Setup
from zot.tui.blocks import LinesBlock
from zot.tui.cells import Line
from zot.tui.links import FileLinks, template_of
from zot.tui.pictures import InlineImage, in_multiplexer, protocol_of
from zot.tui.vi import ViKeys

APPROVAL_SECONDS = 24 * 3600.0
"""Seconds to wait for an approval: a person may be away for a while."""


def load(app: App, **changes: str) -> None:
    """Build the runtime for the app, perhaps with other options than at the start."""
    view = View(spoken=app.spoken)
    try:
        plan = app.find_plan(**changes)
        setup = plan.setup
        _remember(app, setup.cwd)
        _dress(app, setup.options, setup.cwd)
        view = View(spoken=app.spoken, pictured=_pictured(app, chosen(setup.options, "images")))
        for text in (*setup.warnings, *((setup.notice,) if setup.notice else ())):
            app.warn(text)
        approve = setup.options.approve
        approval = Approval(approve, client=app.events, seconds=APPROVAL_SECONDS)
        approval.set_mode(app.mode or ("yolo" if setup.options.yolo else "ask"))
        added = Additions(
            keep=True, approval=approval, tasks=True, warn=app.warn, owns_process=True
        )
        runtime = build_runtime(plan, app.events, added)
        messages = runtime.session.messages()
        first = first_shown(messages)
        if first:
            view.note(f"{first} earlier messages: page up shows them")
        replay(view, messages[first:])
        words = agent_words(setup)
        welcome = LinesBlock(welcome_lines(runtime, setup))
        app.loop.post(lambda: app.chat.begin(runtime, view, messages[:first], words, welcome))
    except ZotError as error:
        failure = error
        app.loop.post(lambda: app.chat.fail(view, failure))
    except Exception as error:
        bug = internal_error(error)
        app.loop.post(lambda: app.chat.fail(view, bug))


def welcome_lines(runtime: Runtime, setup: Setup) -> list[Line]:
    """Return the name and version, the model and the directory, and what was found."""
    model = f"{setup.model.provider}/{setup.model.id}"
    return [
        (("prompt", "zot "), ("dim", __version__)),
        (("", model), ("dim", " · "), ("", folder(setup.cwd))),
        (("dim", " · ".join(_found(runtime, setup))),),
    ]


def _found(runtime: Runtime, setup: Setup) -> list[str]:
    """Return what this directory has for zot, and the age of its last session."""
    home = setup.around.home
    names = [os.path.basename(path) for path in context_paths(setup.cwd, home)]  # noqa: PTH119
    skills = sum(skill.source != "builtin" for skill in find_skills(setup))
    servers = len(runtime.sources.servers())
    counted = ((skills, "skill"), (servers, "MCP server"))
    names += [f"{count} {noun}{'s' * (count != 1)}" for count, noun in counted if count]
    earlier = [path for path in library.paths(setup.cwd, home)[:1] if not runtime.session.entries]
    names += [f"last session {age(os.stat(path).st_mtime)} ago (zot -c)" for path in earlier]  # noqa: PTH116
    return [*names, "? shows the keys"]


def _remember(app: App, cwd: str) -> None:
    """Load history and draft, even if the agent cannot be loaded."""
    if app.saved is None:  # else the agent was loaded before, in another directory
        saved = SavedTexts(app.around.home, cwd, app.warn)
        app.loop.post(lambda: app.chat.remember(saved))


def _dress(app: App, options: Options, cwd: str) -> None:
    """Apply the user's theme, keys, status line and links; warn about unusable ones."""
    home, environ = app.around.home, app.around.environ
    app.loop.post(lambda: app.loop.terminal.write(look.place(cwd)))
    app.status.approvals = ", ".join(options.approve) if options.approve else "on"
    if options.vi:
        app.vi = app.vi or ViKeys()

    def theme() -> None:
        if options.theme != "terminal":
            choice = look.find_theme(options.theme, home, environ)
            app.loop.post(lambda: app.use_theme(choice))

    def keys() -> None:
        app.keymap = look.find_keymap(home)

    def status() -> None:
        if options.status_line is not None:
            parts = checked_parts(options.status_line or DEFAULT_PARTS)
            app.loop.post(lambda: app.status.use_parts(parts))

    def links() -> None:
        template = template_of(chosen(options, "file_links"))
        made = FileLinks(cwd, os.uname().nodename, template) if template else None
        app.loop.post(lambda: app.loop.screen.use_links(made))

    for apply in (theme, keys, status, links):
        try:
            apply()
        except ConfigError as error:
            app.warn(str(error))


def _pictured(app: App, wanted: str) -> Callable[[Image], InlineImage] | None:
    """Return a function that draws images inline; None if the terminal cannot."""
    environ = app.around.environ
    protocol = protocol_of(environ, wanted)
    if protocol is None or app.spoken:
        return None
    in_tmux = in_multiplexer(environ)
    return lambda image: InlineImage(image.data, protocol, in_tmux)
