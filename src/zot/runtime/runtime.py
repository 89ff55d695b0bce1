"""A Runtime is an Agent that can be driven: runs are queued, supervised and aborted here, and
every one of them ends in exactly one Done. Every mode and the SDK stand on this file.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Sequence
from typing import Literal, Protocol

from msgspec import Struct
from msgspec.structs import replace

from zot.bugs import internal_error, report_bug
from zot.cancel import Cancel
from zot.core import events
from zot.core.agent import Agent, Limits, UserInput
from zot.core.compact import Reason
from zot.core.events import Event
from zot.core.image import check_messages
from zot.core.session import Cleared, LevelChange, ModelChange, Replaced, Session
from zot.errors import BusyError, ClosedError, CommandError, ZotError
from zot.extensions.source import Extensions
from zot.provider.types import Image, Level, Message, Model, Provider, Text, Usage
from zot.runtime.run import Run
from zot.tools.registry import SharedSupervisor

MAX_QUEUE = 256
MAX_QUEUE_SIZE = 64 * 1024 * 1024
"""Bytes of text and images that may wait."""


class Models(Protocol):
    """Where a runtime finds models, and clients for them."""

    def find(self, id: str) -> Model:
        """Raises ConfigError when there is no such model."""
        ...

    def all(self) -> Sequence[Model]: ...

    def connect(self, model: Model) -> Provider: ...


class State(Struct, frozen=True):
    provider: str
    model: Model
    cwd: str
    message_count: int
    busy: bool
    queued: int
    usage: Usage
    context_tokens: int
    reasoning: Level
    session_id: str


Listener = Callable[[Event, Run | None], None]


class Runtime:
    """One agent, one session, one run at a time. Safe to call from any thread."""

    def __init__(
        self,
        agent: Agent,
        models: Models,
        *,
        cwd: str,
        supervisor: SharedSupervisor | None = None,
        extensions: Extensions | None = None,
        listeners: Sequence[Listener] = (),
        wait_for_listeners: Callable[[Cancel], None] = lambda cancel: None,
    ) -> None:
        self.agent = agent
        self.models = models
        self.cwd = cwd
        self.supervisor = supervisor or SharedSupervisor()
        """Runs commands, for the bash tool and whoever else needs one; no process before that."""
        self.listeners = list(listeners)
        self.extensions = extensions
        if extensions is not None:
            extensions.bind(agent, self._tell_unasked)
            self.listeners.append(lambda event, run: extensions.listen(event))
        self.wait_for_listeners = wait_for_listeners
        """Called before each event of a run: where a slow client slows the turn down."""
        self.expand: Callable[[str], str] = lambda text: text
        """Makes what the model reads of what a user typed (`/skill:name`); may raise ZotError."""
        self.overfull: Callable[[], bool] = lambda: False
        """Whether the client reads so little that what nobody asked for should be left out."""
        self.steering: deque[UserInput] = deque()
        self.follow_up: deque[UserInput] = deque()
        self.take_all: dict[str, bool] = {"steering": True, "follow_up": True}
        """Whether waiting messages are delivered all at once or one at a time."""
        self._lock = threading.RLock()
        self._tell_lock = threading.RLock()
        self._wake = threading.Condition(self._lock)
        self._runs: deque[Run] = deque()
        self._closed = False
        self._conductor: threading.Thread | None = None

    @property
    def session(self) -> Session:
        return self.agent.session

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
            CommandError: there is nothing to say, or the queue is full.
        """
        if not text.strip() and not images:
            raise CommandError("invalid_params: the prompt is empty: give a message or an image")
        text = self.expand(text)
        user = UserInput(text, tuple(images), extra, tuple(documents))
        size = len(text) + sum(len(image.data) for image in images)
        return self._submit(
            "prompt", lambda run: self._prompt(user, run, limits), tag, accepted, size
        )

    def _prompt(self, user: UserInput, run: Run, limits: Limits | None) -> None:
        if self.extensions is not None:
            self.extensions.prepare(run.cancel)
        self.agent.prompt(user, run, limits)

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
        run.cancel.set()
        if running:  # what waits was meant for the running run, not for one behind it
            self.clear_queue(run)
        return True

    def tags(self) -> list[object]:
        """What the clients call the runs that run or wait, in order."""
        with self._lock:
            return [run.tag for run in self._runs]

    def steer(self, text: str, images: Sequence[Image] = (), *, keep: bool = False) -> bool:
        """Have a message heard after the current tool.

        False when no run would hear it: it was not queued, unless `keep` holds it for the next.
        """
        return self._enqueue(self.steering, text, images, keep)

    def follow(self, text: str, images: Sequence[Image] = (), *, keep: bool = False) -> bool:
        """Have a message heard when the model would stop; otherwise as `steer`."""
        return self._enqueue(self.follow_up, text, images, keep)

    def clear_queue(self, run: Run | None = None) -> tuple[list[str], list[str]]:
        with self._lock:
            dropped = [each.text for each in self.steering], [each.text for each in self.follow_up]
            self.steering.clear()
            self.follow_up.clear()
        if dropped[0] or dropped[1]:
            self._tell_queue(run)
        return dropped

    def take(self, queue: Literal["steering", "follow_up"], run: Run) -> list[UserInput]:
        waiting = self.steering if queue == "steering" else self.follow_up
        taken: list[UserInput] = []
        with self._lock:
            while waiting and (self.take_all[queue] or not taken):
                taken.append(waiting.popleft())
            if queue == "follow_up" and not taken and not self.steering:
                run.listening = False  # from here on it ends; what comes now is not for it
        if taken:
            self._tell_queue(run, taken=True)
        return taken

    # --- state -------------------------------------------------------------------------------

    @property
    def running(self) -> Run | None:
        """The run that is going on."""
        with self._lock:
            return self._runs[0] if self._runs else None

    @property
    def busy(self) -> bool:
        return bool(self._runs)

    def state(self) -> State:
        with self._lock:
            agent = self.agent
            return State(
                provider=agent.model.provider,
                model=agent.model,
                cwd=self.cwd,
                message_count=agent.session.message_count(),
                busy=bool(self._runs),
                queued=max(0, len(self._runs) - 1),
                usage=agent.cumulative,
                context_tokens=agent.context_tokens,
                reasoning=agent.settings.reasoning,
                session_id=agent.session.id,
            )

    def clear(self) -> None:
        """Drop the transcript; what it cost stays counted.

        Raises:
            BusyError: a run is in flight; nothing changes.
        """
        with self._idle("clear"):
            self.session.append(Cleared())
            self.agent.forget()

    def set_messages(self, messages: Sequence[Message]) -> None:
        check_messages(messages)
        with self._idle("set_messages"):
            self.session.append(Replaced(tuple(messages)))
            self.agent.forget()

    def set_model(self, id: str) -> Model:
        """Go on with another model of the same provider.

        Raises:
            BusyError: a run is in flight; nothing changes.
            ConfigError: there is no such model; nothing changes.
        """
        with self._idle("set_model"):
            model = self.models.find(id)
            same = model == self.agent.model
            provider = self.agent.provider if same else self.models.connect(model)
            self.session.append(ModelChange(model.provider, model.id))
            before = self.agent.provider
            self.agent.set_model(provider, model)
            if before is not provider:
                before.close()
            return model

    def set_reasoning(self, level: Level, *, while_busy: bool = False) -> None:
        """Think so much from the next model call on; `while_busy` also in the middle of a run.

        Raises:
            BusyError: a run is in flight; nothing changes.
        """
        if while_busy:
            self._set_reasoning(level)
            return
        with self._idle("set_reasoning"):
            self._set_reasoning(level)

    def _set_reasoning(self, level: Level) -> None:
        self.session.append(LevelChange(level))
        self.agent.settings = replace(self.agent.settings, reasoning=level)

    def use_session(self, session: Session) -> None:
        """Go on with another conversation; the old one is closed, what waited for it is dropped.

        Raises:
            BusyError: a run is in flight; nothing changes.
        """
        with self._idle("switching the session"):
            before, self.agent.session = self.agent.session, session
            before.close()
            self.agent.cumulative = Usage()
            self.agent.resume()
        self.clear_queue()

    # --- end ---------------------------------------------------------------------------------

    def close(self, *, drain: bool = False, timeout: float | None = None) -> bool:
        """Accept nothing more and wait for what was accepted; without `drain` it is aborted.

        True when everything has ended within the time.
        """
        with self._lock:
            self._closed = True
            runs = list(self._runs)
            self._wake.notify_all()
        if not drain:
            for run in runs:
                run.cancel.set()
        conductor = self._conductor
        if conductor is not None:
            conductor.join(timeout)
            return not conductor.is_alive()
        return True

    def release(self) -> None:
        """Let go of connections, files and the command helper; after `close`."""
        if self.extensions is not None:
            self.extensions.close()
        self.supervisor.close()
        self.agent.provider.close()
        self.session.close()

    # --- listeners ---------------------------------------------------------------------------

    def tell(self, event: Event, run: Run | None = None) -> None:
        """Hand an event to every listener, one event at a time. A listener must not block."""
        with self._tell_lock:
            for listener in self.listeners:
                try:
                    listener(event, run)
                except Exception as error:
                    # A listener that fails must not end the run, nor keep others from hearing.
                    report_bug(error)

    def _tell_unasked(self, event: Event) -> None:
        """What an extension has to say. Not at any price: it must not fill the memory while a
        client does not read, nor wait for it, because guards answer over the same channel."""
        if not self.overfull():
            self.tell(event)

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
            waiting = sum(each.size for each in self._runs)
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
        """Take the runs one after the other, and see each of them to its end."""
        while True:
            with self._lock:
                while not self._runs and not self._closed:
                    self._wake.wait()
                if not self._runs:
                    return
                run = self._runs[0]
            run.supervise()
            self._sync(run)
            # In one step, so that no answer says "not busy" before the Done, and none "busy" after
            # it. The order of the locks is that of a listener that asks for the state.
            with self._tell_lock, self._lock:
                self._runs.popleft()
                run.announce_end()
            run.ended.set()

    def _sync(self, run: Run) -> None:
        try:
            self.session.sync()
        except ZotError as error:
            run.fail(error)
        except Exception as error:  # whatever a store does, the run must come to its Done
            run.fail(internal_error(error))

    def _enqueue(
        self, queue: deque[UserInput], text: str, images: Sequence[Image], keep: bool
    ) -> bool:
        if not text.strip() and not images:
            raise CommandError("invalid_params: the message is empty: give a message or an image")
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
            queue.append(UserInput(text, tuple(images)))
        self._tell_queue(run)
        return heard

    def _tell_queue(self, run: Run | None, *, taken: bool = False) -> None:
        steering = tuple(each.text for each in self.steering)
        follow_up = tuple(each.text for each in self.follow_up)
        self.tell(events.QueueUpdate(steering, follow_up, taken), run)

    def _idle(self, what: str) -> _Idle:
        return _Idle(self._lock, self._runs, what)


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
