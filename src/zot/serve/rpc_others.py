"""The commands of one agent on the zot wire, but for those with which a client begins: they are
loaded with the first one of them.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, assert_never

from msgspec import UNSET, Raw
from msgspec.json import decode

from zot.errors import CommandError
from zot.later import Later
from zot.wire import commands, shapes, zot, zot_replies

if TYPE_CHECKING:
    from zot.core import image as images
    from zot.provider.types import Image
    from zot.serve import rpc_sessions
    from zot.serve.rpc_served import ServedAgent
    from zot.wire import kept
    from zot.wire.commands import OtherCommand
    from zot.wire.shapes import EventsRead, State
    from zot.wire.zot import Incoming
    from zot.wire.zot_replies import KeptMessages
else:
    images = Later("zot.core.image")
    rpc_sessions = Later("zot.serve.rpc_sessions")
    kept = Later("zot.wire.kept")

MAX_ANSWER = 16 * 1024 * 1024


class OtherCommands:
    """What a client says of one agent once it has begun."""

    def __init__(self, agent: ServedAgent) -> None:
        self._agent = agent
        self._server = agent.server
        self._messages: KeptMessages | None = None

    def take(self, incoming: Incoming, command: OtherCommand) -> None:
        agent = self._agent
        match command:
            case commands.OpenAgent() | commands.CloseAgent() | commands.ListAgents():
                self._server.named.take(incoming, command)
            case commands.RetryPrompt():
                agent.runtime.retry(tag=incoming.id, accepted=agent.accepted(incoming))
            case commands.Compact(instructions):
                agent.runtime.compact(
                    instructions, tag=incoming.id, accepted=agent.accepted(incoming)
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
                agent.slow_commands().start(incoming, command)
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

    def _change(self, command: commands.Change) -> Any:
        """Do what can be done at once; the data of the answer."""
        runtime = self._agent.runtime
        match command:
            case commands.Clear():
                runtime.clear()
            case commands.SetModel(name, provider):
                before = runtime.model.provider
                model = runtime.set_model(name, provider)
                return shapes.ModelSet(model.id, model.provider if model.provider != before else "")
            case commands.SetReasoning(level):
                return shapes.ReasoningSet(runtime.set_reasoning(level))
            case commands.SetJail(on):
                runtime.set_jail(on)
                return shapes.JailSet(on)
            case commands.Approve(request_id, decision, reason, pattern, args):
                runtime.approve(request_id, decision, reason, pattern=pattern, args=args)
            case commands.RemoveApproval(tool, pattern):
                runtime.remove_approval(tool, pattern)
            case commands.Answer(request_id, value, confirmed, cancelled):
                runtime.answer(request_id, value=value, confirmed=confirmed, cancelled=cancelled)
            case commands.PanelKey(extension, panel, key, text):
                runtime.panel_key(extension, panel, key, text)
            case commands.PanelResize(extension, panel, width, height):
                runtime.panel_resize(extension, panel, width, height)
            case commands.PanelClose(extension, panel):
                runtime.panel_close(extension, panel)
            case commands.AbortShell():
                runtime.abort_shell()
            case commands.ResumeRun(run, decision):
                runtime.resume_run(run, go_on=decision == "continue")
            case _:
                assert_never(command)
        return UNSET

    def _events(self, after: int, limit: int) -> EventsRead:
        # Loaded by now, where there are events at all.
        features, runtime = self._server.features, self._agent.runtime
        page = self._agent.kept_frames().read(features, after, limit)

        def state() -> State:
            return rpc_sessions.with_features(zot_replies.state(runtime.state()), runtime, features)

        return kept.events_read(page, runtime, state, Raw)

    def _abort(self, target: str | int | float | None) -> None:
        if target is None:
            self._agent.runtime.abort()
            return
        tags = (tag for tag in self._agent.runtime.tags() if isinstance(tag, Raw))
        # Compared as values: the same id can be written in several ways.
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
        else:  # nothing is running that could hear it: it is a prompt
            self._agent.runtime.prompt(
                command.message, pictures, tag=incoming.id, accepted=self._agent.accepted(incoming)
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
                models = runtime.models.all("" if everywhere else runtime.model.provider)
                self._agent.answer(incoming, zot_replies.models(models))
            case commands.GetApprovals():
                self._agent.answer(incoming, zot_replies.approvals(runtime.approvals()))
            case commands.GetMessages(offset, limit):
                end = None if limit is None else offset + limit
                if self._messages is None:
                    self._messages = zot_replies.KeptMessages()
                messages = runtime.session.messages()[offset:end]
                if (size := self._messages.least_size(messages)) > MAX_ANSWER:
                    raise too_large(size)  # before the work of making it
                line = zot.success_in_pieces(incoming, self._messages.answer(messages))
                if len(line) > MAX_ANSWER:
                    self._messages = None  # what cannot be sent is not kept
                    raise too_large(len(line))
                self._agent.put(line, UNSET)
            case _:
                assert_never(command)


def too_large(size: int) -> CommandError:
    return CommandError(
        f"too_large: the answer has {size} bytes, the limit is {MAX_ANSWER}; "
        "ask for a part of it with offset and limit",
        code="too_large",
    )
