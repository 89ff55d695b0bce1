"""Sub-agents as a tool: the model hands work to a fresh agent with its own context, tools and
limits, which answers with one message. Off unless a setting enables it.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import msgspec
from msgspec.structs import replace

from zot import errors
from zot.bugs import report_bug
from zot.core import events
from zot.core.agent import NO_TIME, Limits
from zot.core.check import Checker
from zot.core.events import Event, UsageReport
from zot.core.hook import Subagent, SubagentStatus
from zot.core.source import ReadySource
from zot.core.tool import Tool, ToolContext
from zot.provider.types import Json, texts_in
from zot.runtime.agents import TASK, AgentRequest, Agents
from zot.runtime.client import BETWEEN, RuntimeClient

if TYPE_CHECKING:
    from collections.abc import Iterator

    from zot.cancel import Cancel
    from zot.core.source import Question
    from zot.runtime.run import Run
    from zot.runtime.runtime import Runtime

AT_ONCE = 4
MAX_TASKS = 32
"""Maximum tasks for one prompt."""
SHARE = 1 / AT_ONCE
"""Share of the run's remaining budget for each task, so that all together stay within it."""
MAX_STEPS = 50
SCHEMA_ROUNDS = 2
DESCRIPTION = (
    "Hand work to a fresh agent that sees nothing of this conversation, and get its last message."
    " Calls of one turn run side by side, so no two should change the same files. Good for searches"
    " and reviews."
)
SCHEMA: dict[str, Json] = {
    "type": "object",
    "properties": {
        "prompt": {"type": "string", "description": "all it must know"},
        "tools": {
            "type": "array",
            "items": {"type": "string"},
            "description": "only these, e.g. read, grep",
        },
        "model": {"type": "string"},
        "cwd": {"type": "string"},
        "max_steps": {"type": "integer", "minimum": 1},
        "schema": {"type": "object", "description": "JSON Schema of the answer, an object"},
    },
    "required": ["prompt"],
}


class TaskAborted(errors.ToolError):
    """The sub-agent was aborted, not its parent."""


class TaskSource(ReadySource):
    """The tool `task` of one runtime."""

    name = "tasks"
    next_look = 0.0  # prepared before each run, to reset the count

    def __init__(self, agents: Agents, depth: int, names: Sequence[str] | None = None) -> None:
        """`depth`: levels of agents allowed below this one. `names`: the only tools allowed for
        this agent, and so for those below it."""
        self._tool = TaskTool(agents, depth, names)
        self._tools: tuple[Tool, ...] = (self._tool,)

    def use(self, runtime: Runtime) -> None:
        self._tool.parent = runtime

    def prepare(self, cancel: Cancel) -> None:
        self._tool.count = 0

    def tools(self) -> Sequence[Tool]:
        return self._tools


