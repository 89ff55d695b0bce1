"""Texts on disk: the history of sent ones for later sessions, and the draft of each terminal, which
survives a kill.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from errno import ENOSPC
from hashlib import sha256
from pathlib import Path

import msgspec

from zot.files import ensure_dir, lock, lock_file, write_atomic

MAX_HISTORY = 1_000
MAX_HISTORY_BYTES = 2_000_000
MAX_TEXT = 200_000
"""Maximum characters of one stored text."""
MAX_DRAFTS = 100
DRAFT_SECONDS = 0.3
"""Seconds between a key and saving the draft."""

Tell = Callable[[str], None]
"""Called with the reason if something could not be stored."""


class SavedTexts:
    """History and draft of one terminal: written shortly after a key, and when a text is sent."""

    def __init__(self, home: str, cwd: str, warn: Tell) -> None:
        """`warn` is callable from any thread."""
        self._warn = warn
        self._warned = False
        self._history = History(home, self._cannot)
        self._draft = Draft(home, cwd, self._cannot)
        self.history = self._history.load()
        """Texts of earlier sessions."""
        self.left = self._draft.recover()
        """Drafts of terminals that died in this directory."""
        self._due = time.monotonic()
        """Time at which to save the draft; 0: saved."""

    def _cannot(self, problem: str) -> None:
        if not self._warned:
            self._warned = True
            self._warn(f"what you write is not kept on disk (history, draft): {problem}")

    def typed(self) -> None:
        self._due = self._due or time.monotonic() + DRAFT_SECONDS

    def tick(self, text: Callable[[], str]) -> float | None:
        """Save the text if it is due; return the seconds left if not."""
        if not self._due:
            return None
        left = self._due - time.monotonic()
        if left > 0:
            return left
        self._due = 0.0
        self._draft.keep(text())
        return None

    def add(self, text: str) -> None:
        """Add a text to the history."""
        self._history.add(text)

    def sent(self, text: str) -> None:
        self._history.add(text)
        self._draft.keep("")

    def close(self, text: str) -> None:
        """Save the text for the next start, and close."""
        self._draft.close(text)


class History:
    """One file for all sessions, one text per line. Unreadable lines are skipped."""

    def __init__(self, home: str, tell: Tell) -> None:
        self._path = Path(home) / "history.jsonl"
        self._tell = tell

    def load(self) -> list[str]:
        """Return the last texts, oldest first."""
        try:
            data = self._path.read_bytes()
        except OSError:
            return []
        texts: list[str] = []
        for line in data.split(b"\n"):
            try:
                texts.append(msgspec.json.decode(line, type=str))
            except (msgspec.DecodeError, UnicodeDecodeError):
                continue
        texts = texts[-MAX_HISTORY:]
        if len(data) > MAX_HISTORY_BYTES:
            self._shorten(texts)
        return texts

    def _shorten(self, texts: list[str]) -> None:
        try:
            write_atomic(self._path, b"".join(_line(text) for text in texts[-MAX_HISTORY // 2 :]))
        except OSError:
            pass

    def add(self, text: str) -> None:
        if not text.strip() or len(text) > MAX_TEXT:
            return
        try:
            ensure_dir(self._path.parent)
            fd = os.open(self._path, os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o600)
            try:
                self._append(fd, _line(text))
            finally:
                os.close(fd)
        except OSError as error:
            self._tell(str(error.strerror or error))

    def _append(self, fd: int, line: bytes) -> None:
        """Append with one write, since other terminals append too; end a line that a full disk cut
        off."""
        size = os.fstat(fd).st_size
        if size and os.pread(fd, 1, size - 1) != b"\n":
            line = b"\n" + line
        if os.write(fd, line) < len(line):
            raise OSError(ENOSPC, os.strerror(ENOSPC))


def _line(text: str) -> bytes:
    return msgspec.json.encode(text.encode("utf-8", "replace").decode()) + b"\n"


class Draft:
    """The editor's text on disk. The file is locked while its terminal lives; an unlocked one was
    left by a program that died, and the next terminal in that directory takes it over."""

    def __init__(self, home: str, cwd: str, tell: Tell) -> None:
        self._tell = tell
        self._folder = Path(home) / "drafts"
        self._name = sha256(cwd.encode("utf-8", "surrogateescape")).hexdigest()[:16]
        self._fd: int | None = None
        self._path: Path | None = None

    def recover(self) -> str:
        """Return the joined texts of unlocked drafts; this terminal takes them over."""
        texts = []
        try:
            paths = sorted(self._folder.glob(f"{self._name}-*"))[:MAX_DRAFTS]
        except OSError:
            return ""
        for path in paths:
            if path == self._path:
                continue
            try:
                fd = lock_file(path)
                if fd is None:
                    continue
                texts.append(os.read(fd, 4 * MAX_TEXT).decode("utf-8", "replace"))
                if self._fd is None:  # ours now: on a full disk no other could be made
                    self._fd, self._path = fd, path
                    continue
                path.unlink()
                os.close(fd)
            except OSError:
                continue
        return "\n".join(text for text in texts if text.strip())

    def keep(self, text: str) -> None:
        """Save the text; an empty one creates no file."""
        if not text and self._fd is None:
            return
        try:
            fd = self._open()
            data = text[:MAX_TEXT].encode("utf-8", "replace")
            written = os.pwrite(fd, data, 0)
            os.ftruncate(fd, written)
            if written < len(data):
                raise OSError(ENOSPC, os.strerror(ENOSPC))
        except OSError as error:
            self._tell(str(error.strerror or error))  # the text is still on the screen

    def _open(self) -> int:
        if self._fd is None:
            ensure_dir(self._folder)
            self._path = self._folder / f"{self._name}-{os.getpid()}-{os.urandom(4).hex()}"
            fd = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
            lock(fd)
            self._fd = fd
        return self._fd

    def close(self, text: str) -> None:
        """Save the text for the next start and close; an empty draft is deleted."""
        self.keep(text)
        if self._fd is None or self._path is None:
            return
        try:
            if not text.strip():
                self._path.unlink(missing_ok=True)
            os.close(self._fd)
        except OSError:
            pass
        self._fd = None
