"""`zot skills`: list, show and check the skills found here. Prints only."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path

from zot.cli.output import CWD, Subcommands, arg, json_flag, say, say_either
from zot.errors import ConfigError
from zot.home import of_process
from zot.settings.skills import skills_here
from zot.skills.skill import Skill, SkillFolder, read_skill, shown, skill_files


def main(argv: Sequence[str]) -> int:
    actions = Subcommands("skills", "Instructions that the agent can look up.")
    actions.parser.add(CWD)
    actions.add("list", _list, "list names, sources and descriptions", json_flag())
    actions.add("show", _show, "print a skill as the model reads it", arg("name"))
    # fmt: off
    actions.add("check", _check, "report problems of skills",
                arg("path", nargs="?", default="", help="a skill or a folder of them"))
    # fmt: on
    return actions.run(argv[1:])


def _skills(options: argparse.Namespace) -> Sequence[Skill]:
    around = of_process()
    return skills_here(around.absolute(options.cwd), around)


def _list(options: argparse.Namespace) -> None:
    for skill in _skills(options):
        row = {
            "name": skill.name,
            "description": skill.description,
            "path": str(skill.path),
            "source": skill.source,
            "offered": not skill.hidden,
        }
        note = " (not offered to the model)" if skill.hidden else ""
        say_either(options, row, f"{skill.name} [{skill.source}]{note}\n    {skill.description}")


def _show(options: argparse.Namespace) -> None:
    skill = next((skill for skill in _skills(options) if skill.name == options.name), None)
    if skill is None:
        raise ConfigError(f"there is no skill {options.name!r}; `zot skills list` shows them")
    say(shown(skill))


def _check(options: argparse.Namespace) -> int:
    skills = _skills(options)
    if options.path:
        target = Path(options.path).absolute()
        skills = [read_skill(file, SkillFolder(target)) for file in skill_files(target)]
        if not skills:
            raise ConfigError(f"there is no SKILL.md in {options.path!r}; name a skill's folder")
    wrong = [(skill, problem) for skill in skills for problem in skill.problems]
    for skill, problem in wrong:
        say(f"{skill.path}: {problem}")
    if not wrong:
        say(f"{len(skills)} skills, nothing wrong")
    return 1 if wrong else 0
