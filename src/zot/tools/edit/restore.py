"""The user's files for callers other than the model: preview a call's change, show what was
changed, and restore it.
"""

from __future__ import annotations

import os
from pathlib import Path

from zot.cancel import Cancel
from zot.core.changes import PlannedChange
from zot.errors import ToolError
from zot.provider.types import ToolCall
from zot.text import whole_characters
from zot.tools.edit import endings, files, replace, textdiff
from zot.tools.place import Place


def content(place: Place, path: str) -> bytes | None:
    """Return the file's content; None if it does not exist. Raises ToolError: it is unreadable."""
    if not os.path.lexists(path):
        return None
    with place.target(place.resolve(path), create=False) as target:
        return files.load(target)


def put(place: Place, path: str, wanted: bytes | None, expected: bytes | None) -> None:
    """Write or (for None) remove a file. Raises ToolError when its content is not the expected
    one, or it cannot be written."""
    full: Path = place.resolve(path)
    here = os.path.realpath(place.cwd)
    if full.is_relative_to(place.cwd) and not Path(os.path.realpath(full)).is_relative_to(here):
        # Since the change was recorded, a command may have planted a link there.
        raise ToolError(f"{path!r} is behind a link that leads out of {str(place.cwd)!r} now")

    def change(before: bytes | None) -> bytes:
        check(before)
        assert wanted is not None
        return wanted

    def check(before: bytes | None) -> None:
        if before != expected:
            raise ToolError(f"{path!r} was changed meanwhile; look at it and try again")

    with place.target(full, create=wanted is not None) as target:
        if wanted is None:
            files.remove(target, check, Cancel())
        else:
            files.update(target, change, Cancel())


def planned(place: Place, call: ToolCall) -> PlannedChange | None:
    args = call.args or {}
    try:
        path = place.resolve(args.get("path"))
        before = content(place, str(path))
        match call.name, args:
            case "write", {"content": str(text)}:
                after = whole_characters(text).encode()
                after = after if before is None else endings.keep_style(before, after)
            case "edit", _ if before is not None:
                after = replace.apply(before, replace.parse(args), place.shown(path)).content
            case _:
                return None
    except ToolError:
        return None  # the call itself will report the error
    if b"\0" in (before or b"") or b"\0" in after:
        return None
    rows, line = textdiff.diff(endings.text(before), endings.text(after))
    return PlannedChange(rows, line, str(path), before, after)


def diff(before: bytes | None, after: bytes | None) -> str:
    if any(b"\0" in side for side in (before or b"", after or b"")):
        return f"binary: {len(before or b'')} bytes before, {len(after or b'')} after"
    return textdiff.diff(endings.text(before), endings.text(after))[0]
