"""Slash commands: a table of names and functions, which get the rest of the line.

Other names may be commands of an extension, a skill or a prompt file: the runtime knows those. Text
that cannot be a command, such as a path, is sent as a prompt.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from msgspec import Struct

from zot.core.source import CommandInfo, CommandResult
from zot.errors import ZotError
from zot.serve.interactive.slash import known, models, sessions, work
from zot.tui.blocks import RowsBlock

if TYPE_CHECKING:
    from zot.serve.interactive.app import App


class SlashCommand(Struct, frozen=True):
    name: str
    help: str
    run: Callable[[App, str], object]
    """Gets the app and the rest of the line."""
    args: str = ""
    """Arguments, for the help."""
    stops: bool = False
    """Stop the turn first."""


def help_(app: App, args: str) -> None:
    """Show built-in commands at once; those of extensions, skills and prompt files once known."""
    if app.view is None:
        raise ZotError("the agent is not ready yet")
    rows = [(f"/{own.name} {own.args}".rstrip(), own.help) for own in COMMANDS.values()]
    app.show(RowsBlock("Commands", rows))
    app.show(RowsBlock("Keys", KEYS))

    def show_others(infos: list[CommandInfo]) -> None:
        rows = [(f"/{info.name}", info.description) for info in infos]
        if rows:
            app.show(RowsBlock("From extensions, skills and prompt files", rows))

    if app.built is not None:
        app.work(app.built.commands.all, show_others)


def clear(app: App, args: str) -> None:
    app.runtime.sessions.clear()
    app.note("the conversation is empty; what was said stays above")
    app.refresh_status()


def new(app: App, args: str) -> None:
    app.runtime.sessions.new()
    app.note("a new session")
    app.refresh_status()


def swarm(app: App, args: str) -> None:
    from zot.serve.interactive.slash import swarm as room

    room.swarm(app, args)


COMMANDS = {
    command.name: command
    for command in (
        SlashCommand("help", "commands and keys", help_),
        SlashCommand("login", "keep a key, or log in", models.log_in, "[PROVIDER]"),
        SlashCommand("logout", "forget a login", models.logout, "[PROVIDER]"),
        SlashCommand("model", "go on with another model", models.model, "[ID]"),
        SlashCommand("llama", "models on this machine", models.local, "[NAME]"),
        SlashCommand("reasoning", "how much to think", models.reasoning, "[LEVEL]"),
        SlashCommand(
            "retry", "answer the last prompt once more", lambda app, _: app.work(app.runtime.retry)
        ),
        SlashCommand("new", "begin a new session", new, stops=True),
        SlashCommand("sessions", "go on with another session", sessions.sessions, "[SEARCH]"),
        SlashCommand(
            "session",
            "export, import, fork, tree, timeline, rename",
            sessions.session,
            "[WHAT]",
        ),
        SlashCommand("rewind", "go back to an earlier prompt", sessions.rewind, stops=True),
        SlashCommand(
            "undo",
            "go back to before the last prompt",
            lambda app, _: sessions.look_back(app, ""),
            stops=True,
        ),
        SlashCommand("diff", "what this session changed in files", sessions.diff, "[PATH]"),
        SlashCommand("jump", "show an earlier turn again", sessions.jump, "[TEXT]"),
        SlashCommand("btw", "a chat on the side, which is forgotten", work.btw, "[QUESTION]"),
        SlashCommand("copy", "an answer, a code block, the diff", work.copy, "[answer|code|diff]"),
        SlashCommand(
            "compact",
            "summarise what was said so far",
            lambda app, hint: app.runtime.compact(hint),
            "[HINT]",
        ),
        SlashCommand("study", "get to know a project", work.study, "[PATH]"),
        SlashCommand("cost", "tokens and money of this session", work.cost),
        SlashCommand("context", "what fills the model's window", known.context),
        SlashCommand("theme", "choose colours", known.theme, "[NAME]"),
        SlashCommand("init", "write an AGENTS.md for this project", known.init, "[HINT]"),
        SlashCommand("memory", "edit what the model is always told", known.memory),
        SlashCommand("hooks", "what sees calls before they run", known.hooks),
        SlashCommand("export", "write the conversation to a file", known.export, "[FORMAT] [FILE]"),
        SlashCommand("vim", "vi's keys on or off", known.vim),
        SlashCommand("tools", "what the model can use", work.tools),
        SlashCommand("skills", "use a skill", work.skills),
        SlashCommand("mcp", "MCP servers and how they are", work.mcp),
        SlashCommand("ps", "commands in the background (ctrl+b moves one there)", work.ps),
        SlashCommand("mode", "ask, accept edits, plan, auto (shift+tab)", work.mode, "[NAME]"),
        SlashCommand("plan", "only read, and say what would be done", work.plan, "[PROMPT]"),
        SlashCommand("approvals", "what runs without a question", work.approvals),
        SlashCommand(
            "jail",
            "keep tools inside this directory",
            lambda app, words: work.set_jail(app, words or True),
            "[WORDS]",
            stops=True,
        ),
        SlashCommand(
            "unjail", "let them out", lambda app, _: work.set_jail(app, False), stops=True
        ),
        SlashCommand("reload-ext", "start extensions anew", work.reload_ext, stops=True),
        SlashCommand("settings", "see and change what is set", work.settings),
        SlashCommand("statusline", "what the last line says", work.statusline, "[PARTS]"),
        SlashCommand("cd", "work in another directory", work.cd, "[PATH]", stops=True),
        SlashCommand("swarm", "agents beside this conversation", swarm, "[new TASK|...]"),
        SlashCommand("clear", "empty the conversation", clear, stops=True),
        SlashCommand("exit", "leave", lambda app, _: app.exit()),
    )
}
ALIASES = {
    "quit": "exit", "?": "help", "local": "llama", "resume": "sessions", "config": "settings",
    "permissions": "approvals", "agents": "swarm", "usage": "cost", "checkpoint": "rewind",
    "effort": "reasoning", "models": "model", "plugins": "reload-ext", "tasks": "ps",
    "bashes": "ps", "shortcuts": "help",
}  # fmt: skip
"""Names of other agents for commands of ours."""
KEYS = (
    ("enter", "send; while zot works: after its turn (ctrl+s: as soon as it can hear it)"),
    ("ctrl+j, alt+enter", "a new line"),
    ("alt+up", "take the last waiting message back"),
    ("esc, ctrl+c", "stop the turn, or a !command; ctrl+c also clears the text, twice leaves"),
    ("shift+tab", "the next mode: ask, accept edits, plan, auto"),
    ("ctrl+b", "let the running command go on in the background; /ps lists them"),
    ("ctrl+d", "leave, when the text is empty"),
    ("ctrl+o, page up", "the pager: folded output, the whole transcript"),
    ("ctrl+r, ctrl+g", "search what was sent; write the text in your editor"),
    ("ctrl+v", "paste an image or text; files can be dropped, too"),
    ("@file", "name a file or directory"),
    ("!command", "run a shell command (!!command: the model does not see it)"),
)


def run_slash(app: App, text: str) -> None:
    """Run a slash command."""
    name, _, args = text[1:].partition(" ")
    name = name.strip().casefold()
    command = COMMANDS.get(ALIASES.get(name, name))
    if command is None:
        run_other(app, text)
        return
    if name in ALIASES:
        app.note(f"/{name} is /{command.name} here")
    if command.stops and app.built is not None and app.built.runs.busy:
        app.work(app.built.stop, lambda _: command.run(app, args.strip()))
    else:
        command.run(app, args.strip())


def run_other(app: App, text: str) -> None:
    """Run a command of an extension, a skill or a prompt file; send other text as a prompt."""
    runtime = app.runtime

    def then(result: CommandResult | None) -> None:
        if result is None:
            app.chat.send(text)  # a path, perhaps
            return
        match result.action:
            case "prompt":
                app.chat.send(result.text, result.call)
            case "insert":
                app.editor.insert(result.text)
            case "error":
                app.note(result.text, "error")
            case "display" | "noop" | "open_panel":
                pass  # reported by events
        app.refresh_status()

    def work() -> CommandResult | None:
        result = runtime.commands.run_typed(text)
        if result is None:
            runtime.commands.check_typed(text, COMMANDS)
        return result

    app.work(work, then)
