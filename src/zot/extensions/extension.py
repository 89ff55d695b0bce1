"""One extension: its state, its registrations, and the handling of its frames.

It outlives its process: after a crash the process is restarted, and the tools stay. What concerns
several extensions is in host.py.
"""

from __future__ import annotations

import threading
import time
import traceback
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import count
from typing import TYPE_CHECKING, Literal, assert_never

from zot.cancel import Cancel
from zot.children.lineprocess import Bucket
from zot.children.logfile import LogFile
from zot.children.process import ChildProcess
from zot.core.events import ExtensionNotify, ExtensionPanel
from zot.errors import ExtensionError
from zot.extensions import proto
from zot.extensions.guest import Guest, NoAnswer, Question
from zot.extensions.manifest import Installed
from zot.extensions.process import ExtensionLimits, ExtensionProcess, environment
from zot.extensions.registered import Registered
from zot.lines import LineTooLong

if TYPE_CHECKING:
    from zot.extensions.host import ExtensionHost

State = Literal["starting", "ready", "restarting", "stopped"]
LEVELS = ("info", "success", "warn", "error")
MAX_REGISTERED = 512
MAX_NOTE = 16 * 1024
NOTES_PER_SECOND, NOTES_AT_ONCE = 20, 50
STABLE_SECONDS = 60.0
"""Run time, in seconds, after which a crashed extension gets its full number of restarts again."""
_ids = count(1)


