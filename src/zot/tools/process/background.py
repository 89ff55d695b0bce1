"""Commands that run while the model does something else (`bash` with `background`).

Each has a thread that waits for it. An abort of the run does not end them; `bash_kill` and the end
of the session do, and the supervisor ensures that none outlives zot.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import TYPE_CHECKING

from zot.cancel import Cancel
from zot.core.shell import BackgroundCommand
from zot.core.tool import ToolOutput
from zot.errors import Cancelled, ToolError, ZotError
from zot.provider.types import Json, Text

if TYPE_CHECKING:
    from zot.tools.process.supervisor import ProcessResult

AT_ONCE = 8
REMEMBERED = 32
KEPT = 50_000
"""Maximum buffered output of a command, in characters; the oldest is dropped."""
FIRST_LOOK = 0.3
"""Seconds to wait after the start: most commands that cannot work have failed by then."""
END_SECONDS = 10.0

Start = Callable[[Callable[[str], None], Cancel], "ProcessResult"]
"""Runs a command to its end; takes a callback for its output and a Cancel that ends it."""


class Running:
    """A command and its output since the last look."""

    def __init__(self, id: str, command: str, start: Start) -> None:
        self.id = id
        self.cancel = Cancel()
        self.ended = threading.Event()
        self._command = command
        self._start = start
        self._began = time.monotonic()
        self._lock = threading.Lock()
        self._new = ""
        self._dropped = 0
        self._result: ProcessResult | None = None
        self._failure = ""
        self._tail = ""
        """End of the output, for a person; looking at it takes nothing from the model."""
        self._ended_at = 0.0
        self.detached = threading.Event()
        """Set when nobody waits for it any more, or it has ended."""
        self.on_end: Callable[[], None] = lambda: None
        threading.Thread(target=self._run, name=f"background-{id}", daemon=True).start()

    def _run(self) -> None:
        try:
            self._result = self._start(self._take, self.cancel)
        except ZotError as error:
            self._failure = str(error)
        except Cancelled:  # before it was started, as while the jail is tried
            self._failure = "stopped before it began"
        finally:
            self._ended_at = time.monotonic()
            self.ended.set()
            self.detached.set()
            self.on_end()

    def _take(self, text: str) -> None:
        with self._lock:
            self._tail = (self._tail + text)[-KEPT:]
            text = self._new + text
            self._new = text[-KEPT:]
            self._dropped += len(text) - len(self._new)

    @property
    def tail(self) -> str:
        with self._lock:
            return self._tail

    def info(self) -> BackgroundCommand:
        over = self.ended.is_set()
        seconds = (self._ended_at if over else time.monotonic()) - self._began
        code = self._result.exit_code if self._result is not None else None
        return BackgroundCommand(self.id, self._command, seconds, not over, code)

    def finished(self) -> ProcessResult:
        """Return how it ended. Raises ToolError: it could not be run."""
        if self._result is None:
            raise ToolError(self._failure)
        return self._result

    def look(self) -> ToolOutput:
        over = self.ended.is_set()  # before taking the output, so that none is lost at the end
        with self._lock:
            new, dropped, self._new, self._dropped = self._new, self._dropped, "", 0
        cut = f"[{dropped} characters before this were dropped]\n" if dropped else ""
        body = f"$ {self._command}\n\n{cut}{new}" + ("" if not new or new[-1] == "\n" else "\n")
        details: dict[str, Json] = {"id": self.id, "running": not over}
        if not over:
            seconds = time.monotonic() - self._began
            return ToolOutput(
                (Text(f"{body}[{self.id} runs since {seconds:.1f} s]"),), details=details
            )
        if self._result is None:
            return ToolOutput((Text(f"{body}[{self._failure}]"),), is_error=True, details=details)
        code = self._result.exit_code
        details["exit_code"] = code
        how = f"exit {code}" if code is not None else self._result.signal or self._result.end
        return ToolOutput(
            (Text(f"{body}[{self.id} has ended: {how}]"),), code != 0, details=details
        )


class Background:
    """The background commands of a session, by their ids."""

    def __init__(self, on_first: Callable[[], None] = lambda: None) -> None:
        """`on_first` is called when the first command has started."""
        self._on_first = on_first
        self._changed: Callable[[], None] = lambda: None
        self._waited: list[Running] = []
        """Commands that a tool waits for."""
        self.watched = False
        """True if a person may move a running command here."""
        self._commands: dict[str, Running] = {}
        self._lock = threading.Lock()
        self._count = 0

    @property
    def used(self) -> bool:
        return bool(self._commands)

    # --- BackgroundCommands ------------------------------------------------------------------

    def all(self) -> list[BackgroundCommand]:
        with self._lock:
            return [running.info() for running in self._commands.values()]

    def text(self, id: str) -> str:
        return self._named(id).tail

    def stop(self, id: str) -> None:
        self.kill(id)

    def watch(self, changed: Callable[[], None]) -> None:
        self.watched, self._changed = True, changed

    def detach(self) -> bool:
        with self._lock:
            waited = self._waited[-1:]
        for running in waited:
            running.detached.set()
        return bool(waited)

    # --- for the tools -----------------------------------------------------------------------

    def wait_for(self, command: str, start: Start, cancel: Cancel) -> Running:
        """Run a command until it has ended or a person moves it to the background: then it is among
        the commands here, with an id."""
        running = Running("", command, start)
        with self._lock:
            self._waited.append(running)
        try:
            with cancel.calling(running.detached.set):
                running.detached.wait()
        finally:
            with self._lock:
                self._waited.remove(running)
        if cancel.is_set():
            running.cancel.set()
            running.ended.wait()
        elif not running.ended.is_set():
            self._keep(running)
        return running

    def _keep(self, running: Running) -> None:
        with self._lock:
            first = not self._commands
            self._count += 1
            running.id = str(self._count)
            self._commands[running.id] = running
        running.on_end = self._changed
        self._changed()
        if first:
            self._on_first()

    def start(self, command: str, start: Start) -> ToolOutput:
        with self._lock:
            still = [other for other in self._commands.values() if not other.ended.is_set()]
            if len(still) >= AT_ONCE:
                raise ToolError(
                    f"{AT_ONCE} commands run in the background already: end one with bash_kill"
                )
            for old in [id for id, past in self._commands.items() if past.ended.is_set()]:
                if len(self._commands) >= REMEMBERED:
                    del self._commands[old]
            first = not self._commands
            self._count += 1
            running = self._commands[str(self._count)] = Running(str(self._count), command, start)
        running.on_end = self._changed
        self._changed()
        if first:
            self._on_first()
        running.ended.wait(FIRST_LOOK)
        return running.look()

    def output(self, id: str) -> ToolOutput:
        return self._named(id).look()

    def kill(self, id: str) -> ToolOutput:
        running = self._named(id)
        running.cancel.set()
        running.ended.wait(END_SECONDS)
        return ToolOutput((Text(f"{running.id} was stopped"),), details={"id": running.id})

    def end_all(self) -> None:
        """End all commands when the session is over."""
        with self._lock:
            commands, self._commands = self._commands, {}
        for running in commands.values():
            running.cancel.set()
        deadline = time.monotonic() + END_SECONDS
        for running in commands.values():
            running.ended.wait(max(0.0, deadline - time.monotonic()))

    def _named(self, id: str) -> Running:
        with self._lock:
            if id in self._commands:
                return self._commands[id]
            known = ", ".join(self._commands) or "none"
        raise ToolError(f"there is no background command {id!r}; there is: {known}")
