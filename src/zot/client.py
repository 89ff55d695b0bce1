"""A typed client for `zot rpc`, or for any command with the same protocol. Independent of the agent
code: handles only frames, ids and a child process.

    with Client(["zot", "rpc", "--provider", "anthropic"]) as client:
        for event in client.prompt("what does this project do?"):
            ...
"""

from __future__ import annotations

import os
import subprocess
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from queue import SimpleQueue
from typing import Any, Self, TypeVar

import msgspec
from msgspec import UNSET

from zot.bugs import report_bug
from zot.client_commands import ClientCommands, said, word
from zot.errors import BusyError as BusyError
from zot.errors import ClosedError as ClosedError
from zot.errors import CommandError as CommandError
from zot.errors import ZotError as ZotError
from zot.home import RPC_TOKEN
from zot.lines import LineSplitter, LineTooLong, encode_line, ready
from zot.provider.types import Image as Image
from zot.text import Frozen
from zot.wire import frames, shapes
from zot.wire.commands import AddedMessage, RunCommand
from zot.wire.follow import KeptEvent as KeptEvent
from zot.wire.follow import follow as follow
from zot.wire.frames import EventFrame
from zot.wire.parse import FrameError, Response, Unknown, parse_frame
from zot.wire.shapes import AgentShape
from zot.wire.zot import Command, Hello, HelloData, RunEnd, Started

MAX_FRAME = 256 * 1024 * 1024
STDERR_KEPT = 64 * 1024
STOP_SECONDS = 5.0

Event = EventFrame | Unknown
T = TypeVar("T")


class ServerGoneError(ZotError):
    """The child has ended, or wrote an invalid frame. `returncode` is None if it still runs."""

    code = "server_gone"

    def __init__(self, message: str, returncode: int | None) -> None:
        super().__init__(message)
        self.returncode = returncode


class ClientTimeoutError(ZotError):
    """The child did not answer in time."""

    code = "timeout"


