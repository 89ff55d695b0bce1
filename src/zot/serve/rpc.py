"""`zot rpc`: commands from stdin, answers and events to stdout, until stdin closes.

The main thread reads and answers; it never waits for a turn. This is stage one: hello and ping are
answered before the agent is loaded. Stage two is loaded after the first answer, by a thread or by
the first command that needs it, in one place: `ServedAgent.commands`.
"""

from __future__ import annotations

import gc
import os
import threading
from typing import TYPE_CHECKING

from msgspec import UNSET, UnsetType

from zot import __version__
from zot.bugs import internal_error
from zot.errors import CommandError, ZotError
from zot.home import may_have_extensions
from zot.lines import LineTooLong
from zot.serve.rpc_served import ServedAgent
from zot.settings.resolve import BARE, Plan, Setup
from zot.wire import zot
from zot.wire.serving import STOP_SECONDS, ClientRefused, LineServer
from zot.wire.zot import FEATURES, Hello, Incoming, Ping

if TYPE_CHECKING:
    from zot.runtime.runtime import Runtime
    from zot.serve.rpc_agents import NamedAgents

HELLO_SECONDS = 1.0
"""Seconds that an interrupted run waits for the client's hello."""


def serve(plan: Plan, token: str = "") -> int:
    """Serve until stdin closes or a signal arrives; return the exit code.

    Raises:
        ZotError: a file named by the flags cannot be used; nothing was written to stdout.
    """
    server = RpcServer(plan, token)
    setup = plan.setup
    named = setup.options.session or setup.options.continue_ or plan.wrapping is not BARE
    if named or setup.info.api == "scripted":
        # Report problems with the files before the first prompt.
        _ = server.unnamed.runtime
    elif not token and _may_have_extensions(setup):
        server.unnamed.warm_up()  # a guard may start slowly; it has until the first tool call
    if not setup.options.durable:
        return server.serve()
    patience = threading.Timer(HELLO_SECONDS, server.unnamed.recover)
    patience.daemon = True
    patience.start()
    try:
        return server.serve()
    finally:
        patience.cancel()


def _may_have_extensions(setup: Setup) -> bool:
    search = setup.options.extensions is not False
    return may_have_extensions(setup.options.ext, setup.cwd, setup.around.home, search=search)


class RpcServer(LineServer):
    """Routes each line to an agent: the unnamed one, or one of the feature `agents`."""

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
            if "agents" in self.features:
                agent = self._addressed(incoming)
            match incoming.command:
                case None:
                    raise incoming.error or CommandError("unknown command")
                case Hello() as hello:
                    self.unnamed.hello(incoming, hello)
                case Ping():
                    agent.answer(incoming, zot.PONG)
                    self.unnamed.warm_up()
                case command:
                    if agent.durable:
                        agent.recover()
                    agent.commands.take(incoming, command)
            if agent.durable:
                agent.recover()
        except ZotError as error:
            agent.fail(incoming, error)
        except Exception as error:  # a bug of ours ends this command, not the process
            agent.fail(incoming, internal_error(error))

    def _addressed(self, incoming: Incoming) -> ServedAgent:
        """Return the agent that answers: the unnamed one for commands about agents."""
        if incoming.name in ("open_agent", "close_agent", "list_agents"):
            return self.unnamed
        name = zot.agent_of(incoming)
        return self.named.get(name) if name else self.unnamed

    def _authenticate(self, incoming: Incoming) -> None:
        command = incoming.command
        said = command.token if isinstance(command, Hello) else None
        token = os.fsencode(self._token)
        import hmac  # few clients have a token

        if said is not None and hmac.compare_digest(said.encode(), token):
            self.authenticated = True
            return
        reason = "invalid token" if said is not None else "send hello with the token first"
        self.unnamed.fail(incoming, CommandError(f"auth required: {reason}", code="auth"))
        raise ClientRefused

    # --- the agents --------------------------------------------------------------------------

    @property
    def named(self) -> NamedAgents:
        """Return the named agents; raise CommandError without the feature."""
        if "agents" not in self.features:
            raise CommandError("invalid_params: ask for the feature `agents` in hello first")
        if self._named is None:
            self._named = self.unnamed.commands.named_agents()
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


class UnnamedAgent(ServedAgent):
    """The process's own agent. Loads after the first answer."""

    def __init__(self, server: RpcServer, plan: Plan) -> None:
        super().__init__(server)
        self._plan = plan
        self.durable = plan.setup.options.durable
        self._runtime_lock = threading.Lock()
        self._warming: threading.Thread | None = None
        self._load_error: Exception | None = None

    def hello(self, incoming: Incoming, command: Hello) -> None:
        supported: tuple[str, ...] | UnsetType = UNSET
        if command.features is not None:
            supported = tuple(name for name in FEATURES if name in command.features)
            self.server.features = frozenset(supported)
        setup = self._plan.setup
        provider, model = setup.info.name, setup.model.id
        if self.built is not None:
            provider, model = self.built.models.current.provider, self.built.models.current.id
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
            gc.disable()  # new objects are no garbage, and scanning them takes long
            try:
                runtime = self.commands.build(self._plan)
            finally:
                gc.freeze()
                gc.enable()
            runtime.start()  # extensions start while the client thinks
            return runtime

    def _raise_load_error(self) -> None:
        """Raise the warm-up's error once, to the first command that needs the runtime; the next one
        tries again."""
        error, self._load_error = self._load_error, None
        if error is not None:
            raise error

    def warm_up(self) -> None:
        """Load stage two while the client prepares its prompt."""
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
        if self._warming is not None:  # Python may crash if it exits during an import
            self._warming.join(STOP_SECONDS)
