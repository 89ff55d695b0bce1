"""One task of an MCP client: a runtime of its own, from the call to its result.

The session is closed before the result is sent, so that the next call can continue it.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

import msgspec
from msgspec.structs import asdict, replace

from zot.beneath import is_below
from zot.bugs import internal_error
from zot.build import Additions, approval_for, build_runtime
from zot.cancel import Cancel
from zot.core import events
from zot.core.agent import Limits
from zot.core.events import Event
from zot.core.source import Question
from zot.core.tool import shortened, title_of
from zot.errors import Cancelled, CommandError, ZotError
from zot.home import Surroundings
from zot.jsonrpc import RpcAnswer
from zot.mcpserver import protocol
from zot.mcpserver.protocol import JsonObject, McpPeer
from zot.mcpserver.tools import AnyArguments, LimitArguments, ReplyArguments, StartArguments
from zot.provider.types import Text, Usage
from zot.runtime.approval import DEFAULT_TOOLS, SERVER_TOOLS
from zot.runtime.client import RuntimeClient
from zot.runtime.run import Run
from zot.runtime.runtime import Runtime
from zot.sessions import library
from zot.sessions.files import load
from zot.settings.options import Options
from zot.settings.resolve import Plan, plan
from zot.text import Frozen
from zot.wire import forms

if TYPE_CHECKING:
    from zot.mcpserver.server import ZotMcpServer

CLOSE_SECONDS = 3.0
ASKED = (*DEFAULT_TOOLS, SERVER_TOOLS)


class McpQuestion(Frozen):
    """A question to the client's user, and the callback for the answer."""

    form: JsonObject
    take: Callable[[Any], None]
    request: int | None = None
    """Id of the request that asks, in the older era."""


