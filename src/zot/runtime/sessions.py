"""The session that a runtime uses, and the storage of others: zot's files, pi's files, or none."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Sequence
from functools import cached_property
from typing import Protocol

from zot.core import image as pictures
from zot.core.session import (
    Cleared,
    Entry,
    Exported,
    ExportFormat,
    Replaced,
    Session,
    SessionInfo,
    Title,
)
from zot.errors import BusyError, CommandError, NotFoundError
from zot.provider.types import Level, Message, Model, Text, Usage
from zot.runtime.models import ModelChoice
from zot.runtime.redact import Redactor
from zot.runtime.runs import Runs
from zot.runtime.shell import UserShell


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


class SessionChoice:
    """The session that a runtime uses: its transcript, and the switch to another one."""

    def __init__(
        self,
        runs: Runs,
        models: ModelChoice,
        shell: UserShell,
        store: Callable[[], Sessions] | None,
        redactor: Redactor | None,
    ) -> None:
        """`store` is created on first use; None: only the initial session exists."""
        self._runs = runs
        self._agent = runs.agent
        self._models = models
        self._shell = shell
        self._make_store = store
        self._redactor = redactor

    # --- the transcript ----------------------------------------------------------------------

    def clear(self) -> None:
        """Clear the transcript; its cost stays counted.

        Raises:
            BusyError: a run is in flight; nothing changes.
        """
        with self._runs.idle("clear"):
            self._agent.session.append(Cleared())
            self._agent.forget()
            self._shell.end_background()

    def set_messages(self, messages: Sequence[Message]) -> None:
        """Replace the transcript. Raises BusyError."""
        pictures.check_messages(messages)
        with self._runs.idle("set_messages"):
            self._agent.session.append(Replaced(tuple(messages)))
            self._agent.forget()

    def add_message(self, text: str, then: Callable[[], None] = lambda: None) -> None:
        """Add a message that the model reads with the next prompt; the model is not called now.
        `then`: called once it is added, which is after the current run."""
        text = text if self._redactor is None else self._redactor.text(text)

        def add() -> None:
            self._agent.session.append(Message("user", (Text(text),), time.time()))
            then()

        self._runs.when_idle(add)

    def set_title(self, title: str) -> None:
        """Set the session's title. Raises CommandError when it is empty."""
        if not title.strip():
            raise CommandError("the session's name is empty")
        self._agent.session.append(Title(title.strip()))

    # --- stored sessions ---------------------------------------------------------------------

    @cached_property
    def _store(self) -> Sessions:
        if self._make_store is None:
            raise NotFoundError("this runtime keeps no sessions")
        return self._make_store()

    def list(self, *, everywhere: bool = False, limit: int = 100) -> Sequence[SessionInfo]:
        """Return the stored sessions of this directory, or of all, latest first."""
        return self._store.list(everywhere=everywhere, limit=limit)

    def info(self) -> SessionInfo:
        """Return a summary of the session in use."""
        return self._store.info(self._agent.session)

    def new(self, parent: str = "") -> SessionInfo:
        """Start a new session with the model and level that the runtime was started with.

        Raises:
            BusyError: a run is in flight; nothing changes.
            SessionError: it cannot be written.
        """
        self._runs.check_idle("new_session")
        self._switch(self._store.new(parent=parent), *self._models.initial)
        return self.info()

    def load(self, name: str) -> SessionInfo:
        """Continue a stored session: a path, the beginning of an id, or `latest`.

        Raises:
            BusyError: a run is in flight; nothing changes.
            SessionError: there is none, or it cannot be used.
        """
        self._runs.check_idle("load_session")
        session = self._store.open(name, self._agent.session)
        if session is not self._agent.session:
            self.use(session)
        return self.info()

    def fork(
        self, name: str = "", at: str | int | None = None, *, load: bool = True
    ) -> SessionInfo:
        """Copy a session up to an entry or a number of messages, and (`load`) continue in the copy.

        Raises:
            BusyError: a run is in flight, and the copy should be gone on with.
            SessionError: there is no such session or entry, or the copy cannot be written.
        """
        if load:
            self._runs.check_idle("fork_session")
        copy = self._store.fork(name, at, self._agent.session)
        if load:
            self.use(copy)
            return self.info()
        try:
            return self._store.info(copy)
        finally:
            copy.close()

    def fork_entries(self, entries: Iterable[Entry], parent: str) -> SessionInfo:
        """Start and use a session with these entries, copied from the session `parent`."""
        self._runs.check_idle("fork_session")
        self.use(self._store.new(parent=parent, entries=entries))
        return self.info()

    def export(
        self, name: str = "", format: ExportFormat = "zotsession", target: str = ""
    ) -> Exported:
        """Export a session as a file or a text. Raises SessionError."""
        return self._store.export(name, format, target, self._agent.session)

    def use(self, session: Session) -> None:
        """Continue another session, with the model and level it last used. If that model is no
        longer available, the current one stays.

        Raises:
            BusyError: a run is in flight; nothing changes, and the session is closed.
        """
        self._switch(session, self._models.last_of(session), session.last_level)

    def adopt(self, *, model: bool = True, level: bool = True) -> None:
        """Adopt the model and level last used by the initial session, unless set by flags."""
        session = self._agent.session
        last = self._models.last_of(session) if model else None
        self._models.adopt(last, session.last_level if level else None)

    def _switch(self, session: Session, model: Model | None, level: Level | None) -> None:
        if self._runs.durable is not None:
            session.close()
            raise CommandError("a durable runtime stays with its session: start another one")
        agent = self._agent
        try:
            with self._runs.idle("switching the session"):
                before, agent.session = agent.session, session
                before.close()
                agent.cumulative = Usage()
                agent.resume()
                self._shell.end_background()
        except BusyError:
            session.close()
            raise
        self._runs.queue.clear()
        self._models.adopt(model, level)
