"""Approval rules of a project: which calls they allow or deny, and which rule to offer.

A rule for commands is an exact text, or words followed by ` *` for any further words. A command is
parsed by bash's grammar; it is allowed if each simple command in it reads only, or has a rule, and
each redirection writes a file that a rule for `write` covers. `git log *` does not allow
`git log; rm -r .`. Programs that run others, destroy or overwrite get rules for exact texts only.
"""

from __future__ import annotations

import fnmatch
import os
import re
from collections.abc import Iterable, Sequence

from zot.core.hook import ANY, Project, Rule
from zot.provider.types import ToolCall
from zot.runtime import programs
from zot.runtime.grammar import WRITES, Redirection, Simple, parsed
from zot.runtime.inside import Place, Step, is_inside, steps
from zot.runtime.readers import assigns_harmless, may_become_option, only_reads, stays_inside
from zot.text import Frozen, compiled

PLAIN_WORD = r"[A-Za-z0-9_./:@+,=-]+"
"""A word of a pattern; bash does not expand it."""


class Judge(Frozen):
    """Applies rules to the calls of a project."""

    project: Project

    def offered(self, call: ToolCall, rules: Sequence[Rule] = ()) -> Rule | None:
        """Return the rule most likely meant by "always here"; None: no rule would cover only this.

        `rules`: the present ones; a rule is offered for the part of a command that lacks one.
        """
        match call.name, call.args or {}:
            case "bash", {"command": str(command)}:
                pattern = _command_pattern(command, self.project, rules)
                return None if pattern is None else Rule("bash", pattern)
            case "write" | "edit", {"path": str(path)}:
                pattern = _path_pattern(path, self.project.cwd)
                return None if pattern == ANY else Rule("write", pattern)
            case _:
                return Rule(call.name, ANY)

    def allowed(self, call: ToolCall, rules: Sequence[Rule]) -> bool:
        """Whether rules allow a call: none denies it, and for each part there is one."""
        given = [rule for rule in rules if not rule.deny]
        if self.denying(call, rules) is not None:
            return False
        match call.name, call.args or {}:
            case "bash", {"command": str(command)}:
                return _allows_command(command, self.project, given)
            case "write" | "edit", {"path": str(path)}:
                return _allows_write(given, path, self.project.cwd)
            case _:
                return Rule(call.name, ANY) in given

    def reads(self, call: ToolCall) -> bool:
        """Whether a call is a command that only reads files of the project."""
        match call.name, call.args or {}:
            case "bash", {"command": str(command)}:
                found = _steps(command, self.project)
                return bool(found) and all(
                    only_reads(step.command, step.place) and _redirects(step, (), self.project.cwd)
                    for step in found or ()
                )
            case _:
                return False

    def edits_project(self, call: ToolCall) -> bool:
        """Whether a call writes a file of the project that is not hidden: programs obey many files
        whose path has a part that begins with a dot."""
        path = (call.args or {}).get("path")
        if call.name not in ("write", "edit") or not isinstance(path, str):
            return False
        inside = _inside(path, self.project.cwd)
        return inside is not None and not any(part.startswith(".") for part in inside.split(os.sep))

    def denying(self, call: ToolCall, rules: Sequence[Rule]) -> Rule | None:
        """Return the first rule that denies a call."""
        denying = (rule for rule in rules if rule.deny)
        return next((rule for rule in denying if _denies(rule, call, self.project)), None)


# --- commands --------------------------------------------------------------------------------


def _start(project: Project) -> Place:
    root = os.path.realpath(project.cwd)
    return Place(project, root, (root,))


def _steps(command: str, project: Project) -> list[Step] | None:
    items = parsed(command)
    return None if items is None else steps(items, _start(project))


def _allows_command(command: str, project: Project, rules: Sequence[Rule]) -> bool:
    texts = [rule.pattern for rule in rules if rule.tool == "bash"]
    if ANY in texts or (command in texts and not _is_pattern(command)):
        return True
    found = _steps(command, project) or []
    needs_rule = [step for step in found if _has_rule(step, rules) or _writes(step)]
    return bool(needs_rule) and all(_allows_step(step, rules, project.cwd) for step in found)


