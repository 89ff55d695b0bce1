"""One task of an MCP client: a runtime of its own, from the call to its result.

The session is closed before the result is told, so that the next call can go on with it.
"""

from __future__ import annotations

import os
import threading
from typing import TYPE_CHECKING, Any

from msgspec.structs import replace

from zot.bugs import internal_error
from zot.build import Additions, build_runtime
from zot.cancel import Cancel
from zot.core import events
from zot.core.agent import Limits
from zot.core.events import Event
from zot.core.source import Question
from zot.core.titles import shortened, title_of
from zot.errors import CommandError, ZotError
from zot.home import Surroundings
from zot.mcpserver import protocol
from zot.mcpserver.protocol import JsonObject, McpPeer
from zot.mcpserver.tools import Limited, ReplyArguments, StartArguments, TaskArguments
from zot.provider.types import Text, Usage
from zot.runtime.approval import DEFAULT_TOOLS, SERVER_TOOLS, Approval
from zot.runtime.client import RuntimeClient
from zot.runtime.run import Run
from zot.runtime.runtime import Runtime
from zot.sessions import library
from zot.sessions.files import load
from zot.settings.flags import Options
from zot.settings.plan import Plan, plan

if TYPE_CHECKING:
    from zot.mcpserver.server import ZotMcpServer

CLOSE_SECONDS = 3.0
ASKED = (*DEFAULT_TOOLS, SERVER_TOOLS)
KEY = "approval"
"""What the one question of an `input_required` is called."""


