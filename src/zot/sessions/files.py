"""Session files on disk: acknowledged data survives a kill, a full disk and a torn line.

One entry is one `write` on a descriptor opened for appending; nothing is ever rewritten in place.
The file itself is locked while a process writes to it.
"""

from __future__ import annotations

import errno
import gc
import os
import re
import stat
import sys
import time
from collections.abc import Mapping
from typing import Literal

from msgspec.structs import replace

from zot.core.session import JOURNAL, Custom, Entry, Replaced, Session, new_session_id
from zot.errors import SessionError, SessionTaken
from zot.files import ensure_dir, lock, sync_dir
from zot.formats import format_named, format_of, formats
from zot.lines import write_all
from zot.provider.types import Message
from zot.sessions.contents import SessionContents
from zot.sessions.format import Format, SessionReader
from zot.sessions.rows import Meta, rfc3339
from zot.text import Frozen

Sync = Literal["event", "turn", "off"]

FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
"""Errors of a disk that is full."""
_SAFE = (
    getattr(os, "O_CLOEXEC", 0)
    | getattr(os, "O_NOFOLLOW", 0)
    | getattr(os, "O_NONBLOCK", 0)  # opening a FIFO must fail below, not hang
)
_NOT_CUT = re.compile(rb'[\x00-\x1f]|,"crc":"[0-9a-f]{8}"\}')
_NEW = os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_EXCL | _SAFE


