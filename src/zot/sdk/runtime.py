"""The runtime for embedders: the same runs as in `zot rpc`, as iterators of typed events."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterable, Sequence
from functools import wraps
from typing import Concatenate, ParamSpec, Self, TypeVar, Unpack, get_args

import msgspec

from zot.build import Additions, approval_for, build_runtime
from zot.core.agent import Limits
from zot.core.hook import ApprovalMode, Rule
from zot.core.session import ExportFormat, SessionInfo
from zot.core.shell import ShellOutput
from zot.core.source import CommandInfo, CommandResult
from zot.errors import BusyError, ClosedError, CommandError, ConfigError, NotFoundError
from zot.provider.types import Image, Level, Message, ToolCall
from zot.runtime import runtime as inner
from zot.runtime.agents import AgentInfo
from zot.runtime.commands import Commands
from zot.runtime.dialogs import OpenDialogs
from zot.runtime.rewind import SessionHistory
from zot.runtime.run import Run, StoredEnd
from zot.runtime.sessions import SessionChoice
from zot.runtime.shell import UserShell
from zot.sdk.config import (
    Config,
    Settings,
    check_level,
    config_of,
    hooks_of,
    own_tools,
    plan_of,
    python_words,
    shows_settings,
)
from zot.sdk.listener import AgentOptions, RunEvents, request_of
from zot.sdk.messages import checked_images, full_message
from zot.sdk.output import schema_of
from zot.sdk.stream import (
    STOP_SECONDS,
    Answer,
    AnswerParts,
    Channel,
    CompactResult,
    EventStream,
    NothingToResume,
)
from zot.wire import encode, frames
from zot.wire.encode import approval_request, extension_ask, message_shape, usage_shape
from zot.wire.eventlog import events_read
from zot.wire.frames import MessageShape, UsageShape
from zot.wire.shapes import EventsRead, McpServerShape, ModelShape, State

P = ParamSpec("P")
T = TypeVar("T")
Part = TypeVar("Part")
Notify = Callable[[], None] | None


def while_open(
    part: Callable[[inner.Runtime], Part], method: Callable[Concatenate[Part, P], T]
) -> Callable[Concatenate[Runtime, P], T]:
    """Wrap a method of a part of the inner runtime; raises ClosedError after `close`."""

    @wraps(method)
    def call(self: Runtime, /, *args: P.args, **options: P.kwargs) -> T:
        return method(part(self._open()), *args, **options)

    return call


def when_idle(
    part: Callable[[inner.Runtime], Part], method: Callable[Concatenate[Part, P], T]
) -> Callable[Concatenate[Runtime, P], T]:
    """Like `while_open`, for changes of the conversation: waits for an aborted run to stop; raises
    BusyError if a run is active."""

    @wraps(method)
    def call(self: Runtime, /, *args: P.args, **options: P.kwargs) -> T:
        with self._lock:
            return method(part(self._idle()), *args, **options)

    return call


class Runtime:
    """An agent with one transcript. Thread-safe; a process can have many."""

    @shows_settings
    def __init__(self, config: Config | None = None, **settings: Unpack[Settings]) -> None:
        """Take a Config, or its fields as keyword arguments.

        Raises:
            ConfigError: a setting cannot be used; the text says what to do.
            AuthError: there is no key for the provider.
        """
        config = config_of(config, settings)
        with python_words():
            self._build(config)

    def _build(self, config: Config) -> None:
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
        """Name of an agent that another one opened, else empty."""
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
        schema: object = None,
    ) -> EventStream:
        """Start a prompt; return an iterator of its events, the last one Done.

        `limits` replace those of the settings. `run`: your name for a durable run. A known name
        starts no new run: the events are those of the run in progress, or `end` has its outcome.
        `call`: a tool call to run first, as if the model had requested it; the result of a command
        may have one. `schema`: type that the answer must have, as in `ask`.

        Raises:
            BusyError: another prompt or compact runs, or one was interrupted (see `resume`).
            CommandError: the prompt is empty, or an image is not one that models take.
        """
        started = self._start(None, text, images, limits=limits, run=run, call=call, schema=schema)
        return EventStream(*started)

    def ask(
        self,
        text: str,
        images: Sequence[Image] = (),
        *,
        limits: Limits | None = None,
        schema: object = None,
    ) -> Answer:
        """Run a prompt to its end and return the whole answer.

        `schema`: type of the answer, which is then in `output`: a msgspec struct, dataclass,
        TypedDict, pydantic model, or a JSON Schema as a dictionary.

        Raises:
            BusyError: another prompt or compact runs.
            InvalidOutput: the answer does not fit the schema, not even at the second try.
            ZotError: the run failed or was aborted; see `EventStream.raise_for_error`.
        """
        parts = AnswerParts()
        with self.prompt(text, images, limits=limits, schema=schema) as stream:
            for event in stream:
                parts.take(event)
        stream.raise_for_error()
        return parts.answer(schema)

    def resume(self) -> EventStream | None:
        """Continue an interrupted durable run and the runs queued behind it; None: there is none,
        or it continues already.

        Raises:
            CommandError: it is held (code `held`): continue it with `resume_run`.
        """
        try:
            return EventStream(*self._resume(None))
        except NothingToResume:
            return None

    def resume_run(self, run: str, *, go_on: bool = True) -> EventStream:
        """Continue a run that is held after a crash, or end it as failed. Raises CommandError."""
        return EventStream(*self._resume_run(None, run, go_on=go_on))

    def events(self, after: int = 0, limit: int = 1000) -> EventsRead:
        """Return the events of a durable session after a number (`EventStream.seq`), also those of
        earlier processes, as objects; `parse_frame` converts them to events. While `more` is true,
        call it again with `last`. Other processes read them with `follow`.

        Raises:
            CommandError: this runtime is not durable.
        """
        runtime, log = self._open(), self._reader.log
        if log is None:
            raise NotFoundError("events are kept only by a durable runtime")
        page = log.read(self._reader.features, after, limit)
        return events_read(page, runtime, self.state, msgspec.json.decode)

    def retry(self, *, limits: Limits | None = None) -> EventStream:
        """Retry the last prompt, which failed or was aborted, with the current model and
        credential; its message is not added again.

        Raises:
            BusyError: another prompt or compact runs.
            CommandError: the last prompt was answered.
        """
        return EventStream(*self._retry(None, limits=limits))

    def cancel(self) -> bool:
        """Abort the current run; its events still end with Done. Return False if there is none."""
        return self._open().abort()

    def steer(self, text: str, images: Sequence[Image] = ()) -> bool:
        """Send the model a message after the current tool; False: no prompt runs, no effect."""
        return self._open().steer(text, checked_images(images))

    def follow_up(self, text: str, images: Sequence[Image] = ()) -> bool:
        """Send the model a message when it would stop; otherwise as `steer`."""
        return self._open().follow(text, checked_images(images))

    def compact(self, instructions: str | None = None) -> CompactResult:
        """Replace all but the latest part of the transcript with a summary written by the model.

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
        """Return the state, as `get_state` of the wire does."""
        return encode.state(self._open())

    def servers(self) -> tuple[McpServerShape, ...]:
        """Return the configured MCP servers and their states; starts none."""
        return encode.servers(self._open().sources.servers())

    def messages(self) -> tuple[MessageShape, ...]:
        """Return the transcript, as `get_messages` of the wire does: images as a count of bytes."""
        return tuple(message_shape(message) for message in self.full_messages())

    def full_messages(self) -> tuple[Message, ...]:
        """Return the complete transcript, with images, reasoning and tool details."""
        return self._open().session.messages()

    def set_messages(self, messages: Iterable[Message | MessageShape]) -> None:
        """Replace the transcript.

        Raises:
            BusyError: a prompt or compact runs; nothing changes.
            CommandError: an image without its data (use `full_messages` to get it).
        """
        full = [full_message(message) for message in messages]
        with self._lock:
            self._idle().sessions.set_messages(full)

    clear = when_idle(lambda runtime: runtime.sessions, SessionChoice.clear)

    def set_model(self, model: str, provider: str = "") -> None:
        """Switch to a model of this or another provider: an id, or PROVIDER/ID.

        Raises:
            BusyError: a prompt or compact runs; nothing changes.
            ConfigError: there is no such model; nothing changes.
            AuthError: its provider has no credential; nothing changes.
        """
        with self._lock:
            self._idle().models.set(model, provider)

    def set_reasoning(self, level: Level, *, clamp: bool = False) -> Level:
        """Set the reasoning level and return it; `clamp` adjusts it to what the model supports.

        Raises BusyError when a prompt or compact runs, ConfigError for an unknown level.
        """
        check_level(level)
        with self._lock:
            return self._idle().models.set_reasoning(level, clamp=clamp)

    set_jail = when_idle(lambda runtime: runtime.shell, UserShell.set_jail)

    def set_mode(self, mode: ApprovalMode) -> None:
        """Choose what runs without approval, from the next tool call on: `ask` (as configured),
        `ask_all` (nothing), `edits` (changes of the project's files), `plan` (only tools that read;
        others are refused) or `yolo` (everything).

        Raises ConfigError when there is no such mode, or nobody to ask.
        """
        if mode not in get_args(ApprovalMode):
            known = ", ".join(get_args(ApprovalMode))
            raise ConfigError(f"there is no mode {mode!r}; there is: {known}")
        self._open().approvals.set_mode(mode)

    def cost(self) -> UsageShape:
        """Return tokens and US dollars used so far."""
        return usage_shape(self._open().state().usage)

    def list_models(self, *, everywhere: bool = False) -> tuple[ModelShape, ...]:
        """Return the models of this provider, or of every provider with a credential."""
        runtime = self._open()
        models = runtime.models.all("" if everywhere else runtime.models.current.provider)
        return encode.models(models)

    # --- sessions ----------------------------------------------------------------------------

    def session(self) -> SessionInfo:
        """Return a summary of the current session."""
        return self._open().sessions.info()

    def sessions(self, *, everywhere: bool = False, limit: int = 100) -> Sequence[SessionInfo]:
        """Return the stored sessions of this directory, or of all; latest first."""
        return self._open().sessions.list(everywhere=everywhere, limit=limit)

    def new_session(self) -> SessionInfo:
        """Start a new session; the previous one is kept. Raises BusyError."""
        with self._lock:
            return self._idle().sessions.new()

    def load_session(self, session: str | os.PathLike[str]) -> SessionInfo:
        """Continue a stored session with its last model and reasoning level. `session` is a path,
        the beginning of an id, or `latest`.

        Raises BusyError, and SessionError when there is none or it cannot be used.
        """
        with self._lock:
            return self._idle().sessions.load(os.fspath(session))

    def fork_session(
        self,
        session: str | os.PathLike[str] = "",
        at: str | int | None = None,
        *,
        load: bool = True,
    ) -> SessionInfo:
        """Copy a session (default: the current one), up to an entry or a number of messages, and
        continue with the copy if `load`.

        Raises BusyError, and SessionError when it cannot be copied.
        """
        with self._lock:
            return self._idle().sessions.fork(os.fspath(session), at, load=load)

    def export_session(
        self,
        session: str | os.PathLike[str] = "",
        format: ExportFormat = "zotsession",
        path: str | os.PathLike[str] = "",
    ) -> str:
        """Export a session; return the text, or the file's path if `path` is given."""
        target = os.fspath(path)
        exported = self._open().sessions.export(os.fspath(session), format, target)
        return exported.path if target else exported.content

    checkpoints = while_open(lambda runtime: runtime.history, SessionHistory.checkpoints)
    rewind = when_idle(lambda runtime: runtime.history, SessionHistory.rewind)
    changed_files = while_open(lambda runtime: runtime.history, SessionHistory.changed_files)

    # --- commands, questions, the shell ------------------------------------------------------

    def commands(self) -> Sequence[CommandInfo]:
        """Return the slash commands; waits until extensions are ready."""
        return self._open().commands.all()

    def run_command(self, name: str, args: str = "") -> CommandResult:
        """Run a command of an extension, a skill or a prompt file. If the result has the action
        `prompt`, the caller passes its text and `call` to `prompt`.

        Raises:
            CommandError: there is no such command.
        """
        return self._open().commands.run(name, args)

    reload_extensions = when_idle(lambda runtime: runtime.commands, Commands.reload_extensions)
    panel_key = while_open(lambda runtime: runtime.commands, Commands.panel_key)
    panel_resize = while_open(lambda runtime: runtime.commands, Commands.panel_resize)
    panel_close = while_open(lambda runtime: runtime.commands, Commands.panel_close)

    def run_shell(self, command: str, *, hidden: bool = False) -> ShellOutput:
        """Run a shell command of the user. The command and its output are added to the transcript;
        the model sees them unless `hidden`. `abort_shell` ends the command.

        Raises:
            CommandError, ToolError: the command is empty, or could not be started.
        """
        return self._open().shell.run(command, hidden=hidden)

    def abort_shell(self) -> None:
        """Abort all running shell commands, without waiting for their end."""
        self._open().shell.abort()

    approve = while_open(lambda runtime: runtime, inner.Runtime.approve)

    def approvals(self) -> list[Rule]:
        """Return the rules that allow calls without asking, of the project and this session."""
        return self._open().approvals.rules()

    def remove_approval(self, tool: str, pattern: str) -> None:
        """Remove a rule. Raises CommandError when there is no such rule."""
        self._open().approvals.remove_rule(tool, pattern)

    def questions(self) -> tuple[frames.ApprovalRequest | frames.ExtAsk, ...]:
        """Return the questions that wait for `approve` or `answer`."""
        runtime = self._open()
        approvals = map(approval_request, runtime.approvals.open_requests())
        return (*approvals, *map(extension_ask, runtime.dialogs.open()))

    answer = while_open(lambda runtime: runtime.dialogs, OpenDialogs.answer)

    # --- other agents ------------------------------------------------------------------------

    def open_agent(self, agent: str = "", **options: Unpack[AgentOptions]) -> Runtime:
        """Open another agent, which shares this one's helper process and is closed with it. Options
        left out are as here, but the conversation is new. Without a name, one is generated.

        Raises:
            CommandError: the name is taken (code `exists`), or there are too many agents.
            ConfigError, AuthError, SessionError: the options cannot be used.
        """
        opened = Runtime.__new__(Runtime)
        opened._reader = RunEvents(self._reader.features, self._reader.on_agent_event)
        with python_words():
            name, runtime = self._open().agents.open(
                agent, request_of(options), lambda name: opened._reader
            )
        opened._use(runtime)
        opened.name, opened._opener = name, self
        return opened

    def list_agents(self) -> tuple[AgentInfo, ...]:
        """Return the agents that this runtime opened."""
        return tuple(self._open().agents.list())

    def close_agent(self, agent: str) -> None:
        """Abort and close an agent. Raises CommandError if there is none."""
        self._open().agents.close(agent)

    # --- end ---------------------------------------------------------------------------------

    def close(self) -> None:
        """Abort the current run, and close connections, processes and files. Idempotent. A durable
        run does not end: it continues with the next runtime on its session."""
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
            pass  # closed already, with the agent that opened it

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    # --- inside ------------------------------------------------------------------------------

    # Each method starts a run and returns it with the channel of its events; `notify` is called
    # on every event.

    def _start(
        self,
        notify: Notify,
        text: str,
        images: Sequence[Image] = (),
        *,
        limits: Limits | None = None,
        run: str = "",
        call: ToolCall | None = None,
        schema: object = None,
    ) -> tuple[Run | StoredEnd, Channel]:
        if not isinstance(text, str):
            raise CommandError(f"invalid_params: the prompt must be a string, not {text!r:.80}")
        pictures = checked_images(images)
        channel = Channel(notify)
        with python_words(), self._lock:
            if run and (known := self._known(run, channel)) is not None:
                return known, channel
            runtime = self._idle()
            self._reader.channel = channel
            self._run = started = runtime.prompt(
                text,
                pictures,
                tag=channel,
                limits=limits,
                run_id=run,
                call=call,
                schema=None if schema is None else schema_of(schema),
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
        """Return the run of this name, with its events sent to the channel, or its stored end."""
        runtime = self._open()
        runtime.runs.recover(lambda text: channel)
        known = runtime.runs.find(name, channel, lambda ahead: None)
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
            runs = runtime.runs.recover(lambda text: channel)
            if runs:
                self._reader.channel, self._run = channel, runs[0]
                return runs[0], channel
            held = runtime.runs.held
        if held is not None:
            raise CommandError(f"the run {held.run!r} is held: {held.reason}", code="held")
        raise NothingToResume

    def _resume_run(
        self, notify: Notify, run: str, *, go_on: bool = True
    ) -> tuple[Run | StoredEnd, Channel]:
        channel = Channel(notify)
        with self._lock:
            runtime = self._open()
            runtime.runs.recover(lambda text: channel)
            self._reader.channel = channel
            self._run = resumed = runtime.runs.resume(run, go_on=go_on)[0]
            resumed.tag = channel
        return resumed, channel

    def _idle(self) -> inner.Runtime:
        """Return the inner runtime after an aborted run has stopped. Raises BusyError: one runs."""
        runtime = self._open()
        if self._run is not None and self._stopping():
            self._run.ended.wait(STOP_SECONDS)
        if runtime.runs.busy:
            raise BusyError("the runtime is busy: a prompt or compact runs; wait or cancel it")
        return runtime

    def _stopping(self) -> bool:
        """Return whether a run was aborted and has not ended yet."""
        return self._inner.runs.busy and self._run is not None and self._run.cancel.is_set()

    def _change_waits(self) -> bool:
        """Return whether a change would wait for a run to stop or for commands to end."""
        return not self._closed and (self._stopping() or self._inner.shell.has_background)

    def _open(self) -> inner.Runtime:
        if self._closed:
            raise ClosedError("the runtime was closed")
        return self._inner
