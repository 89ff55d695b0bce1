"""Runs the agents: at most one per slot at a time, each with a tree, a log and a process."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from zot.errors import ZotError
from zot.ledger import Ledger
from zot.swarm import rows
from zot.swarm.agent import Stage, SwarmAgent
from zot.swarm.child import AgentChild, AgentDoor, AgentDrive
from zot.swarm.log import LEDGER, AgentFolder, LogWriter, agent_folders
from zot.swarm.task import SwarmError, SwarmTask
from zot.swarm.worktrees import Worktree, Worktrees

if TYPE_CHECKING:
    from zot.swarm.temporal.engine import TemporalEngine

RESTART_SECONDS = (0.2, 0.5, 1.0, 2.0, 4.0, 8.0)
"""Seconds before restarting an agent that died, by number of deaths."""
ENDED: frozenset[Stage] = frozenset({"failed", "cancelled", "lost"})
"""Stages that are over, but not done."""


class Supervised:
    """An agent with its log, and its process while one runs."""

    def __init__(self, folder: AgentFolder, task: SwarmTask) -> None:
        self.folder = folder
        self.agent = SwarmAgent(task)
        self.log = LogWriter(folder.log, self.agent.take)
        self.log.close()
        self.agent.alive = False  # no supervisor ran until now, whatever the log says
        self.child: AgentDoor | None = None
        self.work: asyncio.Task[None] | None = None
        self.resume_held = False
        """Whether a run that is held after a crash continues: a person retried it."""
        self.environment: dict[str, str] = {}

    def take_frame(self, line: bytes, fields: dict[str, Any]) -> bool:
        """Log a frame of the agent; False: it is already in the log."""
        seq = fields.get("seq")
        if isinstance(seq, int) and seq <= self.agent.last_seq:
            return False
        if (row := self.log.frame(line)) is not None:
            self.agent.take(row)
        return True

    def note(self, row: rows.AnySwarmRow, *, sync: bool = False) -> None:
        self.agent.take(self.log.row(row, sync=sync))
        if not self.agent.alive:
            self.log.close()


class AgentRunner:
    """All agents of this machine by id."""

    def __init__(self, swarm: Path, environment: Mapping[str, str], slots: int) -> None:
        self.folder = swarm
        self.agents: dict[str, Supervised] = {}
        self.trees = Worktrees(environment)
        self.environment = dict(environment)
        self._slots = slots
        self.ledger = Ledger(str(swarm / LEDGER))
        self.ledger.release(frozenset())  # from agents that died with the last supervisor
        self.engine: TemporalEngine | None = None
        """Runs the tasks that name an engine; started with the first of them."""
        self._stopping = False
        for folder in agent_folders(swarm):
            try:
                self.load(folder)
            except SwarmError as error:
                sys.stderr.write(f"{error}\n")

    def load(self, folder: AgentFolder) -> None:
        """Load an agent from its folder."""
        task = folder.task()
        if task is not None:
            self.agents[folder.id] = Supervised(folder, task)

    def busy(self) -> bool:
        agents = [supervised.agent for supervised in self.agents.values()]
        return any(a.waiting or (a.task.engine and not a.is_committed) for a in agents)

    async def stop(self) -> None:
        """Stop all processes; the next supervisor continues their runs."""
        self._stopping = True
        if self.engine is not None:
            await self.engine.stop()
        works = [s.work for s in self.agents.values() if s.work is not None]
        for work in works:
            work.cancel()
        await asyncio.gather(*works, return_exceptions=True)
        for supervised in self.agents.values():
            supervised.log.close()

    async def settle_merges(self) -> None:
        """Finish or undo merges that were interrupted when the last supervisor died."""
        with_trees = [(s, s.agent.tree) for s in self.agents.values() if s.agent.tree is not None]
        by_branch = {tree.branch: supervised for supervised, tree in with_trees}
        # Check each checkout once; each copy has its own repository.
        places = {(tree.origin, tree.git_dir): (owner, tree) for owner, tree in with_trees}
        for owner, tree in places.values():
            try:
                move = await asyncio.to_thread(self.trees.settle, tree)
            except (ZotError, OSError) as error:
                sys.stderr.write(f"a merge into {tree.origin!r} was cut: {error}\n")
                continue
            merged = by_branch.get(move.source, owner) if move is not None else None
            if move is not None and merged is not None and merged.agent.merged != move.tip:
                commit = "" if tree.kind == "copy" else move.new
                merged.note(rows.Merged(move.tip, move.squash, commit), sync=True)

    async def commit_leftovers(self) -> None:
        """Commit the work of agents that had ended when the last supervisor died. A remote agent
        has not ended until its worker delivers its work or is given up."""
        for supervised in self.agents.values():
            agent = supervised.agent
            agent.alive = bool(agent.task.engine) and not (agent.is_committed or agent.goes_on)
        cut = [
            (supervised, supervised.agent.tree)
            for supervised in self.agents.values()
            if not (supervised.agent.task.engine or supervised.agent.is_committed)
            and not supervised.agent.waiting
        ]
        for supervised, _ in cut:
            supervised.agent.alive = True  # not over until its work is committed
        for supervised, tree in cut:
            try:
                if tree is not None:
                    await self.commit_work(supervised, tree)
            except ZotError as error:
                sys.stderr.write(f"{supervised.folder.id}: {error}\n")
            supervised.note(rows.Exited(0))

    def schedule(self) -> None:
        agents = {id: supervised.agent for id, supervised in self.agents.items()}
        for supervised in self.agents.values():
            reason = blocked_by(supervised.agent, agents)
            if supervised.agent.stage == "queued" and reason:
                supervised.note(rows.Lost(reason), sync=True)
        for id in next_agents(agents, self._slots):
            supervised = self.agents[id]
            supervised.agent.alive = True
            supervised.work = asyncio.create_task(self._work(supervised))
        if self.engine is not None:
            for agent in ready_agents(agents):
                if agent.task.engine:
                    self.engine.begin(self.agents[agent.task.id])

    async def _work(self, supervised: Supervised) -> None:
        """Run one process of an agent through all its messages; then start what can start."""
        agent = supervised.agent
        try:
            if deaths := agent.crashes + agent.kills:
                await asyncio.sleep(RESTART_SECONDS[min(deaths, len(RESTART_SECONDS)) - 1])
            tree = await self.tree(supervised)
            await AgentDrive(self, supervised).run(tree)
        except (ZotError, OSError) as error:  # from git, the disk, or the agent
            for run in list(agent.waiting):
                supervised.note(rows.RunOver(run, "failed", str(error)), sync=True)
            await self._commit_failed(supervised, str(error))
        finally:
            agent.alive = False
            supervised.child = None
            if not self._stopping:
                if agent.waiting and agent.gives_up:
                    supervised.note(rows.Lost(agent.gives_up), sync=True)
                self.schedule()

    async def _commit_failed(self, supervised: Supervised, error: str) -> None:
        """Commit the work done before a failure; if that fails, the agent is lost."""
        agent = supervised.agent
        if agent.is_committed or agent.tree is None:
            return
        try:
            await self.commit_work(supervised, agent.tree)
        except (ZotError, OSError) as refused:
            text = f"its work in {agent.tree.path!r} could not be committed: {refused}"
            supervised.note(rows.Lost(text), sync=True)
        else:
            supervised.note(rows.Exited(1, error))

    async def tree(self, supervised: Supervised) -> Worktree:
        """Return its local tree; the first call makes it. Raises SwarmError if it is gone."""
        agent = supervised.agent
        if agent.tree is None:
            task = agent.task
            tree = await asyncio.to_thread(
                self.trees.make,
                task.directory,
                task.id,
                self._tree_folder(supervised),
                base=task.base,
                shared=task.here,
                jailed=bool(task.jail),
            )
            supervised.note(rows.TreeMade(tree), sync=True)
            return tree
        if not Path(agent.tree.cwd).is_dir():
            raise SwarmError(f"its directory {agent.tree.cwd!r} is gone")
        await asyncio.to_thread(self.trees.resume, agent.tree)
        return agent.tree

    def _tree_folder(self, supervised: Supervised) -> Path:
        """Return the folder of its tree: beside its log; for a jailed agent beside zot's home,
        because no jail may lie inside that."""
        if not supervised.agent.task.jail:
            return supervised.folder.path
        home = self.folder.parent
        return home.with_name(f"{home.name}-jailed") / supervised.folder.id

    def book_time(self) -> None:
        """Record the agents' working time in the ledger, if minutes are limited."""
        if self.ledger.read().max_minutes is None:
            return
        working = [s for s in self.agents.values() if s.agent.alive]
        self.ledger.book_time({s.folder.id: s.agent.spent() for s in working})

    def local_pids(self) -> frozenset[str]:
        """Return the process ids of the local agents, as names in the ledger."""
        children = (supervised.child for supervised in self.agents.values())
        return frozenset(str(child.pid) for child in children if isinstance(child, AgentChild))

    async def commit_work(self, supervised: Supervised, tree: Worktree) -> None:
        """Commit its work: a branch survives the loss of a directory."""
        message = commit_message(supervised.agent.task)
        await asyncio.to_thread(self.trees.commit, tree, message)
        supervised.note(rows.Sized(await asyncio.to_thread(self.trees.size, tree)))


