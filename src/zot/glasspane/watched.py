"""Agents that a page shows: each is a log that grows, of the swarm's or of any other make."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

from zot.observe import Observer, Status
from zot.swarm.agent import AgentSummary, Stage, SwarmAgent
from zot.swarm.log import AgentFolder, read_log
from zot.swarm.task import LogRow, SwarmTask

STAGES: dict[str, Stage] = {
    "thinking": "working",
    "compacting": "working",
    "tool": "working",
    "failed": "failed",
    "gone": "lost",
}


class WatchedStream:
    """Frames that another program writes to a file, one a line, in the shape of any make."""

    control = False
    """Nobody here owns its process: it can only be looked at."""

    def __init__(self, id: str, path: Path, clock: Callable[[], float] = time.time) -> None:
        self.id = id
        self.log = path
        self._clock = clock
        self._row_at = self._since = clock()
        self._first_said = ""
        self._stage: Stage = "queued"
        self._observer = Observer(lambda: self._row_at)

    def take(self, row: LogRow) -> None:
        self._row_at = row.at or self._clock()
        self._observer.feed(row.frame)
        if row.frame.get("type") == "stream_over":
            self._observer.end()
        if not self._first_said and row.frame.get("type") == "user_message":
            self._first_said = _first_text(row.frame)
        stage = _stage(self._observer.status())
        if stage != self._stage:
            self._stage, self._since = stage, self._row_at

    def summary(self) -> AgentSummary:
        self._row_at = self._clock()
        status = self._observer.status()
        return AgentSummary(
            id=self.id,
            task=self._first_said or self.log.name,
            stage=self._stage,
            since=self._since,
            directory=str(self.log.parent),
            doing=status.tool or status.waiting_for or status.error,
            stalled=status.stalled,
            questions=status.questions,
            outcome=status.outcome,
            turns=status.turns,
            tool_calls=status.tool_calls,
            cost_usd=status.cost_usd,
            cost_known=status.cost_known,
            input_tokens=status.input_tokens,
            output_tokens=status.output_tokens,
            context_tokens=status.context_tokens,
            model=status.model,
            created=self._since,
        )


class WatchedAgent:
    """An agent of the swarm."""

    control = True

    def __init__(self, folder: AgentFolder, task: SwarmTask) -> None:
        self.id = folder.id
        self.log = folder.log
        self.agent = SwarmAgent(task)

    def take(self, row: LogRow) -> None:
        self.agent.take(row)

    def summary(self) -> AgentSummary:
        return self.agent.summary()


Watched = WatchedStream | WatchedAgent


class Tail:
    """A log that is read as it grows."""

    def __init__(self, watched: Watched) -> None:
        self.watched = watched
        self.position = 0

    def catch_up(self) -> bool:
        """Take in what is new; whether there was something."""
        before = self.position
        try:
            if self.watched.log.stat().st_size <= self.position:
                return False
        except FileNotFoundError:
            return False
        for position, row in read_log(self.watched.log, self.position):
            self.position = position
            self.watched.take(row)
        return self.position != before


def _stage(status: Status) -> Stage:
    if status.state == "waiting":
        return "needs_you" if status.questions else "working"
    if status.state == "idle":
        return "done" if status.outcome in ("answered", "") else "cancelled"
    return STAGES[status.state]


def _first_text(frame: dict[str, object]) -> str:
    content = frame.get("content")
    for block in content if isinstance(content, list) else ():
        if isinstance(block, dict) and isinstance(block.get("text"), str):
            return str(block["text"])[:500]
    return ""
