"""State of one swarm agent, rebuilt from its log: task, tree, process, stage."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from typing import Literal

import msgspec

from zot.ledger import Amount
from zot.observe import Observer
from zot.observe.facts import shared_fields
from zot.observe.status import AgentView
from zot.swarm import rows
from zot.swarm.task import SwarmTask
from zot.swarm.worktrees import DiffSize, Worktree

Stage = Literal["queued", "working", "needs_you", "done", "failed", "cancelled", "lost"]
NEED = ("needs_you", "failed", "lost", "stalled", "working", "queued", "done", "cancelled")
"""Display order."""
CRASHES = 5
"""Consecutive exits before the agent did anything, after which it is lost: another start would not
help. A tool call that kills the process is detected by the durable run, which holds itself."""
KILLS = 50
"""Like CRASHES, for deaths by a signal: their cause is outside, and passes."""


class AgentSummary(AgentView, frozen=True):
    """An agent as lists show it."""

    id: str
    task: str
    stage: Stage
    since: float
    """Start of the stage, in seconds since 1970."""
    directory: str
    doing: str = ""
    """The running tool, what the agent waits for, or why it failed."""
    about: str = ""
    """The tool's command or path, or the open question, in one line."""
    doing_since: float = 0.0
    """Start of `doing`, in seconds since 1970."""
    attempt: int = 0
    worked_seconds: float = 0.0
    """Time at work over all runs, without waiting for a person or a slot."""
    context_window: int = 0
    """Context window of its model, in tokens; 0: unknown."""
    machine: str = ""
    """The host it runs on; empty: this machine."""
    branch: str = ""
    diff: DiffSize = DiffSize()
    merged: bool = False
    created: float = 0.0
    parent: str = ""
    after: tuple[str, ...] = ()
    priority: int = 0
    last_run: str = ""
    """The run that ended last."""
    collected: bool = False
    """The result of `last_run` was passed to the conversation that started the agent."""


