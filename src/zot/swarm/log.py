"""The folders and logs of agents. One process writes (the supervisor, which holds the lock); any
number read, and go on from a position in the file without losing or repeating a row.
"""

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
"""What all agents together have spent, in the folder of the swarm."""
CHUNK = 256 * 1024
STREAM_OVER = b'{"type":"stream_over"}'
"""The last row of a stream that somebody shared: nothing more comes."""
_row = msgspec.json.Decoder(LogRow)


class AgentFolder:
    """What is kept of one agent: the task, the log, the session and the tree."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.id = path.name
        self.log = path / "events.jsonl"
        self.session = path / "session.jsonl"

    def create(self, task: SwarmTask) -> None:
        """Keep the task. It is there for good when this returns."""
        ensure_dir(self.path)
        write_atomic(self.path / "task.json", msgspec.json.encode(task))
        sync_dir(self.path)

    def task(self) -> SwarmTask | None:
        """None: the folder was never finished."""
        data = read_bytes(self.path / "task.json")
        if data is None:
            return None
        try:
            return msgspec.json.decode(data, type=SwarmTask)
        except msgspec.DecodeError as error:
            raise SwarmError(f"{self.path / 'task.json'} cannot be read: {error}") from error


def agent_folders(swarm: Path) -> list[AgentFolder]:
    """Of every agent that there is."""
    try:
        names = sorted(path.name for path in (swarm / "agents").iterdir())
    except FileNotFoundError:
        return []
    return [AgentFolder(swarm / "agents" / name) for name in names if not name.startswith(".")]


def shared_streams(home: Path) -> Path:
    """Where `zot watch --share` keeps streams for the page."""
    return home / "glasspane" / "streams"


class LogWriter:
    """Appends rows. A row that a crash cut is taken away before the next is written. The file is
    open only while something is written: agents that have ended hold no descriptor."""

    def __init__(self, path: Path, take: Callable[[LogRow], None] | None = None) -> None:
        """`take` gets the rows that are there already."""
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
        """Keep a frame as the agent wrote it; None: it is no object and was not kept."""
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
        """Until the next row."""
        fd, self._fd = self._fd, None
        if fd is not None:
            os.close(fd)


def start_of_last(log: Path, most: int) -> int:
    """A position at the beginning of a row, so that about the last `most` bytes follow."""
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
    """Rows from a position on, each with the position after it. A row that is not whole yet, or
    was cut, is not given out."""
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
    """A row of a log; a frame as a program wrote it is one too, without a time."""
    if line.startswith(b'{"seq":'):
        try:
            return _row.decode(line)
        except LINE_ERRORS:
            return None
    fields = fields_of(line)
    return LogRow(0, 0.0, fields) if fields else None
