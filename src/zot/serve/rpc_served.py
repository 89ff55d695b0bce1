"""One agent on the zot wire: its commands become calls of its Runtime, its events frames."""

from __future__ import annotations

from _thread import allocate_lock, get_ident
from collections.abc import Callable, Collection
from functools import partial
from typing import TYPE_CHECKING, Any, assert_never

from msgspec import UNSET, Raw
from msgspec.json import decode
from msgspec.structs import replace

from zot.bugs import report_bug
from zot.errors import CommandError, NotFoundError, ZotError
from zot.later import Later, later
from zot.lines import Lane, encode_line
from zot.runtime.client import RuntimeClient
from zot.text import encode_json
from zot.wire import zot
from zot.wire.first import Hello, Ping, Prompt
from zot.wire.zot import Incoming

if TYPE_CHECKING:
    from zot.cancel import Cancel
    from zot.core import events
    from zot.core import image as images
    from zot.core.agent import Limits
    from zot.core.events import Event
    from zot.core.source import Question
    from zot.provider.types import Image
    from zot.runtime import run as runs
    from zot.runtime.run import Run
    from zot.runtime.runtime import Runtime
    from zot.serve import rpc_commands, rpc_sessions
    from zot.serve.rpc import RpcServer
    from zot.serve.rpc_commands import SlowCommands
    from zot.wire import commands, kept, zot_events, zot_replies
    from zot.wire.commands import AnyCommand, OtherCommand
    from zot.wire.frames import EventFrame
    from zot.wire.kept import KeptFrames
    from zot.wire.shapes import EventsRead, State
    from zot.wire.zot_replies import KeptMessages
else:
    events, images = later("zot.core", "events", "image")
    runs = Later("zot.runtime.run")
    rpc_commands, rpc_sessions = later("zot.serve", "rpc_commands", "rpc_sessions")
    commands, kept, zot_events, zot_replies = later(
        "zot.wire", "commands", "kept", "zot_events", "zot_replies"
    )


MAX_ANSWER = 16 * 1024 * 1024
LIMITS = ("max_steps", "max_cost", "max_tokens", "max_seconds")


