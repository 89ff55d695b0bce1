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
from zot.lines import Lane, LineTooLong
from zot.runtime.client import RuntimeClient
from zot.settings.plan import Plan
from zot.wire import commands, zot
from zot.wire.commands import FEATURES, AnyCommand
from zot.wire.serving import STOP_SECONDS, ClientRefused, LineServer
from zot.wire.zot import Incoming

if TYPE_CHECKING:
    from zot.cancel import Cancel
    from zot.core.agent import Limits
    from zot.core.events import Event
    from zot.core.source import Question
    from zot.provider.types import Image
    from zot.runtime.run import Run
    from zot.runtime.runtime import Runtime
    from zot.serve.rpc_agents import NamedAgents
    from zot.serve.rpc_commands import SlowCommands
    from zot.settings.resolve import Setup
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
        # What is wrong with the files should be known before the first prompt.
        _ = server.unnamed.runtime
    elif not token and may_have_extensions(setup):
        server.unnamed.warm_up()  # a guard may be slow to start; it has until the first tool call
    if not setup.options.durable:
        return server.serve()
    patience = threading.Timer(HELLO_SECONDS, server.unnamed.recover)
    patience.daemon = True
    patience.start()
    try:
        return server.serve()
    finally:
        patience.cancel()


class RpcServer(LineServer):
    """Whose line it is; the agents answer, the unnamed one or those of the feature `agents`."""

    def __init__(self, plan: Plan, token: str) -> None:
        super().__init__()
        self._token = token
        self.authenticated = not token
        self.features: frozenset[str] = frozenset()
        self.unnamed = UnnamedAgent(self, plan)
        self._named: NamedAgents | None = None

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
        if not self.authenticated:
            self._authenticate(incoming)
        agent: ServedAgent = self.unnamed
        try:
            agent = self._addressed(incoming)
            if incoming.command is None:
                raise incoming.error or CommandError("unknown command")
            if not isinstance(incoming.command, commands.Hello | commands.Ping):
                agent.recover()
            agent.handle(incoming, incoming.command)
            agent.recover()
        except ZotError as error:
            agent.fail(incoming, error)
        except Exception as error:  # a bug of ours ends this command, not the process
            agent.fail(incoming, internal_error(error))

    def _addressed(self, incoming: Incoming) -> ServedAgent:
        """Who answers. What is said of agents is answered by the unnamed one."""
        of_agents = commands.OpenAgent | commands.CloseAgent | commands.ListAgents
        if "agents" not in self.features or isinstance(incoming.command, of_agents):
            return self.unnamed
        name = zot.agent_of(incoming)
        return self.named.get(name) if name else self.unnamed

    def _authenticate(self, incoming: Incoming) -> None:
        import hmac  # deferred: only where a token is set

        command = incoming.command
        given = command.token if isinstance(command, commands.Hello) else None
        token = os.fsencode(self._token)
        if given is not None and hmac.compare_digest(given.encode(), token):
            self.authenticated = True
            return
        reason = "invalid token" if given is not None else "send hello with the token first"
        self.unnamed.fail(incoming, CommandError(f"auth required: {reason}", code="auth"))
        raise ClientRefused

    # --- the agents --------------------------------------------------------------------------

    @property
    def named(self) -> NamedAgents:
        """The agents that were opened. Raises CommandError without the feature."""
        if "agents" not in self.features:
            raise CommandError("invalid_params: ask for the feature `agents` in hello first")
        if self._named is None:
            from zot.serve.rpc_agents import NamedAgents  # deferred: few clients have several

            self._named = NamedAgents(self)
        return self._named

    def _served(self) -> list[ServedAgent]:
        return [*(self._named.all() if self._named is not None else ()), self.unnamed]

    def runtimes(self) -> list[Runtime]:
        return [agent.built for agent in self._served() if agent.built is not None]

    def input_ended(self) -> None:
        for agent in self._served():
            agent.recover()
        super().input_ended()

    def finish_commands(self) -> None:
        for agent in self._served():
            agent.finish_commands()

    def closing(self) -> None:
        for agent in self._served():
            agent.closing()
        if self._named is not None:
            self._named.finish()


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
        self.seq = 0
        self._wire_lock = threading.Lock()
        self._frame: Callable[..., Any] | None = None
        self._slow: SlowCommands | None = None
        self._messages: KeptMessages | None = None

    @property
    def runtime(self) -> Runtime:
        assert self.built is not None  # a named agent is there when it can be spoken to
        return self.built

    def use(self, runtime: Runtime, frame: Callable[..., Any]) -> None:
        """What it shows, from the moment before anything of it can be told."""
        self.built, self._frame = runtime, frame

    # --- commands ----------------------------------------------------------------------------

    def handle(self, incoming: Incoming, command: AnyCommand) -> None:
        match command:
            case commands.Ping():
                self.answer(incoming, zot.Pong())
                self._server.unnamed.warm_up()
            case commands.Hello():
                self._server.unnamed.hello(incoming, command)
            case commands.OpenAgent() | commands.CloseAgent() | commands.ListAgents():
                self._server.named.take(incoming, command)
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
                self.answer(incoming)
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
                self.answer(incoming, data, limit=MAX_ANSWER)
            case _:
                self.answer(incoming, self._change(command))

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
            self.answer(incoming, started, tag=incoming.id)

        from zot.runtime.run import StoredEnd  # deferred: it is loaded by now

        known = self.runtime.repeated(id, incoming.id, attached)
        if isinstance(known, StoredEnd):
            end = zot.RunEnd(known.stop, known.error, known.code, known.text)
            self.answer(incoming, zot.Started(False, run=id, already_done=True, end=end))
        return known is not None

    def recover(self) -> None:
        """Go on with what was cut off. Not before the client has said what it understands."""
        if self.durable and self._server.authenticated:
            self.runtime.recover(lambda text: Raw(text.encode()) if text else UNSET)

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
            self.answer(incoming)
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
                if self._server.features & {"budgets", "sessions"}:
                    from zot.serve import rpc_sessions  # deferred: few clients ask

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
                self.answer(incoming, self._messages.answer(messages), limit=MAX_ANSWER)
            case _:
                assert_never(command)

    def _slow_commands(self) -> SlowCommands:
        from zot.serve.rpc_commands import SlowCommands  # deferred: few clients ask

        if self._slow is None:
            self._slow = SlowCommands(self.runtime, self.answer, self.fail)
        return self._slow

    def finish_commands(self) -> None:
        if self._slow is not None:
            self._slow.finish()

    def closing(self) -> None:
        if self._slow is not None:
            self._slow.close()

    def _accepted(self, incoming: Incoming, run: str = "") -> Callable[[int], None]:
        """Answers before the first event of the run can be written."""
        return lambda ahead: self.answer(
            incoming, zot.Started(True, ahead, run=run), tag=incoming.id
        )

    # --- the runtime's client ----------------------------------------------------------------

    def can_answer(self, what: Question) -> bool:
        return ("approvals" if what == "approval" else "dialogs") in self._server.features

    def wait(self, cancel: Cancel) -> None:
        self._writer.wait(cancel)

    def overfull(self) -> bool:
        return self._server.writer.overfull

    def listen(self, event: Event, run: Run | None) -> None:
        assert self._frame is not None
        frame = self._frame(event, self._server.features)
        if frame is not None:
            self._put(zot.encode(frame), UNSET if run is None else run.tag)

    # --- frames ------------------------------------------------------------------------------

    def answer(
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

    def fail(self, incoming: Incoming, error: ZotError) -> None:
        codes = "codes" in self._server.features
        self._put(zot.encode(zot.failure(incoming, error, codes=codes)), UNSET)

    def _put(self, line: bytes, tag: Any) -> None:
        if self._signature:
            line = zot.signed(line, self._signature)
        if "seq" not in self._server.features:
            self._writer.put(line)
            return
        with self._wire_lock:  # numbered in the order in which they are written
            self.seq += 1
            self._writer.put(zot.stamped(line, self.seq, tag))

    def gone(self) -> None:
        """It was closed: its share of the output is for the others."""
        if isinstance(self._writer, Lane):
            self._server.writer.close_lane(self._writer)


class UnnamedAgent(ServedAgent):
    """The process's own agent. It loads behind the first answer."""

    def __init__(self, server: RpcServer, plan: Plan) -> None:
        super().__init__(server)
        self._plan = plan
        self.durable = plan.setup.options.durable
        self._runtime_lock = threading.Lock()
        self._warming: threading.Thread | None = None
        self._load_error: Exception | None = None

    def hello(self, incoming: Incoming, command: commands.Hello) -> None:
        supported: tuple[str, ...] | UnsetType = UNSET
        if command.features is not None:
            supported = tuple(name for name in FEATURES if name in command.features)
            self._server.features = frozenset(supported)
        setup = self._plan.setup
        provider, model = setup.info.name, setup.model.id
        if self.built is not None:
            provider, model = self.built.model.provider, self.built.model.id
        self.answer(
            incoming, zot.HelloData(zot.PROTOCOL_VERSION, __version__, provider, model, supported)
        )
        self.warm_up()

    # --- the runtime behind it ---------------------------------------------------------------

    @property
    def runtime(self) -> Runtime:
        with self._runtime_lock:
            if self.built is not None:
                return self.built
            self._raise_load_error()
            runtime = self._build()
            runtime.start()  # extensions, side by side with the client's thinking
            return runtime

    def _build(self) -> Runtime:
        # Deferred: hello and ping are answered without loading the agent.
        from zot.build import build_runtime
        from zot.runtime.approval import Approval
        from zot.wire.zot_events import frame

        options = self._plan.setup.options
        approval = None if options.yolo else Approval(options.approve, client=self)
        runtime = build_runtime(
            self._plan, self, approval=approval, warn=complain, owns_process=True
        )
        self.use(runtime, frame)
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

    def closing(self) -> None:
        super().closing()
        if self._warming is not None:  # Python may crash when it ends while a thread still imports
            self._warming.join(STOP_SECONDS)


def too_large(size: int) -> CommandError:
    return CommandError(
        f"too_large: the answer has {size} bytes, the limit is {MAX_ANSWER}; "
        "ask for a part of it with offset and limit",
        code="too_large",
    )
