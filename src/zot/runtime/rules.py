"""Approval rules of a project: which calls a rule covers, and which rule to offer.

A rule for commands is an exact text, or words followed by ` *` for any further words. The latter
covers only commands in which bash sees nothing but plain words: `git log *` does not cover
`git log; rm -r .`. Words are split as bash splits them; shell syntax is never covered.
"""

from __future__ import annotations

import os
import re

from zot.core.hook import Rule
from zot.provider.types import ToolCall
from zot.runtime import programs
from zot.text import compiled

ANY = "*"
SHELL_SIGNS = r"[;&|<>$`\\(){}]"
"""Characters that make a command more than one program with arguments. Unprintable characters (line
ends, controls, blanks other than space and tab) count as such, too."""
BLANKS = r"[ \t]+"
"""Separators of words in bash, in every locale."""
PLAIN_WORD = r"[A-Za-z0-9_./:@+,=-]+"
"""A word of a pattern; bash does not expand it."""


def offered(call: ToolCall, cwd: str) -> Rule | None:
    """Return the rule most likely meant by "always here"; None: no rule would cover only this."""
    args = call.args or {}
    match call.name, args:
        case "bash", {"command": str(command)}:
            pattern = _command_pattern(command)
            return None if pattern is None else Rule("bash", pattern)
        case "write" | "edit", {"path": str(path)}:
            pattern = _path_pattern(path, cwd)
            return None if pattern == ANY else Rule("write", pattern)
        case _:
            return Rule(call.name, ANY)


def covers(rule: Rule, call: ToolCall, cwd: str) -> bool:
    args = call.args or {}
    match call.name, args:
        case "bash", {"command": str(command)}:
            return rule.tool == "bash" and _covers_command(rule.pattern, command)
        case "write" | "edit", {"path": str(path)}:
            return rule.tool == "write" and _covers_path(rule.pattern, path, cwd)
        case _:
            return rule == Rule(call.name, ANY)


def _command_pattern(command: str) -> str | None:
    """Return words and a star if any further words are as harmless, else the exact command."""
    begin = _offered_words(_plain_words(command) or [])
    if begin:
        return f"{begin} {ANY}"
    text = command.strip()
    return None if text == ANY or _pattern_words(text) is not None else command


def _offered_words(words: list[str]) -> str:
    """Return the first words of a pattern for this command; empty: it gets no pattern."""
    two, rest = " ".join(words[:2]), words[2:]
    if words and words[0] in programs.READERS | programs.MAKERS:
        begin = words[0]
    elif two in programs.SUBCOMMANDS or (words[1:] and _names_task(words[0], words[1])):
        begin = two
    elif two in programs.TASKS and rest and _is_name(rest[0]):
        begin = f"{two} {rest[0]}"
    else:
        return ""
    return begin if _covers_command(f"{begin} {ANY}", " ".join(words)) else ""


def _names_task(program: str, word: str) -> bool:
    if program in programs.SCRIPTS:
        return _is_name(word) and "." in word
    return program in programs.TASKS and _is_name(word) and "=" not in word


def _is_name(word: str) -> bool:
    return bool(compiled(PLAIN_WORD).fullmatch(word)) and not word.startswith("-")


def _covers_command(pattern: str, command: str) -> bool:
    if pattern in (command, ANY):
        return True
    wanted, words = _pattern_words(pattern), _plain_words(command)
    if wanted is None or words is None or words[: len(wanted)] != wanted:
        return False
    return not (wanted[0] == "git" and any(_names_output(word) for word in words))


def _pattern_words(pattern: str) -> list[str] | None:
    """Return the words before the star; None: this is an exact text, not a pattern.

    Programs that run others get no pattern: it would allow everything.
    """
    if not pattern.endswith(f" {ANY}"):
        return None
    words = _plain_words(pattern[: -len(ANY)])
    if words is None or not all(compiled(PLAIN_WORD).fullmatch(word) for word in words):
        return None
    return None if _runs_others(words) else words


def _runs_others(words: list[str]) -> bool:
    """Whether further words could name another program to run."""
    program = os.path.basename(words[0])
    if "=" in words[0] or program in programs.RUNNERS:
        return True
    named = words[1:2] and not words[1].startswith("-")
    if program in programs.GROUPS and not named:
        return True
    return len(words) == 2 and f"{program} {words[1]}" in programs.RUNNING_GROUPS


def _plain_words(command: str) -> list[str] | None:
    """Return the words of a command as bash sees them; None: it is empty, or more than words."""
    if not command.replace("\t", " ").isprintable() or compiled(SHELL_SIGNS).search(command):
        return None
    text = command.strip(" \t")
    return re.split(BLANKS, text) if text else None


def _names_output(word: str) -> bool:
    """Whether this is git's `--output` option, perhaps abbreviated, which writes a file."""
    return word.replace('"', "").replace("'", "").startswith("--ou")


def _path_pattern(path: str, cwd: str) -> str:
    inside = _inside(path, cwd)
    if inside is None:
        return _real(path, cwd)
    folder = os.path.dirname(inside)
    return f"{folder}/{ANY}" if folder else inside


def _covers_path(pattern: str, path: str, cwd: str) -> bool:
    inside = _inside(path, cwd)
    if inside is None:
        return pattern == _real(path, cwd)
    if pattern == ANY:
        return True
    if pattern.endswith(f"/{ANY}"):
        return inside.startswith(pattern[:-1])
    return inside == pattern


def _inside(path: str, cwd: str) -> str | None:
    """Return the path relative to the project, links resolved; None: it is outside."""
    root = os.path.realpath(cwd)
    real = _real(path, cwd)
    return os.path.relpath(real, root) if real.startswith(root.rstrip(os.sep) + os.sep) else None


def _real(path: str, cwd: str) -> str:
    return os.path.realpath(os.path.join(cwd, os.path.expanduser(path)))
