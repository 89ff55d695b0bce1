"""Shared by subcommands: argument parsing and printing. Text from files, providers and extensions
cannot control the terminal; output to a file or a program stays as it is.
"""

from __future__ import annotations

import os
import sys
from argparse import ArgumentParser, Namespace
from collections.abc import Sequence
from typing import Any, Self

import msgspec

from zot.text import Frozen, for_terminal, whole_characters


class PlainParser(ArgumentParser):
    """A parser whose help has no colours in any Python version or terminal."""

    def __init__(self, **settings: Any) -> None:
        super().__init__(**settings)
        self.color = False

    def add(self, *arguments: Argument) -> Self:
        for argument in arguments:
            self.add_argument(*argument.names, **argument.settings)
        return self


class Argument(Frozen):
    """One argument of a command, as argparse takes it."""

    names: tuple[str, ...]
    settings: dict[str, Any]


def arg(*names: str, **settings: Any) -> Argument:
    return Argument(names, settings)


def flag(*names: str, help: str) -> Argument:
    return Argument(names, {"action": "store_true", "help": help})


def json_flag(help: str = "print one JSON object a line") -> Argument:
    return flag("--json", help=help)


CWD = arg("--cwd", default="", help="the project's directory (default: here)")
YES = flag("-y", "--yes", help="do not ask")


class Subcommands:
    """The actions that may follow `zot NAME`, each with its function and arguments."""

    def __init__(self, name: str, description: str, **more: Any) -> None:
        self.parser = PlainParser(prog=f"zot {name}", description=description, **more)
        self._actions = self.parser.add_subparsers(dest="action", required=True, metavar="COMMAND")

    def add(
        self,
        word: str,
        run: object,
        help: str,
        *arguments: Argument,
        aliases: Sequence[str] = (),
        usage: str | None = None,
    ) -> PlainParser:
        """Add an action. `run` gets the options and returns the exit code, or None for 0."""
        action: PlainParser = self._actions.add_parser(
            word, help=help, description=help, aliases=aliases, usage=usage
        )
        action.set_defaults(run=run)
        return action.add(*arguments)

    def run(self, words: Sequence[str]) -> int:
        options = self.parser.parse_args(words)
        return int(options.run(options) or 0)


def say(text: str = "") -> None:
    """Print one or more lines to stdout."""
    sys.stdout.write(for_terminal(whole_characters(text)) + "\n")


def say_now(text: str) -> None:
    """Print and flush; for text that is followed by a wait."""
    say(text)
    sys.stdout.flush()


def say_json(value: object, *, indent: bool = False) -> None:
    data = msgspec.json.encode(value)
    say((msgspec.json.format(data, indent=2) if indent else data).decode())


def say_either(options: Namespace, value: object, text: str, *, indent: bool = False) -> None:
    """Print the value as JSON with --json, else the text."""
    if options.json:
        say_json(value, indent=indent)
    else:
        say(text)


def say_table(rows: Sequence[Sequence[str]]) -> None:
    """Print aligned columns; the first row has the headings."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    for number, row in enumerate(rows):
        cells = (cell.ljust(width) for cell, width in zip(row, widths, strict=True))
        line = for_terminal(whole_characters("  ".join(cells).rstrip()))
        sys.stdout.write((line if number else coloured(line, "2")) + "\n")


def coloured(text: str, code: str) -> str:
    """Return the text in this colour if stdout is a terminal and NO_COLOR is not set."""
    if not sys.stdout.isatty() or os.environ.get("NO_COLOR"):
        return text
    return f"\033[{code}m{text}\033[0m"


def open_in_browser(url: str) -> None:
    say_now(f"open this address if your browser does not:\n\n  {url}\n")
    import webbrowser

    webbrowser.open(url)


def asked(question: str) -> str:
    """Prompt on stderr and return the line typed; empty at end of input."""
    sys.stderr.write(for_terminal(question, 2))
    sys.stderr.flush()
    return sys.stdin.readline().strip()


def agreed(question: str) -> bool:
    return asked(f"{question} [y/N] ").lower() in ("y", "yes")
