"""A command's output: head and tail for the model, all of it in a file, live text for viewers.
Handles bytes, not processes."""

from __future__ import annotations

import codecs
import os
import re
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from zot.text import SecretFilter

MAX_LINES = 2000
MAX_BYTES = 51_200
MAX_FILE = 256 << 20
"""Maximum size of the file with the complete output, in bytes."""
KEPT_SECONDS = 7 * 86_400
"""Age after which such files are removed, when the next one is created."""
SHOWN = 256 << 10
"""Bytes of a model's command that are shown live in full; after that only samples."""
PAUSE = 0.1
PIECE = 4096
HELD = 64
"""Longest incomplete escape sequence that is buffered, in characters."""

# Colours, cursor movement, titles: useless to a model, and a terminal would execute them.
ESCAPE = re.compile(
    r"\x1b\[[0-?]*[ -/]*[@-~]"  # CSI
    r"|\x1b[\]PX^_][^\x07\x1b]*(?:\x07|\x1b\\)"  # OSC and other strings
    r"|\x1b[ -/]*[0-OQ-WYZ\\`-~]"  # two characters, and character sets
)
UNFINISHED = re.compile(r"\x1b(?:\[[0-?]*[ -/]*|[\]PX^_][^\x07\x1b]*\x1b?|[ -/]*)?\Z")
CONTINUED = bytes(range(0x80, 0xC0))
"""UTF-8 continuation bytes, with which no character begins."""
CONTROL = re.compile(r"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f\x80-\x9f]")


def clean(text: str) -> str:
    """Return the text without escape sequences and control characters; tab, LF and CR stay."""
    if CONTROL.search(text) is None:
        return text
    return CONTROL.sub("\ufffd", ESCAPE.sub("", text))


class Decoder:
    """Incremental decoder to clean text: never half a character, never half an escape sequence."""

    def __init__(self) -> None:
        self._decode = codecs.getincrementaldecoder("utf-8")("replace")
        self._held = ""

    def feed(self, data: bytes, final: bool = False) -> str:
        text = self._held + self._decode.decode(data, final)
        self._held = ""
        if not final and (start := UNFINISHED.search(text, max(0, len(text) - HELD))):
            self._held = text[start.start() :]
            text = text[: start.start()]
        return clean(text)


class Live:
    """Live progress: everything at first, then samples, so that a command which prints millions of
    lines costs the viewer little."""

    def __init__(self, show: Callable[[str], None], most: int = SHOWN) -> None:
        """`most`: bytes that are shown in full."""
        self._show, self._most = show, most
        self._decoder = Decoder()
        self._shown = 0
        self._skipped = 0
        self._next = 0.0

    def feed(self, data: bytes) -> None:
        if self._shown + len(data) > self._most:
            now = time.monotonic()
            if now < self._next:
                self._skipped += len(data)
                return
            self._next = now + PAUSE
            self._skipped += max(0, len(data) - PIECE)
            data = data[-PIECE:]
        self._shown += len(data)
        if self._skipped:
            self._gap()
            data = _from_character(data)
        if text := self._decoder.feed(data):
            self._show(text)

    def end(self) -> None:
        if self._skipped:
            self._gap()
        if text := self._decoder.feed(b"", final=True):
            self._show(text)

    def _gap(self) -> None:
        rest = self._decoder.feed(b"", final=True)
        self._decoder = Decoder()
        self._show(f"{rest}\n[... {self._skipped} bytes not shown ...]\n")
        self._skipped = 0


