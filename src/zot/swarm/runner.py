"""Runs the agents: at most one per slot at a time, each with a tree, a log and a process."""

from __future__ import annotations

import asyncio
import contextlib
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from zot.errors import ConfigError, ZotError
from zot.home import own_command, own_environ
from zot.ledger import Ledger
from zot.provider import catalog
from zot.swarm import rows
from zot.swarm.agent import Stage, SwarmAgent
from zot.swarm.child import AgentChild, AgentDoor, ChildGone
from zot.swarm.log import LEDGER, AgentFolder, LogWriter, agent_folders
from zot.swarm.task import SwarmError, SwarmTask
from zot.swarm.worktrees import Worktree, Worktrees

if TYPE_CHECKING:
    from zot.swarm.temporal.engine import TemporalEngine

RESTART_SECONDS = (0.2, 0.5, 1.0, 2.0, 4.0, 8.0)
"""Seconds before restarting an agent that died, by number of deaths."""
ENDED: frozenset[Stage] = frozenset({"failed", "cancelled", "lost"})
"""Stages that are over, but not done."""
FEATURES = ("codes", "dialogs", "queue", "retries", "seq", "thinking", "tools")


class RunIsHeld(SwarmError):
    pass


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
        self.told: set[asyncio.Task[None]] = set()
        self.held_back: list[tuple[bytes, dict[str, Any]]] | None = None
        """Live frames, buffered until the frames missed without a supervisor are read."""
        self.held = ""
        """Why its run waits for a person's permission to continue."""
        self.resume_held = False
        self.environment: dict[str, str] = {}
        self.run_over = asyncio.Event()

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
        self.elsewhere: TemporalEngine | None = None
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
        return any(agent.waiting or (agent.task.engine and not agent.kept) for agent in agents)

    async def stop(self) -> None:
        """Stop all processes; the next supervisor continues their runs."""
        self._stopping = True
        if self.elsewhere is not None:
            await self.elsewhere.stop()
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

    async def finish_kept(self) -> None:
        """Commit the work of agents that had ended when the last supervisor died. A remote agent
        has not ended until its worker delivers its work or is given up."""
        for supervised in self.agents.values():
            agent = supervised.agent
            agent.alive = bool(agent.task.engine) and not (agent.kept or agent.goes_on)
        cut = [
            (supervised, supervised.agent.tree)
            for supervised in self.agents.values()
            if not (supervised.agent.task.engine or supervised.agent.kept)
            and not supervised.agent.waiting
        ]
        for supervised, _ in cut:
            supervised.agent.alive = True  # not over until its work is committed
        for supervised, tree in cut:
            try:
                if tree is not None:
                    await self._keep(supervised, tree)
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
        if self.elsewhere is not None:
            for agent in ready_agents(agents):
                if agent.task.engine:
                    self.elsewhere.begin(self.agents[agent.task.id])

    async def _work(self, supervised: Supervised) -> None:
        """Run one process of an agent through all its messages."""
        agent = supervised.agent
        try:
            await asyncio.sleep(_pause(agent.crashes + agent.kills))
            tree = await self.tree(supervised)
            await self._drive(supervised, tree)
        except (ZotError, OSError) as error:  # from git, the disk, or the agent
            self._fail(supervised, str(error))
            await self._keep_failed(supervised, str(error))
        finally:
            agent.alive = False
            supervised.child = None
            if not self._stopping:
                self._after(supervised)

    def _fail(self, supervised: Supervised, error: str) -> None:
        for run in list(supervised.agent.waiting):
            supervised.note(rows.RunOver(run, "failed", error), sync=True)

    async def _keep_failed(self, supervised: Supervised, error: str) -> None:
        """Commit the work done before a failure; if that fails, the agent is lost."""
        agent = supervised.agent
        if agent.kept or agent.tree is None:
            return
        try:
            await self._keep(supervised, agent.tree)
        except (ZotError, OSError) as refused:
            text = f"its work in {agent.tree.path!r} could not be committed: {refused}"
            supervised.note(rows.Lost(text), sync=True)
        else:
            supervised.note(rows.Exited(1, error))

    def _after(self, supervised: Supervised) -> None:
        agent = supervised.agent
        if agent.waiting and agent.gives_up:
            supervised.note(rows.Lost(agent.gives_up), sync=True)
        self.schedule()

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

    async def _drive(self, supervised: Supervised, tree: Worktree) -> None:
        agent = supervised.agent
        child = AgentChild(lambda line, fields: self._frame(supervised, line, fields))
        environment = own_environ({**self.environment, **supervised.environment})
        child.start(_command(agent.task, supervised.folder), tree.cwd, environment)
        supervised.child = child
        supervised.held_back = []
        supervised.note(rows.AgentStarted(agent.attempt + 1, child.pid))
        try:
            asks = ("approvals",) if agent.task.approve else ()
            hello = await child.request("hello", features=(*FEATURES, *asks))
            self._note_model(supervised, str(hello.get("provider")), str(hello.get("model")))
            await self._catch_up(supervised, child)
            while agent.waiting:
                await self._run_message(supervised, child, next(iter(agent.waiting)))
            code = await child.stop()
        except ChildGone:
            code = await child.ended()
        except asyncio.CancelledError:
            child.kill()
            await child.ended()
            raise
        except RunIsHeld:
            code = await child.stop()
        except SwarmError:
            await child.stop()
            raise
        self.ledger.release(self._pids() - {str(child.pid)})
        if not agent.waiting:
            await self._keep(supervised, tree)
        supervised.note(rows.Exited(code, child.stderr if agent.waiting else ""))

    def _note_model(self, supervised: Supervised, provider: str, model: str) -> None:
        window = 0
        with contextlib.suppress(ConfigError, KeyError):  # a provider or model the user defined
            listed = catalog.find(provider, model)
            window = listed.context_window if listed.source == "catalog" else 0
        runs_on = rows.RunsOn(model, window)
        if runs_on != supervised.agent.runs_on:
            supervised.note(runs_on)

    async def _catch_up(self, supervised: Supervised, child: AgentChild) -> None:
        """Log the frames that were sent while no supervisor was running."""
        more = supervised.agent.attempt > 1
        while more:
            data = await child.request("events", **{"from": supervised.agent.last_seq})
            for event in data.get("events", ()):
                self._keep_frame(supervised, msgspec.json.encode(event), event)
            more = data.get("more") is True
        held, supervised.held_back = supervised.held_back, None
        for line, fields in held or ():
            self._keep_frame(supervised, line, fields)

    async def _run_message(self, supervised: Supervised, child: AgentChild, run: str) -> None:
        text = supervised.agent.waiting[run]
        supervised.run_over.clear()
        supervised.held = ""
        limits, used_up = supervised.agent.left()  # a resumed run keeps its first limits
        data = await child.request("prompt", message=text, run=run, **limits)
        if data.get("already_done"):
            supervised.note(_stored_end(run, data.get("end")), sync=True)
            return
        over = asyncio.create_task(supervised.run_over.wait())
        gone = asyncio.create_task(child.gone.wait())
        try:
            await asyncio.wait((over, gone), return_when=asyncio.FIRST_COMPLETED)
        finally:
            over.cancel()
            gone.cancel()
        if not supervised.run_over.is_set():
            raise ChildGone("the agent's process has ended")
        if supervised.held:
            supervised.note(rows.Lost(supervised.held), sync=True)
            raise RunIsHeld(supervised.held)
        outcome, error = supervised.agent.outcome()
        if outcome == "limit" and used_up:
            error = used_up
        supervised.note(rows.RunOver(run, outcome, error), sync=True)

    def book_time(self) -> None:
        """Record the agents' working time in the ledger, if minutes are limited."""
        if self.ledger.read().max_minutes is None:
            return
        working = [s for s in self.agents.values() if s.agent.alive]
        self.ledger.book_time({s.folder.id: s.agent.spent() for s in working})

    def _frame(self, supervised: Supervised, line: bytes, fields: dict[str, Any]) -> None:
        if supervised.held_back is not None:
            supervised.held_back.append((line, fields))
        else:
            self._keep_frame(supervised, line, fields)

    def _keep_frame(self, supervised: Supervised, line: bytes, fields: dict[str, Any]) -> None:
        if not supervised.take_frame(line, fields):
            return
        match fields.get("type"):
            case "usage":
                self._book(supervised)
            case "done":
                self._book(supervised)
                supervised.run_over.set()
            case "run_held" if supervised.resume_held:
                supervised.resume_held = False
                self._tell(supervised, "resume_run", run=fields.get("run"))
            case "run_held":
                supervised.held = str(fields.get("reason") or "it crashed too often")
                supervised.run_over.set()
            case "run_resumed" if fields.get("run") not in supervised.agent.waiting:
                # The run was cancelled, but the process died before it got the abort.
                self._tell(supervised, "abort")

    def _book(self, supervised: Supervised) -> None:
        if isinstance(supervised.child, AgentChild):
            pid, id = str(supervised.child.pid), supervised.folder.id
            self.ledger.book(pid, id, supervised.agent.spent())

    def _tell(self, supervised: Supervised, command: str, **fields: Any) -> None:
        """Send a command from synchronous code."""

        async def tell() -> None:
            with contextlib.suppress(SwarmError):
                if supervised.child is not None:
                    await supervised.child.request(command, **fields)

        told = asyncio.create_task(tell())
        supervised.told.add(told)
        told.add_done_callback(supervised.told.discard)

    def _pids(self) -> frozenset[str]:
        children = (supervised.child for supervised in self.agents.values())
        return frozenset(str(child.pid) for child in children if isinstance(child, AgentChild))

    async def _keep(self, supervised: Supervised, tree: Worktree) -> None:
        """Commit its work: a branch survives the loss of a directory."""
        message = commit_message(supervised.agent.task)
        await asyncio.to_thread(self.trees.commit, tree, message)
        supervised.note(rows.Sized(await asyncio.to_thread(self.trees.size, tree)))


