"""The folders and logs of agents. One process writes (the supervisor, which holds the lock); any
number read, and resume from a file position without losing or repeating a row."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import msgspec

from zot.files import ensure_dir, read_bytes, sync_dir, write_atomic
from zot.lines import LINE_ERRORS, LineCutter, write_all
from zot.observe.facts import fields_of
from zot.swarm.task import AnySwarmRow, LogRow, SwarmError, SwarmTask

LEDGER = "ledger.json"
"""File in the swarm's folder with the spending of all agents together."""
CHUNK = 256 * 1024
STREAM_OVER = b'{"type":"stream_over"}'
"""Last row of a shared stream: it has ended."""
_row = msgspec.json.Decoder(LogRow)


class AgentFolder:
    """The folder of one agent: task, log, session and tree."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.id = path.name
        self.log = path / "events.jsonl"
        self.session = path / "session.jsonl"

    def create(self, task: SwarmTask) -> None:
        """Store the task; it is on disk when this returns."""
        ensure_dir(self.path)
        write_atomic(self.path / "task.json", msgspec.json.encode(task))
        sync_dir(self.path)

    def task(self) -> SwarmTask | None:
        """Return the task; None: creating the folder was never finished."""
        data = read_bytes(self.path / "task.json")
        if data is None:
            return None
        try:
            return msgspec.json.decode(data, type=SwarmTask)
        except msgspec.DecodeError as error:
            raise SwarmError(f"{self.path / 'task.json'} cannot be read: {error}") from error


def agent_folders(swarm: Path) -> list[AgentFolder]:
    """Return the folders of all agents."""
    try:
        names = sorted(path.name for path in (swarm / "agents").iterdir())
    except FileNotFoundError:
        return []
    return [AgentFolder(swarm / "agents" / name) for name in names if not name.startswith(".")]


def shared_streams(home: Path) -> Path:
    """Return the folder of streams that `zot watch --share` shows on the page."""
    return home / "glasspane" / "streams"


class LogWriter:
    """Appends rows. A row that a crash cut off is truncated before the next write. The file is open
    only while rows are written, so that agents that have ended hold no descriptor."""

    def __init__(self, path: Path, take: Callable[[LogRow], None] | None = None) -> None:
        """Call `take` with each row already in the log."""
        self._path = path
        self._seq = end = 0
        for position, row in read_log(path):
            end, self._seq = position, row.seq
            if take is not None:
                take(row)
        self._fd: int | None = None
        os.ftruncate(self._open(), end)

    def _open(self) -> int:
        if self._fd is None:
            flags = os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC | os.O_APPEND
            self._fd = os.open(self._path, flags, 0o600)
        return self._fd

    def frame(self, line: bytes) -> LogRow | None:
        """Append a frame as the agent wrote it; None: it is not a JSON object and was dropped."""
        fields = fields_of(line)
        return self._append(line, fields) if fields else None

    def row(self, row: AnySwarmRow, *, sync: bool = False) -> LogRow:
        line = msgspec.json.encode(row)
        kept = self._append(line, msgspec.json.decode(line))
        if sync:
            os.fsync(self._open())
        return kept

    def _append(self, line: bytes, fields: dict[str, object]) -> LogRow:
        self._seq += 1
        at = round(time.time(), 3)
        write_all(
            self._open(), b'{"seq":%d,"at":%.3f,"frame":%b}\n' % (self._seq, at, line.strip())
        )
        return LogRow(self._seq, at, fields)

    def close(self) -> None:
        """Close the file; the next row opens it again."""
        fd, self._fd = self._fd, None
        if fd is not None:
            os.close(fd)


def start_of_last(log: Path, most: int) -> int:
    """Return the position of a row start with about the last `most` bytes behind it."""
    try:
        with log.open("rb") as file:
            if file.seek(0, os.SEEK_END) <= most:
                return 0
            file.seek(-most, os.SEEK_END)
            file.readline()
            return file.tell()
    except FileNotFoundError:
        return 0


def read_log(path: Path, start: int = 0) -> Iterator[tuple[int, LogRow]]:
    """Yield the complete rows from a position on, each with the position after it."""
    try:
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except FileNotFoundError:
        return
    try:
        position, lines = start, LineCutter()
        os.lseek(fd, start, os.SEEK_SET)
        while data := os.read(fd, CHUNK):
            for line in lines.feed(data):
                position += len(line) + 1
                row = _decoded(line)
                if row is not None:
                    yield position, row
    finally:
        os.close(fd)


def _decoded(line: bytes) -> LogRow | None:
    """Decode a row; a bare frame, as programs write it, becomes a row with number and time 0."""
    if line.startswith(b'{"seq":'):
        try:
            return _row.decode(line)
        except LINE_ERRORS:
            return None
    fields = fields_of(line)
    return LogRow(0, 0.0, fields) if fields else None
