"""What a tool is. The loop calls it; it knows nothing of models, wires or files."""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal, Protocol, TypeGuard

from zot.cancel import Cancel
from zot.core.events import Replay as Replay
from zot.core.events import ToolStatus
from zot.provider.types import Image, Json, Text, ToolCall, ToolResult, Usage
from zot.text import Frozen

ChangingFile = Callable[[str, bytes | None, bytes | None], None]
"""Told of a path, its content and what it will be, before the file is written."""


def _untold(path: str, before: bytes | None, after: bytes | None) -> None:
    """Nobody keeps what files were."""


def _unpaid(usage: Usage) -> None:
    """There is no run that could pay."""


def _unkept(state: Json) -> None:
    """There is no process that could go on."""


class ToolContext(Frozen):
    """What a running tool may use of the turn around it."""

    call_id: str
    cancel: Cancel
    progress: Callable[[str], None]
    """Show a piece of output while the tool runs; never splits a character."""
    changing: ChangingFile = _untold
    spend: Callable[[Usage], None] = _unpaid
    """Add to what the run costs, for a tool that asks a model itself."""
    key: str = ""
    """In a durable run: names this call. The same at every attempt, so that a service which knows
    such keys does the work once."""
    pause: Callable[[Json], None] = _unkept
    """In a durable run: nothing of the call is under way, it waits for a person, and goes on with
    this in another process if it has to; None: it is under way again."""
    state: Json = None
    """What `pause` was given by the process before this one; None: the call begins."""


class ToolOutput(Frozen):
    content: tuple[Text | Image, ...]
    is_error: bool = False
    details: dict[str, Json] | None = None
    status: ToolStatus | None = None
    """How it ended, where `is_error` does not say it all."""

    def as_result(self, call: ToolCall) -> ToolResult:
        return ToolResult(call.id, self.content, self.is_error, call.name, self.details)


def as_output(said: ToolOutput | str) -> ToolOutput:
    return ToolOutput((Text(said),)) if isinstance(said, str) else said


def failed(text: str) -> ToolOutput:
    return ToolOutput((Text(text),), is_error=True)


REPLAYS: tuple[Replay, ...] = ("never", "reconcile", "idempotent", "safe")
"""From the narrowest to the widest."""


class Reconciled(Frozen):
    """What a tool found out about a call that was cut off."""

    state: Literal["done", "not_done", "unknown"]
    output: ToolOutput | str = ""
    """The result of a call that was done; of an unknown one, what the model should know."""


class Tool(Protocol):
    """A tool may also have `replay: Replay`; one that says nothing is never run again. And
    `side_by_side: bool`: it only reads, or for another reason may run beside other such calls of
    the same turn, in a thread of its own."""

    @property
    def name(self) -> str: ...

    @property
    def description(self) -> str: ...

    @property
    def schema(self) -> dict[str, Json]:
        """JSON Schema of the arguments: an object schema."""

    def run(self, args: dict[str, Json], context: ToolContext) -> ToolOutput | str:
        """Do the work. `args` were checked against the schema.

        Raises:
            ToolError: it failed; the text is the result the model sees.
            Cancelled: the turn was aborted and nothing of the tool's is left running.
        """


class WrappedTool:
    """Stands before a tool, under its name."""

    def __init__(self, tool: Tool) -> None:
        self._tool = tool
        self.name, self.description, self.schema = tool.name, tool.description, tool.schema


class ReconcilingTool(Protocol):
    """A tool whose `replay` is `reconcile`."""

    def reconcile(self, args: dict[str, Json], context: ToolContext) -> Reconciled:
        """Find out what became of a call that was cut off; nothing may be done here."""


def can_reconcile(tool: object) -> TypeGuard[ReconcilingTool]:
    return hasattr(tool, "reconcile")


def is_side_by_side(tool: Tool) -> bool:
    return getattr(tool, "side_by_side", False) is True


def replay_of(tool: Tool) -> Replay:
    """What the tool declares; a word that nobody knows counts as nothing."""
    declared = getattr(tool, "replay", "never")
    return declared if declared in REPLAYS else "never"
