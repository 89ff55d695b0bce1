"""The runs of a runtime: queue, execution and abort. Every run ends with exactly one Done, and all
listeners receive events in the same order.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Literal

from zot.bugs import internal_error, report_bug
from zot.cancel import Cancel
from zot.core import events
from zot.core.agent import Agent, Limits, UserInput
from zot.core.events import Event
from zot.errors import BusyError, ClosedError, CommandError, ZotError
from zot.runtime.client import RuntimeClient
from zot.runtime.run import Run, StoredEnd

if TYPE_CHECKING:
    from zot.runtime.durable import Durable
    from zot.runtime.journal import DurableKind

MAX_QUEUE = 256
MAX_QUEUE_SIZE = 64 * 1024 * 1024
"""Maximum bytes of text and images in the queue."""

Listener = Callable[[Event, Run | None], None]
Accepted = Callable[[int], None]
"""Callback when a run is accepted, before its first event; gets the number of runs ahead of it."""
QueueName = Literal["steering", "follow_up"]


def ignore_position(ahead: int) -> None:
    """Default of Accepted."""


class Runs:
    """A queue of runs, executed one at a time. Safe to call from any thread.

    A change to an idle runtime (`idle`) excludes runs and other changes. It may take long (files,
    processes), so the lock is released meanwhile, and the state can be read.
    """

    def __init__(
        self,
        agent: Agent,
        client: RuntimeClient,
        listeners: Sequence[Listener],
        durable: Durable | None,
        prepare: Callable[[Cancel], None],
    ) -> None:
        """`durable`: lets runs survive the process. `prepare` is called before the work of a run,
        and may raise Cancelled or ZotError."""
        self.agent = agent
        self.client = client
        self.durable = durable
        self.prepare = prepare
        self.lock = threading.RLock()
        """Protects the runs, and the agent's session, model and settings."""
        self.queue = QueuedMessages(self)
        self._changed = threading.Condition(self.lock)
        """Notified when a run was added, a change has ended, or the runtime closes."""
        self._changing = 0
        """Id of the thread that changes the idle runtime; 0: none."""
        self._depth = 0
        """Nested changes of that thread."""
        self._listeners = (*listeners, client.listen)
        self._tell_lock = threading.RLock()
        self._tag_of: Callable[[str], object] = lambda text: None
        self._runs: deque[Run] = deque()
        self._later: list[Callable[[], None]] = []
        self._closed = False
        self._conductor: threading.Thread | None = None
        """Thread that executes the runs; replaced when its work had to be given up."""
        self._watchers: list[threading.Thread] = []
        """Threads that each wait for an aborted run to stop, and may become the conductor."""
        self._over = threading.Event()
        """Set when the runtime is closed and every run has ended."""

    # --- state -------------------------------------------------------------------------------

    @property
    def busy(self) -> bool:
        return bool(self._runs)

    @property
    def waiting(self) -> int:
        """Number of runs behind the current one."""
        return max(0, len(self._runs) - 1)

    @property
    def running(self) -> Run | None:
        """The current run."""
        with self.lock:
            return self._runs[0] if self._runs else None

    def tags(self) -> list[object]:
        """Return the client tags of the current and queued runs, in order."""
        with self.lock:
            return [run.tag for run in self._runs]

    # --- accepting and aborting --------------------------------------------------------------

    def submit(
        self,
        kind: Literal["prompt", "compact"],
        work: Callable[[Run], None],
        tag: object,
        accepted: Accepted = ignore_position,
        size: int = 0,
        id: str = "",
        note: Callable[[], None] | None = None,
    ) -> Run:
        """Queue a run. `note` is called before the run is acknowledged, and may refuse it.

        Raises:
            CommandError: the queue is full, or the runtime closed.
        """
        run = Run(kind, work, self, tag, id, size)
        with self.lock:
            self._wait_for_change()
            if self._closed:
                raise ClosedError("the runtime is closed")
            if ahead := len(self._runs):
                self._check_room(ahead, size)
            if self._conductor is None:
                self._start_conductor()
            if note is not None:
                note()
            accepted(ahead)
            self._runs.append(run)
            self._changed.notify_all()
        return run

    def submit_durable(
        self,
        kind: DurableKind,
        user: UserInput,
        limits: Limits | None,
        tag: object,
        accepted: Accepted,
        size: int = 0,
        run_id: str = "",
    ) -> Run:
        """Queue a durable run: the journal records its work. `run_id`: its id; empty: a new one."""
        assert self.durable is not None
        durable, id = self.durable, self.durable.checked_id(run_id)
        return self.submit(
            "compact" if kind == "compact" else "prompt",
            self._work_durable,
            tag,
            accepted,
            size,
            id,
            lambda: durable.accept(kind, id, user, limits, tag),
        )

    def abort(self, tag: object = None) -> bool:
        """Abort the current run, or the one with this tag; False if there is none."""
        with self.lock:
            run = next((run for run in self._runs if tag is None or run.tag == tag), None)
            if run is None:
                return False
            running = run is self._runs[0]
            run.listening = False
        if self.durable is not None:
            self.durable.aborted(run)
        if running:
            # Queued messages were meant for this run, not the next. Report that before the run can
            # end.
            self.queue.clear(run)
        run.cancel.set()
        return True

    def _check_room(self, ahead: int, size: int) -> None:
        waiting = sum(queued.size for queued in self._runs)
        if ahead >= MAX_QUEUE or waiting + size > MAX_QUEUE_SIZE:
            raise CommandError(
                f"queue_full: {ahead} prompts are waiting; try again later", code="queue_full"
            )

    # --- durable runs ------------------------------------------------------------------------

    @property
    def held(self) -> events.RunHeld | None:
        """The run that was cut off and waits for `resume`."""
        return None if self.durable is None else self.durable.held

    def find(self, run_id: str, tag: object, attached: Accepted) -> Run | StoredEnd | None:
        """Find a durable run by the id that came with a repeated prompt. Return the run if it is
        running or queued (its events get the new tag; `attached` gets the number of runs ahead),
        its outcome if it has ended, or None if there is no such run.

        Raises:
            CommandError: the runtime is not durable, or the run is held.
        """
        if self.durable is None:
            raise CommandError("a run can have a name only where it is durable (--durable)")
        with self.lock:
            for ahead, run in enumerate(self._runs):
                if run.id == run_id:
                    run.tag = tag
                    attached(ahead)
                    return run
            return self.durable.end_of(run_id)

    def recover(self, tag_of: Callable[[str], object] = lambda text: None) -> list[Run]:
        """Continue the runs that another process accepted and did not end; return them. Only the
        first call has an effect. `tag_of` maps the client's stored tag (JSON) to the tag.
        """
        if self.durable is None:
            return []
        with self.lock:
            if not self.durable.start(self.queue.steering, self.queue.follow_up):
                return []
            self._tag_of = tag_of
            return self._take_up(self.durable)

    def resume(self, run_id: str, *, go_on: bool = True) -> list[Run]:
        """Continue a run that is held after a crash, or end it as failed; return the runs
        submitted: this one, and those queued behind it.

        Raises:
            CommandError: no such run is held.
        """
        if self.durable is None:
            raise CommandError(f"no run {run_id!r} is held", code="not_found")
        with self.lock:
            self.durable.release(run_id, go_on=go_on)
            return self._take_up(self.durable)

    def _take_up(self, durable: Durable) -> list[Run]:
        """Submit the open runs, up to a held one."""
        runs = [
            self.submit(
                "compact" if row.kind == "compact" else "prompt",
                self._work_durable,
                self._tag_of(row.tag),
                id=row.run,
            )
            for row in durable.to_take_up()
        ]
        if durable.held is not None:
            self.tell(durable.held)
        return runs

    def _work_durable(self, run: Run) -> None:
        assert self.durable is not None
        self.prepare(run.cancel)
        self.durable.work(run)

    # --- listeners ---------------------------------------------------------------------------

    def add_listener(self, listener: Listener, *, first: bool = False) -> None:
        """Add a listener for future events, before or after the others."""
        before = self._listeners
        self._listeners = (listener, *before) if first else (*before, listener)

    def tell(self, event: Event, run: Run | None = None) -> None:
        """Send an event to every listener, one event at a time."""
        with self._tell_lock:
            for listener in self._listeners:
                try:
                    listener(event, run)
                except Exception as error:
                    # A failing listener must neither end the run nor keep events from the others.
                    report_bug(error)

    # --- between runs ------------------------------------------------------------------------

    @contextmanager
    def idle(self, what: str) -> Iterator[None]:
        """Keep runs and other changes out during a change. Raises BusyError: a run is active."""
        with self.lock:
            self._wait_for_change()
            if self._runs:
                raise BusyError(f"agent is busy: {what} has to wait for done, or abort first")
            self._changing = threading.get_ident()
            self._depth += 1
        try:
            yield
        finally:
            with self.lock:
                self._depth -= 1
                if not self._depth:
                    self._changing = 0
                    self._changed.notify_all()

    def check_idle(self, what: str) -> None:
        """Raise BusyError if a run is active."""
        with self.idle(what):
            pass

    def when_idle(self, action: Callable[[], None]) -> None:
        """Run the action now, or after the current prompt. It must not emit events."""
        with self.lock:
            self._wait_for_change()
            if self._runs and self._runs[0].kind == "prompt":
                self._later.append(action)
            else:
                action()

    def _wait_for_change(self) -> None:
        """Wait until no other thread changes the idle runtime; the caller holds the lock."""
        while self._changing not in (0, threading.get_ident()):
            self._changed.wait()

    def _do_later(self) -> None:
        with self.lock:
            later, self._later = self._later, []
        for action in later:
            try:
                action()
            except ZotError as error:  # no caller is left to raise to: notify the user
                self.tell(events.ExtensionNotify("zot", "error", str(error)))

    # --- end ---------------------------------------------------------------------------------

    def close(self, *, drain: bool = False, timeout: float | None = None) -> bool:
        """Accept no more runs and wait for the accepted ones, which are aborted unless `drain`. A
        durable run is suspended instead, and continues in the next process.

        Return True when everything ended within the time; False also when the run itself calls
        this.
        """
        with self.lock:
            self._wait_for_change()
            self._closed = True
            self._changed.notify_all()
        if not drain:
            self.suspend()
        if self._conductor is None:
            return True
        if self._conductor is threading.current_thread() or not self._over.wait(timeout):
            return False
        for thread in (self._conductor, *self._watchers):
            thread.join(timeout)
        return True

    def suspend(self) -> None:
        """Leave the durable runs to the next process, and abort the others."""
        with self.lock:
            runs = list(self._runs)
        for run in runs:
            (run.suspend if run.id else run.cancel.set)()

    # --- the conductor -----------------------------------------------------------------------

    def _start_conductor(self) -> None:
        conductor = threading.Thread(target=self._conduct, name="zot-conductor", daemon=True)
        try:
            conductor.start()
        except (RuntimeError, MemoryError) as error:
            raise CommandError(f"busy: no thread can be started: {error}", code="busy") from error
        self._conductor = conductor

    def _conduct(self) -> None:
        """Execute the runs one after the other, and end each of them."""
        while (run := self._next()) is not None:
            if not run.work():
                return  # the run was given up, and another thread is the conductor now
            self._end(run)
        self._over.set()

    def _next(self) -> Run | None:
        """Wait for the next run and return it; None after closing."""
        with self.lock:
            while not (self._runs or self._closed):
                self._changed.wait()
            return self._runs[0] if self._runs else None

    def watch(self, run: Run) -> None:
        """Make sure that an aborted run ends, whatever its work does. Called by the aborter."""
        watcher = threading.Thread(target=run.wait_or_give_up, name="zot-abort", daemon=True)
        try:
            watcher.start()
        except (RuntimeError, MemoryError):
            return  # no thread available: the run ends when its work does
        self._watchers = [*(thread for thread in self._watchers if thread.is_alive()), watcher]

    def go_on_without(self, run: Run) -> None:
        """Become the conductor, replacing a thread that is stuck in this run's work."""
        self._conductor = threading.current_thread()
        self._end(run)
        self._conduct()

    def _end(self, run: Run) -> None:
        try:
            if self.durable is not None:
                self.durable.ended(run)
            self.agent.session.sync()
        except ZotError as error:
            run.fail(error)
        except Exception as error:  # the run must reach its Done even if the store fails
            run.fail(internal_error(error))
        # Atomic, so that no client sees "not busy" before the Done or "busy" after it. The lock
        # order is that of a listener that queries the state.
        with self._tell_lock, self.lock:
            self._runs.popleft()
            if self._later and run.kind == "prompt":
                self._do_later()
            run.announce_end()
        run.ended.set()


