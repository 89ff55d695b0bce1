"""What tools changed in the user's files: one entry a change, with the content by its hash.

Where contents are kept is a store's business; files of the user's are not touched here.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Protocol

from zot.core.session import Body, Contents, Custom, Entry
from zot.provider.types import ToolCall
from zot.text import Frozen

KIND = "file_change"


class FileChange(Frozen):
    """Noted before the file is written: one that failed left the file at `before`."""

    path: str
    """Absolute."""
    before: str | None
    """The hash of its content; None: there was no such file."""
    after: str | None
    """None: it was removed."""


class PlannedChange(Frozen):
    diff: str
    line: int
    """The first one that changes; 0: none does."""
    path: str
    """Absolute."""
    before: bytes | None
    """None: there is no such file yet."""
    after: bytes


class ShownChange(Frozen):
    """A planned change for the eyes of a person: whole texts, without secrets."""

    path: str
    before: str | None
    after: str


class Files(Protocol):
    """Reads and writes the user's files where the agent's tools work."""

    def content(self, path: str) -> bytes | None:
        """What is in a file; None: there is none. Raises ToolError: it cannot be read."""

    def put(self, path: str, content: bytes | None, expected: bytes | None) -> None:
        """Write or remove a file that has this content now.

        Raises:
            ToolError: it has another one, or cannot be written.
        """

    def diff(self, before: bytes | None, after: bytes | None) -> str:
        """The rows that differ, with some around them; bounded."""

    def planned(self, call: ToolCall) -> PlannedChange | None:
        """What a call would change in its file; None: it changes none, or would fail."""


def shown_change(planned: PlannedChange, clean: Callable[[str], str]) -> ShownChange:
    before = planned.before
    texts = (clean(side.decode("utf-8", "replace")) for side in (before or b"", planned.after))
    old, new = texts
    return ShownChange(planned.path, None if before is None else old, new)


def hashed(content: bytes | None) -> str | None:
    if content is None:
        return None
    from hashlib import sha256  # loads OpenSSL: few runs change a file before the model answered

    return sha256(content).hexdigest()


def kept_change(contents: Contents, path: str, before: bytes | None, after: bytes | None) -> Body:
    """Keep what is in a file that is about to change; the entry that says so."""
    old, new = hashed(before), hashed(after)
    if before is not None and old is not None:
        contents.keep(old, before)
    change = {"path": path, "before": old, "after": new}
    return Custom(KIND, {name: value for name, value in change.items() if value})


def changes_of(entries: Iterable[Entry]) -> list[FileChange]:
    """The changes among these entries, in their order."""
    bodies = (entry.body for entry in entries)
    return [_change(body) for body in bodies if isinstance(body, Custom) and body.kind == KIND]


def _change(body: Custom) -> FileChange:
    path, before, after = (body.data.get(name) for name in ("path", "before", "after"))
    return FileChange(
        str(path), None if before is None else str(before), None if after is None else str(after)
    )
