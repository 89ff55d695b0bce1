"""What a person allowed for good in a project, and where such rules are kept."""

from collections.abc import Sequence
from typing import Protocol

from zot.text import Frozen


class Rule(Frozen):
    tool: str
    """`write` covers `edit` too."""
    pattern: str
    """Of a command or a path; see runtime/rules.py."""


class Rules(Protocol):
    """The rules of one project."""

    def all(self) -> Sequence[Rule]:
        """Raises ConfigError when they cannot be read."""

    def add(self, rule: Rule) -> None:
        """Raises ConfigError when it cannot be written."""

    def remove(self, rule: Rule) -> bool:
        """False: there is no such rule. Raises ConfigError when it cannot be written."""
