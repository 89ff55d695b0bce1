"""One agent on the zot wire: writes its answers and events as lines. Part of stage one of `zot
rpc`; its commands are stage two (rpc_agent.py)."""

from __future__ import annotations

import gc
import threading
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from msgspec import UNSET, Raw

from zot.errors import NotFoundError, ZotError
from zot.lines import encode_line
from zot.runtime.client import RuntimeClient
from zot.text import encode_json
from zot.wire import zot
from zot.wire.zot import Incoming
from zot.writer import Lane

if TYPE_CHECKING:
    from zot.cancel import Cancel
    from zot.core.events import Event
    from zot.core.source import Question
    from zot.runtime.run import Run
    from zot.runtime.runtime import Runtime
    from zot.serve.rpc import RpcServer
    from zot.serve.rpc_agent import AgentCommands
    from zot.wire.eventlog import EventLog
    from zot.wire.frames import EventFrame


class ServedAgent(RuntimeClient):
    """One agent as the client of the wire sees it: commands, answers and events."""

    def __init__(self, server: RpcServer, signature: bytes = b"") -> None:
        """`signature`: the JSON fields that identify the agent in its frames."""
        self.server = server
        self._signature = signature
        self._writer = server.writer.open_lane() if signature else server.writer
        self.built: Runtime | None = None
        self.durable = False
        """Whether runs that a crash interrupted are continued."""
        self._seq = 0
        self._wire_lock = threading.Lock()
        self._log: EventLog | None = None
        """Event log of a durable session; None: it is not durable."""
        self._recover_lock = threading.Lock()
        self._recovered = False
        self._frame: Callable[..., EventFrame | None] = lambda event, features=(): None
        self._commands: AgentCommands | None = None

    @property
    def runtime(self) -> Runtime:
        assert self.built is not None  # a named agent is built before it is addressed
        return self.built

    @property
    def seq(self) -> int:
        """Number of its last frame."""
        return self._seq if self._log is None else self._log.seq

    def use(self, runtime: Runtime) -> None:
        """Attach the runtime before its first event."""
        self._log, self._frame = self.commands.frames_of(runtime)
        self.durable = self.durable or self._log is not None
        self.built = runtime

    # --- commands ----------------------------------------------------------------------------

    @property
    def commands(self) -> AgentCommands:
        """Commands other than hello and ping. Stage two is loaded here, perhaps by the warm-up."""
        if self._commands is None:
            gc.disable()  # new objects are no garbage, and scanning them takes long
            try:
                from zot.serve.rpc_agent import AgentCommands
            finally:
                gc.freeze()
                gc.enable()
            self._commands = AgentCommands(self)
        return self._commands

    def recover(self) -> None:
        """Continue interrupted runs, once; not before the client has said what it understands."""
        if not self.durable or not self.server.authenticated:
            return
        with self._recover_lock:
            if self._recovered:
                return
            runtime, self._recovered = self.runtime, True
            if (end := self.event_log().missed_end(runtime)) is not None:
                self.listen(end, None)
            runtime.runs.recover(lambda text: Raw(text.encode()) if text else UNSET)

    def event_log(self) -> EventLog:
        _ = self.runtime
        if self._log is None:
            raise NotFoundError("events are kept only with --durable")
        return self._log

    def finish_commands(self) -> None:
        if self._commands is not None:
            self._commands.slow.finish()

    def closing(self) -> None:
        if self._commands is not None:
            self._commands.slow.close()

    def accept(self, incoming: Incoming, run: str, ahead: int) -> None:
        """Answer before the first event of the run can be written."""
        started = zot.Started(True, ahead, run=run)
        self.answer(incoming, started, tag=incoming.id)

    # --- the runtime's client ----------------------------------------------------------------

    def for_agent(self, name: str, parent: str) -> RuntimeClient | None:
        if "agents" not in self.server.features:
            return None
        return ServedAgent(self.server, signature_of(name, parent))

    def agent_opened(self, runtime: Runtime) -> None:
        self.use(runtime)

    def can_answer(self, what: Question) -> bool:
        return ("approvals" if what == "approval" else "dialogs") in self.server.features

    def wait(self, cancel: Cancel) -> None:
        self._writer.wait(cancel)

    def overfull(self) -> bool:
        return self.server.writer.overfull

    def listen(self, event: Event, run: Run | None) -> None:
        frame = self._frame(event, self.server.features)
        tag = UNSET if run is None else run.tag
        if self._log is not None:
            self._record(event, frame, tag)
        elif frame is not None:
            self.put(encode_line(frame), tag, streamed=frame.streamed)

    def _record(self, event: Event, frame: EventFrame | None, tag: Any) -> None:
        assert self._log is not None
        with self._wire_lock:  # logged and written in the same order, logged first
            line = self._log.record(event, frame, self.server.features, tag)
            if line is not None:
                self._write(line)

    # --- frames ------------------------------------------------------------------------------

    def answer(self, incoming: Incoming, data: Any = UNSET, *, tag: Any = UNSET) -> None:
        """Raises CommandError: the answer is too large; nothing was sent."""
        line = zot.encode(zot.success(incoming, data))
        if len(line) > zot.MAX_ANSWER:
            raise zot.too_large(len(line))
        self.put(line, tag)

    def fail(self, incoming: Incoming, error: ZotError) -> None:
        codes = "codes" in self.server.features
        self.put(zot.encode(zot.failure(incoming, error, codes=codes)), UNSET)

    def put(self, line: bytes, tag: Any, *, streamed: bool = False) -> None:
        if "seq" not in self.server.features:
            self._write(line, streamed)
            return
        with self._wire_lock:  # numbered in the order of writing
            self._seq = self._seq + 1 if self._log is None else self._log.number()
            self._write(zot.stamped(line, self._seq, tag), streamed)

    def _write(self, line: bytes, streamed: bool = True) -> None:
        line = zot.signed(line, self._signature) if self._signature else line
        self._writer.put(line, streamed=streamed)

    def agent_closed(self) -> None:
        """Close the event log, and return this lane's share of the output to the others."""
        if self._log is not None:
            self._log.close()
        if isinstance(self._writer, Lane):
            self.server.writer.close_lane(self._writer)


def signature_of(name: str, parent: str | None = None) -> bytes:
    """Return the JSON fields that identify the agent in its frames."""
    signature = b',"agent":' + encode_json(name)
    return signature if parent is None else signature + b',"parent":' + encode_json(parent)
