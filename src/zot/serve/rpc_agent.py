"""Commands and event frames of one agent on the zot wire: stage two of `zot rpc`."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any, assert_never

from msgspec import UNSET, Raw
from msgspec.json import decode
from msgspec.structs import asdict, replace

from zot.bugs import complain
from zot.build import Additions, approval_for, build_runtime
from zot.core.image import checked_images
from zot.runtime.run import StoredEnd
from zot.runtime.runtime import Runtime
from zot.serve import rpc_sessions
from zot.serve.rpc_slow import SlowCommands
from zot.settings.resolve import Plan
from zot.wire import commands, encode, shapes, zot
from zot.wire.commands import AnyCommand
from zot.wire.frames import EventFrame
from zot.wire.zot import MAX_ANSWER, Hello, Incoming, Ping, too_large

if TYPE_CHECKING:
    from zot.serve.rpc_agents import NamedAgents
    from zot.serve.rpc_served import ServedAgent
    from zot.wire.eventlog import EventLog

ToFrame = Callable[..., EventFrame | None]
LIMITS = ("max_steps", "max_cost", "max_tokens", "max_seconds")


class AgentCommands:
    """Translates commands of one agent into calls of its Runtime and answers."""

    def __init__(self, agent: ServedAgent) -> None:
        self._agent = agent
        self._server = agent.server
        self._messages = encode.MessageEncoder()
        self.slow = SlowCommands(agent)

    def build(self, plan: Plan) -> Runtime:
        """Build the runtime of the process's own agent, and attach it."""
        options = plan.setup.options
        approval = None if options.yolo else approval_for(options, self._agent)
        added = Additions(approval=approval, warn=complain, owns_process=True)
        runtime = build_runtime(plan, self._agent, added)
        self._agent.use(runtime)
        return runtime

    def named_agents(self) -> NamedAgents:
        """Return the registry of further agents (feature `agents`)."""
        from zot.serve.rpc_agents import NamedAgents

        return NamedAgents(self._server)

    def frames_of(self, runtime: Runtime) -> tuple[EventLog | None, ToFrame]:
        """Return the log of a durable runtime, and the function that makes frames of events."""
        if runtime.runs.durable is None:
            return None, encode.frame
        from zot.wire.eventlog import open_log

        return open_log(runtime), encode.frame

    def take(self, incoming: Incoming, command: AnyCommand) -> None:
        """Execute the command and answer. Raises ZotError: it cannot be executed."""
        if isinstance(command, commands.Prompt):
            self._prompt(incoming, command)
        elif isinstance(command, commands.Starting):
            self._start(incoming, command)
        elif isinstance(command, commands.Slow):
            self.slow.start(incoming, command)
        elif isinstance(command, commands.OfAgents):
            self._server.named.take(incoming, command)
        elif isinstance(command, commands.GetMessages):
            self._answer_messages(incoming, command)
        elif isinstance(command, Hello | Ping):
            raise AssertionError(f"{incoming.name} is answered by stage one")
        else:
            self._agent.answer(incoming, self._data(command))

    # --- runs --------------------------------------------------------------------------------

    def _start(self, incoming: Incoming, command: commands.Starting) -> None:
        agent, runtime = self._agent, self._agent.runtime
        accepted = partial(agent.accept, incoming, "")
        match command:
            case commands.RetryPrompt():
                runtime.retry(tag=incoming.id, accepted=accepted)
            case commands.Compact(instructions):
                runtime.compact(instructions, tag=incoming.id, accepted=accepted)
            case commands.Steer(text, images) | commands.FollowUp(text, images):
                offer = runtime.steer if isinstance(command, commands.Steer) else runtime.follow
                pictures = checked_images(images)
                if offer(text, pictures):
                    agent.answer(incoming)
                else:  # no run can take it: it becomes a prompt
                    runtime.prompt(text, pictures, tag=incoming.id, accepted=accepted)
            case _:
                assert_never(command)

    def _prompt(self, incoming: Incoming, command: commands.Prompt) -> None:
        if command.run and self._repeated(incoming, command.run):
            return
        runtime = self._agent.runtime
        own = {name: value for name in LIMITS if (value := getattr(command, name)) is not None}
        runtime.prompt(
            command.message,
            checked_images(command.images) if command.images else (),
            tag=incoming.id,
            limits=replace(runtime.agent.settings.limits, **own) if own else None,
            accepted=partial(self._agent.accept, incoming, command.run),
            run_id=command.run,
            schema=command.schema,
        )

    def _repeated(self, incoming: Incoming, id: str) -> bool:
        """Answer a prompt whose run is already known; False if it is not."""

        def attached(ahead: int) -> None:
            started = zot.Started(True, ahead, run=id, resumed=True)
            self._agent.answer(incoming, started, tag=incoming.id)

        known = self._agent.runtime.runs.find(id, incoming.id, attached)
        if isinstance(known, StoredEnd):
            end = zot.RunEnd(known.stop, known.error, known.code, known.text)
            self._agent.answer(incoming, zot.Started(False, run=id, already_done=True, end=end))
        return known is not None

    # --- commands that are finished when they are answered -----------------------------------

    def _data(self, command: commands.Quick) -> Any:
        """Execute the command; return the data of the answer."""
        if isinstance(command, commands.Query):
            return self._query(command)
        if isinstance(command, commands.OfSession | commands.OfChanges):
            return rpc_sessions.answer(self._agent.runtime, command)
        return self._change(command)

    def _query(self, command: commands.Query) -> Any:
        runtime = self._agent.runtime
        match command:
            case commands.GetState():
                return encode.state(runtime, self._server.features)
            case commands.GetModels(everywhere):
                models = runtime.models.all("" if everywhere else runtime.models.current.provider)
                return shapes.Models(encode.models(models))
            case commands.GetApprovals():
                rules = (shapes.ApprovalShape(**asdict(rule)) for rule in runtime.approvals.rules())
                return shapes.Approvals(tuple(rules))
            case commands.Events(after, limit):
                from zot.wire.eventlog import events_read

                features = self._server.features
                page = self._agent.event_log().read(features, after, limit)
                return events_read(page, runtime, lambda: encode.state(runtime, features), Raw)
            case _:
                assert_never(command)

    def _change(self, command: commands.Switch | commands.Reply) -> Any:
        runtime = self._agent.runtime
        match command:
            case commands.Clear():
                runtime.sessions.clear()
            case commands.SetModel(name, provider):
                before = runtime.models.current.provider
                model = runtime.models.set(name, provider)
                return shapes.ModelSet(model.id, model.provider if model.provider != before else "")
            case commands.SetReasoning(level):
                return shapes.ReasoningSet(runtime.models.set_reasoning(level))
            case commands.SetJail(words):
                runtime.shell.set_jail(words)
                return shapes.JailSet(words)
            case commands.SetMode(mode):
                runtime.approvals.set_mode(mode)
                return shapes.ModeSet(mode)
            case commands.ResumeRun(run, decision):
                runtime.runs.resume(run, go_on=decision == "continue")
            case commands.Abort(target):
                self._abort(target)
            case commands.AbortShell():
                runtime.shell.abort()
            case commands.Approve(request_id, decision, reason, pattern, args):
                runtime.approve(request_id, decision, reason, pattern=pattern, args=args)
            case commands.RemoveApproval(tool, pattern):
                runtime.approvals.remove_rule(tool, pattern)
            case commands.Answer(request_id, value, confirmed, cancelled):
                runtime.dialogs.answer(
                    request_id, value=value, confirmed=confirmed, cancelled=cancelled
                )
            case commands.PanelKey(extension, panel, key, text):
                runtime.commands.panel_key(extension, panel, key, text)
            case commands.PanelResize(extension, panel, width, height):
                runtime.commands.panel_resize(extension, panel, width, height)
            case commands.PanelClose(extension, panel):
                runtime.commands.panel_close(extension, panel)
            case _:
                assert_never(command)
        return UNSET

    def _abort(self, target: str | int | float | None) -> None:
        runtime = self._agent.runtime
        if target is None:
            runtime.abort()
            return
        tags = (tag for tag in runtime.runs.tags() if isinstance(tag, Raw))
        # Compared as values: an id can be written in several ways.
        if (aborted := next((tag for tag in tags if decode(tag) == target), None)) is not None:
            runtime.abort(aborted)

    def _answer_messages(self, incoming: Incoming, command: commands.GetMessages) -> None:
        end = None if command.limit is None else command.offset + command.limit
        messages = self._agent.runtime.session.messages()[command.offset : end]
        if (size := self._messages.least_size(messages)) > MAX_ANSWER:
            raise too_large(size)  # before building it
        line = zot.success_in_pieces(incoming, self._messages.answer(messages))
        if len(line) > MAX_ANSWER:
            self._messages = encode.MessageEncoder()  # drop a cache that is too large to send
            raise too_large(len(line))
        self._agent.put(line, UNSET)
