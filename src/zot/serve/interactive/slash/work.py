"""Commands for current work: copy, cost, tools, jail, approvals, settings, side questions."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from zot.core.confinement import JailWords
from zot.core.cost import cached_share
from zot.core.hook import ApprovalMode, Rule
from zot.core.source import CommandInfo, ExtensionState
from zot.errors import CommandError, ConfigError
from zot.provider.types import Message, texts_in
from zot.serve.interactive.clipboard import native_copy, terminal_copy
from zot.serve.interactive.sidechat import SideChat
from zot.serve.interactive.status import (
    DEFAULT_PARTS,
    MODES,
    OFF,
    PARTS,
    RIGHT,
    amount,
    checked_parts,
)
from zot.settings import config
from zot.settings.known import visible_environment
from zot.settings.options import SETTINGS, Options, as_text, from_text
from zot.tui.blocks import RowsBlock
from zot.tui.cells import Line, clean, wrap
from zot.tui.menu import MenuItem, NoticeBox

if TYPE_CHECKING:
    from zot.serve.interactive.app import App

MODE_HELP: dict[ApprovalMode, str] = {
    "ask": "ask before files change and commands run",
    "edits": "change files of this project unasked, ask before commands",
    "plan": "only read; what would change something is refused",
    "yolo": "run everything unasked",
    "ask_all": "ask before every tool",
}
FENCE = re.compile(r"```+|~~~+")
STUDY = (
    "Study {what}: read what tells most about it (documentation, the build, the entry points, the "
    "tests), and then tell me in a few paragraphs what it is, how it is put together, how it is "
    "built and tested, and what to know before changing it. Change nothing."
)


def code_blocks(answer: str) -> list[str]:
    """Return the fenced code blocks; an unclosed one extends to the end."""
    blocks: list[str] = []
    lines: list[str] = []
    fence = ""
    for line in answer.splitlines(keepends=True):
        if not fence and (match := FENCE.match(line)):
            fence, lines = match[0], []
        elif fence and line.rstrip() == fence:
            blocks.append("".join(lines))
            fence = ""
        elif fence:
            lines.append(line)
    return [*blocks, "".join(lines)] if fence else blocks


def copy(app: App, args: str) -> None:
    """Copy the source of an answer, a code block or the diff, not its rendering."""
    answers = list(_latest_answers(app.runtime.session.messages()))
    answer = answers[0] if answers else ""
    match args:
        case "answer" | "message":
            copy_text(app, answer, "the answer")
        case "code":
            blocks = next(filter(None, map(code_blocks, answers)), [""])
            copy_text(app, blocks[-1], "the last code block")
        case "diff":
            app.work(lambda: _diff_text(app), lambda text: copy_text(app, text, "the diff"))
        case "":
            items = [MenuItem("the answer", _first_line(answer), answer)]
            items += [
                MenuItem(f"code block {number}", _first_line(block), block)
                for number, block in enumerate(code_blocks(answer), 1)
            ]
            app.dialogs.choose("Copy", items, lambda text: copy_text(app, str(text), "it"))
        case _:
            raise CommandError("/copy, /copy answer, /copy code, /copy diff")


def _latest_answers(messages: Sequence[Message]) -> Iterator[str]:
    for message in reversed(messages):
        texts = texts_in(message.content)
        if message.role == "assistant" and any(texts):
            yield "\n".join(texts)


def copy_text(app: App, text: str, what: str) -> None:
    if not text:
        raise CommandError(f"there is nothing to copy: {what} would be empty")
    environ = app.around.environ
    sequence = terminal_copy(text, environ)
    if sequence:
        app.loop.terminal.write(sequence)

    def then(program: str) -> None:
        if program:
            app.note(f"copied {what} with {program}")
        elif sequence:
            app.note(f"sent {what} to the terminal's clipboard, if it takes such (OSC 52)")
        else:
            app.note(f"{what} is too long for the terminal's clipboard", "error")

    app.work(lambda: native_copy(text, visible_environment(app.around)), then)


def _diff_text(app: App) -> str:
    files = app.runtime.history.changed_files()
    return "\n".join(f"{file.path}\n{file.diff}\n" for file in files)


def _first_line(text: str) -> str:
    return text.strip().partition("\n")[0][:100]


def cost(app: App, args: str) -> None:
    state = app.runtime.state()
    usage = state.usage
    spent, known = usage.cost, "" if usage.cost_known else "at least "
    rows = [
        ("read", f"{amount(usage.input)}, ${spent.input:.4f}"),
        ("read from the cache", f"{amount(usage.cache_read)}, ${spent.cache_read:.4f}"),
        ("written to the cache", f"{amount(usage.cache_write)}, ${spent.cache_write:.4f}"),
        ("share from the cache", f"{cached_share(usage):.1%}"),
        ("answered", f"{amount(usage.output)}, ${spent.output:.4f}"),
        ("context", f"{amount(state.context_tokens)} of {amount(state.model.context_window)}"),
        ("cost", f"{known}${spent.total:.4f}"),
    ]
    app.show(RowsBlock(f"{state.model.provider}/{state.model.id}, this session", rows))


def tools(app: App, args: str) -> None:
    specs = app.runtime.agent.toolbox.specs
    rows = [(spec.name, spec.description.partition("\n")[0]) for spec in specs]
    app.show(RowsBlock("Tools", rows))


def mcp(app: App, args: str) -> None:
    servers = app.runtime.sources.servers()
    if not servers:
        app.note("no MCP server is configured; docs/mcp.md says where they go")
        return
    rows = [
        (
            server.name,
            ", ".join(filter(None, (server.state, f"{server.tools} tools", server.error))),
        )
        for server in servers
    ]
    app.show(RowsBlock("MCP servers", rows))


def mode(app: App, args: str) -> None:
    """Choose what runs without a question."""
    words = {name: word for word, (name, _) in MODES.items()} | {word: word for word in MODES}
    if args:
        if args not in words:
            known = ", ".join(name for name, _ in MODES.values())
            raise CommandError(f"there is no mode {args!r}; there is: {known}")
        app.chat.set_mode(words[args])
        app.note(f"mode: {MODES[words[args]][0]}")
        return
    items = [MenuItem(name, MODE_HELP[word], word) for word, (name, _) in MODES.items()]
    chosen = list(MODES).index(app.runtime.approvals.mode)
    app.dialogs.choose("Mode", items, lambda word: app.chat.set_mode(word), chosen)


def plan(app: App, args: str) -> None:
    """Change to plan mode; send a text, if there is one."""
    mode(app, "plan")
    if args:
        app.chat.send(args)


def ps(app: App, args: str) -> None:
    """List the commands that run in the background: follow one, or stop it."""
    background = app.runtime.shell.background

    def items() -> list[MenuItem]:
        rows = []
        for one in background.all():
            end = "running" if one.running else f"exit {one.exit_code}"
            about = f"{one.seconds:>7.0f} s  {end}"
            rows.append(MenuItem(f"{one.id}  {one.command}", about, one.id))
        return rows

    def follow(id: str) -> None:
        def lines(width: int) -> list[Line]:
            return wrap([("output", clean(background.text(id)))], width)

        box = NoticeBox(lines, lambda: app.dialogs.close(box), follows=True)
        app.dialogs.open(box)

    def stop(id: str) -> None:
        app.work(lambda: background.stop(id), lambda _: menu.replace(items()))

    if not items():
        app.note("no command runs in the background; ctrl+b moves a running one there")
        return
    hint = "enter follows it · ctrl+d stops it · esc leaves"
    menu = app.dialogs.choose(
        "Commands", items(), follow, keys={"ctrl+d": stop}, hint=hint, stays=True
    )


def set_jail(app: App, words: JailWords) -> None:
    runtime = app.runtime

    def then(_: None) -> None:
        report = runtime.shell.jail_report()
        if report is None:
            app.note("tools reach everything that you can")
        else:
            more = f": {report.problem}" if report.problem else ""
            app.note(f"tools stay inside the working directory ({report.word}{more})")
        app.refresh_status()

    app.work(lambda: runtime.shell.set_jail(words), then)


def btw(app: App, args: str) -> None:
    """Open a side chat, which is discarded when closed."""
    chat = SideChat(app, app.runtime)
    app.dialogs.open(chat)
    if args:
        chat.ask(args)


def study(app: App, args: str) -> None:
    app.chat.send(STUDY.format(what=args or "this project"))


def skills(app: App, args: str) -> None:
    runtime = app.runtime

    def show(infos: list[CommandInfo]) -> None:
        items = [MenuItem(info.name, info.description) for info in infos if info.kind == "skill"]
        if not items:
            app.note("there are no skills here; docs/skills.md says where they go")
            return
        app.dialogs.choose("Skills", items, lambda name: app.editor.set(f"/{name} "))

    app.work(runtime.commands.all, show)


def reload_ext(app: App, args: str) -> None:
    runtime = app.runtime

    def show(states: list[ExtensionState]) -> None:
        for state in states:
            text = f"{state.name}: {state.error or state.state}"
            app.note(text, "error" if state.error else "info")
        if not states:
            app.note("there are no extensions")

    app.work(runtime.commands.reload_extensions, show)


def approvals(app: App, args: str) -> None:
    """List what runs without approval; picking an entry revokes it."""

    def items() -> list[MenuItem]:
        return [MenuItem(rule.tool, rule.pattern, rule) for rule in app.runtime.approvals.rules()]

    def remove(value: Rule) -> None:
        app.runtime.approvals.remove_rule(value.tool, value.pattern)
        if left := items():
            menu.replace(left)
        else:
            app.dialogs.close(menu)
        app.note(f"zot asks again before {value.tool} {value.pattern}")

    if not items():
        never = "approvals are off: zot asks for nothing"
        asks = "nothing is allowed for good here: zot asks before it writes or runs commands"
        app.note(never if app.runtime.approvals.mode == "yolo" else asks)
        return
    hint = "enter takes it back, esc leaves"
    menu = app.dialogs.choose("Allowed without a question", items(), remove, stays=True, hint=hint)


def settings(app: App, args: str) -> None:
    """List settings and their sources; picking one changes it in the user's file."""
    home, cwd = app.around.home, app.runtime.cwd
    read = config.read_configuration(Options(), app.around.environ, cwd, home)
    items = []
    for name, value in read.values.items():
        label = f"{name} = {text}" if (text := as_text(value.value)) else name
        source = "" if value.source == "default" else f" (from {value.source})"
        items.append(MenuItem(label, f"{SETTINGS[name].help}{source}", name))

    def pick(name: object) -> None:
        setting = SETTINGS[str(name)]

        def keep(text: str) -> None:
            try:
                value = from_text(setting, text) if text else None
            except ValueError as error:
                raise ConfigError(f"{setting.name} {error}") from error
            keep_setting(app, setting.name, value)
            app.note(f"{setting.name} is kept; it counts from the next start on")

        app.dialogs.ask_text(
            f"{setting.name}:", as_text(read.values[setting.name].value), keep, setting.help
        )

    app.dialogs.choose("Settings", items, pick)


