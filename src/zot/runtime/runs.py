"""The runs of a runtime: queued, worked on and aborted here. Every one of them ends in exactly one
Done, and the listeners hear all events in one order.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Sequence
from typing import Literal

from zot.bugs import internal_error, report_bug
from zot.cancel import Cancel
from zot.core import events
from zot.core.agent import Agent, Limits, UserInput
from zot.core.compact import Reason
from zot.core.events import Event
from zot.core.image import checked_images
from zot.core.session import Session
from zot.errors import BusyError, ClosedError, CommandError, SessionError, ZotError
from zot.provider.types import Image, Text
from zot.runtime.client import RuntimeClient
from zot.runtime.run import Run

MAX_QUEUE = 256
MAX_QUEUE_SIZE = 64 * 1024 * 1024
"""Bytes of text and images that may wait."""

Listener = Callable[[Event, Run | None], None]
Queue = Literal["steering", "follow_up"]


class Runs:
    """One run at a time, the others wait. Safe to call from any thread."""

    def __init__(self, agent: Agent, client: RuntimeClient, listeners: Sequence[Listener]) -> None:
        self.agent = agent
        self.client = client
        self.steering: deque[UserInput] = deque()
        self.follow_up: deque[UserInput] = deque()
        self._one_at_a_time: set[Queue] = set()
        self._listeners = (*listeners, client.listen)
        self._lock = threading.RLock()
        self._tell_lock = threading.RLock()
        self._wake = threading.Condition(self._lock)
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
        """Before a run: have the tools ready. Raises Cancelled."""

    def expand(self, text: str) -> str:
        """What the model reads of what a user typed; may raise ZotError."""
        return text

    def keep_file(self, path: str, before: bytes | None, after: bytes | None) -> None:
        """A tool is about to change a file: keep what it was, where the session keeps such."""
        contents = self.session.contents
        if contents is None:
            return
        from zot.core.changes import kept_change  # start-up budget: with the first change

        try:
            self.session.append(kept_change(contents, path, before, after))
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
    ) -> Run:
        """Queue a prompt. `accepted` hears how many runs are ahead, before any event of it.

        Raises:
            CommandError: there is nothing to say, an image no model takes, or the queue is full.
        """
        if not text.strip() and not images:
            raise CommandError("invalid_params: the prompt is empty: give a message or an image")
        checked_images(images)
        text = self.expand(text)
        user = UserInput(text, tuple(images), extra, tuple(documents))
        size = len(text) + sum(len(image.data) for image in images)

        def work(run: Run) -> None:
            self.prepare(run.cancel)
            self.agent.prompt(user, run, limits)

        return self._submit("prompt", work, tag, accepted, size)

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

        return self._submit("compact", work, tag, accepted)

    def abort(self, tag: object = None) -> bool:
        """Stop the running run, or the one with this tag; False if there is none."""
        with self._lock:
            run = next((run for run in self._runs if tag is None or run.tag == tag), None)
            if run is None:
                return False
            running = run is self._runs[0]
            run.listening = False
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
        checked_images(images)
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
            queue.append(user)
        self._tell_queue(run)
        return heard

    def _tell_queue(self, run: Run | None, *, taken: bool = False) -> None:
        steering = tuple(user.text for user in self.steering)
        follow_up = tuple(user.text for user in self.follow_up)
        self.tell(events.QueueUpdate(steering, follow_up, taken), run)

    # --- listeners ---------------------------------------------------------------------------

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

    def _idle(self, what: str) -> _Idle:
        return _Idle(self._lock, self._runs, what)

    # --- end ---------------------------------------------------------------------------------

    def close(self, *, drain: bool = False, timeout: float | None = None) -> bool:
        """Accept nothing more and wait for what was accepted; without `drain` it is aborted.

        True when everything has ended within the time; not when it is the run that closes us.
        """
        with self._lock:
            self._closed = True
            runs = list(self._runs)
            self._wake.notify_all()
        if not drain:
            for run in runs:
                run.cancel.set()
        if self._conductor is None:
            return True
        if self._conductor is threading.current_thread() or not self._over.wait(timeout):
            return False
        for thread in (self._conductor, *self._watchers):
            thread.join(timeout)
        return True

    # --- inside ------------------------------------------------------------------------------

    def _submit(
        self,
        kind: Literal["prompt", "compact"],
        work: Callable[[Run], None],
        tag: object,
        accepted: Callable[[int], None],
        size: int = 0,
    ) -> Run:
        run = Run(kind, work, self, tag)
        run.size = size
        with self._lock:
            if self._closed:
                raise ClosedError("the runtime is closed")
            ahead = len(self._runs)
            waiting = sum(queued.size for queued in self._runs)
            if ahead >= MAX_QUEUE or (ahead and waiting + size > MAX_QUEUE_SIZE):
                raise CommandError(
                    f"queue_full: {ahead} prompts are waiting; try again later", code="queue_full"
                )
            self._start_conductor()
            accepted(ahead)
            self._runs.append(run)
            self._wake.notify_all()
        return run

    def _start_conductor(self) -> None:
        if self._conductor is not None:
            return
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
        with self._lock:
            while not self._runs and not self._closed:
                self._wake.wait()
            return self._runs[0] if self._runs else None

    def _end(self, run: Run) -> None:
        self._sync(run)
        # In one step, so that no answer says "not busy" before the Done, and none "busy" after
        # it. The order of the locks is that of a listener that asks for the state.
        with self._tell_lock, self._lock:
            self._runs.popleft()
            if run.kind == "prompt":
                self._do_later()
            run.announce_end()
        run.ended.set()

    def _sync(self, run: Run) -> None:
        try:
            self.session.sync()
        except ZotError as error:
            run.fail(error)
        except Exception as error:  # whatever a store does, the run must come to its Done
            run.fail(internal_error(error))


class _Idle:
    """Holds the runtime still while its state changes."""

    def __init__(self, lock: threading.RLock, runs: deque[Run], what: str) -> None:
        self._lock = lock
        self._runs = runs
        self._what = what

    def __enter__(self) -> None:
        self._lock.acquire()
        if self._runs:
            self._lock.release()
            raise BusyError(f"agent is busy: {self._what} has to wait for done, or abort first")

    def __exit__(self, *_: object) -> None:
        self._lock.release()
