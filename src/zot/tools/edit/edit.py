"""The tools `edit` and `write`, and the same changes for others: preview, show, undo."""

from __future__ import annotations

import os
from pathlib import Path

from zot.cancel import Cancel
from zot.core.changes import PlannedChange
from zot.core.tool import Reconciled, ToolContext, ToolOutput
from zot.errors import ToolError
from zot.provider.types import Json, Text, ToolCall
from zot.text import whole_characters
from zot.tools.edit import files, replace
from zot.tools.edit.text import MAX_SHOWN_ROWS, diff, keep_style, shown_text
from zot.tools.place import Place, PlacedTool


class Edit(PlacedTool):
    """Replaces pieces of text, all of them or none."""

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
        rows, line = diff(shown_text(before), shown_text(after.content))
        details: dict[str, Json] = {"diff": rows, "first_changed_line": line}
        if after.notes:
            details["tolerated"] = list(after.notes)
            rows += "\n\n" + "\n".join(f"[{note}]" for note in after.notes)
        return ToolOutput(content=(Text(rows),), details=details)

    def reconcile(self, args: dict[str, Json], context: ToolContext) -> Reconciled:
        """Report how many old and new texts are in the file now; the model judges whether that is
        because of this edit."""
        edits = replace.parse(args)
        name, now = _content_now(self._place, args)
        if now is None:
            return Reconciled("unknown", f"{name} does not exist.")
        text = now.replace(b"\r\n", b"\n")
        old = sum(edit.old in text for edit in edits)
        new = sum(bool(edit.new) and edit.new in text for edit in edits)
        return Reconciled(
            "unknown",
            f"In {name} now: the old text of {old} and the new text of {new} of "
            f"{len(edits)} edits.",
        )


class Write(PlacedTool):
    """Creates a file or replaces its whole content, atomically."""

    def run(self, args: dict[str, Json], context: ToolContext) -> ToolOutput:
        path = self._place.resolve(args.get("path"))
        _written(args, None)  # before a directory is made for it
        context.cancel.check()
        states: list[tuple[bytes | None, bytes]] = []

        def change(before: bytes | None) -> bytes:
            after = _written(args, before)
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
        name, now = _content_now(self._place, args)
        if now is None:
            return Reconciled("unknown", f"{name} does not exist: it was not written.")
        if now == _written(args, now):
            return Reconciled("done", f"{name} has this content ({len(now)} bytes)")
        return Reconciled("unknown", f"{name} has other content now ({len(now)} bytes).")


def _written(args: dict[str, Json], before: bytes | None) -> bytes:
    """Return the content of the file after a call of `write`."""
    content = args.get("content")
    if not isinstance(content, str):
        raise ToolError("content is required")
    wanted = whole_characters(content).encode()
    return wanted if before is None else keep_style(before, wanted)


def _content_now(place: Place, args: dict[str, Json]) -> tuple[str, bytes | None]:
    """Return the shown path of a call's file and its content; None if it does not exist."""
    path = place.resolve(args.get("path"))
    with place.target(path, create=False) as target:
        return place.shown(path), files.load(target)


def _report(name: str, before: bytes | None, after: bytes) -> ToolOutput:
    lines = after.count(b"\n") + (after[-1:] not in (b"", b"\n"))
    size = f"{lines} lines, {len(after)} bytes"
    if before is None:
        return ToolOutput(
            content=(Text(f"created {name} ({size})"),),
            details={
                "created": True,
                "diff": "" if b"\0" in after else diff("", shown_text(after))[0],
                "first_changed_line": 1,
            },
        )
    rows, line = diff(shown_text(before), shown_text(after))
    summary = f"overwrote {name} ({size})" if rows else f"{name} already had this content ({size})"
    return ToolOutput(
        content=(Text(f"{summary}\n{rows}" if rows else summary),),
        details={"created": False, "diff": rows, "first_changed_line": line},
    )


class EditedFiles:
    """The files of a place for callers other than the model; see core.changes.Files."""

    def __init__(self, place: Place) -> None:
        self._place = place

    def content(self, path: str) -> bytes | None:
        if not os.path.lexists(path):
            return None
        with self._place.target(self._place.resolve(path), create=False) as target:
            return files.load(target)

    def put(self, path: str, content: bytes | None, expected: bytes | None) -> None:
        place = self._place
        full = place.resolve(path)
        here = os.path.realpath(place.cwd)
        if full.is_relative_to(place.cwd) and not Path(os.path.realpath(full)).is_relative_to(here):
            # Since the change was recorded, a command may have planted a link there.
            raise ToolError(f"{path!r} is behind a link that leads out of {str(place.cwd)!r} now")

        def check(before: bytes | None) -> None:
            if before != expected:
                raise ToolError(f"{path!r} was changed meanwhile; look at it and try again")

        def change(before: bytes | None) -> bytes:
            check(before)
            assert content is not None
            return content

        with place.target(full, create=content is not None) as target:
            if content is None:
                files.remove(target, check, Cancel())
            else:
                files.update(target, change, Cancel())

    def planned(self, call: ToolCall) -> PlannedChange | None:
        args = call.args or {}
        try:
            path = self._place.resolve(args.get("path"))
            before = self.content(str(path))
            if call.name == "write":
                after = _written(args, before)
            elif call.name == "edit" and before is not None:
                after = replace.apply(before, replace.parse(args), self._place.shown(path)).content
            else:
                return None
        except ToolError:
            return None  # the call itself will report the error
        if b"\0" in (before or b"") or b"\0" in after:
            return None
        rows, line = diff(shown_text(before), shown_text(after), MAX_SHOWN_ROWS)
        return PlannedChange(rows, line, str(path), before, after)

    def diff(self, before: bytes | None, after: bytes | None) -> str:
        if any(b"\0" in side for side in (before or b"", after or b"")):
            return f"binary: {len(before or b'')} bytes before, {len(after or b'')} after"
        return diff(shown_text(before), shown_text(after), MAX_SHOWN_ROWS)[0]
