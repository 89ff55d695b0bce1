"""The client for asyncio programs: calls of `zot.client` run in threads of their own, events come
by a callback. No call blocks the loop.
"""

from __future__ import annotations

import asyncio
import inspect
import os
from collections.abc import AsyncIterator, Callable, Coroutine, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial, wraps
from typing import Any, Concatenate, ParamSpec, Self, TypeVar, Unpack

from zot.client import AgentFields, Client, ClientAgent, Event, EventIterator, Listener
from zot.client_commands import ClientCommands
from zot.errors import ClosedError
from zot.rpc_process import ClientTimeoutError
from zot.wire.frames import Response
from zot.wire.shapes import AgentShape
from zot.wire.zot import HelloData

THREADS = 64
"""Calls that may wait for a response at the same time; more are queued."""
P = ParamSpec("P")
T = TypeVar("T")


class AsyncEventIterator(AsyncIterator[Event]):
    """The events of one prompt or compact, up to and including Done. Closing it early, or
    cancelling the task that reads it, aborts the run."""

    def __init__(self, start: asyncio.Task[EventIterator]) -> None:
        self._start = start
        self._ready = asyncio.Event()
        self._events: EventIterator | None = None

    async def started(self) -> EventIterator:
        """Wait until the server has accepted the prompt; return the run: its `id`, `queued`,
        `resumed`, `end` and `ran`. Raises CommandError: the server refused it."""
        if self._events is None:
            events = await asyncio.shield(self._start)
            events.on_change = _waker(asyncio.get_running_loop(), self._ready)
            self._events = events
        return self._events

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Event:
        """Return the next event. Raises CommandError when the server refused the prompt,
        ServerGoneError when the child dies, ClientTimeoutError when it is silent for too long."""
        try:
            event = await self._next()
        except asyncio.CancelledError:
            await self.aclose()
            raise
        if event is None:
            raise StopAsyncIteration
        return event

    async def aclose(self) -> None:
        """Abort the run if it has not ended, and wait until it has stopped."""
        if self._start.done() and (self._start.cancelled() or self._start.exception()):
            return
        events = await self.started()
        if not events.ended:
            await asyncio.to_thread(events.close)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.aclose()

    async def _next(self) -> Event | None:
        events = await self.started()
        while True:
            self._ready.clear()
            event = events.take()
            if event is not None or events.ended:
                return event
            try:
                await asyncio.wait_for(self._ready.wait(), events.timeout)
            except TimeoutError:
                raise ClientTimeoutError(
                    f"no event for {events.timeout:g} s; the run goes on: close this, or read on"
                ) from None


def _waker(loop: asyncio.AbstractEventLoop, ready: asyncio.Event) -> Callable[[], None]:
    """Return a callback for the thread that reads the child."""

    def wake() -> None:
        try:
            loop.call_soon_threadsafe(ready.set)
        except RuntimeError:
            pass  # the loop has been closed: there is no reader

    return wake


def in_thread(
    method: Callable[Concatenate[ClientCommands, P], T],
) -> Callable[Concatenate[AsyncCommands, P], Coroutine[Any, Any, T]]:
    """Make a coroutine of a command of the blocking client."""

    @wraps(method)
    async def call(self: AsyncCommands, /, *args: P.args, **options: P.kwargs) -> T:
        return await self._call(partial(method, self._commands(), *args, **options))

    return call


def streamed(
    method: Callable[Concatenate[ClientCommands, P], EventIterator],
) -> Callable[Concatenate[AsyncCommands, P], AsyncEventIterator]:
    """Make a method that starts a run and returns its events at once. What the server says to the
    command is raised where the events are read."""

    @wraps(method)
    def call(self: AsyncCommands, /, *args: P.args, **options: P.kwargs) -> AsyncEventIterator:
        return self._stream(partial(method, self._commands(), *args, **options))

    signature = inspect.signature(method)
    vars(call)["__signature__"] = signature.replace(return_annotation="AsyncEventIterator")
    return call


