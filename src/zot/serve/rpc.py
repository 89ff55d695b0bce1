"""`zot rpc`: commands from stdin, answers and events to stdout, until stdin closes.

The main thread reads and answers; it never waits for a turn. Hello and ping are answered before
the agent is even loaded: the rest of the program loads behind the first answer.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, assert_never

from msgspec import UNSET, Raw, UnsetType
from msgspec.json import decode
from msgspec.structs import replace

from zot import __version__
from zot.bugs import complain, internal_error
from zot.core.image import checked_images
from zot.errors import CommandError, ZotError
from zot.lines import LineTooLong
from zot.settings.plan import Plan
from zot.wire import commands, zot
from zot.wire.commands import FEATURES, AnyCommand
from zot.wire.serving import STOP_SECONDS, ClientRefused, LineServer
from zot.wire.zot import Incoming

if TYPE_CHECKING:
    from zot.core.agent import Limits
    from zot.core.events import Event
    from zot.core.source import Question
    from zot.provider.types import Image
    from zot.runtime.run import Run
    from zot.runtime.runtime import Runtime
    from zot.serve.rpc_commands import SlowCommands
    from zot.serve.rpc_durable import KeptFrames
    from zot.settings.resolve import Setup
    from zot.wire.frames import EventFrame
    from zot.wire.zot_replies import KeptMessages

MAX_ANSWER = 16 * 1024 * 1024
HELLO_SECONDS = 1.0
"""How long a run that was cut off waits for the client to say what it understands."""
Change = (
    commands.Clear
    | commands.SetModel
    | commands.SetReasoning
    | commands.SetJail
    | commands.Approve
    | commands.RemoveApproval
    | commands.Answer
    | commands.PanelKey
    | commands.PanelClose
    | commands.AbortShell
    | commands.ResumeRun
)
"""Commands that are done when they are answered."""


def may_have_extensions(setup: Setup) -> bool:
    options = setup.options
    folders = (f"{setup.cwd}/.zot/extensions", f"{setup.around.home}/extensions")
    return bool(options.ext) or (
        options.extensions is not False and any(map(os.path.isdir, folders))
    )


def serve(plan: Plan, token: str = "") -> int:
    """Serve until stdin closes or a signal comes; the exit code.

    Raises:
        ZotError: a file that the flags name cannot be used; nothing was written to stdout.
    """
    server = RpcServer(plan, token)
    setup = plan.setup
    named = setup.options.session or setup.options.continue_ or plan.tape
    if named or setup.info.api == "scripted":
        _ = server.runtime  # what is wrong with the files should be known before the first prompt
    elif not token and may_have_extensions(setup):
        server.warm_up()  # a guard may be slow to start; it has until the first tool call
    if not setup.options.durable:
        return server.serve()
    patience = threading.Timer(HELLO_SECONDS, server.recover)
    patience.daemon = True
    patience.start()
    try:
        return server.serve()
    finally:
        patience.cancel()


class RpcServer(LineServer):
    def __init__(self, plan: Plan, token: str) -> None:
        super().__init__()
        self._plan = plan
        self._token = token
        self._authenticated = not token
        self._features: frozenset[str] = frozenset()
        self._wire_lock = threading.Lock()
        self._seq = 0
        self._kept: KeptFrames | None = None
        """The frames of a durable session; None: it is not durable."""
        self._recover_lock = threading.Lock()
        self._recovered = False
        self._runtime_lock = threading.Lock()
        self._warming: threading.Thread | None = None
        self._load_error: Exception | None = None
        self._frame: Callable[..., Any] | None = None
        self._slow: SlowCommands | None = None
        self._messages: KeptMessages | None = None

    # --- lines -------------------------------------------------------------------------------

    def is_whole(self, line: bytes) -> bool:
        return zot.decode(line).error is None

    def take_line(self, line: bytes | LineTooLong) -> None:
        if isinstance(line, LineTooLong):
            error = CommandError(
                f"line_too_long: the line is longer than {line.limit} bytes; it was skipped",
                code="line_too_long",
            )
            incoming = Incoming("", UNSET, None, error)
        else:
            incoming = zot.decode(line)
        if not self._authenticated:
            self._authenticate(incoming)
        try:
            if incoming.command is None:
                raise incoming.error or CommandError("unknown command")
            if not isinstance(incoming.command, commands.Hello | commands.Ping):
                self.recover()
            self._handle(incoming, incoming.command)
            self.recover()
        except ZotError as error:
            self._fail(incoming, error)
        except Exception as error:  # a bug of ours ends this command, not the process
            self._fail(incoming, internal_error(error))

    def _authenticate(self, incoming: Incoming) -> None:
        import hmac  # deferred: only where a token is set

        command = incoming.command
        given = command.token if isinstance(command, commands.Hello) else None
        token = os.fsencode(self._token)
        if given is not None and hmac.compare_digest(given.encode(), token):
            self._authenticated = True
            return
        reason = "invalid token" if given is not None else "send hello with the token first"
        self._fail(incoming, CommandError(f"auth required: {reason}", code="auth"))
        raise ClientRefused

    # --- commands ----------------------------------------------------------------------------

    def _handle(self, incoming: Incoming, command: AnyCommand) -> None:
        match command:
            case commands.Ping():
                self._answer(incoming, zot.Pong())
                self.warm_up()
            case commands.Hello():
                self._hello(incoming, command)
                self.warm_up()
            case commands.Prompt():
                self._prompt(incoming, command)
            case commands.RetryPrompt():
                self.runtime.retry(tag=incoming.id, accepted=self._accepted(incoming))
            case commands.Compact(instructions):
                self.runtime.compact(
                    instructions, tag=incoming.id, accepted=self._accepted(incoming)
                )
            case commands.Abort(target):
                self._abort(target)
                self._answer(incoming)
            case commands.Events(after, limit):
                page = self._kept_frames().read(self.runtime, self._features, after, limit)
                self._answer(incoming, page, limit=MAX_ANSWER)
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
                from zot.serve import rpc_sessions  # deferred: few clients ask

                data = rpc_sessions.answer(self.runtime, command)
                self._answer(incoming, data, limit=MAX_ANSWER)
            case _:
                self._answer(incoming, self._change(command))

    def _change(self, command: Change) -> Any:
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
            case commands.PanelClose(extension, panel):
                runtime.panel_close(extension, panel)
            case commands.AbortShell():
                runtime.abort_shell()
            case commands.ResumeRun(run, decision):
                runtime.resume_run(run, go_on=decision == "continue")
            case _:
                assert_never(command)
        return UNSET

    def _hello(self, incoming: Incoming, command: commands.Hello) -> None:
        supported: tuple[str, ...] | UnsetType = UNSET
        if command.features is not None:
            supported = tuple(name for name in FEATURES if name in command.features)
            self._features = frozenset(supported)
        setup = self._plan.setup
        provider, model = setup.info.name, setup.model.id
        if self.built is not None:
            provider, model = self.built.model.provider, self.built.model.id
        self._answer(
            incoming, zot.HelloData(zot.PROTOCOL_VERSION, __version__, provider, model, supported)
        )

    def _prompt(self, incoming: Incoming, command: commands.Prompt) -> None:
        if command.run and self._repeated(incoming, command.run):
            return
        self.runtime.prompt(
            command.message,
            checked_images(command.images),
            tag=incoming.id,
            limits=self._limits(command),
            accepted=self._accepted(incoming, command.run),
            run_id=command.run,
        )

    def _repeated(self, incoming: Incoming, id: str) -> bool:
        """Answer a prompt whose run is known already; False if it is not."""

        def attached(ahead: int) -> None:
            started = zot.Started(True, ahead, run=id, resumed=True)
            self._answer(incoming, started, tag=incoming.id)

        from zot.runtime.run import StoredEnd  # deferred: it is loaded by now

        known = self.runtime.repeated(id, incoming.id, attached)
        if isinstance(known, StoredEnd):
            end = zot.RunEnd(known.stop, known.error, known.code, known.text)
            self._answer(incoming, zot.Started(False, run=id, already_done=True, end=end))
        return known is not None

    def recover(self) -> None:
        """Go on with what was cut off. Not before the client has said what it understands."""
        if not self._plan.setup.options.durable or not self._authenticated:
            return
        with self._recover_lock:
            if self._recovered:
                return
            runtime, self._recovered = self.runtime, True
            if (end := self._kept_frames().untold_end(runtime)) is not None:
                self.listen(end, None)
            runtime.recover(lambda text: Raw(text.encode()) if text else UNSET)

    def _kept_frames(self) -> KeptFrames:
        _ = self.runtime
        if self._kept is None:
            raise CommandError("events are kept only with --durable", code="not_found")
        return self._kept

    def input_ended(self) -> None:
        self.recover()
        super().input_ended()

    def _limits(self, command: commands.Prompt) -> Limits | None:
        """The limits of this prompt, where it brings some of its own."""
        fields = ("max_steps", "max_cost", "max_tokens", "max_seconds")
        own = {name: value for name in fields if (value := getattr(command, name)) is not None}
        return replace(self.runtime.settings.limits, **own) if own else None

    def _abort(self, target: str | int | float | None) -> None:
        if target is None:
            self.runtime.abort()
            return
        tags = (tag for tag in self.runtime.tags() if isinstance(tag, Raw))
        # Compared as values: the same id can be written in several ways.
        if found := [tag for tag in tags if decode(tag) == target]:
            self.runtime.abort(found[0])

    def _queue(
        self,
        incoming: Incoming,
        command: commands.Steer | commands.FollowUp,
        offer: Callable[[str, list[Image]], bool],
    ) -> None:
        images = checked_images(command.images)
        if offer(command.message, images):
            self._answer(incoming)
        else:  # nothing is running that could hear it: it is a prompt
            self.runtime.prompt(
                command.message, images, tag=incoming.id, accepted=self._accepted(incoming)
            )

    def _look(
        self,
        incoming: Incoming,
        command: commands.GetState
        | commands.GetMessages
        | commands.GetModels
        | commands.GetApprovals,
    ) -> None:
        from zot.wire import zot_replies  # deferred: start-up budget

        runtime = self.runtime
        match command:
            case commands.GetState():
                state = zot_replies.state(runtime.state())
                if self._features & {"approvals", "budgets", "sessions"}:
                    from zot.serve import rpc_sessions  # deferred: few clients ask

                    state = rpc_sessions.with_features(state, runtime, self._features)
                self._answer(incoming, state)
            case commands.GetModels(everywhere):
                models = runtime.models.all("" if everywhere else runtime.model.provider)
                self._answer(incoming, zot_replies.models(models))
            case commands.GetApprovals():
                self._answer(incoming, zot_replies.approvals(runtime.approvals()))
            case commands.GetMessages(offset, limit):
                end = None if limit is None else offset + limit
                if self._messages is None:
                    self._messages = zot_replies.KeptMessages()
                messages = runtime.session.messages()[offset:end]
                if (size := self._messages.least_size(messages)) > MAX_ANSWER:
                    raise too_large(size)  # before the work of making it
                self._answer(incoming, self._messages.answer(messages), limit=MAX_ANSWER)
            case _:
                assert_never(command)

    def _slow_commands(self) -> SlowCommands:
        from zot.serve.rpc_commands import SlowCommands  # deferred: few clients ask

        if self._slow is None:
            self._slow = SlowCommands(self.runtime, self._answer, self._fail)
        return self._slow

    def finish_commands(self) -> None:
        if self._slow is not None:
            self._slow.finish()

    def closing(self) -> None:
        if self._slow is not None:
            self._slow.close()
        if self._warming is not None:  # Python may crash when it ends while a thread still imports
            self._warming.join(STOP_SECONDS)

    def _accepted(self, incoming: Incoming, run: str = "") -> Callable[[int], None]:
        """Answers before the first event of the run can be written."""
        return lambda ahead: self._answer(
            incoming, zot.Started(True, ahead, run=run), tag=incoming.id
        )

    # --- the runtime behind it ---------------------------------------------------------------

    @property
    def runtime(self) -> Runtime:
        with self._runtime_lock:
            if self.built is None:
                self._raise_load_error()
                self.built = self._build()
                self.built.start()  # extensions, side by side with the client's thinking
            return self.built

    def _build(self) -> Runtime:
        # Deferred: hello and ping are answered without loading the agent.
        from zot.build import build_runtime
        from zot.runtime.approval import LIMIT_SECONDS, Approval
        from zot.wire.zot_events import frame

        self._frame = frame
        options = self._plan.setup.options
        seconds = options.approval_timeout
        approval = None
        if not options.yolo:
            approval = Approval(
                options.approve, client=self, seconds=LIMIT_SECONDS if seconds is None else seconds
            )
        runtime = build_runtime(
            self._plan, self, approval=approval, warn=complain, owns_process=True
        )
        if options.durable:
            from zot.serve.rpc_durable import KeptFrames

            self._kept = KeptFrames(options.session)
        return runtime

    def _raise_load_error(self) -> None:
        """What the warm-up met is told once, to the first command that needs the runtime; the
        next one tries again."""
        error, self._load_error = self._load_error, None
        if error is not None:
            raise error

    def warm_up(self) -> None:
        """Load the agent, HTTP and TLS while the client thinks about its prompt."""
        if self.built is None and self._load_error is None:
            try:
                warming = threading.Thread(target=self._load, name="zot-warm-up", daemon=True)
                warming.start()
                self._warming = warming
            except RuntimeError:
                pass  # no thread is left; the next command loads it

    def _load(self) -> None:
        try:
            _ = self.runtime
        except Exception as error:
            self._load_error = error

    # --- the runtime's client ----------------------------------------------------------------

    def can_answer(self, what: Question) -> bool:
        return ("approvals" if what == "approval" else "dialogs") in self._features

    def listen(self, event: Event, run: Run | None) -> None:
        assert self._frame is not None
        frame = self._frame(event, self._features)
        if self._kept is not None:
            self._put_kept(event, frame, UNSET if run is None else run.tag)
        elif frame is not None:
            self._put(zot.encode(frame), UNSET if run is None else run.tag)

    def _put_kept(self, event: Event, frame: EventFrame | None, tag: Any) -> None:
        assert self._kept is not None
        with self._wire_lock:  # kept and written in one order, and kept first
            line = self._kept.keep(event, frame, self._features, tag)
            if line is not None:
                self.writer.put(line)

    # --- frames ------------------------------------------------------------------------------

    def _answer(
        self,
        incoming: Incoming,
        data: Any = UNSET,
        *,
        tag: Any = UNSET,
        limit: int | None = None,
    ) -> None:
        line = zot.encode(zot.success(incoming, data))
        if limit is not None and len(line) > limit:
            raise too_large(len(line))
        self._put(line, tag)

    def _fail(self, incoming: Incoming, error: ZotError) -> None:
        self._put(zot.encode(zot.failure(incoming, error, codes="codes" in self._features)), UNSET)

    def _put(self, line: bytes, tag: Any) -> None:
        if "seq" not in self._features:
            self.writer.put(line)
            return
        with self._wire_lock:  # numbered in the order in which they are written
            self._seq = self._seq + 1 if self._kept is None else self._kept.number()
            self.writer.put(zot.stamped(line, self._seq, tag))


def too_large(size: int) -> CommandError:
    return CommandError(
        f"too_large: the answer has {size} bytes, the limit is {MAX_ANSWER}; "
        "ask for a part of it with offset and limit",
        code="too_large",
    )
