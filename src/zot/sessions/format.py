"""Defines a session file format: how lines become entries, and entries lines. Store and library
know only this interface; `zot.formats` lists the formats.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Protocol

from msgspec import MsgspecError

from zot.core.session import Body, Entry, Session
from zot.provider.types import Json, Message
from zot.sessions.rows import Meta
from zot.text import Frozen


class BadRow(Exception):
    """A line that is no row; the text gives the reason."""


class SessionReader:
    """Collects the entries of a file. Feed the lines in order, then call `entries()`."""

    def __init__(self) -> None:
        self.meta: Meta | None = None
        self.bad: list[tuple[int, str]] = []
        """Line numbers and reasons of skipped lines."""
        self.bad_after: list[str] = []
        """Id of the entry before each of them; empty: there was none."""
        self._entries: dict[str, Entry] = {}
        self._last: str | None = None

    def feed(self, line: bytes, number: int) -> bool:
        """Process one line, without its line feed; return False if it is no row."""
        try:
            self._take(line, number)
        except (BadRow, MsgspecError) as error:
            self.bad.append((number, str(error)))
            self.bad_after.append(next(reversed(self._entries), ""))
            return False
        return True

    def entries(self) -> Mapping[str, Entry]:
        return self._entries

    def sealed(self) -> str:
        """Return why nothing may be appended to the file; empty: it may."""
        return ""

    def _take(self, line: bytes, number: int) -> None:
        """Parse one line. Raises BadRow, MsgspecError: it is no row."""
        raise NotImplementedError

    def _add(self, id: str, parent: Json, time: float, body: Body, number: int) -> str:
        """Add an entry and return its id. Empty `id`, or `parent` no text: the row has none."""
        if not id or id in self._entries:
            # The line number is the same at every reading.
            id = f"{number:08x}"
            while id in self._entries:
                id = f"{int(id, 16) + 0x1000_0000:08x}"
        # If the parent's row was lost, the conversation continues from the previous row. If the
        # parent is the previous row, its string object is shared.
        if parent is not None and (parent == self._last or parent not in self._entries):
            parent = self._last
        time = time or (body.time if isinstance(body, Message) else 0.0)
        self._entries[id] = Entry(id, parent, time, body)
        self._last = id
        return id


class Writer(Protocol):
    """Encodes the lines of one session. Has state: use one instance per file."""

    last: str | None
    """Id of the last entry in the file; set by the caller after each write."""

    def head(self) -> bytes: ...

    def entry(self, entry: Entry, session: Session) -> bytes:
        """Return the entry's lines, maybe none. The session has the entries that came before."""


class Format(Frozen):
    name: str
    owns: Callable[[bytes], bool]
    """Whether a file of this format may begin with this line, or with a cut-off part of it."""
    reader: Callable[[], SessionReader]
    writer: Callable[[Meta, str | None], Writer]
    """Creates a writer for a new file, or for a file that was read and ends with this entry."""
    parent_is_path: bool = False
    """Whether a fork names its parent by path; otherwise by session id."""


def lines(format: Format, meta: Meta, entries: Sequence[Entry]) -> Iterator[bytes]:
    """Yield the lines of a whole file. The entries are one branch, or a tree in creation order."""
    session = Session(entries=entries)
    writer = format.writer(meta, None)
    yield writer.head()
    for entry in entries:
        yield writer.entry(entry, session)
        writer.last = entry.id
