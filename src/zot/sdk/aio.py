"""The same runtime for programs that live in an asyncio loop. It meets the core at a queue; no
part of a run waits for the loop.
"""

from __future__ import annotations

import asyncio
import os
import weakref
from collections.abc import AsyncIterator, Callable, Iterable, Sequence
from functools import partial
from itertools import islice
from typing import Any, Self, Unpack

from msgspec.structs import replace

from zot.core.agent import Limits
from zot.core.rule import Rule
from zot.core.session import ExportFormat, SessionInfo
from zot.core.shell import ShellOutput
from zot.core.source import CommandInfo, CommandResult, ExtensionState
from zot.provider.types import Image, Json, Level, Message
from zot.runtime.agents import AgentInfo
from zot.runtime.approval import Decision
from zot.runtime.rewind import ChangedFile, Checkpoint, Rewound
from zot.runtime.run import Run, StoredEnd
from zot.sdk.config import AnyTool, Config, Settings, Tools
from zot.sdk.coroutine import LoopTool
from zot.sdk.function import FunctionTool, function_tool
from zot.sdk.listener import AgentOptions
from zot.sdk.runtime import CompactResult, NothingToResume, Runtime
from zot.sdk.stream import STOP_SECONDS, AgentEvent, Channel
from zot.wire import frames
from zot.wire.eventlog import TICK
from zot.wire.follow import KeptEvent, follow
from zot.wire.frames import EventFrame, EventsRead, MessageShape, ModelShape, State, UsageShape

PAGE = 1000
"""Events that are read in one go."""


class AsyncEventStream(AsyncIterator[EventFrame]):
    """The events of one prompt. Closing it, or cancelling the task that reads it, aborts."""

    def __init__(
        self, start: Callable[[Callable[[], None]], tuple[Run | StoredEnd, Channel]]
    ) -> None:
        """`start` begins the run; it gets what to call whenever there is an event."""
        self._loop = asyncio.get_running_loop()
        self._ready = asyncio.Event()
        self._reader: asyncio.Task[Any] | None = None
        run, self._channel = start(self._waker())
        self.end = run if isinstance(run, StoredEnd) else None
        """How a durable run ended that had ended before: then Done is all that comes."""
        self._run = None if isinstance(run, StoredEnd) else run

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

    @property
    def seq(self) -> int:
        """Of a durable run: the number of the event that was taken last, in the event log."""
        return self._channel.seq

    async def aclose(self) -> None:
        """Abort what still runs, and wait until it has stopped."""
        if not self._channel.ended:
            self._cancel()
            await self._drained()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.aclose()

    def __del__(self) -> None:
        self._abandon()

    async def _next(self) -> EventFrame | None:
        while True:
            self._ready.clear()
            event = self._channel.take(wait=False)
            if event is not None or self._channel.ended:
                return event
            await self._ready.wait()

    async def _drained(self) -> None:
        """Read on to Done, which an aborted run reaches soon, so that nothing is left behind."""
        try:
            async with asyncio.timeout(STOP_SECONDS):
                while await self._next() is not None:
                    pass
        finally:
            self._channel.end()

    def _waker(self) -> Callable[[], None]:
        """Called by the run's thread. It must not keep this stream alive, nor need the loop."""
        loop, ready = self._loop, self._ready

        def wake() -> None:
            try:
                loop.call_soon_threadsafe(ready.set)
            except RuntimeError:
                pass  # the loop has been closed: nobody reads any more

        return wake

    def _watch_reader(self) -> None:
        """A task that ends between two events (cancelled elsewhere) leaves no run behind."""
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
        channel: Channel | None = getattr(self, "_channel", None)  # None: the prompt was refused
        if channel is not None and not channel.ended:
            channel.end()
            self._cancel()

    def _cancel(self) -> None:
        if self._run is not None:
            self._run.cancel.set()