class ServedAgent(RuntimeClient):
    """One agent as the client of the wire sees it: its commands, its answers and its events."""

    def __init__(self, server: RpcServer, signature: bytes = b"") -> None:
        """`signature`: the fields that say whose frames they are."""
        self._server = server
        self._signature = signature
        self._writer = server.writer.open_lane() if signature else server.writer
        self.built: Runtime | None = None
        self.durable = False
        """Whether runs that a crash cut off go on."""
        self._seq = 0
        self._wire_lock = allocate_lock()
        self._kept: KeptFrames | None = None
        """The frames of a durable session; None: it is not durable."""
        self._recover_lock = allocate_lock()
        self._recovered = False
        self._frame: Callable[..., EventFrame | None] = self._first_frame
        self._less_urgent: Collection[type[Event]] = ()
        """Events that can be told after what follows them was begun."""
        self._slow: SlowCommands | None = None
        self._messages: KeptMessages | None = None

    @property
    def runtime(self) -> Runtime:
        assert self.built is not None  # a named agent is there when it can be spoken to
        return self.built

    @property
    def seq(self) -> int:
        """The number of its last frame."""
        return self._seq if self._kept is None else self._kept.seq

    def use(self, runtime: Runtime) -> None:
        """What it shows, from the moment before anything of it can be told."""
        if runtime.durable is not None:
            self.durable, self._kept = True, kept.KeptFrames(runtime)
        else:
            # Less than the request to the model that follows them.
            self._less_urgent = (events.UserMessage, events.TurnStart)
        self.built = runtime

    # --- commands ----------------------------------------------------------------------------

    def handle(self, incoming: Incoming, command: AnyCommand) -> None:
        # The first ones first: the others need not be loaded yet.
        if type(command) is Ping:
            self.answer(incoming, zot.Pong())
            self._server.unnamed.warm_up()
        elif type(command) is Hello:
            self._server.unnamed.hello(incoming, command)
        elif type(command) is Prompt:
            self._prompt(incoming, command)
        else:
            self._handle(incoming, command)

    def _handle(self, incoming: Incoming, command: OtherCommand) -> None:
        match command:
            case commands.OpenAgent() | commands.CloseAgent() | commands.ListAgents():
                self._server.named.take(incoming, command)
            case commands.RetryPrompt():
                self.runtime.retry(tag=incoming.id, accepted=self._accepted(incoming))
            case commands.Compact(instructions):
                self.runtime.compact(
                    instructions, tag=incoming.id, accepted=self._accepted(incoming)
                )
            case commands.Abort(target):
                self._abort(target)
                self.answer(incoming)
            case commands.Events(after, limit):
                self.answer(incoming, self._events(after, limit), limit=MAX_ANSWER)
            case commands.Steer():
                self._queue(incoming, command, self.runtime.steer)
            case commands.FollowUp():
                self._queue(incoming, command, self.runtime.follow)
            case (
                commands.GetState()
                | commands.GetMessages()
                | commands.GetModels()
                | commands.GetApprovals()
            ):
                self._look(incoming, command)
            case (
                commands.GetCommands()
                | commands.RunCommand()
                | commands.ReloadExt()
                | commands.RunShell()
            ):
                self._slow_commands().start(incoming, command)
            case (
                commands.NewSession()
                | commands.ListSessions()
                | commands.LoadSession()
                | commands.ForkSession()
                | commands.ExportSession()
                | commands.Checkpoints()
                | commands.Rewind()
                | commands.GetChanges()
                | commands.SetMessages()
            ):
                data = rpc_sessions.answer(self.runtime, command)
                self.answer(incoming, data, limit=MAX_ANSWER)
            case _:
                self.answer(incoming, self._change(command))

    def _change(self, command: commands.Change) -> Any:
        """Do what can be done at once; the data of the answer."""
        runtime = self.runtime
        match command:
            case commands.Clear():
                runtime.clear()
            case commands.SetModel(name, provider):
                before = runtime.model.provider
                model = runtime.set_model(name, provider)
                return zot.ModelSet(model.id, model.provider if model.provider != before else "")
            case commands.SetReasoning(level):
                return zot.ReasoningSet(runtime.set_reasoning(level))
            case commands.SetJail(on):
                runtime.set_jail(on)
                return zot.JailSet(on)
            case commands.Approve(request_id, decision, reason, pattern, args):
                runtime.approve(request_id, decision, reason, pattern=pattern, args=args)
            case commands.RemoveApproval(tool, pattern):
                runtime.remove_approval(tool, pattern)
            case commands.Answer(request_id, value, confirmed, cancelled):
                runtime.answer(request_id, value=value, confirmed=confirmed, cancelled=cancelled)
            case commands.PanelKey(extension, panel, key, text):
                runtime.panel_key(extension, panel, key, text)
            case commands.PanelResize(extension, panel, width, height):
                runtime.panel_resize(extension, panel, width, height)
            case commands.PanelClose(extension, panel):
                runtime.panel_close(extension, panel)
            case commands.AbortShell():
                runtime.abort_shell()
            case commands.ResumeRun(run, decision):
                runtime.resume_run(run, go_on=decision == "continue")
            case _:
                assert_never(command)
        return UNSET

    def _prompt(self, incoming: Incoming, command: Prompt) -> None:
        if command.run and self._repeated(incoming, command.run):
            return
        runtime, limits = self.built or self.runtime, None
        if (
            command.max_steps is not None
            or command.max_cost is not None
            or command.max_tokens is not None
            or command.max_seconds is not None
        ):
            limits = self._limits(command, runtime.settings.limits)
        runtime.prompt(
            command.message,
            images.checked_images(command.images) if command.images else (),
            tag=incoming.id,
            limits=limits,
            accepted=partial(self._accept, incoming, command.run),
            run_id=command.run,
        )

    def _repeated(self, incoming: Incoming, id: str) -> bool:
        """Answer a prompt whose run is known already; False if it is not."""

        def attached(ahead: int) -> None:
            started = zot.Started(True, ahead, run=id, resumed=True)
            self.answer(incoming, started, tag=incoming.id)

        known = self.runtime.repeated(id, incoming.id, attached)
        if isinstance(known, runs.StoredEnd):
            end = zot.RunEnd(known.stop, known.error, known.code, known.text)
            self.answer(incoming, zot.Started(False, run=id, already_done=True, end=end))
        return known is not None

    def recover(self) -> None:
        """Go on with what was cut off. Not before the client has said what it understands."""
        if not self.durable or not self._server.authenticated:
            return
        with self._recover_lock:
            if self._recovered:
                return
            runtime, self._recovered = self.runtime, True
            if (end := self._kept_frames().untold_end(runtime)) is not None:
                self.listen(end, None)
            runtime.recover(lambda text: Raw(text.encode()) if text else UNSET)

    def _events(self, after: int, limit: int) -> EventsRead:
        # Loaded by now, where there are events at all.
        features, runtime = self._server.features, self.runtime
        page = self._kept_frames().read(features, after, limit)

        def state() -> State:
            return rpc_sessions.with_features(zot_replies.state(runtime.state()), runtime, features)

        return kept.events_read(page, runtime, state, Raw)

    def _kept_frames(self) -> KeptFrames:
        _ = self.runtime
        if self._kept is None:
            raise NotFoundError("events are kept only with --durable")
        return self._kept

    def _limits(self, command: Prompt, usual: Limits) -> Limits:
        """The limits of a prompt that brings some of its own."""
        own = {name: value for name in LIMITS if (value := getattr(command, name)) is not None}
        return replace(usual, **own)

    def _abort(self, target: str | int | float | None) -> None:
        if target is None:
            self.runtime.abort()
            return
        tags = (tag for tag in self.runtime.tags() if isinstance(tag, Raw))
        # Compared as values: the same id can be written in several ways.
        if aborted := [tag for tag in tags if decode(tag) == target]:
            self.runtime.abort(aborted[0])

    def _queue(
        self,
        incoming: Incoming,
        command: commands.Steer | commands.FollowUp,
        offer: Callable[[str, list[Image]], bool],
    ) -> None:
        pictures = images.checked_images(command.images)
        if offer(command.message, pictures):
            self.answer(incoming)
        else:  # nothing is running that could hear it: it is a prompt
            self.runtime.prompt(
                command.message, pictures, tag=incoming.id, accepted=self._accepted(incoming)
            )

    def _look(
        self,
        incoming: Incoming,
        command: commands.GetState
        | commands.GetMessages
        | commands.GetModels
        | commands.GetApprovals,
    ) -> None:
        runtime = self.runtime
        match command:
            case commands.GetState():
                state = zot_replies.state(runtime.state())
                if self._server.features & {"approvals", "budgets", "dialogs", "mcp", "sessions"}:
                    state = rpc_sessions.with_features(state, runtime, self._server.features)
                self.answer(incoming, state)
            case commands.GetModels(everywhere):
                models = runtime.models.all("" if everywhere else runtime.model.provider)
                self.answer(incoming, zot_replies.models(models))
            case commands.GetApprovals():
                self.answer(incoming, zot_replies.approvals(runtime.approvals()))
            case commands.GetMessages(offset, limit):
                end = None if limit is None else offset + limit
                if self._messages is None:
                    self._messages = zot_replies.KeptMessages()
                messages = runtime.session.messages()[offset:end]
                if (size := self._messages.least_size(messages)) > MAX_ANSWER:
                    raise too_large(size)  # before the work of making it
                line = zot.success_in_pieces(incoming, self._messages.answer(messages))
                if len(line) > MAX_ANSWER:
                    self._messages = None  # what cannot be sent is not kept
                    raise too_large(len(line))
                self._put(line, UNSET)
            case _:
                assert_never(command)

    def _slow_commands(self) -> rpc_commands.SlowCommands:
        if self._slow is None:
            self._slow = rpc_commands.SlowCommands(self.runtime, self.answer, self.fail)
        return self._slow

    def finish_commands(self) -> None:
        if self._slow is not None:
            self._slow.finish()

    def closing(self) -> None:
        if self._slow is not None:
            self._slow.close()

    def _accepted(self, incoming: Incoming) -> Callable[[int], None]:
        return partial(self._accept, incoming, "")

    def _accept(self, incoming: Incoming, run: str, ahead: int) -> None:
        """Answers before the first event of the run can be written."""
        started = zot.Started(True, ahead, run=run)
        self.answer(incoming, started, tag=incoming.id, held=not ahead)

    # --- the runtime's client ----------------------------------------------------------------

    def for_agent(self, name: str, parent: str) -> RuntimeClient | None:
        if "agents" not in self._server.features:
            return None
        return ServedAgent(self._server, signature_of(name, parent))

    def agent_opened(self, runtime: Runtime) -> None:
        self.use(runtime)

    def can_answer(self, what: Question) -> bool:
        return ("approvals" if what == "approval" else "dialogs") in self._server.features

    @property
    def wait(self) -> Callable[[Cancel], None]:  # one step less for each event
        return self._writer.wait

    @property
    def flush(self) -> Callable[[], None]:  # likewise
        return self._server.writer.flush

    def overfull(self) -> bool:
        return self._server.writer.overfull

    def listen(self, event: Event, run: Run | None) -> None:
        features = self._server.features
        held = run is not None and run.worker == get_ident()
        if held and type(event) in self._less_urgent and "seq" not in features:
            self._put_later(partial(self._frame, event))
            return
        frame = self._frame(event, features)
        if self._kept is not None:
            self._put_kept(event, frame, UNSET if run is None else run.tag)
        elif frame is not None and "seq" not in features and not self._signature:
            self._writer.put(encode_line(frame), held=held)  # as `_put`, in a step less
        elif frame is not None:
            self._put(encode_line(frame), UNSET if run is None else run.tag, held=held)

    def _first_frame(self, event: Event, features: Collection[str] = ()) -> EventFrame | None:
        """Loads what frames are with the first one: the model was asked by then."""
        self._frame = zot_events.frame
        return self._frame(event, features)

    def _put_kept(self, event: Event, frame: EventFrame | None, tag: Any) -> None:
        assert self._kept is not None
        with self._wire_lock:  # kept and written in one order, and kept first
            line = self._kept.keep(event, frame, self._server.features, tag)
            if line is not None:
                self._write(line)

    # --- frames ------------------------------------------------------------------------------

    def answer(
        self,
        incoming: Incoming,
        data: Any = UNSET,
        *,
        tag: Any = UNSET,
        limit: int | None = None,
        held: bool = False,
    ) -> None:
        if held and self._kept is None and "seq" not in self._server.features:
            self._put_later(partial(zot.success, incoming, data))
            return
        line = zot.encode(zot.success(incoming, data))
        if limit is not None and len(line) > limit:
            raise too_large(len(line))
        self._put(line, tag, held=held)

    def fail(self, incoming: Incoming, error: ZotError) -> None:
        codes = "codes" in self._server.features
        self._put(zot.encode(zot.failure(incoming, error, codes=codes)), UNSET)

    def _put_later(self, make: Callable[[], Any]) -> None:
        """Write the frame that `make` gives with what is told next, or when there is time. Not of
        frames with a number: those are made in their order."""

        def line() -> bytes:
            try:
                return zot.signed(encode_line(make()), self._signature)
            except Exception as error:  # a bug of ours: this line is lost, the others are not
                report_bug(error)
                return b""

        self._writer.put_later(line)

    def _put(self, line: bytes, tag: Any, *, held: bool = False) -> None:
        """`held`: more is told at once, or `flush` is called."""
        if "seq" not in self._server.features:
            line = zot.signed(line, self._signature) if self._signature else line
            self._writer.put(line, held=held)
            return
        with self._wire_lock:  # numbered in the order in which they are written
            self._seq = self._seq + 1 if self._kept is None else self._kept.number()
            self._write(zot.stamped(line, self._seq, tag), held=held)

    def _write(self, line: bytes, *, held: bool = False) -> None:
        line = zot.signed(line, self._signature) if self._signature else line
        self._writer.put(line, held=held)

    def agent_closed(self) -> None:
        """Its share of the output is for the others."""
        if self._kept is not None:
            self._kept.close()
        if isinstance(self._writer, Lane):
            self._server.writer.close_lane(self._writer)


def too_large(size: int) -> CommandError:
    return CommandError(
        f"too_large: the answer has {size} bytes, the limit is {MAX_ANSWER}; "
        "ask for a part of it with offset and limit",
        code="too_large",
    )


def signature_of(name: str, parent: str | None = None) -> bytes:
    """The fields that say whose frames they are."""
    signature = b',"agent":' + encode_json(name)
    return signature if parent is None else signature + b',"parent":' + encode_json(parent)
