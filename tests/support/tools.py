"""Call one tool as the loop does, and look at what processes are left."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Protocol

from support.patience import PATIENCE

from zot.cancel import Cancel
from zot.core.tool import ToolContext, ToolOutput
from zot.provider.types import Json, Text


class Runs(Protocol):
    def run(self, args: dict[str, Json], context: ToolContext) -> ToolOutput | str: ...


def call(
    tool: Runs,
    *,
    cancel: Cancel | None = None,
    progress: Callable[[str], None] = lambda text: None,
    **args: Json,
) -> ToolOutput:
    context = ToolContext(call_id="1", cancel=cancel or Cancel(), progress=progress)
    output = tool.run(args, context)
    return ToolOutput(content=(Text(output),)) if isinstance(output, str) else output


def text(output: ToolOutput) -> str:
    return "".join(block.text for block in output.content if isinstance(block, Text))


def marked(marker: str) -> list[int]:
    """Live processes that have the marker in their environment or command line."""
    found = []
    for entry in Path("/proc").iterdir():
        if not entry.name.isdigit() or int(entry.name) == os.getpid():
            continue
        try:
            state = (entry / "stat").read_bytes().rpartition(b")")[2].split()[0]
            known = (entry / "environ").read_bytes() + (entry / "cmdline").read_bytes()
        except OSError:
            continue
        if state not in (b"Z", b"X") and marker.encode() in known:
            found.append(int(entry.name))
    return found


def none_left(marker: str, seconds: float = PATIENCE) -> bool:
    return eventually(lambda: not marked(marker), seconds)


def eventually(fact: Callable[[], bool], seconds: float = PATIENCE) -> bool:
    deadline = time.monotonic() + seconds
    while not fact():
        if time.monotonic() > deadline:
            return False
        time.sleep(0.01)
    return True
