"""One attempt at a task on a worker: fetch its state from the hub, run the agent under a private
supervisor, and send everything it does to the hub. An effect begins only after the hub has the row
that announces it, and never after another attempt has superseded this one. The hub gets the end of
a run only after the work of that run."""

from __future__ import annotations

import asyncio
import contextlib
import secrets
import shutil
from collections.abc import Iterator, Mapping
from itertools import islice
from pathlib import Path

import msgspec

from zot.errors import ZotError
from zot.files import write_atomic
from zot.swarm import rows
from zot.swarm.child import ChildGone
from zot.swarm.log import AgentFolder, read_log
from zot.swarm.runner import AgentRunner, Supervised, commit_message
from zot.swarm.task import SwarmError
from zot.swarm.temporal.hub import HubClient
from zot.swarm.temporal.remote import Claim, Order, OrderReply
from zot.swarm.temporal.work import CarriedWork, RepositoryCopy

LOOK_SECONDS = 0.25
"""Seconds between two reads of the agent's log; limits the requests to the hub per agent."""
MAX_ROWS = 500
"""Maximum rows per request."""
RUN_OVER = "swarm_run_over"
LOST = "swarm_lost"


class TaskAttempt:
    def __init__(
        self,
        claim: Claim,
        hub: HubClient,
        folder: Path,
        witness: Path,
        copy: RepositoryCopy,
        environment: Mapping[str, str],
    ) -> None:
        self._claim = claim
        self._hub = hub
        self._folder = folder
        self._witness_path = witness
        """Path of a socket; must be short."""
        self._copy = copy
        self._environment = environment
        self._carry = asyncio.Lock()
        self._sent = 0
        """Bytes of the session that the hub has."""
        self._broken: ZotError | None = None
        """Error that prevents sending the agent's session or work to the hub."""
        self._running: Supervised | None = None
        self._position = 0
        self._runs_left = set(claim.waiting)
        """Runs whose end was not sent to the hub yet."""
        self.last_seq = claim.last_seq
        """Number of the last agent frame that the hub has."""

    @property
    def _supervised(self) -> Supervised:
        assert self._running is not None
        return self._running

    async def run(self) -> str:
        """Work until nothing is left to do; return the final stage. Raises Superseded."""
        server = await asyncio.start_unix_server(self._witness, self._witness_path)
        try:
            await self._restore()
            witness = {"ZOT_WITNESS": str(self._witness_path)}
            runner = AgentRunner(self._folder, {**self._environment, **witness}, slots=1)
            (self._running,) = runner.agents.values()
            self._seed(self._supervised)
            try:
                await self._work(runner)
            finally:
                await runner.stop()
        finally:
            server.close()
            self._witness_path.unlink(missing_ok=True)
            await asyncio.to_thread(shutil.rmtree, self._folder, ignore_errors=True)
        return self._supervised.agent.stage

    async def abort(self) -> None:
        """Abort its run as a person would; its work is kept."""
        child = self._running.child if self._running is not None else None
        if child is not None:
            with contextlib.suppress(ZotError):
                await child.request("abort")

    # --- preparing ---------------------------------------------------------------------------

    async def _restore(self) -> None:
        """Fetch session and tree from the hub."""
        claim = self._claim
        folder = AgentFolder(self._folder / "agents" / claim.task.id)
        folder.create(claim.task)
        if claim.session_size:
            await self._hub.fetch("session", folder.session)
            self._sent = folder.session.stat().st_size
            # The agent continues the frame numbers that the hub has.
            head = b'{"type":"event_log","after":%d}\n' % claim.last_seq
            write_atomic(f"{folder.session}.events", head)
        await asyncio.to_thread(self._copy.prepare)
        if not await asyncio.to_thread(self._copy.has, claim.tip):
            bundle = self._folder / "begin.bundle"
            have = await asyncio.to_thread(self._copy.have)
            if await self._hub.fetch("bundle", bundle, have=",".join(have)):
                await asyncio.to_thread(self._copy.take, bundle, claim.task.id, claim.tip)
        self._tree = await asyncio.to_thread(
            self._copy.clone,
            folder.path / "tree",
            claim,
            claim.tip,
            is_checkpoint=claim.is_checkpoint,
        )
        self._work_done = await asyncio.to_thread(
            CarriedWork, self._tree, claim.tip, self._environment
        )
        self._session = folder.session

    def _seed(self, supervised: Supervised) -> None:
        agent = supervised.agent
        agent.waiting = dict(self._claim.waiting)
        agent.attempt = self._claim.started
        agent.last_seq = self._claim.last_seq
        supervised.resume_held = self._claim.resume_held
        supervised.note(rows.TreeMade(self._tree))

    # --- running -----------------------------------------------------------------------------

    async def _work(self, runner: AgentRunner) -> None:
        runner.schedule()
        orders = asyncio.create_task(self._obey())
        try:
            while not self._is_over():
                if orders.done():
                    orders.result()  # raises Superseded: the hub takes nothing more
                if self._broken is not None:
                    raise self._broken
                await self._forward()
                await asyncio.sleep(LOOK_SECONDS)
            await self._forward()
            if not self._supervised.agent.is_committed:
                raise SwarmError(f"the work of {self._claim.task.id} could not be committed")
            await self._carry_final(runner)
            while rows := list(islice(self._new_rows(), MAX_ROWS)):
                await self._send(rows)
        finally:
            orders.cancel()
            await asyncio.gather(orders, return_exceptions=True)

    def _is_over(self) -> bool:
        agent = self._supervised.agent
        return not agent.alive and (not agent.waiting or bool(agent.lost))

    async def _forward(self) -> None:
        """Send new log rows to the hub, except the end, which waits for the final bundle."""
        while rows := list(islice(self._rows_before_end(), MAX_ROWS)):
            ends = {_ended_run(row) for _, row in rows} & self._runs_left
            if ends:
                async with self._carry:
                    await self._carry_checkpoint()
            await self._send(rows)
            self._runs_left -= ends

    def _new_rows(self) -> Iterator[tuple[int, rows.LogRow]]:
        return read_log(self._supervised.folder.log, self._position)

    def _rows_before_end(self) -> Iterator[tuple[int, rows.LogRow]]:
        left = set(self._runs_left)
        for position, row in self._new_rows():
            left.discard(_ended_run(row))
            if not left or row.frame.get("type") == LOST:
                return
            yield position, row

    async def _send(self, rows: list[tuple[int, rows.LogRow]]) -> None:
        lines = b"\n".join(msgspec.json.encode(row) for _, row in rows)
        await self._hub.post("rows", lines)
        self._position = rows[-1][0]
        self.last_seq = self._supervised.agent.last_seq

    async def _obey(self) -> None:
        """Fetch commands for the agent, pass them on and post the replies."""
        after = 0
        while True:
            data = await self._hub.get("orders", after=after)
            for order in msgspec.json.decode(data, type=list[Order]):
                after = order.number
                await self._hub.post("reply", msgspec.json.encode(await self._tell(order)))

    async def _tell(self, order: Order) -> OrderReply:
        child = self._supervised.child
        if child is None:
            return OrderReply(order.number, gone=True)
        try:
            return OrderReply(order.number, await child.request(order.type, **order.fields))
        except ChildGone:
            return OrderReply(order.number, gone=True)
        except ZotError as error:
            return OrderReply(order.number, error=str(error))

    # --- session and work to the hub ---------------------------------------------------------

    async def _witness(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Confirm to the agent that the hub has its session; the agent waits for that."""
        try:
            path = (await reader.readline()).rstrip(b"\n")
            if Path(path.decode(errors="surrogateescape")) == self._session:
                await self._carry_session()
            writer.write(b"ok\n")
            await writer.drain()
        except (ConnectionError, asyncio.CancelledError):
            pass  # the agent died, or the worker is stopping
        except ZotError as error:
            # Not the agent's fault: let it wait until this attempt is cut and another continues.
            self._broken = error
            await reader.read()
        finally:
            writer.close()

    async def _carry_session(self) -> None:
        async with self._carry:
            # Send the work first: no row may report an effect that the hub does not have.
            await self._carry_checkpoint()
            data = await asyncio.to_thread(_from, self._session, self._sent)
            while data:
                answer = await self._hub.post("session", data, at=self._sent)
                size = msgspec.json.decode(answer)["size"]
                if size == self._sent + len(data):
                    self._sent = size
                    return
                self._sent = size
                data = await asyncio.to_thread(_from, self._session, self._sent)

    async def _carry_checkpoint(self) -> None:
        bundle = self._folder / f"{secrets.token_hex(4)}.bundle"
        commit = await asyncio.to_thread(self._work_done.checkpoint, bundle)
        if commit:
            await self._carry_bundle(commit, bundle, final=0)

    async def _carry_final(self, runner: AgentRunner) -> None:
        """Store all its work at the hub, on its branch."""
        message = commit_message(self._claim.task)
        async with self._carry:
            await asyncio.to_thread(runner.trees.commit, self._tree, message)
            bundle = self._folder / "final.bundle"
            commit = await asyncio.to_thread(self._work_done.final, bundle)
            await self._carry_bundle(commit, bundle, final=1)

    async def _carry_bundle(self, commit: str, bundle: Path, final: int) -> None:
        await self._hub.post("tip", bundle, commit=commit, final=final)
        self._work_done.arrived(commit)
        bundle.unlink()


def _ended_run(row: rows.LogRow) -> str:
    """Return the run whose end the row reports; empty: none."""
    return str(row.frame["run"]) if row.frame.get("type") == RUN_OVER else ""


def _from(path: Path, position: int) -> bytes:
    with path.open("rb") as file:
        file.seek(position)
        return file.read()
