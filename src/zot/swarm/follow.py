"""Readers of growing agent logs: each resumes where it stopped, and each answer that a conversation
waits for is reported once."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from msgspec import Struct

from zot.observe.facts import list_of, text_of_blocks
from zot.swarm.agent import AgentSummary, Stage, SwarmAgent
from zot.swarm.log import AgentFolder, agent_folders, read_log
from zot.swarm.task import LogRow, SwarmError, SwarmTask
from zot.swarm.worktrees import DiffSize

if TYPE_CHECKING:
    from zot.swarm.local import LocalSwarm

OVER: frozenset[Stage] = frozenset({"done", "failed", "cancelled", "lost"})


class LogFollower:
    """Reader of a growing log; subclasses interpret the rows."""

    control = False
    """Whether this machine owns the process and can control it, not only watch."""

    def __init__(self, id: str, log: Path) -> None:
        self.id = id
        self.log = log
        self._position = 0

    def take(self, row: LogRow) -> None:
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

    def take(self, row: LogRow) -> None:
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

    def told(self) -> str:
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