class McpJob(RuntimeClient):
    """A task. The server, not the job, knows which request waits for it."""

    def __init__(
        self, wire: ZotMcpServer, peer: McpPeer, arguments: AnyArguments, token: int | str | None
    ) -> None:
        self._wire = wire
        self.peer = peer
        self.token = token
        """Progress token of the call that waits for the result; each call may bring a new one."""
        self._arguments = arguments
        self._lock = threading.Lock()
        self._cancel = Cancel()
        self._runtime: Runtime | None = None
        self._folder = ""
        """Working directory of the task, with links resolved."""
        self._text = ""
        self._was_cut = False
        self._steps = 0
        self._open: dict[str, McpQuestion] = {}
        """Open questions by the id of the approval or dialog."""

    # --- the work ----------------------------------------------------------------------------

    def work(self, options: Options, around: Surroundings) -> JsonObject:
        """Run the task in this thread; return its result, even on failure."""
        try:
            runtime = self._built(options, around)
        except ZotError as error:
            return protocol.called(str(error), self.peer, failed=True)
        except Exception as error:  # a bug of ours ends this call, not the process
            return protocol.called(str(internal_error(error)), self.peer, failed=True)
        before = runtime.state().usage
        try:
            return self._done(runtime, self._run(runtime), before)
        except Cancelled:
            return self._result(runtime, before, "aborted", None)
        except ZotError as error:
            return self._result(runtime, before, "error", error)
        finally:
            for id in list(self._open):
                self._resolved(id)
            runtime.close(timeout=CLOSE_SECONDS)
            runtime.release()

    def _built(self, options: Options, around: Surroundings) -> Runtime:
        planned = self._planned(options, around)
        settings = planned.setup.options
        approval = None
        if not settings.yolo:
            # Named tools are asked for or denied also where nobody can be asked.
            approval = approval_for(settings, self, settings.approve or ASKED)
        try:
            runtime = build_runtime(
                planned, self, Additions(keep=True, approval=approval, owns_process=True)
            )
        except BaseException:
            if planned.session is not None:
                planned.session.close()
            raise
        if runtime.shell.jail_root not in ("", self._folder):
            # The directory was replaced by a link after the check. A jail holds it open, so it
            # cannot change from here on.
            runtime.close(timeout=CLOSE_SECONDS)
            runtime.release()
            raise CommandError(
                f"jailed: {self._folder!r} was replaced while the task began; call again when no"
                " other task changes it"
            )
        return runtime

    def _planned(self, options: Options, around: Surroundings) -> Plan:
        options = replace(options, tools=narrowed(options.tools, self._arguments.tools))
        match self._arguments:
            case StartArguments(cwd=cwd):
                if cwd and not os.path.isabs(cwd):
                    raise CommandError(f"cwd must be an absolute path, not {cwd!r}")
                return self._planned_in(cwd, options, around)
            case ReplyArguments(session_id=id):
                path = library.find_id(id, around.home)
                cwd = load(path).meta.cwd
                cwd = cwd if os.path.isdir(cwd) else ""
                return self._planned_in(cwd, replace(options, session=path), around)

    def _planned_in(self, cwd: str, options: Options, around: Surroundings) -> Plan:
        """Plan for a directory that the caller, possibly a model, has chosen."""
        here = os.path.realpath(around.absolute(options.cwd))
        there = self._folder = os.path.realpath(cwd) if cwd else here
        if there == here:
            return plan(options, around)
        planned = plan(replace(options, cwd=there, trust=False), around)
        try:
            if planned.setup.options.jail:
                _check_jail(there, here, around.environ)
        except ZotError:
            if planned.session is not None:
                planned.session.close()
            raise
        return planned

    def _run(self, runtime: Runtime) -> Run | None:
        """Return the run when it has ended; None: a command did all the work."""
        arguments = self._arguments
        if isinstance(arguments, ReplyArguments):
            runtime.sessions.adopt()  # the server's own model is for new tasks
        if arguments.model:
            runtime.models.set(arguments.model)
        if arguments.reasoning:
            runtime.models.set_reasoning(arguments.reasoning)
        self._runtime = runtime
        command = runtime.commands.run_typed(arguments.prompt, self._cancel)
        prompt, call = arguments.prompt, None
        if command is None:
            runtime.commands.check_typed(prompt)
        else:
            if command.action == "error":
                raise CommandError(command.text, code="extension")
            if command.action not in ("prompt", "insert"):
                self._text = command.text
                return None
            prompt, call = command.text, command.call
        limits = lower(runtime.agent.settings.limits, arguments)
        run = runtime.prompt(prompt, tag=self, limits=limits, call=call)
        if self._cancel.is_set():  # aborted before the prompt was accepted
            runtime.abort(self)
        run.ended.wait()
        return run

    def cancel(self) -> None:
        """Stop as soon as possible; `work` then returns."""
        self._cancel.set()
        if (runtime := self._runtime) is not None:
            runtime.abort(self)

    # --- the result --------------------------------------------------------------------------

    def _done(self, runtime: Runtime, run: Run | None, before: Usage) -> JsonObject:
        if run is None:
            return self._result(runtime, before, "end", None)
        stop = "length" if run.stop == "end" and self._was_cut else run.stop
        return self._result(runtime, before, stop, run.error)

    def _result(
        self, runtime: Runtime, before: Usage, stop: str, error: ZotError | None
    ) -> JsonObject:
        usage = runtime.state().usage
        text = self._text if error is None else str(error)
        facts: JsonObject = {
            "session_id": runtime.session.id,
            "text": text,
            "stop": stop,
            "model": f"{runtime.models.current.provider}/{runtime.models.current.id}",
            "input_tokens": _read(usage) - _read(before),
            "output_tokens": usage.output - before.output,
        }
        if usage.cost_known:
            facts["cost_usd"] = usage.cost.total - before.cost.total
            facts["session_cost_usd"] = usage.cost.total
        if error is not None:
            facts["error"] = error.code
        return protocol.called(text, self.peer, facts, failed=stop in ("error", "aborted"))

    # --- the runtime's client ----------------------------------------------------------------

    def wait(self, cancel: Cancel) -> None:
        self._wire.wait(cancel)

    def overfull(self) -> bool:
        return self._wire.overfull()

    def can_answer(self, what: Question) -> bool:
        return self.peer.forms

    def listen(self, event: Event, run: Run | None) -> None:
        match event:
            case events.TurnStart(step):
                self._progress("thinking" if step == 1 else f"thinking, step {step}")
            case events.TurnEnd(stop):
                self._was_cut = stop == "length"
            case events.AssistantMessage(message):
                texts = [part.text for part in message.content if isinstance(part, Text)]
                self._text = "".join(texts) or self._text
                self._progress(shortened("".join(texts)))
            case events.ToolAllowed(call):
                self._progress(title_of(call))
            case events.Retrying(reason=reason):
                self._progress(f"trying again: {reason}")
            case events.ApprovalRequest(id):
                form = protocol.approval_form(title_of(event.call), event.diff or event.preview)
                self._ask(id, form, lambda answer: self._decide(id, answer))
            case events.ExtensionAsk(id=id):
                text, schema = forms.form_of(event)
                form = {"message": text, "requestedSchema": schema}
                self._ask(id, form, lambda answer: self._answer(event, answer))
            case events.ApprovalResolved(id):
                self._resolved(id)
            case _:
                pass

    def _progress(self, message: str) -> None:
        if self.token is not None and message:
            self._steps += 1
            params = {"progressToken": self.token, "progress": self._steps, "message": message}
            self._wire.peer.notify("notifications/progress", params)

    # --- questions ---------------------------------------------------------------------------

    def _ask(self, id: str, form: JsonObject, take: Callable[[Any], None]) -> None:
        if self.peer.modern:
            with self._lock:
                self._open[id] = McpQuestion(form, take)
            self._ask_all()
        else:
            request = self._wire.peer.ask(
                "elicitation/create", form, lambda answer: take(_decoded(answer))
            )
            with self._lock:
                self._open[id] = McpQuestion(form, take, request)

    def _ask_all(self) -> None:
        with self._lock:
            shown = {id: question.form for id, question in self._open.items()}
        if shown:
            self._wire.answer_with_questions(self, shown)

    def answered(self, responses: JsonObject) -> None:
        """Take the answers that the client sent with its next call."""
        for id, answer in responses.items():
            with self._lock:
                question = self._open.pop(id, None)
            if question is not None:
                question.take(answer)
        self._ask_all()  # questions that arrived meanwhile

    def _decide(self, id: str, answer: Any) -> None:
        assert self._runtime is not None
        try:
            self._runtime.approve(id, protocol.chosen(answer))
        except ZotError:
            pass  # it timed out, or was aborted, meanwhile

    def _answer(self, ask: events.ExtensionAsk, answer: Any) -> None:
        assert self._runtime is not None
        with self._lock:
            self._open.pop(ask.id, None)
        try:
            self._runtime.dialogs.answer(ask.id, **asdict(forms.answer_of(ask, answer)))
        except ZotError:
            pass  # likewise

    def _resolved(self, id: str) -> None:
        with self._lock:
            question = self._open.pop(id, None)
        if question is not None and question.request is not None:
            self._wire.peer.withdraw(
                question.request, reason="nobody waits for the answer any more"
            )