class QueuedMessages:
    """Messages for the current run: `steering` is delivered after the current tool, `follow_up`
    when the model would stop."""

    def __init__(self, runs: Runs) -> None:
        self._runs = runs
        self.steering: deque[UserInput] = deque()
        self.follow_up: deque[UserInput] = deque()
        self._queues = {"steering": self.steering, "follow_up": self.follow_up}
        self._one_at_a_time: set[QueueName] = set()

    def add(self, name: QueueName, user: UserInput, *, keep: bool = False) -> bool:
        """Queue a message. Return False if no run accepts messages: then it is not queued, unless
        `keep` holds it for the next run.

        Raises:
            CommandError: too many are waiting.
        """
        queue, durable = self._queues[name], self._runs.durable
        with self._runs.lock:
            run = self._runs.running
            accepts = run is not None and run.listening
            if not accepts and not keep:
                return False
            if len(queue) >= MAX_QUEUE:
                raise CommandError(
                    f"queue_full: {len(queue)} messages are waiting; try again later",
                    code="queue_full",
                )
            queue.append(user if durable is None else durable.queue(name, user))
        self._tell(run)
        return accepts

    def take(self, name: QueueName, run: Run) -> list[UserInput]:
        """Take the messages for the run that are due now."""
        waiting = self._queues[name]
        taken: list[UserInput] = []
        with self._runs.lock:
            while waiting and not (taken and name in self._one_at_a_time):
                taken.append(waiting.popleft())
            if name == "follow_up" and not taken and not self.steering:
                run.listening = False  # the run ends now; later messages are not for it
        if taken:
            self._tell(run, taken=True)
        return taken

    def clear(self, run: Run | None = None) -> tuple[list[str], list[str]]:
        """Drop the queued messages; return their texts."""
        with self._runs.lock:
            dropped = [user.text for user in self.steering], [user.text for user in self.follow_up]
            if self._runs.durable is not None:
                self._runs.durable.drop((*self.steering, *self.follow_up))
            self.steering.clear()
            self.follow_up.clear()
        if dropped[0] or dropped[1]:
            self._tell(run)
        return dropped

    def deliver(self, name: QueueName, *, one_at_a_time: bool) -> None:
        """Set how messages are delivered to the run: all at once, or one by one."""
        with self._runs.lock:
            (self._one_at_a_time.add if one_at_a_time else self._one_at_a_time.discard)(name)

    def delivers_one(self, name: QueueName) -> bool:
        return name in self._one_at_a_time

    def _tell(self, run: Run | None, *, taken: bool = False) -> None:
        steering = tuple(user.text for user in self.steering)
        follow_up = tuple(user.text for user in self.follow_up)
        self._runs.tell(events.QueueUpdate(steering, follow_up, taken), run)
