"""The runtime as an embedder holds it: the same runs as `zot rpc`, as iterators of typed events."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from types import TracebackType
from typing import Self, Unpack

from msgspec import Struct

from zot.build import build_runtime
from zot.cancel import Cancel
from zot.core.agent import Limits
from zot.core.events import Event
from zot.core.image import checked_images
from zot.errors import BusyError, ClosedError, CommandError
from zot.provider.types import Image, Level, Message
from zot.runtime import runtime as inner
from zot.runtime.run import Run
from zot.sdk.config import Config, Settings, check_level, hooks_of, own_tools, setup_of
from zot.sdk.messages import full_message
from zot.wire import frames, zot_replies
from zot.wire.frames import EventFrame, MessageShape, ModelShape, State, UsageShape
from zot.wire.zot_events import frame, message_shape, usage_shape

MAX_UNREAD = 10_000
"""Events that may wait to be read before the run is slowed down."""
STOP_SECONDS = 10.0
"""More than a run takes to give up; it ends earlier in all but the worst case."""


class CompactResult(Struct, frozen=True):
    summary: str
    messages: tuple[MessageShape, ...]


class Channel:
    """The events of one run on their way from the run's thread to whoever reads them."""

    def __init__(self, notify: Callable[[], None] | None = None) -> None:
        self._condition = threading.Condition()
        self._waiting: deque[EventFrame] = deque()
        self._notify = notify
        """Called after each event, for a reader that does not block; must not raise."""
        self.ended = False
        """Nobody reads any more, or Done was taken."""

    def put(self, event: EventFrame) -> None:
        with self._condition:
            if self.ended:
                return
            self._waiting.append(event)
            self._condition.notify_all()
        if self._notify is not None:
            self._notify()

    def wait_for_room(self, cancel: Cancel) -> None:
        if len(self._waiting) < MAX_UNREAD:
            return
        with cancel.calling(self._wake), self._condition:
            while len(self._waiting) >= MAX_UNREAD and not self.ended and not cancel.is_set():
                self._condition.wait()

    def take(self, *, wait: bool = True) -> EventFrame | None:
        """The next event. None: there is none yet, or (`ended`) there will be none."""
        with self._condition:
            while wait and not self._waiting and not self.ended:
                self._condition.wait()
            if not self._waiting:
                return None
            event = self._waiting.popleft()
            if isinstance(event, frames.Done):
                self.ended = True
            self._condition.notify_all()
            return event

    def end(self) -> None:
        with self._condition:
            self.ended = True
            self._waiting.clear()
            self._condition.notify_all()

    def _wake(self) -> None:
        with self._condition:
            self._condition.notify_all()


class EventStream(Iterator[EventFrame]):
    """The events of one prompt, up to and including Done. Closing it early aborts the run."""

    def __init__(self, run: Run, channel: Channel) -> None:
        self._run = run
        self._channel = channel

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> EventFrame:
        event = self._channel.take()
        if event is None:
            raise StopIteration
        return event

    def close(self) -> None:
        """Abort what still runs, and wait until it has stopped."""
        self._abort()
        self._run.ended.wait(STOP_SECONDS)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __del__(self) -> None:
        self._abort()  # a `break` out of the loop leaves nobody who could read the rest

    def _abort(self) -> None:
        if not self._channel.ended:
            self._channel.end()
            self._run.cancel.set()


