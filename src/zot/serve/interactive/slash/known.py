"""Commands that people know from other agents: context, theme, init, memory, hooks."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from zot.errors import ConfigError
from zot.provider.types import Image, Message, Text, ToolCall, ToolResult
from zot.runtime.prompt import context_paths
from zot.serve.interactive import look, shell
from zot.serve.interactive.slash import work
from zot.serve.interactive.status import amount, folder
from zot.tui.blocks import LinesBlock
from zot.tui.cells import Line, Span
from zot.tui.menu import MenuItem

if TYPE_CHECKING:
    from zot.serve.interactive.app import App

BAR = 60
"""Cells of the bar of `/context`."""
IMAGE_CHARACTERS = 6_000
"""Characters that count for an image in the shares of a context."""
_STYLES = ("accent", "mode.edits", "ok", "warn", "heading", "code")
INIT = (
    "Look at this project (its documentation, its build, its tests, its layout) and write "
    "AGENTS.md in its root: what an agent has to know to work here. Say how to build, test and "
    "check it with the exact commands, how the code is laid out, and which conventions a change "
    "has to follow. At most 60 lines, nothing that every project has. If there is one already, "
    "improve it."
)
HOOKS = (
    "hooks are commands in hooks.json of zot's directory, in the form of Claude Code's settings "
    "(docs/hooks.md), or extensions that see each call before it runs (docs/extensions.md)"
)


def context(app: App, args: str) -> None:
    """Show how much of the model's window is used, and by what."""
    state = app.runtime.state()
    shares = _shares(app)
    total = sum(shares.values()) or 1
    used, window = state.context_tokens, state.model.context_window
    used = used or total // 4  # nothing was sent yet: about four characters a token
    lines: list[Line] = [(("heading", f"{amount(used)} of {amount(window)} tokens"),)]
    bar: list[Span] = []
    rows: list[Line] = []
    for (name, size), style in zip(shares.items(), _STYLES, strict=False):
        tokens = used * size // total
        cells = round(BAR * tokens / window) if window else 0
        bar.append((style, "█" * max(cells, 1 if tokens else 0)))
        share = f"{100 * tokens / window:.1f}%" if window else ""
        rows.append(
            (
                ("", "  "),
                (style, "█ "),
                ("", f"{name:<14}{amount(tokens):>8}"),
                ("dim", f"  {share:>6}"),
            )
        )
    free = max(0, BAR - sum(len(text) for _, text in bar))
    lines.append((("", "  "), *bar, ("dim", "░" * free)))
    rows.append(
        (("", "  "), ("dim", "░ "), ("", f"{'free':<14}{amount(max(0, window - used)):>8}"))
    )
    app.show(LinesBlock([*lines, *rows]))


def _shares(app: App) -> dict[str, int]:
    """Return the characters of each part of the context."""
    agent = app.runtime.agent
    shares = {
        "system prompt": len(agent.system()),
        "tools": sum(len(msgspec.json.encode(spec)) for spec in agent.toolbox.specs),
        "your prompts": 0, "answers": 0, "tool calls": 0, "tool results": 0,
    }  # fmt: skip
    for message in app.runtime.session.messages():
        _count(message, shares)
    return shares


def _count(message: Message, shares: dict[str, int]) -> None:
    for part in message.content:
        match part:
            case Text(text):
                shares["your prompts" if message.role == "user" else "answers"] += len(text)
            case ToolCall():
                shares["tool calls"] += len(part.raw or str(part.args))
            case ToolResult(content=content):
                texts = sum(len(one.text) for one in content if isinstance(one, Text))
                images = sum(isinstance(one, Image) for one in content)
                shares["tool results"] += texts + images * IMAGE_CHARACTERS
            case Image():
                shares["your prompts"] += IMAGE_CHARACTERS
            case _:
                pass


def theme(app: App, args: str) -> None:
    """Choose a theme; the one under the cursor is shown at once."""
    home, environ = app.around.home, app.around.environ
    before = app.theme

    def show(name: str) -> None:
        app.use_theme(look.find_theme(name, home, environ))

    def keep(name: str) -> None:
        show(name)
        work.keep_setting(app, "theme", name)
        app.note(f"theme: {name}")

    if args:
        keep(args)
        return
    names = look.theme_names(home)
    items = [MenuItem(name, look.THEME_HELP.get(name, "")) for name in names]

    def preview(name: str) -> None:
        try:
            show(name)
        except ConfigError as error:
            app.status.hint = str(error)

    app.dialogs.choose(
        "Theme", items, keep, moved=preview, leave=lambda: app.wear(before), stays=False
    )


def init(app: App, args: str) -> None:
    app.chat.send(f"{INIT}\n\n{args}".strip())


def memory(app: App, args: str) -> None:
    """Open one of the files that the model is always told."""
    home, cwd = app.around.home, app.runtime.cwd
    paths = context_paths(cwd, home)
    own = [str(Path(place) / "AGENTS.md") for place in (cwd, home)]
    new = [path for path in own if path not in paths]
    items = [MenuItem(folder(path), "", path) for path in paths]
    items += [MenuItem(folder(path), "does not exist yet", path) for path in new]

    def pick(path: str) -> None:
        shell.edit_file(app, path)
        app.note(f"{folder(path)} counts from the next session on (/new)")

    app.dialogs.choose("What the model is always told", items, pick)


def hooks(app: App, args: str) -> None:
    app.note(HOOKS)


def export(app: App, args: str) -> None:
    app.chat.command(f"/session export {args}".rstrip())


def vim(app: App, args: str) -> None:
    """Switch vi's keys on or off, for good."""
    from zot.tui.vi import ViKeys

    on = app.vi is None
    app.vi = ViKeys() if on else None
    work.keep_setting(app, "vi", on)
    app.note(f"vi's keys are {'on' if on else 'off'}")