def _check_jail(there: str, here: str, environ: Mapping[str, str]) -> None:
    """Raise ZotError if a caller of a server that is jailed in `here` may not work in `there`."""
    from zot.tools.jail.fit import check_above, check_led_to

    if not is_below(there, here):
        raise CommandError(
            f"jailed: {there!r} is not below {here!r}, where this server was started with --jail"
        )
    check_above(there, here)
    check_led_to(there, here, environ)


def narrowed(
    allowed: tuple[str, ...] | None, wanted: tuple[str, ...] | None
) -> tuple[str, ...] | None:
    """Return the tools of a call: the requested ones that the server may use."""
    if allowed is None or wanted is None:
        return wanted if allowed is None else allowed
    return tuple(name for name in wanted if name in allowed)


def lower(limits: Limits, arguments: LimitArguments) -> Limits:
    """Return the limits of a call, which can only lower those of the server."""
    fields: dict[str, Any] = {}
    for name in Limits.__struct_fields__:
        both = (getattr(limits, name), getattr(arguments, name))
        fields[name] = min((value for value in both if value is not None), default=None)
    return Limits(**fields)


def _decoded(answer: RpcAnswer) -> Any:
    """Return the result of a question; None: an error, or no JSON."""
    try:
        return None if answer.fault is not None else msgspec.json.decode(answer.result)
    except (msgspec.DecodeError, RecursionError):
        return None


def _read(usage: Usage) -> int:
    return usage.input + usage.cache_read + usage.cache_write
