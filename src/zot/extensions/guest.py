"""One runtime as a host of extensions sees it. Several may share a host: what an extension says or
asks goes to the one for which it works at that moment.
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
        slash commands where the client takes such, `on_tools` hears that a tool was activated,
        `can_answer` says whether somebody is there who sees their questions."""
        self.submit = submit
        self.tools_changed = on_tools
        self.can_answer = can_answer
        self.calls = HostCalls(run_tool)
        self.dialogs = Dialogs(self.emit, can_answer, questions_before)
        self.session_id: str | None = None
        """Its conversation, once one was announced."""
        self.compactions = 0
        self._emit_lock = threading.RLock()
        self._emit: Callable[[Event], None] | None = None
        self._buffered: deque[Event] = deque(maxlen=MAX_BUFFERED)

    def attach(self, emit: Callable[[Event], None]) -> None:
        """From now on events go to `emit`; what was said before comes first."""
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
        """End what extensions do for it, and forget what they asked it: they end as well."""
        self.calls.close()
        self.dialogs.drop()

    def leave(self) -> None:
        """The same where they go on: what they asked it is answered by nobody any more."""
        self.calls.close()
        for id in self.dialogs.open_questions():
            self.dialogs.answer(id, CANCELLED)