class McpJob(RuntimeClient):
    """Knows nothing of the request that waits for it: the server does."""

    def __init__(
        self, wire: ZotMcpServer, peer: McpPeer, arguments: TaskArguments, token: int | str | None
    ) -> None:
        self._wire = wire
        self.peer = peer
        self.token = token
        """Of the call that waits for the result; each call may bring another one."""
        self._arguments = arguments
        self._lock = threading.Lock()
        self._cancelled = False
        self._runtime: Runtime | None = None
        self._said = ""
        self._cut = False
        self._steps = 0
        self._open: tuple[str, int | None] | None = None
        """The approval that is asked for, and the request that asks in the older era."""

    # --- the work ----------------------------------------------------------------------------

    def work(self, options: Options, around: Surroundings) -> JsonObject:
        """Do the task, in this thread; its result, whatever happens."""
        try:
            runtime = self._built(options, around)
        except ZotError as error:
            return protocol.refused(str(error), self.peer)
        except Exception as error:  # a bug of ours ends this call, not the process
            return protocol.refused(str(internal_error(error)), self.peer)
        before = runtime.state().usage
        try:
            return self._done(runtime, self._run(runtime), before)
        except ZotError as error:
            return self._result(runtime, before, "error", error)
        finally:
            runtime.close(timeout=CLOSE_SECONDS)
            runtime.release()

    def _built(self, options: Options, around: Surroundings) -> Runtime:
        planned = self._planned(options, around)
        settings = planned.setup.options
        approval = None
        if not settings.yolo:
            # Named, so that they are asked for or denied also where nobody can be asked.
            approval = Approval(settings.approve or ASKED, client=self)
        try:
            return build_runtime(
                planned, self, Additions(keep=True, approval=approval, owns_process=True)
            )
        except BaseException:
            if planned.session is not None:
                planned.session.close()
            raise

    def _planned(self, options: Options, around: Surroundings) -> Plan:
        match self._arguments:
            case StartArguments(cwd=cwd, reasoning=reasoning, tools=tools):
                if cwd and not os.path.isabs(cwd):
                    raise CommandError(f"cwd must be an absolute path, not {cwd!r}")
                options = replace(options, tools=narrowed(options.tools, tools))
                options = replace(options, reasoning=reasoning or options.reasoning)
                return self._planned_in(cwd, options, around)
            case ReplyArguments(session_id=id):
                path = library.find_id(id, around.home)
                cwd = load(path).meta.cwd
                cwd = cwd if os.path.isdir(cwd) else ""
                return self._planned_in(cwd, replace(options, session=path), around)

    def _planned_in(self, cwd: str, options: Options, around: Surroundings) -> Plan:
        """The plan for a directory that a caller, who may be a model, has chosen."""
        here = os.path.realpath(around.absolute(options.cwd))
        there = os.path.realpath(cwd) if cwd else here
        if there == here:
            return plan(options, around)
        planned = plan(replace(options, cwd=there, trust=False), around)
        if planned.setup.options.jail and not there.startswith(here.rstrip("/") + "/"):
            if planned.session is not None:
                planned.session.close()
            raise CommandError(
                f"jailed: {cwd!r} is not below {here!r}, where this server was started with --jail"
            )
        return planned

    def _run(self, runtime: Runtime) -> Run:
        arguments = self._arguments
        if isinstance(arguments, StartArguments) and arguments.model:
            runtime.set_model(arguments.model)
        limits = lower(runtime.settings.limits, arguments)
        with self._lock:
            self._runtime = runtime
        run = runtime.prompt(arguments.prompt, tag=self, limits=limits)
        if self._cancelled:  # while it was on its way here
            runtime.abort(self)
        run.ended.wait()
        return run

    def cancel(self) -> None:
        """Stop as soon as possible; `work` returns then."""
        with self._lock:
            self._cancelled = True
            runtime = self._runtime
        if runtime is not None:
            runtime.abort(self)

    # --- the result --------------------------------------------------------------------------

    def _done(self, runtime: Runtime, run: Run, before: Usage) -> JsonObject:
        stop = "length" if run.stop == "end" and self._cut else run.stop
        return self._result(runtime, before, stop, run.error)

    def _result(
        self, runtime: Runtime, before: Usage, stop: str, error: ZotError | None
    ) -> JsonObject:
        usage = runtime.state().usage
        text = self._said if error is None else str(error)
        facts: JsonObject = {
            "session_id": runtime.session.id,
            "text": text,
            "stop": stop,
            "model": f"{runtime.model.provider}/{runtime.model.id}",
            "input_tokens": usage.input + usage.cache_read + usage.cache_write - _read(before),
            "output_tokens": usage.output - before.output,
        }
        if usage.cost_known:
            facts["cost_usd"] = usage.cost.total - before.cost.total
            facts["session_cost_usd"] = usage.cost.total
        if error is not None:
            facts["error"] = error.code
        return protocol.called(text, facts, self.peer, failed=stop in ("error", "aborted"))

    # --- the runtime's client ----------------------------------------------------------------

    def wait(self, cancel: Cancel) -> None:
        self._wire.wait(cancel)

    def overfull(self) -> bool:
        return self._wire.overfull()

    def can_answer(self, what: Question) -> bool:
        return what == "approval" and self.peer.forms

    def listen(self, event: Event, run: Run | None) -> None:
        match event:
            case events.TurnStart(step):
                self._progress("thinking" if step == 1 else f"thinking, step {step}")
            case events.TurnEnd(stop):
                self._cut = stop == "length"
            case events.AssistantMessage(message):
                texts = [part.text for part in message.content if isinstance(part, Text)]
                self._said = "".join(texts) or self._said
                self._progress(shortened("".join(texts)))
            case events.ToolAllowed(call):
                self._progress(title_of(call))
            case events.Retrying(reason=reason):
                self._progress(f"trying again: {reason}")
            case events.ApprovalRequest():
                self._ask(event)
            case events.ApprovalResolved(id):
                self._resolved(id)
            case _:
                pass

    def _progress(self, message: str) -> None:
        if self.token is not None and message:
            self._steps += 1
            self._wire.progress(self.token, self._steps, message)

    # --- approval ----------------------------------------------------------------------------

    def _ask(self, asked: events.ApprovalRequest) -> None:
        question = protocol.approval_form(title_of(asked.call), asked.diff or asked.preview)
        if self.peer.modern:
            self._open = (asked.id, None)
            self._wire.asked(self, question)
        else:
            request = self._wire.ask(question, lambda answer: self._decide(asked.id, answer))
            self._open = (asked.id, request)

    def answered(self, responses: JsonObject) -> None:
        """The client called again, with the answer to what it was asked."""
        if self._open is not None:
            self._decide(self._open[0], responses.get(KEY))

    def _decide(self, id: str, answer: Any) -> None:
        assert self._runtime is not None
        try:
            self._runtime.approve(id, protocol.chosen(answer))
        except ZotError:
            pass  # it timed out, or was aborted, meanwhile

    def _resolved(self, id: str) -> None:
        if self._open is not None and self._open[0] == id:
            request = self._open[1]
            self._open = None
            if request is not None:
                self._wire.withdraw(request)


def narrowed(
    allowed: tuple[str, ...] | None, wanted: tuple[str, ...] | None
) -> tuple[str, ...] | None:
    """The tools of a call: those that it wants, of those that the server may use."""
    if allowed is None or wanted is None:
        return wanted if allowed is None else allowed
    return tuple(name for name in wanted if name in allowed)


def lower(limits: Limits, arguments: Limited) -> Limits:
    """The limits of a call; it can only ask for less than the server was started with."""
    fields: dict[str, Any] = {}
    for name in ("max_steps", "max_cost", "max_tokens", "max_seconds"):
        both = (getattr(limits, name), getattr(arguments, name))
        fields[name] = min((value for value in both if value is not None), default=None)
    return Limits(**fields)


def _read(usage: Usage) -> int:
    return usage.input + usage.cache_read + usage.cache_write
