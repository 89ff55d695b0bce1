"""Temporal as the supervisor uses it: starts one workflow per task, checks on silent ones, and
cancels. Workers send their data to the hub."""

from __future__ import annotations

import asyncio
import re
import time
from collections.abc import Coroutine
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

from temporalio import workflow
from temporalio.client import Client, WorkflowExecutionStatus
from temporalio.common import Priority, RetryPolicy, WorkflowIDReusePolicy
from temporalio.envconfig import ClientConfig
from temporalio.exceptions import (
    ActivityError,
    ApplicationError,
    WorkflowAlreadyStartedError,
    is_cancelled_exception,
)
from temporalio.service import RPCError, RPCStatusCode

from zot.bugs import complain
from zot.errors import ZotError
from zot.git import top_level
from zot.swarm import rows
from zot.swarm.runner import AgentRunner, Supervised
from zot.swarm.task import NoSuchAgent, SwarmError, SwarmTask
from zot.swarm.temporal.config import TemporalConfig, hub_token
from zot.swarm.temporal.hub import Hub
from zot.swarm.temporal.remote import POLL_SECONDS, RemoteAgent

RUN = "zot-run"
LONGEST = timedelta(days=30)
"""Maximum duration of one attempt: an agent may wait long for a person."""
PAUSE_SECONDS = (0.0, 1.0, 2.0, 5.0, 10.0, 30.0)
"""Pause before a retry, by the number of failed attempts."""
SUPERSEDED = "superseded"
STARTERS = 16
"""Maximum concurrent workflow starts; with many more, the server answers too late."""
LOOK_SECONDS = 2.0
AGAIN_SECONDS = 15.0
"""Seconds between two checks of a workflow whose agent is silent."""
CONNECT_SECONDS = 10.0
ENDED_BY_HAND = {
    WorkflowExecutionStatus.TERMINATED: "its workflow was terminated in Temporal",
    WorkflowExecutionStatus.TIMED_OUT: "its workflow timed out in Temporal",
}


# --- the workflow: its history holds no prompt, output or action of an agent ----------------------


@dataclass(frozen=True)
class TaskOrder:
    id: str
    attempt: int
    """Number of the first attempt."""
    queue: str
    retry_queue: str
    lease_seconds: float
    priority: int = 3
    """1 (first) to 5 (last)."""


@dataclass(frozen=True)
class AttemptOrder:
    id: str
    attempt: int
    lease_seconds: float


@workflow.defn(name="zot-task")
class TaskFlow:
    """Assign a task to a worker, and to another when that one is gone."""

    @workflow.run
    async def run(self, order: TaskOrder) -> str:
        failed = 0
        while True:
            queue = order.retry_queue if failed else order.queue
            attempt = AttemptOrder(order.id, order.attempt + failed, order.lease_seconds)
            try:
                outcome: str = await workflow.execute_activity(
                    RUN,
                    attempt,
                    result_type=str,
                    task_queue=queue,
                    start_to_close_timeout=LONGEST,
                    heartbeat_timeout=timedelta(seconds=order.lease_seconds),
                    retry_policy=RetryPolicy(maximum_attempts=1),
                    cancellation_type=workflow.ActivityCancellationType.WAIT_CANCELLATION_COMPLETED,
                    priority=Priority(priority_key=order.priority),
                )
                return outcome
            except ActivityError as error:
                if is_cancelled_exception(error):
                    raise
                cause = error.cause
                if isinstance(cause, ApplicationError) and cause.type == SUPERSEDED:
                    return SUPERSEDED
                failed += 1
            await workflow.sleep(PAUSE_SECONDS[min(failed, len(PAUSE_SECONDS)) - 1])


# --- the engine ----------------------------------------------------------------------------------


async def connect(config: TemporalConfig) -> Client:
    """Connect a client. TLS and keys come from Temporal's own variables and file (TEMPORAL_API_KEY,
    ...).

    Raises:
        SwarmError: no server answers at the address, or it refuses the client.
    """
    words = ClientConfig.load_client_connect_config()
    words["target_host"] = config.address
    words["namespace"] = config.namespace
    try:
        return await asyncio.wait_for(Client.connect(**words), CONNECT_SECONDS)
    except (RuntimeError, RPCError, TimeoutError) as error:
        said = str(error).partition("\n")[0]
        # Extract the cause from a long Rust error message.
        inner = re.search(r'message: "([^"]+)"|error: (\w+\(\w+\))', said)
        reason = (inner[1] or inner[2] if inner else said[:300]) or "no answer"
        todo = "for trying it: zot swarm temporal dev"
        if "Certificate" in reason:
            todo = "TEMPORAL_TLS_SERVER_CA_CERT_PATH names the file with its authority"
        raise SwarmError(f"cannot reach Temporal at {config.address} ({reason}); {todo}") from error


