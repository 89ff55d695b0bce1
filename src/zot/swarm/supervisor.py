"""The process that runs the agents of this machine and serves clients over a socket. It outlives
the terminal; when it dies, the next one reads the logs and goes on."""

from __future__ import annotations

import asyncio
import contextlib
import os
import resource
import shutil
import sys
import time
from collections import defaultdict
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, assert_never

import msgspec

from zot.errors import ZotError
from zot.files import ensure_dir, lock_file
from zot.lines import LINE_ERRORS, encode_line
from zot.swarm import commands, rows
from zot.swarm.child import AgentDoor, ChildGone
from zot.swarm.log import AgentFolder
from zot.swarm.runner import AgentRunner, Supervised
from zot.swarm.task import SwarmError, pick
from zot.swarm.temporal.config import start_engine
from zot.swarm.temporal.remote import RemoteAgent
from zot.swarm.worktrees import Worktree

if TYPE_CHECKING:
    from zot.swarm.temporal.engine import TemporalEngine

SLOTS = 8
DESCRIPTORS = 65_536
IDLE_SECONDS = 60.0
"""Seconds without work and clients after which the supervisor exits."""
ENGINE_SECONDS = 3.0
"""Seconds between two attempts to start the engine for agents that need it."""
MAX_LINE = 16 * 1024 * 1024
RETRY_TEXT = "Go on: the last run failed or was stopped. Look at what is done, then do the rest."


