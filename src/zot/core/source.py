"""Sources of tools and commands for an agent: built-in tools, skills, prompts, extensions.

A source may change its tools between two runs. Its SourceHost is all it sees of the runtime.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from typing import Generic, Literal, Protocol, TypeGuard, TypeVar

from zot.cancel import Cancel
from zot.core.events import Event
from zot.core.tool import Tool, ToolOutput
from zot.provider.types import Json, Model, ToolCall
from zot.text import Frozen

Question = Literal["approval", "dialog"]
NEVER = float("inf")


class SourceHost(Protocol):
    """Runtime services for sources."""

    @property
    def model(self) -> Model: ...

    @property
    def session_id(self) -> str: ...

    @property
    def questions_before(self) -> int:
        """Number of questions asked so far, also by earlier processes. New numbers continue from
        there, so that a late answer cannot match another question."""

    def show(self, event: Event) -> None:
        """Send an event to the client; dropped while the client does not read."""

    def add_listener(
        self, listener: Callable[[Event, object], None], *, first: bool = False
    ) -> None:
        """Add a listener for future events, before or after the others."""

    def can_answer(self, what: Question) -> bool:
        """Whether a person can see questions of this kind."""

    def submit(self, text: str, slash: bool) -> bool:
        """Submit a prompt, or (`slash`) a command, for the user; False: the client must do it."""

    def tools_changed(self) -> None:
        """Update the tools for the next model call; may be called by a tool."""

    def call_tool(
        self, asker: ToolSource, call: ToolCall, cancel: Cancel, emit: Callable[[Event], None]
    ) -> ToolOutput:
        """Call a tool of another source, with the usual guards.

        Raises:
            ToolError: it failed, or was refused.
            Cancelled: it was aborted.
        """


LOOK_AGAIN = 0.25
"""Seconds before an empty source checks the disk again, because such a check takes longer than the
rest of a run's preparation."""


class ToolSource(Protocol):
    @property
    def name(self) -> str: ...

    @property
    def next_look(self) -> float:
        """Monotonic time from which the source is started and prepared again before a run; until
        then its tools stay the same, unless it reports a change."""

    def start(self, host: SourceHost) -> None:
        """Start in the background; return at once. May be called again."""

    def prepare(self, cancel: Cancel) -> None:
        """Wait, before a run, until the tools are known.

        Raises:
            Cancelled: the run was aborted meanwhile.
        """

    def tools(self) -> Sequence[Tool]:
        """Return the current tools; the same objects as long as nothing changed."""

    def close(self) -> None: ...


class ReadySource:
    """Base for sources that are always ready and hold no resources."""

    next_look = NEVER

    def start(self, host: SourceHost) -> None:
        """Do nothing: there is nothing to start."""

    def prepare(self, cancel: Cancel) -> None:
        """Do nothing: there is nothing to wait for."""

    def close(self) -> None:
        """Do nothing: there is nothing to release."""


class CommandInfo(Frozen):
    """A slash command, for lists."""

    name: str
    """Command name without the slash."""
    description: str
    source: str
    """Extension that provides the command; empty: a user's file."""
    kind: Literal["extension", "skill", "prompt"] = "extension"
    path: str = ""


class CommandResult(Frozen):
    """Action requested by a command. Displays and panels were already sent as events."""

    source: str
    action: Literal["prompt", "insert", "display", "noop", "open_panel", "error"]
    text: str = ""
    """Prompt, text to insert or show, or error message."""
    panel: dict[str, Json] | None = None
    call: ToolCall | None = None
    """For `prompt`: a tool call that runs after it, before the model is called."""


class CommandSource(Protocol):
    instant: bool
    """The commands only turn their arguments into a prompt, without waiting."""
    prefix: str
    """Prefix of all names that belong to this source, known commands or not."""

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
    """Reason why the extension does not run."""


class ServerState(Frozen):
    """Current state of an MCP server."""

    name: str
    state: Literal["disabled", "untrusted", "idle", "starting", "ready", "failed", "login"]
    """idle: starts with its first call; login: `zot mcp login` is needed."""
    origin: Literal["given", "user", "project"]
    tools: int = 0
    changed: tuple[str, ...] = ()
    """Disabled tools, because they differ from what the user agreed to."""
    error: str = ""


class ServerSource(Protocol):
    """A source of MCP server tools."""

    def servers(self) -> Sequence[ServerState]:
        """Return the states of all servers; start none."""


class PersonAnswer(Frozen):
    """A person's answer to a question of an extension or an MCP server."""

    value: str | None = None
    confirmed: bool = False
    cancelled: bool = False


CANCELLED = PersonAnswer(cancelled=True)


class PanelSource(Protocol):
    """A source that asks questions, shows panels and can be reloaded: extensions."""

    def answer(self, id: str, answer: PersonAnswer) -> bool:
        """Answer a question; False if it is not open."""

    def open_questions(self) -> Sequence[str]:
        """Return the ids of the open questions."""

    def panel_key(self, extension: str, panel_id: str, key: str, text: str) -> bool:
        """Send a key to a panel; False if that extension does not run."""

    def panel_resize(self, extension: str, panel_id: str, width: int, height: int) -> bool: ...

    def panel_close(self, extension: str, panel_id: str) -> bool: ...

    def reload(self) -> Sequence[ExtensionState]:
        """Stop all extensions and start those installed now; between runs only."""


# Type checks for the protocols above. isinstance() is avoided: since Python 3.12 it loads `inspect`
# for a Protocol, which takes longer than a whole prompt.


def has_commands(source: object) -> TypeGuard[CommandSource]:
    return hasattr(source, "run_command")


def has_servers(source: object) -> TypeGuard[ServerSource]:
    return hasattr(source, "servers")


def has_panels(source: object) -> TypeGuard[PanelSource]:
    return hasattr(source, "panel_key")


Taker = TypeVar("Taker", bound=Callable[[PersonAnswer], None])


class UnansweredQuestions(Generic[Taker]):
    """Open questions by id, each with the callback for its answer."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._open: dict[str, Taker] = {}

    def open_questions(self) -> tuple[str, ...]:
        with self._lock:
            return tuple(self._open)

    def answer(self, id: str, answer: PersonAnswer) -> bool:
        """Pass an answer to the question's callback; False if the question is not open."""
        with self._lock:
            take = self._open.pop(id, None)
        if take is None:
            return False
        take(answer)
        return True
