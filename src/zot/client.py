"""A typed client for `zot rpc`, or for any command with the same protocol. Independent of the agent
code: handles only frames, ids and a child process.

    with Client(["zot", "rpc", "--provider", "anthropic"]) as client:
        for event in client.prompt("what does this project do?"):
            ...
"""

from __future__ import annotations

import os
import signal
import threading
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future
from queue import SimpleQueue
from typing import TYPE_CHECKING, Any, Self, TypedDict, Unpack

import msgspec
from msgspec import UNSET

from zot.bugs import report_bug
from zot.client_commands import AnyLimits, ClientCommands, changed_fields, word
from zot.client_commands import Decision as Decision
from zot.errors import BusyError as BusyError
from zot.errors import ClosedError as ClosedError
from zot.errors import CommandError as CommandError
from zot.errors import ZotError as ZotError
from zot.home import RPC_TOKEN
from zot.lines import LineSplitter, LineTooLong
from zot.provider.types import Image as Image
from zot.provider.types import Level as Level
from zot.rpc_process import ClientTimeoutError as ClientTimeoutError
from zot.rpc_process import RpcProcess
from zot.rpc_process import ServerGoneError as ServerGoneError
from zot.text import Frozen
from zot.wire import frames, shapes
from zot.wire.commands import AddedMessage, RunCommand
from zot.wire.eventlog import KeptEvent as KeptEvent
from zot.wire.eventlog import follow as follow
from zot.wire.frames import EventFrame, FrameError, Response, Unknown, parse_frame
from zot.wire.shapes import AgentShape
from zot.wire.zot import Command, Hello, HelloData, RunEnd, Started

if TYPE_CHECKING:
    from zot.client_aio import AsyncClient, AsyncClientAgent, AsyncEventIterator

__all__ = [
    "AgentFields",
    "AsyncClient",
    "AsyncClientAgent",
    "AsyncEventIterator",
    "BusyError",
    "Client",
    "ClientAgent",
    "ClientTimeout",
    "ClientTimeoutError",
    "ClosedError",
    "CommandError",
    "Decision",
    "Event",
    "EventIterator",
    "Image",
    "KeptEvent",
    "Level",
    "ServerGone",
    "ServerGoneError",
    "ZotError",
    "follow",
    "parse_frame",
]
MAX_FRAME = 256 * 1024 * 1024
"""Maximum length of a frame, in bytes."""
STOP_SECONDS = 5.0
"""Time for the child to end by itself, and again after SIGTERM."""

Event = EventFrame | Unknown
Listener = Callable[[Event], None]

ServerGone = ServerGoneError
ClientTimeout = ClientTimeoutError
"""Names of these errors in earlier versions."""


class AgentFields(TypedDict, total=False):
    """Fields of `Client.open_agent`; the rest is as the child was started."""

    cwd: str
    provider: str
    model: str
    session: str
    tools: Sequence[str]
    limits: AnyLimits
    approve: Sequence[str]
    jail: bool
    durable: bool


class EventIterator(Iterator[Event]):
    """The events of one prompt or compact, up to and including Done. Closing it early aborts."""

    def __init__(self, client: Client, id: str, timeout: float | None, agent: str = "") -> None:
        self.id = id
        self.agent = agent
        """Name of the agent that runs; empty for the process's own agent."""
        self.queued = 0
        """Number of runs that were ahead of this one."""
        self.resumed = False
        """Whether the server knew a durable run of this name and continues it."""
        self.end: RunEnd | None = None
        """End of a durable run that had already ended; then no event comes."""
        self.ran: shapes.CommandRan | None = None
        """Result of a submitted command; if it made no prompt, no event comes."""
        self.timeout = timeout
        """Limit of the silence between two events, in seconds."""
        self.on_change: Callable[[], None] = lambda: None
        """Callback for a reader that does not block: after each event, and at the child's end. It
        must neither wait nor raise."""
        self._client = client
        self._condition = client._condition
        self._waiting: deque[Event] = deque()
        self._last_taken = False
        self.ended = False
        """Whether the last event was received, though perhaps not read yet."""

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> Event:
        """Return the next event. Raises ServerGoneError when the child dies, ClientTimeoutError
        when it is silent for too long."""
        with self._condition:
            self._wait()
            if not self._waiting:
                raise StopIteration
            return self._waiting.popleft()

    def take(self) -> Event | None:
        """Return an event without waiting; None: there is none now. Raises ServerGoneError."""
        with self._condition:
            if self._waiting:
                return self._waiting.popleft()
            if not self.ended and self._client._server.gone:
                raise self._client._server.gone
            return None

    def close(self) -> None:
        """Abort the run if it has not ended, and wait until it has stopped."""
        if not (self.ended or self._client._server.gone):
            self._client.request("abort", target=self.id, **for_agent(self.agent))
            for _ in self:
                pass

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _put(self, event: Event) -> None:
        self._waiting.append(event)
        self.on_change()
        self.ended = isinstance(event, frames.Done | frames.RunSuspended)

    def _wait(self) -> None:
        server = self._client._server

        def can_go_on() -> bool:
            return bool(self._waiting or self.ended or server.gone)

        if not self._condition.wait_for(can_go_on, self.timeout):
            raise ClientTimeoutError(
                f"no event for {self.timeout:g} s; the run goes on: abort it, or read on"
            )
        if server.gone and not self._waiting and not self.ended:
            raise server.gone


