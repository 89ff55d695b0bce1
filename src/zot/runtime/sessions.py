"""Where a runtime keeps its sessions: zot's files, pi's files, or nowhere."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Protocol

from zot.core.session import Entry, Exported, ExportFormat, Session, SessionInfo


class Sessions(Protocol):
    """`current` is the session in use, which a name may mean too: its file is locked, by us."""

    def new(self, *, parent: str = "", entries: Iterable[Entry] = ()) -> Session:
        """A session that goes on from a copy of these entries; `parent` is the one they are of.

        Raises:
            SessionError: it cannot be written.
        """

    def open(self, name: str, current: Session) -> Session:
        """The session of a path, or of the beginning of an id; `current` itself if that is it.

        Raises:
            SessionError: there is none, it is in use, or cannot be read or written.
        """

    def list(self, *, everywhere: bool, limit: int) -> Sequence[SessionInfo]:
        """What is kept of this directory or of all, latest first."""

    def info(self, session: Session) -> SessionInfo: ...

    def fork(self, name: str, at: str | int | None, current: Session) -> Session:
        """A copy, up to an entry or so many messages; an empty name is the current one.

        Raises:
            SessionError: there is no such session or entry, or the copy cannot be written.
        """

    def export(self, name: str, format: ExportFormat, target: str, current: Session) -> Exported:
        """A session for other programs; an empty target: as text.

        Raises:
            SessionError: there is no such session, or it cannot be written.
        """