class SwarmAgent:
    """An agent's state, folded from the rows of its log in order."""

    def __init__(self, task: SwarmTask, clock: Callable[[], float] = time.time) -> None:
        self.task = task
        self.tree: Worktree | None = None
        self.waiting: dict[str, str] = {}
        """Messages whose run is not over, by run, oldest first."""
        self.runs = 0
        self.attempt = 0
        self.crashes = 0
        self.kills = 0
        self._did_something = False
        self.alive = False
        """Whether its process runs, according to the log; without a supervisor none does."""
        self.is_committed = True
        """The work of its last process is committed and counted."""
        self.cancelled = False
        self.lost = ""
        self.merged = ""
        """The tip that was merged."""
        self.merge_commit = ""
        """The commit of that merge in the checkout."""
        self.size = DiffSize()
        self.claim = rows.Claimed(0, "")
        """The remote worker that has the task."""
        self.last_seq = 0
        """The agent's own number of the last logged frame."""
        self._outcome = ""
        self._error = ""
        self._last_run = ""
        self._collected = ""
        self.runs_on = rows.RunsOn(task.model)
        self._said = ""
        """Error message of its last process."""
        self._changed = task.created
        self._row_at = task.created
        self._worked = 0.0
        """Seconds at work, without waiting for a person or a slot."""
        self._clock = clock
        self._observer = Observer(lambda: self._row_at)
        self.take_message(f"{task.id}-1", task.prompt)

    # --- rows --------------------------------------------------------------------------------

    def take(self, row: rows.LogRow) -> None:
        before = self.stage
        if before == "working":
            self._worked += max(0.0, row.at - self._row_at)
        self._row_at = row.at
        if str(row.frame.get("type", "")).startswith("swarm_"):
            try:
                self._apply(msgspec.convert(row.frame, rows.AnySwarmRow))
            except msgspec.ValidationError:
                pass  # a row kind of a newer zot
        else:
            self._observer.feed(row.frame)
            self._did_something = True
            seq = row.frame.get("seq")
            self.last_seq = seq if isinstance(seq, int) else self.last_seq
        if self.stage != before:
            self._changed = row.at

    def _apply(self, row: rows.AnySwarmRow) -> None:
        match row:
            case rows.Messaged():
                self.take_message(row.run, row.text)
            case rows.TreeMade():
                self.tree = row.tree
            case rows.Claimed():
                self.claim = row
            case rows.AgentStarted():
                self.attempt = row.attempt
                self.alive, self.is_committed = True, False
                self._did_something = False
                self._observer.end("its process was cut off")
            case rows.RunOver():
                self.waiting.pop(row.run, None)
                self._last_run = row.run
                self._outcome, self._error = row.outcome, row.error
                self.crashes = self.kills = 0
            case rows.Exited():
                if self.waiting:
                    self._died(by_signal=row.code < 0)
                    self._said = _complaint(row.said)
                self.alive, self.is_committed = False, True
                self._observer.end(f"exit code {row.code}")
            case rows.AgentCancelled():
                self.cancelled = True
                self._last_run = next(iter(self.waiting), self._last_run)
                self.waiting.clear()
            case rows.Lost():
                self.lost = row.reason
                self._last_run = next(iter(self.waiting), self._last_run)
            case rows.Retried():
                self.lost, self.crashes, self.kills, self.cancelled = "", 0, 0, False
            case rows.Sized():
                self.size = row.size
            case rows.Merged():
                self.merged, self.merge_commit = row.tip, row.commit
            case rows.Collected():
                self._collected = row.run
            case rows.RunsOn():
                self.runs_on = row

    def _died(self, *, by_signal: bool) -> None:
        if self._did_something:
            self.crashes = self.kills = 0
        if by_signal:
            self.kills += 1
        else:
            self.crashes += 1

    @property
    def gives_up(self) -> str:
        """Why the agent is not restarted; empty: it is."""
        if self.crashes < CRASHES and self.kills < KILLS:
            return ""
        times = f"{self.crashes + self.kills} times"
        if self._said:
            return f"{self._said[:500]} (it was started {times})"
        return f"its process died {times} before it did anything"

    @property
    def goes_on(self) -> bool:
        """Whether a message waits and the agent may be started."""
        return bool(self.waiting) and not self.lost

    @property
    def is_unfinished(self) -> bool:
        """Whether the supervisor has work left for it: a message to run, or changes to commit."""
        return self.goes_on or not (self.is_committed or self.lost)

    def take_message(self, run: str, text: str) -> None:
        if run not in self.waiting:
            self.runs += 1
        self.waiting[run] = text
        self.cancelled = False

    # --- state -------------------------------------------------------------------------------

    def outcome(self) -> tuple[Literal["answered", "aborted", "failed", "limit"], str]:
        """Return the outcome of the run that has just ended, and its error."""
        status = self._observer.status()
        return status.outcome or "answered", status.error

    def spent(self) -> Amount:
        status = self._observer.status()
        tokens = status.input_tokens + status.output_tokens + status.cache_read_tokens
        since = self._clock() - self._row_at if self.stage == "working" else 0.0
        return Amount(status.cost_usd, tokens, round(self._worked + max(0.0, since), 3))

    def left(self) -> tuple[dict[str, float | int], str]:
        """Return the limits for the next run, as fields of a prompt, and an error text if one of
        the task's limits is used up."""
        task, spent = self.task, self.spent()
        limits: dict[str, float | int] = {}
        used_up = ""
        for name, most, used, least in (
            ("max_cost", task.max_cost, spent.usd, 1e-9),
            ("max_tokens", task.max_tokens, spent.tokens, 1),
            ("max_seconds", task.max_seconds, spent.seconds, 0.001),
        ):
            if most is not None:
                limits[name] = max(most - used, least)
                if used >= most:
                    used_up = f"its budget is used up: {name} is {most:g}, spent are {used:g}"
        return limits, used_up

    @property
    def stage(self) -> Stage:
        if self.lost:
            return "lost"
        if self.alive:  # includes the time until its work is committed
            return "needs_you" if self._observer.asks else "working"
        if self.cancelled:
            return "cancelled"
        if self.waiting:
            return "queued"
        if self._outcome == "aborted":
            return "cancelled"
        return "done" if self._outcome == "answered" else "failed"

    def summary(self) -> AgentSummary:
        now = self._clock()
        self._row_at, before = now, self._row_at
        status = self._observer.status()
        self._row_at = before
        stage = self.stage
        doing = about = ""
        if stage in ("working", "needs_you"):
            doing = status.tool or status.waiting_for or status.state
            preview = status.questions[0].preview if status.questions else ""
            about = status.tool_about or preview.strip().partition("\n")[0][:200]
        elif stage in ("failed", "lost"):
            doing = self.lost or self._error
        view = shared_fields(status, AgentView) | {
            "outcome": self._outcome,
            "stalled": stage == "working" and status.stalled,
            "questions": status.questions if self.alive else (),
            "model": status.model or self.runs_on.model,
        }
        return AgentSummary(
            **view,
            id=self.task.id,
            task=self.task.prompt,
            stage=stage,
            since=self._changed,
            directory=self.task.directory,
            doing=doing,
            about=about,
            doing_since=round(now - status.seconds, 1) if doing else self._changed,
            attempt=self.attempt,
            worked_seconds=self.spent().seconds,
            context_window=self.runs_on.window_of(status.model),
            machine=self.claim.machine,
            branch=self.tree.branch if self.tree is not None else "",
            diff=self.size,
            merged=bool(self.merged),
            created=self.task.created,
            parent=self.task.parent,
            after=self.task.after,
            priority=self.task.priority,
            last_run=self._last_run,
            collected=self._collected == self._last_run,
        )


def _complaint(stderr: str) -> str:
    """Return zot's last error line without its prefix; for another program, the last line."""
    lines = stderr.strip().splitlines() or [""]
    ours = [line.removeprefix("zot: ") for line in lines if line.startswith("zot: ")]
    return (ours or lines)[-1]


def shown_age(seconds: float) -> str:
    """Format a duration in the largest unit that fits: 8s, 5m, 3h, 2d."""
    for unit, length in (("d", 86400), ("h", 3600), ("m", 60)):
        if seconds >= length:
            return f"{seconds // length:.0f}{unit}"
    return f"{max(0.0, seconds):.0f}s"


def by_need(summaries: Iterable[AgentSummary]) -> list[AgentSummary]:
    """Sort by the attention agents need; within a stage, longest waiting first."""
    return sorted(
        summaries,
        key=lambda s: (NEED.index("stalled" if s.stalled else s.stage), s.since, s.id),
    )