def _allows_step(step: Step, rules: Sequence[Rule], cwd: str) -> bool:
    if not _redirects(step, rules, cwd):
        return False
    return _has_rule(step, rules) or only_reads(step.command, step.place, names=False)


def _has_rule(step: Step, rules: Sequence[Rule]) -> bool:
    return any(rule.tool == "bash" and _covers(rule.pattern, step) for rule in rules)


def _writes(step: Step) -> bool:
    return any(redirection.sign in WRITES for redirection in step.command.redirections)


def _redirects(step: Step, rules: Sequence[Rule], cwd: str) -> bool:
    """Whether all redirections stay in the project; one that writes needs a rule for `write`."""
    return all(_redirects_one(one, step.place, rules, cwd) for one in step.command.redirections)


def _redirects_one(one: Redirection, place: Place, rules: Sequence[Rule], cwd: str) -> bool:
    if one.sign not in (*WRITES, "<"):
        return True
    path = one.target.text
    if path == os.devnull:
        return True
    if one.target.glob or one.target.tilde:
        return False
    if one.sign == "<":
        return place.holds(path)
    full = (os.path.join(folder, path) for folder in place.here)
    return all(_allows_write(rules, target, cwd) for target in full)


def _covers(pattern: str, step: Step) -> bool:
    """Whether a rule covers a simple command, apart from its redirections."""
    if not _is_pattern(pattern):
        return pattern == step.command.text and _is_same_elsewhere(step)
    wanted, words = _pattern_words(pattern), step.command.words
    begin = [word.text for word in words[: len(wanted)] if not word.glob]
    if not wanted or begin != wanted or not assigns_harmless(step.command):
        return False
    if any(may_become_option(word.text, word.glob) for word in words):
        return False
    return not _is_known(wanted) or stays_inside(step.command, step.place)


def _is_same_elsewhere(step: Step) -> bool:
    """Whether an exact text means the same here as where it was allowed. Input that another command
    makes may be a program; another directory has other files to destroy, and other programs."""
    program = step.command.words[0].text
    depends = program in programs.REMOVERS or ("/" in program and not program.startswith("/"))
    return not step.is_fed and not (step.place.moved and depends)


def _command_pattern(command: str, project: Project, rules: Sequence[Rule]) -> str | None:
    """Return words and a star if any further words are as harmless, else the exact command."""
    found = _steps(command, project) or []
    given = [rule for rule in rules if not rule.deny]
    missing = [step for step in found if not _allows_step(step, given, project.cwd)]
    if len(found) == 1:
        missing = found  # it may be asked about though it only reads
    texts = {step.command.text for step in missing}
    if len(texts) == 1 and _redirects(missing[0], given, project.cwd):
        step = missing[0]
        begin = _offered_words([word.text for word in step.command.words])
        if begin and _covers(f"{begin} {ANY}", step):
            return f"{begin} {ANY}"
        text = step.command.text
        if len(found) > 1 and not step.place.moved and _covers(text, step):
            return text
    text = command.strip()
    return None if text == ANY or _is_pattern(text) else command


def _offered_words(words: list[str]) -> str:
    """Return the first words of a pattern for this command; empty: it gets no pattern."""
    two = " ".join(words[:2])
    if words[0] in programs.READERS.keys() - programs.RUNNERS | programs.PRINTERS | programs.MAKERS:
        return words[0]
    return two if two in programs.SUBCOMMANDS else ""


def _is_pattern(text: str) -> bool:
    """Whether this is words and a star; otherwise it is an exact text.

    A pattern does not cover the command of the same text, in which the star means names of files.
    """
    if not text.endswith(f" {ANY}"):
        return False
    return all(compiled(PLAIN_WORD).fullmatch(word) for word in text[:-1].split())


def _pattern_words(pattern: str) -> list[str]:
    """Return the words before the star; empty: with further words they could do anything."""
    words = pattern[: -len(ANY)].split()
    return [] if not words or _does_anything(words) else words


