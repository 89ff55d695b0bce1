"""Storage of a runtime's sessions: zot's files, pi's files, or none."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Protocol

from zot.core.session import Entry, Exported, ExportFormat, Session, SessionInfo


class Sessions(Protocol):
    """Session storage. `current`: the session in use, which a name may also refer to; this process
    holds the lock on its file."""

    def new(self, *, parent: str = "", entries: Iterable[Entry] = ()) -> Session:
        """Create a session from a copy of these entries; `parent`: the session they come from.

        Raises:
            SessionError: it cannot be written.
        """

    def open(self, name: str, current: Session) -> Session:
        """Open a session by path or the beginning of its id; return `current` if it is that one.

        Raises:
            SessionError: there is none, it is in use, or cannot be read or written.
        """

    def list(self, *, everywhere: bool, limit: int) -> Sequence[SessionInfo]:
        """Return the sessions of this directory, or of all, latest first."""

    def info(self, session: Session) -> SessionInfo: ...

    def fork(self, name: str, at: str | int | None, current: Session) -> Session:
        """Copy a session up to an entry or a number of messages; an empty name: the current one.

        Raises:
            SessionError: there is no such session or entry, or the copy cannot be written.
        """

    def export(self, name: str, format: ExportFormat, target: str, current: Session) -> Exported:
        """Export a session; an empty target: return it as text.

        Raises:
            SessionError: there is no such session, or it cannot be written.
        """
