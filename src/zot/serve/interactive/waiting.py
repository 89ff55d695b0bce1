"""Messages queued for the agent: sent before it was loaded, or while it works. They can be taken
back into the editor; stopping a turn does so too."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from zot.tui.editor import Editor

if TYPE_CHECKING:
    from zot.core.events import QueueUpdate
    from zot.provider.types import Image
    from zot.runtime.runtime import Runtime


class MessageQueue:
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
