"""`zot approvals`: list and remove a project's standing approvals. Prints only."""

from __future__ import annotations

import argparse
import os
from collections.abc import Sequence

from zot.bugs import complain
from zot.cli.output import A_LINE, Subcommands, say_either
from zot.core.hook import Rule
from zot.errors import ConfigError
from zot.home import of_process
from zot.settings.trust import ProjectRules, approvals_path, read_rules


def main(argv: Sequence[str]) -> int:
    actions = Subcommands("approvals", "What tools may do in a project without a question.")
    listed = actions.add("list", _list, "what is allowed here", json=A_LINE)
    listed.add_argument("--all", action="store_true", help="in all projects")
    removed = actions.add("remove", _remove, "ask again from now on")
    removed.add_argument("tool", help="bash, write, ...; as the list shows it")
    removed.add_argument("pattern", nargs="?", help="as the list shows it; without: all of it")
    for action in (listed, removed):
        action.add_argument("--cwd", default=".", help="the project's directory (default: here)")
    return actions.run(argv[1:])


def _list(options: argparse.Namespace) -> None:
    project = "" if options.all else os.path.realpath(options.cwd)
    everything = read_rules(approvals_path(of_process().home))
    allowed = {place: rules for place, rules in everything.items() if project in ("", place)}
    if not any(allowed.values()) and not options.json:
        complain(
            "nothing is allowed for good" + (" here; --all shows all projects" if project else "")
        )
    for place, rules in sorted(allowed.items()):
        for rule in rules:
            row = {"project": place, "tool": rule.tool, "pattern": rule.pattern}
            text = f"{rule.tool:<8} {rule.pattern}" + ("" if project else f"    ({place})")
            say_either(options, row, text)


def _remove(options: argparse.Namespace) -> None:
    rules = ProjectRules(of_process().home, options.cwd)
    tool, pattern = options.tool, options.pattern
    kept = [rule for rule in rules.all() if rule.tool == tool]
    wanted = kept if pattern is None else [Rule(tool, pattern)]
    if not [rule for rule in wanted if rules.remove(rule)]:
        what = tool if pattern is None else f"{pattern!r} for {tool}"
        raise ConfigError(
            f"there is no approval of {what} here; `zot approvals list` shows what is allowed"
        )
