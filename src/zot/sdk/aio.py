"""The runtime for asyncio programs. A queue connects it to the core: no run waits for the loop, and
no call blocks the loop; turns.py runs the calls that wait, in threads.
"""

from __future__ import annotations

import asyncio
import inspect
import os
import weakref
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Sequence
from copy import copy
from functools import partial, wraps
from itertools import islice
from typing import Any, Concatenate, Self, Unpack

from msgspec.structs import replace

from zot.core.agent import Limits
from zot.core.shell import ShellOutput
from zot.provider.types import Image, Json
from zot.runtime.approval import Decision
from zot.sdk.config import AnyTool, Config, Settings, config_of, shows_settings
from zot.sdk.coroutine import run_in
from zot.sdk.function import FunctionTool, function_tool
from zot.sdk.listener import AgentOptions
from zot.sdk.runtime import P, Runtime, T
from zot.sdk.stream import (
    STOP_SECONDS,
    AgentEvent,
    Answer,
    AnswerParts,
    Channel,
    CompactResult,
    NothingToResume,
    RunStream,
)
from zot.sdk.turns import Made, Reply, Start, Started, Turns, in_loop
from zot.wire.eventlog import TICK, KeptEvent, follow
from zot.wire.frames import EventFrame

PAGE = 1000
"""Maximum number of events read at once."""


class AsyncEventStream(RunStream, AsyncIterator[EventFrame]):
    """Events of one prompt. Closing it, or cancelling the task that reads it, aborts the run."""

    def __init__(
        self, start: Callable[[Callable[[], None]], Started], turns: Turns | None = None
    ) -> None:
        """Start the run with `start`, which gets a callback to call on every event. With `turns`,
        the start waits there first, and reading the stream raises its errors."""
        self._loop = asyncio.get_running_loop()
        self._ready = asyncio.Event()
        self._reader: asyncio.Task[Any] | None = None
        self._start = Start(start, self._waker())
        self._begun: asyncio.Task[Started] | None = None
        if turns is None:
            super().__init__(*self._start.begin())
        else:
            super().__init__(None, Channel())
            self._begun = turns.take_start(self._start)

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> EventFrame:
        self._watch_reader()
        try:
            event = await self._next()
        except asyncio.CancelledError:
            self._cancel()
            await self._drained()
            raise
        if event is None:
            raise StopAsyncIteration
        return event

    async def aclose(self) -> None:
        """Abort the run if it is active, and wait until it has stopped."""
        if not self._channel.ended:
            self._cancel()
            await self._drained()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.aclose()

    def __del__(self) -> None:
        self._abandon()

    def _cancel(self) -> None:
        self._start.cancel()

    async def _wait_for_start(self) -> None:
        if self._begun is None:
            return
        try:
            run, channel = await asyncio.shield(self._begun)
        except NothingToResume:
            self._channel.end()
        except Exception:
            self._begun = None
            self._channel.end()
            raise
        else:
            super().__init__(run, channel)
        self._begun = None

    async def _next(self) -> EventFrame | None:
        await self._wait_for_start()
        while True:
            self._ready.clear()
            event = self._channel.take(wait=False)
            if event is not None or self._channel.ended:
                return event
            await self._ready.wait()

    async def _drained(self) -> None:
        """Read up to Done, which an aborted run reaches soon, so that no event stays unread."""
        try:
            async with asyncio.timeout(STOP_SECONDS):
                while await self._next() is not None:
                    pass
        finally:
            self._channel.end()

    def _waker(self) -> Callable[[], None]:
        """Return the callback for the run's thread; it must not keep this stream alive, and must
        work when the loop is closed."""
        loop, ready = self._loop, self._ready

        def wake() -> None:
            try:
                loop.call_soon_threadsafe(ready.set)
            except RuntimeError:
                pass  # the loop has been closed: there is no reader

        return wake

    def _watch_reader(self) -> None:
        """Abort the run when its reader task ends between two events (cancelled elsewhere)."""
        task = asyncio.current_task()
        if task is None or task is self._reader:
            return
        self._reader = task
        stream = weakref.ref(self)

        def ended(finished: asyncio.Task[Any]) -> None:
            abandoned = stream()
            if abandoned is not None and abandoned._reader is finished:
                abandoned._abandon()

        task.add_done_callback(ended)

    def _abandon(self) -> None:
        channel: Channel | None = getattr(self, "_channel", None)  # None: __init__ raised
        if channel is not None and not channel.ended:
            channel.end()
            self._cancel()


