"""`zot --mode rpc`: pi's protocol over stdin and stdout, for clients written for pi; and
`zot --mode json`: one prompt, its events as lines.

The main thread reads and answers; runs, shell commands and extension commands have their own
threads, and answer when they are done.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import assert_never

from msgspec import UNSET
from msgspec.structs import replace

from zot import __version__
from zot.bugs import internal_error
from zot.build import Additions, approval_for, build_runtime, find_skills, prompt_for
from zot.cancel import Cancel
from zot.core import events
from zot.core.events import Event
from zot.core.session import Session
from zot.core.source import Question
from zot.errors import CommandError, ZotError
from zot.lines import LineTooLong, encode_line
from zot.pi import commands, replies
from zot.pi.actions import COMPACTION, Actions
from zot.pi.commands import AnyPiCommand, PiIncoming, PiPeer
from zot.pi.events import Encoder
from zot.pi.format import PI
from zot.pi.frames import (
    CompactionResult,
    PiFrame,
    SessionInfoChanged,
    SpecError,
    ThinkingLevelChanged,
)
from zot.pi.messages import PiSystem, level_word
from zot.pi.sessions import PiSessions
from zot.provider.model import clamped
from zot.provider.retry import RetryPolicy
from zot.provider.types import Json, Level, ToolCall
from zot.runtime.client import RuntimeClient
from zot.runtime.run import Run
from zot.runtime.runtime import Runtime
from zot.sessions.rows import Meta, rfc3339
from zot.settings.resolve import Plan
from zot.wire.once import answer_once
from zot.wire.serving import STOP_SECONDS, LineServer, claim_stdout, ignore_signals
from zot.writer import LineWriter

TICK = 0.05
"""Seconds between two attempts to send held-back frames."""
SETTLING = object()
"""Tag of an automatic compaction; the prompt before it is settled when it is done."""


def serve(plan: Plan) -> int:
    """Serve until stdin closes or a signal comes; return the exit code. Raises ZotError: a file
    named by a flag cannot be used; nothing was written to stdout."""
    return PiServer(plan).serve()


class PiServer(LineServer):
    def __init__(self, plan: Plan) -> None:
        self.setup = setup = plan.setup
        options = setup.options
        sessions = PiSessions.of(setup)
        self.peer = PiPeer(commands.pinned(options.pi_protocol))
        self.encoder = Encoder(self.peer)
        """Hold `_wire` while using it."""
        self._wire = threading.Lock()
        """Held while frames are encoded and queued, so that both happen in one order."""
        self._ticking = threading.Condition(self._wire)
        self._ended = False
        self._aborts: list[PiIncoming] = []
        self._retry: RetryPolicy | None = None
        """The policy before the client changed it."""
        self._lock = threading.Lock()
        self._compacted: CompactionResult | None = None
        self._compact_failed = False
        self._system_shown = False
        added = Additions(
            sessions=lambda: sessions,
            approval=approval_for(options, self, options.approve or ()),
            owns_process=True,
            check_extensions=False,  # pi clients pass pi's extensions, which are ignored
        )
        runtime = build_runtime(plan, self, added)
        super().__init__()
        self.built = runtime
        runtime.queue.deliver("steering", one_at_a_time=True)
        runtime.queue.deliver("follow_up", one_at_a_time=True)
        runtime.models.change_settings(**COMPACTION)
        self.actions = Actions(self)
        with self._wire:
            self._show_model()
        threading.Thread(target=self._tick, name="zot-pi-tick", daemon=True).start()

    @property
    def runtime(self) -> Runtime:
        assert self.built is not None
        return self.built

    def _show_model(self) -> None:
        """Pass the current model to the encoder; hold `_wire`."""
        model = self.runtime.models.in_use
        self.encoder.use_model(model.provider, model.id, model.api)

    def can_answer(self, what: Question) -> bool:
        return not self.peer.traits.documented

    # --- lines -------------------------------------------------------------------------------

    @property
    def drain(self) -> bool:  # type: ignore[override]  # decided when the input ends
        """Whether to finish the run when stdin closes: only the oldest generation does."""
        return self.peer.traits.documented

    def is_whole(self, line: bytes) -> bool:
        return commands.decode(line).error is None

    def closing(self) -> None:
        self.runtime.shell.abort()
        with self._wire:
            self._ended = True
            self._ticking.notify_all()

    def take_line(self, line: bytes | LineTooLong) -> None:
        if isinstance(line, LineTooLong):
            error = CommandError(
                f"failed to parse the command: the line is longer than {line.limit} bytes"
            )
            incoming = PiIncoming("parse", UNSET, None, error)
        else:
            incoming = commands.decode(line)
        self.peer.learn(incoming)
        try:
            if incoming.command is None:
                raise incoming.error or CommandError("unknown command")
            self._handle(incoming, incoming.command)
        except ZotError as error:
            self.fail(incoming, error)
        except Exception as error:  # a bug ends this command, not the process
            self.fail(incoming, internal_error(error))

    # --- commands ----------------------------------------------------------------------------

    def _handle(self, incoming: PiIncoming, command: AnyPiCommand) -> None:
        runtime, actions = self.runtime, self.actions
        match command:
            case commands.Prompt():
                self._prompt(incoming, command)
            case commands.Steer(message) | commands.FollowUp(message):
                offer = runtime.steer if isinstance(command, commands.Steer) else runtime.follow
                offer(message, commands.files(command).images, keep=True)
                self.answer(incoming, {"disposition": "queued"})
            case commands.Abort():
                self._abort(incoming)
            case commands.Compact(instructions):
                runtime.compact(instructions or "", tag=incoming)
            case commands.Bash(text, hidden):
                # Created here, not in the thread, so that an abort right after it finds it.
                cancel = runtime.shell.new_cancel()
                self.in_thread(incoming, lambda: actions.bash(incoming, text, hidden, cancel))
            case commands.ExportHtml(path):
                self.in_thread(incoming, lambda: actions.export_html(path))
            case commands.GetCommands():
                self.in_thread(incoming, actions.list_commands)
            case commands.ExtensionUiResponse():
                actions.dialog_answered(incoming, command)
            case _:
                self.answer(incoming, self._data(command))

    def _data(self, command: commands.Quick) -> Json:
        """Execute a quick command; return the data of its answer."""
        if isinstance(command, commands.Look):
            return self.actions.look(command)
        if isinstance(command, commands.Choice):
            return self.actions.choose(command)
        if isinstance(command, commands.Switch):
            return self.actions.switch(command)
        return self._control(command)

    def _prompt(self, incoming: PiIncoming, command: commands.Prompt) -> None:
        files = commands.files(command)
        if not command.message.strip() and not files.images:
            raise CommandError("the prompt is empty: give a message or an image")
        if command.message.startswith("/"):  # may be a command; also during a run
            self.in_thread(incoming, lambda: self._command(incoming, command, files))
        else:
            self._deliver(incoming, command, files)

    def _command(
        self, incoming: PiIncoming, command: commands.Prompt, files: commands.PromptFiles
    ) -> dict[str, Json] | None:
        """Handle a prompt that may be an extension's command; answer when the command is done."""
        made = self.actions.run_command(command.message)
        if made is None:
            return {"disposition": "handled"}
        self._deliver(incoming, replace(command, message=made.text), files, made.call)
        return None

    def _deliver(
        self,
        incoming: PiIncoming,
        command: commands.Prompt,
        files: commands.PromptFiles,
        call: ToolCall | None = None,
    ) -> None:
        """Start a run, or pass the message to the current one. `call`: a tool to run first, which
        needs a run of its own."""
        runtime = self.runtime
        running = None if call is not None else runtime.runs.running
        if running is not None and running.kind == "prompt" and not self.peer.traits.documented:
            if command.streamingBehavior is None:
                raise CommandError(
                    "the agent is working on a prompt: wait for its end, abort it, or say with "
                    "streamingBehavior ('steer' or 'followUp') when it should hear this one"
                )
            offer = runtime.steer if command.streamingBehavior == "steer" else runtime.follow
            if offer(command.message, files.images):
                self.answer(incoming, {"disposition": "queued"})
                return
        self._start(incoming, command.message, files, call)

    def _start(
        self,
        incoming: PiIncoming,
        text: str,
        files: commands.PromptFiles,
        call: ToolCall | None = None,
    ) -> None:
        extra: dict[str, object] | None = None
        if files.echoed:
            extra = {"attachments": list(files.echoed)}
        self.runtime.prompt(
            text,
            files.images,
            documents=files.documents,
            extra=extra,
            call=call,
            accepted=lambda ahead: self.answer(incoming, {"disposition": "started"}),
        )

    def _abort(self, incoming: PiIncoming) -> None:
        """Abort the run; the answer is sent when everything is idle."""
        with self._lock:
            self._aborts.append(incoming)
        if not self.runtime.abort():
            self._answer_aborts()

    def _answer_aborts(self) -> None:
        with self._lock:
            waiting, self._aborts = self._aborts, []
        for incoming in waiting:
            self.answer(incoming)

    def _control(self, command: commands.Setting | commands.Control) -> Json:
        runtime = self.runtime
        match command:
            case commands.SetSteeringMode(mode):
                runtime.queue.deliver("steering", one_at_a_time=mode != "all")
            case commands.SetFollowUpMode(mode):
                runtime.queue.deliver("follow_up", one_at_a_time=mode != "all")
            case commands.SetAutoCompaction(enabled):
                runtime.models.change_settings(compact_at=1.0 if enabled else None)
            case commands.SetAutoRetry(enabled):
                self._retry = self._retry or runtime.agent.settings.retry
                policy = self._retry if enabled else RetryPolicy(max_attempts=1)
                runtime.models.change_settings(retry=policy)
            case commands.SetSessionName(name):
                runtime.sessions.set_title(name)
                self.put([SessionInfoChanged(name.strip())])
            case commands.AbortRetry():
                with self._wire:
                    retrying = self.encoder.retrying
                if retrying:
                    runtime.abort()
            case commands.AbortBash():
                runtime.shell.abort()
            case commands.ClearQueue():
                steering, follow_up = runtime.queue.clear()
                return {"steering": steering, "followUp": follow_up}
            case commands.GetProtocol(generation):
                if generation is not None:
                    self.peer.choose(generation)
                return commands.protocol(self.peer, __version__)
            case _:
                assert_never(command)
        return UNSET

    def set_level(self, level: Level) -> None:
        """Set the thinking level, clamped to the model's levels; report a change."""
        runtime = self.runtime
        level = clamped(level, runtime.models.current)
        if level != runtime.agent.settings.reasoning:
            runtime.models.set_reasoning(level, while_busy=True)
            self.put([ThinkingLevelChanged(level_word(level))])

    # --- events ------------------------------------------------------------------------------

    def listen(self, event: Event, run: Run | None) -> None:
        kind = run.kind if run is not None else None
        with self._wire:
            frames: list[PiFrame] = []
            if isinstance(event, events.UserMessage):
                self._show_model()
                frames += self._system_message()
            if isinstance(event, events.CompactDone):
                result = replies.compaction(event, self.runtime.session)
                self._compacted = result if kind == "compact" else None
                frames.append(self.encoder.compacted(event, result))
            elif isinstance(event, events.ApprovalRequest):
                frames += self.actions.approval_dialog(event)
            else:
                frames += self.encoder.encode(event, kind, time.monotonic())
            if isinstance(event, events.CompactFailed):
                self._compact_failed = True
            self._write(frames)
            if self.encoder.holds_back:
                self._ticking.notify_all()
        if isinstance(event, events.Done) and run is not None:
            self._run_ended(run)

    def _system_message(self) -> list[PiFrame]:
        if not self.peer.traits.system_message or self._system_shown:
            return []
        self._system_shown = True
        return self.encoder.system(self.system_message())

    def system_message(self) -> PiSystem:
        tools = [
            {"name": spec.name, "description": spec.description, "parameters": spec.schema}
            for spec in self.runtime.agent.toolbox.specs
        ]
        text = prompt_for(self.setup, find_skills(self.setup))
        return PiSystem({"prompt": text}, tools, round(time.time() * 1000))

    def new_conversation(self) -> None:
        self._system_shown = False
        with self._wire:
            self._show_model()

    def _run_ended(self, run: Run) -> None:
        """Handle the end of a run; called by the runtime's thread, before the next run."""
        if run.kind == "compact":
            self._compact_ended(run)
        else:
            self._prompt_ended(run)
        self._compacted, self._compact_failed = None, False

    def _prompt_ended(self, run: Run) -> None:
        runtime = self.runtime
        if run.stop == "end" and runtime.agent.is_full():
            try:
                runtime.compact(reason="threshold", tag=SETTLING)
                return
            except CommandError:
                pass  # closed: nothing follows
        self._settle(aborted=run.stop == "aborted")

    def _compact_ended(self, run: Run) -> None:
        if run.tag is SETTLING:
            self._settle(aborted=False)
            return
        assert isinstance(run.tag, PiIncoming)
        if self._compacted is not None:
            if self.peer.wants_answer(run.tag):
                self.answer(run.tag, self._compacted)
        elif self.peer.wants_answer(run.tag) or not self._compact_failed:
            self.fail(run.tag, run.error or CommandError("the compaction was aborted"))
        self._answer_aborts()

    def _settle(self, *, aborted: bool) -> None:
        with self._wire:
            self._write(self.encoder.settled(aborted=aborted))
        self._answer_aborts()

    def _tick(self) -> None:
        """Send frames that were held back to keep snapshots within their budget."""
        while True:
            with self._wire:
                while not self.encoder.holds_back and not self._ended:
                    self._ticking.wait()
                if self._ended:
                    return
                self._write(self.encoder.tick(time.monotonic()))
            time.sleep(TICK)

    # --- frames ------------------------------------------------------------------------------

    def answer(self, incoming: PiIncoming, data: Json = UNSET) -> None:
        if self.peer.wants_answer(incoming):
            self.writer.put(encode_line(commands.success(incoming, data)))

    def fail(self, incoming: PiIncoming, error: Exception) -> None:
        if self.peer.wants_answer(incoming):
            self.writer.put(encode_line(commands.failure(incoming, error)))
        else:
            self.put([SpecError(str(error))])

    def put(self, frames: list[PiFrame]) -> None:
        with self._wire:
            self._write(frames)

    def show(self, method: str, **fields: Json) -> None:
        """Send a request to the client's user interface."""
        with self._wire:
            self._write(self.encoder.ui(method, **fields))

    def _write(self, frames: list[PiFrame]) -> None:
        for frame in frames:
            self.writer.put(encode_line(frame))

    def in_thread(self, incoming: PiIncoming, work: Callable[[], dict[str, Json] | None]) -> None:
        """Run slow work in a thread; send its result as the answer, unless it is None."""

        def do() -> None:
            try:
                data = work()
            except ZotError as error:
                self.fail(incoming, error)
            except Exception as error:  # as in the main thread
                self.fail(incoming, internal_error(error))
            else:
                if data is not None:
                    self.answer(incoming, data)

        threading.Thread(target=do, name=f"zot-pi-{incoming.name}", daemon=True).start()