def _does_anything(words: list[str]) -> bool:
    """Whether further words could name another program to run, or a file to destroy."""
    program = os.path.basename(words[0])
    if "=" in words[0] or program in programs.RUNNERS | programs.REMOVERS:
        return True
    named = words[1:2] and not words[1].startswith("-")
    if program in programs.GROUPS and not named:
        return True
    return len(words) == 2 and f"{program} {words[1]}" in programs.RUNNING_GROUPS


def _is_known(wanted: list[str]) -> bool:
    """Whether zot knows the options and operands of what a pattern names."""
    return wanted[0] in programs.READERS | dict.fromkeys(programs.MAKERS) or wanted[0] == "git"


# --- deny ------------------------------------------------------------------------------------


def _denies(rule: Rule, call: ToolCall, project: Project) -> bool:
    match call.name, call.args or {}:
        case "bash", {"command": str(command)}:
            return _denies_command(rule, command, project)
        case "write" | "edit", {"path": str(path)}:
            return rule.tool == "write" and _denies_path(rule.pattern, path, project.cwd)
        case _:
            return rule.tool == call.name and rule.pattern == ANY


def _denies_command(rule: Rule, command: str, project: Project) -> bool:
    if rule.tool == "bash" and rule.pattern in (ANY, command, command.strip()):
        return True
    items = parsed(command)
    if items is None:
        return rule.tool == "bash" and _mentions(rule.pattern, command)
    simple = [item for item in items if isinstance(item, Simple)]
    if rule.tool == "bash":
        return any(_denies_simple(rule.pattern, item) for item in simple)
    if rule.tool != "write":
        return False
    writes = (one for item in simple for one in item.redirections if one.sign in WRITES)
    places = steps(items, _start(project)) or ()
    folders = {folder for step in places for folder in step.place.here} or {project.cwd}
    return any(
        _denies_path(rule.pattern, os.path.join(folder, one.target.text), project.cwd)
        for one in writes
        for folder in folders
    )


def _denies_simple(pattern: str, command: Simple) -> bool:
    """Whether a rule denies a simple command, or one that it runs: `sudo rm x` is `rm x`, too."""
    if not _is_pattern(pattern):
        return pattern == command.text
    wanted = pattern[: -len(ANY)].split()
    texts = [word.text for word in command.words]
    if os.path.basename(texts[0]) not in programs.RUNNERS:
        return _begins_with(texts, wanted)
    scripts = any(_mentions(pattern, text) for text in texts if " " in text)  # sh -c 'rm x'
    return scripts or any(_begins_with(texts[start:], wanted) for start in range(len(texts)))


def _begins_with(words: list[str], wanted: list[str]) -> bool:
    """Whether these are the program and its first words; options may stand between."""
    if os.path.basename(words[0]) != os.path.basename(wanted[0]):
        return False
    named = [word for word in words[1:] if not word.startswith("-")]
    rest = wanted[1:]
    return any(
        words[1 : 1 + len(rest)] == rest or named[at : at + len(rest)] == rest for at in (0, 1)
    )


def _mentions(pattern: str, command: str) -> bool:
    """Whether all words of a rule stand in a command that is more than words: it may run them."""
    wanted = pattern.removesuffix(ANY).split()
    return all(re.search(rf"(?<![\w.-]){re.escape(word)}(?![\w.-])", command) for word in wanted)


def _denies_path(pattern: str, path: str, cwd: str) -> bool:
    real = _real(path, cwd)
    inside = _inside(path, cwd)
    names = [real, os.path.basename(real), *([] if inside is None else [inside])]
    return any(fnmatch.fnmatchcase(name, pattern) for name in names)


# --- paths -----------------------------------------------------------------------------------


def _path_pattern(path: str, cwd: str) -> str:
    inside = _inside(path, cwd)
    if inside is None:
        return _real(path, cwd)
    folder = os.path.dirname(inside)
    return f"{folder}/{ANY}" if folder else inside


def _allows_write(rules: Iterable[Rule], path: str, cwd: str) -> bool:
    return any(rule.tool == "write" and _covers_path(rule.pattern, path, cwd) for rule in rules)


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
    return os.path.relpath(real, root) if is_inside(real, root) and real != root else None


def _real(path: str, cwd: str) -> str:
    return os.path.realpath(os.path.join(cwd, os.path.expanduser(path)))
