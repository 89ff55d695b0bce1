"""Remembers, on disk, what a jail's directory held before the first of the commands that run now.

The file outlives a zot that is killed: the last keeper of its commands, or the next zot that
starts in the directory, renames what they left (obeyed.py). Everybody with something in the jail
holds a shared lock on the file, so whoever gets it alone knows that nothing runs there. A second
zot in the same directory takes over what the first one saw: a repository that a command of the
first has just made is no older for it.

Standard library only, as obeyed.py.
"""

from __future__ import annotations

import fcntl
import hashlib
import json
import os

from zot.beneath import FOLDER, LOOK, open_real
from zot.obeyed import Aftermath, Look, Survey, Thing, put_right

MAX_BYTES = 64 << 20


def record_path(home: str, root: str) -> str:
    name = hashlib.sha256(os.fsencode(root)).hexdigest()[:24]
    return os.path.join(home, "jail", f"{name}.json")


class Record:
    """An open record, locked: alone, or together with others."""

    def __init__(self, path: str, fd: int) -> None:
        self.path = path
        self._fd = fd
        self.is_alone = _lock(fd, fcntl.LOCK_EX)
        if not self.is_alone:
            fcntl.flock(fd, fcntl.LOCK_SH)

    @classmethod
    def open(cls, path: str, *, create: bool) -> Record | None:
        """None: there is none."""
        while True:
            try:
                fd = os.open(path, os.O_RDWR | os.O_CLOEXEC | os.O_CREAT * create, 0o600)
            except FileNotFoundError:
                if not create:
                    return None
                os.makedirs(os.path.dirname(path), 0o700, exist_ok=True)
                continue
            record = cls(path, fd)
            if os.fstat(fd).st_nlink:
                return record
            os.close(fd)  # the last of its users removed it meanwhile

    def read(self, root: str) -> Look | None:
        """What was there; None: it says nothing of that directory."""
        data = os.pread(self._fd, MAX_BYTES, 0)
        try:
            content = json.loads(data)
            if content["root"] != root:
                return None
            things = [
                Thing(path, (device, inode), is_link)
                for path, device, inode, is_link in content["things"]
            ]
            closed = {(device, inode): path for path, device, inode in content["closed"]}
            known = {thing.key: thing for thing in things}
            return Look(known, closed, [], content["began"], content["finished"])
        except (ValueError, TypeError, KeyError):
            return None  # empty, or cut by a full disk

    def write(self, root: str, look: Look) -> None:
        """Only while it is held alone."""
        content = {
            "root": root,
            "began": look.began,
            "finished": look.finished,
            "things": [(thing.path, *key, thing.is_link) for key, thing in look.things.items()],
            "closed": [(path, *key) for key, path in look.closed.items()],
        }
        os.ftruncate(self._fd, 0)
        os.pwrite(self._fd, json.dumps(content).encode(), 0)

    def share(self) -> None:
        fcntl.flock(self._fd, fcntl.LOCK_SH)

    def leave(self) -> bool:
        """Remove the record if nobody else uses it; whether nobody does."""
        self.is_alone = _lock(self._fd, fcntl.LOCK_EX)
        if self.is_alone:
            os.unlink(self.path)
        os.close(self._fd)
        return self.is_alone

    def close(self) -> None:
        os.close(self._fd)


def recover(path: str, root: str) -> Aftermath | None:
    """Put right what commands of a killed zot left, if nothing runs there any more; None: there
    was nothing to do. Raises OSError."""
    record = Record.open(path, create=False)
    if record is None:
        return None
    if not record.is_alone:
        record.close()
        return None
    before = record.read(root)
    after = None
    if before is not None:
        folder = open_real(root, LOOK | FOLDER)
        try:
            survey = Survey(root, folder)
            after = put_right(survey, folder, lambda thing: before.had(thing, root), before)
        finally:
            os.close(folder)
    record.leave()
    return after


def _lock(fd: int, kind: int) -> bool:
    try:
        fcntl.flock(fd, kind | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError:
        pass  # a file system without locks: everybody is alone
    return True