def commit_message(task: SwarmTask) -> str:
    first = task.prompt.strip().splitlines() or ["work"]
    return f"zot: {first[0][:60]}"


def _stored_end(run: str, end: Any) -> rows.RunOver:
    """Return the end of a run that finished while no supervisor listened."""
    fields = end if isinstance(end, dict) else {}
    error = str(fields.get("error") or "")
    if fields.get("stop") == "aborted":
        return rows.RunOver(run, "aborted")
    if error:
        return rows.RunOver(run, "limit" if fields.get("code") == "limit" else "failed", error)
    return rows.RunOver(run, "answered")


def _pause(deaths: int) -> float:
    return RESTART_SECONDS[min(deaths, len(RESTART_SECONDS)) - 1] if deaths else 0.0


def _command(task: SwarmTask, folder: AgentFolder) -> list[str]:
    words = own_command("rpc", "--session", str(folder.session), "--durable")
    words += ["--no-swarm"]  # nobody would see agents started by agents
    words += ["--spend-file", str(folder.path.parent.parent / LEDGER)]
    for flag, value in (
        ("--provider", task.provider),
        ("--model", task.model),
        ("--approve", ",".join(task.approve)),
        ("--approval-timeout", "none" if task.approve else ""),  # wait for the user
        ("--max-steps", task.max_steps),
    ):
        if value:
            words += [flag, str(value)]
    return [*words, *(("--jail",) if task.jail else ()), *task.words]


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
