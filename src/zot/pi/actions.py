"""pi's commands other than prompts: sessions, models, the shell, exports, dialogs."""

from __future__ import annotations

import time
from pathlib import Path
from typing import TYPE_CHECKING, assert_never

from msgspec import UNSET

from zot.cancel import Cancel
from zot.core import events
from zot.core.compact import Keep
from zot.core.session import Body, Custom, Entry
from zot.core.shell import ShellOutput
from zot.core.source import CommandInfo, CommandResult
from zot.errors import AuthError, CommandError, ConfigError
from zot.files import write_atomic
from zot.pi import commands
from zot.pi import replies as pi_replies
from zot.pi.commands import Choice, Look, PiIncoming, Switch
from zot.pi.flags import scoped
from zot.pi.frames import BashUpdate, PiFrame
from zot.pi.messages import WORD_LEVELS, from_pi, level_word
from zot.provider.model import clamped, levels
from zot.provider.types import Json, Message, Model
from zot.sessions.files import Loaded
from zot.sessions.library import describe
from zot.sessions.open import path_of
from zot.sessions.rows import Meta, rfc3339

if TYPE_CHECKING:
    from zot.pi.rpc import PiServer

RESERVE_TOKENS = 16_384
KEEP_TOKENS = 20_000


COMPACTION = {
    "compact_reserve": RESERVE_TOKENS,
    "keep": Keep(messages=None, tokens=KEEP_TOKENS, or_nothing=True),
}
"""Agent settings that make compaction trigger when pi's does, and keep as much."""


