"""Opens the session of a run: a new file, an existing one, or the latest one here."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from hashlib import sha256

import zot
from zot.bugs import complain
from zot.core.session import Session, new_session_id
from zot.errors import SessionError
from zot.sessions.files import FileStore, Loaded, holder, open_checked, open_to_append, take
from zot.sessions.rows import Meta, rfc3339

Warn = Callable[[str], None]


def warn_on_stderr(text: str) -> None:
    complain(f"warning: {text}")


def sessions_dir(cwd: str, home: str) -> str:
    """Return the directory for the sessions of a working directory; the Go zot uses the same."""
    return os.path.join(home, "sessions", sha256(os.fsencode(cwd)).hexdigest()[:16])


def open_session(
    path: str,
    cwd: str,
    *,
    provider: str = "",
    model: str = "",
    warn: Warn = warn_on_stderr,
    wait: float = 0.0,
) -> Session:
    """Open the session in `path`, or create it. `wait`: seconds to wait for another process that
    has the file and may be about to end.

    Raises:
        SessionError: it is in use, is no session file, or cannot be read or written.
    """
    meta = Meta(new_session_id(), cwd, model, provider, rfc3339(time.time()), zot.__version__)
    try:
        return _open_or_create(path, meta, warn, wait)
    except SessionError as error:
        if not isinstance(error.__cause__, FileNotFoundError):
            raise
    return _open_or_create(path, meta, warn, wait)  # the process that held it removed it


def _open_or_create(path: str, meta: Meta, warn: Warn, wait: float) -> Session:
    if os.path.lexists(path) and not _is_empty(path):
        return _reopen(path, warn, wait)
    store = _created(path, meta, wait)
    return _reopen(path, warn, wait) if store is None else _session(store, meta.id)


def resumed(session: str, cwd: str, home: str, *, wait: float = 0.0) -> Session | None:
    """Return the session to resume: from this path, else the latest one here; None: there is none
    yet. Raises SessionError: it is in use, is no session file, or cannot be read or written.
    """
    path = session or latest_path(cwd, home)
    if not path or not os.path.lexists(path):
        return None
    return open_session(path, cwd, wait=wait)


def path_of(session: Session) -> str:
    """Return the session's file, or an empty text."""
    return session.store.path if isinstance(session.store, FileStore) else ""


def is_same_file(path: str, other: str) -> bool:
    try:
        return bool(other) and os.path.samefile(path, other)
    except OSError:  # not written yet
        return os.path.realpath(path) == os.path.realpath(other)


def begin_session(
    cwd: str, home: str, *, provider: str = "", model: str = "", at_once: bool = False
) -> Session:
    """Begin a session in its usual place. The file is created with the first entry; with `at_once`
    it is created now and stays, so that another process can continue the session.
    """
    id = new_session_id()
    started = time.time()
    meta = Meta(id, cwd, model, provider, rfc3339(started), zot.__version__)
    path = automatic_path(sessions_dir(cwd, home), id, started)
    return _session(FileStore.create(path, meta, lazy=not at_once, keep=at_once), id)


def latest_path(cwd: str, home: str) -> str | None:
    paths = session_paths(sessions_dir(cwd, home))
    return paths[0] if paths else None


def session_paths(directory: str) -> list[str]:
    """Return a directory's session files that contain messages, latest written first."""
    try:
        entries = [entry for entry in os.scandir(directory) if entry.name.endswith(".jsonl")]
    except (FileNotFoundError, NotADirectoryError):
        return []
    files = [entry for entry in entries if entry.is_file(follow_symlinks=False)]
    files.sort(key=lambda entry: (entry.stat().st_mtime_ns, entry.name), reverse=True)
    return [entry.path for entry in files if has_messages(entry.path)]


def has_messages(path: str) -> bool:
    """Return whether the file contains a message. Searches the text without parsing rows."""
    try:
        with open(path, "rb") as file:
            return any(b'"type":"message"' in line or b'"messages":[{' in line for line in file)
    except OSError:
        return False


def in_use(path: str) -> bool:
    """Return whether a process has the session open for writing."""
    try:
        fd = open_checked(path, os.O_RDONLY)
    except SessionError:
        return False
    try:
        if os.path.exists("/proc/locks"):
            return holder(fd) is not None
        # Elsewhere only trying the lock tells; meanwhile another process that opens it is refused.
        take(fd, path)
    except SessionError:
        return True
    finally:
        os.close(fd)
    return False


def automatic_path(directory: str, id: str, started: float) -> str:
    stamp = time.strftime("%Y%m%d-%H%M%S", time.gmtime(started))
    # The last digits: time-ordered ids of the same minute begin alike.
    return os.path.join(directory, f"{stamp}-{id[-8:]}.jsonl")


def _created(path: str, meta: Meta, wait: float) -> FileStore | None:
    """Create a new file, or begin in an empty one; return None if another process begins a session
    there at the same moment.
    """
    try:
        if os.path.lexists(path):
            return FileStore.begin_in(path, meta, wait)
        return FileStore.create(path, meta)
    except SessionError as error:
        if isinstance(error.__cause__, FileExistsError):
            return None
        raise


def _reopen(path: str, warn: Warn, wait: float) -> Session:
    store, loaded = open_to_append(path, wait=wait)
    for note in loaded.notes:
        warn(note)
    return _session(store, loaded.meta.id or new_session_id(), loaded)


def _session(store: FileStore, id: str, loaded: Loaded | None = None) -> Session:
    entries = loaded.entries.values() if loaded else ()
    meta = store.meta
    model = (meta.provider, meta.model) if meta.model else None
    session = Session(id=id, entries=entries, store=store, model=model)
    session.damaged = loaded.damaged if loaded else frozenset()
    store.follow(session)
    return session


def _is_empty(path: str) -> bool:
    try:
        return os.lstat(path).st_size == 0 and os.path.isfile(path) and not os.path.islink(path)
    except OSError:
        return False
