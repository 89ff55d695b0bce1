"""Commands and event frames of one agent on the zot wire: stage two of `zot rpc`."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any, assert_never

from msgspec import UNSET, Raw
from msgspec.json import decode
from msgspec.structs import replace

from zot.bugs import complain
from zot.build import Additions, approval_for, build_runtime
from zot.core import image as images
from zot.core.agent import Limits
from zot.provider.types import Image
from zot.runtime.run import StoredEnd
from zot.runtime.runtime import Runtime
from zot.serve import rpc_sessions
from zot.serve.rpc_commands import SlowCommands
from zot.settings.resolve import Plan
from zot.wire import commands, shapes, zot, zot_events, zot_replies
from zot.wire.commands import AnyCommand
from zot.wire.frames import EventFrame
from zot.wire.shapes import EventsRead, State
from zot.wire.zot import MAX_ANSWER, Hello, Incoming, Ping, too_large
from zot.wire.zot_replies import KeptMessages

if TYPE_CHECKING:
    from zot.serve.rpc_agents import NamedAgents
    from zot.serve.rpc_served import ServedAgent
    from zot.wire.kept import KeptFrames

ToFrame = Callable[..., EventFrame | None]
LIMITS = ("max_steps", "max_cost", "max_tokens", "max_seconds")


class AgentCommands:
    """Translates commands of one agent into calls of its Runtime and answers."""

    def __init__(self, agent: ServedAgent) -> None:
        self._agent = agent
        self._server = agent.server
        self._messages: KeptMessages | None = None
        self._slow: SlowCommands | None = None

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

    def frames_of(self, runtime: Runtime) -> tuple[KeptFrames | None, ToFrame]:
        """Return the log of a durable runtime, and the function that makes frames of events."""
        if runtime.runs.durable is not None:
            from zot.wire.kept import KeptFrames

            return KeptFrames(runtime), zot_events.frame
        return None, zot_events.frame

    def take(self, incoming: Incoming, command: AnyCommand) -> None:
        agent = self._agent
        match command:
            case commands.Prompt():
                self._prompt(incoming, command)
            case Hello() | Ping():
                raise AssertionError(f"{incoming.name} is answered by stage one")
            case commands.OpenAgent() | commands.CloseAgent() | commands.ListAgents():
                self._server.named.take(incoming, command)
            case commands.RetryPrompt():
                agent.runtime.retry(tag=incoming.id, accepted=partial(agent.accept, incoming, ""))
            case commands.Compact(instructions):
                agent.runtime.compact(
                    instructions, tag=incoming.id, accepted=partial(agent.accept, incoming, "")
                )
            case commands.Abort(target):
                self._abort(target)
                agent.answer(incoming)
            case commands.Events(after, limit):
                agent.answer(incoming, self._events(after, limit), limit=MAX_ANSWER)
            case commands.Steer():
                self._queue(incoming, command, agent.runtime.steer)
            case commands.FollowUp():
                self._queue(incoming, command, agent.runtime.follow)
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
                data = rpc_sessions.answer(agent.runtime, command)
                agent.answer(incoming, data, limit=MAX_ANSWER)
            case _:
                agent.answer(incoming, self._change(command))

    def _prompt(self, incoming: Incoming, command: commands.Prompt) -> None:
        if command.run and self._repeated(incoming, command.run):
            return
        runtime, limits = self._agent.built or self._agent.runtime, None
        if (
            command.max_steps is not None
            or command.max_cost is not None
            or command.max_tokens is not None
            or command.max_seconds is not None
        ):
            limits = self._limits(command, runtime.agent.settings.limits)
        runtime.prompt(
            command.message,
            images.checked_images(command.images) if command.images else (),
            tag=incoming.id,
            limits=limits,
            accepted=partial(self._agent.accept, incoming, command.run),
            run_id=command.run,
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

    def _limits(self, command: commands.Prompt, usual: Limits) -> Limits:
        """Return the usual limits with those that the prompt overrides."""
        own = {name: value for name in LIMITS if (value := getattr(command, name)) is not None}
        return replace(usual, **own)

    def _slow_commands(self) -> SlowCommands:
        if self._slow is None:
            agent = self._agent
            self._slow = SlowCommands(agent.runtime, agent.answer, agent.fail)
        return self._slow

    def finish(self) -> None:
        if self._slow is not None:
            self._slow.finish()

    def close(self) -> None:
        if self._slow is not None:
            self._slow.close()

    def _change(self, command: commands.Change) -> Any:
        """Execute a quick command and return the data of the answer."""
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
            case commands.SetJail(on):
                runtime.shell.set_jail(on)
                return shapes.JailSet(on)
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
            case commands.AbortShell():
                runtime.shell.abort()
            case commands.ResumeRun(run, decision):
                runtime.runs.resume(run, go_on=decision == "continue")
            case _:
                assert_never(command)
        return UNSET

    def _events(self, after: int, limit: int) -> EventsRead:
        features, runtime = self._server.features, self._agent.runtime
        page = self._agent.kept_frames().read(features, after, limit)

        def state() -> State:
            return rpc_sessions.with_features(zot_replies.state(runtime.state()), runtime, features)

        from zot.wire.kept import events_read

        return events_read(page, runtime, state, Raw)

    def _abort(self, target: str | int | float | None) -> None:
        if target is None:
            self._agent.runtime.abort()
            return
        tags = (tag for tag in self._agent.runtime.runs.tags() if isinstance(tag, Raw))
        # Compared as values: an id can be written in several ways.
        if aborted := [tag for tag in tags if decode(tag) == target]:
            self._agent.runtime.abort(aborted[0])

    def _queue(
        self,
        incoming: Incoming,
        command: commands.Steer | commands.FollowUp,
        offer: Callable[[str, list[Image]], bool],
    ) -> None:
        pictures = images.checked_images(command.images)
        if offer(command.message, pictures):
            self._agent.answer(incoming)
        else:  # no run can take it: it becomes a prompt
            self._agent.runtime.prompt(
                command.message,
                pictures,
                tag=incoming.id,
                accepted=partial(self._agent.accept, incoming, ""),
            )

    def _look(
        self,
        incoming: Incoming,
        command: commands.GetState
        | commands.GetMessages
        | commands.GetModels
        | commands.GetApprovals,
    ) -> None:
        runtime = self._agent.runtime
        match command:
            case commands.GetState():
                state = zot_replies.state(runtime.state())
                if self._server.features & {"approvals", "budgets", "dialogs", "mcp", "sessions"}:
                    state = rpc_sessions.with_features(state, runtime, self._server.features)
                self._agent.answer(incoming, state)
            case commands.GetModels(everywhere):
                models = runtime.models.all("" if everywhere else runtime.models.current.provider)
                self._agent.answer(incoming, zot_replies.models(models))
            case commands.GetApprovals():
                self._agent.answer(incoming, zot_replies.approvals(runtime.approvals.rules()))
            case commands.GetMessages(offset, limit):
                end = None if limit is None else offset + limit
                if self._messages is None:
                    self._messages = zot_replies.KeptMessages()
                messages = runtime.session.messages()[offset:end]
                if (size := self._messages.least_size(messages)) > MAX_ANSWER:
                    raise too_large(size)  # before building it
                line = zot.success_in_pieces(incoming, self._messages.answer(messages))
                if len(line) > MAX_ANSWER:
                    self._messages = None  # drop a cache that is too large to send
                    raise too_large(len(line))
                self._agent.put(line, UNSET)
            case _:
                assert_never(command)
