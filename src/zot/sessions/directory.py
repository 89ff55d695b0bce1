"""The sessions of one working directory; implements the interface in runtime/sessions.py."""

from __future__ import annotations

import time
from collections.abc import Iterable
from itertools import islice

import zot
from zot.core.session import Entry, Exported, ExportFormat, Session, SessionInfo
from zot.sessions import library
from zot.sessions.export import export, render
from zot.sessions.files import FileStore, Loaded, load
from zot.sessions.open import begin_session, is_same_file, open_session, path_of, sessions_dir
from zot.sessions.rows import Meta, rfc3339
from zot.text import Frozen

MAX_LISTED = 100_000
"""Upper limit for listings; more than anybody reads."""


class DirectorySessions(Frozen):
    """Session files below `$ZOT_HOME/sessions`; without `keep`, new sessions are in memory only."""

    cwd: str
    home: str
    keep: bool
    provider: str = ""
    """Provider recorded in a new session, together with the model."""
    model: str = ""

    def new(self, *, parent: str = "", entries: Iterable[Entry] = ()) -> Session:
        copied = list(entries)
        if not self.keep:
            return Session(entries=copied, model=(self.provider, self.model))
        if not copied:
            return begin_session(self.cwd, self.home, provider=self.provider, model=self.model)
        loaded = Loaded(self._meta(""), {entry.id: entry for entry in copied}, ())
        return open_session(self._written(loaded, None, parent), self.cwd)

    def open(self, name: str, current: Session) -> Session:
        path = library.find(name, self.cwd, self.home)
        if is_same_file(path, path_of(current)):
            return current  # the open file is locked by this process
        return open_session(path, self.cwd)

    def list(self, *, everywhere: bool, limit: int) -> list[SessionInfo]:
        summaries = library.summaries(None if everywhere else self.cwd, self.home)
        return list(islice(summaries, min(limit, MAX_LISTED)))

    def info(self, session: Session) -> SessionInfo:
        return library.describe(*self._chosen("", session))

    def fork(self, name: str, at: str | int | None, current: Session) -> Session:
        path, loaded = self._chosen(name, current)
        if path:
            copy = library.fork(path, at, loaded, cwd=self.cwd)
        else:
            copy = self._written(loaded, at)
        return open_session(copy, self.cwd)

    def export(self, name: str, format: ExportFormat, target: str, current: Session) -> Exported:
        path, loaded = self._chosen(name, current)
        if target:
            return Exported(path=export(path, target, format, loaded))
        return Exported(content=render(path, format, loaded).decode())

    def _written(self, loaded: Loaded, at: str | int | None, parent: str = "") -> str:
        folder = sessions_dir(self.cwd, self.home)
        return library.fork_into(folder, loaded, at, cwd=self.cwd, parent=parent)

    def _chosen(self, name: str, current: Session) -> tuple[str, Loaded]:
        """Return path and content of the chosen session; the path is empty for one in memory."""
        if name:
            path = library.find(name, self.cwd, self.home)
            return path, load(path)
        store, entries = current.store, dict(current.entries)
        if isinstance(store, FileStore):
            return store.path, Loaded(store.meta, entries, ())
        return "", Loaded(self._meta(current.id, current.last_model), entries, ())

    def _meta(self, id: str, model: tuple[str, str] | None = None) -> Meta:
        provider, name = model or (self.provider, self.model)
        return Meta(id, self.cwd, name, provider, rfc3339(time.time()), zot.__version__)