class TemporalEngine:
    """Runs a supervisor's tasks on remote workers."""

    def __init__(self, runner: AgentRunner, config: TemporalConfig) -> None:
        self._runner = runner
        self._config = config
        self._agents: dict[str, RemoteAgent] = {}
        self._looked: dict[str, float] = {}
        """Time of the last start or check of its workflow, by agent."""
        self._begun: dict[str, tuple[int, int]] = {}
        """Attempt and number of messages that its workflow was last started for, by agent."""
        self._tasks: set[asyncio.Task[None]] = set()
        self._starters = asyncio.Semaphore(STARTERS)
        self._hub = Hub(config, hub_token(runner.folder), self.remote)

    async def start(self) -> None:
        self._client = await connect(self._config)
        await self._hub.start()
        self._do(self._look_after())

    async def stop(self) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await self._hub.stop()

    def remote(self, id: str) -> RemoteAgent:
        """Return the remote agent with this id. Raises NoSuchAgent."""
        supervised = self._runner.agents.get(id)
        if supervised is None or not supervised.agent.task.engine:
            raise NoSuchAgent(f"no agent {id!r}")
        if id not in self._agents:
            self._agents[id] = RemoteAgent(self._runner, supervised)
        return self._agents[id]

    # --- requests of the supervisor ----------------------------------------------------------

    def check(self, task: SwarmTask) -> None:
        """Raise SwarmError for a task that cannot run on a worker."""
        if task.here:
            raise SwarmError("an agent elsewhere cannot work in the directory itself: no --here")
        origin = top_level(task.directory, self._runner.environment)
        if not origin or not self._runner.trees.at(origin).succeeds("rev-parse", "--verify", "@"):
            raise SwarmError(
                f"{task.directory!r} is not in a git repository with a commit, and only those "
                "travel to workers: make one, or use the local engine"
            )

    def begin(self, supervised: Supervised) -> None:
        """Start its workflow, unless one was started for this attempt and message."""
        id, agent = supervised.folder.id, supervised.agent
        which = (agent.claim.attempt, agent.runs)
        if self._begun.get(id) != which:
            self._begun[id] = which
            self._looked[id] = time.monotonic()
            self._do(self._begin(supervised))

    async def cancel(self, supervised: Supervised) -> None:
        """Store the work delivered so far, log the cancel, and notify its worker."""
        if not supervised.agent.alive:
            await self.remote(supervised.folder.id).settle()
        supervised.note(rows.AgentCancelled(), sync=True)
        self._do(self._cancel(supervised))

    async def diff(self, supervised: Supervised) -> str | None:
        """Return its changes so far; None: use its local tree."""
        return await self.remote(supervised.folder.id).diff()

    # --- workflows ---------------------------------------------------------------------------

    async def _begin(self, supervised: Supervised) -> None:
        agent = supervised.agent
        task = agent.task
        order = TaskOrder(
            id=task.id,
            attempt=agent.claim.attempt + 1,
            queue=self._config.queue,
            retry_queue=self._config.retry_queue,
            lease_seconds=self._config.lease_seconds,
            priority=min(5, max(1, 3 - task.priority)),
        )
        async with self._starters:
            try:
                await self._client.start_workflow(
                    TaskFlow.run,
                    order,
                    id=self._flow_id(task.id),
                    task_queue=self._config.queue,
                    # A frozen (not dead) worker may still be assigned steps of the flow.
                    task_timeout=timedelta(seconds=min(10.0, self._config.lease_seconds)),
                    id_reuse_policy=WorkflowIDReusePolicy.ALLOW_DUPLICATE,
                )
            except WorkflowAlreadyStartedError:
                # The workflow runs, or is just ending: check again soon.
                self._looked[task.id] = time.monotonic() - AGAIN_SECONDS + LOOK_SECONDS
            except RPCError as error:
                complain(f"cannot start the workflow of {task.id}: {error.message}")

    async def _cancel(self, supervised: Supervised) -> None:
        """Abort the agent now, and keep Temporal from assigning it again."""
        self._do(self.remote(supervised.folder.id).abort())
        try:
            await self._client.get_workflow_handle(self._flow_id(supervised.folder.id)).cancel()
        except RPCError as error:
            if error.status != RPCStatusCode.NOT_FOUND:
                complain(f"cannot cancel {supervised.folder.id} in Temporal: {error.message}")

    async def _look_after(self) -> None:
        """Restart tasks whose workflow ended without reporting the end."""
        while True:
            await asyncio.sleep(LOOK_SECONDS)
            for id, supervised in list(self._runner.agents.items()):
                agent = supervised.agent
                if agent.task.engine and agent.alive and self._is_silent(id):
                    await self._give_up(id)
                if not agent.task.engine or not agent.waiting or agent.lost or not self._is_due(id):
                    continue
                self._looked[id] = time.monotonic()
                self._do(self._look_at(supervised))

    async def _give_up(self, id: str) -> None:
        try:
            await self.remote(id).give_up()
        except (
            ZotError
        ) as error:  # broken repository: the agent has not ended until its work is stored
            complain(f"cannot keep the work of {id}: {error}")

    def _is_due(self, id: str) -> bool:
        if id not in self._looked:
            return False  # waits for another agent, or was not started
        if self._runner.agents[id].agent.alive:
            return False  # its worker is connected
        return time.monotonic() - self._looked[id] >= AGAIN_SECONDS

    def _is_silent(self, id: str) -> bool:
        return self.remote(id).silent_seconds() > max(self._config.lease_seconds, POLL_SECONDS) + 5

    async def _look_at(self, supervised: Supervised) -> None:
        id = supervised.folder.id
        async with self._starters:
            try:
                seen = await self._client.get_workflow_handle(self._flow_id(id)).describe()
                status = seen.status
            except RPCError as error:
                if error.status != RPCStatusCode.NOT_FOUND:
                    complain(f"cannot look at the workflow of {id}: {error.message}")
                    return
                status = None
        if status == WorkflowExecutionStatus.RUNNING:
            return
        if status in ENDED_BY_HAND or status == WorkflowExecutionStatus.CANCELED:
            await self.remote(id).settle()
        if status in ENDED_BY_HAND:
            supervised.note(rows.Lost(ENDED_BY_HAND[status]), sync=True)
        elif status == WorkflowExecutionStatus.CANCELED:
            supervised.note(rows.AgentCancelled(), sync=True)
        else:
            await self._begin(supervised)

    def _flow_id(self, id: str) -> str:
        return f"{self._config.queue}-{id}"

    def _do(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
