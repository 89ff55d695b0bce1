"""The Runtime is the whole API: all that a client can ask of an agent, whatever door it came
through. Runs are in runs.py, the shell and going back in workplace.py, commands and panels in
commands.py; here is the rest: sessions, models, questions, state.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any

from msgspec.structs import replace

from zot.cancel import Cancel
from zot.core import changes as core_changes
from zot.core import image as pictures
from zot.core.agent import Agent, AgentSettings
from zot.core.events import ApprovalRequest, Event, ExtensionAsk
from zot.core.rule import Rule
from zot.core.session import (
    Cleared,
    Entry,
    Exported,
    ExportFormat,
    LevelChange,
    ModelChange,
    Replaced,
    Session,
    SessionInfo,
    Title,
)
from zot.core.source import PersonAnswer, Question, ServerState, ToolSource
from zot.core.tool import ToolOutput
from zot.errors import BusyError, CommandError, ConfigError, NotFoundError, ZotError
from zot.provider.model import clamped, default_level
from zot.provider.models import Models
from zot.provider.types import Json, Level, Message, Model, Provider, ToolCall, Usage
from zot.runtime.agents import Agents
from zot.runtime.approval import Approval, ApprovalMode, Decision, Verdict
from zot.runtime.client import BETWEEN, RuntimeClient
from zot.runtime.commands import CommandedRuns
from zot.runtime.dialogs import OpenDialogs
from zot.runtime.notices import Notices
from zot.runtime.redact import Redactor
from zot.runtime.run import ABORT_GRACE
from zot.runtime.runs import Listener
from zot.runtime.sessions import Sessions
from zot.runtime.sources import Sources
from zot.text import Frozen

if TYPE_CHECKING:
    from zot.core.changes import Files, ShownChange
    from zot.core.shell import Shell
    from zot.runtime.durable import Durable

MAX_SHOWN = 512 * 1024
"""Bytes of a file that anybody looks at."""


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


class RuntimeParts(Frozen, kw_only=True):
    """What a runtime is put together from, beside its agent; see build.py."""

    models: Models
    cwd: str
    client: RuntimeClient = RuntimeClient()
    listeners: tuple[Listener, ...] = ()
    """They hear every event before the client does; none may block."""
    sources: tuple[ToolSource, ...] = ()
    sessions: Callable[[], Sessions] | None = None
    """Made when first asked for; None: there is only the session it was made with."""
    shell: Shell | None = None
    files: Files | None = None
    """Where the tools' files are; None: they change none."""
    approval: Approval | None = None
    agents: Agents | None = None
    """The named ones of the process; None: there can be none."""
    owns_agents: bool = False
    """It is the first one, and lets go of the others."""
    durable: Durable | None = None
    redactor: Redactor | None = None
    """Keeps keys out of what shell commands print."""


