"""A runtime as seen by a host of extensions: what it asks them, and what they ask of it.

Several runtimes may share a host: an extension's messages and questions go to the one it is working
for at that moment.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable
from itertools import count
from typing import TYPE_CHECKING, Any

from zot.cancel import Cancel
from zot.core.events import Event, ExtensionAsk
from zot.core.source import CANCELLED, PersonAnswer, UnansweredQuestions
from zot.core.tool import ToolContext, ToolOutput
from zot.errors import Cancelled, ZotError
from zot.extensions import proto
from zot.extensions.deliver import content_of
from zot.provider.types import Json, Text
from zot.text import Frozen

if TYPE_CHECKING:
    from zot.extensions.extension import HostedExtension

MAX_BUFFERED = 10_000
"""Maximum number of events kept for a runtime that does not listen yet."""
MAX_PROGRESS = 64 * 1024
"""Maximum number of queued characters of progress; of more, the end is kept."""
MAX_CALLS = 8
"""Maximum number of running calls of zot's tools per extension."""
CALL_SECONDS = 60.0
"""Timeout of a call of zot's tools by an extension."""
MAX_QUESTIONS = 8
"""Maximum number of open questions to the user per extension."""
MAX_ANSWER_SECONDS = 3600.0
METHODS = ("confirm", "select", "input", "editor")

RunTool = Callable[[str, dict[str, Json], ToolContext], ToolOutput | str]
"""Runs one of zot's tools, with all its guards. Raises ToolError."""


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


# --- questions to extensions -----------------------------------------------------------------


class NoAnswer(Frozen):
    """No answer will come."""

    reason: str


class TimedOut(Frozen):
    """The extension runs, but the timeout has passed."""

    reason: str = "it did not answer in time"


Reply = (
    proto.ToolResult
    | proto.ToolProgress
    | proto.CommandResponse
    | proto.EventInterceptResponse
    | NoAnswer
    | TimedOut
)


class Question:
    """A question: one thread waits for it, the extension's reading thread answers it."""

    def __init__(self, id: str, guest: Guest) -> None:
        self.id = id
        self.guest = guest
        """The runtime that asks."""
        self._answers: deque[Reply] = deque()
        self._arrived = threading.Condition()

    def put(self, answer: Reply) -> None:
        """Add an answer; never blocks. Pending progress is merged instead of queued."""
        with self._arrived:
            last = self._answers[-1] if self._answers else None
            if isinstance(answer, proto.ToolProgress) and isinstance(last, proto.ToolProgress):
                self._answers.pop()
                answer = proto.ToolProgress(answer.id, (last.text + answer.text)[-MAX_PROGRESS:])
            self._answers.append(answer)
            self._arrived.notify_all()

    def wait(self, deadline: float | None, cancel: Cancel) -> Reply:
        """Return the next answer; TimedOut when the deadline passed. Raises Cancelled: the turn was
        aborted meanwhile."""
        if not cancel.wait_for(self._arrived, lambda: bool(self._answers), deadline):
            return TimedOut()
        cancel.check()
        with self._arrived:
            return self._answers.popleft()


# --- calls of zot's own tools by extensions --------------------------------------------------


