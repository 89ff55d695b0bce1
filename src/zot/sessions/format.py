"""What a format of session files is: how lines become entries, and entries lines. The store and
the library know no more of one than this; `zot.formats` lists those there are.
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
    """A line that is no row; the text says why."""


class SessionReader:
    """What the lines of a file add up to. Feed them in order, then ask for `entries()`."""

    def __init__(self) -> None:
        self.meta: Meta | None = None
        self.bad: list[tuple[int, str]] = []
        """Line numbers and reasons of what was left out."""
        self.bad_after: list[str] = []
        """The entry before each of them; empty: there was none."""
        self._entries: dict[str, Entry] = {}
        self._last: str | None = None

    def feed(self, line: bytes, number: int) -> bool:
        """Take one line, without its line feed; False if it is no row."""
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
        """Why nothing may be added to the file; empty: it may."""
        return ""

    def _take(self, line: bytes, number: int) -> None:
        """Understand one line. Raises BadRow, MsgspecError: it is no row."""
        raise NotImplementedError

    def _add(self, id: str, parent: Json, time: float, body: Body, number: int) -> str:
        """One entry more; its id. An empty id and a parent that is no text: the row has none."""
        if not id or id in self._entries:
            # The line number is the same at every reading.
            id = f"{number:08x}"
            while id in self._entries:
                id = f"{int(id, 16) + 0x1000_0000:08x}"
        # Also where the parent's row was lost: the conversation goes on. And where it is the row
        # before, for the sake of one text object instead of many.
        if parent is not None and (parent == self._last or parent not in self._entries):
            parent = self._last
        time = time or (body.time if isinstance(body, Message) else 0.0)
        self._entries[id] = Entry(id, parent, time, body)
        self._last = id
        return id


class Writer(Protocol):
    """The lines of one session. It has memory: one instance for each file that is written."""

    last: str | None
    """The entry that is last in the file; whoever has written one sets it."""

    def head(self) -> bytes: ...

    def entry(self, entry: Entry, session: Session) -> bytes:
        """Its lines, perhaps none. The session has the entries that came before."""


class Format(Frozen):
    name: str
    owns: Callable[[bytes], bool]
    """Whether a file of this format may begin with this line, or with what is left of it."""
    reader: Callable[[], SessionReader]
    writer: Callable[[Meta, str | None], Writer]
    """For a new file, or for one that was read and ends with this entry."""
    parent_is_path: bool = False
    """A fork names the file it came from; else the id of that session."""


def lines(format: Format, meta: Meta, entries: Sequence[Entry]) -> Iterator[bytes]:
    """A whole file. The entries are one branch, or a tree in the order it grew."""
    session = Session(entries=entries)
    writer = format.writer(meta, None)
    yield writer.head()
    for entry in entries:
        yield writer.entry(entry, session)
        writer.last = entry.id