def at_once(
    method: Callable[Concatenate[Runtime, P], T],
) -> Callable[Concatenate[AsyncRuntime, P], T]:
    """Wrap a method that is called directly: it answers from memory, or writes a row of a file, and
    never waits."""

    @wraps(method)
    def call(self: AsyncRuntime, /, *args: P.args, **options: P.kwargs) -> T:
        return method(self._runtime, *args, **options)

    return call


def in_thread(
    method: Callable[Concatenate[Runtime, P], T],
) -> Callable[Concatenate[AsyncRuntime, P], Coroutine[Any, Any, T]]:
    """Wrap a method as a coroutine in a thread: it may wait for files, processes or the network."""

    @wraps(method)
    async def call(self: AsyncRuntime, /, *args: P.args, **options: P.kwargs) -> T:
        return await asyncio.to_thread(method, self._runtime, *args, **options)

    return call


def in_turn(
    method: Callable[Concatenate[Runtime, P], T],
) -> Callable[Concatenate[AsyncRuntime, P], Coroutine[Any, Any, T]]:
    """Wrap a change of the conversation as a coroutine that runs after earlier changes."""

    @wraps(method)
    async def call(self: AsyncRuntime, /, *args: P.args, **options: P.kwargs) -> T:
        work = partial(method, self._runtime, *args, **options)
        return await asyncio.shield(self._turns.take(work))

    return call


def now_or_in_turn(
    method: Callable[Concatenate[Runtime, P], T],
) -> Callable[Concatenate[AsyncRuntime, P], Awaitable[T]]:
    """Wrap a quick change of the conversation: it runs at once if it need not wait, else it is
    queued for a thread. It runs whether awaited or not."""

    @wraps(method)
    def call(self: AsyncRuntime, /, *args: P.args, **options: P.kwargs) -> Awaitable[T]:
        work = partial(method, self._runtime, *args, **options)
        waits = self._turns.busy or self._runtime._change_waits()
        if waits and in_loop():
            return Reply(method.__name__, self._turns.take(work))
        return Made(work())

    return call


def streamed(
    start: Callable[Concatenate[Runtime, Callable[[], None], P], Started],
    blocking: Callable[..., Any],
) -> Callable[Concatenate[AsyncRuntime, P], AsyncEventStream]:
    """Wrap a method that starts a run and returns its events. The method never waits; while another
    run is stopping, the stream does. `blocking`: the method of Runtime whose help this one has."""

    @wraps(blocking, assigned=("__name__", "__doc__"))
    def call(self: AsyncRuntime, /, *args: P.args, **options: P.kwargs) -> AsyncEventStream:
        self._loop = asyncio.get_running_loop()
        waits = self._turns.busy or self._runtime._stopping()
        return AsyncEventStream(
            lambda notify: start(self._runtime, notify, *args, **options),
            self._turns if waits else None,
        )

    signature = inspect.signature(blocking)
    vars(call)["__signature__"] = signature.replace(return_annotation="AsyncEventStream")
    return call


def _written(name: str, work: Callable[[], T]) -> Awaitable[T]:
    """Run the work in a thread that starts now; without a running loop, run it directly."""
    if not in_loop():
        return Made(work())
    return Reply(name, asyncio.ensure_future(asyncio.to_thread(work)))


