"""The feature `agents` of `zot rpc`: open, list and close agents beside the unnamed one."""

from __future__ import annotations

import gc
import threading
from functools import partial
from typing import TYPE_CHECKING, assert_never

from msgspec import UNSET
from msgspec.structs import asdict

from zot.bugs import internal_error
from zot.core.agent import Limits
from zot.errors import BusyError, CommandError, NotFoundError, ZotError
from zot.runtime.agents import AgentInfo, AgentRequest, Agents
from zot.serve.rpc_served import ServedAgent, signature_of
from zot.wire import commands, shapes
from zot.wire.encode import usage_shape
from zot.wire.serving import Threads
from zot.wire.zot import Incoming

if TYPE_CHECKING:
    from zot.serve.rpc import RpcServer

AgentCommand = commands.OpenAgent | commands.CloseAgent | commands.ListAgents
MAX_CLOSING = 64
COLLECT_AFTER = 50
"""Closed agents per garbage collection, which takes milliseconds."""


class NamedAgents:
    """Agents beside the unnamed one. Opened by the thread that reads commands, so that the next
    line finds them; closed by a thread each, because that waits for a run to end."""

    def __init__(self, server: RpcServer) -> None:
        self._server = server
        self._closing = Threads()
        self._lock = threading.Lock()
        self._ended = 0

    @property
    def _agents(self) -> Agents:
        return self._server.unnamed.runtime.agents

    def get(self, name: str) -> ServedAgent:
        """Return the agent; raise CommandError if there is none."""
        client = self._agents.get(name).client
        if not isinstance(client, ServedAgent):  # opened by a tool before the feature was requested
            raise NotFoundError(f"not_found: there is no agent {name!r}")
        return client

    def all(self) -> list[ServedAgent]:
        first = self._server.unnamed.built
        runtimes = () if first is None else first.agents.all().values()
        clients = [runtime.client for runtime in runtimes]
        return [client for client in clients if isinstance(client, ServedAgent)]

    def take(self, incoming: Incoming, command: AgentCommand) -> None:
        """Execute the command and answer.

        Raises:
            CommandError: the agent does not exist, its name is taken, or there are too many.
            ZotError: the agent cannot be opened as requested.
        """
        unnamed = self._server.unnamed
        match command:
            case commands.OpenAgent():
                self._open(incoming, command)
            case commands.CloseAgent(name):
                self._close(incoming, name)
            case commands.ListAgents():
                listed = tuple(map(self._shape, self._agents.list()))
                unnamed.answer(incoming, shapes.AgentList(listed))
            case _:
                assert_never(command)

    def _open(self, incoming: Incoming, command: commands.OpenAgent) -> None:
        def client(name: str) -> ServedAgent:
            return ServedAgent(self._server, signature_of(name))

        name, runtime = self._agents.open(command.agent, request_of(command), client)
        # Answered before its first event.
        self._server.unnamed.answer(incoming, shapes.AgentOpened(name))
        runtime.start()
        self.get(name).recover()

    def _close(self, incoming: Incoming, name: str) -> None:
        agent = self.get(name)
        if self._closing.working() >= MAX_CLOSING:
            raise BusyError(f"busy: {MAX_CLOSING} agents are being closed already")
        self._closing.start("zot-close-agent", partial(self._end, incoming, name, agent))

    def _end(self, incoming: Incoming, name: str, agent: ServedAgent) -> None:
        unnamed = self._server.unnamed
        try:
            agent.closing()
            self._agents.close(name)
            self._let_go()
            unnamed.answer(incoming)
        except ZotError as error:
            unnamed.fail(incoming, error)
        except Exception as error:  # an agent's failure: the others go on
            unnamed.fail(incoming, internal_error(error))

    def _let_go(self) -> None:
        """Collect garbage now and then: an agent is a reference cycle, which Python frees late when
        idle."""
        with self._lock:
            self._ended += 1
            due = self._ended % COLLECT_AFTER == 0 or not self._agents.all()
        if due:
            gc.collect()

    def finish(self) -> None:
        """Wait for agents that are being closed."""
        self._closing.join()

    def _shape(self, info: AgentInfo) -> shapes.AgentShape:
        seq = 0
        try:
            seq = self.get(info.agent).seq
        except CommandError:
            pass  # it was closed meanwhile
        fields = asdict(info) | {"usage": usage_shape(info.usage)}
        fields["parent"] = UNSET if info.parent is None else info.parent
        return shapes.AgentShape(seq=seq, **fields)


def request_of(command: commands.OpenAgent) -> AgentRequest:
    limits = None if command.limits is None else Limits(**asdict(command.limits))
    return AgentRequest(
        cwd=command.cwd,
        provider=command.provider,
        model=command.model,
        session=command.session,
        tools=command.tools,
        limits=limits,
        approve=command.approve,
        jail=command.jail,
        durable=command.durable,
    )