class FileStore:
    """Stores the entries of one session in one file.

    With `lazy`, the file is created with the first entry: an unused session leaves no file.
    """

    def __init__(
        self,
        path: str,
        meta: Meta,
        *,
        fd: int | None = None,
        sync: Sync = "turn",
        format: str = "zot",
        last: str | None = None,
    ) -> None:
        self.path = path
        self.meta = meta
        self.format = format
        self._writer = format_named(format).writer(meta, last)
        self._fd = fd
        self._sync = sync
        self._created = False
        self._kept = fd is not None
        """Whether the file is kept on close."""
        self._session = Session()
        self._failed: SessionError | None = None
        self._end: int | None = None
        """Expected size of the file in bytes; None: not checked."""
        self.contents = SessionContents(path) if format == "zot" else None
        self._witness = os.environ.get("ZOT_WITNESS", "") if sync != "off" else ""

    @classmethod
    def create(
        cls, path: str, meta: Meta, *, lazy: bool = False, keep: bool = False, format: str = "zot"
    ) -> FileStore:
        """Create a new file. `keep`: it stays even without messages. Raises SessionError: it
        exists, or it cannot be created.
        """
        store = cls(path, meta, sync=sync_policy(), format=format)
        store._kept = keep
        if not lazy:
            store._open()
        return store

    @classmethod
    def begin_in(cls, path: str, meta: Meta, wait: float = 0.0) -> FileStore | None:
        """Begin a session in an empty file; None: it is not empty any more. Raises SessionError:
        another process has it, or it cannot be written.
        """
        fd = _open_taken(path, wait)
        try:
            if os.fstat(fd).st_size:
                os.close(fd)
                return None
            store = cls(path, meta, fd=fd, sync=sync_policy())
            store._begin(fd)
        except SessionError:
            os.close(fd)
            raise
        return store

    def follow(self, session: Session) -> None:
        """Set the session of these entries: some rows repeat earlier ones of their branch."""
        self._session = session

    def fence(self) -> None:
        """From now on refuse to write once another process has written to the file. Locks work on
        one machine only; on a network file system two processes could continue one session.
        """
        fd = self._open()
        self._end = os.fstat(fd).st_size
        self.path = os.path.abspath(self.path)  # an embedder may change the directory

    def append(self, entry: Entry) -> None:
        if self._failed:
            raise self._failed
        fd = self._open()
        line = self._writer.entry(entry, self._session)
        if self._end is None:
            self._write(fd, line)
        else:
            self._write_fenced(fd, line)
        self._writer.last = entry.id
        body = entry.body
        said = isinstance(body, Message | Replaced)
        noted = isinstance(body, Custom) and body.kind == JOURNAL
        self._kept = self._kept or said or noted
        if self._sync == "event":
            self._fdatasync(fd)

    def sync(self) -> None:
        if self._fd is not None and self._sync == "turn" and not self._failed:
            self._fdatasync(self._fd)

    def repair(self, torn: bytes, *, headless: bool) -> None:
        """Prepare the file for more rows: remove a torn last line, add a missing head.

        Raises:
            SessionError: it cannot be done now. The file is as it was, and nothing is added to it.
        """
        assert self._fd is not None
        try:
            if torn:
                _cut(self._fd, self.path, torn)
            elif _lacks_newline(self._fd):
                write_all(self._fd, b"\n")
            if headless:
                self._write(self._fd, self._writer.head())
        except (OSError, SessionError) as error:
            reason = error.strerror if isinstance(error, OSError) else error
            self._failed = SessionError(
                f"the session {self.path!r} needs a repair that fails now ({reason}): it is open "
                f"for reading only, and nothing of it is lost; solve that and open it again"
            )
            raise self._failed from error

    def close(self) -> None:
        fd, self._fd = self._fd, None
        if fd is None:
            return
        if self._created and not self._kept:
            os.unlink(self.path)  # without messages
        os.close(fd)
        self._failed = SessionError(f"the session {self.path!r} is closed")

    # --- inside ------------------------------------------------------------------------------

    def _open(self) -> int:
        if self._fd is None:
            try:
                ensure_dir(os.path.dirname(self.path) or ".")
                fd = os.open(self.path, _NEW, 0o600)
            except OSError as error:
                raise cannot("create", self.path, error) from error
            try:
                take(fd, self.path)
            except SessionError as error:  # another process found it empty and began in it
                os.close(fd)
                raise error from FileExistsError()
            try:
                self._begin(fd)
            except SessionError:
                os.close(fd)
                os.unlink(self.path)  # a file without its head is no session
                self._failed = None
                raise
            self._fd = fd
            self._created = True
        return self._fd

    def _begin(self, fd: int) -> None:
        self._write(fd, self._writer.head())
        if self._sync != "off":
            self._fdatasync(fd)
            sync_dir(os.path.dirname(self.path) or ".")

    def _write(self, fd: int, line: bytes) -> None:
        try:
            written = os.write(fd, line)
            failure: OSError | None = None
        except OSError as error:
            written, failure = 0, error
        if written == len(line):
            return
        if written:
            self._take_back(fd, written)
        reason = failure or OSError(28, "no space left on device")
        raise cannot("write to", self.path, reason) from failure

    def _write_fenced(self, fd: int, line: bytes) -> None:
        """Write a line. Raises SessionTaken: another process wrote before, or at the same time."""
        assert self._end is not None
        if self._size_now(fd) != self._end:
            raise self._taken()
        self._write(fd, line)
        self._end += len(line)
        if os.lseek(fd, 0, os.SEEK_CUR) != self._end:  # another process wrote after the size check
            raise self._taken()

    def _size_now(self, fd: int) -> int:
        """Return the current size of the file at this path, -1 if it is another file. Reopens it,
        which makes a network file system ask its server.
        """
        try:
            again = os.open(self.path, os.O_RDONLY | _SAFE)
        except OSError as error:
            raise cannot("check", self.path, error) from error
        try:
            status = os.fstat(again)
        finally:
            os.close(again)
        return status.st_size if os.path.samestat(status, os.fstat(fd)) else -1

    def _taken(self) -> SessionTaken:
        taken = SessionTaken(
            f"another process went on with the session {self.path!r}: this one has stopped; look "
            "for the other one, and start only one of them"
        )
        self._failed = taken
        return taken

    def _take_back(self, fd: int, written: int) -> None:
        """Remove a partly written line, so that the next one does not join it."""
        end = os.lseek(fd, 0, os.SEEK_CUR)
        try:
            if os.fstat(fd).st_size == end:
                os.ftruncate(fd, end - written)
        except OSError as error:
            self._failed = cannot("repair", self.path, error)

    def _fdatasync(self, fd: int) -> None:
        try:
            getattr(os, "fdatasync", os.fsync)(fd)
        except OSError as error:
            # The kernel does not retry dropped pages: the file cannot be trusted any more.
            self._failed = cannot("sync", self.path, error)
            raise self._failed from error
        if self._witness:
            _ask_witness(self._witness, self.path)


