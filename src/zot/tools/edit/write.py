"""The `write` tool: create a file or replace its whole content, atomically."""

from __future__ import annotations

from zot.core.tool import Reconciled, ToolContext, ToolOutput
from zot.errors import ToolError
from zot.provider.types import Json, Text
from zot.text import whole_characters
from zot.tools.edit import endings, files, textdiff
from zot.tools.place import PlacedTool


class Write(PlacedTool):
    def run(self, args: dict[str, Json], context: ToolContext) -> ToolOutput:
        path = self._place.resolve(args.get("path"))
        content = args.get("content")
        if not isinstance(content, str):
            raise ToolError("content is required")
        wanted = whole_characters(content).encode()
        context.cancel.check()
        states: list[tuple[bytes | None, bytes]] = []

        def change(before: bytes | None) -> bytes:
            after = wanted if before is None else endings.keep_style(before, wanted)
            states.append((before, after))
            if after != before:
                context.changing(str(path), before, after)
            return after

        with self._place.target(path, create=True) as target:
            files.update(target, change, context.cancel)
        return _report(self._place.shown(path), *states[-1])

    def reconcile(self, args: dict[str, Json], context: ToolContext) -> Reconciled:
        """Compare the file with the content to write: a write is atomic, so that shows whether it
        happened."""
        name, now = self._content_now(args)
        if now is None:
            return Reconciled("unknown", f"{name} does not exist: it was not written.")
        wanted = whole_characters(str(args.get("content"))).encode()
        if now == endings.keep_style(now, wanted):
            return Reconciled("done", f"{name} has this content ({len(now)} bytes)")
        return Reconciled("unknown", f"{name} has other content now ({len(now)} bytes).")


def _report(name: str, before: bytes | None, after: bytes) -> ToolOutput:
    lines = after.count(b"\n") + (after[-1:] not in (b"", b"\n"))
    size = f"{lines} lines, {len(after)} bytes"
    if before is None:
        return ToolOutput(
            content=(Text(f"created {name} ({size})"),),
            details={"created": True, "diff": "", "first_changed_line": 1},
        )
    rows, line = textdiff.diff(endings.text(before), endings.text(after))
    said = f"overwrote {name} ({size})" if rows else f"{name} already had this content ({size})"
    return ToolOutput(
        content=(Text(f"{said}\n{rows}" if rows else said),),
        details={"created": False, "diff": rows, "first_changed_line": line},
    )
