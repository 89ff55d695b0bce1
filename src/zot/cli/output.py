"""How subcommands print: what files, providers and extensions say is text, never a code that a
terminal obeys. What goes to a file or a program stays as it is.
"""

from __future__ import annotations

import sys
from argparse import ArgumentParser
from collections.abc import Sequence

import msgspec

from zot.text import for_terminal, whole_characters


def say(text: str = "") -> None:
    """A line, or several, on stdout."""
    sys.stdout.write(for_terminal(whole_characters(text)) + "\n")


def say_json(value: object, *, indent: bool = False) -> None:
    data = msgspec.json.encode(value)
    say((msgspec.json.format(data, indent=2) if indent else data).decode())


def run_chosen(parser: ArgumentParser, words: Sequence[str]) -> int:
    """Run the action that the words name; its exit code."""
    options = parser.parse_args(words)
    return int(options.run(options))


def asked(question: str) -> str:
    """What a person types after the question; empty where there is nobody."""
    sys.stderr.write(for_terminal(question, 2))
    sys.stderr.flush()
    return sys.stdin.readline().strip()


def agreed(question: str) -> bool:
    return asked(f"{question} [y/N] ").lower() in ("y", "yes")
