"""The runs of a runtime: queue, execution and abort. Every run ends with exactly one Done, and all
listeners receive events in the same order.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Literal

from zot.bugs import internal_error, report_bug
from zot.cancel import Cancel
from zot.core import changes, events
from zot.core import image as pictures
from zot.core.agent import Agent, Limits, Progress, UserInput
from zot.core.events import Event
from zot.core.session import Session
from zot.errors import ClosedError, CommandError, SessionError, ZotError
from zot.provider.types import Image, Text, ToolCall
from zot.runtime.change import Change, Idle
from zot.runtime.client import RuntimeClient
from zot.runtime.run import Run, StoredEnd

if TYPE_CHECKING:
    from zot.core.compact import Reason
    from zot.runtime.durable import Durable
    from zot.runtime.journal import DurableKind

MAX_QUEUE = 256
MAX_QUEUE_SIZE = 64 * 1024 * 1024
"""Maximum bytes of text and images in the queue."""

Listener = Callable[[Event, Run | None], None]
Queue = Literal["steering", "follow_up"]


class Runs:
    """A queue of runs, executed one at a time. Safe to call from any thread."""

    def __init__(
        self,
        agent: Agent,
        client: RuntimeClient,
        listeners: Sequence[Listener],
        durable: Durable | None = None,
    ) -> None:
        self.agent = agent
        self.client = client
        self.wait = client.wait
        self.durable = durable
        """Journal that lets runs survive the process; None: they do not."""
        self._tag_of: Callable[[str], object] = lambda text: None
        self.steering: deque[UserInput] = deque()
        self.follow_up: deque[UserInput] = deque()
        self._one_at_a_time: set[Queue] = set()
        self._listeners = (*listeners, client.listen)
        self._lock = threading.RLock()
        self._change = Change(self._lock)
        self._tell_lock = threading.RLock()
        # A lock used as a wake-up signal, faster than a condition: the conductor blocks on it, and
        # it is released only while the conductor sleeps.
        self._doorbell = threading.Lock()
        self._doorbell.acquire()
        self._asleep = False
        self._runs: deque[Run] = deque()
        self._later: list[Callable[[], None]] = []
        self._closed = False
        self._conductor: threading.Thread | None = None
        """Thread that executes the runs; replaced when its work had to be given up."""
        self._watchers: list[threading.Thread] = []
        """Threads that each wait for an aborted run to stop, and may become the conductor."""
        self._over = threading.Event()
        """Set when the runtime is closed and every run has ended."""

    @property
    def session(self) -> Session:
        return self.agent.session

    # --- hooks for the Runtime ---------------------------------------------------------------

    def prepare(self, cancel: Cancel) -> None:
        """Prepare what a run needs. Raises Cancelled, and ZotError: the run cannot start."""

    def expand(self, text: str) -> str:
        """Return the text that the model gets for a slash command; may raise ZotError."""
        return text

    def keep_file(self, path: str, before: bytes | None, after: bytes | None) -> None:
        """Store a file's content before a tool changes it, if the session keeps contents."""
        contents = self.session.contents
        if contents is None:
            return
        try:
            self.session.append(changes.kept_change(contents, path, before, after))
        except SessionError:
            pass  # the tool's result cannot be written either, and that is reported

    # --- runs --------------------------------------------------------------------------------

    def prompt(
        self,
        text: str,
        images: Sequence[Image] = (),
        *,
        tag: object = None,
        limits: Limits | None = None,
        extra: dict[str, object] | None = None,
        documents: Sequence[Text] = (),
        accepted: Callable[[int], None] = lambda ahead: None,
        run_id: str = "",
        call: ToolCall | None = None,
    ) -> Run:
        """Queue a prompt. `accepted` gets the number of runs ahead, before the run's first event.
        `run_id`: id of a durable run (default: generated). `call`: a tool that runs first, as if
        the model had called it.

        Raises:
            CommandError: there is nothing to say, an image no model takes, or the queue is full.
            JournalError: a durable run cannot be noted.
        """
        if not text.strip() and not images:
            raise CommandError("invalid_params: the prompt is empty: give a message or an image")
        if text.startswith("/"):
            text = self.expand(text)
        user = UserInput(text, tuple(images), extra, tuple(documents))
        size = len(text)
        if images:
            pictures.checked_images(images)
            size += sum(len(image.data) for image in images)

        def work(run: Run) -> None:
            self.prepare(run.cancel)
            self.agent.prompt(user, run, limits, call)

        if self.durable is not None:
            if call is not None:
                raise CommandError("a durable run cannot begin with a tool call")
            return self._submit_durable("prompt", user, limits, tag, accepted, size, run_id)
        if run_id:
            raise CommandError("a run can have a name only where it is durable (--durable)")
        return self._submit("prompt", work, tag, accepted, size)

    def repeated(
        self, run_id: str, tag: object, attached: Callable[[int], None]
    ) -> Run | StoredEnd | None:
        """Find a durable run by the id that came with a repeated prompt. Return the run if it is
        running or queued (its events get the new tag; `attached` gets the number of runs ahead),
        its outcome if it has ended, or None if there is no such run.

        Raises:
            CommandError: the runtime is not durable, or the run is held.
        """
        if self.durable is None:
            raise CommandError("a run can have a name only where it is durable (--durable)")
        with self._lock:
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
        with self._lock:
            if not self.durable.start(self.steering, self.follow_up):
                return []
            self._tag_of = tag_of
            return self._take_up()

    @property
    def held(self) -> events.RunHeld | None:
        """The run that was cut off and waits for `resume_run`."""
        return None if self.durable is None else self.durable.held

    def resume_run(self, run_id: str, *, go_on: bool = True) -> list[Run]:
        """Continue a run that is held after a crash, or end it as failed; return the runs
        submitted: this one, and those queued behind it.

        Raises:
            CommandError: no such run is held.
        """
        if self.durable is None:
            raise CommandError(f"no run {run_id!r} is held", code="not_found")
        with self._lock:
            self.durable.release(run_id, go_on=go_on)
            return self._take_up()

    def _take_up(self) -> list[Run]:
        """Submit the open runs, up to a held one."""
        assert self.durable is not None
        runs = [
            self._submit(
                "compact" if row.kind == "compact" else "prompt",
                self._work_durable,
                self._tag_of(row.tag),
                id=row.run,
            )
            for row in self.durable.to_take_up()
        ]
        if self.durable.held is not None:
            self.tell(self.durable.held)
        return runs

    def _submit_durable(
        self,
        kind: DurableKind,
        user: UserInput,
        limits: Limits | None,
        tag: object,
        accepted: Callable[[int], None],
        size: int = 0,
        run_id: str = "",
    ) -> Run:
        """Accept a durable run: the journal records its work."""
        assert self.durable is not None
        durable, id = self.durable, self.durable.checked_id(run_id)
        return self._submit(
            "compact" if kind == "compact" else "prompt",
            self._work_durable,
            tag,
            accepted,
            size,
            id,
            lambda: durable.accept(kind, id, user, limits, tag),
        )

    def reconnect(self) -> bool:
        """Use a new credential; overridden by Runtime."""
        return False

    def _work_durable(self, run: Run) -> None:
        assert self.durable is not None
        self.prepare(run.cancel)
        self.durable.work(run)

    def retry(
        self,
        *,
        tag: object = None,
        limits: Limits | None = None,
        accepted: Callable[[int], None] = lambda ahead: None,
    ) -> Run:
        """Answer the last prompt again after a failure or abort, without repeating it. A partial
        answer is left out of the conversation.

        Raises:
            BusyError: a run is in flight.
            CommandError: the last prompt was answered.
        """
        self.reconnect()
        with self._idle("retry"):
            self._drop_partial()
            if self.durable is not None:
                return self._submit_durable("retry", UserInput(""), limits, tag, accepted)

            def work(run: Run) -> None:
                self.prepare(run.cancel)
                self.agent.go_on(run, Progress(), limits)

            return self._submit("prompt", work, tag, accepted)

    def _drop_partial(self) -> None:
        if not self.session.drop_partial():
            raise CommandError(
                "there is nothing to try again: the last prompt was answered", code="not_found"
            )

    def compact(
        self,
        instructions: str = "",
        *,
        tag: object = None,
        accepted: Callable[[int], None] = lambda ahead: None,
        reason: Reason = "manual",
    ) -> Run:
        def work(run: Run) -> None:
            self.agent.compact(run, instructions, reason)

        if self.durable is not None:
            return self._submit_durable("compact", UserInput(instructions), None, tag, accepted)
        return self._submit("compact", work, tag, accepted)

    def abort(self, tag: object = None) -> bool:
        """Abort the current run, or the one with this tag; False if there is none."""
        with self._lock:
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
            self.clear_queue(run)
        run.cancel.set()
        return True

    def tags(self) -> list[object]:
        """Return the client tags of the current and queued runs, in order."""
        with self._lock:
            return [run.tag for run in self._runs]

    @property
    def running(self) -> Run | None:
        """The current run."""
        with self._lock:
            return self._runs[0] if self._runs else None

    @property
    def busy(self) -> bool:
        return bool(self._runs)

    # --- messages for the current run --------------------------------------------------------

    def steer(self, text: str, images: Sequence[Image] = (), *, keep: bool = False) -> bool:
        """Queue a message for the model, delivered after the current tool.

        Return False if no run accepts messages: then it is not queued, unless `keep` holds it for
        the next run.
        """
        return self._enqueue(self.steering, text, images, keep)

    def follow(self, text: str, images: Sequence[Image] = (), *, keep: bool = False) -> bool:
        """Queue a message for when the model would stop; otherwise as `steer`."""
        return self._enqueue(self.follow_up, text, images, keep)

    def clear_queue(self, run: Run | None = None) -> tuple[list[str], list[str]]:
        """Drop the queued messages; return their texts."""
        with self._lock:
            dropped = [user.text for user in self.steering], [user.text for user in self.follow_up]
            if self.durable is not None:
                self.durable.drop((*self.steering, *self.follow_up))
            self.steering.clear()
            self.follow_up.clear()
        if dropped[0] or dropped[1]:
            self._tell_queue(run)
        return dropped

    def deliver(self, queue: Queue, *, one_at_a_time: bool) -> None:
        """Set how queued messages are delivered to the run: all at once, or one by one."""
        with self._lock:
            (self._one_at_a_time.add if one_at_a_time else self._one_at_a_time.discard)(queue)

    def delivers_one(self, queue: Queue) -> bool:
        return queue in self._one_at_a_time

    def take(self, queue: Queue, run: Run) -> list[UserInput]:
        waiting = self.steering if queue == "steering" else self.follow_up
        taken: list[UserInput] = []
        with self._lock:
            while waiting and not (taken and queue in self._one_at_a_time):
                taken.append(waiting.popleft())
            if queue == "follow_up" and not taken and not self.steering:
                run.listening = False  # the run ends now; later messages are not for it
        if taken:
            self._tell_queue(run, taken=True)
        return taken

    def _enqueue(
        self, queue: deque[UserInput], text: str, images: Sequence[Image], keep: bool
    ) -> bool:
        if not text.strip() and not images:
            raise CommandError("invalid_params: the message is empty: give a message or an image")
        pictures.checked_images(images)
        user = UserInput(self.expand(text), tuple(images))
        with self._lock:
            run = self._runs[0] if self._runs else None
            heard = run is not None and run.listening
            if not heard and not keep:
                return False
            if len(queue) >= MAX_QUEUE:
                raise CommandError(
                    f"queue_full: {len(queue)} messages are waiting; try again later",
                    code="queue_full",
                )
            if self.durable is not None:
                user = self.durable.queue(
                    "steering" if queue is self.steering else "follow_up", user
                )
            queue.append(user)
        self._tell_queue(run)
        return heard

    def _tell_queue(self, run: Run | None, *, taken: bool = False) -> None:
        steering = tuple(user.text for user in self.steering)
        follow_up = tuple(user.text for user in self.follow_up)
        self.tell(events.QueueUpdate(steering, follow_up, taken), run)

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

    def when_idle(self, action: Callable[[], None]) -> None:
        """Run the action now, or after the current prompt. It must not emit events."""
        with self._lock:
            self._change.wait()
            if self._runs and self._runs[0].kind == "prompt":
                self._later.append(action)
            else:
                action()

    def _do_later(self) -> None:
        with self._lock:
            later, self._later = self._later, []
        for action in later:
            try:
                action()
            except ZotError as error:  # no caller is left to raise to: notify the user
                self.tell(events.ExtensionNotify("zot", "error", str(error)))

    def _idle(self, what: str) -> Idle:
        return Idle(self._change, self._runs, what)

    def _check_idle(self, what: str) -> None:
        with self._idle(what):
            pass

    # --- end ---------------------------------------------------------------------------------

    def close(self, *, drain: bool = False, timeout: float | None = None) -> bool:
        """Accept no more runs and wait for the accepted ones, which are aborted unless `drain`. A
        durable run is suspended instead, and continues in the next process.

        Return True when everything ended within the time; False also when the run itself calls
        this.
        """
        with self._lock:
            self._change.wait()
            self._closed = True
            if self._asleep:
                self._ring()
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
        with self._lock:
            runs = list(self._runs)
        for run in runs:
            (run.suspend if run.id else run.cancel.set)()

    # --- inside ------------------------------------------------------------------------------

    def _submit(
        self,
        kind: Literal["prompt", "compact"],
        work: Callable[[Run], None],
        tag: object,
        accepted: Callable[[int], None] = lambda ahead: None,
        size: int = 0,
        id: str = "",
        note: Callable[[], None] | None = None,
    ) -> Run:
        """Queue a run. `note` is called before the run is acknowledged, and may refuse it."""
        run = Run(kind, work, self, tag, id)
        run.size = size
        with self._lock:
            self._change.wait()
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
            if self._asleep:
                self._ring()
        return run

    def _check_room(self, ahead: int, size: int) -> None:
        waiting = sum(queued.size for queued in self._runs)
        if ahead >= MAX_QUEUE or waiting + size > MAX_QUEUE_SIZE:
            raise CommandError(
                f"queue_full: {ahead} prompts are waiting; try again later", code="queue_full"
            )

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

    def _next(self) -> Run | None:
        """Wait for the next run and return it; None after closing."""
        while True:
            with self._lock:
                if self._runs or self._closed:
                    return self._runs[0] if self._runs else None
                self._asleep = True
            self._doorbell.acquire()

    def _ring(self) -> None:
        """Wake the sleeping conductor; the caller holds the lock."""
        self._asleep = False
        self._doorbell.release()

    def _end(self, run: Run) -> None:
        self._sync(run)
        # Atomic, so that no client sees "not busy" before the Done or "busy" after it. The lock
        # order is that of a listener that queries the state.
        with self._tell_lock, self._lock:
            self._runs.popleft()
            if self._later and run.kind == "prompt":
                self._do_later()
            run.announce_end()
        run.ended.set()

    def _sync(self, run: Run) -> None:
        try:
            if self.durable is not None:
                self.durable.ended(run)
            self.agent.session.sync()
        except ZotError as error:
            run.fail(error)
        except Exception as error:  # the run must reach its Done even if the store fails
            run.fail(internal_error(error))
