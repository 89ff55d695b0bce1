"""Record of changes that tools made to the user's files: one entry per change, contents by hash.

A store keeps the contents; this module does not touch the user's files.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Protocol

from zot.core.session import Body, Contents, Custom, Entry
from zot.provider.types import ToolCall
from zot.text import Frozen

KIND = "file_change"


class FileChange(Frozen):
    """Recorded before the file is written: after a failed write the file is still at `before`."""

    path: str
    """Absolute."""
    before: str | None
    """Hash of the old content; None: the file did not exist."""
    after: str | None
    """Hash of the new content; None: the file was removed."""


class PlannedChange(Frozen):
    diff: str
    line: int
    """First changed line; 0: none changes."""
    path: str
    """Absolute."""
    before: bytes | None
    """Old content; None: the file does not exist yet."""
    after: bytes


class ShownChange(Frozen):
    """A planned change to show to a person: whole texts, without secrets."""

    path: str
    before: str | None
    after: str


class Files(Protocol):
    """Reads and writes the user's files where the agent's tools work."""

    def content(self, path: str) -> bytes | None:
        """Return a file's content; None: it does not exist. Raises ToolError: it cannot be read."""

    def put(self, path: str, content: bytes | None, expected: bytes | None) -> None:
        """Write or remove a file whose current content must be `expected`.

        Raises:
            ToolError: it has another one, or cannot be written.
        """

    def diff(self, before: bytes | None, after: bytes | None) -> str:
        """Return a diff with some context lines; bounded in size."""

    def planned(self, call: ToolCall) -> PlannedChange | None:
        """Return the change that a call would make; None: it changes no file, or would fail."""


def shown_change(planned: PlannedChange, clean: Callable[[str], str]) -> ShownChange:
    before = planned.before
    texts = (clean(side.decode("utf-8", "replace")) for side in (before or b"", planned.after))
    old, new = texts
    return ShownChange(planned.path, None if before is None else old, new)


def hashed(content: bytes | None) -> str | None:
    if content is None:
        return None
    from hashlib import sha256  # loads OpenSSL, which few runs need before the first answer

    return sha256(content).hexdigest()


def kept_change(contents: Contents, path: str, before: bytes | None, after: bytes | None) -> Body:
    """Store the content of a file about to change; return the entry that records the change."""
    old, new = hashed(before), hashed(after)
    if before is not None and old is not None:
        contents.keep(old, before)
    change = {"path": path, "before": old, "after": new}
    return Custom(KIND, {name: value for name, value in change.items() if value})


def changes_of(entries: Iterable[Entry]) -> list[FileChange]:
    """Return the file changes among these entries, in order."""
    bodies = (entry.body for entry in entries)
    return [_change(body) for body in bodies if isinstance(body, Custom) and body.kind == KIND]


def _change(body: Custom) -> FileChange:
    path, before, after = (body.data.get(name) for name in ("path", "before", "after"))
    return FileChange(
        str(path), None if before is None else str(before), None if after is None else str(after)
    )