class Runtime(CommandedRuns):
    """One agent, one session, one run at a time. Safe to call from any thread."""

    def __init__(self, agent: Agent, parts: RuntimeParts) -> None:
        super().__init__(
            agent,
            parts.client,
            parts.listeners,
            parts.durable,
            shell=parts.shell,
            files=parts.files,
            redactor=parts.redactor,
        )
        self.name = ""
        """Of an agent that another one opened."""
        self.models = parts.models
        self.cwd = parts.cwd
        self._make_sessions = parts.sessions
        self._kept: Sessions | None = None
        self._approval = parts.approval
        self._agents = parts.agents
        self._owns_agents = parts.owns_agents
        self._next_model: Model | None = None
        self._defaults = (agent.model, agent.settings.reasoning)
        self._sources = Sources(parts.sources, agent, self, parts.redactor)
        self._noted: tuple[Session, Model, Level] | None = None
        """What the session is known to say about how it is used."""
        self._notices = Notices(self.tell)
        self._dialogs = OpenDialogs(self._sources, self.tell, parts.durable)
        self._tell_approval(agent.model)
        if parts.approval is not None and parts.durable is not None:
            parts.approval.use_durable(parts.durable)

    def prepare(self, cancel: Cancel) -> None:
        self._sources.prepare(cancel)
        self.note_choice()

    def note_choice(self) -> None:
        """Have the session say which model and which level it is used with, however they were
        chosen. Raises SessionError."""
        agent = self.agent
        choice = agent.session, agent.model, agent.settings.reasoning
        if self._noted != choice:
            session, model, level = choice
            session.note_use(model.provider, model.id, level, default_level(model.provider))
            self._noted = choice

    # --- what sources see of it (core.source.SourceHost) -------------------------------------

    @property
    def model(self) -> Model:
        """The model of the next run."""
        return self._next_model or self.agent.model

    @property
    def model_in_use(self) -> Model:
        """The model of the run in flight."""
        return self.agent.model

    @property
    def session_id(self) -> str:
        return self.session.id

    @property
    def questions_before(self) -> int:
        return 0 if self.durable is None else self.durable.journal.state.dialogs

    def show(self, event: Event) -> None:
        """Tell what nobody asked for. Not at any price: it must not fill the memory while a
        client does not read, nor wait for it, because guards answer over the same channel."""
        event = event if self._redactor is None else self._redactor.struct(event)
        if isinstance(event, ExtensionAsk):
            self._dialogs.ask(event)
        elif not self.client.overfull():
            self.tell(event)

    def submit(self, text: str, slash: bool) -> bool:
        return self.client.submit(text, slash)

    def can_answer(self, what: Question) -> bool:
        return self.client.can_answer(what)

    def tools_changed(self) -> None:
        self._sources.refresh()

    def call_tool(
        self, asker: ToolSource, call: ToolCall, cancel: Cancel, emit: Callable[[Event], None]
    ) -> ToolOutput:
        return self._sources.call_tool(asker, call, cancel, emit, self.keep_file)

    # --- life --------------------------------------------------------------------------------

    def start(self) -> None:
        """Let extensions start now, while the client thinks; else they do with the first run."""
        self._sources.start()

    def stop(self) -> None:
        """Abort what runs and wait for its end. Raises BusyError: it does not stop."""
        deadline = time.monotonic() + 2 * ABORT_GRACE + 1
        while (run := self.running) is not None:
            self.abort()
            if not run.ended.wait(max(0.0, deadline - time.monotonic())):
                raise BusyError("the run does not stop; try again")

    def client_left(self) -> None:
        """Nobody will answer any more: what is open is denied, and so is what comes. A durable run
        waits for the next process instead."""
        if self._approval is not None:
            self._approval.client_gone(None if self.durable is None else self.suspend)
        self._dialogs.client_left(None if self.durable is None else self.suspend)
        if self._agents is not None and self._owns_agents:
            for runtime in self._agents.all().values():
                runtime.client_left()

    def release(self) -> None:
        """Let go of connections, files and processes; after `close`."""
        if self._agents is not None and self._owns_agents:
            self._agents.close_all()
        self.abort_shell()
        self._sources.close()
        self.agent.provider.close()
        self.session.close()

    # --- state -------------------------------------------------------------------------------

    def state(self) -> State:
        with self._lock:
            agent = self.agent
            return State(
                provider=agent.model.provider,
                model=agent.model,
                cwd=self.cwd,
                message_count=agent.session.message_count(),
                busy=bool(self._runs),
                queued=max(0, len(self._runs) - 1),
                usage=agent.cumulative,
                context_tokens=agent.context_tokens,
                reasoning=agent.settings.reasoning,
                session_id=agent.session.id,
                jail=self.is_jailed,
            )

    @property
    def settings(self) -> AgentSettings:
        return self.agent.settings

    def servers(self) -> Sequence[ServerState]:
        """The MCP servers that are configured, as they are now; none is started."""
        return self._sources.servers()

    def change_settings(self, **changes: Any) -> None:
        """Set fields of the agent's settings; they count from the next model call on."""
        with self._lock:
            self.agent.settings = replace(self.agent.settings, **changes)

    # --- the transcript ----------------------------------------------------------------------

    def clear(self) -> None:
        """Drop the transcript; what it cost stays counted.

        Raises:
            BusyError: a run is in flight; nothing changes.
        """
        with self._idle("clear"):
            self.session.append(Cleared())
            self.agent.forget()
            self._end_background()

    def set_messages(self, messages: Sequence[Message]) -> None:
        """Go on from another transcript. Raises BusyError."""
        pictures.check_messages(messages)
        with self._idle("set_messages"):
            self.session.append(Replaced(tuple(messages)))
            self.agent.forget()

    def set_title(self, title: str) -> None:
        """Raises CommandError when it is empty."""
        if not title.strip():
            raise CommandError("the session's name is empty")
        self.session.append(Title(title.strip()))

    # --- sessions ----------------------------------------------------------------------------

    def list_sessions(self, *, everywhere: bool = False, limit: int = 100) -> Sequence[SessionInfo]:
        return self._sessions.list(everywhere=everywhere, limit=limit)

    def session_info(self) -> SessionInfo:
        return self._sessions.info(self.session)

    def new_session(self, parent: str = "") -> SessionInfo:
        """Begin anew, with the model and the level that the runtime was started with.

        Raises:
            BusyError: a run is in flight; nothing changes.
            SessionError: it cannot be written.
        """
        self._check_idle("new_session")
        self._switch(self._sessions.new(parent=parent), *self._defaults)
        return self.session_info()

    def load_session(self, name: str) -> SessionInfo:
        """Go on with a kept session: a path, the beginning of an id, or `latest`.

        Raises:
            BusyError: a run is in flight; nothing changes.
            SessionError: there is none, or it cannot be used.
        """
        self._check_idle("load_session")
        session = self._sessions.open(name, self.session)
        if session is not self.session:
            self.use_session(session)
        return self.session_info()

    def fork_session(
        self, name: str = "", at: str | int | None = None, *, load: bool = True
    ) -> SessionInfo:
        """Copy a session, up to an entry or so many messages, and go on there.

        Raises:
            BusyError: a run is in flight, and the copy should be gone on with.
            SessionError: there is no such session or entry, or the copy cannot be written.
        """
        if load:
            self._check_idle("fork_session")
        copy = self._sessions.fork(name, at, self.session)
        if load:
            self.use_session(copy)
            return self.session_info()
        try:
            return self._sessions.info(copy)
        finally:
            copy.close()

    def fork_entries(self, entries: Iterable[Entry], parent: str) -> SessionInfo:
        """The same with these entries of the session `parent`."""
        self._check_idle("fork_session")
        self.use_session(self._sessions.new(parent=parent, entries=entries))
        return self.session_info()

    def export_session(
        self, name: str = "", format: ExportFormat = "zotsession", target: str = ""
    ) -> Exported:
        """A session as a file or a text, for people and other programs. Raises SessionError."""
        return self._sessions.export(name, format, target, self.session)

    def use_session(self, session: Session) -> None:
        """Go on with another conversation, with the model and the level it was last used with.
        A model that cannot be had any more is not: then the present one goes on.

        Raises:
            BusyError: a run is in flight; nothing changes, and the session is closed.
        """
        self._switch(session, self._model_of(session), session.last_level)

    def adopt_session(self, *, model: bool = True, level: bool = True) -> None:
        """Take up what the session at the start was last used with, where no flag says more."""
        wanted = self._model_of(self.session) if model else None
        self._adopt(wanted, self.session.last_level if level else None)

    @property
    def _sessions(self) -> Sessions:
        if self._kept is None:
            if self._make_sessions is None:
                raise NotFoundError("this runtime keeps no sessions")
            self._kept = self._make_sessions()
        return self._kept

    def _model_of(self, session: Session) -> Model | None:
        last = session.last_model
        if last is None:
            return None
        provider, id = last
        if (provider, id) == (self.agent.model.provider, self.agent.model.id):
            return self.agent.model
        try:
            return self.models.find(id, provider)
        except ZotError:
            return None  # a model of yesterday

    def _switch(self, session: Session, model: Model | None, level: Level | None) -> None:
        if self.durable is not None:
            session.close()
            raise CommandError("a durable runtime stays with its session: start another one")
        try:
            with self._idle("switching the session"):
                before, self.agent.session = self.agent.session, session
                before.close()
                self.agent.cumulative = Usage()
                self.agent.resume()
                self._end_background()
        except BusyError:
            session.close()
            raise
        self.clear_queue()
        self._adopt(model, level)

    def _adopt(self, model: Model | None, level: Level | None) -> None:
        if level is not None:
            self.change_settings(reasoning=level)
        if model is None or model == self.agent.model:
            return
        try:
            provider = self.models.connect(model)
        except ZotError:
            return  # it cannot be had any more
        with self._lock:
            self._put_model(provider, model)

    # --- models ------------------------------------------------------------------------------

    def set_model(self, name: str, provider: str = "", *, later: bool = False) -> Model:
        """Go on with another model, of this or another provider: an id, or PROVIDER/ID.

        `later`: while a prompt is going on, it counts from the next one.

        Raises:
            BusyError: a run is in flight; nothing changes.
            ConfigError: there is no such model; nothing changes.
            AuthError: its provider has no credential; nothing changes.
        """
        if not later:
            self._check_idle("set_model")
        model = self.models.find(name, provider or self.model.provider)
        same = model == self.agent.model
        connected = self.agent.provider if same else self.models.connect(model)

        def use() -> None:
            self.session.append(ModelChange(model.provider, model.id))
            self._next_model = None
            self._put_model(connected, model)

        try:
            if later:
                self._next_model = model
                self.when_idle(use)
            else:
                with self._idle("set_model"):
                    use()
        except ZotError:
            if not same:
                connected.close()
            raise
        self._notices.about_model(model)
        return model

    def reconnect(self) -> bool:
        """Take up another credential of the model's provider, after a login; False: it is the same.

        Raises:
            BusyError: a run is in flight; nothing changes.
            AuthError: there is none any more.
        """
        with self._idle("reconnect"):
            model = self.agent.model
            if not self.models.renew(model.provider):
                return False
            self._put_model(self.models.connect(model), model)
            return True

    def _put_model(self, provider: Provider, model: Model) -> None:
        before = self.agent.provider
        self.agent.set_model(provider, model)
        self._tell_approval(model)
        if before is not provider:
            before.close()

    def set_reasoning(
        self, level: Level, *, while_busy: bool = False, clamp: bool = False
    ) -> Level:
        """Think so much from the next model call on; `clamp`: as far as the present model can.
        The level it is.

        Raises:
            BusyError: a run is in flight, and not `while_busy`; nothing changes.
        """
        wanted, level = level, clamped(level, self.model) if clamp else level
        if while_busy:
            with self._lock:
                self._set_reasoning(level)
        else:
            with self._idle("set_reasoning"):
                self._set_reasoning(level)
        self._notices.about_level(wanted, self.model)
        return clamped(level, self.model) if level == "off" else level

    def _set_reasoning(self, level: Level) -> None:
        self.session.append(LevelChange(level))
        self.change_settings(reasoning=level)

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
        """Answer an ApprovalRequest. `allow_project` also allows what is like it in this project
        from now on: the `pattern`, or the one that the request offers. `args` are those to run
        the tool with, in the place of the model's, which is told.

        Raises:
            CommandError: no such question is open, or the pattern does not fit the call.
            ConfigError: what is allowed for the project cannot be kept.
        """
        name, between, own = request_id.partition(BETWEEN)
        if between and self._agents is not None:
            self._agents.get(name).approve(own, decision, reason, pattern=pattern, args=args)
            return
        if self._approval is None:
            raise NotFoundError(f"no approval {request_id!r} is waiting")
        self._approval.answer(request_id, Verdict(decision, reason, pattern, args))

    def open_requests(self) -> list[ApprovalRequest]:
        """The approvals that are waited for."""
        return [] if self._approval is None else self._approval.open_requests()

    @property
    def approval_mode(self) -> ApprovalMode:
        return "yolo" if self._approval is None else self._approval.mode

    def set_approval_mode(self, mode: ApprovalMode) -> None:
        """Ask more or less from the next tool call on.

        Raises:
            ConfigError: there is nobody to ask.
        """
        if self._approval is not None:
            self._approval.mode = mode
        elif mode != "yolo":
            raise ConfigError("this runtime has nobody to ask before a tool runs")

    @property
    def asked_tools(self) -> tuple[str, ...]:
        """The tools that somebody is asked about before they run."""
        return () if self._approval is None else self._approval.asked_tools()

    def planned_change(self, call: ToolCall) -> ShownChange | None:
        """What a call would make of a file, for whoever looks on; without secrets. None: it
        changes none, would fail, or nobody wants to see so much."""
        files, redactor = self._files, self._redactor
        if files is None or not self._sources.is_tool_of(call.name, files):
            return None
        planned = files.planned(call)
        if planned is None or max(len(planned.before or b""), len(planned.after)) > MAX_SHOWN:
            return None
        return core_changes.shown_change(planned, redactor.text if redactor is not None else str)

    def approvals(self) -> list[Rule]:
        """What runs without a question: what was allowed for the project, or for this session."""
        return [] if self._approval is None else self._approval.rules()

    def remove_approval(self, tool: str, pattern: str) -> None:
        """Ask again. Raises CommandError when there is no such approval."""
        if self._approval is None:
            raise NotFoundError("this runtime asks for no approvals")
        self._approval.remove_rule(Rule(tool, pattern))

    def answer(
        self,
        request_id: str,
        value: str | None = None,
        *,
        confirmed: bool = False,
        cancelled: bool = False,
    ) -> None:
        """Answer an ExtensionAsk. Raises CommandError: no such question is open."""
        self._dialogs.answer(request_id, PersonAnswer(value, confirmed, cancelled))

    def open_dialogs(self) -> list[ExtensionAsk]:
        """The questions of extensions and MCP servers that are waited for."""
        return self._dialogs.open()

    def questions(self) -> tuple[str, ...]:
        """The ids of the questions that are open."""
        asked = () if self._approval is None else self._approval.open_questions()
        return (*asked, *self._sources.open_questions())

    def _tell_approval(self, model: Model) -> None:
        if self._approval is not None:
            self._approval.use_model(model)

    # --- agents beside it --------------------------------------------------------------------

    @property
    def agents(self) -> Agents:
        """The named agents of the process; they end with its first one.

        Raises:
            CommandError: this runtime was built without them.
        """
        if self._agents is None:
            raise NotFoundError("this runtime opens no agents")
        return self._agents