class HostCalls:
    """The running calls, each in its own thread."""

    def __init__(self, run_tool: RunTool | None) -> None:
        self._run_tool = run_tool
        self._lock = threading.Lock()
        self._running: dict[tuple[str, str], Cancel] = {}

    def start(self, caller: HostedExtension, call: proto.CallTool) -> None:
        key = (caller.name, call.id)
        if self._run_tool is None:
            refuse(caller, call, "this host does not run tools for extensions")
            return
        with self._lock:
            busy = sum(name == caller.name for name, _ in self._running)
            accepted = busy < MAX_CALLS and key not in self._running
            cancel = Cancel()
            if accepted:
                self._running[key] = cancel
        if not accepted:
            refuse(caller, call, f"the id is in use, or {MAX_CALLS} calls are running already")
            return
        threading.Thread(
            target=self._run,
            args=(caller, call, cancel, self._run_tool),
            name=f"ext-{caller.name}-call",
            daemon=True,
        ).start()

    def cancel(self, caller: HostedExtension, id: str) -> None:
        with self._lock:
            cancel = self._running.get((caller.name, id))
        if cancel is not None:
            cancel.set()

    def close(self) -> None:
        with self._lock:
            running = list(self._running.values())
        for cancel in running:
            cancel.set()

    def _run(
        self, caller: HostedExtension, call: proto.CallTool, cancel: Cancel, run: RunTool
    ) -> None:
        timer = threading.Timer(CALL_SECONDS, cancel.set)
        timer.start()
        try:
            context = ToolContext(f"{caller.name}/{call.id}", cancel, lambda text: None)
            output = run(call.name, call.args, context)
        except Cancelled:
            output = ToolOutput((Text("the call was cancelled"),), is_error=True)
        except ZotError as error:
            output = ToolOutput((Text(str(error)),), is_error=True)
        except Exception as error:  # around a tool: its failure is the extension's answer
            output = ToolOutput((Text(f"{type(error).__name__}: {error}"),), is_error=True)
        finally:
            timer.cancel()
            with self._lock:
                self._running.pop((caller.name, call.id), None)
        if isinstance(output, str):
            output = ToolOutput((Text(output),))
        content, truncated = content_of(output.content)
        caller.send(proto.HostToolResult(call.id, call.name, content, output.is_error, truncated))


def refuse(caller: HostedExtension, call: proto.CallTool, reason: str) -> None:
    content = (proto.Content("text", text=reason),)
    caller.send(proto.HostToolResult(call.id, call.name, content, is_error=True))


# --- questions of extensions to the user -----------------------------------------------------


class OpenAsk(Frozen):
    """A question of an extension, with the extension's own id for it."""

    asker: HostedExtension
    id: str
    timer: threading.Timer

    def __call__(self, answer: PersonAnswer) -> None:
        self.timer.cancel()
        said = proto.Answer(self.id, answer.value, answer.confirmed, answer.cancelled)
        self.asker.send(said)


class Dialogs(UnansweredQuestions[OpenAsk]):
    """The open questions; those that nobody can answer, or answers in time, are cancelled."""

    def __init__(
        self, emit: Callable[[ExtensionAsk], None], can_answer: Callable[[], bool], before: int = 0
    ) -> None:
        """`can_answer`: whether there is a user who sees questions. `before`: the number of the
        last question so far."""
        super().__init__()
        self._can_answer = can_answer
        self._emit = emit
        self._ids = count(before + 1)

    def ask(self, asker: HostedExtension, ask: proto.Ask) -> None:
        event = self._opened(asker, ask)
        if event is None:
            asker.send(proto.Answer(ask.id, cancelled=True))
        else:
            self._emit(event)

    def _opened(self, asker: HostedExtension, ask: proto.Ask) -> ExtensionAsk | None:
        with self._lock:
            busy = sum(question.asker is asker for question in self._open.values()) >= MAX_QUESTIONS
            if busy or ask.method not in METHODS or not self._can_answer():
                return None
            id = f"ask-{next(self._ids)}"
            seconds = min(max(ask.timeout, 0.001), MAX_ANSWER_SECONDS)
            timer = threading.Timer(seconds, self.answer, (id, CANCELLED))
            timer.name, timer.daemon = f"ext-{asker.name}-ask", True
            self._open[id] = OpenAsk(asker, ask.id, timer)
            timer.start()
        method: Any = ask.method  # one of METHODS, as checked
        asked = ask.texts()
        return ExtensionAsk(id=id, extension=asker.name, method=method, timeout=seconds, **asked)

    def drop(self, asker: HostedExtension | None = None) -> None:
        """Drop the questions of an extension that has ended, or all of them."""
        with self._lock:
            gone = [id for id, open in self._open.items() if asker in (None, open.asker)]
            timers = [self._open.pop(id).timer for id in gone]
        for timer in timers:
            timer.cancel()
