"""`zot mcp`: add, list, test, trust and remove MCP servers. Prints only; the work is done in
`zot.mcp`.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterable, Sequence
from textwrap import indent

import msgspec

from zot.bugs import complain
from zot.cli.output import CWD, Subcommands, arg, flag, json_flag, open_in_browser, say, say_json
from zot.errors import ConfigError, UsageError
from zot.home import of_process
from zot.mcp.config import PROJECT_FILE
from zot.mcp.examine import ConfiguredServers
from zot.mcp.protocol import first_line
from zot.provider.types import Json
from zot.settings.known import Known
from zot.settings.trust import is_trusted


def main(argv: Sequence[str]) -> int:
    words = list(argv[1:])
    program: list[str] = []
    if "--" in words:
        at = words.index("--")
        words, program = words[:at], words[at + 1 :]
    actions = _actions()
    actions.parser.set_defaults(program=program)
    return actions.run(words)


def _actions() -> Subcommands:
    actions = Subcommands("mcp", "MCP servers: programs and web services that bring tools.")
    add, name = actions.add, arg("name")
    # fmt: off
    add("add", _add, "add a server: zot mcp add NAME -- COMMAND ARGS...", CWD, name,
        arg("words", nargs="*", default=[], help=argparse.SUPPRESS),
        arg("--url", default="", help="address of an HTTP server"),
        arg("--env", action="append", default=[], metavar="NAME=VALUE", help="may be ${VARIABLE}"),
        arg("--header", action="append", default=[], metavar="NAME: VALUE", help="with --url"),
        flag("--project", help=f"write to {PROJECT_FILE}, for everybody"),
        flag("--trust", help="run tools that only read without asking"),
        usage="zot mcp add [FLAGS] NAME (-- COMMAND ARGS... | --url URL)")
    add("list", _list, "list the configured servers; starts none", CWD, json_flag())
    add("test", _test, "start a server and show its tools", CWD, name, json_flag("print JSON"))
    add("trust", _trust, "let a project's server start, and accept its tools as they are", CWD,
        name, arg("--hints", action=argparse.BooleanOptionalAction,
            help="trust its hints which tools only read: they run without asking"))
    add("login", _login, "log in to an HTTP server with the browser", CWD, name)
    add("logout", _logout, "delete the login to a server", CWD, name)
    add("remove", _remove, "remove a server from the configuration", CWD, name,
        flag("--project", help=f"from {PROJECT_FILE}"), aliases=("rm",))
    # fmt: on
    return actions


def _servers(arguments: argparse.Namespace) -> ConfiguredServers:
    around = of_process()
    cwd = around.absolute(arguments.cwd)
    keys = Known(around.home).key_variables(around.environ)
    return ConfiguredServers(around, cwd, keys, trusted=is_trusted(cwd, around.home))


def _add(arguments: argparse.Namespace) -> None:
    if words := arguments.words:
        raise UsageError(
            f"put -- before the program: zot mcp add {arguments.name} -- {' '.join(words)}"
        )
    if bool(arguments.url) == bool(arguments.program):
        raise UsageError(
            "give either a program (zot mcp add NAME -- COMMAND ARGS...) or an address (--url URL)"
        )
    if arguments.env and arguments.url:
        raise UsageError("--env sets variables of a program; with --url, use --header")
    if arguments.header and arguments.program:
        raise UsageError("--header goes with --url; for a program, use --env")
    entry: dict[str, Json] = {}
    if arguments.url:
        entry = {"type": "http", "url": arguments.url}
    else:
        entry = {"command": arguments.program[0], "args": arguments.program[1:]}
    entry |= {
        field: value
        for field, value in (
            ("env", _pairs(arguments.env, "=", "--env")),
            ("headers", _pairs(arguments.header, ":", "--header")),
            ("trust", arguments.trust),
        )
        if value
    }
    servers = _servers(arguments)
    server = servers.add(arguments.name, entry, project=arguments.project)
    path = servers.path(project=arguments.project)
    say(f"added {server.name} to {path}; `zot mcp test {server.name}` tries it")


def _pairs(words: Iterable[str], mark: str, flag: str) -> dict[str, str]:
    pairs = {}
    for word in words:
        name, equals, value = word.partition(mark)
        if not equals or not name.strip():
            raise UsageError(f"{flag} {word!r}: give NAME{mark}VALUE")
        pairs[name.strip()] = value.strip()
    return pairs


def _list(arguments: argparse.Namespace) -> int:
    servers = _servers(arguments)
    for server in servers.servers:
        state, config = server.state, server.config
        if arguments.json:
            row = {
                **msgspec.to_builtins(state),
                "command": [config.command, *config.args] if config.command else [],
                "url": config.url,
            }
            say_json(row)
            continue
        known = f"{state.tools} tools" if server.listed is not None else "not tried yet"
        where = config.url or " ".join([config.command, *config.args])
        say(f"{server.name} [{state.origin}, {state.state}, {known}]\n    {where}")
        if state.changed:
            say(f"    changed, and off: {', '.join(state.changed)}")
    if not servers.servers and not arguments.json:
        complain("no MCP servers; add one: zot mcp add NAME -- COMMAND ARGS...")
    for text in (*servers.problems, servers.hint):
        if text:
            complain(text)
    return 1 if servers.problems else 0


def _test(arguments: argparse.Namespace) -> None:
    servers = _servers(arguments)
    _check_directory(servers, arguments)
    seen = servers.examine(arguments.name)
    listed = seen.listed
    if arguments.json:
        say_json(seen)
        return
    say(f"{arguments.name}: MCP {seen.version} ({listed.era}), {seen.seconds:.1f} s")
    changed = {tool.name for tool in seen.changed}
    for tool in listed.tools:
        marks = [mark for mark, on in (("reads only", tool.reads_only),) if on]
        marks += ["changed, and off until you agree"] if tool.name in changed else []
        note = f" ({', '.join(marks)})" if marks else ""
        text = tool.description if tool.name in changed else first_line(tool.description)
        say(f"  {tool.name}{note}: {text}")
    for problem in listed.dropped:
        say(f"  left out: {problem}")
    if listed.prompts:
        say(f"  prompts: {', '.join(prompt.name for prompt in listed.prompts)}")
    if listed.has_resources:
        say("  has resources")
    if listed.instructions:
        note = " (changed, and off until you agree)" if seen.instructions_changed else ""
        say(f"  instructions{note}:\n{indent(listed.instructions, '    ')}")


def _trust(arguments: argparse.Namespace) -> None:
    servers = _servers(arguments)
    _check_directory(servers, arguments)
    before = servers.find(arguments.name).state.changed
    server = servers.trust(arguments.name, hints=arguments.hints)
    say(f"trusted: {server.name}: {server.config.shown}")
    if before:
        say(f"agreed to: {', '.join(before)}")


def _check_directory(servers: ConfiguredServers, arguments: argparse.Namespace) -> None:
    """Raise if the server may be missing because its project is not trusted."""
    known = any(server.name == arguments.name for server in servers.servers)
    if servers.hint and not known:
        raise ConfigError(f"you have no MCP server {arguments.name!r}, and {servers.hint}")


def _login(arguments: argparse.Namespace) -> None:
    shown: list[str] = []

    def show(url: str) -> None:
        shown.append(url)
        open_in_browser(url)

    seen = _servers(arguments).log_in(arguments.name, show)
    said = f"logged in to {arguments.name}" if shown else f"{arguments.name} wants no login"
    say(f"{said}: {len(seen.listed.tools)} tools")


def _logout(arguments: argparse.Namespace) -> None:
    if not _servers(arguments).log_out(arguments.name):
        raise ConfigError(f"there is no login to {arguments.name!r}; see `zot mcp list`")
    say(f"logged out of {arguments.name}")


def _remove(arguments: argparse.Namespace) -> None:
    _servers(arguments).remove(arguments.name, project=arguments.project)
    say(f"removed {arguments.name}")