class AsyncCommands:
    """Commands to the process's own agent and to opened agents; they have the names and arguments
    of the blocking client. All are awaited, except those that return the events of a run."""

    def __init__(self) -> None:
        self._last_start: asyncio.Task[EventIterator] | None = None

    def _commands(self) -> ClientCommands:
        raise NotImplementedError

    def _threads(self) -> ThreadPoolExecutor:
        raise NotImplementedError

    async def _call(self, work: Callable[[], T]) -> T:
        """Run the work in a thread, after the prompts that were made before it were accepted."""
        if self._last_start is not None and not self._last_start.done():
            await asyncio.wait([self._last_start])
        return await asyncio.get_running_loop().run_in_executor(self._threads(), work)

    def _stream(self, work: Callable[[], EventIterator]) -> AsyncEventIterator:
        before = self._last_start

        async def start() -> EventIterator:
            if before is not None and not before.done():
                await asyncio.wait([before])
            return await asyncio.get_running_loop().run_in_executor(self._threads(), work)

        self._last_start = asyncio.get_running_loop().create_task(start())
        return AsyncEventIterator(self._last_start)

    prompt = streamed(ClientCommands.prompt)
    retry = streamed(ClientCommands.retry)
    compact = streamed(ClientCommands.compact)
    submit_command = streamed(ClientCommands.submit_command)

    abort = in_thread(ClientCommands.abort)
    abort_shell = in_thread(ClientCommands.abort_shell)
    answer = in_thread(ClientCommands.answer)
    approvals = in_thread(ClientCommands.approvals)
    approve = in_thread(ClientCommands.approve)
    changed_files = in_thread(ClientCommands.changed_files)
    checkpoints = in_thread(ClientCommands.checkpoints)
    clear = in_thread(ClientCommands.clear)
    commands = in_thread(ClientCommands.commands)
    events = in_thread(ClientCommands.events)
    export_session = in_thread(ClientCommands.export_session)
    follow_up = in_thread(ClientCommands.follow_up)
    fork_session = in_thread(ClientCommands.fork_session)
    load_session = in_thread(ClientCommands.load_session)
    messages = in_thread(ClientCommands.messages)
    models = in_thread(ClientCommands.models)
    new_session = in_thread(ClientCommands.new_session)
    panel_close = in_thread(ClientCommands.panel_close)
    panel_key = in_thread(ClientCommands.panel_key)
    panel_resize = in_thread(ClientCommands.panel_resize)
    reload_extensions = in_thread(ClientCommands.reload_extensions)
    remove_approval = in_thread(ClientCommands.remove_approval)
    resume_run = in_thread(ClientCommands.resume_run)
    rewind = in_thread(ClientCommands.rewind)
    run_command = in_thread(ClientCommands.run_command)
    run_shell = in_thread(ClientCommands.run_shell)
    sessions = in_thread(ClientCommands.sessions)
    set_jail = in_thread(ClientCommands.set_jail)
    set_mode = in_thread(ClientCommands.set_mode)
    set_model = in_thread(ClientCommands.set_model)
    set_reasoning = in_thread(ClientCommands.set_reasoning)
    state = in_thread(ClientCommands.state)
    steer = in_thread(ClientCommands.steer)

    async def request(self, type: str, **fields: Any) -> Response:
        """Send any command and wait for its response; raises as `Client.request` does."""
        return await self._call(partial(self._commands().request, type, **fields))


class AsyncClient(AsyncCommands):
    """A child process and its agents, for asyncio:

    async with AsyncClient(["zot", "rpc", "--provider", "anthropic"]) as client:
        async for event in client.prompt("what does this project do?"):
            ...
    """

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
        """Take the arguments of `Client`. Nothing is started before `async with` or `start`;
        `on_event` is called in the loop."""
        super().__init__()
        self._make = partial(
            Client, command, cwd=cwd, env=env, token=token, features=features, timeout=timeout
        )
        self._on_event = on_event
        self._client: Client | None = None
        self._pool = ThreadPoolExecutor(THREADS, thread_name_prefix="zot-client")

    async def start(self) -> Self:
        """Start the child, if it is not yet. Raises as `Client` does."""
        if self._client is None:
            loop = asyncio.get_running_loop()
            work = partial(self._make, on_event=_in_loop(loop, self._on_event))
            self._client = await loop.run_in_executor(self._pool, work)
        return self

    async def close(self) -> int:
        """End the child; return its exit code. May be called again."""
        code = 0 if self._client is None else await asyncio.to_thread(self._client.close)
        self._pool.shutdown(wait=False)
        return code

    async def __aenter__(self) -> Self:
        return await self.start()

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def hello(self, token: str = "", features: Sequence[str] = ()) -> HelloData:
        """Send the token and choose features; return version, provider, model and features."""
        return await self._call(partial(self._commands().hello, token, features))

    async def ping(self) -> None:
        """Check that the server answers."""
        await self._call(self._commands().ping)

    async def open_agent(
        self,
        agent: str = "",
        *,
        on_event: Listener = lambda event: None,
        **fields: Unpack[AgentFields],
    ) -> AsyncClientAgent:
        """Open another agent in the child as `Client.open_agent` does."""
        listener = _in_loop(asyncio.get_running_loop(), on_event)
        work = partial(self._commands().open_agent, agent, on_event=listener, **fields)
        return AsyncClientAgent(self, await self._call(work))

    async def list_agents(self) -> tuple[AgentShape, ...]:
        """Return the agents that were opened."""
        return await self._call(self._commands().list_agents)

    async def close_agent(self, agent: str) -> None:
        """Abort an agent's runs, and wait until it is closed."""
        await self._call(partial(self._commands().close_agent, agent))

    @property
    def pid(self) -> int:
        """Process id of the child."""
        return self._commands().pid

    @property
    def stderr(self) -> str:
        """The last bytes that the child wrote to stderr, as text."""
        return self._commands().stderr

    def _commands(self) -> Client:
        if self._client is None:
            raise ClosedError("the client was not started: use `async with`, or await start()")
        return self._client

    def _threads(self) -> ThreadPoolExecutor:
        return self._pool


class AsyncClientAgent(AsyncCommands):
    """An opened agent, with the same commands as the client."""

    def __init__(self, client: AsyncClient, agent: ClientAgent) -> None:
        super().__init__()
        self.name = agent.name
        self._agent = agent
        self._client = client

    async def close(self) -> None:
        """Abort the agent's runs, and wait until it is closed."""
        await self._call(self._agent.close)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    def _commands(self) -> ClientAgent:
        return self._agent

    def _threads(self) -> ThreadPoolExecutor:
        return self._client._threads()


def _in_loop(loop: asyncio.AbstractEventLoop, listener: Listener) -> Listener:
    """Return a listener that calls this one in the loop."""

    def hear(event: Event) -> None:
        try:
            loop.call_soon_threadsafe(listener, event)
        except RuntimeError:
            pass  # the loop has been closed: there is no listener

    return hear
