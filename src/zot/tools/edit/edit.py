"""The `edit` tool: replace pieces of text, all of them or none."""

from __future__ import annotations

from zot.core.tool import Reconciled, ToolContext, ToolOutput
from zot.errors import ToolError
from zot.provider.types import Json, Text
from zot.tools.edit import endings, files, replace, textdiff
from zot.tools.place import PlacedTool


class Edit(PlacedTool):
    def run(self, args: dict[str, Json], context: ToolContext) -> ToolOutput:
        path = self._place.resolve(args.get("path"))
        edits = replace.parse(args)
        name = self._place.shown(path)
        states: list[tuple[bytes, replace.Applied]] = []

        def change(before: bytes | None) -> bytes:
            if before is None:
                raise ToolError(f"no such file: {str(path)!r}; create it with write")
            context.cancel.check()
            after = replace.apply(before, edits, name)
            states.append((before, after))
            if after.content != before:
                context.changing(str(path), before, after.content)
            return after.content

        with self._place.target(path, create=False) as target:
            files.update(target, change, context.cancel)
        before, after = states[-1]
        rows, line = textdiff.diff(endings.text(before), endings.text(after.content))
        details: dict[str, Json] = {"diff": rows, "first_changed_line": line}
        if after.notes:
            details["tolerated"] = list(after.notes)
            rows += "\n\n" + "\n".join(f"[{note}]" for note in after.notes)
        return ToolOutput(content=(Text(rows),), details=details)

    def reconcile(self, args: dict[str, Json], context: ToolContext) -> Reconciled:
        """Report how many old and new texts are in the file now; the model judges whether that is
        because of this edit."""
        edits = replace.parse(args)
        name, now = self._content_now(args)
        if now is None:
            return Reconciled("unknown", f"{name} does not exist.")
        text = now.replace(b"\r\n", b"\n")
        old = sum(before in text for before, _ in edits)
        new = sum(bool(after) and after in text for _, after in edits)
        return Reconciled(
            "unknown",
            f"In {name} now: the old text of {old} and the new text of {new} of "
            f"{len(edits)} edits.",
        )
