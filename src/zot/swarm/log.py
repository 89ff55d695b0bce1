"""The folders and logs of agents. One process writes (the supervisor, which holds the lock); any
number read, and resume from a file position without losing or repeating a row."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec
from msgspec import Struct

from zot.files import ensure_dir, read_bytes, sync_dir, write_atomic
from zot.lines import LINE_ERRORS, LineCutter, write_all
from zot.observe.facts import fields_of, list_of, text_of_blocks
from zot.swarm import rows
from zot.swarm.agent import AgentSummary, Stage, SwarmAgent
from zot.swarm.task import SwarmError, SwarmTask
from zot.swarm.worktrees import DiffSize

if TYPE_CHECKING:
    from zot.swarm.local import LocalSwarm

LEDGER = "ledger.json"
"""File in the swarm's folder with the spending of all agents together."""
CHUNK = 256 * 1024
STREAM_OVER = b'{"type":"stream_over"}'
"""Last row of a shared stream: it has ended."""
OVER: frozenset[Stage] = frozenset({"done", "failed", "cancelled", "lost"})
_row = msgspec.json.Decoder(rows.LogRow)


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

    def __init__(self, path: Path, take: Callable[[rows.LogRow], None] | None = None) -> None:
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

    def frame(self, line: bytes) -> rows.LogRow | None:
        """Append a frame as the agent wrote it; None: it is not a JSON object and was dropped."""
        fields = fields_of(line)
        return self._append(line, fields) if fields else None

    def row(self, row: rows.AnySwarmRow, *, sync: bool = False) -> rows.LogRow:
        line = msgspec.json.encode(row)
        appended = self._append(line, msgspec.json.decode(line))
        if sync:
            os.fsync(self._open())
        return appended

    def _append(self, line: bytes, fields: dict[str, object]) -> rows.LogRow:
        self._seq += 1
        at = round(time.time(), 3)
        write_all(
            self._open(), b'{"seq":%d,"at":%.3f,"frame":%b}\n' % (self._seq, at, line.strip())
        )
        return rows.LogRow(self._seq, at, fields)

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


def read_log(path: Path, start: int = 0) -> Iterator[tuple[int, rows.LogRow]]:
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


def _decoded(line: bytes) -> rows.LogRow | None:
    """Decode a row; a bare frame, as programs write it, becomes a row with number and time 0."""
    if line.startswith(b'{"seq":'):
        try:
            return _row.decode(line)
        except LINE_ERRORS:
            return None
    fields = fields_of(line)
    return rows.LogRow(0, 0.0, fields) if fields else None


# --- following ----------------------------------------------------------------------------------


class LogFollower:
    """Reader of a growing log; subclasses interpret the rows."""

    control = False
    """Whether this machine owns the process and can control it, not only watch."""

    def __init__(self, id: str, log: Path) -> None:
        self.id = id
        self.log = log
        self._position = 0

    def take(self, row: rows.LogRow) -> None:
        raise NotImplementedError

    def summary(self) -> AgentSummary:
        raise NotImplementedError

    def catch_up(self) -> bool:
        """Read new rows; return whether there were any."""
        before = self._position
        try:
            if self.log.stat().st_size <= before:
                return False
        except FileNotFoundError:
            return False
        for position, row in read_log(self.log, before):
            self._position = position
            self.take(row)
        return self._position != before


class FollowedAgent(LogFollower):
    """An agent of the swarm with its last answer."""

    control = True

    def __init__(self, folder: AgentFolder, task: SwarmTask) -> None:
        super().__init__(folder.id, folder.log)
        self.agent = SwarmAgent(task)
        self.answer = ""

    def take(self, row: rows.LogRow) -> None:
        self.agent.take(row)
        match row.frame.get("type"):
            case "user_message":
                self.answer = ""
            case "assistant_message":
                self.answer = text_of_blocks(list_of(row.frame, "content")) or self.answer

    def summary(self) -> AgentSummary:
        return self.agent.summary()


class Roster:
    """Every agent of the swarm, or only those that one conversation started."""

    def __init__(self, swarm: Path, parent: str = "") -> None:
        self._swarm = swarm
        self._parent = parent
        self._others: set[str] = set()
        self.agents: dict[str, FollowedAgent] = {}

    def refresh(self) -> bool:
        """Read new rows; return whether anything changed."""
        changed = self.look()
        for followed in self.agents.values():
            changed = followed.catch_up() or changed
        return changed

    def look(self) -> bool:
        """Add new agents and drop removed ones; return whether there were any."""
        folders = {folder.id: folder for folder in agent_folders(self._swarm)}
        gone = self.agents.keys() - folders.keys()
        for id in gone:
            del self.agents[id]
        changed = bool(gone)
        for id, folder in folders.items():
            if id not in self.agents and id not in self._others:
                changed = self._add(folder) or changed
        return changed

    def _add(self, folder: AgentFolder) -> bool:
        try:
            task = folder.task()
        except SwarmError:
            return False  # unreadable; `zot swarm list` says why
        if task is None:
            return False  # still being created
        if self._parent and task.parent != self._parent:
            self._others.add(folder.id)
            return False
        self.agents[folder.id] = FollowedAgent(folder, task)
        return True

    def is_busy(self) -> bool:
        """Whether one of the agents has work left."""
        return any(agent.agent.is_unfinished for agent in self.agents.values())


class AgentAnswer(Struct, frozen=True):
    """An agent's answer at the end of a run."""

    id: str
    run: str
    stage: Stage
    text: str
    """The last message, or why the run failed."""
    branch: str = ""
    diff: DiffSize = DiffSize()

    def message(self) -> str:
        """Format the answer as a message for the conversation."""
        parts = [f"[swarm] agent {self.id} is {self.stage}"]
        if self.diff.files:
            parts.append(f"+{self.diff.added} -{self.diff.removed} in {self.diff.files} files")
            parts.append(f"on branch {self.branch}" if self.branch else "")
        return f"{', '.join(filter(None, parts))}\n\n{self.text or '(it said nothing)'}"


def answer_of(followed: FollowedAgent) -> AgentAnswer | None:
    """Return the answer that is not collected yet; None: there is none (yet)."""
    agent = followed.agent
    summary = agent.summary()
    if summary.stage not in OVER or agent.alive or summary.collected:
        return None
    text = followed.answer if summary.stage == "done" else summary.doing or followed.answer
    return AgentAnswer(
        summary.id, summary.last_run, summary.stage, text, summary.branch, summary.diff
    )


def collect(swarm: LocalSwarm, roster: Roster) -> list[AgentAnswer]:
    """Return new answers, oldest agent first. Call `collected` for each one passed on."""
    roster.refresh()
    agents = sorted(roster.agents.values(), key=lambda followed: followed.agent.task.created)
    answers = [answer for followed in agents if (answer := answer_of(followed)) is not None]
    swarm.keep_going(roster)
    return answers