ServerGone = ServerGoneError
ClientTimeout = ClientTimeoutError
"""Names of these errors in earlier versions."""


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
        self._client = client
        self._timeout = timeout
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

    def close(self) -> None:
        """Abort the run if it has not ended, and wait until it has stopped."""
        with self._condition:
            over = self.ended or self._client._gone is not None
        if not over:
            self._client.request("abort", target=self.id, **for_agent(self.agent))
            for _ in self:
                pass

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _put(self, event: Event) -> None:
        self._waiting.append(event)
        self.ended = isinstance(event, frames.Done | frames.RunSuspended)

    def _wait(self) -> None:
        def ready() -> bool:
            return bool(self._waiting) or self.ended or self._client._gone is not None

        if not self._condition.wait_for(ready, self._timeout):
            raise ClientTimeoutError(
                f"no event for {self._timeout:g} s; the run goes on: abort it, or read on"
            )
        if not self._waiting and not self.ended and self._client._gone is not None:
            raise self._client._gone


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
        on_event: Callable[[Event], None] = lambda event: None,
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
        self._write_lock = threading.Lock()
        self._answers: dict[str, Response | None] = {}
        self._starting: dict[str, EventIterator] = {}
        self._runs: dict[str, deque[EventIterator]] = {"": deque()}
        """Runs of each agent, in the order of their events; the process's own agent is ""."""
        self._listeners: dict[str, Callable[[Event], None]] = {"": on_event}
        self._heard: SimpleQueue[tuple[Callable[[Event], None], Event] | None] = SimpleQueue()
        """Queue of events for the listeners; None marks its end."""
        self._gone: ServerGoneError | None = None
        self._closed = False
        self._several = False
        """Whether frames may name their agent."""
        self._next_id = 0
        self._stderr = bytearray()
        self._process = _spawn(command, cwd, env, token)
        self._threads = [
            threading.Thread(target=work, name=name, daemon=True)
            for work, name in (
                (self._read, "client-read"),
                (self._read_stderr, "client-stderr"),
                (self._pass_on, "client-events"),
            )
        ]
        for thread in self._threads:
            thread.start()
        if token or features:
            try:
                self.hello(token, features)
            except BaseException:
                self.close()
                raise

    # --- the process ------------------------------------------------------------------------

    def hello(self, token: str = "", features: Sequence[str] = ()) -> HelloData:
        self._several = self._several or "agents" in features
        return self._tell(Hello(token, tuple(features) or None)).data_as(HelloData)

    def ping(self) -> None:
        self.request("ping")

    # --- agents ------------------------------------------------------------------------------

    def open_agent(
        self,
        agent: str = "",
        *,
        on_event: Callable[[Event], None] = lambda event: None,
        **fields: Any,
    ) -> ClientAgent:
        """Open another agent in the child (feature `agents`). The fields are those of the command:
        cwd, provider, model, session, tools, limits, approve, jail, durable. `on_event` gets its
        events that belong to no run of this client.

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
        return self._answer(self._send(type, fields))

    # --- the child ---------------------------------------------------------------------------

    @property
    def pid(self) -> int:
        return self._process.pid

    @property
    def stderr(self) -> str:
        """The last bytes that the child wrote to stderr, as text."""
        return bytes(self._stderr).decode("utf-8", "replace")

    def close(self) -> int:
        """End the child by closing its input, or by signals; return its exit code. May be called
        again."""
        with self._condition:
            self._closed = True
            running = any(self._runs.values())
        if running:
            self._process.terminate()  # after the end of input alone it would finish its runs
        assert self._process.stdin is not None
        with self._write_lock:
            self._process.stdin.close()
        for stop in (self._process.terminate, self._process.kill):
            try:
                self._process.wait(STOP_SECONDS)
                break
            except subprocess.TimeoutExpired:
                stop()
        code = self._process.wait()
        for thread in self._threads:
            if thread is not threading.current_thread():  # a listener may close the client
                thread.join(STOP_SECONDS)
        return code

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    # --- inside: sending ---------------------------------------------------------------------

    def _run(self, command: Command, timeout: float | None, agent: str = "") -> EventIterator:
        # Registered before the response comes: the reading thread queues the run when accepted.
        with self._condition:
            id = self._new_id()
            self._starting[id] = run = EventIterator(self, id, timeout, agent)
        # After a timeout of the response it stays registered: a late response must still queue
        # it, or its events would go to another run.
        self._send(word(command), said(command) | for_agent(agent), id)
        answer = self._answer(id)
        if isinstance(command, RunCommand):
            run.ran = answer.data_as(shapes.CommandRan)
            run.queued = run.ran.queued
        else:
            started = answer.data_as(Started)
            run.queued, run.resumed, run.end = started.queued, started.resumed, started.end
        return run

    def _add(self, command: AddedMessage, agent: str = "") -> None:
        type = word(command)
        with self._condition:
            if not self._runs.get(agent):
                raise BusyError(f"there is nothing to {type}: no prompt of this client runs")
        self.request(type, **said(command), **for_agent(agent))

    def _send(self, type: str, fields: dict[str, Any], id: str = "") -> str:
        with self._condition:
            if self._closed:
                raise ClosedError("the client was closed")
            if self._gone is not None:
                raise self._gone
            id = id or self._new_id()
            self._answers[id] = None
        try:
            self._write(encode_line({"id": id, "type": type, **fields}))
        except BaseException:
            with self._condition:
                self._answers.pop(id, None)
            raise
        return id

    def _new_id(self) -> str:
        self._next_id += 1
        return str(self._next_id)

    def _write(self, line: bytes) -> None:
        assert self._process.stdin is not None
        deadline = time.monotonic() + self.timeout
        with self._write_lock:
            fd = self._process.stdin.fileno()
            view = memoryview(line)
            while view:
                if not ready(writing=(fd,), timeout=deadline - time.monotonic()):
                    if len(view) < len(line):
                        self._process.terminate()  # nothing can be sent after half a line
                    raise ClientTimeoutError(
                        f"the child did not read its input for {self.timeout:g} s"
                    )
                try:
                    view = view[os.write(fd, view) :]
                except BlockingIOError:
                    continue
                except OSError:
                    return  # the child has ended: waiting for the response reports that

    def _answer(self, id: str) -> Response:
        with self._condition:
            arrived = self._condition.wait_for(
                lambda: self._answers[id] is not None or self._gone is not None, self.timeout
            )
            response = self._answers.pop(id)
            if response is None:
                if self._gone is not None:
                    raise self._gone
                assert not arrived
                raise ClientTimeoutError(f"no answer within {self.timeout:g} s")
        if not response.success:
            error = "refused" if response.error is UNSET else response.error
            raise CommandError(error, code=None if response.code is UNSET else response.code)
        return response

    # --- inside: reading ---------------------------------------------------------------------

    def _read(self) -> None:
        assert self._process.stdout is not None
        splitter = LineSplitter(MAX_FRAME)
        problem = ""
        with self._process.stdout as stdout:
            try:
                while data := os.read(stdout.fileno(), 65536):
                    for line in splitter.feed(data):
                        self._line(line)
            except FrameError as error:
                problem = str(error)
                self._process.terminate()
        self._end(problem)

    def _line(self, line: bytes | LineTooLong) -> None:
        if isinstance(line, LineTooLong):
            raise FrameError(f"a frame is longer than {line.limit} bytes")
        frame = parse_frame(line)
        agent = agent_of(line) if self._several else ""
        with self._condition:
            if isinstance(frame, Response):
                self._response(frame)
                return
            if runs := self._runs.get(agent):
                runs[0]._put(frame)
                if runs[0].ended:
                    runs.popleft()
                self._condition.notify_all()
                return
            listener = self._listeners.get(agent)
        if listener is not None:
            self._heard.put((listener, frame))

    def _pass_on(self) -> None:
        """Call listeners, outside the reading thread, so that they may wait for a response."""
        while (heard := self._heard.get()) is not None:
            listener, event = heard
            try:
                listener(event)
            except Exception as error:
                report_bug(error)  # a bug of the listener must not stop the client

    def _response(self, response: Response) -> None:
        id = response.id if isinstance(response.id, str) else ""
        run = self._starting.pop(id, None)
        if run is not None and response.success:
            if isinstance(response.data, dict) and response.data.get("started"):
                self._runs.setdefault(run.agent, deque()).append(run)
            else:
                run.ended = True
        if id in self._answers:  # otherwise the requester has stopped waiting
            self._answers[id] = response
            self._condition.notify_all()

    def _end(self, problem: str) -> None:
        try:
            code: int | None = self._process.wait(STOP_SECONDS)
        except subprocess.TimeoutExpired:
            code = None
        if code is not None:  # wait for the rest of stderr, which is part of the error
            self._threads[1].join(STOP_SECONDS)
        how = "closed its output" if code is None else f"ended with exit code {code}"
        said = self.stderr.strip()
        text = problem or f"the server {how}"
        with self._condition:
            self._gone = ServerGoneError(f"{text}; stderr: {said}" if said else text, code)
            self._condition.notify_all()
        self._heard.put(None)

    def _read_stderr(self) -> None:
        assert self._process.stderr is not None
        with self._process.stderr as stderr:
            while data := os.read(stderr.fileno(), 65536):
                self._stderr += data
                del self._stderr[:-STDERR_KEPT]


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


def _spawn(
    command: Sequence[str],
    cwd: str | os.PathLike[str] | None,
    env: Mapping[str, str] | None,
    token: str,
) -> subprocess.Popen[bytes]:
    environment = dict(os.environ if env is None else env)
    if token:
        environment[RPC_TOKEN] = token
    try:
        process = subprocess.Popen(
            list(command),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            cwd=cwd,
            env=environment,
            bufsize=0,
        )
    except OSError as error:
        raise ServerGoneError(f"cannot start {list(command)!r}: {error}", None) from error
    assert process.stdin is not None
    os.set_blocking(process.stdin.fileno(), False)
    return process
