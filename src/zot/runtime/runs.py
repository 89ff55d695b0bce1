"""The runs of a runtime: queued, worked on and aborted here. Every one of them ends in exactly one
Done, and the listeners hear all events in one order.
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
"""Bytes of text and images that may wait."""

Listener = Callable[[Event, Run | None], None]
Queue = Literal["steering", "follow_up"]


class Runs:
    """One run at a time, the others wait. Safe to call from any thread."""

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
        """What makes the runs survive the process; None: they do not."""
        self._tag_of: Callable[[str], object] = lambda text: None
        self.steering: deque[UserInput] = deque()
        self.follow_up: deque[UserInput] = deque()
        self._one_at_a_time: set[Queue] = set()
        self._listeners = (*listeners, client.listen)
        self._lock = threading.RLock()
        self._change = Change(self._lock)
        self._tell_lock = threading.RLock()
        # A lock as a doorbell, quicker than a condition: the conductor sleeps on it, and is rung
        # only when it sleeps.
        self._doorbell = threading.Lock()
        self._doorbell.acquire()
        self._asleep = False
        self._runs: deque[Run] = deque()
        self._later: list[Callable[[], None]] = []
        self._closed = False
        self._conductor: threading.Thread | None = None
        """The thread that works on the runs; another one once its work had to be given up."""
        self._watchers: list[threading.Thread] = []
        """Each waits for an aborted run to stop, and may become the conductor."""
        self._over = threading.Event()
        """It was closed, and every run has ended."""

    @property
    def session(self) -> Session:
        return self.agent.session

    # --- what a run needs, given by the Runtime ----------------------------------------------

    def prepare(self, cancel: Cancel) -> None:
        """Before a run: have ready what it needs. Raises Cancelled, and ZotError: it cannot be."""

    def expand(self, text: str) -> str:
        """What the model reads of what a user typed behind a slash; may raise ZotError."""
        return text

    def keep_file(self, path: str, before: bytes | None, after: bytes | None) -> None:
        """A tool is about to change a file: keep what it was, where the session keeps such."""
        contents = self.session.contents
        if contents is None:
            return
        try:
            self.session.append(changes.kept_change(contents, path, before, after))
        except SessionError:
            pass  # the tool's result cannot be written either, and that will be told

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
        """Queue a prompt. `accepted` hears how many runs are ahead, before any event of it.
        `run_id`: what a durable run is to be called; by default a name is made up. `call`: a tool
        that runs first, as if the model had asked for it.

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
        """A prompt came with the name of a durable run: the run, if it goes on or waits (its
        events belong to the tag from now on; `attached` hears how many are ahead of it), or how it
        ended. None: there was none of this name.

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
        """Go on with the runs that another process accepted and did not end: those runs. Only the
        first call does something; `tag_of` gives the tag for what the client called the run, as
        JSON.
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
        """Let a run go on that is held after a crash, or end it as failed; it, and what waited
        behind it.

        Raises:
            CommandError: no such run is held.
        """
        if self.durable is None:
            raise CommandError(f"no run {run_id!r} is held", code="not_found")
        with self._lock:
            self.durable.release(run_id, go_on=go_on)
            return self._take_up()

    def _take_up(self) -> list[Run]:
        """Submit what was left open, up to a run that is held."""
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
        """Accept a run that survives the process: what is to be done is in the journal."""
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
        """Take up a new credential; given by the Runtime."""
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
        """Answer the last prompt once more, which failed or was aborted: it is not said again. What
        was already answered of it is left out of the conversation.

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
        """Stop the running run, or the one with this tag; False if there is none."""
        with self._lock:
            run = next((run for run in self._runs if tag is None or run.tag == tag), None)
            if run is None:
                return False
            running = run is self._runs[0]
            run.listening = False
        if self.durable is not None:
            self.durable.aborted(run)
        if running:
            # What waits was meant for this run, not for one behind it. Told before the run can end.
            self.clear_queue(run)
        run.cancel.set()
        return True

    def tags(self) -> list[object]:
        """What the clients call the runs that run or wait, in order."""
        with self._lock:
            return [run.tag for run in self._runs]

    @property
    def running(self) -> Run | None:
        """The run that is going on."""
        with self._lock:
            return self._runs[0] if self._runs else None

    @property
    def busy(self) -> bool:
        return bool(self._runs)

    # --- messages for the run that is going on -----------------------------------------------

    def steer(self, text: str, images: Sequence[Image] = (), *, keep: bool = False) -> bool:
        """Have a message heard after the current tool.

        False when no run would hear it: it was not queued, unless `keep` holds it for the next.
        """
        return self._enqueue(self.steering, text, images, keep)

    def follow(self, text: str, images: Sequence[Image] = (), *, keep: bool = False) -> bool:
        """Have a message heard when the model would stop; otherwise as `steer`."""
        return self._enqueue(self.follow_up, text, images, keep)

    def clear_queue(self, run: Run | None = None) -> tuple[list[str], list[str]]:
        """Drop the messages that wait; their texts."""
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
        """How the messages that wait are handed to the run: all at once, or one by one."""
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
                run.listening = False  # from here on it ends; what comes now is not for it
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
        """Have it hear what happens from now on, before or after the others."""
        before = self._listeners
        self._listeners = (listener, *before) if first else (*before, listener)

    def tell(self, event: Event, run: Run | None = None) -> None:
        """Hand an event to every listener, one event at a time."""
        with self._tell_lock:
            for listener in self._listeners:
                try:
                    listener(event, run)
                except Exception as error:
                    # A listener that fails must not end the run, nor keep others from hearing.
                    report_bug(error)

    # --- between runs ------------------------------------------------------------------------

    def when_idle(self, action: Callable[[], None]) -> None:
        """Do it now, or when the prompt that is going on has ended. It must not tell anything."""
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
            except ZotError as error:  # nobody waits for it any more: the person is told
                self.tell(events.ExtensionNotify("zot", "error", str(error)))

    def _idle(self, what: str) -> Idle:
        return Idle(self._change, self._runs, what)

    def _check_idle(self, what: str) -> None:
        with self._idle(what):
            pass

    # --- end ---------------------------------------------------------------------------------

    def close(self, *, drain: bool = False, timeout: float | None = None) -> bool:
        """Accept nothing more and wait for what was accepted; without `drain` it is aborted. A
        durable run is not: it stops, and goes on when the next process starts.

        True when everything has ended within the time; not when it is the run that closes us.
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
        """Leave the durable runs for the next process, and abort the others."""
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
        """`note` is called before anybody hears that it was accepted, and may refuse it."""
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
        """Work on the runs, one after the other, and see each of them to its end."""
        while (run := self._next()) is not None:
            if not run.work():
                return  # it was given up, and another thread has gone on
            self._end(run)
        self._over.set()

    def watch(self, run: Run) -> None:
        """See to it that an aborted run ends, whatever its work does. Called by who aborts."""
        watcher = threading.Thread(target=run.wait_or_give_up, name="zot-abort", daemon=True)
        try:
            watcher.start()
        except (RuntimeError, MemoryError):
            return  # the system has no thread left: the run ends when its work does
        self._watchers = [*(thread for thread in self._watchers if thread.is_alive()), watcher]

    def go_on_without(self, run: Run) -> None:
        """Be the conductor in the place of a thread that is stuck in the work of this run."""
        self._conductor = threading.current_thread()
        self._end(run)
        self._conduct()

    def _next(self) -> Run | None:
        """The run whose turn it is, as soon as there is one; None after the end."""
        while True:
            with self._lock:
                if self._runs or self._closed:
                    return self._runs[0] if self._runs else None
                self._asleep = True
            self._doorbell.acquire()

    def _ring(self) -> None:
        """Wake the conductor, which sleeps; the lock is held."""
        self._asleep = False
        self._doorbell.release()

    def _end(self, run: Run) -> None:
        self._sync(run)
        # In one step, so that no answer says "not busy" before the Done, and none "busy" after
        # it. The order of the locks is that of a listener that asks for the state.
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
        except Exception as error:  # whatever a store does, the run must come to its Done
            run.fail(internal_error(error))
