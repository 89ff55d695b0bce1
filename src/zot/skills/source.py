"""Skills and prompt files as sources: a tool for the model, and commands for a person to type."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import TYPE_CHECKING

from zot.cancel import Cancel
from zot.core.source import CommandInfo, CommandResult, ReadySource
from zot.core.tool import Tool
from zot.errors import NotFoundError
from zot.files import StrPath, read_own
from zot.skills import skill as skills
from zot.skills.skill import Skill, SkillFolder, SkillTool
from zot.text import Frozen, compiled

if TYPE_CHECKING:
    from re import Match

PREFIX = "skill:"
_PLACE = r"\$(ARGUMENTS|[1-9])"


class SkillSource(ReadySource):
    """The commands `/skill:name`, and the tool with which the model reads a skill, if `offered`."""

    name = "skills"
    instant = True
    prefix = PREFIX

    def __init__(self, known: Sequence[Skill], *, offered: bool) -> None:
        self._skills = known
        self._tools: tuple[Tool, ...] = (SkillTool(known),) if known and offered else ()

    def tools(self) -> Sequence[Tool]:
        return self._tools

    def commands(self, cancel: Cancel | None = None) -> Sequence[CommandInfo]:
        return [
            CommandInfo(PREFIX + skill.name, skill.description, "", "skill", skill.path)
            for skill in self._skills
        ]

    def run_command(self, name: str, args: str, cancel: Cancel | None = None) -> CommandResult:
        """Return the skill's text as a prompt. Raises ToolError when there is no such skill."""
        text = skills.shown(skills.named(name.removeprefix(PREFIX), self._skills))
        return CommandResult("", "prompt", f"{text}\n\n---\n\n{args}" if args else text)


class PromptFile(Frozen):
    name: str
    description: str
    text: str
    path: str


class PromptSource(ReadySource):
    """`/name args`: prompt files `prompts/NAME.md`, with `$1` to `$9` and `$ARGUMENTS`."""

    name = "prompts"
    instant = True
    prefix = ""

    def __init__(self, folders: Sequence[SkillFolder]) -> None:
        """The first file of a name wins. Files are read when a command is first needed."""
        self._folders = folders
        self._files: dict[str, PromptFile] | None = None

    def tools(self) -> Sequence[Tool]:
        return ()

    def commands(self, cancel: Cancel | None = None) -> Sequence[CommandInfo]:
        return [
            CommandInfo(file.name, file.description, "", "prompt", file.path)
            for file in self._read().values()
        ]

    def run_command(self, name: str, args: str, cancel: Cancel | None = None) -> CommandResult:
        file = self._read().get(name)
        if file is None:
            raise NotFoundError(f"there is no prompt file {name!r}")
        return CommandResult("", "prompt", filled(file.text, args))

    def _read(self) -> dict[str, PromptFile]:
        if self._files is None:
            files: dict[str, PromptFile] = {}
            for folder in self._folders:
                left = skills.MAX_FOLDER_BYTES
                for path in _markdown_in(folder.path)[: skills.MAX_FOLDER_FILES]:
                    file = read_prompt(path, folder.inside)
                    left -= len(file.text)
                    if left < 0:
                        break
                    files.setdefault(file.name, file)
            self._files = files
        return self._files


def read_prompt(path: StrPath, inside: StrPath | None = None) -> PromptFile:
    """Read a prompt as far as its file allows; invalid front matter is part of the text."""
    try:
        text = read_own(path, inside, skills.MAX_BYTES)[: skills.MAX_BYTES].decode(
            "utf-8", "replace"
        )
    except OSError:
        text = ""
    head, body = skills.split(text, []) if text.lstrip("\ufeff").startswith("---") else ({}, text)
    description = head.get("description")
    if not isinstance(description, str) or not description:
        description = next((line for line in body.splitlines() if line.strip()), "")
    summary = " ".join(description.split())[: skills.MAX_DESCRIPTION]
    name = os.path.basename(path).removesuffix(".md")
    return PromptFile(name, summary, body.strip(), os.fspath(path))


def filled(text: str, args: str) -> str:
    """Fill in the placeholders; without any, append the arguments to the text."""
    words = args.split()

    def put(place: Match[str]) -> str:
        if place[1] == "ARGUMENTS":
            return args
        number = int(place[1])
        return words[number - 1] if number <= len(words) else ""

    whole, places = compiled(_PLACE).subn(put, text)
    return f"{whole}\n\n{args}" if args and not places else whole


def _markdown_in(folder: StrPath) -> list[str]:
    try:
        names = sorted(os.listdir(folder))
        return [os.path.join(folder, name) for name in names if name[1:].endswith(".md")]
    except OSError:
        return []
