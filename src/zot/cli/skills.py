"""`zot skills`: list, show and check the skills found here. Prints only."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path

from zot.bugs import complain
from zot.cli.output import say, say_json
from zot.home import of_process
from zot.settings.skills import skills_here
from zot.skills.skill import Skill, SkillFolder, read_skill, shown, skill_files


def main(argv: Sequence[str]) -> int:
    """Run `zot skills ...`; the exit code. `argv[0]` is `skills`."""
    arguments = _parser().parse_args(argv[1:])
    around = of_process()
    skills = skills_here(around.absolute(arguments.cwd), around)
    if arguments.action == "list":
        return _list(skills, as_json=arguments.json)
    if arguments.action == "show":
        return _show(skills, arguments.name)
    return _check(skills, arguments.path)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="zot skills", description="What the agent can look up.")
    parser.add_argument("--cwd", default="", help="the project's directory (default: here)")
    actions = parser.add_subparsers(dest="action", required=True)
    listed = actions.add_parser("list", help="names, places and descriptions")
    listed.add_argument("--json", action="store_true", help="one JSON object a line")
    one = actions.add_parser("show", help="a skill as the model reads it")
    one.add_argument("name")
    check = actions.add_parser("check", help="what is wrong with the skills, if anything")
    check.add_argument("path", nargs="?", default="", help="a skill or a folder of them")
    return parser


def _list(skills: Sequence[Skill], *, as_json: bool) -> int:
    for skill in skills:
        if as_json:
            row = {
                "name": skill.name,
                "description": skill.description,
                "path": str(skill.path),
                "source": skill.source,
                "offered": not skill.hidden,
            }
            say_json(row)
        else:
            note = " (not offered to the model)" if skill.hidden else ""
            say(f"{skill.name} [{skill.source}]{note}\n    {skill.description}")
    return 0


def _show(skills: Sequence[Skill], name: str) -> int:
    skill = next((skill for skill in skills if skill.name == name), None)
    if skill is None:
        complain(f"there is no skill {name!r}; `zot skills list` shows them")
        return 1
    say(shown(skill))
    return 0


def _check(skills: Sequence[Skill], path: str) -> int:
    if path:
        target = Path(path).absolute()
        files = skill_files(target)
        if not files:
            complain(f"there is no SKILL.md in {path!r}")
            return 1
        skills = [read_skill(file, SkillFolder(target)) for file in files]
    wrong = [(skill, problem) for skill in skills for problem in skill.problems]
    for skill, problem in wrong:
        say(f"{skill.path}: {problem}")
    if not wrong:
        say(f"{len(skills)} skills, nothing wrong")
    return 1 if wrong else 0
