"""What a tool is. The loop calls it; it knows nothing of models, wires or files."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from msgspec import Struct

from zot.cancel import Cancel
from zot.provider.types import Image, Json, Text


class ToolContext(Struct, frozen=True):
    """What a running tool may use of the turn around it."""

    call_id: str
    cancel: Cancel
    progress: Callable[[str], None]
    """Show a piece of output while the tool runs; never splits a character."""


class ToolOutput(Struct, frozen=True):
    content: tuple[Text | Image, ...]
    is_error: bool = False
    details: dict[str, Json] | None = None


class FileChange(Struct, frozen=True):
    """What a call will make of a file; shown to a person, before or after it is done."""

    path: str
    """Absolute."""
    before: str | None
    """None: there is no such file yet."""
    after: str


class Tool(Protocol):
    @property
    def name(self) -> str: ...

    @property
    def description(self) -> str: ...

    @property
    def schema(self) -> dict[str, Json]:
        """JSON Schema of the arguments: an object schema."""
        ...

    def run(self, args: dict[str, Json], context: ToolContext) -> ToolOutput | str:
        """Do the work. `args` were checked against the schema.

        Raises:
            ToolError: it failed; the text is the result the model sees.
            Cancelled: the turn was aborted and nothing of the tool's is left running.
        """
        ...
