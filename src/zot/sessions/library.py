"""Finds, describes, searches, renames, forks and removes the sessions on disk."""

from __future__ import annotations

import os
import time
from collections.abc import Iterable, Iterator

import msgspec

import zot
from zot.core.session import (
    Entry,
    ModelChange,
    Session,
    SessionInfo,
    Title,
    UsageNote,
    new_session_id,
)
from zot.errors import SessionError
from zot.files import ensure_dir, sync_dir
from zot.formats import format_named
from zot.provider.types import Message, Text, ToolResult
from zot.sessions.contents import SessionContents
from zot.sessions.files import Loaded, load, open_to_append
from zot.sessions.format import BadRow, decode_object, encode_title, lines
from zot.sessions.open import automatic_path, has_messages, in_use, session_paths, sessions_dir
from zot.sessions.rows import Meta, rfc3339
from zot.text import Frozen

FIRST_TEXT = 200
"""Maximum characters of the first text in a summary."""
AROUND = 60
"""Characters of context on each side of a search hit."""


class Hit(Frozen):
    summary: SessionInfo
    entry: str
    role: str
    text: str
    """The hit with its context."""


# --- finding ---------------------------------------------------------------------------------


def directories(home: str) -> list[str]:
    """Return the session directories, one for each working directory."""
    root = os.path.join(home, "sessions")
    try:
        return sorted(entry.path for entry in os.scandir(root) if entry.is_dir())
    except (FileNotFoundError, NotADirectoryError):
        return []


def paths(cwd: str | None, home: str) -> list[str]:
    """Return the sessions of a directory, or of all; latest written first."""
    if cwd is not None:
        return session_paths(sessions_dir(cwd, home))
    files = [path for directory in directories(home) for path in session_paths(directory)]
    return sorted(files, key=_modified, reverse=True)


def summaries(cwd: str | None, home: str) -> Iterator[SessionInfo]:
    """Yield summaries of the sessions, latest first; unreadable ones are skipped."""
    for path in paths(cwd, home):
        yield from _summary(path)


def _summary(path: str) -> Iterator[SessionInfo]:
    try:
        loaded = load(path)
    except SessionError:
        return
    if loaded.meta.hide_from_sessions is not True:
        yield describe(path, loaded)


def describe(path: str, loaded: Loaded) -> SessionInfo:
    meta = loaded.meta
    session = Session(entries=loaded.entries.values())
    cost, provider, model = 0.0, meta.provider, meta.model
    for entry in loaded.entries.values():
        if isinstance(entry.body, UsageNote):
            cost = entry.body.cumulative.cost.total
    for entry in session.path():
        if isinstance(entry.body, ModelChange):
            provider, model = entry.body.provider, entry.body.model
    return SessionInfo(
        path=path,
        id=meta.id,
        cwd=meta.cwd,
        title=session.title or meta.title or "",
        first_text=_first_text(loaded.entries.values()),
        provider=provider,
        model=model,
        started=meta.started,
        modified=_modified(path),
        messages=session.message_count(),
        cost=cost,
        parent=meta.parent or "",
        format=loaded.format,
    )


def find(reference: str, cwd: str | None, home: str) -> str:
    """Return the path of a session: a path, the beginning or end of an id, or `latest`. Raises
    SessionError: there is none, or more than one.
    """
    if os.path.isfile(reference):
        return reference
    here = paths(cwd, home)
    if reference == "latest":
        if not here:
            raise SessionError("there is no session here; --all looks in all directories")
        return here[0]
    # An id is looked up in all directories.
    everywhere = paths(None, home) if len(reference) >= 4 else ()
    fitting = [path for path in everywhere if _is_named(path, reference)]
    if not fitting:
        raise SessionError(f"there is no session {reference!r}; `zot sessions list` shows them")
    if len(fitting) > 1:
        names = ", ".join(os.path.basename(path) for path in fitting[:3])
        raise SessionError(f"{reference!r} fits {len(fitting)} sessions: {names}")
    return fitting[0]


def find_id(id: str, home: str) -> str:
    """Return the path of the session with exactly this id, even one without messages. Raises
    SessionError: there is none.
    """
    # A file in its usual place has the end of the id in its name.
    end = f"-{id[-8:]}.jsonl"
    for directory in directories(home):
        for entry in os.scandir(directory):
            if entry.name.endswith(end) and id_of(entry.path) == id:
                return entry.path
    for path in paths(None, home):
        if id_of(path) == id:
            return path
    raise SessionError(f"there is no session {id!r}; `zot sessions list` shows them")


