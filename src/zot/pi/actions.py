"""What pi's commands do beside running prompts: sessions, models, the shell, exports, dialogs."""

from __future__ import annotations

import time
from pathlib import Path
from typing import TYPE_CHECKING, assert_never

from msgspec import UNSET
from msgspec.structs import replace

from zot.build import find_skills
from zot.core import events
from zot.core.agent import AgentSettings
from zot.core.compact import Keep
from zot.core.session import Entry, ModelChange, Session, Title
from zot.errors import BusyError, CommandError, ConfigError
from zot.pi import commands
from zot.pi import replies as pi_replies
from zot.pi.bash import Shell, message
from zot.pi.commands import Choice, Look, Switch
from zot.pi.dialect import Incoming
from zot.pi.frames import BashUpdate, PiFrame
from zot.pi.messages import WORD_LEVELS, level_word
from zot.pi.models import PiModels
from zot.pi.sessions import PiSessions, path_of, same_file
from zot.provider.types import Json, Level, Message, Model
from zot.runtime.run import ABORT_GRACE
from zot.settings.flags import Options

if TYPE_CHECKING:
    from zot.pi.rpc import PiServer

RESERVE_TOKENS = 16_384
KEEP_TOKENS = 20_000


def compacting_as_pi(settings: AgentSettings) -> AgentSettings:
    """Settings that compact when pi would, and keep what pi would."""
    keep = Keep(messages=None, tokens=KEEP_TOKENS, or_nothing=True)
    return replace(settings, compact_reserve=RESERVE_TOKENS, keep=keep)


def first_session(options: Options, sessions: PiSessions) -> Session:
    """The session that the command line asks for.

    Raises:
        SessionError: it cannot be used.
    """
    if options.session:
        session = sessions.find(options.session)
    elif options.continue_ or options.resume:
        session = sessions.latest()
    elif options.fork:
        session = sessions.copy(options.fork, options.session_id)
    else:
        session = sessions.with_id(options.session_id)
    if options.session_name:
        session.append(Title(options.session_name))
    return session


def model_of(session: Session, models: PiModels) -> Model | None:
    """The model a session was last used with, if it can still be had."""
    for entry in reversed(session.path()):
        body = entry.body
        if isinstance(body, ModelChange):
            wanted = (body.provider, body.model)
        elif isinstance(body, Message) and body.origin is not None:
            wanted = (body.origin.provider, body.origin.model)
        else:
            continue
        try:
            return models.find_of(*wanted)
        except (ConfigError, KeyError):
            return None
    return None


