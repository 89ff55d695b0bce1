"""The `edit` tool: replace exact pieces of text, all of them or none."""

from __future__ import annotations

from pathlib import Path

from zot.agent.tools import files, paths, replace, textdiff
from zot.core.tool import ToolContext, ToolOutput
from zot.errors import ToolError
from zot.provider.types import Json, Text


class Edit:
    def __init__(self, cwd: str) -> None:
        self.cwd = Path(cwd)

    def run(self, args: dict[str, Json], context: ToolContext) -> ToolOutput:
        path = paths.resolve(self.cwd, args.get("path"))
        edits = replace.parse(args)
        name = paths.shown(path, self.cwd)
        real = files.target(path)
        states: list[tuple[bytes, bytes]] = []

        def change(before: bytes | None) -> bytes:
            if before is None:
                raise ToolError(f"no such file: {str(path)!r}; create it with write")
            context.cancel.check()
            after = replace.apply(before, edits, name)
            states.append((before, after))
            return after

        if not real.parent.is_dir():
            raise ToolError(f"no such file: {str(path)!r}; create it with write")
        files.update(real, change, context.cancel)
        before, after = states[-1]
        rows, line = textdiff.diff(replace.text(before), replace.text(after))
        return ToolOutput(content=(Text(rows),), details={"diff": rows, "first_changed_line": line})
