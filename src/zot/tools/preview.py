"""What a call of `write` or `edit` would make of its file, for a person who is asked. It changes
nothing: the tool itself does, and decides anew what the file is.
"""

from __future__ import annotations

import os
from pathlib import Path

from zot.core.tool import FileChange
from zot.errors import ToolError
from zot.provider.types import Json, ToolCall
from zot.text import whole_characters
from zot.tools import endings, files, replace
from zot.tools.place import Place

MOST = 512 * 1024
"""Bytes of a file that anybody looks at."""


def preview(call: ToolCall, place: Place) -> FileChange | None:
    """None: it is another tool, the call would fail, or the file is no text for people."""
    args = call.args or {}
    if call.name not in ("write", "edit"):
        return None
    try:
        path = place.resolve(args.get("path"))
        before = _content(path, place, new=call.name == "write")
        after = _after(call.name, args, before, place.shown(path))
    except (ToolError, OSError):
        return None
    if len(before or b"") > MOST or len(after) > MOST:
        return None
    try:
        return FileChange(str(path), None if before is None else before.decode(), after.decode())
    except UnicodeDecodeError:
        return None


def _content(path: Path, place: Place, *, new: bool) -> bytes | None:
    """Raises ToolError: it cannot be reached, or is no file."""
    if new and not os.path.lexists(path.parent):
        return None
    with place.target(path, create=False) as target:
        return files.load(target)


def _after(name: str, args: dict[str, Json], before: bytes | None, shown: str) -> bytes:
    if name == "edit":
        if before is None:
            raise ToolError(f"no such file: {shown!r}")
        return replace.apply(before, replace.parse(args), shown).content
    content = args.get("content")
    if not isinstance(content, str):
        raise ToolError("content is required")
    wanted = whole_characters(content).encode()
    return wanted if before is None else endings.keep_style(before, wanted)
