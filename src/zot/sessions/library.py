"""What is on disk: finding, describing, searching, naming, forking and removing sessions."""

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
from zot.sessions import jsonl
from zot.sessions.contents import SessionContents
from zot.sessions.files import Loaded, load, open_to_append
from zot.sessions.format import BadRow, lines
from zot.sessions.open import automatic_path, has_messages, in_use, session_paths, sessions_dir
from zot.sessions.rows import Meta, rfc3339
from zot.text import Frozen

FIRST_TEXT = 200
"""Characters of the first words in a summary."""
AROUND = 60
"""Characters on each side of what was searched for."""


class Hit(Frozen):
    summary: SessionInfo
    entry: str
    role: str
    text: str
    """What was found, and what stands around it."""


# --- finding ---------------------------------------------------------------------------------


def directories(home: str) -> list[str]:
    """The directories with sessions, one for each working directory."""
    root = os.path.join(home, "sessions")
    try:
        return sorted(entry.path for entry in os.scandir(root) if entry.is_dir())
    except (FileNotFoundError, NotADirectoryError):
        return []


def paths(cwd: str | None, home: str) -> list[str]:
    """The sessions of a directory, or of all; latest written first."""
    if cwd is not None:
        return session_paths(sessions_dir(cwd, home))
    files = [path for directory in directories(home) for path in session_paths(directory)]
    return sorted(files, key=_modified, reverse=True)


def summaries(cwd: str | None, home: str) -> Iterator[SessionInfo]:
    """Sessions at a glance, latest first; those that cannot be read are left out."""
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
    """The path of a session: a path, the beginning or end of an id, or `latest`. Raises
    SessionError: there is none, or more than one."""
    if os.path.isfile(reference):
        return reference
    here = paths(cwd, home)
    if reference == "latest":
        if not here:
            raise SessionError("there is no session here; --all looks in all directories")
        return here[0]
    # A session may be named from anywhere by its id.
    everywhere = paths(None, home) if len(reference) >= 4 else ()
    fitting = [path for path in everywhere if _is_named(path, reference)]
    if not fitting:
        raise SessionError(f"there is no session {reference!r}; `zot sessions list` shows them")
    if len(fitting) > 1:
        names = ", ".join(os.path.basename(path) for path in fitting[:3])
        raise SessionError(f"{reference!r} fits {len(fitting)} sessions: {names}")
    return fitting[0]


def find_id(id: str, home: str) -> str:
    """The path of the session with this very id, also of one in which nothing was said yet. Raises
    SessionError: there is none."""
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
    """At most so many summaries from a place in the list on, and the place of those that follow;
    None: there are no more."""
    listed: list[SessionInfo] = []
    all_paths = paths(cwd, home)
    for place in range(max(0, start), len(all_paths)):
        if len(listed) == count:
            return listed, place
        listed += _summary(all_paths[place])
    return listed, None


def id_of(path: str) -> str:
    """The id in the head of a session file; empty: it has none."""
    try:
        with open(path, "rb") as file:
            row = jsonl.decode_object(file.readline().rstrip(b"\r\n"))
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
    """Where a text was said or printed, whatever its case; the first place in each message."""
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
    """A look at the bytes, before the rows are parsed; letters that JSON escapes say maybe."""
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
    """Name a session, also one that another process is writing to. Raises SessionError: it cannot
    be written."""
    if in_use(path) and load(path).format == "zot":
        # One write at the end of the file: it cannot mix with the other process's rows.
        fd = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CLOEXEC)
        try:
            os.write(fd, jsonl.encode_title(title))
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
    """Copy a session up to an entry (or its first N messages) into a new file beside it, whose path
    this is. `loaded`: it was read already; `cwd`: of a session that has no directory of its own.

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
    """The same, without the contents of files, into any directory."""
    session = Session(entries=loaded.entries.values())
    chosen = _up_to(session, at)
    if session.title and session.title != Session(entries=chosen).title:
        # It was given on another branch.
        leaf = chosen[-1].id if chosen else None
        chosen.append(Entry(os.urandom(4).hex(), leaf, time.time(), Title(session.title)))
    count = sum(isinstance(entry.body, Message) for entry in chosen)
    meta = new_meta(cwd, loaded.meta, parent=parent or loaded.meta.id, fork_point=count)
    target = automatic_path(directory, meta.id, time.time())
    write_session(target, meta, chosen, loaded.format)
    return target


def new_meta(cwd: str, old: Meta, *, parent: str = "", fork_point: int | None = None) -> Meta:
    """The head of a copy: a new id and time, the same model and name."""
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
    """Write a whole session into a new file: there is all of it, or no file. Raises SessionError:
    the file exists, or cannot be written."""
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
        os.link(temporary, path)  # unlike a rename it does not replace a file that is there
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
    """Files that nobody misses: without a word in them, or not written to for so many seconds.

    A session that is in use is never among them, nor an empty one that was made just now.
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
    """A session, with what it kept of files. Raises SessionError when it cannot be removed."""
    if in_use(path):
        raise SessionError(f"cannot remove {path!r}: a process of zot works with it")
    try:
        os.unlink(path)
        SessionContents(path).remove()
    except OSError as error:
        raise SessionError(f"cannot remove {path!r}: {error.strerror or error}") from error
