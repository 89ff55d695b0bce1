"""The place where the agent works: the user's own shell commands (`!cmd`), which are added to the
transcript, and programs confined to the same place.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Protocol

from msgspec.structs import asdict

from zot.cancel import Cancel
from zot.core.confinement import JailReport, JailWords
from zot.core.session import Body, Custom
from zot.provider.types import Message, Text
from zot.text import Frozen


class ShellOutput(Frozen):
    """Result of a shell command of the user."""

    command: str
    output: str
    exit_code: int | None = None
    """None: the command was aborted."""
    aborted: bool = False
    truncated: bool = False
    full_output: str = ""
    """Path of a file with the full output, if it was truncated."""


Tell = Callable[[str], None]


class Program(Frozen):
    """A long-running program that zot communicates with: an MCP server."""

    argv: list[str]
    folder: str
    env: dict[str, str]
    network: bool = False
    """In a jail: whether the program may use the network."""
    plan: bytes = b""
    """In a jail: instructions for the supervising process; see walls.py."""
    jailed: bool = False


class Confine(Protocol):
    """Confines a program to the place where the agent's tools work."""

    def __call__(
        self, program: Program, cancel: Cancel, tell: Tell
    ) -> AbstractContextManager[Program]:
        """Yield the program in the form to start; it has ended when the block is left. `tell`
        receives messages about what was done.

        Raises:
            ToolError: it cannot be kept there.
        """


class BackgroundCommand(Frozen):
    id: str
    command: str
    seconds: float
    """Seconds since its start; of one that has ended, until its end."""
    running: bool
    exit_code: int | None = None


class BackgroundCommands(Protocol):
    """Commands that run while the model does something else, for the user to look after."""

    def all(self) -> list[BackgroundCommand]:
        """Return all commands of the session, oldest first."""

    def text(self, id: str) -> str:
        """Return the end of a command's output. Raises ToolError: there is no such command."""

    def stop(self, id: str) -> None:
        """Stop a command and wait for its end. Raises ToolError: there is no such command."""

    def detach(self) -> bool:
        """Move the command that a tool waits for into the background; False: there is none."""

    def watch(self, changed: Callable[[], None]) -> None:
        """Call `changed`, from any thread, when a command starts or ends. Commands of tools can be
        detached from now on."""


class Shell(Protocol):
    """Runs commands in the place where the agent's tools work."""

    @property
    def jailed(self) -> bool: ...
    @property
    def jail_root(self) -> str:
        """Root of the jail, links resolved; empty: there is no jail."""

    @property
    def jail_words(self) -> JailWords:
        """The setting `jail` that this jail follows; False: there is none."""

    def jail_report(self) -> JailReport | None:
        """Return the jail as it really is here; None: there is none. The first call runs a
        program to find out."""

    def set_jail(self, words: JailWords) -> None:
        """Set the jail. Raises ConfigError: the directory cannot be a jail, or there is no such
        word."""

    @property
    def has_background(self) -> bool:
        """Whether commands of the session may be running in the background."""

    @property
    def background(self) -> BackgroundCommands: ...

    def end_background(self) -> None:
        """Stop the session's background processes, and wait until they have ended."""

    def run(self, command: str, show: Callable[[str], None], cancel: Cancel) -> ShellOutput:
        """Run a command to its end; `show` gets the output as it arrives.

        Raises:
            CommandError: there is nothing to run.
            ToolError: it could not be started.
        """


def entry_of(ran: ShellOutput, *, hidden: bool) -> Body:
    """Return the transcript entry of a command; the model does not see a hidden one."""
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
