"""The runtime as an embedder holds it: the same runs as `zot rpc`, as iterators of typed events."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterable, Sequence
from functools import wraps
from typing import Concatenate, ParamSpec, Self, TypeVar, Unpack

import msgspec

from zot.build import Additions, approval_for, build_runtime
from zot.core.agent import Limits
from zot.core.session import ExportFormat, SessionInfo
from zot.core.shell import ShellOutput
from zot.core.source import CommandInfo, CommandResult
from zot.errors import BusyError, ClosedError, CommandError, NotFoundError
from zot.provider.types import Image, Level, Message, ToolCall
from zot.runtime import runtime as inner
from zot.runtime.agents import AgentInfo
from zot.runtime.run import Run, StoredEnd
from zot.sdk.answer import Answer, AnswerParts
from zot.sdk.config import Config, Settings, check_level, config_of, hooks_of, own_tools, plan_of
from zot.sdk.listener import AgentOptions, RunEvents, request_of
from zot.sdk.messages import full_message
from zot.sdk.stream import STOP_SECONDS, Channel, EventStream
from zot.text import Frozen
from zot.wire import frames, zot_replies
from zot.wire.frames import MessageShape, UsageShape
from zot.wire.kept import events_read
from zot.wire.shapes import EventsRead, McpServerShape, ModelShape, State
from zot.wire.zot_events import approval_request, extension_ask, message_shape, usage_shape

Asked = ParamSpec("Asked")
Told = TypeVar("Told")
Notify = Callable[[], None] | None


class CompactResult(Frozen):
    summary: str
    messages: tuple[MessageShape, ...]


class NothingToResume(Exception):
    """No run was cut off."""


def while_open(
    method: Callable[Concatenate[inner.Runtime, Asked], Told],
) -> Callable[Concatenate[Runtime, Asked], Told]:
    """The method as it is; raises ClosedError after `close`."""

    @wraps(method)
    def call(self: Runtime, /, *args: Asked.args, **options: Asked.kwargs) -> Told:
        return method(self._open(), *args, **options)

    return call


def when_idle(
    method: Callable[Concatenate[inner.Runtime, Asked], Told],
) -> Callable[Concatenate[Runtime, Asked], Told]:
    """The same for what changes the conversation: a run that was aborted gets its moment to stop,
    and BusyError is raised while one goes on."""

    @wraps(method)
    def call(self: Runtime, /, *args: Asked.args, **options: Asked.kwargs) -> Told:
        with self._lock:
            return method(self._idle(), *args, **options)

    return call


class Runtime:
    """One agent with one transcript. Safe to call from any thread; many live side by side."""

    def __init__(self, config: Config | None = None, **settings: Unpack[Settings]) -> None:
        """Takes a Config, or its fields as keyword arguments.

        Raises:
            ConfigError: something that cannot be used; says what to do.
            AuthError: there is no key for the provider.
        """
        config = config_of(config, settings)
        plan = plan_of(config)
        options = plan.setup.options
        self._reader = reader = RunEvents(frozenset(config.features), config.on_agent_event)
        approval = None
        if "approvals" in config.features:
            approval = approval_for(options, reader)
        added = Additions(
            approval=approval,
            tools=own_tools(config),
            hooks=hooks_of(config),
            mcp_servers=config.mcp_servers,
        )
        runtime = build_runtime(plan, reader, added)
        try:
            reader.agent_opened(runtime)
        except BaseException:
            runtime.release()
            raise
        self._use(runtime)

    def _use(self, runtime: inner.Runtime) -> None:
        self.name = ""
        """Of an agent that another one opened."""
        self._opener: Runtime | None = None
        self._inner = runtime
        self._lock = threading.Lock()
        self._closed = False
        self._run: Run | None = None

    # --- runs --------------------------------------------------------------------------------

    def prompt(
        self,
        text: str,
        images: Sequence[Image] = (),
        *,
        limits: Limits | None = None,
        run: str = "",
        call: ToolCall | None = None,
    ) -> EventStream:
        """Start a prompt; the iterator gives its events, last of all Done.

        `limits` take the place of those of the settings. `run`: your own name for a durable run;
        under a name that is known nothing is run again: the events are those of the run that goes
        on, or `end` says how it ended. `call`: a tool that runs first, as if the model had asked
        for it; the result of a command may have one.

        Raises:
            BusyError: another prompt or compact runs, or one was cut off (see `resume`).
            CommandError: there is nothing to say, or an image that no model takes.
        """
        return EventStream(*self._start(None, text, images, limits=limits, run=run, call=call))

    def ask(
        self, text: str, images: Sequence[Image] = (), *, limits: Limits | None = None
    ) -> Answer:
        """Run a prompt to its end and return the whole answer.

        Raises:
            BusyError: another prompt or compact runs.
            ZotError: the run failed or was aborted; see `EventStream.raise_for_error`.
        """
        parts = AnswerParts()
        with self.prompt(text, images, limits=limits) as stream:
            for event in stream:
                parts.take(event)
        stream.raise_for_error()
        return parts.answer()

    def resume(self) -> EventStream | None:
        """Go on with a durable run that was cut off, and with what waited behind it; None: there
        is none, or it goes on already.

        Raises:
            CommandError: it is held (code `held`): `resume_run` lets it go on.
        """
        try:
            return EventStream(*self._resume(None))
        except NothingToResume:
            return None

    def resume_run(self, run: str, *, go_on: bool = True) -> EventStream:
        """Let a run go on that is held after a crash, or end it as failed. Raises CommandError."""
        return EventStream(*self._resume_run(None, run, go_on=go_on))

    def events(self, after: int = 0, limit: int = 1000) -> EventsRead:
        """The events of a durable session behind a number (`EventStream.seq`), also those of
        processes before this one: objects, of which `parse_frame` makes events. Ask again from
        `last` while there is `more`. `follow` reads them from elsewhere.

        Raises:
            CommandError: this runtime is not durable.
        """
        runtime, kept = self._open(), self._reader.kept
        if kept is None:
            raise NotFoundError("events are kept only by a durable runtime")
        page = kept.read(self._reader.features, after, limit)
        return events_read(page, runtime, self.state, msgspec.json.decode)

    def retry(self, *, limits: Limits | None = None) -> EventStream:
        """Have the last prompt answered once more, which failed or was aborted: with the model and
        the credential of now, and without saying it again.

        Raises:
            BusyError: another prompt or compact runs.
            CommandError: the last prompt was answered.
        """
        return EventStream(*self._retry(None, limits=limits))

    def cancel(self) -> bool:
        """Abort what runs; False if nothing does. Its events still end with Done."""
        return self._open().abort()

    def steer(self, text: str, images: Sequence[Image] = ()) -> bool:
        """Have a message heard after the current tool; False: no prompt runs, nothing was done."""
        return self._open().steer(text, checked(images))

    def follow_up(self, text: str, images: Sequence[Image] = ()) -> bool:
        """Have a message heard when the model would stop; otherwise as `steer`."""
        return self._open().follow(text, checked(images))

    def compact(self, instructions: str | None = None) -> CompactResult:
        """Replace all but the latest of the transcript by a summary that the model writes.

        Raises:
            BusyError: another prompt or compact runs.
            ZotError: there is nothing to compact, the model failed, or it was cancelled.
        """
        run, channel = self._begin(
            None, lambda runtime, channel: runtime.compact(instructions or "", tag=channel)
        )
        summary = ""
        for event in EventStream(run, channel):
            if isinstance(event, frames.CompactDone):
                summary = event.summary
        if run.error is not None:
            raise run.error
        if run.stop == "aborted":
            raise CommandError("the compact was cancelled", code="aborted")
        return CompactResult(summary, self.messages())

    # --- state -------------------------------------------------------------------------------

    def state(self) -> State:
        return zot_replies.state(self._open().state())

    def servers(self) -> tuple[McpServerShape, ...]:
        """The MCP servers it was given, as they are now; none is started by asking."""
        return zot_replies.servers(self._open().servers())

    def messages(self) -> tuple[MessageShape, ...]:
        """The transcript, as `get_messages` of the wire shows it: images as a count of bytes."""
        return tuple(message_shape(message) for message in self.full_messages())

    def full_messages(self) -> tuple[Message, ...]:
        """The transcript with everything in it: images, reasoning, tool details."""
        return self._open().session.messages()

    def set_messages(self, messages: Iterable[Message | MessageShape]) -> None:
        """Go on from another transcript.

        Raises:
            BusyError: a prompt or compact runs; nothing changes.
            CommandError: an image without its data (take `full_messages` for those).
        """
        full = [full_message(message) for message in messages]
        with self._lock:
            self._idle().set_messages(full)

    clear = when_idle(inner.Runtime.clear)

    def set_model(self, model: str, provider: str = "") -> None:
        """Go on with another model, of this or another provider: an id, or PROVIDER/ID.

        Raises:
            BusyError: a prompt or compact runs; nothing changes.
            ConfigError: there is no such model; nothing changes.
            AuthError: its provider has no credential; nothing changes.
        """
        with self._lock:
            self._idle().set_model(model, provider)

    def set_reasoning(self, level: Level, *, clamp: bool = False) -> Level:
        """How much to think; `clamp`: as far as the present model can. The level it is.

        Raises BusyError when a prompt or compact runs, ConfigError for an unknown level.
        """
        check_level(level)
        with self._lock:
            return self._idle().set_reasoning(level, clamp=clamp)

    set_jail = when_idle(inner.Runtime.set_jail)

    def cost(self) -> UsageShape:
        """Tokens and US dollars of everything so far."""
        return usage_shape(self._open().state().usage)

    def list_models(self, *, everywhere: bool = False) -> tuple[ModelShape, ...]:
        """The models of this provider, or of every one with a credential."""
        runtime = self._open()
        models = runtime.models.all("" if everywhere else runtime.model.provider)
        return zot_replies.models(models).models

    # --- sessions ----------------------------------------------------------------------------

    def session(self) -> SessionInfo:
        """The session in use, at a glance."""
        return self._open().session_info()

    def sessions(self, *, everywhere: bool = False, limit: int = 100) -> Sequence[SessionInfo]:
        """What is kept of this directory, or of all; latest first."""
        return self._open().list_sessions(everywhere=everywhere, limit=limit)

    def new_session(self) -> SessionInfo:
        """Begin anew; the session before it stays. Raises BusyError."""
        with self._lock:
            return self._idle().new_session()

    def load_session(self, session: str | os.PathLike[str]) -> SessionInfo:
        """Go on with a kept session, with the model and the level it was last used with: a path,
        the beginning of an id, or `latest`.

        Raises BusyError, and SessionError when there is none or it cannot be used.
        """
        with self._lock:
            return self._idle().load_session(os.fspath(session))

    def fork_session(
        self,
        session: str | os.PathLike[str] = "",
        at: str | int | None = None,
        *,
        load: bool = True,
    ) -> SessionInfo:
        """Copy a session (the current one), up to an entry or so many messages, and go on there.

        Raises BusyError, and SessionError when it cannot be copied.
        """
        with self._lock:
            return self._idle().fork_session(os.fspath(session), at, load=load)

    def export_session(
        self,
        session: str | os.PathLike[str] = "",
        format: ExportFormat = "zotsession",
        path: str | os.PathLike[str] = "",
    ) -> str:
        """A session as text, or as a file where a path is given; the text, or the file's path."""
        target = os.fspath(path)
        exported = self._open().export_session(os.fspath(session), format, target)
        return exported.path if target else exported.content

    checkpoints = while_open(inner.Runtime.checkpoints)
    rewind = when_idle(inner.Runtime.rewind)
    changed_files = while_open(inner.Runtime.changed_files)

    # --- commands, questions, the shell ------------------------------------------------------

    def commands(self) -> Sequence[CommandInfo]:
        """What a person can type after a slash; waits until extensions are ready."""
        return self._open().commands()

    def run_command(self, name: str, args: str = "") -> CommandResult:
        """Run a command of an extension, a skill or a prompt file. A result with the action
        `prompt` is for you to pass on to `prompt`, with its `call`.

        Raises:
            CommandError: there is no such command.
        """
        return self._open().run_command(name, args)

    reload_extensions = when_idle(inner.Runtime.reload_extensions)
    panel_key = while_open(inner.Runtime.panel_key)
    panel_resize = while_open(inner.Runtime.panel_resize)
    panel_close = while_open(inner.Runtime.panel_close)

    def run_shell(self, command: str, *, hidden: bool = False) -> ShellOutput:
        """Run a shell command of the user's; it and its output go into the transcript, which the
        model sees unless it is `hidden`. Ended by `abort_shell`.

        Raises:
            CommandError, ToolError: it is empty, or could not be started.
        """
        return self._open().run_shell(command, hidden=hidden)

    abort_shell = while_open(inner.Runtime.abort_shell)
    approve = while_open(inner.Runtime.approve)
    approvals = while_open(inner.Runtime.approvals)
    remove_approval = while_open(inner.Runtime.remove_approval)

    def questions(self) -> tuple[frames.ApprovalRequest | frames.ExtAsk, ...]:
        """What waits for `approve` or `answer`."""
        runtime = self._open()
        approvals = map(approval_request, runtime.open_requests())
        return (*approvals, *map(extension_ask, runtime.open_dialogs()))

    answer = while_open(inner.Runtime.answer)

    # --- agents beside it --------------------------------------------------------------------

    def open_agent(self, agent: str = "", **options: Unpack[AgentOptions]) -> Runtime:
        """One more agent beside this one, which shares its helper process and ends with it. What is
        left out is as here, but for the conversation, which begins anew. Without a name one is
        made up.

        Raises:
            CommandError: there is one of that name (code `exists`), or there are too many.
            ConfigError, AuthError, SessionError: it cannot be so.
        """
        opened = Runtime.__new__(Runtime)
        opened._reader = RunEvents(self._reader.features, self._reader.on_agent_event)
        name, runtime = self._open().agents.open(
            agent, request_of(options), lambda name: opened._reader
        )
        opened._use(runtime)
        opened.name, opened._opener = name, self
        return opened

    def list_agents(self) -> tuple[AgentInfo, ...]:
        """Those that were opened here."""
        return tuple(self._open().agents.list())

    def close_agent(self, agent: str) -> None:
        """Abort what an agent does and let go of it. Raises CommandError if there is none."""
        self._open().agents.close(agent)

    # --- end ---------------------------------------------------------------------------------

    def close(self) -> None:
        """Abort what runs, and let go of connections, processes and files. May be repeated. A
        durable run is not ended: it goes on with the next runtime on its session."""
        with self._lock:
            if self._closed:
                return
            self._closed = True
        if self._opener is None:
            self._inner.close(timeout=STOP_SECONDS)
            self._inner.release()
            self._reader.agent_closed()
            return
        try:
            self._opener._inner.agents.close(self.name)
        except CommandError:
            pass  # it is gone already, with the one that opened it

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    # --- inside ------------------------------------------------------------------------------

    # Each begins a run, and gives it with the channel of its events; `notify` is called whenever
    # one is there.

    def _start(
        self,
        notify: Notify,
        text: str,
        images: Sequence[Image] = (),
        *,
        limits: Limits | None = None,
        run: str = "",
        call: ToolCall | None = None,
    ) -> tuple[Run | StoredEnd, Channel]:
        if not isinstance(text, str):
            raise CommandError(f"invalid_params: the prompt must be a string, not {text!r:.80}")
        pictures = checked(images)
        channel = Channel(notify)
        with self._lock:
            if run and (known := self._known(run, channel)) is not None:
                return known, channel
            runtime = self._idle()
            self._reader.channel = channel
            self._run = started = runtime.prompt(
                text, pictures, tag=channel, limits=limits, run_id=run, call=call
            )
        return started, channel

    def _begin(
        self, notify: Notify, begin: Callable[[inner.Runtime, Channel], Run]
    ) -> tuple[Run, Channel]:
        channel = Channel(notify)
        with self._lock:
            runtime = self._idle()
            self._reader.channel = channel
            self._run = run = begin(runtime, channel)
        return run, channel

    def _known(self, name: str, channel: Channel) -> Run | StoredEnd | None:
        """The run of this name, its events bound for the channel; or its end."""
        runtime = self._open()
        runtime.recover(lambda text: channel)
        known = runtime.repeated(name, channel, lambda ahead: None)
        if isinstance(known, Run):
            self._reader.channel, self._run = channel, known
        elif known is not None:
            channel.put(frames.Done())
        return known

    def _retry(
        self, notify: Notify, *, limits: Limits | None = None
    ) -> tuple[Run | StoredEnd, Channel]:
        return self._begin(notify, lambda runtime, tag: runtime.retry(tag=tag, limits=limits))

    def _resume(self, notify: Notify) -> tuple[Run, Channel]:
        channel = Channel(notify)
        with self._lock:
            runtime = self._open()
            runs = runtime.recover(lambda text: channel)
            if runs:
                self._reader.channel, self._run = channel, runs[0]
                return runs[0], channel
            held = runtime.held
        if held is not None:
            raise CommandError(f"the run {held.run!r} is held: {held.reason}", code="held")
        raise NothingToResume

    def _resume_run(
        self, notify: Notify, run: str, *, go_on: bool = True
    ) -> tuple[Run | StoredEnd, Channel]:
        channel = Channel(notify)
        with self._lock:
            runtime = self._open()
            runtime.recover(lambda text: channel)
            self._reader.channel = channel
            self._run = resumed = runtime.resume_run(run, go_on=go_on)[0]
            resumed.tag = channel
        return resumed, channel

    def _idle(self) -> inner.Runtime:
        """The runtime, when nothing runs. One that was aborted gets its moment to stop."""
        runtime = self._open()
        if self._run is not None and self._stopping():
            self._run.ended.wait(STOP_SECONDS)
        if runtime.busy:
            raise BusyError("the runtime is busy: a prompt or compact runs; wait or cancel it")
        return runtime

    def _stopping(self) -> bool:
        """A run was aborted and has not ended yet."""
        return self._inner.busy and self._run is not None and self._run.cancel.is_set()

    def _change_waits(self) -> bool:
        """A change of the conversation would wait: for a run to stop, or for commands to end."""
        return not self._closed and (self._stopping() or self._inner.has_background)

    def _open(self) -> inner.Runtime:
        if self._closed:
            raise ClosedError("the runtime was closed")
        return self._inner


def checked(images: Sequence[Image]) -> Sequence[Image]:
    """What a type checker would say, for those who use none."""
    for image in images:
        if not isinstance(image, Image):
            raise CommandError(f"invalid_params: an image must be a zot Image, not {image!r:.80}")
    return images