class Capture:
    """Keeps the beginning and the end of the output; writes all of it to a file if too long."""

    def __init__(self, directory: Path, secrets: Sequence[str] = ()) -> None:
        """`secrets` are removed from the file; callers filter the text themselves."""
        self._directory = directory
        self._filter = SecretFilter()
        # Latin-1 has a character for each byte: bytes that are not UTF-8 stay as they are.
        self._filter.use(
            [secret.encode("utf-8", "replace").decode("latin-1") for secret in secrets]
        )
        self._head = bytearray()
        self._tail = bytearray()
        self._total = 0
        self._newlines = 0
        self._fd = -1
        self._written = 0
        self.path: Path | None = None
        """The file with the complete output, when it was too long."""
        self.trouble = ""
        """Why that file is not complete; empty if it is."""

    def feed(self, data: bytes) -> None:
        self._total += len(data)
        self._newlines += data.count(b"\n")
        room = MAX_BYTES - len(self._head)
        if room > 0:
            self._head += data[:room]
        self._tail += data[-MAX_BYTES:]
        if len(self._tail) > 4 * MAX_BYTES:
            del self._tail[:-MAX_BYTES]
        if self.truncated:
            self._spill(data)

    @property
    def truncated(self) -> bool:
        return self._total > MAX_BYTES or self._newlines > MAX_LINES

    def _spill(self, data: bytes) -> None:
        if self.trouble:
            return
        try:
            if self._fd < 0:
                self._open()
                # The head holds all of the output before the piece that exceeded the limit.
                data = bytes(self._head[: self._total - len(data)]) + data
            self._write(self._filter.feed(data.decode("latin-1")).encode("latin-1"))
            if self._written >= MAX_FILE:
                self.trouble = f"only the first {MAX_FILE} bytes"
        except OSError as error:
            self.trouble = f"not complete: {error.strerror}"

    def _write(self, data: bytes) -> None:
        data = data[: MAX_FILE - self._written]
        while data:
            written = os.write(self._fd, data)
            self._written += written
            data = data[written:]

    def _open(self) -> None:
        _remove_old(self._directory)
        path = self._directory / f"zot-bash-{os.urandom(6).hex()}.log"
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC | os.O_NOFOLLOW
        self._fd = os.open(path, flags, 0o600)
        self.path = path

    def close(self) -> None:
        if self._fd >= 0:
            try:
                self._write(self._filter.rest().encode("latin-1"))
            except OSError as error:
                self.trouble = f"not complete: {error.strerror}"
            os.close(self._fd)
            self._fd = -1

    def text(self) -> str:
        """The output as the model sees it."""
        if not self.truncated:
            return clean(bytes(self._head).decode("utf-8", "replace"))
        head = _first(bytes(self._head), MAX_LINES // 2, MAX_BYTES // 2)
        tail = _last(bytes(self._tail[-MAX_BYTES:]), MAX_LINES // 2, MAX_BYTES // 2)
        left_out = self._total - len(head) - len(tail)
        lines = self._newlines - head.count(b"\n") - tail.count(b"\n")
        where = f"; complete output: {self.path}" if self.path else ""
        if self.trouble:
            where += f" ({self.trouble})"
        first, last = (clean(part.decode("utf-8", "replace")) for part in (head, tail))
        gap = "" if first.endswith("\n") else "\n"
        note = f"... [{lines} lines, {left_out} bytes left out{where}]"
        return f"{first}{gap}\n{note}\n\n{last}"


def _remove_old(directory: Path) -> None:
    """Remove the user's own output files that are older than KEPT_SECONDS."""
    oldest = time.time() - KEPT_SECONDS
    try:
        for path in directory.glob("zot-bash-*.log"):
            status = path.lstat()
            if status.st_mtime < oldest and status.st_uid == os.getuid():
                path.unlink()
    except OSError:
        return  # another zot removed one, or the directory cannot be listed


def _first(data: bytes, lines: int, size: int) -> bytes:
    """Return the beginning, in whole lines where possible."""
    data = data[:size]
    position = -1
    for _ in range(lines):
        following = data.find(b"\n", position + 1)
        if following < 0:
            break
        position = following
    if position >= 0 and (position > size // 2 or data.count(b"\n") >= lines):
        return data[: position + 1]
    decoder = codecs.getincrementaldecoder("utf-8")("replace")
    decoder.decode(data)
    return data.removesuffix(decoder.getstate()[0])  # a character that is not finished


def _last(data: bytes, lines: int, size: int) -> bytes:
    """Return the end, in whole lines where possible."""
    data = data[-size:]
    position = len(data) - data.endswith(b"\n")
    for _ in range(lines):
        position = data.rfind(b"\n", 0, position)
        if position < 0:
            break
    if position >= 0:
        return data[position + 1 :]
    start = data.find(b"\n", 0, size // 2)
    return data[start + 1 :] if start >= 0 else _from_character(data)


def _from_character(data: bytes) -> bytes:
    return data[:4].lstrip(CONTINUED) + data[4:]
