"""What a tool is. The loop calls it; it knows nothing of models, wires or files."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from msgspec import Struct

from zot.cancel import Cancel
from zot.core.events import ToolStatus
from zot.provider.types import Image, Json, Text

ChangingFile = Callable[[str, bytes | None, bytes | None], None]
"""Told of a path, its content and what it will be, before the file is written."""


def _untold(path: str, before: bytes | None, after: bytes | None) -> None:
    """Nobody keeps what files were."""


class ToolContext(Struct, frozen=True):
    """What a running tool may use of the turn around it."""

    call_id: str
    cancel: Cancel
    progress: Callable[[str], None]
    """Show a piece of output while the tool runs; never splits a character."""
    changing: ChangingFile = _untold


class ToolOutput(Struct, frozen=True):
    content: tuple[Text | Image, ...]
    is_error: bool = False
    details: dict[str, Json] | None = None
    status: ToolStatus | None = None
    """How it ended, where `is_error` does not say it all."""


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
