"""The Runtime is the whole API of an agent, for every front end. Runs are in runs.py, shell and
rewind in workplace.py, commands and panels in commands.py; this module has sessions, models,
questions and state.
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
"""Maximum bytes of a file in a shown change."""


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
    agents: Agents | None = None
    """The named agents of the process; None: this runtime cannot open any."""
    owns_agents: bool = False
    """The root runtime, which closes the others."""
    durable: Durable | None = None
    redactor: Redactor | None = None
    """Removes secrets from the output of shell commands."""


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
        """Agent name; empty unless another agent opened this one."""
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
        """Last (session, model, level) recorded."""
        self._notices = Notices(self.tell)
        self._dialogs = OpenDialogs(self._sources, self.tell, parts.durable)
        self._tell_approval(agent.model)
        if parts.approval is not None and parts.durable is not None:
            parts.approval.use_durable(parts.durable)

    def prepare(self, cancel: Cancel) -> None:
        self._sources.prepare(cancel)
        self.note_choice()

    def note_choice(self) -> None:
        """Record the model and level in use, however chosen. Raises SessionError."""
        agent = self.agent
        choice = agent.session, agent.model, agent.settings.reasoning
        if self._noted != choice:
            session, model, level = choice
            session.note_use(model.provider, model.id, level, default_level(model.provider))
            self._noted = choice

    # --- interface for sources (core.source.SourceHost) --------------------------------------

    @property
    def model(self) -> Model:
        """The model of the next run."""
        return self._next_model or self.agent.model

    @property
    def model_in_use(self) -> Model:
        """The model of the current run."""
        return self.agent.model

    @property
    def session_id(self) -> str:
        return self.session.id

    @property
    def questions_before(self) -> int:
        return 0 if self.durable is None else self.durable.journal.state.dialogs

    def show(self, event: Event) -> None:
        """Send an unsolicited event. It is dropped while the client does not read: it must neither
        fill the memory nor block, because guards answer over the same channel."""
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
        """Start extensions now, in the background; otherwise they start with the first run."""
        self._sources.start()

    def stop(self) -> None:
        """Abort all runs and wait for their end. Raises BusyError: one does not stop."""
        deadline = time.monotonic() + 2 * ABORT_GRACE + 1
        while (run := self.running) is not None:
            self.abort()
            if not run.ended.wait(max(0.0, deadline - time.monotonic())):
                raise BusyError("the run does not stop; try again")

    def client_left(self) -> None:
        """Deny open and future questions, because the client is gone. A durable run is suspended
        for the next process instead."""
        if self._approval is not None:
            self._approval.client_gone(None if self.durable is None else self.suspend)
        self._dialogs.client_left(None if self.durable is None else self.suspend)
        if self._agents is not None and self._owns_agents:
            for runtime in self._agents.all().values():
                runtime.client_left()

    def release(self) -> None:
        """Release connections, files and processes; after `close`."""
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
        """Return the configured MCP servers with their current states; starts none."""
        return self._sources.servers()

    def change_settings(self, **changes: Any) -> None:
        """Set fields of the agent's settings; effective from the next model call."""
        with self._lock:
            self.agent.settings = replace(self.agent.settings, **changes)

    # --- the transcript ----------------------------------------------------------------------

    def clear(self) -> None:
        """Clear the transcript; its cost stays counted.

        Raises:
            BusyError: a run is in flight; nothing changes.
        """
        with self._idle("clear"):
            self.session.append(Cleared())
            self.agent.forget()
            self._end_background()

    def set_messages(self, messages: Sequence[Message]) -> None:
        """Replace the transcript. Raises BusyError."""
        pictures.check_messages(messages)
        with self._idle("set_messages"):
            self.session.append(Replaced(tuple(messages)))
            self.agent.forget()

    def set_title(self, title: str) -> None:
        """Set the session's title. Raises CommandError when it is empty."""
        if not title.strip():
            raise CommandError("the session's name is empty")
        self.session.append(Title(title.strip()))

    # --- sessions ----------------------------------------------------------------------------

    def list_sessions(self, *, everywhere: bool = False, limit: int = 100) -> Sequence[SessionInfo]:
        return self._sessions.list(everywhere=everywhere, limit=limit)

    def session_info(self) -> SessionInfo:
        return self._sessions.info(self.session)

    def new_session(self, parent: str = "") -> SessionInfo:
        """Start a new session with the model and level that the runtime was started with.

        Raises:
            BusyError: a run is in flight; nothing changes.
            SessionError: it cannot be written.
        """
        self._check_idle("new_session")
        self._switch(self._sessions.new(parent=parent), *self._defaults)
        return self.session_info()

    def load_session(self, name: str) -> SessionInfo:
        """Continue a stored session: a path, the beginning of an id, or `latest`.

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
        """Copy a session up to an entry or a number of messages, and (`load`) continue in the copy.

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
        """Start and use a session with these entries, copied from the session `parent`."""
        self._check_idle("fork_session")
        self.use_session(self._sessions.new(parent=parent, entries=entries))
        return self.session_info()

    def export_session(
        self, name: str = "", format: ExportFormat = "zotsession", target: str = ""
    ) -> Exported:
        """Export a session as a file or a text. Raises SessionError."""
        return self._sessions.export(name, format, target, self.session)

    def use_session(self, session: Session) -> None:
        """Continue another session, with the model and level it last used. If that model is no
        longer available, the current one stays.

        Raises:
            BusyError: a run is in flight; nothing changes, and the session is closed.
        """
        self._switch(session, self._model_of(session), session.last_level)

    def adopt_session(self, *, model: bool = True, level: bool = True) -> None:
        """Adopt the model and level last used by the initial session, unless set by flags."""
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
            return None  # the model no longer exists

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
            return  # no longer available
        with self._lock:
            self._put_model(provider, model)

    # --- models ------------------------------------------------------------------------------

    def set_model(self, name: str, provider: str = "", *, later: bool = False) -> Model:
        """Switch to another model, of this or another provider: an id, or PROVIDER/ID.

        `later`: during a prompt, the switch takes effect after it.

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
        """Use a new credential of the model's provider, after a login; False: it is unchanged.

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
        """Set the reasoning level from the next model call on; `clamp`: limit it to the model's
        range. Return the effective level.

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
        """Answer an ApprovalRequest. `allow_project` also allows similar calls in this project from
        now on: those matching `pattern`, or by default the request's own. `args` replace the
        model's arguments, and the model is told.

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
        """Return the pending approval requests."""
        return [] if self._approval is None else self._approval.open_requests()

    @property
    def approval_mode(self) -> ApprovalMode:
        return "yolo" if self._approval is None else self._approval.mode

    def set_approval_mode(self, mode: ApprovalMode) -> None:
        """Set the approval mode, from the next tool call on.

        Raises:
            ConfigError: there is nobody to ask.
        """
        if self._approval is not None:
            self._approval.mode = mode
        elif mode != "yolo":
            raise ConfigError("this runtime has nobody to ask before a tool runs")

    @property
    def asked_tools(self) -> tuple[str, ...]:
        """Names of the tools that need approval."""
        return () if self._approval is None else self._approval.asked_tools()

    def planned_change(self, call: ToolCall) -> ShownChange | None:
        """Return the file change that a call would make, without secrets. None: it changes no file,
        would fail, or a side exceeds MAX_SHOWN."""
        files, redactor = self._files, self._redactor
        if files is None or not self._sources.is_tool_of(call.name, files):
            return None
        planned = files.planned(call)
        if planned is None or max(len(planned.before or b""), len(planned.after)) > MAX_SHOWN:
            return None
        return core_changes.shown_change(planned, redactor.text if redactor is not None else str)

    def approvals(self) -> list[Rule]:
        """Return what runs without approval: rules of the project, and of this session."""
        return [] if self._approval is None else self._approval.rules()

    def remove_approval(self, tool: str, pattern: str) -> None:
        """Remove an approval rule. Raises CommandError when there is no such approval."""
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
        """Return the pending questions of extensions and MCP servers."""
        return self._dialogs.open()

    def questions(self) -> tuple[str, ...]:
        """Return the ids of all pending questions."""
        asked = () if self._approval is None else self._approval.open_questions()
        return (*asked, *self._sources.open_questions())

    def _tell_approval(self, model: Model) -> None:
        if self._approval is not None:
            self._approval.use_model(model)

    # --- other agents ------------------------------------------------------------------------

    @property
    def agents(self) -> Agents:
        """The named agents of the process; they end with the root runtime.

        Raises:
            CommandError: this runtime was built without them.
        """
        if self._agents is None:
            raise NotFoundError("this runtime opens no agents")
        return self._agents
