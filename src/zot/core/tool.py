"""The Tool interface, and short titles of calls. Tools know nothing of models, wires or files."""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal, Protocol, TypeGuard

from zot.cancel import Cancel
from zot.core.events import Replay as Replay
from zot.core.events import ToolStatus
from zot.provider.types import Image, Json, Text, ToolCall, ToolResult, Usage
from zot.text import Frozen

ChangingFile = Callable[[str, bytes | None, bytes | None], None]
"""Callback before a file is written: path, old content, new content."""


class ToolContext(Frozen):
    """Services that a running tool may use."""

    call_id: str
    cancel: Cancel
    progress: Callable[[str], None]
    """Show a piece of output while the tool runs; characters are never split."""
    changing: ChangingFile = lambda path, before, after: None
    spend: Callable[[Usage], None] = lambda usage: None
    """Add to the run's cost, for a tool that calls a model itself."""
    key: str = ""
    """In a durable run: key of this call, equal for every attempt, so that services with
    idempotency keys do the work once."""
    pause: Callable[[Json], None] = lambda state: None
    """In a durable run: record that the call is idle and waits for a person; another process may
    continue it with this state. None: the call is active again."""
    state: Json = None
    """State that an earlier process passed to `pause`; None: the call starts afresh."""
    trace: str = ""
    """W3C traceparent of the call, for programs and servers it uses; empty: nothing is traced."""


class ToolOutput(Frozen):
    """Result of a tool: content for the model, and details for the client."""

    content: tuple[Text | Image, ...]
    is_error: bool = False
    details: dict[str, Json] | None = None
    status: ToolStatus | None = None
    """Exact outcome, where `is_error` is not enough."""

    def as_result(self, call: ToolCall) -> ToolResult:
        """Return the output as the block that answers the call."""
        return ToolResult(call.id, self.content, self.is_error, call.name, self.details)


def as_output(said: ToolOutput | str) -> ToolOutput:
    return ToolOutput((Text(said),)) if isinstance(said, str) else said


def failed(text: str) -> ToolOutput:
    return ToolOutput((Text(text),), is_error=True)


REPLAYS: tuple[Replay, ...] = ("never", "reconcile", "idempotent", "safe")
"""Ordered from most to least restrictive."""


class Reconciled(Frozen):
    """Result of ReconcilingTool.reconcile()."""

    state: Literal["done", "not_done", "unknown"]
    output: ToolOutput | str = ""
    """Result of a call that was done; for `unknown`, a note for the model."""


class Tool(Protocol):
    """A tool the model can call. Optional attributes: `replay: Replay` (default: never run again);
    `side_by_side: bool` for a tool that only reads, or may for another reason run in its own
    thread beside other such calls of the same turn; `renamed: Renaming` for a tool whose arguments
    have other names, too; `parts: Splitting` for one whose calls may stand for calls of others;
    `companion: Tool`, which is not listed, except for models that take its `grammar`."""

    @property
    def name(self) -> str:
        """Name that the model calls it by."""

    @property
    def description(self) -> str:
        """Purpose of the tool, for the model."""

    @property
    def schema(self) -> dict[str, Json]:
        """JSON Schema of the arguments; must be an object schema."""

    def run(self, args: dict[str, Json], context: ToolContext) -> ToolOutput | str:
        """Do the work. `args` are already checked against the schema.

        Raises:
            ToolError: it failed; the text is the result the model sees.
            Cancelled: the turn was aborted and nothing of the tool's is left running.
        """


Renaming = Callable[[dict[str, Json]], tuple[dict[str, Json], list[str]]]
"""Returns arguments under the names of the schema, and notes on what was changed."""


class Part(Frozen):
    """A call of another tool, as a part of a call."""

    name: str
    args: dict[str, Json]


Splitting = Callable[[dict[str, Json]], list[Part] | None]
"""Returns the calls that a call stands for; None: the tool itself runs. Raises ToolError."""


class WrappedTool:
    """Base for tools that wrap another tool under its name."""

    def __init__(self, tool: Tool) -> None:
        self._tool = tool
        self.renamed, self.parts = renaming_of(tool), splitting_of(tool)
        self.companion, self.strict = companion_of(tool), getattr(tool, "strict", False)
        self.name, self.description, self.schema = tool.name, tool.description, tool.schema


class ReconcilingTool(Protocol):
    """A tool whose `replay` is `reconcile`."""

    def reconcile(self, args: dict[str, Json], context: ToolContext) -> Reconciled:
        """Find out the fate of a call that was cut off; must not change anything."""


def can_reconcile(tool: object) -> TypeGuard[ReconcilingTool]:
    return hasattr(tool, "reconcile")


def is_side_by_side(tool: Tool) -> bool:
    return getattr(tool, "side_by_side", False) is True


def renaming_of(tool: object) -> Renaming | None:
    return getattr(tool, "renamed", None)


def splitting_of(tool: object) -> Splitting | None:
    return getattr(tool, "parts", None)


def companion_of(tool: object) -> Tool | None:
    return getattr(tool, "companion", None)


def replay_of(tool: Tool) -> Replay:
    """Return the tool's declared replay mode; unknown values mean "never"."""
    declared = getattr(tool, "replay", "never")
    return declared if declared in REPLAYS else "never"


# --- titles ------------------------------------------------------------------------------------

MAX_TITLE = 120


def title_of(call: ToolCall) -> str:
    """Return a one-line description of the call."""
    match call.name, call.args:
        case "bash", {"command": str(command)}:
            title = command
        case "read" | "write" | "edit", {"path": str(path)}:
            title = f"{call.name.capitalize()} {path}"
        case "glob", {"pattern": str(pattern)}:
            title = f"Find {pattern}"
        case "grep", {"pattern": str(pattern)}:
            title = f"Search for {pattern}"
        case _:
            title = call.name
    return shortened(title) or call.name


def shortened(text: str, most: int = MAX_TITLE) -> str:
    """Return the first line of a text, cut to `most` characters."""
    first, _, rest = text.strip().partition("\n")
    if len(first) > most:
        return f"{first[: most - 1]}…"
    return f"{first} …" if rest.strip() else first