# --- one prompt ------------------------------------------------------------------------------


def run_once(plan: Plan, prompt: str, generation: str) -> int:
    """Answer the prompt, after a line with the session's header. Return 0 on success, 1 on failure,
    128 + N after signal N. Raises ZotError: it could not even begin."""
    setup, session = plan.setup, plan.session
    assert session is not None  # set by sessions.with_session
    sessions = PiSessions.of(setup)
    client = PiLines(generation, session)
    runtime = build_runtime(
        plan,
        client,
        Additions(sessions=lambda: sessions, check_extensions=False, owns_process=True),
    )
    runtime.models.change_settings(**COMPACTION)
    model = runtime.models.current
    client.encoder.use_model(model.provider, model.id, model.api)
    meta = Meta(session.id, setup.cwd, started=rfc3339(time.time()))
    client.writer.put(PI.writer(meta, None).head())
    try:
        return answer_once(runtime, prompt, client)
    finally:
        runtime.close()
        runtime.release()
        client.writer.close(STOP_SECONDS)
        ignore_signals()


class PiLines(RuntimeClient):
    """Writes every event as lines of pi's protocol."""

    def __init__(self, generation: str, session: Session) -> None:
        self.lost = False
        """Whether the reader of stdout is gone."""
        self.encoder = Encoder(PiPeer(commands.pinned(generation or "c")))
        self.wire = claim_stdout()
        self.writer = LineWriter(self.wire, gone=self._reader_gone)
        self._session = session

    def _reader_gone(self) -> None:
        self.lost = True

    def nothing_runs(self) -> None:
        """Do nothing: the header was all the output."""

    def wait(self, cancel: Cancel) -> None:
        self.writer.wait(cancel)

    def listen(self, event: Event, run: Run | None) -> None:
        kind = run.kind if run is not None else None
        frames = [*self.encoder.encode(event, kind, time.monotonic())]
        if isinstance(event, events.CompactDone):
            result = replies.compaction(event, self._session)
            frames.append(self.encoder.compacted(event, result))
        if isinstance(event, events.Done):
            frames += self.encoder.settled(aborted=event.stop == "aborted")
        for frame in frames:
            self.writer.put(encode_line(frame))