class Runtime:
    """One agent with one transcript. Safe to call from any thread; many live side by side."""

    def __init__(self, config: Config | None = None, **settings: Unpack[Settings]) -> None:
        """Takes a Config, or its fields as keyword arguments.

        Raises:
            ConfigError: something that cannot be used; says what to do.
            AuthError: there is no key for the provider.
        """
        if config is not None and settings:
            raise TypeError("give a Config or keyword arguments, not both")
        config = config or Config(**settings)
        self._features = frozenset(config.features)
        self._inner = build_runtime(
            setup_of(config), own_tools=own_tools(config), own_hooks=hooks_of(config)
        )
        self._inner.listeners.append(self._listen)
        self._inner.wait_for_listeners = self._wait_for_room
        self._lock = threading.Lock()
        self._closed = False
        self._run: Run | None = None
        self._channel: Channel | None = None

    # --- runs --------------------------------------------------------------------------------

    def prompt(
        self, text: str, images: Sequence[Image] = (), *, limits: Limits | None = None
    ) -> EventStream:
        """Start a prompt; the iterator gives its events, last of all Done.

        `limits` take the place of those of the settings.

        Raises:
            BusyError: another prompt or compact runs.
            CommandError: there is nothing to say, or an image that no model takes.
        """
        return EventStream(*self._start(text, images, limits, None))

    def cancel(self) -> bool:
        """Abort what runs; False if nothing does. Its events still end with Done."""
        return self._open().abort()

    def steer(self, text: str, images: Sequence[Image] = ()) -> bool:
        """Have a message heard after the current tool; False: no prompt runs, nothing was done."""
        return self._open().steer(text, self._checked(images))

    def follow_up(self, text: str, images: Sequence[Image] = ()) -> bool:
        """Have a message heard when the model would stop; otherwise as `steer`."""
        return self._open().follow(text, self._checked(images))

    def compact(self, instructions: str | None = None) -> CompactResult:
        """Replace all but the latest of the transcript by a summary that the model writes.

        Raises:
            BusyError: another prompt or compact runs.
            ZotError: there is nothing to compact, the model failed, or it was cancelled.
        """
        channel = Channel()
        with self._lock:
            runtime = self._idle()
            self._channel = channel
            self._run = run = runtime.compact(instructions or "", tag=channel)
        summary = ""
        for event in EventStream(run, channel):
            if isinstance(event, frames.CompactDone):
                summary = event.summary
        if run.error is not None:
            raise run.error
        if run.stop == "aborted":
            raise CommandError("the compact was cancelled", code="aborted")
        return CompactResult(summary, self.messages())

    # --- state -------------------------------------------------------------------------------

    def state(self) -> State:
        return zot_replies.state(self._open().state())

    def messages(self) -> tuple[MessageShape, ...]:
        """The transcript, as `get_messages` of the wire shows it: images as a count of bytes."""
        return tuple(message_shape(message) for message in self.full_messages())

    def full_messages(self) -> tuple[Message, ...]:
        """The transcript with everything in it: images, reasoning, tool details."""
        return self._open().session.messages()

    def set_messages(self, messages: Iterable[Message | MessageShape]) -> None:
        """Go on from another transcript.

        Raises:
            BusyError: a prompt or compact runs; nothing changes.
            CommandError: an image without its data (take `full_messages` for those).
        """
        full = [full_message(message) for message in messages]
        with self._lock:
            self._idle().set_messages(full)

    def clear(self) -> None:
        """Drop the transcript; the cost stays counted. Raises BusyError."""
        with self._lock:
            self._idle().clear()

    def set_model(self, model: str) -> None:
        """Go on with another model of the same provider.

        Raises:
            BusyError: a prompt or compact runs; nothing changes.
            ConfigError: there is no such model; nothing changes.
        """
        with self._lock:
            self._idle().set_model(model)

    def set_reasoning(self, level: Level) -> None:
        """Raises BusyError when a prompt or compact runs, ConfigError for an unknown level."""
        check_level(level)
        with self._lock:
            self._idle().set_reasoning(level)

    def cost(self) -> UsageShape:
        """Tokens and US dollars of everything so far."""
        return usage_shape(self._open().state().usage)

    def list_models(self) -> tuple[ModelShape, ...]:
        """The models of this provider."""
        return zot_replies.models(self._open().models.all()).models

    # --- end ---------------------------------------------------------------------------------

    def close(self) -> None:
        """Abort what runs, and let go of connections, processes and files. May be repeated."""
        with self._lock:
            if self._closed:
                return
            self._closed = True
        self._inner.close(timeout=STOP_SECONDS)
        self._inner.release()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()

    # --- inside ------------------------------------------------------------------------------

    def _start(
        self,
        text: str,
        images: Sequence[Image],
        limits: Limits | None,
        notify: Callable[[], None] | None,
    ) -> tuple[Run, Channel]:
        if not isinstance(text, str):
            raise CommandError(f"invalid_params: the prompt must be a string, not {text!r:.80}")
        checked = self._checked(images)
        channel = Channel(notify)
        with self._lock:
            runtime = self._idle()
            self._channel = channel
            self._run = run = runtime.prompt(text, checked, tag=channel, limits=limits)
        return run, channel

    def _idle(self) -> inner.Runtime:
        """The runtime, when nothing runs. One that was aborted gets its moment to stop."""
        runtime = self._open()
        if runtime.busy and self._run is not None and self._run.cancel.is_set():
            self._run.ended.wait(STOP_SECONDS)
        if runtime.busy:
            raise BusyError("the runtime is busy: a prompt or compact runs; wait or cancel it")
        return runtime

    def _open(self) -> inner.Runtime:
        if self._closed:
            raise ClosedError("the runtime was closed")
        return self._inner

    def _checked(self, images: Sequence[Image]) -> list[Image]:
        for each in images:
            if not isinstance(each, Image):
                raise CommandError(
                    f"invalid_params: an image must be a zot Image, not {each!r:.80}"
                )
        return checked_images(images)

    def _listen(self, event: Event, run: Run | None) -> None:
        # The run's own channel, which it has as its tag: the next run may be waiting already.
        # What belongs to no run (an extension's notice) goes to whoever reads now.
        channel = self._channel if run is None else run.tag
        shown = frame(event, self._features)
        if isinstance(channel, Channel) and shown is not None:
            channel.put(shown)

    def _wait_for_room(self, cancel: Cancel) -> None:
        if self._channel is not None:
            self._channel.wait_for_room(cancel)
