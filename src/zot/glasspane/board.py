"""The board: all agents, kept up to date from their logs, and the changes since a version.
Agents of other programs are read from growing files of frames."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from pathlib import Path

from msgspec import Struct
from msgspec.structs import replace

from zot.errors import ConfigError
from zot.observe import Observer, Status, facts
from zot.observe.status import AgentView
from zot.observe.tables import facts_of
from zot.swarm.agent import AgentSummary, Stage
from zot.swarm.local import LocalSwarm
from zot.swarm.log import LogFollower, Roster, shared_streams
from zot.swarm.rows import LogRow
from zot.swarm.task import NoSuchAgent

FRESH_SECONDS = 0.15
"""Seconds during which all browsers share one read of the logs."""
LOOK_SECONDS = 1.0
"""Seconds between two scans for new and removed agents."""
MAX_TASK = 500
"""Characters kept of the first prompt of a watched stream."""
STAGES: dict[str, Stage] = {
    "thinking": "working",
    "compacting": "working",
    "tool": "working",
    "failed": "failed",
    "gone": "lost",
}


class Totals(Struct, frozen=True):
    cost_usd: float
    cost_known: bool
    tokens: int


class BoardAgent(Struct, frozen=True):
    """A row of the board."""

    summary: AgentSummary
    version: int
    """Increases with each change that a page should show."""
    control: bool


class Board:
    def __init__(self, home: Path, environment: Mapping[str, str], files: Sequence[Path]) -> None:
        self._streams = shared_streams(home)
        self._swarm = LocalSwarm(home, environment)
        self._agents = Roster(self._swarm.folder)
        self._others: dict[str, WatchedStream] = {}
        self._rows: dict[str, BoardAgent] = {}
        self._version = 0
        self._looked = 0.0
        self._refreshed = 0.0
        for path in files:
            if not path.is_file():
                raise ConfigError(f"cannot show {str(path)!r}: it is not a file")
            self._watch(path)
        self._show_new()

    @property
    def version(self) -> int:
        return self._version

    def refresh(self) -> None:
        """Read new log rows of all agents."""
        now = time.monotonic()
        if now - self._refreshed < FRESH_SECONDS:
            return
        self._refreshed = now
        if now - self._looked >= LOOK_SECONDS:
            self._looked = now
            self._look_for_agents()
        for id, followed in self._all.items():
            if followed.catch_up() or self._may_change_by_itself(id):
                self._update(id, followed)

    def rows(self, since: int = 0) -> list[BoardAgent]:
        """Return the rows newer than a version; version 0: all."""
        return [row for row in self._rows.values() if row.version > since]

    def ids(self) -> frozenset[str]:
        return frozenset(self._rows)

    def totals(self) -> Totals:
        summaries = [row.summary for row in self._rows.values()]
        return Totals(
            cost_usd=sum(summary.cost_usd for summary in summaries),
            cost_known=all(summary.cost_known for summary in summaries),
            tokens=sum(summary.input_tokens + summary.output_tokens for summary in summaries),
        )

    def log(self, id: str) -> Path:
        if id not in self._all:
            self._look_for_agents()  # may be new
        if id not in self._all:
            raise NoSuchAgent(f"no agent {id!r}")
        return self._all[id].log

    # --- helpers -----------------------------------------------------------------------------

    @property
    def _all(self) -> Mapping[str, LogFollower]:
        return {**self._others, **self._agents.agents}

    def _watch(self, path: Path) -> None:
        name = self._new_name(path)
        self._others[name] = WatchedStream(name, path)

    def _show_new(self) -> None:
        for id, followed in self._all.items():
            if id not in self._rows:
                followed.catch_up()
                self._update(id, followed)

    def _update(self, id: str, followed: LogFollower) -> None:
        summary = followed.summary()
        before = self._rows.get(id)
        if before is None or _without_clock(before.summary) != _without_clock(summary):
            self._version += 1
            self._rows[id] = BoardAgent(summary, self._version, followed.control)

    def _may_change_by_itself(self, id: str) -> bool:
        """Whether the row may change without new log rows: a silent agent becomes stalled."""
        return self._rows[id].summary.stage in ("working", "needs_you")

    def _look_for_agents(self) -> None:
        self._agents.look()
        for id in self._rows.keys() - self._all.keys():
            del self._rows[id]
            self._version += 1
        shown = {followed.log for followed in self._others.values()}
        for path in sorted(self._streams.glob("*.jsonl")):
            if path not in shown:
                self._watch(path)
        self._show_new()
        self._mark_dead()

    def _mark_dead(self) -> None:
        """Mark all agents as not running if there is no supervisor, whatever their logs say."""
        if self._swarm.is_supervised():
            return
        for id, followed in self._agents.agents.items():
            if followed.agent.alive:
                followed.agent.alive = False
                self._update(id, followed)

    def _new_name(self, path: Path) -> str:
        """Return a name from the file's stem, numbered if it is taken."""
        name, number = path.stem, 1
        while name in self._all:
            number += 1
            name = f"{path.stem}-{number}"
        return name


def _without_clock(summary: AgentSummary) -> AgentSummary:
    """Return the summary without the fields that change with time alone."""
    questions = tuple(
        replace(question, asked_seconds=0.0, left_seconds=None) for question in summary.questions
    )
    return replace(summary, questions=questions)


class WatchedStream(LogFollower):
    """A file to which another program appends frames, one per line, of any supported format."""

    def __init__(self, id: str, path: Path) -> None:
        super().__init__(id, path)
        self._row_at = self._since = time.time()
        self._first_said = ""
        self._stage: Stage = "queued"
        self._observer = Observer(lambda: self._row_at)

    def take(self, row: LogRow) -> None:
        self._row_at = row.at or time.time()
        self._observer.feed(row.frame)
        if row.frame.get("type") == "stream_over":
            self._observer.end()
        if not self._first_said:
            said = (fact.text for fact in facts_of(row.frame) if isinstance(fact, facts.UserSaid))
            self._first_said = next(said, "")[:MAX_TASK]
        stage = _stage(self._observer.status())
        if stage != self._stage:
            self._stage, self._since = stage, self._row_at

    def summary(self) -> AgentSummary:
        self._row_at = time.time()
        status = self._observer.status()
        return AgentSummary(
            **facts.shared_fields(status, AgentView),
            id=self.id,
            task=self._first_said or self.log.name,
            stage=self._stage,
            since=self._since,
            directory=str(self.log.parent),
            doing=status.tool or status.waiting_for or status.error,
            about=status.tool_about,
            doing_since=round(self._row_at - status.seconds, 1),
            created=self._since,
        )


def _stage(status: Status) -> Stage:
    if status.state == "waiting":
        return "needs_you" if status.questions else "working"
    if status.state == "idle":
        return "done" if status.outcome in ("answered", "") else "cancelled"
    return STAGES[status.state]
