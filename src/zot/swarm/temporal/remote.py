"""Remote agents as this machine stores them: which worker has each, which rows it may write, and
the commands waiting for it. Knows neither HTTP nor Temporal."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import os
import time
from collections import deque
from pathlib import Path
from typing import Any

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from zot.files import read_bytes
from zot.lines import write_all
from zot.swarm import rows
from zot.swarm.child import ANSWER_SECONDS, ChildGone
from zot.swarm.runner import AgentRunner, Supervised, commit_message
from zot.swarm.task import SwarmError, SwarmTask
from zot.swarm.temporal.work import StoredWork
from zot.swarm.worktrees import TreeOrigin

STOPPING = 503
"""Status of a request interrupted by the hub's shutdown; the worker resends it to the next hub."""
POLL_SECONDS = 20.0
"""Maximum time that a worker's request for commands is held open."""
OURS = frozenset({"swarm_tree", "swarm_claimed", "swarm_merged", "swarm_message"})
"""Row types that are ignored when a worker sends them."""


class Superseded(SwarmError):
    """Another attempt has the task now, or none may."""

    code = "superseded"


class Claim(TreeOrigin, frozen=True):
    """The state a worker needs to start a task, or to continue it after another worker. To a worker
    the origin is just a name for the repository, equal for all its tasks."""

    task: SwarmTask
    waiting: dict[str, str]
    """Messages by run; empty: nothing to do."""
    started: int
    """Number of process starts so far."""
    last_seq: int
    tip: str
    """The commit to begin with."""
    is_checkpoint: bool
    """Whether the tip holds uncommitted work on top of its parent."""
    session_size: int
    resume_held: bool = False


class Order(Struct, frozen=True):
    """A numbered command for the agent."""

    number: int
    type: str
    fields: dict[str, Any]


class OrderReply(Struct, frozen=True):
    number: int
    data: dict[str, Any] = {}
    error: str = ""
    gone: bool = False


class RemoteChild:
    """Command queue of a remote agent; its worker fetches from it."""

    def __init__(self) -> None:
        self._numbers = itertools.count(1)
        self._orders: deque[Order] = deque()
        self._replies: dict[int, asyncio.Future[dict[str, Any]]] = {}
        self._news = asyncio.Event()

    async def request(self, type: str, **fields: Any) -> dict[str, Any]:
        order = Order(next(self._numbers), type, fields)
        reply: asyncio.Future[dict[str, Any]] = asyncio.get_running_loop().create_future()
        self._replies[order.number] = reply
        self._orders.append(order)
        self._news.set()
        try:
            return await asyncio.wait_for(reply, ANSWER_SECONDS)
        except TimeoutError as error:
            raise SwarmError(f"its worker has not taken {type!r} for {ANSWER_SECONDS:.0f} s") from (
                error
            )
        finally:
            self._replies.pop(order.number, None)

    async def orders(self, after: int) -> list[Order]:
        """Return the commands after a number; wait up to POLL_SECONDS for one."""
        while self._orders and self._orders[0].number <= after:
            self._orders.popleft()
        if not self._orders:
            self._news.clear()
            try:
                await asyncio.wait_for(self._news.wait(), POLL_SECONDS)
            except TimeoutError:
                pass
        return list(self._orders)

    def reply(self, reply: OrderReply) -> None:
        waiting = self._replies.get(reply.number)
        if waiting is None or waiting.done():
            return
        if reply.gone:
            waiting.set_exception(ChildGone("the agent's process has ended"))
        elif reply.error:
            waiting.set_exception(SwarmError(reply.error))
        else:
            waiting.set_result(reply.data)

    def hang_up(self) -> None:
        for waiting in self._replies.values():
            if not waiting.done():
                waiting.set_exception(ChildGone("its worker is gone"))


