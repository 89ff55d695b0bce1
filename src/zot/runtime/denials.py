"""Deny rules, of the settings and of the project: what they name never runs, in any mode."""

from __future__ import annotations

from collections.abc import Sequence

from zot.core.hook import (
    ALLOW,
    ANY,
    Allow,
    Block,
    Hook,
    HookContext,
    Project,
    ReplaceArgs,
    Rule,
    Rules,
)
from zot.errors import ConfigError
from zot.provider.types import ToolCall


def deny_rule(text: str) -> Rule:
    """Read a rule of the settings: a tool, and the pattern of its calls; no pattern means all."""
    tool, _, pattern = text.strip().partition(" ")
    return Rule("write" if tool == "edit" else tool, pattern.strip() or ANY, deny=True)


class Denials(Hook):
    """Blocks calls that a deny rule names. Works without anybody to ask, also with `--yolo`."""

    def __init__(self, own: Sequence[Rule], rules: Rules, project: Project) -> None:
        """`own`: rules of the settings; `rules`: those of the project, read for each call."""
        self._own = own
        self._rules = rules
        self._project = project

    def before_tool(self, call: ToolCall, context: HookContext) -> Allow | Block | ReplaceArgs:
        try:
            rules = [*self._own, *(rule for rule in self._rules.all() if rule.deny)]
        except ConfigError as error:
            return Block(f"{call.name} is not allowed: the project's rules are unknown: {error}")
        if not rules:
            return ALLOW
        from zot.runtime.rules import Judge

        rule = Judge(self._project).denying(call, rules)
        if rule is None:
            return ALLOW
        return Block(f"a rule denies {rule.pattern!r} for {rule.tool}; do not try another way")
