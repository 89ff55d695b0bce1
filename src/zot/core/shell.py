"""Where the agent works: the user's own shell commands (`!cmd`), which are put into the transcript,
and programs that are kept in the same place.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Protocol

from msgspec.structs import asdict

from zot.cancel import Cancel
from zot.core.session import Body, Custom
from zot.provider.types import Message, Text
from zot.text import Frozen


class ShellOutput(Frozen):
    command: str
    output: str
    exit_code: int | None = None
    """None: it was aborted."""
    aborted: bool = False
    truncated: bool = False
    full_output: str = ""
    """The file with all of it, where it was cut."""


Tell = Callable[[str], None]


class Program(Frozen):
    """A program that is started and then talked to: an MCP server."""

    argv: list[str]
    folder: str
    env: dict[str, str]
    network: bool = False
    """In a jail: whether it may use the network."""
    plan: bytes = b""
    """In a jail: what its keeper must know; see walls.py."""
    jailed: bool = False


class Confine(Protocol):
    """Keeps a program where the agent's tools work."""

    def __call__(
        self, program: Program, cancel: Cancel, tell: Tell
    ) -> AbstractContextManager[Program]:
        """The program as it is to be started, which has ended when the block is left. `tell` hears
        what was done about it.

        Raises:
            ToolError: it cannot be kept there.
        """


class Shell(Protocol):
    """Runs commands in the place where the agent's tools work."""

    @property
    def jailed(self) -> bool: ...
    @property
    def jail_root(self) -> str:
        """The directory that a jail keeps to, without links; empty: there is no jail."""

    def set_jail(self, on: bool) -> None:
        """Raises ConfigError when the working directory cannot be a jail."""

    @property
    def has_background(self) -> bool:
        """Commands of the session may be left running."""

    def end_background(self) -> None:
        """End what commands of the session left running, and wait until they have ended."""

    def run(self, command: str, show: Callable[[str], None], cancel: Cancel) -> ShellOutput:
        """Run a command to its end; `show` gets the output as it comes.

        Raises:
            CommandError: there is nothing to run.
            ToolError: it could not be started.
        """


def entry_of(ran: ShellOutput, *, hidden: bool) -> Body:
    """The command in the transcript; a hidden one is kept, but the model does not see it."""
    if hidden:
        return Custom("shell", {name: value for name, value in asdict(ran).items() if value})
    end = "aborted" if ran.aborted else f"exit {ran.exit_code}"
    fence = "```"
    while fence in ran.output:
        fence += "`"
    body = f"{ran.output.rstrip()}\n" if ran.output.strip() else ""
    text = f"I ran `{ran.command}`:\n{fence}\n{body}{fence}\n[{end}]"
    if ran.full_output:
        text += f" (full output: {ran.full_output})"
    return Message("user", (Text(text),), time.time())
