"""A runtime as seen by a host of extensions.

Several runtimes may share a host: an extension's messages and questions go to the one it is working
for at that moment.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable

from zot.core.events import Event
from zot.core.source import CANCELLED
from zot.extensions.calls import HostCalls, RunTool
from zot.extensions.dialogs import Dialogs

MAX_BUFFERED = 10_000


class Guest:
    def __init__(
        self,
        *,
        run_tool: RunTool | None = None,
        submit: Callable[[str, bool], bool] | None = None,
        on_tools: Callable[[], None] = lambda: None,
        can_answer: Callable[[], bool] = lambda: False,
        questions_before: int = 0,
    ) -> None:
        """`run_tool` lets extensions use zot's tools, `submit` lets them start runs and (True)
        slash commands if the client accepts those, `on_tools` is called when a tool was activated,
        `can_answer` returns whether there is a user who sees questions."""
        self.submit = submit
        self.tools_changed = on_tools
        self.can_answer = can_answer
        self.calls = HostCalls(run_tool)
        self.dialogs = Dialogs(self.emit, can_answer, questions_before)
        self.session_id: str | None = None
        """Id of its session, once it was announced."""
        self.compactions = 0
        self._emit_lock = threading.RLock()
        self._emit: Callable[[Event], None] | None = None
        self._buffered: deque[Event] = deque(maxlen=MAX_BUFFERED)

    def attach(self, emit: Callable[[Event], None]) -> None:
        """Send events to `emit` from now on, buffered ones first."""
        with self._emit_lock:
            self._emit = emit
            while self._buffered:
                emit(self._buffered.popleft())

    def emit(self, event: Event) -> None:
        with self._emit_lock:
            if self._emit is None:
                self._buffered.append(event)
            else:
                self._emit(event)

    def close(self) -> None:
        """Stop the extensions' calls and drop their questions: the extensions end as well."""
        self.calls.close()
        self.dialogs.drop()

    def leave(self) -> None:
        """Stop the extensions' calls and cancel their questions: the extensions keep running."""
        self.calls.close()
        for id in self.dialogs.open_questions():
            self.dialogs.answer(id, CANCELLED)