class Actions:
    def __init__(self, server: PiServer) -> None:
        self._server = server
        runtime = server.runtime
        self.shell = Shell(runtime.cwd, runtime.supervisor, server.writer.wait)

    # --- looking -----------------------------------------------------------------------------

    def look(self, command: Look) -> Json:
        server, runtime = self._server, self._server.runtime
        session = runtime.session
        match command:
            case commands.GetState():
                return self._state()
            case commands.GetMessages():
                shown = pi_replies.messages(session.messages())
                first = [server.system_message()] if server.peer.generation == "c" else []
                return {"messages": first + shown}
            case commands.GetAvailableModels():
                return {"models": [pi_replies.model(each) for each in server.models.all()]}
            case commands.GetAvailableThinkingLevels():
                levels = pi_replies.levels(self._model())
                return {"levels": [level_word(each) for each in levels]}
            case commands.GetSessionStats():
                agent = runtime.agent
                window = agent.model.context_window
                return pi_replies.stats(session, path_of(session), agent.context_tokens, window)
            case commands.GetForkMessages():
                return {"messages": pi_replies.forkable(session)}
            case commands.GetEntries(since):
                rows = pi_replies.Rows(session)
                found = rows.since(since)
                if found is None:
                    raise CommandError(f"there is no entry with the id {since!r}")
                return {"entries": found, "leafId": rows.leaf}
            case commands.GetTree():
                rows = pi_replies.Rows(session)
                return {"tree": rows.tree(), "leafId": rows.leaf}
            case commands.GetLastAssistantText():
                text = pi_replies.last_assistant_text(session.messages())
                return {} if text is None else {"text": text}
            case _:
                assert_never(command)

    def _state(self) -> dict[str, Json]:
        runtime = self._server.runtime
        session, settings = runtime.session, runtime.agent.settings
        running = runtime.running
        kind = running.kind if running is not None else None
        path, name = path_of(session), session.title
        modes = {True: "all", False: "one-at-a-time"}
        return {
            "model": pi_replies.model(self._model()),
            "thinkingLevel": level_word(settings.reasoning),
            "isStreaming": kind == "prompt",
            "isCompacting": kind == "compact",
            "steeringMode": modes[runtime.take_all["steering"]],
            "followUpMode": modes[runtime.take_all["follow_up"]],
            **({"sessionFile": path} if path else {}),
            "sessionId": session.id,
            **({"sessionName": name} if name else {}),
            "autoCompactionEnabled": settings.compact_at is not None,
            "messageCount": pi_replies.count(session.messages()),
            "pendingMessageCount": len(runtime.steering) + len(runtime.follow_up),
        }

    def _model(self) -> Model:
        return self._server.wanted_model or self._server.runtime.agent.model

    # --- models and levels -------------------------------------------------------------------

    def choose(self, command: Choice) -> Json:
        match command:
            case commands.SetModel(provider, id):
                return pi_replies.model(self._use(self._server.models.find_of(provider, id)))
            case commands.CycleModel():
                return self._cycle_model()
            case commands.SetThinkingLevel(word):
                if word not in WORD_LEVELS:
                    known = ", ".join(WORD_LEVELS)
                    raise CommandError(f"the level must be one of {known}, not {word!r}")
                wanted = WORD_LEVELS[word]
                self._server.set_level(pi_replies.clamped(wanted, self._model()))
                return UNSET
            case commands.CycleThinkingLevel():
                return self._cycle_level()
            case _:
                assert_never(command)

    def _cycle_model(self) -> Json:
        models = self._server.models
        scoped = models.scoped()
        around = list(scoped or models.all())
        names = [(each.provider, each.id) for each in around]
        model = self._model()
        now = (model.provider, model.id)
        if len(around) < 2 and now in names:
            return None
        at = names.index(now) + 1 if now in names else 0
        chosen = self._use(around[at % len(around)])
        level = level_word(self._server.runtime.agent.settings.reasoning)
        shown = pi_replies.model(chosen)
        return {"model": shown, "thinkingLevel": level, "isScoped": bool(scoped)}

    def _cycle_level(self) -> Json:
        levels = pi_replies.levels(self._model())
        if len(levels) < 2:
            return None
        now: Level = self._server.runtime.agent.settings.reasoning
        at = levels.index(now) + 1 if now in levels else 0
        self._server.set_level(levels[at % len(levels)])
        return {"level": level_word(levels[at % len(levels)])}

    def _use(self, model: Model) -> Model:
        """Go on with a model, from the next prompt on where one is running."""
        server = self._server
        agent = server.runtime.agent
        provider = agent.provider if model == agent.model else server.models.connect(model)

        def use() -> None:
            before = agent.provider
            server.runtime.session.append(ModelChange(model.provider, model.id))
            agent.set_model(provider, model)
            server.wanted_model = None
            server.show_model()
            if before is not provider:
                before.close()

        server.wanted_model = model
        server.when_idle(use)
        level = server.runtime.agent.settings.reasoning
        server.set_level(pi_replies.clamped(level, model))
        return model

    # --- sessions ----------------------------------------------------------------------------

    def switch(self, command: Switch) -> dict[str, Json]:
        """Go on with another session; what runs is aborted first, as pi does."""
        server = self._server
        self._stop()
        session = server.runtime.session
        match command:
            case commands.NewSession(parent):
                self._use_session(server.sessions.new(parent=parent or ""))
                self._back_to_defaults()
                return {"cancelled": False}
            case commands.SwitchSession(path):
                # The file that is open is locked, by us.
                if not same_file(path, path_of(session)):
                    self._use_session(server.sessions.open(path))
                return {"cancelled": False}
            case commands.Fork(id):
                entry = session.entries.get(id)
                if entry is None or not pi_replies.is_own(entry):
                    raise CommandError(f"there is no user message with the entry id {id!r}")
                before = session.path(entry.parent) if entry.parent is not None else []
                self._copy(before)
                return {"text": pi_replies.first_text(entry.body), "cancelled": False}
            case commands.Clone():
                if session.message_count() == 0:
                    raise CommandError("there is nothing to clone: nothing was said yet")
                self._copy(session.path())
                return {"cancelled": False}
            case _:
                assert_never(command)

    def _copy(self, entries: list[Entry]) -> None:
        server = self._server
        parent = path_of(server.runtime.session)
        said = any(isinstance(entry.body, Message) for entry in entries)
        self._use_session(server.sessions.new(parent=parent, entries=entries if said else ()))

    def _use_session(self, session: Session) -> None:
        server = self._server
        server.runtime.use_session(session)
        server.adopt(session)
        server.new_conversation()

    def _back_to_defaults(self) -> None:
        server = self._server
        model, level = server.defaults
        agent = server.runtime.agent
        server.use_model(model)
        agent.settings = replace(agent.settings, reasoning=level)
        server.new_conversation()

    def _stop(self) -> None:
        runtime = self._server.runtime
        deadline = time.monotonic() + 2 * ABORT_GRACE + 1
        while (run := runtime.running) is not None:
            runtime.abort()
            if not run.ended.wait(max(0.0, deadline - time.monotonic())):
                raise BusyError("the run does not stop; try again")

    # --- the shell, exports, commands --------------------------------------------------------

    def bash(self, incoming: Incoming, command: str, hidden: bool) -> dict[str, Json]:
        server = self._server

        def show(text: str) -> None:
            server.put([BashUpdate(text, incoming.id)])

        answer = self.shell.run(command, show)
        server.add_shell_output(message(command, answer, hidden=hidden))
        return answer

    def export_html(self, target: str | None) -> dict[str, Json]:
        # Deferred: the page is rarely asked for.
        from zot.pi.export import export_html

        runtime = self._server.runtime
        return {"path": export_html(runtime.session, target, Path(runtime.cwd))}

    def list_commands(self) -> dict[str, Json]:
        server = self._server
        extensions = server.runtime.extensions
        found: list[dict[str, Json]] = []
        for command in extensions.commands() if extensions is not None else ():
            found.append(_listed(command.name, command.description, "extension", command.extension))
        for skill in find_skills(server.setup):
            name = f"skill:{skill.name}"
            found.append(_listed(name, skill.description, "skill", str(skill.path)))
        return {"commands": found}

    def is_command(self, text: str) -> bool:
        """Whether a prompt may be an extension's command, without waiting for extensions."""
        extensions = self._server.runtime.extensions
        if not text.startswith("/") or text.startswith("/skill:") or extensions is None:
            return False
        return extensions.host is not None

    def run_command(self, text: str) -> str | None:
        """Run an extension's command; the prompt that is to be started, if any."""
        extensions = self._server.runtime.extensions
        assert extensions is not None
        name, _, args = text[1:].partition(" ")
        if all(command.name != name for command in extensions.commands()):
            return text
        outcome = extensions.run_command(name, args)
        if outcome.action == "error":
            raise CommandError(outcome.text)
        if outcome.action == "insert":
            self._server.show("set_editor_text", text=outcome.text)
        return outcome.text if outcome.action == "prompt" else None

    # --- dialogs -----------------------------------------------------------------------------

    def approval_dialog(self, event: events.ApprovalRequest) -> list[PiFrame]:
        """A question of zot's own guard, as a dialog that any pi interface can show."""
        if self._server.peer.generation == "a":  # it has no dialogs: nobody would answer
            assert self._server.approval is not None
            self._server.approval.answer(event.id, "deny", "this client cannot be asked")
            return []
        return self._server.encoder.ui(
            "confirm",
            id=event.id,
            title=f"Allow {event.call.name}?",
            message=event.preview,
            timeout=round(event.timeout * 1000),
        )

    def dialog_answered(self, incoming: Incoming, answer: commands.ExtensionUiResponse) -> None:
        """Answers to questions that are no longer open are ignored, as pi does."""
        approval, extensions = self._server.approval, self._server.runtime.extensions
        if incoming.id is UNSET:
            return
        id = bytes(incoming.id).decode().strip('"')
        if extensions is not None and extensions.answer(
            id,
            value=answer.value,
            confirmed=bool(answer.confirmed),
            cancelled=answer.cancelled,
        ):
            return
        if approval is None:
            return
        try:
            if answer.confirmed and not answer.cancelled:
                approval.answer(id, "allow")
            else:
                approval.answer(id, "deny", "the user said no")
        except CommandError:
            pass


def _listed(name: str, description: str, source: str, path: str) -> dict[str, Json]:
    info = {"path": path, "source": "local", "scope": "user", "origin": "top-level"}
    return {"name": name, "description": description, "source": source, "sourceInfo": info}
