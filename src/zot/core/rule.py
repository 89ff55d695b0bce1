"""Permanent approval rules of a project, and the interface of their storage."""

from collections.abc import Sequence
from typing import Protocol

from zot.text import Frozen


class Rule(Frozen):
    """Calls of a tool that run without approval."""

    tool: str
    """`write` covers `edit` too."""
    pattern: str
    """Pattern of a command or path; see runtime/rules.py."""


class Rules(Protocol):
    """The rules of one project."""

    def all(self) -> Sequence[Rule]:
        """Return all rules. Raises ConfigError when they cannot be read."""

    def add(self, rule: Rule) -> None:
        """Add a rule. Raises ConfigError when it cannot be written."""

    def remove(self, rule: Rule) -> bool:
        """Remove a rule; False: it does not exist. Raises ConfigError when it cannot be written."""