def _ask_witness(witness: str, path: str) -> None:
    """Wait until the program at this socket has a copy of the file, so that this disk may be lost.
    The program answers with one line, or hangs up to stop this process.

    Raises:
        SessionError: it does not have it.
    """
    import socket  # needed only by sessions that move to another machine

    with socket.socket(socket.AF_UNIX) as connection:
        try:
            connection.connect(witness)
            connection.sendall(os.fsencode(os.path.abspath(path)) + b"\n")
            answer = connection.recv(64)
        except OSError as error:
            raise SessionError(f"the witness {witness!r} is gone: {error.strerror}") from error
    if answer != b"ok\n":
        raise SessionError(f"the witness {witness!r} does not let this session go on")


# --- opening ---------------------------------------------------------------------------------


class Loaded(Frozen):
    meta: Meta
    entries: Mapping[str, Entry]
    notes: tuple[str, ...]
    """Notes for the user: skipped lines, a torn end."""
    format: str = "zot"
    damaged: frozenset[str] = frozenset()
    """Ids of the entries after which a line was skipped."""


def load(path: str) -> Loaded:
    """Read a session file without locking or changing it. Raises SessionError: it cannot be read,
    or is no session file.
    """
    fd = open_checked(path, os.O_RDONLY)
    try:
        return _read(fd, path)[0]
    finally:
        os.close(fd)


def open_to_append(path: str, *, wait: float = 0.0) -> tuple[FileStore, Loaded]:
    """Lock a session file, cut off a torn end (saved beside it), and read it. `wait`: seconds to
    wait for another process that has it.

    A file that cannot be repaired (a full disk) is opened for reading only, and a note says so.

    Raises:
        SessionError: another process has it open, it cannot be read, or is no session file.
    """
    fd = _open_taken(path, wait)
    try:
        loaded, torn, reader = _read(fd, path)
        if why := reader.sealed():
            raise SessionError(
                f"the session {path!r} can be read (zot sessions show, import), but not added to: "
                f"{why}"
            )
        policy = sync_policy()
    except BaseException:
        os.close(fd)
        raise
    last = next(iter(reversed(list(loaded.entries))), None)
    store = FileStore(path, loaded.meta, fd=fd, sync=policy, format=loaded.format, last=last)
    try:
        store.repair(torn, headless=reader.meta is None)
    except SessionError as error:
        loaded = replace(loaded, notes=(*loaded.notes, str(error)))
    return store, loaded


def open_checked(path: str, access: int) -> int:
    """Open a regular file that only this user can write; follow no link."""
    try:
        fd = os.open(path, access | _SAFE)
    except OSError as error:
        if os.path.islink(path):
            raise SessionError(
                f"the session {path!r} is a symbolic link; give the file it points to"
            ) from error
        raise cannot("open", path, error) from error
    status = os.fstat(fd)
    wrong = None
    if not stat.S_ISREG(status.st_mode):
        wrong = "is not a regular file"
    elif sys.platform != "win32" and status.st_uid != os.geteuid():
        wrong = "belongs to another user"
    elif sys.platform != "win32" and status.st_mode & 0o022:
        wrong = "can be written by other users; run chmod 600 on it"
    if wrong:
        os.close(fd)
        raise SessionError(f"the session {path!r} {wrong}")
    return fd


def _read(fd: int, path: str) -> tuple[Loaded, bytes, SessionReader]:
    """Read all lines; return the bytes of an unreadable last line separately."""
    number, line, good = 0, b"", True
    # No garbage arises here, and collecting in a long session would cost a third of the time.
    collecting = gc.isenabled()
    gc.disable()
    try:
        with open(fd, "rb", buffering=1 << 18, closefd=False) as file:
            format = format_of(os.pread(fd, 64, 0).partition(b"\n")[0])
            reader = format.reader()
            for number, line in enumerate(file, 1):
                good = not (text := line.rstrip(b"\r\n")) or reader.feed(text, number)
    except OSError as error:
        raise cannot("read", path, error) from error
    finally:
        if collecting:
            gc.enable()
    if not good:
        is_head = number == 1 and any(format.owns(line) for format in formats())
        if reader.meta is None and not reader.entries() and not is_head:
            raise SessionError(f"{path!r} is not a session file: {reader.bad[0][1]}")
        # A cut row was never acknowledged: its event did not happen. A damaged one may describe
        # anything, and stays.
        good = not _is_cut(line)
        if not good:
            reader.bad.pop()
            reader.bad_after.pop()
    torn = b"" if good else line
    return _loaded(reader, format, path, len(torn)), torn, reader