def keep_setting(app: App, name: str, value: object) -> None:
    """Write a setting to the user's file; None restores the default."""

    def edit(values: dict[str, object]) -> None:
        values.pop(name, None)
        if value is not None:
            values[name] = value

    config.change(config.user_path(app.around.home), edit)


def statusline(app: App, args: str) -> None:
    """Change the parts of the status line, at once and permanently."""

    def keep(text: str) -> None:
        words = tuple(text.replace(",", " ").split())
        parts = checked_parts(words) if words else DEFAULT_PARTS
        keep_setting(app, "status_line", list(words) or None)
        app.status.use_parts(parts)

    if args:
        keep(args)
        return
    names = f"{', '.join(PARTS)}; {RIGHT}: what follows stands on the right; {OFF}: no such line"
    app.dialogs.ask_text("Status line:", " ".join(app.status.parts) or OFF, keep, names)


def cd(app: App, args: str) -> None:
    if not args:
        app.note(app.runtime.cwd)
        return
    path = _folder(app, args)
    app.note(f"working in {path}")
    app.load(cwd=path)


def _folder(app: App, args: str) -> str:
    path = (Path(app.runtime.cwd) / Path(args).expanduser()).resolve()
    if not path.is_dir():
        raise CommandError(f"{args!r} is not a directory")
    return str(path)
