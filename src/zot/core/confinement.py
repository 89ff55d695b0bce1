"""The policy of a jail, and the report on what it really provides on this system."""

from __future__ import annotations

from typing import Literal

from msgspec.structs import replace

from zot.errors import ConfigError
from zot.text import Frozen

JailLevel = Literal["full", "files", "none"]
"""Strength of the walls around commands: namespaces and a system call filter; rules on files and a
filter; nothing."""
JailWords = bool | str
"""The setting `jail`: whether there is one, or words of WORDS joined by commas."""
WORDS = ("full", "best", "workspace", "read-only")


class JailPolicy(Frozen):
    on: bool = False
    best: bool = False
    """Whether commands run with the strongest level there is; otherwise only with `full`."""
    read_only: bool = False
    """Whether the working directory cannot be written either."""
    project_only: bool = False
    """Whether commands read the working directory and the system, but not the home directory."""
    allow_write: tuple[str, ...] = ()
    """Directories that can be written besides the working directory."""
    deny_read: tuple[str, ...] = ()
    """Patterns of files that no tool can read; they count without a jail, too."""

    @property
    def words(self) -> JailWords:
        """The shortest value of the setting `jail` that means this policy."""
        words = ("best",) * self.best + ("read-only",) * self.read_only
        return ",".join(words) or True if self.on else False


NO_JAIL = JailPolicy()


def with_words(policy: JailPolicy, value: JailWords) -> JailPolicy:
    """Return the policy with the setting `jail` changed: true, false, or words of WORDS.

    Raises:
        ConfigError: there is no such word, or two of them contradict each other.
    """
    if not isinstance(value, str):
        return replace(policy, on=value, best=False, read_only=False)
    words = value.split(",")
    unknown = [word for word in words if word not in WORDS]
    pairs = ({"full", "best"}, {"workspace", "read-only"})
    if unknown or any(pair <= set(words) for pair in pairs):
        raise ConfigError(
            f"the jail cannot be {value!r}: use full or best, workspace or read-only; for example"
            " best,read-only"
        )
    return replace(policy, on=True, best="best" in words, read_only="read-only" in words)


class JailReport(Frozen, omit_defaults=True):
    """A jail as it is, for `get_state` and the status line."""

    level: JailLevel
    mode: Literal["workspace", "read-only"] = "workspace"
    reads: Literal["all", "project"] = "all"
    allow_write: tuple[str, ...] = ()
    deny_read: tuple[str, ...] = ()
    refuses: bool = False
    """Whether no command runs, because the level that was asked for cannot be had."""
    problem: str = ""
    """Why there is no better level, and the remedy."""

    @property
    def word(self) -> str:
        """The jail in a word or two: "jail", "jail files", "no jail", "jail, no commands"."""
        name = {"full": "jail", "files": "jail files", "none": "no jail"}[self.level]
        if self.refuses:
            name = "jail, no commands"
        return f"{name}, read-only" if self.mode == "read-only" else name
