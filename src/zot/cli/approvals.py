"""`zot approvals`: what was allowed for good in a project: listed, and taken back. Prints only."""

from __future__ import annotations

import argparse
import os
from collections.abc import Sequence

from zot.bugs import complain
from zot.cli.output import say, say_json
from zot.core.rule import Rule
from zot.home import of_process
from zot.settings.approvals import ProjectRules, approvals_path, read_rules


def main(argv: Sequence[str]) -> int:
    """Run `zot approvals ...`; the exit code. `argv[0]` is `approvals`."""
    arguments = _parser().parse_args(argv[1:])
    if arguments.action == "remove":
        return _remove(
            ProjectRules(of_process().home, arguments.cwd), arguments.tool, arguments.pattern
        )
    return _list("" if arguments.all else os.path.realpath(arguments.cwd), arguments.json)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="zot approvals", description="What tools may do in a project without a question."
    )
    actions = parser.add_subparsers(dest="action", required=True)
    listed = actions.add_parser("list", help="what is allowed here")
    listed.add_argument("--all", action="store_true", help="in all projects")
    listed.add_argument("--json", action="store_true", help="one JSON object a line")
    removed = actions.add_parser("remove", help="ask again from now on")
    removed.add_argument("tool", help="bash, write, ...; as the list shows it")
    removed.add_argument("pattern", nargs="?", help="as the list shows it; without: all of it")
    for action in (listed, removed):
        action.add_argument("--cwd", default=".", help="the project's directory (default: here)")
    return parser


def _list(project: str, as_json: bool) -> int:
    everything = read_rules(approvals_path(of_process().home))
    allowed = {place: rules for place, rules in everything.items() if project in ("", place)}
    if not any(allowed.values()) and not as_json:
        complain(
            "nothing is allowed for good" + (" here; --all shows all projects" if project else "")
        )
    for place, rules in sorted(allowed.items()):
        for rule in rules:
            row = {"project": place, "tool": rule.tool, "pattern": rule.pattern}
            text = f"{rule.tool:<8} {rule.pattern}" + ("" if project else f"    ({place})")
            if as_json:
                say_json(row)
            else:
                say(text)
    return 0


def _remove(rules: ProjectRules, tool: str, pattern: str | None) -> int:
    kept = [rule for rule in rules.all() if rule.tool == tool]
    wanted = kept if pattern is None else [Rule(tool, pattern)]
    removed = [rule for rule in wanted if rules.remove(rule)]
    if not removed:
        what = tool if pattern is None else f"{pattern!r} for {tool}"
        complain(f"there is no approval of {what} here; `zot approvals list` shows what is allowed")
        return 1
    return 0