def _is_cut(line: bytes) -> bool:
    """Return whether an unreadable last line is the beginning of a row, as a kill leaves it. A row
    that was damaged has its line feed or checksum, or bytes that no row has.
    """
    return line.startswith(b"{") and not _NOT_CUT.search(line)


def _loaded(reader: SessionReader, format: Format, path: str, torn: int) -> Loaded:
    notes = [
        f"line {number} of the session {path!r} cannot be read and was left out: {reason}"
        for number, reason in reader.bad
    ]
    if torn:
        notes.append(f"the last line of the session {path!r} was cut short ({torn} bytes)")
    meta = reader.meta or Meta(id=new_session_id(), started=rfc3339(time.time()))
    damaged = frozenset(reader.bad_after)
    return Loaded(meta, reader.entries(), tuple(notes), format.name, damaged)


def _cut(fd: int, path: str, torn: bytes) -> None:
    aside = os.open(path + ".torn", os.O_WRONLY | os.O_APPEND | os.O_CREAT | _SAFE, 0o600)
    before = os.fstat(aside).st_size
    try:
        write_all(aside, torn.rstrip(b"\n") + b"\n")
        os.fsync(aside)
    except OSError:
        os.ftruncate(aside, before)
        if not before:
            os.unlink(path + ".torn")
        raise
    finally:
        os.close(aside)
    os.ftruncate(fd, os.fstat(fd).st_size - len(torn))


def _lacks_newline(fd: int) -> bool:
    size = os.fstat(fd).st_size
    if not size:
        return False
    os.lseek(fd, size - 1, os.SEEK_SET)
    return os.read(fd, 1) != b"\n"


# --- locks and errors ------------------------------------------------------------------------


def take(fd: int, path: str, wait: float = 0.0) -> None:
    """Lock the file for this process until the descriptor is closed; `wait`: seconds to wait for
    another process that may be about to end. Raises SessionError: another process has it.
    """
    deadline = time.monotonic() + wait
    while not lock(fd):
        if time.monotonic() < deadline:
            time.sleep(0.02)  # there is no notification for a freed lock
            continue
        pid = holder(fd)
        who = f"process {pid}" if pid else "another process"
        raise SessionError(
            f"the session {path!r} is in use by {who}; close it there, or fork the session"
        )


def _open_taken(path: str, wait: float) -> int:
    """Open and lock the file. The previous holder may have removed it on exit because it had no
    messages; then writes to the open descriptor would be lost.

    Raises:
        SessionError: another process has it, or it is not there (any more).
    """
    fd = open_checked(path, os.O_RDWR | os.O_APPEND)
    try:
        take(fd, path, wait)
        if os.path.exists(path) and os.path.samestat(os.stat(path), os.fstat(fd)):
            return fd
    except BaseException:
        os.close(fd)
        raise
    os.close(fd)
    gone = FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT))
    raise cannot("open", path, gone) from gone


def holder(fd: int) -> int | None:
    """Return the process that holds the lock, where the system tells (Linux)."""
    status = os.fstat(fd)
    device = f"{os.major(status.st_dev):02x}:{os.minor(status.st_dev):02x}:{status.st_ino}"
    try:
        with open("/proc/locks", encoding="ascii") as locks:
            for line in locks:
                fields = line.split()
                if len(fields) > 5 and fields[1] == "FLOCK" and fields[5] == device:
                    return int(fields[4]) if fields[4].isdigit() else None
    except (OSError, ValueError):
        return None
    return None


def sync_policy() -> Sync:
    """Return `ZOT_FSYNC`: sync after every event, at a turn's sync points (default), or never.
    Raises SessionError: another word.
    """
    match os.environ.get("ZOT_FSYNC", "turn"):
        case "event":
            return "event"
        case "turn" | "":
            return "turn"
        case "off":
            return "off"
        case other:
            raise SessionError(f"ZOT_FSYNC is {other!r}; use event, turn or off")


def cannot(verb: str, path: str, error: OSError) -> SessionError:
    hint = "; free some space and try again" if error.errno in FULL else ""
    return SessionError(f"cannot {verb} the session {path!r}: {error.strerror or error}{hint}")