class SwarmSupervisor:
    def __init__(self, runner: AgentRunner) -> None:
        self._runner = runner
        self._writers: set[asyncio.StreamWriter] = set()
        """Connections of the clients."""
        self._leaving: set[str] = set()
        """Agents that are being removed."""
        self._changing: defaultdict[str, asyncio.Lock] = defaultdict(asyncio.Lock)
        """Locks by checkout: only one thread at a time waits for the lock of a repository."""
        self._stopping = asyncio.Event()
        self._starting = asyncio.Lock()
        """Held while the engine is started."""

    async def run(self, socket: Path) -> None:
        """Serve until stopped or idle."""
        with contextlib.suppress(FileNotFoundError):
            socket.unlink()  # left by a killed supervisor: this one has the lock
        trying: asyncio.Task[None] | None = None
        before = os.umask(0o177)
        try:
            server = await asyncio.start_unix_server(self._serve, socket, limit=MAX_LINE)
        finally:
            os.umask(before)
        try:
            await self._runner.commit_leftovers()
            await self._runner.settle_merges()
            self._runner.schedule()
            remote = [s.agent for s in self._runner.agents.values() if s.agent.task.engine]
            if any(agent.goes_on or not agent.is_committed for agent in remote):
                trying = asyncio.create_task(self._keep_trying_engine())
            await self._until_idle()
        finally:
            self._stopping.set()
            if trying is not None:
                trying.cancel()
            server.close()
            socket.unlink(missing_ok=True)
            await self._runner.stop()
            await self._hang_up()

    async def _hang_up(self) -> None:
        await asyncio.sleep(0.05)  # for answers to commands that were read just now
        for writer in self._writers:
            writer.close()
        while self._writers:
            await asyncio.sleep(0.01)

    async def _until_idle(self) -> None:
        last_use = time.monotonic()
        while not self._stopping.is_set() and time.monotonic() - last_use < IDLE_SECONDS:
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._stopping.wait(), 1.0)
            self._runner.book_time()
            if self._writers or self._runner.busy():
                last_use = time.monotonic()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._writers.add(writer)
        try:
            while line := await reader.readline():
                writer.write(encode_line(await self._reply(line)))
                await writer.drain()
        except (ConnectionError, ValueError):
            pass  # the client left, or sent a line over MAX_LINE
        finally:
            self._writers.discard(writer)
            writer.close()

    async def _reply(self, line: bytes) -> commands.SwarmReply:
        try:
            command = msgspec.json.decode(line, type=commands.AnySwarmCommand)
            if self._stopping.is_set() and not isinstance(command, commands.StopSupervisor):
                text = "the supervisor is ending; ask the next one"
                return commands.SwarmReply(ok=False, error=text, code=commands.STOPPING)
            return commands.SwarmReply(ok=True, data=await self._do(command))
        except LINE_ERRORS as error:
            return commands.SwarmReply(
                ok=False, error=f"not a command: {error}", code="parse_error"
            )
        except ZotError as error:
            return commands.SwarmReply(ok=False, error=str(error), code=error.code)
        except OSError as error:
            where = repr(error.filename) if error.filename else "the files of the swarm"
            text = f"cannot use {where}: {error.strerror}"
            return commands.SwarmReply(ok=False, error=text, code="files")

    async def _do(self, command: commands.AnySwarmCommand) -> Any:
        match command:
            case commands.Submit():
                return await self._submit(command)
            case commands.ListAgents():
                return [supervised.agent.summary() for supervised in self._runner.agents.values()]
            case commands.Send():
                return self._send(await self._startable(command.agent), command.text)
            case commands.TellAgent():
                return await self._child(command.agent).request(command.type, **command.fields)
            case commands.CancelAgent():
                return await self._cancel(self._pick(command.agent))
            case commands.RetryAgent():
                return self._retry(await self._startable(command.agent))
            case commands.DiffAgent():
                return await self._diff(self._pick(command.agent))
            case commands.MergeAgent():
                return await self._merge(self._pick(command.agent), squash=command.squash)
            case commands.CollectAnswer():
                return self._pick(command.agent).note(rows.Collected(command.run), sync=True)
            case commands.RemoveAgent():
                return await self._remove(self._pick(command.agent))
            case commands.CollectGarbage():
                return await self._collect(try_only=command.try_only)
            case commands.StopSupervisor():
                return self._stopping.set()
        assert_never(command)

    def _pick(self, beginning: str) -> Supervised:
        id = pick(list(self._runner.agents), beginning)
        if id in self._leaving:
            raise SwarmError(f"{id} is being removed")
        return self._runner.agents[id]

    async def _start_engine(self) -> TemporalEngine:
        """Start the engine once. Raises SwarmError: it says what is missing or does not answer."""
        async with self._starting:
            if self._runner.engine is None:
                self._runner.engine = await start_engine(self._runner)
            return self._runner.engine

    async def _keep_trying_engine(self) -> None:
        """Start the engine once Temporal answers: agents wait for it, and workers for the hub."""
        said = ""
        while True:
            try:
                await self._start_engine()
                return self._runner.schedule()
            except ZotError as error:
                if str(error) != said:
                    said = str(error)
                    sys.stderr.write(f"{said}\n")
            await asyncio.sleep(ENGINE_SECONDS)

    async def _startable(self, beginning: str) -> Supervised:
        """Return the agent, with its engine started if it has one."""
        supervised = self._pick(beginning)
        if supervised.agent.task.engine:
            await self._start_engine()
        return supervised

    def _child(self, beginning: str) -> AgentDoor:
        supervised = self._pick(beginning)
        if supervised.child is None:
            raise SwarmError(f"{supervised.folder.id} does not run: it is {supervised.agent.stage}")
        return supervised.child

    def _has_tree(self, supervised: Supervised) -> Worktree:
        if supervised.agent.tree is None:
            raise SwarmError(f"{supervised.folder.id} has not begun: there is nothing to see yet")
        return supervised.agent.tree

    async def _submit(self, command: commands.Submit) -> str:
        task = command.task
        if task.engine:
            engine = await self._start_engine()
            await asyncio.to_thread(engine.check, task)
        if task.base and not task.here:
            check = self._runner.trees.check_base
            await asyncio.to_thread(check, task.directory, task.base)
        if task.id in self._runner.agents:
            raise SwarmError(f"there is an agent {task.id!r} already")
        after = tuple(pick(list(self._runner.agents), id) for id in task.after)
        folder = AgentFolder(self._runner.folder / "agents" / task.id)
        folder.create(msgspec.structs.replace(task, after=after))
        self._runner.load(folder)
        self._runner.agents[task.id].environment = dict(command.environment)
        self._runner.schedule()
        return task.id

    def _send(self, supervised: Supervised, text: str) -> str:
        run = f"{supervised.folder.id}-{supervised.agent.runs + 1}"
        supervised.note(rows.Messaged(run, text), sync=True)
        self._runner.schedule()
        return run

    async def _cancel(self, supervised: Supervised) -> None:
        if not supervised.agent.waiting:
            raise SwarmError(f"{supervised.folder.id} is {supervised.agent.stage} already")
        if supervised.agent.task.engine:
            await self._cancel_elsewhere(supervised)
        else:
            supervised.note(rows.AgentCancelled(), sync=True)
            if supervised.child is not None:
                with contextlib.suppress(ChildGone):
                    await supervised.child.request("abort")
        self._runner.schedule()

    async def _cancel_elsewhere(self, supervised: Supervised) -> None:
        """Cancel a remote agent. Without Temporal, its worker learns of it on delivery only."""
        try:
            engine = await self._start_engine()
        except ZotError:
            if not supervised.agent.alive:
                await RemoteAgent(self._runner, supervised).settle()
            supervised.note(rows.AgentCancelled(), sync=True)
        else:
            await engine.cancel(supervised)

    def _retry(self, supervised: Supervised) -> None:
        agent = supervised.agent
        if agent.waiting and not agent.lost:
            raise SwarmError(f"{supervised.folder.id} is {agent.stage}: there is nothing to retry")
        if agent.stage == "done":
            raise SwarmError(f"{supervised.folder.id} is done: `zot swarm send` tells it more")
        supervised.note(rows.Retried(), sync=True)
        supervised.resume_held = bool(agent.waiting)
        if not agent.waiting:
            self._send(supervised, RETRY_TEXT)
        self._runner.schedule()

    async def _diff(self, supervised: Supervised) -> str:
        tree = self._has_tree(supervised)
        if self._runner.engine is not None and supervised.agent.task.engine:
            diff = await self._runner.engine.diff(supervised)
            if diff is not None:
                return diff
        return await asyncio.to_thread(self._runner.trees.diff, tree)

    async def _merge(self, supervised: Supervised, *, squash: bool) -> str:
        if supervised.agent.alive:
            raise SwarmError(f"{supervised.folder.id} is at work: merge it when it has ended")
        tree = self._has_tree(supervised)
        message = f"Merge {supervised.folder.id}: {supervised.agent.task.prompt.strip()}"[:1000]
        merge = self._runner.trees.merge
        async with self._changing[tree.origin]:
            tip, commit = await asyncio.to_thread(merge, tree, message, squash=squash)
        supervised.note(rows.Merged(tip, squash, commit), sync=True)
        return commit or tip

    async def _remove(self, supervised: Supervised) -> None:
        agent = supervised.agent
        if agent.alive or agent.waiting:
            raise SwarmError(f"{supervised.folder.id} has not ended: cancel it first")
        self._leaving.add(supervised.folder.id)
        try:
            if agent.tree is not None:
                remove = self._runner.trees.remove
                async with self._changing[agent.tree.origin]:
                    await asyncio.to_thread(remove, agent.tree, agent.merged, agent.merge_commit)
            supervised.log.close()
            del self._runner.agents[supervised.folder.id]
            for folder in _folders(supervised):
                await asyncio.to_thread(shutil.rmtree, folder)
        finally:
            self._leaving.discard(supervised.folder.id)

    async def _collect(self, *, try_only: bool) -> list[commands.FreedAgent]:
        freed = []
        for supervised in list(self._runner.agents.values()):
            agent = supervised.agent
            if agent.alive or agent.waiting or supervised.folder.id in self._leaving:
                continue
            try:
                if agent.tree is None or not await asyncio.to_thread(
                    self._runner.trees.unsaved, agent.tree, agent.merged, agent.merge_commit
                ):
                    size = await asyncio.to_thread(_disk_bytes, _folders(supervised))
                    if not try_only:
                        await self._remove(supervised)
                    freed.append(commands.FreedAgent(supervised.folder.id, size))
            except ZotError as error:  # a broken repository; collect the others
                sys.stderr.write(f"{supervised.folder.id}: {error}\n")
        return freed