def page(
    cwd: str | None, home: str, start: int, count: int
) -> tuple[list[SessionInfo], int | None]:
    """Return up to `count` summaries from index `start`, and the index of the next page; None:
    there are no more.
    """
    listed: list[SessionInfo] = []
    all_paths = paths(cwd, home)
    for place in range(max(0, start), len(all_paths)):
        if len(listed) == count:
            return listed, place
        listed += _summary(all_paths[place])
    return listed, None


def id_of(path: str) -> str:
    """Return the id in the head of a session file; empty if it has none."""
    try:
        with open(path, "rb") as file:
            row = decode_object(file.readline().rstrip(b"\r\n"))
    except (OSError, BadRow):
        return ""
    meta = row.get("meta", row)
    return str(meta.get("id", "")) if isinstance(meta, dict) else ""


def _is_named(path: str, reference: str) -> bool:
    name = os.path.basename(path).removesuffix(".jsonl")
    if name == reference or name.endswith(reference):
        return True
    return id_of(path).startswith(reference)


def search(text: str, cwd: str | None, home: str) -> Iterator[Hit]:
    """Find a text in messages, ignoring case; the first hit in each message."""
    wanted = text.casefold()
    for path in paths(cwd, home):
        try:
            with open(path, "rb") as file:
                data = file.read()
            loaded = load(path) if wanted.isascii() is False or _may_hold(data, wanted) else None
        except (OSError, SessionError):
            continue
        if loaded is None:
            continue
        summary = describe(path, loaded)
        for entry in loaded.entries.values():
            if isinstance(entry.body, Message) and (excerpt := _found(entry.body, wanted)):
                yield Hit(summary, entry.id, entry.body.role, excerpt)


def _may_hold(data: bytes, wanted: str) -> bool:
    """Check the raw bytes before parsing; characters that JSON may escape count as maybe."""
    plain = all(letter.isalnum() or letter in " .,:;-_()" for letter in wanted)
    return not plain or wanted.encode() in data.lower()


def _found(message: Message, wanted: str) -> str:
    for text in texts_of(message):
        at = text.casefold().find(wanted)
        if at >= 0:
            start, end = max(0, at - AROUND), at + len(wanted) + AROUND
            return " ".join(text[start:end].split())
    return ""


def texts_of(message: Message) -> Iterator[str]:
    for block in message.content:
        if isinstance(block, Text):
            yield block.text
        elif isinstance(block, ToolResult):
            yield from (part.text for part in block.content if isinstance(part, Text))


def _first_text(entries: Iterable[Entry]) -> str:
    for entry in entries:
        if isinstance(entry.body, Message) and entry.body.role == "user":
            text = next(texts_of(entry.body), "")
            if text.strip():
                return " ".join(text.split())[:FIRST_TEXT]
    return ""


def _modified(path: str) -> float:
    try:
        return os.stat(path).st_mtime
    except OSError:
        return 0.0


# --- changing --------------------------------------------------------------------------------


def rename(path: str, title: str) -> None:
    """Set a session's title, even while another process writes to it. Raises SessionError: it
    cannot be written.
    """
    if in_use(path) and load(path).format == "zot":
        # A single append cannot mix with the other process's rows.
        fd = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CLOEXEC)
        try:
            os.write(fd, encode_title(title))
        finally:
            os.close(fd)
        return
    store, loaded = open_to_append(path)
    session = Session(id=loaded.meta.id, entries=loaded.entries.values(), store=store)
    store.follow(session)
    try:
        session.append(Title(title))
    finally:
        session.close()


def fork(
    path: str, at: str | int | None = None, loaded: Loaded | None = None, *, cwd: str = ""
) -> str:
    """Copy a session up to an entry (or its first N messages) into a new file beside it; return the
    path. `loaded`: its content, if already read; `cwd`: used if the session has no directory.

    Raises:
        SessionError: there is no such entry, or the copy cannot be written.
    """
    loaded = loaded or load(path)
    folder, file = os.path.split(os.path.abspath(path))
    by_path = format_named(loaded.format).parent_is_path
    parent = os.path.join(folder, file) if by_path else loaded.meta.id
    copy = fork_into(folder, loaded, at, cwd=loaded.meta.cwd or cwd, parent=parent)
    SessionContents(path).copy_to(copy)
    return copy


