"""Agents side by side in one process: opened by a name, listed, closed. What they have in common
and how each is built is handed in (build.py); a door brings the client that listens to each.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import TYPE_CHECKING, Literal

from zot.core.agent import Limits
from zot.errors import CommandError, NotFoundError
from zot.provider.types import Usage
from zot.runtime.client import RuntimeClient
from zot.text import Frozen

if TYPE_CHECKING:
    from zot.runtime.runtime import Runtime

MAX_AGENTS = 1000
MAX_NAME = 64
"""Bytes of an agent's name."""
TASK = "task"
"""The tool with which the model opens agents."""
MAX_TASK_DEPTH = 2
"""Levels of agents below the first one that it may open."""
STOP_SECONDS = 10.0
"""More than a run takes to give up."""


class AgentRequest(Frozen, kw_only=True):
    """How an agent is to differ from the one that opens it. What is left out is as there, but for
    the conversation, which begins anew and is kept in memory."""

    cwd: str = ""
    """Relative to that of the agent that opens it."""
    provider: str = ""
    model: str = ""
    session: str = ""
    """A session file to go on with, or to begin."""
    tools: tuple[str, ...] | None = None
    limits: Limits | None = None
    approve: tuple[str, ...] | None = None
    """Tools to ask about before they run."""
    jail: bool | None = None
    depth: int | None = None
    """Levels of agents that its tool `task` may open below it; None: as the first one."""
    durable: bool = False
    """A run that a crash cuts off goes on when the session is opened again."""


class AgentInfo(Frozen):
    """An agent at a glance."""

    agent: str
    state: Literal["idle", "running", "waiting", "closing"]
    """`waiting`: for the answer to a question."""
    busy: bool
    queued: int
    provider: str
    model: str
    cwd: str
    session_id: str
    usage: Usage
    questions: tuple[str, ...] = ()
    """The ids of the questions that are open."""
    parent: str | None = None
    """The agent whose tool opened it; None: a client did."""


Build = Callable[[AgentRequest, RuntimeClient], "Runtime"]


class Agents:
    """The named agents of a process. Safe to call from any thread."""

    def __init__(self, build: Build) -> None:
        self._build = build
        self._lock = threading.Lock()
        self._runtimes: dict[str, Runtime | None] = {}
        """None: it is being built."""
        self._parents: dict[str, str] = {}
        self._closing: set[str] = set()
        self._count = 0
        self._closed = False

    def open(
        self,
        name: str,
        request: AgentRequest,
        client: Callable[[str], RuntimeClient],
        *,
        made_up: str = "agent",
        parent: str | None = None,
    ) -> tuple[str, Runtime]:
        """A new agent and its name, which is made up where none is given and then begins with
        `made_up`. `client` makes the one that listens to the agent of that name. `parent` is the
        agent whose tool opens it.

        Raises:
            CommandError: the name is taken or cannot be one, or there are too many.
            ConfigError, AuthError, SessionError: it cannot be what is asked for.
        """
        name = self._reserved(name, made_up)
        listener = client(name)
        runtime: Runtime | None = None
        try:
            runtime = self._build(request, listener)
            runtime.name = name
            listener.agent_opened(runtime)
        except BaseException:
            with self._lock:
                del self._runtimes[name]
            if runtime is not None:
                runtime.release()
            listener.agent_closed()
            raise
        with self._lock:
            self._runtimes[name] = runtime
            if parent is not None:
                self._parents[name] = parent
            closed = self._closed
        if closed:
            self.close(name)
            raise CommandError("the runtime was closed", code="closed")
        return name, runtime

    def _reserved(self, name: str, made_up: str) -> str:
        if len(name.encode("utf-8", "replace")) > MAX_NAME or not name.isprintable():
            raise CommandError(
                f"invalid_params: an agent's name has at most {MAX_NAME} bytes, all printable; "
                f"not {name[:100]!r}"
            )
        with self._lock:
            if len(self._runtimes) >= MAX_AGENTS:
                raise CommandError(
                    f"too_many: {MAX_AGENTS} agents are open; close one first", code="too_many"
                )
            if name in self._runtimes:
                raise CommandError(f"exists: there is an agent {name!r} already", code="exists")
            while not name:
                self._count += 1
                made = f"{made_up}-{self._count}"
                name = made if made not in self._runtimes else ""
            self._runtimes[name] = None
            return name

    def get(self, name: str) -> Runtime:
        """Raises CommandError when there is no such agent."""
        runtime = self._runtimes.get(name)
        if runtime is None:
            raise NotFoundError(f"not_found: there is no agent {name!r}")
        return runtime

    def all(self) -> dict[str, Runtime]:
        """Those that can be asked, in the order in which they were opened."""
        with self._lock:
            items = [*self._runtimes.items()]
        return {name: runtime for name, runtime in items if runtime is not None}

    def list(self) -> list[AgentInfo]:
        return [self._info(name, runtime) for name, runtime in self.all().items()]

    def _info(self, name: str, runtime: Runtime) -> AgentInfo:
        state, questions = runtime.state(), runtime.questions()
        how: Literal["idle", "running", "waiting"] = "running" if state.busy else "idle"
        return AgentInfo(
            agent=name,
            state="closing" if name in self._closing else "waiting" if questions else how,
            busy=state.busy,
            queued=state.queued,
            provider=state.provider,
            model=state.model.id,
            cwd=state.cwd,
            session_id=state.session_id,
            usage=state.usage,
            questions=questions,
            parent=self._parents.get(name),
        )

    def close(self, name: str) -> None:
        """Abort what it does, wait for its end, and let go of all it holds.

        Raises:
            CommandError: there is no such agent, or it is being closed already.
        """
        with self._lock:
            runtime = self._runtimes.get(name)
            if runtime is None or name in self._closing:
                raise NotFoundError(f"not_found: there is no agent {name!r}")
            self._closing.add(name)
        try:
            runtime.close(timeout=STOP_SECONDS)
            runtime.release()
        finally:
            with self._lock:
                self._closing.discard(name)
                self._parents.pop(name, None)
                del self._runtimes[name]
            runtime.client.agent_closed()

    def close_all(self) -> None:
        """None can be opened any more."""
        with self._lock:
            self._closed = True
        runtimes = self.all()
        for runtime in runtimes.values():  # all stop side by side
            runtime.close(timeout=0)
        for name in runtimes:
            try:
                self.close(name)
            except CommandError:
                pass  # somebody else has closed it