def _folders(supervised: Supervised) -> list[Path]:
    """Return the folders of this agent alone: its own, and the one beside zot's home if jailed."""
    folders, agent = [supervised.folder.path], supervised.agent
    if agent.task.jail and agent.tree is not None and agent.tree.kind != "shared":
        outside = Path(agent.tree.path).parent
        if outside.name == agent.task.id and outside != supervised.folder.path:
            folders.append(outside)
    return [folder for folder in folders if folder.is_dir()]


def _disk_bytes(folders: list[Path]) -> int:
    return sum(
        os.lstat(os.path.join(top, name)).st_blocks * 512  # noqa: PTH118  one of very many
        for folder in folders
        for top, _, names in os.walk(folder)
        for name in names
    )


def supervise(swarm: Path, socket: Path, environment: Mapping[str, str], slots: int) -> int:
    """Run the supervisor, unless one runs already."""
    if lock_file(ensure_dir(swarm) / "lock") is None:
        return 0
    _allow_descriptors()
    asyncio.run(SwarmSupervisor(AgentRunner(swarm, environment, slots)).run(socket))
    return 0


def _allow_descriptors() -> None:
    """Raise the limit of descriptors: an agent takes four (three pipes, a log), and many systems
    allow 1,024 by default."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = DESCRIPTORS if hard == resource.RLIM_INFINITY else min(hard, DESCRIPTORS)
    with contextlib.suppress(ValueError, OSError):  # macOS may allow less than it says
        resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, wanted), hard))