class HostedExtension:
    def __init__(
        self,
        installed: Installed,
        owner: ExtensionHost,
        *,
        log: LogFile,
        limits: ExtensionLimits,
        environ: Mapping[str, str],
        secrets: frozenset[str],
    ) -> None:
        self.installed = installed
        self.name = installed.name
        self.log = log
        self.limits = limits
        self.state: State = "starting"
        self.reason = ""
        """Why it is not running."""
        self.hello: proto.Hello | None = None
        self.hello_seconds: float | None = None
        self.ready_seconds: float | None = None
        self.said_ready = False
        self.unknown: dict[str, int] = {}
        """Number of frames by unknown type."""
        self.registered = Registered()
        self.expected: frozenset[str] = frozenset()
        """Events it guarded in an earlier run, or guards by its manifest; removed once it has
        started."""
        self.is_new = False
        """No earlier run: silence after its hello tells nothing about what it guards."""
        self.announced: set[Guest] = set()
        """Guests whose session was announced to it."""
        self._owner = owner
        self._environ = environ
        self._secrets = secrets
        self._coming = self.registered
        self._peer: ExtensionProcess | None = None
        self._questions: dict[str, Question] = {}
        self._changed = threading.Condition()
        self._closing = threading.Event()
        self._decided = False
        self._decides_by: float | None = None
        self._life = 0
        self._restarts = 0
        self._background: list[threading.Thread] = []
        self._started = self._last_frame = time.monotonic()
        self._new_buckets()

    # --- start and end -----------------------------------------------------------------------

    def start(self) -> None:
        """Start the process. A failed start is reported as a problem, not raised."""
        with self._changed:
            self._life += 1
            self._started = self._last_frame = time.monotonic()
            if self._decides_by is None:
                self._decides_by = self._started + self.limits.undecided
        self._set_state("starting")
        self.hello = None
        self.announced.clear()
        self._new_buckets()
        self.log.note(f"starting {self.installed.manifest.exec!r} in {self.installed.directory}")
        try:
            env = environment(self._environ, self._secrets, self.installed.manifest.env)
            process = ChildProcess(self.installed.command(), self.installed.directory, env)
        except (ExtensionError, OSError, ValueError) as error:
            reason = f"cannot be started: {error}"
            self._report(reason)
            self._set_state("stopped", reason)
            return
        peer = ExtensionProcess(
            self.name,
            process,
            self.log,
            self.limits,
            on_frame=self._on_frame,
            on_end=self._on_end,
        )
        with self._changed:
            self._peer = peer
        peer.start()
        if self._closing.is_set():
            process.kill()

    def settle(self) -> None:
        """Wait until it is ready, quiet after its hello, dead, or out of time."""
        grace = self.limits.grace
        match self._await_start(grace):
            case "silent":
                # A program that compiles itself first may still come; nobody waits for it.
                self._report(f"said no hello within {grace:g} s; zot goes on without it")
                self._in_background("late", self._settle_late)
            case "busy":
                self._report(f"is not ready after {grace:g} s; zot goes on")
                self._become_ready()
            case "quiet":
                self._become_ready()
            case "settled":
                pass

    def _settle_late(self) -> None:
        outcome = self._await_start(self.limits.late)
        if outcome == "silent":
            assert self._peer is not None
            self._peer.fail(f"said no hello within {self.limits.late:g} s")
            return
        if outcome != "settled":
            self._become_ready()
        if self.live:
            text = f"is ready after {time.monotonic() - self._started:.1f} s, for the next prompt"
            self._owner.emit(self, ExtensionNotify(self.name, "info", text))

    def _await_start(self, seconds: float) -> Literal["settled", "quiet", "busy", "silent"]:
        """Wait for the start of this process, at most `seconds` after it began; return the
        outcome."""
        with self._changed:
            life, deadline = self._life, self._started + seconds

            def pends() -> bool:
                # The process may have crashed, and a new one may be starting.
                same = self._life == life and self.state == "starting"
                return same and not self._closing.is_set()

            while pends():
                now = time.monotonic()
                quiet_at = self._last_frame + self.limits.quiet if self.hello else deadline
                if self.hello and now >= quiet_at:
                    return "quiet"
                if now >= deadline:
                    return "busy" if self.hello else "silent"
                self._changed.wait(min(deadline, quiet_at) - now)
            return "settled"

    def _become_ready(self) -> None:
        with self._changed:
            if self.state == "stopped":
                return
            self.registered = self._coming
            self.ready_seconds = time.monotonic() - self._started
        self._set_state("ready")
        self._owner.changed(self)

    def _set_state(self, state: State, reason: str = "") -> None:
        with self._changed:
            self.state = state
            self.reason = reason
            self._changed.notify_all()

    def begin_close(self) -> None:
        """Ask it to stop; `finish_close` enforces that."""
        self._closing.set()
        with self._changed:
            self._changed.notify_all()
        if self._peer is not None:
            self._peer.shut_down()

    def finish_close(self, deadline: float) -> None:
        """Wait for its end: SIGTERM at the deadline, then SIGKILL."""
        for thread in self._background:
            thread.join()
        peer = self._peer
        if peer is not None:
            if not peer.ended.wait(max(0.0, deadline - time.monotonic())):
                peer.process.terminate()
                if not peer.ended.wait(self.limits.terminate):
                    self.log.note("ignored shutdown and SIGTERM: killed")
            peer.close()
        self._set_state("stopped", "zot stopped it")
        self.log.close()

    def _on_end(self, reason: str) -> None:
        with self._changed:
            questions = list(self._questions.values())
            lived = time.monotonic() - self._started
        self._owner.ended(self)
        # Report before setting the state: threads that wait for the state look for the report next.
        # Set the state before NoAnswer: callers may ask again at once, and need the new state.
        if self._closing.is_set():
            self._set_state("stopped", reason)
        elif self._is_over(reason, bool(questions), lived):
            self._report(f"{reason}; it is off until it is reloaded (log: {self.log.path})")
            self._set_state("stopped", reason)
        else:
            self._restart(reason)
        for question in questions:
            question.put(NoAnswer(reason))

    def _is_over(self, reason: str, was_asked: bool, lived: float) -> bool:
        assert self._peer is not None
        finished = reason == "exited with code 0" and not was_asked
        never_spoke = self.hello is None
        if lived >= STABLE_SECONDS:
            self._restarts = 0
        worn_out = self._restarts >= self.limits.restarts
        return self._peer.was_failed or never_spoke or finished or worn_out

    def _restart(self, reason: str) -> None:
        delays = self.limits.restart_delays
        delay = delays[min(self._restarts, len(delays) - 1)]
        self._restarts += 1
        self._report(f"{reason}; restart {self._restarts} of {self.limits.restarts} in {delay:g} s")
        self._set_state("restarting", reason)
        self._coming = Registered()

        def start_again() -> None:
            if not self._closing.wait(delay):
                self.start()
                self.settle()

        self._in_background("restart", start_again)

    def _in_background(self, job: str, work: Callable[[], None]) -> None:
        thread = threading.Thread(target=work, name=f"ext-{self.name}-{job}", daemon=True)
        thread.start()
        self._background.append(thread)  # last: closing joins the thread, which must have started

    # --- requests ----------------------------------------------------------------------------

    @property
    def pid(self) -> int | None:
        return None if self._peer is None else self._peer.process.pid

    @property
    def live(self) -> bool:
        return self.state == "ready"

    def wait_live(self, deadline: float, cancel: Cancel) -> bool:
        """Wait for a pending start or restart; False if there is none, or it takes too long."""
        under_way = ("starting", "restarting")
        cancel.wait_for(self._changed, lambda: self.state not in under_way, deadline)
        return self.live

    def wait_guard(self, event: str, deadline: float, cancel: Cancel) -> bool:
        """Wait until it guards the event, or is ready without; False if it does not run by then.
        One that runs and stays silent no longer counts as a guard."""

        def known() -> bool:
            # Before it is ready it cannot be asked, even if it has registered its guards.
            said = self.said_ready or event in self.registered.intercepts
            return self.state == "stopped" or (self.live and said)

        cancel.wait_for(self._changed, known, deadline)
        with self._changed:
            if self.live:
                self.expected -= {event}
            return self.live

    @property
    def undecided(self) -> bool:
        """Whether it may still register as a guard. Limited in time, and only once."""
        if not self._decided:
            stated = self.said_ready or self.registered.subscribed or not self.is_new
            self._decided = self.state == "stopped" or (self.live and stated)
        return not self._decided

    def wait_decided(self, cancel: Cancel) -> None:
        """Wait until it has registered its guards, for the remaining time."""
        cancel.wait_for(self._changed, lambda: not self.undecided, self._decides_by or 0.0)
        self._decided = True
        if self.live:
            self._owner.changed(self)
        elif self.state != "stopped":
            self._report(
                f"did not say what it guards within {self.limits.undecided:g} s of its start; zot "
                'goes on without it (with `"guard": true` in its manifest tools wait longer)'
            )

    @property
    def fails_closed(self) -> bool:
        """Whether no answer of this extension means no."""
        return self.installed.manifest.fail_closed or self.registered.fail_closed

    def unavailable(self) -> str:
        """Return why it does not answer, for a person or a model."""
        if self.state == "starting":
            return "it has not started yet"
        return f"it is not running ({self.reason or self.state})"

    def send(self, frame: proto.ToExtension) -> bool:
        peer = self._peer
        return peer is not None and peer.send(frame)

    def send_line(self, line: bytes) -> bool:
        peer = self._peer
        return peer is not None and peer.send_line(line)

    @contextmanager
    def question(self, guest: Guest) -> Iterator[Question]:
        """Open a question; answers with its id arrive there until the block ends."""
        question = Question(str(next(_ids)), guest)
        with self._changed:
            self._questions[question.id] = question
        try:
            yield question
        finally:
            with self._changed:
                self._questions.pop(question.id, None)

    def asking(self, id: str = "") -> list[Guest]:
        """Return the guests that wait for its answers, latest last; with an id, only that
        question's."""
        with self._changed:
            waiting = [question for question in self._questions.values() if id in ("", question.id)]
        return [question.guest for question in waiting]

    # --- frames ------------------------------------------------------------------------------

    def _on_frame(self, frame: proto.FromExtension | proto.Unknown | LineTooLong) -> None:
        with self._changed:
            self._last_frame = time.monotonic()
        try:
            if self.hello is None and not isinstance(frame, proto.Hello):
                self.log.note("a frame before hello was ignored")
            else:
                self._handle(frame)
        except Exception:  # after any failure the next frame is read
            self.log.note("zot failed on a frame: " + traceback.format_exc())

    def _handle(  # noqa: C901  # one flat match over every frame
        self, frame: proto.FromExtension | proto.Unknown | LineTooLong
    ) -> None:
        match frame:
            case proto.Hello():
                self._on_hello(frame)
            case proto.RegisterCommand() | proto.RegisterTool() | proto.Subscribe():
                self._register(frame)
            case proto.Ready():
                if not self.said_ready:
                    self.said_ready = True
                    self._become_ready()
            case (
                proto.ToolResult()
                | proto.ToolProgress()
                | proto.CommandResponse()
                | proto.EventInterceptResponse()
            ):
                self._answer(frame.id, frame)
            case proto.Notify():
                self._on_notify(frame)
            case proto.PanelRender() | proto.PanelClose() | proto.OpenPanel():
                self._on_panel(frame)
            case (
                proto.CallTool()
                | proto.CallToolCancel()
                | proto.Ask()
                | proto.Submit()
                | proto.SubmitSlash()
            ):
                self._owner.take_request(self, frame)
            case proto.ShutdownAck() | proto.ClearNotes():
                pass
            case LineTooLong():
                if (id := proto.id_of(frame.start)) is not None:
                    self._answer(id, NoAnswer(f"its answer is longer than {frame.limit} bytes"))
            case proto.Unknown():
                self._on_unknown(frame)
            case _:
                assert_never(frame)

    def _on_hello(self, hello: proto.Hello) -> None:
        if self.hello is not None:
            self.log.note("a second hello was ignored")
            return
        if hello.name != self.name:
            self.log.note(f"says hello as {hello.name!r}; its manifest's name is used")
        self.send(self._owner.hello_ack(self))
        with self._changed:
            self.said_ready = False
            self.hello = hello
            self.hello_seconds = time.monotonic() - self._started
            self._changed.notify_all()

    def _register(
        self, frame: proto.RegisterCommand | proto.RegisterTool | proto.Subscribe
    ) -> None:
        coming = self._coming
        if len(coming.commands) + len(coming.tools) >= MAX_REGISTERED:
            self.log.note(f"more than {MAX_REGISTERED} registrations: {frame!r:.100} was ignored")
            return
        try:
            coming.add(frame)
        except ExtensionError as error:
            self._report(str(error))
            return
        with self._changed:
            self._changed.notify_all()
        self._owner.changed(self)

    def activate(self, names: Sequence[str]) -> None:
        """Show these deferred tools to the model from its next call on."""
        registered = self.registered
        new = {name for name in names if name in registered.tools} - registered.active
        if new:
            registered.active |= new
            self._owner.tools_changed(self)

    def _answer(self, id: str, answer: proto.FromExtension | NoAnswer) -> None:
        with self._changed:
            question = self._questions.get(id)
        if question is None:
            self.log.note(f"an answer to {id!r:.80} came too late or was not asked for")
        else:
            question.put(answer)  # type: ignore[arg-type]  # only answers come here

    def _on_notify(self, frame: proto.Notify) -> None:
        if self._notes.take() > 0:
            self._dropped_notes += 1
            if self._dropped_notes == 1:
                rate = f"{NOTES_PER_SECOND} a second"
                self._report(f"sends notifications faster than {rate}; some are dropped")
            if self._dropped_notes > self.limits.notes_dropped and self._peer is not None:
                self._peer.fail("flooded zot with notifications")
            return
        level = frame.level if frame.level in LEVELS else "info"
        self._owner.emit(self, ExtensionNotify(self.name, level, frame.message[:MAX_NOTE]))

    def _on_panel(self, frame: proto.PanelRender | proto.PanelClose | proto.OpenPanel) -> None:
        self._slow_down()
        match frame:
            case proto.PanelClose(id):
                event = ExtensionPanel(self.name, "close", {"id": id})
            case proto.OpenPanel(panel):
                event = ExtensionPanel(self.name, "open", proto.panel_dict(panel))
            case proto.PanelRender(id, title, lines, footer):
                panel = proto.Panel(id, title, lines, footer)
                event = ExtensionPanel(self.name, "render", proto.panel_dict(panel))
            case _:
                assert_never(frame)
        self._owner.emit(self, event)

    def _on_unknown(self, frame: proto.Unknown) -> None:
        kind = frame.type[:80]
        if kind in self.unknown or len(self.unknown) < 100:
            self.unknown[kind] = self.unknown.get(kind, 0) + 1
            if self.unknown[kind] == 1:
                self.log.note(f"frames of the unknown type {kind!r} are ignored")

    def _slow_down(self) -> None:
        """Make an extension that draws too fast wait, so that its last picture is not lost."""
        while (wait := self._draws.take()) > 0:
            if self._peer is None or self._peer.pause(wait):
                return

    def _new_buckets(self) -> None:
        self._notes = Bucket(NOTES_PER_SECOND, NOTES_AT_ONCE)
        self._draws = Bucket(self.limits.draws_per_second, self.limits.draws_per_second)
        self._dropped_notes = 0

    def _report(self, message: str) -> None:
        self.log.note(message)
        self._owner.problem(self.name, message)
