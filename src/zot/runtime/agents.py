"""Agents side by side in one process: opened by name, listed, closed. build.py supplies the
function that builds one; each front end supplies the client that listens to it.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import TYPE_CHECKING, Literal

from zot.core.agent import Limits
from zot.core.confinement import JailWords
from zot.errors import CommandError, NotFoundError
from zot.provider.types import Usage
from zot.runtime.client import RuntimeClient
from zot.text import Frozen

if TYPE_CHECKING:
    from zot.runtime.runtime import Runtime

MAX_AGENTS = 1000
MAX_NAME = 64
"""Maximum bytes of an agent's name."""
TASK = "task"
"""Name of the tool with which the model opens agents."""
MAX_TASK_DEPTH = 2
"""Maximum levels of agents below the root agent."""
STOP_SECONDS = 10.0
"""Seconds to wait for a closing agent; longer than an aborted run takes to be given up."""


class AgentRequest(Frozen, kw_only=True):
    """Settings of a new agent that differ from its opener's. Omitted fields are inherited, except
    the conversation, which starts empty and in memory."""

    cwd: str = ""
    """Working directory, relative to the opener's."""
    provider: str = ""
    model: str = ""
    session: str = ""
    """Session file to continue or create."""
    tools: tuple[str, ...] | None = None
    limits: Limits | None = None
    approve: tuple[str, ...] | None = None
    """Tools that need approval."""
    jail: JailWords | None = None
    depth: int | None = None
    """Levels of agents that its tool `task` may open below it; None: as for the root agent."""
    durable: bool = False
    """Whether runs cut off by a crash continue when the session is opened again."""
    trace: str = ""
    """W3C traceparent of the call that opens the agent; empty: nothing is traced."""


class AgentInfo(Frozen):
    """Summary of an agent, for lists."""

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
    """Ids of the open questions."""
    parent: str | None = None
    """Agent whose tool opened this one; None: a client did."""


Build = Callable[[AgentRequest, RuntimeClient], "Runtime"]


class Agents:
    """The named agents of a process. Safe to call from any thread."""

    def __init__(self, build: Build) -> None:
        self._build = build
        self._lock = threading.Lock()
        self._runtimes: dict[str, Runtime | None] = {}
        """None: the runtime is being built."""
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
        prefix: str = "agent",
        parent: str | None = None,
    ) -> tuple[str, Runtime]:
        """Open an agent; return its name and runtime. Without a name, one is generated with the
        prefix `prefix`. `client` creates the client that listens to the agent. `parent`: the agent
        whose tool opens it.

        Raises:
            CommandError: the name is taken or cannot be one, or there are too many.
            ConfigError, AuthError, SessionError: it cannot be what is asked for.
        """
        name = self._reserved(name, prefix)
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

    def _reserved(self, name: str, prefix: str) -> str:
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
                generated = f"{prefix}-{self._count}"
                name = generated if generated not in self._runtimes else ""
            self._runtimes[name] = None
            return name

    def get(self, name: str) -> Runtime:
        """Return the runtime of an agent. Raises CommandError when there is no such agent."""
        runtime = self._runtimes.get(name)
        if runtime is None:
            raise NotFoundError(f"not_found: there is no agent {name!r}")
        return runtime

    def all(self) -> dict[str, Runtime]:
        """Return the runtimes that are ready, in the order of opening."""
        with self._lock:
            items = [*self._runtimes.items()]
        return {name: runtime for name, runtime in items if runtime is not None}

    def list(self) -> list[AgentInfo]:
        return [self._info(name, runtime) for name, runtime in self.all().items()]

    def _info(self, name: str, runtime: Runtime) -> AgentInfo:
        state, questions = runtime.state(), runtime.open_questions()
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
        """Abort the agent's work, wait for its end, and release its resources.

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
        """Close all agents and refuse new ones."""
        with self._lock:
            self._closed = True
        runtimes = self.all()
        for runtime in runtimes.values():  # stop all in parallel
            runtime.close(timeout=0)
        for name in runtimes:
            try:
                self.close(name)
            except CommandError:
                pass  # already closed by another thread