def commit_message(task: SwarmTask) -> str:
    first = task.prompt.strip().splitlines() or ["work"]
    return f"zot: {first[0][:60]}"


# --- the order in which agents start ------------------------------------------------------------


def next_agents(agents: Mapping[str, SwarmAgent], slots: int) -> list[str]:
    """Return the agents to start now on this machine, highest priority first, then oldest."""
    free = slots - sum(agent.alive for agent in agents.values() if not agent.task.engine)
    ready = [agent for agent in ready_agents(agents) if not agent.task.engine]
    return [agent.task.id for agent in ready[: max(0, free)]]


def ready_agents(agents: Mapping[str, SwarmAgent]) -> list[SwarmAgent]:
    """Return the agents that only wait for a slot, in starting order."""
    ready = [
        agent
        for agent in agents.values()
        if agent.stage == "queued" and not unmet(agent, agents) and not blocked_by(agent, agents)
    ]
    return sorted(ready, key=lambda a: (-a.task.priority, a.task.created, a.task.id))


def unmet(agent: SwarmAgent, agents: Mapping[str, SwarmAgent]) -> list[str]:
    """Return the agents it still has to wait for."""
    return [
        id for id in agent.task.after if id in agents and agents[id].stage not in (*ENDED, "done")
    ]


def blocked_by(agent: SwarmAgent, agents: Mapping[str, SwarmAgent]) -> str:
    """Return why the agent can never start; empty: it can."""
    for id in agent.task.after:
        if id not in agents:
            return f"{id}, which it was to begin after, was removed"
        if agents[id].stage in ENDED:
            return f"{id}, which it was to begin after, was {agents[id].stage}"
    return ""
