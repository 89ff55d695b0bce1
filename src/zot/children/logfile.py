"""The log of one program: its stderr and zot's notes about it. Bounded by rotation."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from zot.files import ensure_dir
from zot.lines import write_all
from zot.text import SecretFilter

MIB = 1024 * 1024


class LogFile:
    """A log file for several threads; opened at the first write.

    A log that cannot be written must not stop the program, so a full disk or a read-only home is
    not an error here.
    """

    def __init__(
        self, path: str | Path, max_bytes: int, secrets: Callable[[], Sequence[str]] = tuple
    ) -> None:
        """`secrets`: returns values that must not get into the file."""
        self.path = Path(path)
        self._secrets = secrets
        self._pieces = SecretFilter()
        self._max_bytes = max_bytes
        self._lock = threading.Lock()
        self._fd: int | None = None

    def note(self, text: str) -> None:
        """Write a line of zot's own."""
        stamp = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
        line = text.encode("utf-8", "replace").replace(b"\n", b" ")
        self.write(f"[zot] {stamp} ".encode() + line + b"\n")

    def write(self, data: bytes) -> None:
        with self._lock:
            self._try_write(self._clean(data))

    def close(self) -> None:
        with self._lock:
            if rest := self._pieces.rest():
                self._try_write(rest.encode("latin-1"))
            self._close()

    def _clean(self, data: bytes) -> bytes:
        """Remove secrets, also those split over two chunks. Each byte is treated as a character,
        because a chunk may end within one."""
        known = tuple(secret.encode().decode("latin-1") for secret in self._secrets())
        if known != self._pieces.secrets:
            self._pieces.use(known)
        return self._pieces.feed(data.decode("latin-1")).encode("latin-1") if known else data

    def _try_write(self, data: bytes) -> None:
        try:
            self._write(data)
        except OSError:
            self._close()

    def _write(self, data: bytes) -> None:
        if self._fd is None:
            self._fd = self._open()
        write_all(self._fd, data)
        if os.fstat(self._fd).st_size > self._max_bytes:
            self._rotate()

    def _open(self) -> int:
        ensure_dir(self.path.parent)
        flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW
        return os.open(self.path, flags, 0o600)

    def _rotate(self) -> None:
        # If another zot has already rotated the same file, only close ours.
        assert self._fd is not None
        ours = os.fstat(self._fd)
        self._close()
        current = self.path.stat()
        if (ours.st_dev, ours.st_ino) == (current.st_dev, current.st_ino):
            self.path.replace(self.path.with_name(self.path.name + ".1"))

    def _close(self) -> None:
        if self._fd is not None:
            os.close(self._fd)
            self._fd = None