class Actions:
    def __init__(self, server: PiServer) -> None:
        self._server = server
        self._runtime = server.runtime

    # --- queries -----------------------------------------------------------------------------

    def look(self, command: Look) -> Json:
        server, runtime = self._server, self._server.runtime
        session = runtime.session
        match command:
            case commands.GetState():
                return self._state()
            case commands.GetMessages():
                shown = pi_replies.messages(session.messages())
                first = [server.system_message()] if server.peer.traits.system_message else []
                return {"messages": first + shown}
            case commands.GetAvailableModels():
                return {"models": [pi_replies.model(model) for model in runtime.models.all()]}
            case commands.GetAvailableThinkingLevels():
                return {"levels": [level_word(level) for level in levels(runtime.models.current)]}
            case commands.GetSessionStats():
                state = runtime.state()
                used, window = state.context_tokens, state.model.context_window
                return pi_replies.stats(session, path_of(session), used, window)
            case commands.GetForkMessages():
                return {"messages": pi_replies.forkable(session)}
            case commands.GetEntries(since):
                rows = pi_replies.Rows(session)
                entries = rows.since(since)
                if entries is None:
                    raise CommandError(f"there is no entry with the id {since!r}")
                return {"entries": entries, "leafId": rows.leaf}
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
        running = runtime.runs.running
        kind = running.kind if running is not None else None
        path, name = path_of(session), session.title
        modes = {False: "all", True: "one-at-a-time"}
        return {
            "model": pi_replies.model(runtime.models.current),
            "thinkingLevel": level_word(clamped(settings.reasoning, runtime.models.current)),
            "isStreaming": kind == "prompt",
            "isCompacting": kind == "compact",
            "steeringMode": modes[runtime.queue.delivers_one("steering")],
            "followUpMode": modes[runtime.queue.delivers_one("follow_up")],
            **({"sessionFile": path} if path else {}),
            "sessionId": session.id,
            **({"sessionName": name} if name else {}),
            "autoCompactionEnabled": settings.compact_at is not None,
            "messageCount": pi_replies.count(session.messages()),
            "pendingMessageCount": len(runtime.queue.steering) + len(runtime.queue.follow_up),
        }

    # --- models and levels -------------------------------------------------------------------

    def choose(self, command: Choice) -> Json:
        match command:
            case commands.SetModel(provider, id):
                return pi_replies.model(self._use(provider, id))
            case commands.CycleModel():
                return self._cycle_model()
            case commands.SetThinkingLevel(word):
                if word not in WORD_LEVELS:
                    known = ", ".join(WORD_LEVELS)
                    raise CommandError(f"the level must be one of {known}, not {word!r}")
                self._server.set_level(WORD_LEVELS[word])
                return UNSET
            case commands.CycleThinkingLevel():
                return self._cycle_level()
            case _:
                assert_never(command)

    def _cycle_model(self) -> Json:
        runtime = self._runtime
        named = scoped(runtime.models, self._server.setup.options.models)
        around = named or list(runtime.models.all())
        names = [(model.provider, model.id) for model in around]
        now = (runtime.models.current.provider, runtime.models.current.id)
        if len(around) < 2 and now in names:
            return None
        at = names.index(now) + 1 if now in names else 0
        chosen = self._use(*names[at % len(names)])
        level = level_word(clamped(runtime.agent.settings.reasoning, chosen))
        shown = pi_replies.model(chosen)
        return {"model": shown, "thinkingLevel": level, "isScoped": bool(named)}

    def _cycle_level(self) -> Json:
        have = levels(self._runtime.models.current)
        if len(have) < 2:
            return None
        now = clamped(self._runtime.agent.settings.reasoning, self._runtime.models.current)
        at = have.index(now) + 1
        self._server.set_level(have[at % len(have)])
        return {"level": level_word(have[at % len(have)])}

    def _use(self, provider: str, id: str) -> Model:
        """Switch the model; while a prompt runs, from the next prompt on."""
        try:
            model = self._runtime.models.set(id, provider, later=True)
        except (AuthError, ConfigError) as error:
            raise ConfigError(f"model not found: {provider}/{id} ({error})") from error
        self._server.set_level(self._runtime.agent.settings.reasoning)
        return model

    # --- sessions ----------------------------------------------------------------------------

    def switch(self, command: Switch) -> dict[str, Json]:
        """Switch to another session; abort the current run first, as pi does."""
        runtime = self._runtime
        runtime.stop()
        session = runtime.session
        text: dict[str, Json] = {}
        match command:
            case commands.NewSession(parent):
                runtime.sessions.new(parent or "")
            case commands.SwitchSession(path):
                runtime.sessions.load(path)
            case commands.Fork(id):
                entry = session.entries.get(id)
                if entry is None or not pi_replies.is_own(entry):
                    raise CommandError(f"there is no user message with the entry id {id!r}")
                self._copy(session.path(entry.parent) if entry.parent is not None else [])
                text = {"text": pi_replies.first_text(entry.body)}
            case commands.Clone():
                if session.message_count() == 0:
                    raise CommandError("there is nothing to clone: nothing was said yet")
                self._copy(session.path())
            case _:
                assert_never(command)
        self._server.new_conversation()
        return {**text, "cancelled": False}

    def _copy(self, entries: list[Entry]) -> None:
        said = any(isinstance(entry.body, Message) for entry in entries)
        self._runtime.sessions.fork_entries(entries if said else (), path_of(self._runtime.session))

    # --- the shell, exports, commands --------------------------------------------------------

    def bash(
        self, incoming: PiIncoming, command: str, hidden: bool, cancel: Cancel | None = None
    ) -> dict[str, Json]:
        server = self._server

        def show(text: str) -> None:
            server.put([BashUpdate(text, incoming.id)])

        def entry(ran: ShellOutput) -> Body:
            self._runtime.models.record()
            shown = shell_message(ran, hidden=hidden)
            return from_pi(shown) or Custom("message", {"message": shown})

        return shell_answer(self._runtime.shell.run(command, show=show, entry=entry, cancel=cancel))

    def export_html(self, target: str | None) -> dict[str, Json]:
        """Write the session as one HTML page, even if it has no file. Raises CommandError: the
        session is empty, or the file cannot be written."""
        from zot.sessions.export_html import to_html  # few clients need it

        session, cwd = self._runtime.session, Path(self._runtime.cwd)
        if session.message_count() == 0:
            raise CommandError("there is nothing to export: nothing was said yet")
        path = path_of(session)
        stem = Path(path).stem if path else f"session_{session.id}"
        out = cwd / (Path(target).expanduser() if target else f"zot-{stem}.html")
        meta = Meta(session.id, str(cwd), started=rfc3339(time.time()))
        loaded = Loaded(meta, session.entries, ())
        try:
            write_atomic(out, to_html(loaded, describe(path or str(out), loaded)).encode())
        except OSError as error:
            raise CommandError(f"cannot write {str(out)!r}: {error.strerror or error}") from error
        return {"path": str(out)}

    def list_commands(self) -> dict[str, Json]:
        return {"commands": [_listed(info) for info in self._runtime.commands.all()]}

    def run_command(self, text: str) -> CommandResult | None:
        """Run a typed command; return the prompt to start, if any."""
        result = self._runtime.commands.run_typed(text)
        if result is None:
            return CommandResult("", "prompt", text)
        if result.action == "error":
            raise CommandError(result.text)
        if result.action == "insert":
            self._server.show("set_editor_text", text=result.text)
        return result if result.action == "prompt" else None

    # --- dialogs -----------------------------------------------------------------------------

    def approval_dialog(self, event: events.ApprovalRequest) -> list[PiFrame]:
        """Show zot's own approval request as a dialog that any pi client supports."""
        return self._server.encoder.ui(
            "confirm",
            id=event.id,
            title=f"Allow {event.call.name}?",
            message=event.preview,
            timeout=round(event.timeout * 1000),
        )

    def dialog_answered(self, incoming: PiIncoming, answer: commands.ExtensionUiResponse) -> None:
        """Handle an answer; ignore it if its question is no longer open, as pi does."""
        if incoming.id is UNSET:
            return
        id = bytes(incoming.id).decode().strip('"')
        confirmed = bool(answer.confirmed) and not answer.cancelled
        try:
            if id.startswith("approval-"):
                self._runtime.approve(
                    id, "allow" if confirmed else "deny", "" if confirmed else "the user said no"
                )
            else:
                self._runtime.dialogs.answer(
                    id,
                    value=answer.value,
                    confirmed=bool(answer.confirmed),
                    cancelled=answer.cancelled,
                )
        except CommandError:
            pass  # no longer open


def shell_answer(ran: ShellOutput) -> dict[str, Json]:
    answer: dict[str, Json] = {
        "output": ran.output,
        "cancelled": ran.aborted,
        "truncated": ran.truncated,
    }
    if ran.exit_code is not None:
        answer["exitCode"] = ran.exit_code
    if ran.full_output:
        answer["fullOutputPath"] = ran.full_output
    return answer


def shell_message(ran: ShellOutput, *, hidden: bool) -> dict[str, Json]:
    """Return the command and its output as pi stores them in a session."""
    message = {"role": "bashExecution", "command": ran.command, **shell_answer(ran)}
    if hidden:
        message["excludeFromContext"] = True
    return {**message, "timestamp": round(time.time() * 1000)}


def _listed(command: CommandInfo) -> dict[str, Json]:
    path = command.path or command.source
    info = {"path": path, "source": "local", "scope": "user", "origin": "top-level"}
    return {
        "name": command.name,
        "description": command.description,
        "source": command.kind,
        "sourceInfo": info,
    }
