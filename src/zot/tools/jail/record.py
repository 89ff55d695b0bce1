"""Records, on disk, what a jail's directory held before the first of the commands that run now.

The file outlives a killed zot: the last keeper of its commands, or the next zot that starts in the
directory, renames what they left (obeyed.py). Each process with something in the jail holds a
shared lock on the file, so a process that gets the exclusive lock knows that nothing runs there. A
second zot in the same directory reuses the first one's look, so a repository that a command of the
first has just made does not count as old, and covers what the first one covers, by device and
inode: commands may have moved it. The first byte says whether the rest is still valid.

Standard library only, like obeyed.py.
"""

from __future__ import annotations

import fcntl
import hashlib
import json
import os

from zot.beneath import FOLDER, LOOK, is_below, open_real
from zot.tools.jail.obeyed import PROTECTED, Aftermath, Look, Survey, Thing, is_gone, put_right

MAX_BYTES = 64 << 20
IN_USE, OVER = b"+", b"-"
LATER = 15_000_000_000
"""Nanoseconds after the last touch of a killed zot's record; newer things are not its commands'."""


def record_path(home: str, root: str) -> str:
    name = hashlib.sha256(os.fsencode(root)).hexdigest()[:24]
    return os.path.join(home, "jail", f"{name}.json")


class Record:
    """An open record. `is_alone`: this process has the exclusive lock; others wait in `share`."""

    def __init__(self, path: str, fd: int) -> None:
        self.path = path
        self._fd = fd
        self.is_alone = _lock(fd, fcntl.LOCK_EX)

    @classmethod
    def open(cls, path: str, *, create: bool) -> Record | None:
        """Open the record; return None if it is missing and `create` is false."""
        try:
            return cls(path, os.open(path, os.O_RDWR | os.O_CLOEXEC))
        except FileNotFoundError:
            if not create:
                return None
        os.makedirs(os.path.dirname(path), 0o700, exist_ok=True)
        return cls(path, os.open(path, os.O_RDWR | os.O_CLOEXEC | os.O_CREAT, 0o600))

    def read(self, root: str) -> Look | None:
        """Return the recorded look; None if the record is not about that directory or is over."""
        place, look = _parsed(os.pread(self._fd, MAX_BYTES, 0))
        return look if place == root else None

    def touched(self) -> int:
        return os.fstat(self._fd).st_mtime_ns

    def write(self, root: str, look: Look) -> None:
        """Write the look; the caller holds the exclusive lock."""
        content = {
            "root": root,
            "began": look.began,
            "finished": look.finished,
            "things": [(thing.path, *key, thing.is_link) for key, thing in look.things.items()],
            "closed": [(path, *key) for key, path in look.closed.items()],
            "covers": look.covers,
            "obeyed": look.obeyed,
        }
        data = IN_USE + json.dumps(content).encode()
        os.pwrite(self._fd, data, 0)  # in place: cheaper than allocating new blocks each time
        os.ftruncate(self._fd, len(data))

    def touch(self) -> None:
        """Set the file's time to now: something still runs."""
        os.utime(self._fd)

    def share(self) -> None:
        """Take the shared lock; wait for a process that has the exclusive one."""
        fcntl.flock(self._fd, fcntl.LOCK_SH)

    def take_alone(self) -> bool:
        """Try to get the exclusive lock; on failure the shared lock is lost too."""
        self.is_alone = _lock(self._fd, fcntl.LOCK_EX)
        return self.is_alone

    def leave(self) -> None:
        """Mark the record as over if nobody else uses it, and close it."""
        if self.take_alone():
            os.pwrite(self._fd, OVER, 0)
        os.close(self._fd)

    def close(self) -> None:
        os.close(self._fd)


def recover(path: str, root: str) -> Aftermath | None:
    """Rename what commands of a killed zot left, if nothing runs there any more; return None if
    there was nothing to do. Raises OSError."""
    record = Record.open(path, create=False)
    if record is None:
        return None
    if not record.is_alone:
        record.close()
        return None
    before = record.read(root)
    after = None
    if before is not None:
        after = _put_right(root, before, record.touched() + LATER)
    if after is not None and after.too_deep:
        record.close()  # still valid: the next attempt renames more
    else:
        record.leave()
    return after


def _put_right(root: str, before: Look, ended: int) -> Aftermath:
    folder = open_real(root, LOOK | FOLDER)

    def is_old(thing: Thing) -> bool:
        if before.had(thing, root):
            return True
        path = os.path.join(root, thing.path)
        try:
            if thing.path in PROTECTED and not os.listdir(path):
                return True  # a cover of a missing name
        except OSError:
            pass  # no directory
        try:
            return os.lstat(path).st_ctime_ns > ended  # made by the user since then
        except OSError as error:
            return is_gone(error)

    try:
        survey = Survey(root, folder)
        survey.obey(before.obeyed)
        return put_right(survey, folder, is_old, before)
    finally:
        os.close(folder)


def overlapping(path: str, root: str) -> list[str]:
    """Return directories above or below this one in which a jailed process runs now."""
    active = []
    folder = os.path.dirname(path)
    for name in os.listdir(folder):
        other = os.path.join(folder, name)
        try:
            fd = os.open(other, os.O_RDWR | os.O_CLOEXEC)
        except OSError:
            continue  # it has just been removed
        try:
            place, _ = _parsed(os.pread(fd, MAX_BYTES, 0))
            overlaps = is_below(place, root) or is_below(root, place)
            if place and other != path and overlaps and not _lock(fd, fcntl.LOCK_EX):
                active.append(place)
        finally:
            os.close(fd)
    return active


def _parsed(data: bytes) -> tuple[str, Look]:
    """Return the directory and the look of a record; "" and an empty look if it is not valid."""
    try:
        content = json.loads(data[1:]) if data[:1] == IN_USE else {}
        things = [
            Thing(path, (device, inode), is_link)
            for path, device, inode, is_link in content["things"]
        ]
        closed = {(device, inode): path for path, device, inode in content["closed"]}
        known = {thing.key: thing for thing in things}
        covers = tuple(
            (path, device, inode, is_hidden) for path, device, inode, is_hidden in content["covers"]
        )
        look = Look(known, closed, [], content["began"], content["finished"], covers=covers)
        return content["root"], look._replace(obeyed=tuple(content["obeyed"]))
    except (ValueError, TypeError, KeyError):  # not written yet, or cut by a full disk
        return "", Look({}, {}, [], 0, finished=True)


def _lock(fd: int, kind: int) -> bool:
    try:
        fcntl.flock(fd, kind | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError:
        pass  # a file system without locks: behave as if alone
    return True