class TaskTool:
    name = TASK
    description = DESCRIPTION
    schema = SCHEMA
    side_by_side = True

    def __init__(self, agents: Agents, depth: int, names: Sequence[str] | None) -> None:
        self._agents, self._depth, self._names = agents, depth, names
        self._changed = threading.Condition()
        self._running = 0
        self.parent: Runtime | None = None
        """Runtime that this tool belongs to."""
        self.count = 0

    def run(self, args: dict[str, Json], context: ToolContext) -> str:
        with self._changed:
            self.count += 1
            if self.count > MAX_TASKS:
                raise errors.ToolError(
                    f"{MAX_TASKS} tasks were started for this prompt; no more can be"
                )
        checker = _checker(args)
        with self._a_place(context.cancel), self._opened(args, context) as child:
            text = str(args["prompt"])
            if checker is None:
                return self._answer(child, text, context)
            text += f"\n\nAnswer with one JSON object and nothing else. {_fits(checker)}"
            problem: str | None = None
            for _ in range(SCHEMA_ROUNDS):
                answer = _json_in(self._answer(child, text, context))
                problem = _problem(checker, answer)
                if problem is None:
                    return answer
                text = f"That does not fit: {problem}. Answer again. {_fits(checker)}"
            raise errors.ToolError(f"the answer of the task does not fit the schema: {problem}")

    @contextmanager
    def _a_place(self, cancel: Cancel) -> Iterator[None]:
        """Wait for one of the AT_ONCE places and hold it. Raises Cancelled."""
        with self._changed:
            cancel.wait_for(self._changed, lambda: self._running < AT_ONCE)
            cancel.check()
            self._running += 1
        try:
            yield
        finally:
            with self._changed:
                self._running -= 1
                self._changed.notify_all()

    @contextmanager
    def _opened(self, args: dict[str, Json], context: ToolContext) -> Iterator[Runtime]:
        parent = self.parent
        assert parent is not None  # set when the runtime was built

        def client(name: str) -> RuntimeClient:
            own = parent.client.for_agent(name, parent.name)
            return own or Relay(parent, name, context.progress)

        try:
            name, child = self._agents.open(
                "",
                self._request(args, parent, context.trace),
                client,
                prefix=TASK,
                parent=parent.name,
            )
        except (errors.CommandError, errors.ConfigError, errors.SessionError) as error:
            raise errors.ToolError(f"the task cannot be started: {error}") from error
        child.runs.add_listener(lambda event, _: _pay(event, context))
        child.agent.payer = parent.agent
        status: SubagentStatus = "failed"
        _tell(parent, Subagent(name, child.session.id, "running"))
        try:
            yield child
            status = "completed"
        except (errors.Cancelled, TaskAborted):
            left = parent.agent.left().max_seconds
            status = "cancelled" if left is None or left > NO_TIME else "timed_out"
            raise
        except errors.ToolTimedOut:
            status = "timed_out"
            raise
        finally:
            self._agents.close(name)
            _tell(parent, Subagent(name, child.session.id, status))

    def _request(self, args: dict[str, Any], parent: Runtime, trace: str) -> AgentRequest:
        """Return the request for the model's arguments, within the limits of its own agent."""
        left = parent.agent.left()
        steps = min(int(args.get("max_steps") or MAX_STEPS), left.max_steps or MAX_STEPS)
        limits = Limits(
            max_steps=steps,
            max_cost=_part(left.max_cost),
            max_tokens=None if left.max_tokens is None else int(max(1, left.max_tokens * SHARE)),
            max_seconds=left.max_seconds,
        )
        jailed = parent.state().jail
        return AgentRequest(
            cwd=_directory(args.get("cwd"), parent.cwd, jailed=jailed),
            provider=parent.models.current.provider,
            model=args.get("model") or parent.models.current.id,
            tools=self._tools_among(args.get("tools")),
            limits=limits,
            jail=parent.shell.jail_words,
            depth=self._depth - 1,
            trace=trace,
        )

    def _tools_among(self, wanted: list[str] | None) -> tuple[str, ...] | None:
        if self._names is None:
            return None if wanted is None else tuple(wanted)
        for name in wanted or ():
            if name not in self._names:
                raise errors.ToolError(
                    f"the task cannot have the tool {name!r}: this agent has only "
                    f"{', '.join(self._names)}"
                )
        return tuple(self._names if wanted is None else wanted)

    def _answer(self, child: Runtime, text: str, context: ToolContext) -> str:
        """Run a prompt in the child; return the text of its last message.

        Raises:
            ToolError: it failed; ToolTimedOut, for want of time.
            Cancelled: the turn was aborted, and the child with it.
        """
        context.cancel.check()
        run = child.prompt(text)
        with context.cancel.calling(run.cancel.set):
            run.ended.wait()
        context.cancel.check()
        if isinstance(run.error, errors.LimitError) and run.error.limit == "seconds":
            raise errors.ToolTimedOut(f"the task failed: {run.error}")
        if run.error is not None:
            raise errors.ToolError(f"the task failed: {run.error}")
        if run.stop == "aborted":
            raise TaskAborted("the task was aborted")
        return _last_text(child) or "(the task ended without a word)"


