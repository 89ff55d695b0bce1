"""The workflow of a task: assign it to a worker, and to another when that one is gone. Only ids and
numbers pass through here: no prompt, output or action of an agent gets into a history."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta

from temporalio import workflow
from temporalio.common import Priority, RetryPolicy
from temporalio.exceptions import ActivityError, ApplicationError, is_cancelled_exception

RUN = "zot-run"
LONGEST = timedelta(days=30)
"""Maximum duration of one attempt: an agent may wait long for a person."""
PAUSE_SECONDS = (0.0, 1.0, 2.0, 5.0, 10.0, 30.0)
"""Pause before a retry, by the number of failed attempts."""
SUPERSEDED = "superseded"


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