class Client(ClientCommands):
    """A child process and its agents. Safe to use from any thread."""

    def __init__(
        self,
        command: Sequence[str] = ("zot", "rpc"),
        *,
        cwd: str | os.PathLike[str] | None = None,
        env: Mapping[str, str] | None = None,
        token: str = "",
        features: Sequence[str] = (),
        timeout: float = 60.0,
        on_event: Listener = lambda event: None,
    ) -> None:
        """Start the command. A token or features are sent in a `hello` and must be accepted.

        `env` replaces the environment; `timeout` is the limit for each response, in seconds;
        `on_event` is called, in its own thread, with events that belong to no run, and may send
        requests.

        Raises:
            ServerGoneError: the command cannot be started, or ended at once.
            CommandError: the token was refused.
        """
        if isinstance(command, str):
            raise TypeError(f"command must be a list of words, not {command!r}")
        self.timeout = timeout
        self._condition = threading.Condition()
        """Guards the runs and listeners; notified of each event and of the end."""
        self._runs: dict[str, deque[EventIterator]] = {"": deque()}
        """Runs of each agent, in the order of their events; the process's own agent is ""."""
        self._listeners: dict[str, Listener] = {"": on_event}
        self._unclaimed: SimpleQueue[tuple[Listener, Event] | None] = SimpleQueue()
        """Events for the listeners; None marks the end."""
        self._closed = False
        self._has_agents = False
        """Whether frames may name their agent."""
        environment = dict(os.environ if env is None else env)
        if token:
            environment[RPC_TOKEN] = token
        self._server: RpcProcess[Response] = RpcProcess(
            command,
            cwd=cwd,
            env=environment,
            lines=LineSplitter(MAX_FRAME),
            on_line=self._take,
            on_end=self._end,
        )
        self._listening = threading.Thread(
            target=self._call_listeners, name="client-events", daemon=True
        )
        self._listening.start()
        if token or features:
            try:
                self.hello(token, features)
            except BaseException:
                self.close()
                raise

    # --- the process ------------------------------------------------------------------------

    def hello(self, token: str = "", features: Sequence[str] = ()) -> HelloData:
        """Send the token and choose features; return version, provider, model and features."""
        self._has_agents = self._has_agents or "agents" in features
        return self._tell(Hello(token, tuple(features) or None)).data_as(HelloData)

    def ping(self) -> None:
        """Check that the server answers."""
        self.request("ping")

    # --- agents ------------------------------------------------------------------------------

    def open_agent(
        self,
        agent: str = "",
        *,
        on_event: Listener = lambda event: None,
        **fields: Unpack[AgentFields],
    ) -> ClientAgent:
        """Open another agent in the child (feature `agents`). `on_event` gets its events that
        belong to no run of this client.

        Raises:
            CommandError: the name is taken, there are too many agents, or a field is invalid.
        """
        with self._condition:
            listener = self._listeners.setdefault(agent, on_event)  # before its first frame
        try:
            answer = self.request("open_agent", agent=agent, **fields)
        except BaseException:
            with self._condition:
                if agent and listener is on_event:
                    del self._listeners[agent]
            raise
        name = answer.data_as(shapes.AgentOpened).agent
        with self._condition:
            self._listeners[name] = on_event
        return ClientAgent(self, name)

    def list_agents(self) -> tuple[AgentShape, ...]:
        """Return the agents that were opened."""
        return self.request("list_agents").data_as(shapes.AgentList).agents

    def close_agent(self, agent: str) -> None:
        """Abort an agent's runs, and wait until it is closed."""
        self.request("close_agent", agent=agent)
        with self._condition:
            self._listeners.pop(agent, None)

    def request(self, type: str, **fields: Any) -> Response:
        id, answer = self._expect()
        return self._response(id, answer, type, fields)

    # --- the child ---------------------------------------------------------------------------

    @property
    def pid(self) -> int:
        """Process id of the child."""
        return self._server.pid

    @property
    def stderr(self) -> str:
        """The last bytes that the child wrote to stderr, as text."""
        return self._server.stderr

    def close(self) -> int:
        """End the child by closing its input, or by signals; return its exit code. May be called
        again."""
        with self._condition:
            self._closed = True
            is_running = any(self._runs.values())
        if is_running:
            self._server.signal(signal.SIGTERM)  # the end of input alone would let it finish
        code = self._server.end(STOP_SECONDS)
        if self._listening is not threading.current_thread():  # a listener may close the client
            self._listening.join(STOP_SECONDS)
        return code

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    # --- inside: sending ---------------------------------------------------------------------

    def _run(self, command: Command, timeout: float | None, agent: str = "") -> EventIterator:
        id, answer = self._expect()
        run = EventIterator(self, id, timeout, agent)
        # The reading thread queues the run with its response, before the events that follow; also
        # when nobody waits for the response any more, or its events would go to another run.
        answer.add_done_callback(lambda answer: self._queue_run(run, answer))
        fields = changed_fields(command) | for_agent(agent)
        response = self._response(id, answer, word(command), fields)
        if isinstance(command, RunCommand):
            run.ran = response.data_as(shapes.CommandRan)
            run.queued = run.ran.queued
        else:
            started = response.data_as(Started)
            run.queued, run.resumed, run.end = started.queued, started.resumed, started.end
        return run

    def _add(self, command: AddedMessage, agent: str = "") -> None:
        type = word(command)
        with self._condition:
            if not self._runs.get(agent):
                raise BusyError(f"there is nothing to {type}: no prompt of this client runs")
        self.request(type, **changed_fields(command), **for_agent(agent))

    def _expect(self) -> tuple[str, Future[Response]]:
        if self._closed:
            raise ClosedError("the client was closed")
        return self._server.expect()

    def _response(
        self, id: str, answer: Future[Response], type: str, fields: Mapping[str, Any]
    ) -> Response:
        """Send a command and wait for its response."""
        self._server.send(id, type, fields, self.timeout)
        try:
            response = answer.result(self.timeout)
        except TimeoutError:
            raise ClientTimeoutError(f"no answer within {self.timeout:g} s") from None
        if not response.success:
            error = "refused" if response.error is UNSET else response.error
            raise CommandError(error, code=None if response.code is UNSET else response.code)
        return response

    # --- inside: reading ---------------------------------------------------------------------

    def _take(self, line: bytes | LineTooLong) -> None:
        if isinstance(line, LineTooLong):
            raise FrameError(f"a frame is longer than {line.limit} bytes")
        frame = parse_frame(line)
        if isinstance(frame, Response):
            self._server.answer(frame.id, frame)
            return
        agent = agent_of(line) if self._has_agents else ""
        with self._condition:
            if runs := self._runs.get(agent):
                runs[0]._put(frame)
                if runs[0].ended:
                    runs.popleft()
                self._condition.notify_all()
                return
            listener = self._listeners.get(agent)
        if listener is not None:
            self._unclaimed.put((listener, frame))

    def _queue_run(self, run: EventIterator, answer: Future[Response]) -> None:
        if answer.exception() is not None or not answer.result().success:
            return
        data = answer.result().data
        with self._condition:
            if isinstance(data, dict) and data.get("started"):
                self._runs.setdefault(run.agent, deque()).append(run)
            else:
                run.ended = True

    def _call_listeners(self) -> None:
        """Call listeners, outside the reading thread, so that they may wait for a response."""
        while (unclaimed := self._unclaimed.get()) is not None:
            listener, event = unclaimed
            try:
                listener(event)
            except Exception as error:
                report_bug(error)  # a bug of the listener must not stop the client

    def _end(self) -> None:
        with self._condition:
            self._condition.notify_all()
            for runs in self._runs.values():
                for run in runs:
                    run.on_change()
        self._unclaimed.put(None)


class ClientAgent(ClientCommands):
    """An opened agent, with the same commands as the client."""

    def __init__(self, client: Client, name: str) -> None:
        self.name = name
        self._client = client

    def request(self, type: str, **fields: Any) -> Response:
        return self._client.request(type, agent=self.name, **fields)

    def close(self) -> None:
        """Abort the agent's runs, and wait until it is closed."""
        self._client.close_agent(self.name)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _run(self, command: Command, timeout: float | None) -> EventIterator:
        return self._client._run(command, timeout, self.name)

    def _add(self, command: AddedMessage) -> None:
        self._client._add(command, self.name)


class Addressed(Frozen):
    """The agent that a frame names."""

    agent: str = ""


_addressed = msgspec.json.Decoder(Addressed).decode


def agent_of(line: bytes) -> str:
    return _addressed(line).agent if b'"agent":' in line else ""


def for_agent(agent: str) -> dict[str, str]:
    return {"agent": agent} if agent else {}


def __getattr__(name: str) -> Any:
    """Load the names that need asyncio with their first use."""
    if name in ("AsyncClient", "AsyncClientAgent", "AsyncEventIterator"):
        from zot import client_aio

        return getattr(client_aio, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