class Relay(RuntimeClient):
    """Client of an agent that the tool opened, for a parent client that cannot distinguish agents:
    forwards approval requests in the parent's name, and shows tool calls as progress of the tool.
    """

    def __init__(self, parent: Runtime, name: str, progress: Callable[[str], None]) -> None:
        self._parent = parent
        self._name = name
        self._progress = progress

    def listen(self, event: Event, run: Run | None) -> None:
        self.agent_event(self._name, self._parent.name, event)
        match event:
            case events.ApprovalRequest() | events.ApprovalResolved():
                named = replace(event, id=f"{self._name}{BETWEEN}{event.id}")
                self._parent.runs.tell(named, self._parent.runs.running)
            case events.ToolCalled(call):
                try:
                    self._progress(f"[{self._name}] {call.name}\n")
                except errors.Cancelled:
                    pass  # the parent's run was given up
            case _:
                pass

    def agent_event(self, agent: str, parent: str, event: Event) -> None:
        """Forward an event, including those of agents that the agent opened."""
        self._parent.client.agent_event(agent, parent, event)

    def wait(self, cancel: Cancel) -> None:
        self._parent.client.wait(cancel)

    def overfull(self) -> bool:
        return self._parent.client.overfull()

    def can_answer(self, what: Question) -> bool:
        """Extension questions are not forwarded: they have no agent field."""
        return what == "approval" and self._parent.client.can_answer(what)


def _pay(event: Event, context: ToolContext) -> None:
    """Charge each model call of a task to its parent at once, so that a crash loses none."""
    if isinstance(event, UsageReport):
        try:
            context.spend(event.usage)
        except (errors.Cancelled, errors.SessionError):
            pass  # the parent was given up, or fails anyway because its session cannot be written


def _tell(parent: Runtime, subagent: Subagent) -> None:
    for hook in parent.agent.hooks:
        try:
            hook.subagent_changed(subagent)
        except Exception as error:  # listeners must not affect the task
            report_bug(error)


def _directory(wanted: str | None, here: str, *, jailed: bool) -> str:
    """Return the task's directory. In a jail only the parent's is allowed: names below it could be
    replaced by links that lead out, between any check and any use."""
    if wanted and jailed and os.path.normpath(wanted) not in (".", os.path.normpath(here)):
        raise errors.ToolError(
            "jailed: a task works in the directory of its parent; leave out `cwd`"
        )
    return wanted or here


def _part(amount: float | None) -> float | None:
    return None if amount is None else max(amount * SHARE, 1e-9)


def _last_text(child: Runtime) -> str:
    for message in reversed(child.session.messages()):
        if message.role == "assistant":
            return "".join(texts_in(message.content))
    return ""


def _checker(args: dict[str, Json]) -> Checker | None:
    schema = args.get("schema")
    if schema is None:
        return None
    assert isinstance(schema, dict)  # guaranteed by the tool's own schema
    checker = Checker(schema)
    try:
        checker.problem({})
    except Exception as error:
        raise errors.ToolError(f"the schema cannot be used: {error}") from error
    return checker


def _fits(checker: Checker) -> str:
    return f"It must fit this JSON Schema: {msgspec.json.encode(checker.schema).decode()}"


def _json_in(text: str) -> str:
    """Return the JSON object in an answer; models often put text around it."""
    start, end = text.find("{"), text.rfind("}")
    return text[start : end + 1] if 0 <= start < end else text


def _problem(checker: Checker, answer: str) -> str | None:
    try:
        value = msgspec.json.decode(answer, type=dict[str, Any])
    except (msgspec.MsgspecError, RecursionError) as error:
        return f"it is no JSON object ({error})"
    return checker.problem(value)
