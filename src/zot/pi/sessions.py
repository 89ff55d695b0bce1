"""Location of the sessions in pi's dialect; opening, forking and copying them.

Files have pi's format and layout, so that either program can continue them: `<agent
directory>/sessions/--<working directory>--/<time>_<id>.jsonl`.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterable, Sequence

from msgspec import UNSET
from msgspec.structs import replace

import zot
from zot.core.session import (
    Entry,
    Exported,
    ExportFormat,
    Session,
    SessionInfo,
    Title,
    new_session_id,
)
from zot.errors import SessionError
from zot.home import Surroundings
from zot.sessions.files import FileStore, Loaded, load
from zot.sessions.library import describe
from zot.sessions.open import is_same_file, open_session, path_of, session_paths
from zot.sessions.rows import Meta, rfc3339
from zot.settings.options import Options
from zot.settings.resolve import Plan, Setup


class PiSessions:
    """The sessions of one working directory, in files or in memory only."""

    def __init__(self, cwd: str, directory: str | None) -> None:
        self.cwd = cwd
        self.directory = directory
        """Folder of the files; None: sessions are in memory only."""

    @classmethod
    def of(cls, setup: Setup) -> PiSessions:
        """Use the location given by the flags and pi's environment variables."""
        directory = sessions_directory(setup.cwd, setup.around, setup.options.session_dir)
        return cls(setup.cwd, None if setup.options.no_session else directory)

    def new(self, *, parent: str = "", entries: Iterable[Entry] = (), id: str = "") -> Session:
        """Create a session with a copy of these entries. Its file appears with the first message.
        Raises SessionError: it cannot be written."""
        id = id or new_session_id()
        if self.directory is None:
            return Session(id=id, entries=entries)
        started = time.time()
        path = os.path.join(self.directory, file_name(id, started))
        return self._create(path, id, started, parent, list(entries))

    def open(self, name: str, current: Session | None = None) -> Session:
        """Open a file of pi's format or ours; return `current` if it has that file. Raises
        SessionError: there is none, or it cannot be used."""
        path = os.path.expanduser(name)
        if current is not None and is_same_file(path, path_of(current)):
            return current  # we hold the lock of the open file
        if not os.path.exists(path):
            raise SessionError(f"there is no session {path!r}")
        if self.directory is not None:
            return open_session(path, self.cwd)
        loaded = load(path)
        return Session(id=loaded.meta.id or None, entries=loaded.entries.values())

    def find(self, wanted: str) -> Session:
        """Find a session by path, id or prefix of an id; a path that does not exist is a new
        session. Raises SessionError: it cannot be used."""
        if os.path.sep in wanted or wanted.endswith(".jsonl") or self.directory is None:
            if os.path.exists(os.path.expanduser(wanted)) or self.directory is None:
                return self.open(wanted)
            path = os.path.abspath(os.path.expanduser(wanted))
            return self._create(path, new_session_id(), time.time())
        fitting = self._path_with(wanted)
        if fitting is None:
            where = f"in {self.directory!r}"
            raise SessionError(f"there is no session with the id {wanted!r} {where}")
        return self.open(fitting)

    def with_id(self, id: str) -> Session:
        """Open the session with exactly this id, or create it."""
        path = self._path_with(f"{id}.jsonl") if id else None
        return self.new(id=id) if path is None else self.open(path)

    def copy(self, wanted: str, id: str = "") -> Session:
        """Create a session with a copy of another one. Raises SessionError: there is none, or it
        cannot be used."""
        source = self.find(wanted)
        try:
            return self.new(parent=path_of(source), entries=source.path(), id=id)
        finally:
            source.close()

    def list(self, *, everywhere: bool, limit: int) -> list[SessionInfo]:
        paths = session_paths(self.directory) if self.directory is not None else []
        return [describe(path, load(path)) for path in paths[:limit]]

    def info(self, session: Session) -> SessionInfo:
        meta = Meta(session.id, self.cwd, started=rfc3339(time.time()))
        store = session.store
        if isinstance(store, FileStore):
            meta = store.meta
        return describe(path_of(session), Loaded(meta, dict(session.entries), ()))

    def fork(self, name: str, at: str | int | None, current: Session) -> Session:
        source = self.find(name) if name else current
        try:
            entry = source.entries.get(at) if isinstance(at, str) else None
            if at is not None and entry is None:
                raise SessionError(f"there is no entry with the id {at!r}")
            entries = source.path(entry.id) if entry is not None else source.path()
            return self.new(parent=path_of(source), entries=entries)
        finally:
            if source is not current:
                source.close()

    def export(self, name: str, format: ExportFormat, target: str, current: Session) -> Exported:
        raise SessionError("pi has a page of a session only: export_html")

    def _path_with(self, id: str) -> str | None:
        """Return the file of the session whose id has this prefix."""
        for path in session_paths(self.directory) if self.directory is not None else ():
            if os.path.basename(path).partition("_")[2].startswith(id):
                return path
        return None

    def latest(self) -> Session:
        """Open the session that was written last, or create one."""
        paths = session_paths(self.directory) if self.directory is not None else []
        return self.open(paths[0]) if paths else self.new()

    def _create(
        self, path: str, id: str, started: float, parent: str = "", entries: Sequence[Entry] = ()
    ) -> Session:
        meta = Meta(
            id,
            self.cwd,
            started=rfc3339(started),
            version=zot.__version__,
            parent=parent or UNSET,
        )
        store = FileStore.create(path, meta, lazy=True, format="pi")
        session = Session(id=id, entries=entries, store=store)
        store.follow(session)
        for entry in entries:
            store.append(entry)
        return session


def agent_directory(around: Surroundings) -> str:
    """Return the folder in pi's variable, else our own: pi's home is only used on request."""
    named = around.environ.get("PI_CODING_AGENT_DIR", "").strip()
    return os.path.expanduser(named) if named else os.path.join(around.home, "pi-agent")


def sessions_directory(cwd: str, around: Surroundings, flag: str = "") -> str:
    named = flag or around.environ.get("PI_CODING_AGENT_SESSION_DIR", "").strip()
    if named:
        return os.path.abspath(os.path.expanduser(named))
    safe = cwd.lstrip("/\\").translate(str.maketrans("/\\:", "---"))
    return os.path.join(agent_directory(around), "sessions", f"--{safe}--")


def file_name(id: str, started: float) -> str:
    stamp = time.strftime("%Y-%m-%dT%H-%M-%S", time.gmtime(started))
    return f"{stamp}-{round(started * 1000) % 1000:03d}Z_{id}.jsonl"


def with_session(plan: Plan) -> Plan:
    """Return the plan with its session. Raises SessionError: it cannot be used."""
    setup = plan.setup
    session = _first_session(setup.options, PiSessions.of(setup))
    if not setup.options.model and session.last_model is not None:
        # Keep the session's model: in pi, `--provider` alone does not select a model.
        setup = replace(setup, flags=replace(setup.flags, provider=""), notice="")
    return replace(plan, setup=setup, session=session)


def _first_session(options: Options, sessions: PiSessions) -> Session:
    if options.session:
        session = sessions.find(options.session)
    elif options.continue_ or options.resume:
        session = sessions.latest()
    elif options.fork:
        session = sessions.copy(options.fork, options.session_id)
    else:
        session = sessions.with_id(options.session_id)
    if options.session_name:
        session.append(Title(options.session_name))
    return session
