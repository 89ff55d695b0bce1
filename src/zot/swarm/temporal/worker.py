"""A worker: does tasks of a queue, one per slot at a time, until it is stopped."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import logging
import os
import secrets
import shutil
import signal
import socket
import sys
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from pathlib import Path

import msgspec
from temporalio import activity
from temporalio.client import Client
from temporalio.exceptions import ApplicationError
from temporalio.worker import UnsandboxedWorkflowRunner, Worker

from zot.bugs import complain
from zot.errors import ConfigError, ZotError
from zot.files import ensure_dir, lock_file
from zot.swarm.local import MAX_SOCKET_PATH, short_path
from zot.swarm.temporal.attempt import TaskAttempt
from zot.swarm.temporal.config import TemporalConfig, WorkerPlace
from zot.swarm.temporal.engine import RUN, SUPERSEDED, AttemptOrder, TaskFlow, connect
from zot.swarm.temporal.hub import HubAddress, HubClient
from zot.swarm.temporal.remote import Claim, Superseded
from zot.swarm.temporal.work import RepositoryCopy

RETRY_SLOTS = 4
"""Extra slots for tasks that other workers lost, so they do not wait behind new ones."""
BEATS = 4
"""Heartbeats per lease."""
ABORT_SECONDS = 60.0
"""Time for a cancelled agent to stop and store its work."""


class TaskWorker:
    def __init__(self, place: WorkerPlace, sockets: Path, environment: Mapping[str, str]) -> None:
        self._place = place
        self._sockets = sockets
        self._environment = environment
        self._address = HubAddress(place)
        self._copies: dict[str, RepositoryCopy] = {}
        self._numbers = itertools.count(1)
        self._name = f"{socket.gethostname()}-{os.getpid()}-{secrets.token_hex(3)}"

    @activity.defn(name=RUN)
    async def run(self, order: AttemptOrder) -> str:
        """Run one attempt. Its result and errors contain fixed texts only, because many can read
        histories; the cause is in the worker's output."""
        hub = HubClient(self._address, order.id, order.attempt, self._name)
        try:
            return await self._run(order, hub)
        except Superseded as error:
            raise ApplicationError(
                "superseded: another attempt has the task", type=SUPERSEDED
            ) from error
        except ZotError as error:
            complain(f"{order.id}: {error}")
            raise ApplicationError(
                "the worker could not continue the task; its output says why"
            ) from error
        finally:
            hub.close()

    async def _run(self, order: AttemptOrder, hub: HubClient) -> str:
        attempt: TaskAttempt | None = None

        async def beat() -> None:
            """Send heartbeats with the attempt's progress to Temporal."""
            while True:
                activity.heartbeat(attempt.last_seq if attempt is not None else 0)
                await asyncio.sleep(order.lease_seconds / BEATS)

        beats = asyncio.create_task(beat())
        try:
            while True:
                claim = msgspec.json.decode(await hub.post("claim"), type=Claim)
                if not claim.waiting:
                    return "done"
                attempt = self._attempt(order, claim, hub)
                await self._finish(attempt)
        finally:
            beats.cancel()

    async def _finish(self, attempt: TaskAttempt) -> None:
        """Wait for the attempt. A cancelled task ends like one that a person aborted; when the
        worker stops, the attempt is cut and continues elsewhere."""
        work = asyncio.create_task(attempt.run())
        try:
            await asyncio.shield(work)
        except asyncio.CancelledError:
            details = activity.cancellation_details()
            if details is not None and details.cancel_requested:
                await attempt.abort()
                await asyncio.wait([work], timeout=ABORT_SECONDS)
                await _cut(work)
                raise
            await _cut(work)
            raise ApplicationError("the worker is stopping, or its lease expired") from None

    def _attempt(self, order: AttemptOrder, claim: Claim, hub: HubClient) -> TaskAttempt:
        folder = ensure_dir(self._place.folder / f"{order.id}.{next(self._numbers)}")
        if claim.origin not in self._copies:
            self._copies[claim.origin] = RepositoryCopy(
                self._place.folder, claim.origin, self._place.repository, self._environment
            )
        witness = self._sockets / str(next(self._numbers))
        copy = self._copies[claim.origin]
        return TaskAttempt(claim, hub, folder, witness, copy, self._environment)


async def _cut(work: asyncio.Task[str]) -> None:
    work.cancel()
    with contextlib.suppress(asyncio.CancelledError, ZotError):
        await work


def work(config: TemporalConfig, place: WorkerPlace, environment: Mapping[str, str]) -> None:
    """Run a worker. Raises ConfigError or SwarmError if it cannot start."""
    ensure_dir(place.folder)
    lock = lock_file(place.folder / "lock")
    if lock is None:
        raise ConfigError(f"another worker works in {str(place.folder)!r}: give --folder")
    _clear(place.folder)
    sockets = _socket_folder(place.folder)
    try:
        asyncio.run(_work(config, place, sockets, environment))
    finally:
        shutil.rmtree(sockets, ignore_errors=True)
    os.close(lock)


def _socket_folder(folder: Path) -> Path:
    """Return an empty folder at a stable path, so that a new worker removes old sockets."""
    sockets = folder / "sockets"
    if len(os.fsencode(sockets)) > MAX_SOCKET_PATH - len("/123456789"):
        sockets = short_path("worker", folder, "give a shorter --folder")
    shutil.rmtree(sockets, ignore_errors=True)
    return ensure_dir(sockets)


def _clear(folder: Path) -> None:
    """Remove attempts of a killed worker: they continue elsewhere."""
    for path in folder.iterdir():
        if path.is_dir() and path.suffix != ".git":
            shutil.rmtree(path, ignore_errors=True)


async def _work(
    config: TemporalConfig, place: WorkerPlace, sockets: Path, environment: Mapping[str, str]
) -> None:
    # Failed attempts are retried elsewhere, and we report the errors ourselves.
    logging.getLogger("temporalio").setLevel(logging.ERROR)
    loop = asyncio.get_running_loop()
    # Each agent keeps one thread waiting for commands, and needs others for git and uploads.
    loop.set_default_executor(ThreadPoolExecutor((place.slots + RETRY_SLOTS) * 3 + 8))
    client = await connect(config)
    tasks = TaskWorker(place, sockets, environment)
    stop = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop.set)
    async with (
        _worker(client, config.queue, place.slots, tasks, config),
        _worker(client, config.retry_queue, RETRY_SLOTS, tasks, config),
    ):
        sys.stdout.write(f"{place.slots} slots of {config.queue!r} at {config.address}\n")
        sys.stdout.flush()
        await stop.wait()


def _worker(
    client: Client, queue: str, slots: int, tasks: TaskWorker, config: TemporalConfig
) -> Worker:
    beat = timedelta(seconds=config.lease_seconds / BEATS)
    return Worker(
        client,
        task_queue=queue,
        workflows=[TaskFlow],
        activities=[tasks.run],
        workflow_runner=UnsandboxedWorkflowRunner(),  # the flow is ours, and small
        # Temporal waits ten seconds for a dead worker that has a flow cached; a history of a dozen
        # events is quickly read again.
        max_cached_workflows=0,
        max_concurrent_activities=slots,
        max_heartbeat_throttle_interval=beat,
        default_heartbeat_throttle_interval=beat,
    )
