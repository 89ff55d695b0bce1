"""Agents of other programs on the page, each read from a growing file of frames."""

from __future__ import annotations

import time
from pathlib import Path

from zot.observe import Observer, Status, facts
from zot.observe.observer import facts_of
from zot.observe.status import AgentView
from zot.swarm.agent import AgentSummary, Stage
from zot.swarm.log import LogFollower
from zot.swarm.task import LogRow

MAX_TASK = 500
STAGES: dict[str, Stage] = {
    "thinking": "working",
    "compacting": "working",
    "tool": "working",
    "failed": "failed",
    "gone": "lost",
}


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
