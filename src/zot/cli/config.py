"""`zot config`: show and change settings. Prints; decides nothing."""

from __future__ import annotations

import argparse
import os
from collections.abc import Callable, Sequence
from pathlib import Path

from zot.bugs import complain
from zot.cli.output import Subcommands, say, say_json
from zot.errors import ConfigError
from zot.home import home_dir
from zot.provider.types import Json
from zot.settings import config, trust
from zot.settings.config import Configuration
from zot.settings.options import Options, as_text, from_text


def main(argv: Sequence[str]) -> int:
    actions = Subcommands("config", "Look at settings, and change them.")
    actions.parser.add_argument("--cwd", default="", help="the project's directory (default: here)")
    actions.add("get", _get, "print the value of a setting").add_argument("name")
    put = actions.add("set", _set, "write a setting to the user's file")
    put.add_argument("name")
    put.add_argument("value")
    unset = actions.add("unset", _unset, "remove a setting from the user's file")
    unset.add_argument("name")
    actions.add("list", _list, "all settings, and where each value comes from", json="as JSON")
    path = actions.add("path", _path, "print the path of the config file")
    for action in (put, unset, path):
        action.add_argument("--project", action="store_true", help="that is .zot/config.json")
    for word, text in (("trust", "let a directory's files"), ("untrust", "no longer let them")):
        action = actions.add(word, _trust, f"{text} set what is dangerous")
        action.add_argument("directory", nargs="?", default="")
    return actions.run(argv[1:])


def _cwd(arguments: argparse.Namespace) -> str:
    return arguments.cwd or os.getcwd()  # noqa: PTH109  a plain string is wanted


def _configuration(arguments: argparse.Namespace) -> Configuration:
    read = config.read_configuration(Options(), os.environ, _cwd(arguments), home_dir(os.environ))
    for warning in read.warnings:
        complain(f"warning: {warning}")
    return read


def _file(arguments: argparse.Namespace) -> str:
    if arguments.project:
        return config.project_path(_cwd(arguments))
    return config.user_path(home_dir(os.environ))


def _get(arguments: argparse.Namespace) -> None:
    setting = config.find_setting(arguments.name)
    say(as_text(_configuration(arguments)[setting.name]))


def _set(arguments: argparse.Namespace) -> None:
    setting = config.find_setting(arguments.name)
    try:
        value = from_text(setting, arguments.value)
    except ValueError as error:
        raise ConfigError(f"{setting.name} {error}") from error
    _change(arguments, lambda values: values.update({setting.name: value}))


def _unset(arguments: argparse.Namespace) -> None:
    def edit(values: dict[str, Json]) -> None:
        if arguments.name not in values:
            config.find_setting(arguments.name)  # raises for an unknown name
        config.remove(values, arguments.name)

    _change(arguments, edit)


def _change(arguments: argparse.Namespace, edit: Callable[[dict[str, Json]], None]) -> None:
    config.change(_file(arguments), edit, _cwd(arguments) if arguments.project else None)


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