class AsyncRuntime:
    """Runtime for asyncio: `async for event in runtime.prompt(...)`. Every name means the same."""

    def __init__(self, config: Config | None = None, **settings: Unpack[Settings]) -> None:
        if config is not None and settings:
            raise TypeError("give a Config or keyword arguments, not both")
        config = config or Config(**settings)
        self._loop: asyncio.AbstractEventLoop | None = None
        looped = replace(
            config,
            tools=self._looped(config.tools),
            on_agent_event=self._heard_in_loop(config.on_agent_event),
        )
        self._runtime = Runtime(looped)

    def prompt(
        self,
        text: str,
        images: Sequence[Image] = (),
        *,
        limits: Limits | None = None,
        run: str = "",
    ) -> AsyncEventStream:
        """Start a prompt; raises as `Runtime.prompt` does."""
        self._loop = asyncio.get_running_loop()
        start = partial(self._runtime._start, text, images, limits, run)
        return AsyncEventStream(start)

    def resume(self) -> AsyncEventStream | None:
        """Go on with a durable run that was cut off; as `Runtime.resume`."""
        self._loop = asyncio.get_running_loop()
        try:
            return AsyncEventStream(self._runtime._resume)
        except NothingToResume:
            return None

    def resume_run(self, run: str, *, go_on: bool = True) -> AsyncEventStream:
        self._loop = asyncio.get_running_loop()
        return AsyncEventStream(partial(self._runtime._resume_run, run, go_on))

    async def events(self, after: int = 0, limit: int = 1000) -> EventsRead:
        """What was told before, also by processes before this one; as `Runtime.events`."""
        return await asyncio.to_thread(self._runtime.events, after, limit)

    def retry(self, *, limits: Limits | None = None) -> AsyncEventStream:
        """Have the last prompt answered once more; raises as `Runtime.retry` does."""
        self._loop = asyncio.get_running_loop()
        return AsyncEventStream(partial(self._runtime._retry, limits))

    def cancel(self) -> bool:
        return self._runtime.cancel()

    def steer(self, text: str, images: Sequence[Image] = ()) -> bool:
        return self._runtime.steer(text, images)

    def follow_up(self, text: str, images: Sequence[Image] = ()) -> bool:
        return self._runtime.follow_up(text, images)

    async def compact(self, instructions: str | None = None) -> CompactResult:
        """As `Runtime.compact`; cancelling the task cancels it."""
        work = asyncio.ensure_future(asyncio.to_thread(self._runtime.compact, instructions))
        try:
            return await asyncio.shield(work)
        except asyncio.CancelledError:
            self._runtime.cancel()
            await asyncio.wait([work], timeout=STOP_SECONDS)
            if work.done() and not work.cancelled():
                work.exception()  # seen: it is what the cancel made of it
            raise

    def state(self) -> State:
        return self._runtime.state()

    def messages(self) -> tuple[MessageShape, ...]:
        return self._runtime.messages()

    def full_messages(self) -> tuple[Message, ...]:
        return self._runtime.full_messages()

    def set_messages(self, messages: Iterable[Message | MessageShape]) -> None:
        self._runtime.set_messages(messages)

    def clear(self) -> None:
        self._runtime.clear()

    async def set_model(self, model: str, provider: str = "") -> None:
        await asyncio.to_thread(self._runtime.set_model, model, provider)

    def set_reasoning(self, level: Level, *, clamp: bool = False) -> Level:
        return self._runtime.set_reasoning(level, clamp=clamp)

    async def set_jail(self, on: bool) -> None:
        await asyncio.to_thread(self._runtime.set_jail, on)

    def cost(self) -> UsageShape:
        return self._runtime.cost()

    async def list_models(self, *, everywhere: bool = False) -> tuple[ModelShape, ...]:
        return await asyncio.to_thread(partial(self._runtime.list_models, everywhere=everywhere))

    # --- sessions ----------------------------------------------------------------------------

    async def session(self) -> SessionInfo:
        return await asyncio.to_thread(self._runtime.session)

    async def sessions(
        self, *, everywhere: bool = False, limit: int = 100
    ) -> Sequence[SessionInfo]:
        work = partial(self._runtime.sessions, everywhere=everywhere, limit=limit)
        return await asyncio.to_thread(work)

    async def new_session(self) -> SessionInfo:
        return await asyncio.to_thread(self._runtime.new_session)

    async def load_session(self, session: str | os.PathLike[str]) -> SessionInfo:
        return await asyncio.to_thread(self._runtime.load_session, session)

    async def fork_session(
        self,
        session: str | os.PathLike[str] = "",
        at: str | int | None = None,
        *,
        load: bool = True,
    ) -> SessionInfo:
        work = partial(self._runtime.fork_session, session, at, load=load)
        return await asyncio.to_thread(work)

    async def export_session(
        self,
        session: str | os.PathLike[str] = "",
        format: ExportFormat = "zotsession",
        path: str | os.PathLike[str] = "",
    ) -> str:
        return await asyncio.to_thread(self._runtime.export_session, session, format, path)

    def checkpoints(self) -> Sequence[Checkpoint]:
        return self._runtime.checkpoints()

    async def rewind(
        self,
        to: str = "",
        *,
        conversation: bool = True,
        files: bool = True,
        preview: bool = False,
        force: bool = False,
    ) -> Rewound:
        work = partial(
            self._runtime.rewind,
            to,
            conversation=conversation,
            files=files,
            preview=preview,
            force=force,
        )
        return await asyncio.to_thread(work)

    async def changed_files(self) -> Sequence[ChangedFile]:
        return await asyncio.to_thread(self._runtime.changed_files)

    # --- agents beside it --------------------------------------------------------------------

    @property
    def name(self) -> str:
        return self._runtime.name

    async def open_agent(self, agent: str = "", **options: Unpack[AgentOptions]) -> AsyncRuntime:
        opened = AsyncRuntime.__new__(AsyncRuntime)
        opened._loop = self._loop = asyncio.get_running_loop()
        work = partial(self._runtime.open_agent, agent, **options)
        opened._runtime = await asyncio.to_thread(work)
        return opened

    def list_agents(self) -> tuple[AgentInfo, ...]:
        return self._runtime.list_agents()

    async def close_agent(self, agent: str) -> None:
        await asyncio.to_thread(self._runtime.close_agent, agent)

    # --- commands, questions, the shell ------------------------------------------------------

    async def commands(self) -> Sequence[CommandInfo]:
        return await asyncio.to_thread(self._runtime.commands)

    async def run_command(self, name: str, args: str = "") -> CommandResult:
        return await asyncio.to_thread(self._runtime.run_command, name, args)

    async def reload_extensions(self) -> Sequence[ExtensionState]:
        return await asyncio.to_thread(self._runtime.reload_extensions)

    def panel_key(self, extension: str, panel_id: str, key: str, text: str = "") -> None:
        self._runtime.panel_key(extension, panel_id, key, text)

    def panel_resize(self, extension: str, panel_id: str, width: int, height: int) -> None:
        self._runtime.panel_resize(extension, panel_id, width, height)

    def panel_close(self, extension: str, panel_id: str) -> None:
        self._runtime.panel_close(extension, panel_id)

    async def run_shell(self, command: str, *, hidden: bool = False) -> ShellOutput:
        """As `Runtime.run_shell`; cancelling the task ends the command."""
        work = partial(self._runtime.run_shell, command, hidden=hidden)
        running = asyncio.ensure_future(asyncio.to_thread(work))
        try:
            return await asyncio.shield(running)
        except asyncio.CancelledError:
            self._runtime.abort_shell()
            await asyncio.wait([running], timeout=STOP_SECONDS)
            raise

    def abort_shell(self) -> None:
        self._runtime.abort_shell()

    def approve(
        self,
        request_id: str,
        decision: Decision,
        reason: str = "",
        *,
        pattern: str = "",
        args: dict[str, Json] | None = None,
    ) -> None:
        self._runtime.approve(request_id, decision, reason, pattern=pattern, args=args)

    def approvals(self) -> Sequence[Rule]:
        return self._runtime.approvals()

    def remove_approval(self, tool: str, pattern: str) -> None:
        self._runtime.remove_approval(tool, pattern)

    def questions(self) -> tuple[frames.ApprovalRequest | frames.ExtAsk, ...]:
        return self._runtime.questions()

    def answer(
        self,
        request_id: str,
        value: str | None = None,
        *,
        confirmed: bool = False,
        cancelled: bool = False,
    ) -> None:
        self._runtime.answer(request_id, value, confirmed=confirmed, cancelled=cancelled)

    async def close(self) -> None:
        await asyncio.to_thread(self._runtime.close)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    def _looped(self, tools: Tools | None) -> Tools | None:
        """The tools, those that are coroutines bound to the loop of the prompt."""
        if tools is None:
            return None
        return [self._in_loop(item) for item in tools]

    def _heard_in_loop(
        self, listener: Callable[[AgentEvent], None] | None
    ) -> Callable[[AgentEvent], None] | None:
        """What the agents do is told in the loop of the prompt, in order."""
        if listener is None:
            return None

        def hear(event: AgentEvent) -> None:
            try:
                self._running_loop().call_soon_threadsafe(listener, event)
            except RuntimeError:
                pass  # the loop has been closed: nobody listens any more

        return hear

    def _in_loop(self, item: AnyTool) -> AnyTool:
        if asyncio.iscoroutinefunction(item):
            item = function_tool(item)
        if isinstance(item, FunctionTool) and item.is_async:
            return LoopTool(item, self._running_loop)
        return item

    def _running_loop(self) -> asyncio.AbstractEventLoop:
        assert self._loop is not None  # a tool runs in a prompt, and a prompt has a loop
        return self._loop


async def follow_async(
    session: str | os.PathLike[str], after: int = 0, *, once: bool = False
) -> AsyncIterator[KeptEvent]:
    """`follow` for a loop: cancelling the task that reads it ends it."""
    while True:
        page = await asyncio.to_thread(_page, session, after)
        for kept in page:
            after = kept.seq
            yield kept
        if not page:
            if once:
                return
            await asyncio.sleep(TICK)


def _page(session: str | os.PathLike[str], after: int) -> list[KeptEvent]:
    return list(islice(follow(session, after, once=True), PAGE))