async def _ended_with(stop: Callable[[], object], work: Callable[[], T]) -> T:
    """Run the work in a thread; cancelling the task calls `stop` and waits for the end."""
    running = asyncio.ensure_future(asyncio.to_thread(work))
    try:
        return await asyncio.shield(running)
    except asyncio.CancelledError:
        stop()
        await asyncio.wait([running], timeout=STOP_SECONDS)
        if running.done() and not running.cancelled():
            running.exception()  # mark as retrieved: the cancel caused it
        raise


class AsyncRuntime:
    """Runtime for asyncio: `async for event in runtime.prompt(...)`. It has the methods of Runtime.

    No call blocks the loop. Calls that may wait for a run to stop, a file, a process, the network
    or a person are awaited. `prompt`, `retry`, `resume` and `resume_run` return a stream at once:
    if a cancelled run is still stopping, the stream waits, and raises the errors that the call
    would have raised. The other plain methods answer from memory.

    `clear`, `set_messages`, `set_reasoning`, `approve` and `remove_approval` were plain methods in
    earlier versions. They run even if not awaited: at once if they need not wait, else in a thread
    and with a RuntimeWarning.
    """

    @shows_settings
    def __init__(self, config: Config | None = None, **settings: Unpack[Settings]) -> None:
        """Take a Config, or its fields as keyword arguments; raises as `Runtime` does."""
        config = config_of(config, settings)
        self._loop: asyncio.AbstractEventLoop | None = None
        looped = replace(
            config,
            tools=None if config.tools is None else [*map(self._in_loop, config.tools)],
            on_agent_event=self._heard_in_loop(config.on_agent_event),
        )
        self._runtime = Runtime(looped)
        self._turns = Turns()

    prompt = streamed(Runtime._start, Runtime.prompt)
    retry = streamed(Runtime._retry, Runtime.retry)
    resume_run = streamed(Runtime._resume_run, Runtime.resume_run)

    async def ask(
        self,
        text: str,
        images: Sequence[Image] = (),
        *,
        limits: Limits | None = None,
        schema: object = None,
    ) -> Answer:
        """Like `Runtime.ask`; cancelling the task aborts the run."""
        parts = AnswerParts()
        async with self.prompt(text, images, limits=limits, schema=schema) as stream:
            async for event in stream:
                parts.take(event)
        stream.raise_for_error()
        return parts.answer(schema)

    def resume(self) -> AsyncEventStream | None:
        """Continue an interrupted durable run; see `Runtime.resume`."""
        self._loop = asyncio.get_running_loop()
        try:
            return AsyncEventStream(
                self._runtime._resume, self._turns if self._turns.busy else None
            )
        except NothingToResume:
            return None

    async def compact(self, instructions: str | None = None) -> CompactResult:
        """Compact as `Runtime.compact` does; cancelling the task cancels it."""
        return await _ended_with(self.cancel, partial(self._runtime.compact, instructions))

    async def run_shell(self, command: str, *, hidden: bool = False) -> ShellOutput:
        """Run a command as `Runtime.run_shell` does; cancelling the task ends the command."""
        shell = self._runtime._open().shell
        cancel = shell.new_cancel()  # its own, so that other commands continue
        work = partial(shell.run, command, hidden=hidden, cancel=cancel)
        return await _ended_with(cancel.set, work)

    abort_shell = at_once(Runtime.abort_shell)
    answer = at_once(Runtime.answer)
    approvals = at_once(Runtime.approvals)
    changed_files = in_thread(Runtime.changed_files)
    checkpoints = at_once(Runtime.checkpoints)
    clear = now_or_in_turn(Runtime.clear)
    close = in_thread(Runtime.close)
    close_agent = in_thread(Runtime.close_agent)
    commands = in_thread(Runtime.commands)
    cost = at_once(Runtime.cost)
    events = in_thread(Runtime.events)
    export_session = in_thread(Runtime.export_session)
    follow_up = at_once(Runtime.follow_up)
    fork_session = in_turn(Runtime.fork_session)
    full_messages = at_once(Runtime.full_messages)
    list_agents = at_once(Runtime.list_agents)
    list_models = in_thread(Runtime.list_models)
    load_session = in_turn(Runtime.load_session)
    messages = at_once(Runtime.messages)
    new_session = in_turn(Runtime.new_session)
    panel_close = at_once(Runtime.panel_close)
    panel_key = at_once(Runtime.panel_key)
    panel_resize = at_once(Runtime.panel_resize)
    questions = at_once(Runtime.questions)
    reload_extensions = in_turn(Runtime.reload_extensions)
    rewind = in_turn(Runtime.rewind)
    run_command = in_thread(Runtime.run_command)
    servers = at_once(Runtime.servers)
    session = in_thread(Runtime.session)
    sessions = in_thread(Runtime.sessions)
    set_jail = in_turn(Runtime.set_jail)
    set_mode = in_turn(Runtime.set_mode)
    set_messages = now_or_in_turn(Runtime.set_messages)
    set_model = in_turn(Runtime.set_model)
    set_reasoning = now_or_in_turn(Runtime.set_reasoning)
    state = at_once(Runtime.state)
    steer = at_once(Runtime.steer)

    def cancel(self) -> bool:
        """Abort the current run and those waiting to start; return False if there are none."""
        waited = self._turns.cancel_starts()
        return self._runtime.cancel() or waited

    def approve(
        self,
        request_id: str,
        decision: Decision,
        reason: str = "",
        *,
        pattern: str = "",
        args: dict[str, Json] | None = None,
    ) -> Awaitable[None]:
        """Approve as `Runtime.approve`; decisions for the project write a file that others may
        lock."""
        work = partial(
            self._runtime.approve, request_id, decision, reason, pattern=pattern, args=args
        )
        return _written("approve", work) if decision.endswith("_project") else Made(work())

    def remove_approval(self, tool: str, pattern: str) -> Awaitable[None]:
        """Remove a rule as `Runtime.remove_approval` does."""
        return _written("remove_approval", partial(self._runtime.remove_approval, tool, pattern))

    @property
    def name(self) -> str:
        """Name of an agent that another one opened, else empty."""
        return self._runtime.name

    async def open_agent(self, agent: str = "", **options: Unpack[AgentOptions]) -> AsyncRuntime:
        """Open another agent as `Runtime.open_agent` does."""
        opened = AsyncRuntime.__new__(AsyncRuntime)
        opened._loop = self._loop = asyncio.get_running_loop()
        opened._turns = Turns()
        work = partial(self._runtime.open_agent, agent, **options)
        opened._runtime = await asyncio.to_thread(work)
        return opened

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    def _heard_in_loop(
        self, listener: Callable[[AgentEvent], None] | None
    ) -> Callable[[AgentEvent], None] | None:
        """Wrap the listener so that it gets agent events in the prompt's loop, in order."""
        if listener is None:
            return None

        def hear(event: AgentEvent) -> None:
            try:
                self._running_loop().call_soon_threadsafe(listener, event)
            except RuntimeError:
                pass  # the loop has been closed: there is no listener

        return hear

    def _in_loop(self, item: AnyTool) -> AnyTool:
        """Return the tool; bind a coroutine tool to the prompt's loop."""
        if inspect.iscoroutinefunction(item):
            item = function_tool(item)
        if isinstance(item, FunctionTool) and item.is_async:
            item = copy(item)
            item.run_async = lambda work, cancel: run_in(self._running_loop(), work, cancel)
        return item

    def _running_loop(self) -> asyncio.AbstractEventLoop:
        assert self._loop is not None  # a tool runs in a prompt, and a prompt has a loop
        return self._loop


async def follow_async(
    session: str | os.PathLike[str], after: int = 0, *, once: bool = False
) -> AsyncIterator[KeptEvent]:
    """Like `follow`, for asyncio; ends when the task that reads it is cancelled."""
    while True:
        page = await asyncio.to_thread(
            lambda start: list(islice(follow(session, start, once=True), PAGE)), after
        )
        for kept in page:
            after = kept.seq
            yield kept
        if not page:
            if once:
                return
            await asyncio.sleep(TICK)
