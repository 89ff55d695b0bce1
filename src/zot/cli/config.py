"""`zot config`: show and change settings. `zot approvals`: list and remove permanent approvals of
tool calls. Prints; decides nothing.
"""

from __future__ import annotations

import argparse
import os
from collections.abc import Callable, Sequence
from pathlib import Path

from zot.bugs import complain
from zot.cli.output import CWD, Subcommands, arg, flag, json_flag, say, say_either, say_json
from zot.core.hook import Rule
from zot.errors import ConfigError
from zot.home import home_dir
from zot.provider.types import Json
from zot.settings import config as files
from zot.settings import trust
from zot.settings.config import Configuration
from zot.settings.options import Options, as_text, from_text


def config(argv: Sequence[str]) -> int:
    project = flag("--project", help="use .zot/config.json of the project")
    name = arg("name", help="a setting; `zot config list` shows all")
    directory = arg("directory", nargs="?", default="", help="default: here")
    actions = Subcommands("config", "Show and change settings.")
    actions.parser.add(CWD)
    actions.add("get", _get, "print the value of a setting", name)
    actions.add("set", _set, "write a setting to the user's file", name, arg("value"), project)
    actions.add("unset", _unset, "remove a setting from the user's file", name, project)
    # fmt: off
    actions.add("list", _list, "list all settings, and the source of each value",
                json_flag("print one JSON object"))
    # fmt: on
    actions.add("path", _path, "print the path of the config file", project)
    actions.add("trust", _trust, "allow a project's files to change dangerous settings", directory)
    actions.add("untrust", _trust, "take that permission back", directory)
    return actions.run(argv[1:])


def _cwd(arguments: argparse.Namespace) -> str:
    return arguments.cwd or os.getcwd()  # noqa: PTH109  a plain string is wanted


def _configuration(arguments: argparse.Namespace) -> Configuration:
    read = files.read_configuration(Options(), os.environ, _cwd(arguments), home_dir(os.environ))
    for warning in read.warnings:
        complain(f"warning: {warning}")
    return read


def _file(arguments: argparse.Namespace) -> str:
    if arguments.project:
        return files.project_path(_cwd(arguments))
    return files.user_path(home_dir(os.environ))


def _get(arguments: argparse.Namespace) -> None:
    setting = files.find_setting(arguments.name)
    say(as_text(_configuration(arguments)[setting.name]))


def _set(arguments: argparse.Namespace) -> None:
    setting = files.find_setting(arguments.name)
    try:
        value = from_text(setting, arguments.value)
    except ValueError as error:
        raise ConfigError(f"{setting.name} {error}") from error
    _change(arguments, lambda values: values.update({setting.name: value}))


def _unset(arguments: argparse.Namespace) -> None:
    def edit(values: dict[str, Json]) -> None:
        if arguments.name not in values:
            files.find_setting(arguments.name)  # raises for an unknown name
        files.remove(values, arguments.name)

    _change(arguments, edit)


def _change(arguments: argparse.Namespace, edit: Callable[[dict[str, Json]], None]) -> None:
    files.change(_file(arguments), edit, _cwd(arguments) if arguments.project else None)


def _list(arguments: argparse.Namespace) -> None:
    read = _configuration(arguments)
    if arguments.json:
        say_json(read.values)
        return
    rows = [
        (name, as_text(value.value), value.source, value.where)
        for name, value in read.values.items()
    ]
    rows += [
        (name, as_text(value), "user", "not known here") for name, value in read.others.items()
    ]
    for name, shown, source, where in rows:
        say(f"{name:24} {shown:24} {source:12} {where}".rstrip())


def _path(arguments: argparse.Namespace) -> None:
    say(_file(arguments))


def _trust(arguments: argparse.Namespace) -> None:
    directory = arguments.directory or _cwd(arguments)
    if arguments.action == "trust":
        if not Path(directory).is_dir():
            raise ConfigError(f"cannot trust {directory!r}: it is not a directory")
        trust.trust(directory, home_dir(os.environ))
    else:
        trust.distrust(directory, home_dir(os.environ))


# --- zot approvals ---------------------------------------------------------------------------


def approvals(argv: Sequence[str]) -> int:
    actions = Subcommands(
        "approvals", "Tool calls that run without a question in a project, or never."
    )
    # fmt: off
    actions.add("list", _list_rules, "list the allowed and denied calls", CWD,
                flag("--all", help="of all projects"), json_flag())
    actions.add("remove", _remove_rule, "ask again from now on", CWD,
                arg("tool", help="bash, write, ...; as the list shows it"),
                arg("pattern", nargs="?", help="as the list shows it (default: all of the tool)"))
    # fmt: on
    return actions.run(argv[1:])


def _list_rules(options: argparse.Namespace) -> None:
    project = "" if options.all else os.path.realpath(options.cwd or ".")
    everything = trust.read_rules(trust.approvals_path(home_dir(os.environ)))
    allowed = {place: rules for place, rules in everything.items() if project in ("", place)}
    if not any(allowed.values()) and not options.json:
        complain(
            "nothing is allowed for good" + (" here; --all shows all projects" if project else "")
        )
    for place, rules in sorted(allowed.items()):
        for rule in rules:
            row = {"project": place, "tool": rule.tool, "pattern": rule.pattern}
            if rule.deny:
                row["decision"] = "deny"
            never = "    (denied)" if rule.deny else ""
            text = f"{rule.tool:<8} {rule.pattern}{never}" + ("" if project else f"    ({place})")
            say_either(options, row, text)


def _remove_rule(options: argparse.Namespace) -> None:
    rules = trust.ProjectRules(home_dir(os.environ), options.cwd or ".")
    tool, pattern = options.tool, options.pattern
    if pattern is None:
        doomed = [rule for rule in rules.all() if rule.tool == tool]
    else:
        doomed = [Rule(tool, pattern), Rule(tool, pattern, deny=True)]
    if not [rule for rule in doomed if rules.remove(rule)]:
        what = tool if pattern is None else f"{pattern!r} for {tool}"
        raise ConfigError(
            f"there is no approval of {what} here; `zot approvals list` shows what is allowed"
        )
