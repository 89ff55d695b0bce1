"""What a format of session files is. The store and the library know no more of one than this;
`zot.formats` lists those there are.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Protocol

from zot.core.session import Entry, Session
from zot.sessions.rows import Meta


class Reader(Protocol):
    """What the lines of a file add up to. Feed them in order, then ask for `entries()`."""

    meta: Meta | None
    bad: list[tuple[int, str]]
    """Line numbers and reasons of what was left out."""

    def feed(self, line: bytes, number: int) -> bool:
        """Take one line, without its line feed; False if it is no row."""
        ...

    def entries(self) -> Mapping[str, Entry]: ...

    def sealed(self) -> str:
        """Why nothing may be added to the file; empty: it may."""
        ...


class Writer(Protocol):
    """The lines of one session. It has memory: one instance for each file that is written."""

    last: str | None
    """The entry that is last in the file; whoever has written one sets it."""

    def head(self) -> bytes: ...

    def entry(self, entry: Entry, session: Session) -> bytes:
        """Its lines, perhaps none. The session has the entries that came before."""
        ...


class Format(Protocol):
    name: str
    parent_is_path: bool
    """A fork names the file it came from; else the id of that session."""

    def owns(self, line: bytes) -> bool:
        """Whether a file of this format may begin with this line, or with what is left of it."""
        ...

    def reader(self) -> Reader: ...

    def writer(self, meta: Meta, last: str | None = None) -> Writer:
        """For a new file, or for one that was read and ends with the entry `last`."""
        ...


def lines(format: Format, meta: Meta, entries: Sequence[Entry]) -> Iterator[bytes]:
    """A whole file. The entries are one branch, or a tree in the order it grew."""
    session = Session(entries=entries)
    writer = format.writer(meta)
    yield writer.head()
    for entry in entries:
        yield writer.entry(entry, session)
        writer.last = entry.id
