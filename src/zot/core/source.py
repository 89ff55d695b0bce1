"""What brings tools and commands to an agent: the built-in ones, skills, prompts, extensions.

A source may change what it brings between two runs. It is started with a SourceHost, which is all
it sees of the runtime.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Literal, Protocol, TypeGuard

from zot.cancel import Cancel
from zot.core.events import Event
from zot.core.tool import Tool, ToolOutput
from zot.provider.types import Json, Model, ToolCall
from zot.text import Frozen

Question = Literal["approval", "dialog"]
NEVER = float("inf")


class SourceHost(Protocol):
    """What a source may use of the runtime it serves."""

    @property
    def model(self) -> Model: ...

    @property
    def session_id(self) -> str: ...

    @property
    def questions_before(self) -> int:
        """Questions that were asked of a person before. The numbers of new ones go on from there:
        a late answer must not meet another question."""

    def show(self, event: Event) -> None:
        """Tell the client something; left out while it does not read."""

    def add_listener(
        self, listener: Callable[[Event, object], None], *, first: bool = False
    ) -> None:
        """Have it hear what happens from now on, before or after the others."""

    def can_answer(self, what: Question) -> bool:
        """Whether somebody is there who sees a question of this kind."""

    def submit(self, text: str, slash: bool) -> bool:
        """Say something for the person, or (`slash`) run a command; False: the client does that
        itself."""

    def tools_changed(self) -> None:
        """From within a tool: the next model call is to know other tools."""

    def call_tool(
        self, asker: ToolSource, call: ToolCall, cancel: Cancel, emit: Callable[[Event], None]
    ) -> ToolOutput:
        """Call a tool of another source, with the guards of every other call.

        Raises:
            ToolError: it failed, or was refused.
            Cancelled: it was aborted.
        """


LOOK_AGAIN = 0.25
"""Seconds until a source that has nothing looks once more whether there is something: a look at
the disk takes longer than the rest of what is done before a run."""


class ToolSource(Protocol):
    @property
    def name(self) -> str: ...

    @property
    def next_look(self) -> float:
        """From when on, by the monotonic clock, it is to be started and prepared before a run;
        until then its tools stay what they are, unless it says otherwise."""

    def start(self, host: SourceHost) -> None:
        """Begin in the background; returns at once, and may be called again."""

    def prepare(self, cancel: Cancel) -> None:
        """Before a run: wait until the tools are known.

        Raises:
            Cancelled: the run was aborted meanwhile.
        """

    def tools(self) -> Sequence[Tool]:
        """The tools there are now; the same objects as long as nothing changed."""

    def close(self) -> None: ...


class ReadySource:
    """What a source inherits that is always ready and holds nothing."""

    next_look = NEVER

    def start(self, host: SourceHost) -> None:
        """There is nothing to start."""

    def prepare(self, cancel: Cancel) -> None:
        """There is nothing to wait for."""

    def close(self) -> None:
        """There is nothing to let go of."""


class CommandInfo(Frozen):
    name: str
    """Without the slash."""
    description: str
    source: str
    """The extension that brings it; empty: a file of the user's."""
    kind: Literal["extension", "skill", "prompt"] = "extension"
    path: str = ""


class CommandResult(Frozen):
    """What a command wants to happen. Displays and panels were told as events already."""

    source: str
    action: Literal["prompt", "insert", "display", "noop", "open_panel", "error"]
    text: str = ""
    """The prompt, the text to insert or to show, or the error."""
    panel: dict[str, Json] | None = None
    call: ToolCall | None = None
    """Of a prompt: a tool that runs after it, before the model reads both."""


class CommandSource(Protocol):
    instant: bool
    """Its commands only make a prompt of their arguments: nothing is waited for."""
    prefix: str
    """Names that begin so are its own, whether there is such a command or not."""

    def commands(self, cancel: Cancel | None = None) -> Sequence[CommandInfo]: ...

    def run_command(self, name: str, args: str, cancel: Cancel | None = None) -> CommandResult:
        """Run one of its commands and wait for the result.

        Raises:
            CommandError: there is no such command.
            Cancelled: the caller gave up.
        """


class ExtensionState(Frozen):
    name: str
    version: str
    state: Literal["starting", "ready", "restarting", "stopped"]
    commands: tuple[str, ...]
    tools: tuple[str, ...]
    error: str = ""
    """Why it does not run."""


class ServerState(Frozen):
    """An MCP server, as it is now."""

    name: str
    state: Literal["disabled", "untrusted", "idle", "starting", "ready", "failed", "login"]
    """idle: it starts with its first call; login: `zot mcp login` is needed."""
    origin: Literal["given", "user", "project"]
    tools: int = 0
    changed: tuple[str, ...] = ()
    """Tools that are off: they are not what the user agreed to."""
    error: str = ""


class ServerSource(Protocol):
    """A source whose tools are those of MCP servers."""

    def servers(self) -> Sequence[ServerState]:
        """All of them; starts none."""


class PersonAnswer(Frozen):
    """What a person said to a question of an extension or an MCP server."""

    value: str | None = None
    confirmed: bool = False
    cancelled: bool = False


CANCELLED = PersonAnswer(cancelled=True)


class PanelSource(Protocol):
    """A source that asks the person things, shows panels and can be loaded anew: extensions."""

    def answer(self, id: str, answer: PersonAnswer) -> bool:
        """Answer a question; False if it is not open."""

    def open_questions(self) -> Sequence[str]:
        """The ids of those that can be answered."""

    def panel_key(self, extension: str, panel_id: str, key: str, text: str) -> bool:
        """Pass on a key; False if that extension does not run."""

    def panel_resize(self, extension: str, panel_id: str, width: int, height: int) -> bool: ...

    def panel_close(self, extension: str, panel_id: str) -> bool: ...

    def reload(self) -> Sequence[ExtensionState]:
        """Stop all and start those that are there now; between runs only."""


# Which of these a source is. Not by isinstance(): since Python 3.12 that loads `inspect` for a
# Protocol, which takes longer than all of a prompt.


def has_commands(source: object) -> TypeGuard[CommandSource]:
    return hasattr(source, "run_command")


def has_servers(source: object) -> TypeGuard[ServerSource]:
    return hasattr(source, "servers")


def has_panels(source: object) -> TypeGuard[PanelSource]:
    return hasattr(source, "panel_key")
