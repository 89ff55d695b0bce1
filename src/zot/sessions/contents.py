"""Stores the contents that files had before tools changed them: a folder beside the session file,
one file per content, named by its hash. Bounded; the oldest are deleted first.
"""

from __future__ import annotations

import os
from hashlib import sha256

from zot.files import ensure_dir

MAX_CONTENT = 16 << 20
"""Maximum bytes of one file; larger files are not stored."""
MAX_CONTENTS = 256 << 20
"""Maximum bytes stored per session."""


class SessionContents:
    """Content store of one session. Nothing is on disk before the first change."""

    def __init__(self, session: str, *, limit: int = MAX_CONTENTS) -> None:
        self.folder = session.removesuffix(".jsonl") + ".files"
        self._limit = limit
        self._size: int | None = None

    def keep(self, hash: str, content: bytes) -> None:
        path = self._path(hash)
        if len(content) > MAX_CONTENT:
            return
        try:
            if os.path.exists(path):
                os.utime(path)  # used again: mark as recent
                return
            ensure_dir(self.folder)
            self._make_room(len(content))
            temporary = f"{path}.{os.getpid()}.tmp"
            flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC | os.O_NOFOLLOW
            with open(os.open(temporary, flags, 0o600), "wb") as file:
                file.write(content)
            os.replace(temporary, path)
        except OSError:
            pass  # the change is still made, but cannot be undone

    def load(self, hash: str) -> bytes | None:
        try:
            with open(self._path(hash), "rb") as file:
                content = file.read(MAX_CONTENT + 1)
        except OSError:
            return None
        return content if sha256(content).hexdigest() == hash else None

    def copy_to(self, session: str) -> None:
        """Copy the contents for a fork; as hard links where the file system supports them."""
        target = SessionContents(session)
        for name in self._names():
            ensure_dir(target.folder)
            try:
                os.link(self._path(name), target._path(name))
            except OSError:
                content = self.load(name)
                if content is not None:
                    target.keep(name, content)

    def remove(self) -> None:
        for name in self._names():
            os.unlink(self._path(name))
        if os.path.isdir(self.folder):
            os.rmdir(self.folder)

    def _make_room(self, size: int) -> None:
        if self._size is None:
            self._size = sum(status.st_size for _, status in self._aged())
        self._size += size
        if self._size <= self._limit:
            return
        for path, status in self._aged():
            if self._size <= self._limit:
                break
            os.unlink(path)
            self._size -= status.st_size

    def _aged(self) -> list[tuple[str, os.stat_result]]:
        paths = map(self._path, self._names())
        return sorted(((path, os.stat(path)) for path in paths), key=lambda item: item[1].st_mtime)

    def _names(self) -> list[str]:
        try:
            return os.listdir(self.folder)
        except OSError:
            return []

    def _path(self, hash: str) -> str:
        return os.path.join(self.folder, os.path.basename(hash))
