"""The two queues between the app and its agent: events that wait to be shown, and messages that
wait to be sent.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING

from zot.runtime.client import RuntimeClient
from zot.tui.editor import Editor

if TYPE_CHECKING:
    from zot.cancel import Cancel
    from zot.core.events import Event, QueueUpdate
    from zot.core.source import Question
    from zot.provider.types import Image
    from zot.runtime.run import Run
    from zot.runtime.runtime import Runtime

MAX_EVENTS = 2_000
"""Events that may wait to be drawn before the turn is slowed down."""


class EventQueue(RuntimeClient):
    """The runtime's client: called by threads of the runtime, emptied by the app's."""

    def __init__(self, wake: Callable[[], None], submit: Callable[[str, bool], None]) -> None:
        """`wake` makes the app look here; `submit` runs a text of an extension, perhaps a slash
        command. Both are callable from any thread."""
        self._wake = wake
        self._submit = submit
        self._events: deque[Event] = deque()
        self._room = threading.Event()
        self._room.set()

    def take(self) -> list[Event]:
        """Return the events that arrived since the last call."""
        taken = []
        while self._events:
            taken.append(self._events.popleft())
        self._room.set()
        return taken

    def listen(self, event: Event, run: Run | None) -> None:
        self._events.append(event)
        if len(self._events) > MAX_EVENTS:
            self._room.clear()
        self._wake()

    def wait(self, cancel: Cancel) -> None:
        while not self._room.is_set() and not cancel.is_set():
            self._room.wait(0.05)
        cancel.check()

    def overfull(self) -> bool:
        return len(self._events) > 4 * MAX_EVENTS

    def can_answer(self, what: Question) -> bool:
        return True

    def submit(self, text: str, slash: bool) -> bool:
        self._submit(text, slash)
        return True

    def close(self) -> None:
        """Let a run that waits for room go on."""
        self._room.set()


class MessageQueue:
    """Messages sent before the agent was loaded, or while it works. They can be taken back into the
    editor; stopping a turn does so too."""

    def __init__(self, editor: Editor, images_of: Callable[[str], list[Image]]) -> None:
        self._editor = editor
        self._images_of = images_of
        self.unsent: list[str] = []
        """Texts sent before there was a runtime."""
        self._queued: tuple[str, ...] = ()

    def update(self, event: QueueUpdate) -> None:
        self._queued = (*event.steering, *event.follow_up)

    @property
    def texts(self) -> tuple[str, ...]:
        return (*self._queued, *self.unsent)

    def take_unsent(self) -> list[str]:
        unsent, self.unsent = self.unsent, []
        return unsent

    def take_back(self, runtime: Runtime | None) -> None:
        """Move the last message back into the editor."""
        if self.unsent:
            self._put_back([self.unsent.pop()])
        elif runtime is not None:
            steering, follow_up = runtime.queue.clear()
            queued = [*((runtime.steer, text) for text in steering)]
            queued += [(runtime.follow, text) for text in follow_up]
            for add, text in queued[:-1]:
                add(text, self._images_of(text), keep=True)
            self._put_back([text for _, text in queued[-1:]])

    def stop(self, runtime: Runtime) -> bool:
        """Abort the turn, if there is one; queued messages return to the editor."""
        if not runtime.runs.busy:
            return False
        steering, follow_up = runtime.queue.clear()
        self._put_back([*steering, *follow_up])
        return runtime.abort()

    def _put_back(self, texts: list[str]) -> None:
        """Insert above the text being written."""
        if texts:
            written = [self._editor.text] if self._editor.text else []
            self._editor.set("\n".join([*texts, *written]))