def fork_into(
    directory: str, loaded: Loaded, at: str | int | None, *, cwd: str, parent: str = ""
) -> str:
    """Fork into any directory, without the stored file contents."""
    session = Session(entries=loaded.entries.values())
    chosen = _up_to(session, at)
    if session.title and session.title != Session(entries=chosen).title:
        # The title was set on another branch.
        leaf = chosen[-1].id if chosen else None
        chosen.append(Entry(os.urandom(4).hex(), leaf, time.time(), Title(session.title)))
    count = sum(isinstance(entry.body, Message) for entry in chosen)
    meta = new_meta(cwd, loaded.meta, parent=parent or loaded.meta.id, fork_point=count)
    target = automatic_path(directory, meta.id, time.time())
    write_session(target, meta, chosen, loaded.format)
    return target


def new_meta(cwd: str, old: Meta, *, parent: str = "", fork_point: int | None = None) -> Meta:
    """Return the head of a copy: new id and time, same model and title."""
    return Meta(
        id=new_session_id(),
        cwd=cwd,
        model=old.model,
        provider=old.provider,
        started=rfc3339(time.time()),
        version=zot.__version__,
        title=old.title,
        parent=parent or msgspec.UNSET,
        fork_point=msgspec.UNSET if fork_point is None else fork_point,
    )


def write_session(path: str, meta: Meta, entries: list[Entry], format: str = "zot") -> None:
    """Write a whole session into a new file, completely or not at all. Raises SessionError: the
    file exists, or cannot be written.
    """
    temporary = f"{path}.{os.getpid()}.tmp"
    try:
        directory = ensure_dir(os.path.dirname(path) or ".")
        with open(os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as file:
            file.writelines(lines(format_named(format), meta, entries))
            file.flush()
            os.fsync(file.fileno())
        _publish(temporary, path)
        sync_dir(directory)
    except OSError as error:
        raise SessionError(f"cannot write {path!r}: {error.strerror or error}") from error
    finally:
        if os.path.exists(temporary):
            os.unlink(temporary)


def _publish(temporary: str, path: str) -> None:
    try:
        os.link(temporary, path)  # unlike a rename, never replaces an existing file
    except FileExistsError:
        raise
    except OSError:  # a file system without hard links
        if os.path.lexists(path):
            raise FileExistsError(17, "File exists") from None
        os.rename(temporary, path)


def _up_to(session: Session, at: str | int | None) -> list[Entry]:
    if at is None:
        return session.path()
    if isinstance(at, str):
        if at not in session.entries:
            raise SessionError(f"the session has no entry {at!r}; `zot sessions tree` shows them")
        return session.path(at)
    path = session.path()
    ends = [place for place, entry in enumerate(path, 1) if isinstance(entry.body, Message)]
    if not 0 <= at <= len(ends):
        raise SessionError(f"the session has {len(ends)} messages, not {at}")
    return path[: ends[at - 1]] if at else []


# --- removing --------------------------------------------------------------------------------


def prunable(cwd: str | None, home: str, older_than: float | None) -> list[str]:
    """Return files that can be deleted: without messages, or not written for `older_than` seconds.

    Never includes a session in use, nor an empty one made within the last minute.
    """
    places = directories(home) if cwd is None else [sessions_dir(cwd, home)]
    now = time.time()
    paths = []
    for place in places:
        try:
            files = [entry.path for entry in os.scandir(place) if entry.name.endswith(".jsonl")]
        except FileNotFoundError:
            continue
        for path in sorted(files):
            age = now - _modified(path)
            old = older_than is not None and age >= older_than
            if (old or (age > 60 and not has_messages(path))) and not in_use(path):
                paths.append(path)
    return paths


def remove(path: str) -> None:
    """Remove a session and its stored file contents. Raises SessionError: it cannot be removed."""
    if in_use(path):
        raise SessionError(f"cannot remove {path!r}: a process of zot works with it")
    try:
        os.unlink(path)
        SessionContents(path).remove()
    except OSError as error:
        raise SessionError(f"cannot remove {path!r}: {error.strerror or error}") from error
