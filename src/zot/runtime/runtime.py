"""The Runtime is the whole API of an agent, for every front end. It accepts prompts; its parts do
the rest: runs, queue, models, sessions, history, shell, commands, approvals, dialogs, agents.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from msgspec.structs import replace

from zot.cancel import Cancel
from zot.core import image as pictures
from zot.core.agent import Agent, Limits, Progress, UserInput
from zot.core.aside import Aside, SideQuestion
from zot.core.cost import add
from zot.core.hook import ApprovalMode
from zot.core.session import Session
from zot.core.source import ToolSource
from zot.errors import BusyError, CommandError, NotFoundError
from zot.provider.types import Image, Json, Level, Message, Model, Models, Text, ToolCall, Usage
from zot.runtime.agents import Agents
from zot.runtime.approval import Approval, Decision, Verdict
from zot.runtime.client import BETWEEN, RuntimeClient
from zot.runtime.commands import Commands
from zot.runtime.dialogs import OpenDialogs
from zot.runtime.models import ModelChoice
from zot.runtime.redact import Redactor
from zot.runtime.rewind import SessionHistory
from zot.runtime.run import ABORT_GRACE, Run
from zot.runtime.runs import Accepted, Listener, QueueName, Runs, ignore_position
from zot.runtime.sessions import SessionChoice, Sessions
from zot.runtime.shell import UserShell
from zot.runtime.sources import RuntimeHost, Sources
from zot.text import Frozen

if TYPE_CHECKING:
    from zot.core.changes import Files
    from zot.core.events import Reason
    from zot.core.shell import Shell
    from zot.runtime.durable import Durable


class State(Frozen):
    provider: str
    model: Model
    cwd: str
    message_count: int
    busy: bool
    queued: int
    usage: Usage
    context_tokens: int
    reasoning: Level
    session_id: str
    jail: bool = False
    mode: ApprovalMode = "ask"


class RuntimeParts(Frozen, kw_only=True):
    """Parts of a runtime besides its agent; see build.py."""

    models: Models
    cwd: str
    client: RuntimeClient = RuntimeClient()
    listeners: tuple[Listener, ...] = ()
    """Receive every event before the client does; must not block."""
    sources: tuple[ToolSource, ...] = ()
    sessions: Callable[[], Sessions] | None = None
    """Created on first use; None: only the initial session exists."""
    shell: Shell | None = None
    files: Files | None = None
    """Access to the files that tools change; None: they change none."""
    approval: Approval | None = None
    """Guard that asks before a tool runs; None: nobody is asked."""
    agents: Agents | None = None
    """The named agents of the process; None: this runtime cannot open any."""
    owns_agents: bool = False
    """The root runtime, which closes the others."""
    durable: Durable | None = None
    redactor: Redactor | None = None
    """Removes secrets from the output of shell commands."""


class Runtime:
    """One agent, one session, one run at a time. Safe to call from any thread."""

    def __init__(self, agent: Agent, parts: RuntimeParts) -> None:
        redactor = parts.redactor
        self.name = ""
        """Agent name; empty unless another agent opened this one."""
        self.agent = agent
        self.cwd = parts.cwd
        self.client = parts.client
        self.sources = Sources(parts.sources, agent, RuntimeHost(self, redactor), redactor)
        self.runs = Runs(agent, parts.client, parts.listeners, parts.durable, self._prepare)
        self.queue = self.runs.queue
        self.approvals = parts.approval or Approval(off=True)
        self.models = ModelChoice(self.runs, parts.models, self.approvals.use_model)
        self.shell = UserShell(self.runs, parts.shell, redactor, self.sources.refresh)
        self.sessions = SessionChoice(self.runs, self.models, self.shell, parts.sessions, redactor)
        self.history = SessionHistory(self.runs, parts.files, redactor, self.sources.is_tool_of)
        self.commands = Commands(self.sources, self.runs.check_idle)
        self.dialogs = OpenDialogs(self.sources, self.runs.tell, parts.durable)
        self._agents = parts.agents
        self._owns_agents = parts.owns_agents
        if parts.durable is not None:
            self.approvals.use_durable(parts.durable)

    @property
    def session(self) -> Session:
        return self.agent.session

    @property
    def agents(self) -> Agents:
        """The named agents of the process; they end with the root runtime.

        Raises:
            CommandError: this runtime was built without them.
        """
        if self._agents is None:
            raise NotFoundError("this runtime opens no agents")
        return self._agents

    def state(self) -> State:
        with self.runs.lock:
            agent = self.agent
            return State(
                provider=agent.model.provider,
                model=agent.model,
                cwd=self.cwd,
                message_count=agent.session.message_count(),
                busy=self.runs.busy,
                queued=self.runs.waiting,
                usage=agent.cumulative,
                context_tokens=agent.context_tokens,
                reasoning=agent.settings.reasoning,
                session_id=agent.session.id,
                jail=self.shell.jailed,
                mode=self.approvals.mode,
            )

    # --- runs --------------------------------------------------------------------------------

    def prompt(
        self,
        text: str,
        images: Sequence[Image] = (),
        *,
        tag: object = None,
        limits: Limits | None = None,
        extra: dict[str, object] | None = None,
        documents: Sequence[Text] = (),
        accepted: Accepted = ignore_position,
        run_id: str = "",
        call: ToolCall | None = None,
        schema: dict[str, Json] | None = None,
    ) -> Run:
        """Queue a prompt. `tag` returns with its events. `run_id`: id of a durable run (default:
        generated). `call`: a tool that runs first, as if the model had called it.
        `schema`: JSON Schema that the model's last text must fit; else the run fails with
        InvalidOutput.

        Raises:
            CommandError: there is nothing to say, an image no model takes, a schema that cannot be
                used, or the queue is full.
            JournalError: a durable run cannot be noted.
        """
        user = self._user_input(text, images, extra, documents)
        if schema is not None:
            user = self._with_schema(user, schema)
        size = len(user.text) + sum(len(image.data) for image in images)
        if self.runs.durable is not None:
            if call is not None:
                raise CommandError("a durable run cannot begin with a tool call")
            return self.runs.submit_durable("prompt", user, limits, tag, accepted, size, run_id)
        if run_id:
            raise CommandError("a run can have a name only where it is durable (--durable)")

        def work(run: Run) -> None:
            self._prepare(run.cancel)
            self.agent.prompt(user, run, limits, call)

        return self.runs.submit("prompt", work, tag, accepted, size)

    def retry(
        self,
        *,
        tag: object = None,
        limits: Limits | None = None,
        accepted: Accepted = ignore_position,
    ) -> Run:
        """Answer the last prompt again after a failure or abort, without repeating it. A partial
        answer is left out of the conversation.

        Raises:
            BusyError: a run is in flight.
            CommandError: the last prompt was answered.
        """
        self.models.reconnect()
        with self.runs.idle("retry"):
            if not self.session.drop_partial():
                raise NotFoundError("there is nothing to try again: the last prompt was answered")
            if self.runs.durable is not None:
                return self.runs.submit_durable("retry", UserInput(""), limits, tag, accepted)

            def work(run: Run) -> None:
                self._prepare(run.cancel)
                self.agent.go_on(run, Progress(), limits)

            return self.runs.submit("prompt", work, tag, accepted)

    def compact(
        self,
        instructions: str = "",
        *,
        tag: object = None,
        accepted: Accepted = ignore_position,
        reason: Reason = "manual",
    ) -> Run:
        """Replace all but the latest part of the transcript with a summary by the model."""
        if self.runs.durable is not None:
            user = UserInput(instructions)
            return self.runs.submit_durable("compact", user, None, tag, accepted)

        def work(run: Run) -> None:
            self.agent.compact(run, instructions, reason)

        return self.runs.submit("compact", work, tag, accepted)

    def abort(self, tag: object = None) -> bool:
        """Abort the current run, or the one with this tag; False if there is none."""
        return self.runs.abort(tag)

    def steer(self, text: str, images: Sequence[Image] = (), *, keep: bool = False) -> bool:
        """Queue a message for the model, delivered after the current tool.

        Return False if no run accepts messages: then it is not queued, unless `keep` holds it for
        the next run.
        """
        return self._add("steering", text, images, keep)

    def follow(self, text: str, images: Sequence[Image] = (), *, keep: bool = False) -> bool:
        """Queue a message for when the model would stop; otherwise as `steer`."""
        return self._add("follow_up", text, images, keep)

    def ask_aside(
        self,
        question: str,
        show: Callable[[str], None] = lambda text: None,
        cancel: Cancel | None = None,
        earlier: Sequence[Message] = (),
        reads: Callable[[ToolCall], None] = lambda call: None,
    ) -> Aside:
        """Ask the model about the conversation without adding to it, even during a run. `show` gets
        the answer as it streams; `earlier`: messages of the previous side question, for a
        follow-up; `reads` gets each call that reads files.

        Raises:
            CommandError: nothing is asked.
            ProviderError: the model failed.
            Cancelled: the caller gave up.
        """
        if not question.strip():
            raise CommandError("there is no question")
        provider = self.models.connect(self.agent.model)  # a separate connection
        side = SideQuestion(self.agent, provider, cancel or Cancel(), show=show, reads=reads)
        try:
            aside = side.ask(question, earlier)
        finally:
            provider.close()
        with self.runs.lock:
            self.agent.cumulative = add(self.agent.cumulative, aside.usage)
        return aside

    def _user_input(
        self,
        text: str,
        images: Sequence[Image],
        extra: dict[str, object] | None = None,
        documents: Sequence[Text] = (),
    ) -> UserInput:
        """Check and expand what the user says. Raises CommandError."""
        if not text.strip() and not images:
            raise CommandError("invalid_params: the prompt is empty: give a message or an image")
        if images:
            pictures.checked_images(images)
        if text.startswith("/"):
            text = self.commands.expand(text)
        return UserInput(text, tuple(images), extra, tuple(documents))

    @staticmethod
    def _with_schema(user: UserInput, schema: dict[str, Json]) -> UserInput:
        from zot.core import output  # a room that few runs need

        output.check_schema(schema)
        asked = Text(output.instruction(schema))
        return replace(user, documents=(*user.documents, asked), schema=schema)

    def _add(self, queue: QueueName, text: str, images: Sequence[Image], keep: bool) -> bool:
        return self.queue.add(queue, self._user_input(text, images), keep=keep)

    def _prepare(self, cancel: Cancel) -> None:
        """Prepare what a run needs. Raises Cancelled, and ZotError: the run cannot start."""
        self.sources.prepare(cancel)
        self.models.record()

    # --- questions ---------------------------------------------------------------------------

    def approve(
        self,
        request_id: str,
        decision: Decision,
        reason: str = "",
        *,
        pattern: str = "",
        args: dict[str, Json] | None = None,
    ) -> None:
        """Answer an ApprovalRequest, of this runtime or of an agent that it opened. `allow_project`
        also allows similar calls in this project from now on: those matching `pattern`, or by
        default the request's own. `args` replace the model's arguments, and the model is told.

        Raises:
            CommandError: no such question is open, or the pattern does not fit the call.
            ConfigError: what is allowed for the project cannot be kept.
        """
        name, between, own = request_id.partition(BETWEEN)
        if between and self._agents is not None:
            self._agents.get(name).approve(own, decision, reason, pattern=pattern, args=args)
            return
        self.approvals.answer(request_id, Verdict(decision, reason, pattern, args))

    def open_questions(self) -> tuple[str, ...]:
        """Return the ids of all pending questions: approvals and dialogs."""
        requests = self.approvals.open_requests()
        return (*(request.id for request in requests), *self.sources.open_questions())

    # --- life --------------------------------------------------------------------------------

    def start(self) -> None:
        """Start extensions now, in the background; otherwise they start with the first run."""
        self.sources.start()

    def stop(self) -> None:
        """Abort all runs and wait for their end. Raises BusyError: one does not stop."""
        deadline = time.monotonic() + 2 * ABORT_GRACE + 1
        while (run := self.runs.running) is not None:
            self.abort()
            if not run.ended.wait(max(0.0, deadline - time.monotonic())):
                raise BusyError("the run does not stop; try again")

    def client_left(self) -> None:
        """Deny open and future questions, because the client is gone. A durable run is suspended
        for the next process instead."""
        suspend = None if self.runs.durable is None else self.runs.suspend
        self.approvals.client_gone(suspend)
        self.dialogs.client_left(suspend)
        if self._agents is not None and self._owns_agents:
            for runtime in self._agents.all().values():
                runtime.client_left()

    def close(self, *, drain: bool = False, timeout: float | None = None) -> bool:
        """Accept no more runs, and wait for the accepted ones; see `Runs.close`."""
        return self.runs.close(drain=drain, timeout=timeout)

    def release(self) -> None:
        """Release connections, files and processes; after `close`."""
        if self._agents is not None and self._owns_agents:
            self._agents.close_all()
        for hook in self.agent.hooks:
            hook.closed()
        self.shell.abort()
        self.sources.close()
        self.agent.provider.close()
        self.session.close()