class RemoteAgent:
    """A task that a remote worker has. The worker names its attempt in every request; requests of
    superseded attempts are refused."""

    def __init__(self, runner: AgentRunner, supervised: Supervised) -> None:
        self._runner = runner
        self._supervised = supervised
        self._child = RemoteChild()
        self._last_request = time.monotonic()
        self._rows_taken = 0
        """Number of the last row of this attempt in the log."""
        self._git_lock = asyncio.Lock()
        self._work = StoredWork(runner.trees, supervised.folder.id)
        self._stopping: asyncio.Task[Any] | None = None
        """Aborts the agent because the shared budget is used up."""

    # --- claims ------------------------------------------------------------------------------

    async def claim(self, attempt: int, worker: str) -> Claim:
        agent = self._supervised.agent
        held = agent.claim
        if (attempt, worker) != (held.attempt, held.worker):
            self._refuse_old(attempt)
            await self.give_up()
            self._refuse_old(attempt)
            self._child = RemoteChild()
            self._supervised.note(rows.Claimed(attempt, worker), sync=True)
            self._stopping = None
        self._rows_taken = 0  # a worker starts a new log after each claim
        await self._end_here()
        async with self._git_lock:
            tree = await self._runner.tree(self._supervised)
            tip, is_checkpoint = await asyncio.to_thread(self._work.tip, tree)
        resume_held, self._supervised.resume_held = self._supervised.resume_held, False
        limits, _ = agent.left()  # the budget covers all messages of an agent
        return Claim(
            task=replace(agent.task, engine="", after=(), directory="", **limits),
            waiting={} if agent.lost else dict(agent.waiting),
            started=agent.attempt,
            last_seq=agent.last_seq,
            tip=tip,
            is_checkpoint=is_checkpoint,
            base=tree.base,
            branch=tree.branch,
            inside=tree.inside,
            origin=tree.origin,
            session_size=self._session_size(),
            resume_held=resume_held,
        )

    def _refuse_old(self, attempt: int) -> None:
        latest = self._supervised.agent.claim.attempt
        if attempt <= latest:
            raise Superseded(f"attempt {attempt} comes after attempt {latest}")

    async def _end_here(self) -> None:
        """If no worker will continue the agent: store its work, then log its end."""
        agent = self._supervised.agent
        used_up = self._used_up()
        if agent.goes_on and not agent.gives_up and not used_up:
            return
        await self.settle()
        if agent.waiting and agent.gives_up:
            self._supervised.note(rows.Lost(agent.gives_up), sync=True)
        if used_up:
            for run in list(agent.waiting):
                self._supervised.note(rows.RunOver(run, "limit", used_up), sync=True)
        self._runner.schedule()

    async def give_up(self) -> None:
        """Release the task from a worker that is gone."""
        supervised = self._supervised
        if not supervised.agent.is_committed:
            if not supervised.agent.goes_on:
                await self.settle()
            supervised.note(rows.Exited(-9, "its worker is gone"))
        self._child.hang_up()
        supervised.child = None

    def check(self, attempt: int, worker: str) -> RemoteChild:
        """Return the command queue of the attempt that has the task. Raises Superseded."""
        agent = self._supervised.agent
        if (attempt, worker) != (agent.claim.attempt, agent.claim.worker):
            raise Superseded(f"attempt {attempt} was superseded by attempt {agent.claim.attempt}")
        self._last_request = time.monotonic()
        agent.alive = not agent.is_committed  # unknown to a supervisor that just started
        self._supervised.child = self._child if agent.alive else None
        return self._child

    def silent_seconds(self) -> float:
        return time.monotonic() - self._last_request

    # --- rows and session from the worker ----------------------------------------------------

    def take_rows(self, lines: list[bytes]) -> int:
        """Append numbered rows of the worker's log; return the number of the last one stored."""
        supervised = self._supervised
        for line in lines:
            row = msgspec.json.decode(line, type=rows.LogRow)
            if row.seq <= self._rows_taken:
                continue  # resent: our answer was lost
            self._rows_taken = row.seq
            kind = str(row.frame.get("type", ""))
            if not kind.startswith("swarm_"):
                self._take_frame(msgspec.json.encode(row.frame), row.frame)
            elif kind not in OURS and not self._has(row.frame):
                swarm_row = msgspec.convert(row.frame, rows.AnySwarmRow)
                if isinstance(swarm_row, rows.RunOver) and self._stopping is not None:
                    swarm_row = rows.RunOver(swarm_row.run, "limit", self._used_up())
                supervised.note(swarm_row, sync=True)
        supervised.child = self._child if supervised.agent.alive else None
        if not supervised.agent.alive:
            self._runner.schedule()
        return self._rows_taken

    def _has(self, row: dict[str, Any]) -> bool:
        """Whether an earlier supervisor stored the row and died before it answered."""
        agent = self._supervised.agent
        if row["type"] == "swarm_run_over":
            return row.get("run") not in agent.waiting
        return row["type"] == "swarm_exited" and agent.is_committed

    def _take_frame(self, line: bytes, fields: dict[str, Any]) -> None:
        supervised = self._supervised
        if supervised.take_frame(line, fields) and fields.get("type") in ("usage", "done"):
            name = supervised.folder.id
            self._runner.ledger.book(name, name, supervised.agent.spent())
            if self._used_up() and self._stopping is None:
                self._stopping = asyncio.create_task(self.abort())

    def _used_up(self) -> str:
        spending = self._runner.ledger.read()
        return f"the shared limit is used up: {spending.summary()}" if spending.is_used_up() else ""

    async def abort(self) -> None:
        if self._supervised.agent.alive:
            with contextlib.suppress(SwarmError):
                await self._child.request("abort")

    def take_session(self, at: int, data: bytes) -> int:
        """Write a part of the session file at a position; return the file's size."""
        fd = os.open(
            self._supervised.folder.session, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o600
        )
        try:
            size = os.fstat(fd).st_size
            if at > size:
                return size  # a part is missing: the worker resends from there
            os.lseek(fd, at, os.SEEK_SET)
            write_all(fd, data)
            os.ftruncate(fd, at + len(data))
            getattr(os, "fdatasync", os.fsync)(fd)
            return at + len(data)
        finally:
            os.close(fd)

    def session(self) -> bytes:
        return read_bytes(self._supervised.folder.session) or b""

    def _session_size(self) -> int:
        path = self._supervised.folder.session
        return path.stat().st_size if path.exists() else 0

    # --- commits of the agent ----------------------------------------------------------------

    async def bundle(self, have: list[str]) -> bytes:
        """Pack the commits of the tip that the worker lacks; empty: none."""
        async with self._git_lock:
            tree = await self._runner.tree(self._supervised)
            return await asyncio.to_thread(self._work.bundle, tree, have)

    async def take_tip(
        self, attempt: int, worker: str, commit: str, bundle: bytes, *, final: bool
    ) -> None:
        """Store a checkpoint, or (`final`) the end state of its branch. Raises Superseded."""
        take = self._work.take_final if final else self._work.take_checkpoint
        async with self._git_lock:
            tree = await self._runner.tree(self._supervised)
            # Claims take this lock too, so a later claim's tip includes what is stored here.
            self.check(attempt, worker)
            await asyncio.to_thread(take, tree, commit, bundle)

    async def settle(self) -> None:
        """Put the delivered work on the branch. Call this before logging the agent's end, unless
        the worker sent the end itself."""
        tree = self._supervised.agent.tree
        if tree is not None and Path(tree.path).is_dir():
            async with self._git_lock:
                message = commit_message(self._supervised.agent.task)
                await asyncio.to_thread(self._work.settle, tree, message)

    async def diff(self) -> str | None:
        """Return the diff of its last checkpoint; None: the local tree has everything."""
        async with self._git_lock:
            tree = await self._runner.tree(self._supervised)
            return await asyncio.to_thread(self._work.diff, tree)
