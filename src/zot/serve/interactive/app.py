"""The terminal application: editor, questions, queue and the agent behind them. Accepts keys before
the agent is loaded; prompts sent until then are queued.
"""

from __future__ import annotations

import os
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar

from zot.bugs import internal_error
from zot.cancel import Cancel
from zot.errors import AuthError, NoModelError, SessionError, ZotError
from zot.serve.interactive import status
from zot.serve.interactive.asking import Asking
from zot.serve.interactive.complete import Completion
from zot.serve.interactive.loop import Drawing, Loop
from zot.serve.interactive.status import DEFAULT_PARTS, StatusFacts
from zot.serve.interactive.waiting import MessageQueue
from zot.serve.interactive.written import Written
from zot.tui import palette
from zot.tui.cells import EMPTY, Line, clip
from zot.tui.editor import Editor
from zot.tui.keymap import EDITOR_ACTIONS, default_keymap
from zot.tui.keys import KeyPress
from zot.tui.theme import Theme

if TYPE_CHECKING:
    from zot.core.events import Event
    from zot.core.source import Question
    from zot.home import Surroundings
    from zot.provider.types import Image, Message, ToolCall
    from zot.runtime.run import Run
    from zot.runtime.runtime import Runtime
    from zot.serve.interactive import look, own_shell, swarm_feed
    from zot.serve.interactive.kept import Draft, History
    from zot.serve.interactive.view import View
    from zot.settings.resolve import Plan
    from zot.tui.blocks import Level, LiveBlock
    from zot.tui.vi import ViKeys

TWICE_SECONDS = 2.0
"""Seconds within which a second key press counts as a double press."""
MAX_WAITING = 2_000
"""Events that may wait to be drawn before the turn is slowed down."""
MAX_OPEN_LINES = 14
"""Maximum lines of a block that still changes; few, so that a window can be made smaller."""
SMALL_ROWS = 16
"""Rows below which a window shows nothing above an open question."""
MIN_OVERLAY = 8
"""Minimum lines of a question, even if that exceeds its share of the window."""

Result = TypeVar("Result")


class App(Asking):
    """One terminal, one runtime. Thread-safe: the runtime's client, `warn`, `post_error`."""

    spoken = False
    """True if output is read out line by line instead of drawn."""
    agent_words: tuple[str, ...] = ()
    """Further arguments for the `zot rpc` of a swarm agent."""
    seeks_server = False
    """The person asked for a server on this machine; warn if there is none."""
    working = 0
    """Number of `work` threads that have not ended."""
    _lacks = ""
    """Missing requirement for an agent, and how to meet it."""
    answers: swarm_feed.AnswerWatch | None = None
    """Shows answers of swarm agents; None: there are no agents."""

    def __init__(
        self,
        loop: Loop,
        find_plan: Callable[..., Plan],
        around: Surroundings,
        *,
        theme: Theme,
    ) -> None:
        """`find_plan` returns what to run with, optionally with other options than at the start."""
        super().__init__()
        self.loop = loop
        self.find_plan = find_plan
        self.around = around
        self.theme = theme
        self.editor = Editor()
        self.keymap = default_keymap()
        self.built: Runtime | None = None
        """None until loaded, and if loading failed."""
        self.view: View | None = None
        self.loading = True
        self.focused = True
        self.failure = ""
        """Code of the last error of a run."""
        self.fatal: ZotError | None = None
        """Error that ended the program before it began."""
        self._events: deque[Event] = deque()
        self._room = threading.Event()
        self._room.set()
        self.waiting = MessageQueue(self.editor, self._images)
        self._early: list[tuple[str, Level]] = []
        self.images: dict[str, Image] = {}
        """Images in texts, by the chip that stands for each."""
        self.approvals = ""
        """For the status line: on, off, or the tools that need approval."""
        self.status_parts: tuple[str, ...] = DEFAULT_PARTS
        self._status: StatusFacts | None = None
        self._status_line: tuple[int, Line] | None = None
        self._leaves_until = 0.0
        """Time until which a second Ctrl+C ends the program."""
        self._hint = ""
        self.completion = Completion(self)
        self._actions = self._own_actions()
        self._themes: look.ThemeChoice | None = None
        self.vi: ViKeys | None = None
        """Set if the person uses vi keys."""
        self.written = Written(self.warn)
        self._unheard = ""
        """Last prompt sent, until its UserMessage event arrives."""
        self._earlier: tuple[Message, ...] = ()
        self.shells: list[own_shell.RunningShell] = []
        """Running shell commands of the person."""
        self.margin = 0
        """Blank lines above the first line. A narrower window has more rows; tmux then moves the
        first rows out of reach, and these can be lost without harm."""
        self.ending = Cancel()
        """Set at exit; stops the threads of this front end."""

    def _own_actions(self) -> dict[str, Callable[[], object]]:
        """Return the actions of keys other than editing, by their name in the keymap."""
        return {
            "complete": self.completion.reopen,
            "take-back": lambda: self.waiting.take_back(self.built),
            "stop": self._stop,
            "interrupt": self._interrupt,
            "end-of-input": self._end_of_input,
            "suspend": self.loop.suspend,
            "redraw": self.loop.redraw,
            "search-history": lambda: self._screens().search_history(self),
            "external-editor": lambda: self.guarded(lambda: self._screens().edit_outside(self)),
            "paste": lambda: self._screens().paste_clipboard(self),
            "pager": lambda: self._screens().open_pager(self),
            "unfold": lambda: self._screens().open_pager(self, unfold=True),
        }

    def _screens(self) -> Any:
        """Return the module of full-screen views, imported on first use."""
        from zot.serve.interactive import screens

        return screens

    # --- the runtime's client (other threads) ------------------------------------------------

    def listen(self, event: Event, run: Run | None) -> None:
        self._events.append(event)
        if len(self._events) > MAX_WAITING:
            self._room.clear()
        self.loop.wake()

    def wait(self, cancel: Cancel) -> None:
        while not self._room.is_set() and not cancel.is_set():
            self._room.wait(0.05)
        cancel.check()

    def overfull(self) -> bool:
        return len(self._events) > 4 * MAX_WAITING

    def can_answer(self, what: Question) -> bool:
        return True

    def submit(self, text: str, slash: bool) -> bool:
        if slash:
            self.loop.post(lambda: self._command(text))
        else:
            self.loop.post(lambda: self.guarded(lambda: self.send(text)))
        return True

    # --- for commands and questions ----------------------------------------------------------

    @property
    def runtime(self) -> Runtime:
        """Return the runtime; raise ZotError while there is none."""
        if self.built is None:
            raise ZotError("the agent is not ready yet" if self.loading else "there is no agent")
        return self.built

    def note(self, text: str, level: Level = "info") -> None:
        """Add a note to the transcript."""
        if self.view is None:
            self._early.append((text, level))
        else:
            self.view.note(text, level)

    def show(self, block: LiveBlock) -> None:
        """Put a block into the transcript; only once the agent is loaded."""
        assert self.view is not None
        self.view.add(block)

    def work(
        self, function: Callable[[], Result], then: Callable[[Result], None] = lambda result: None
    ) -> None:
        """Run a slow function in a thread, then `then` with its result on this thread. Errors
        become notes."""

        self.working += 1

        def run() -> None:
            try:
                after = partial(then, function())
            except Exception as error:
                after = partial(_raise, error)
            self.loop.post(lambda: finish(after))

        def finish(after: Callable[[], None]) -> None:
            self.working -= 1
            self.guarded(after)

        threading.Thread(target=run, name="zot-terminal", daemon=True).start()

    def warn(self, text: str) -> None:
        """Add a warning to the transcript; callable from any thread."""
        self.loop.post(lambda: self.note(text, "warning"))

    def post_error(self, error: Exception) -> None:
        """Add an error to the transcript; callable from any thread."""
        text = str(error)
        self.loop.post(lambda: self.note(text, "error"))

    def guarded(self, action: Callable[[], None]) -> None:
        """Run the action; report an error as a note and go on."""
        try:
            action()
        except ZotError as error:
            self.note(str(error), "error")
        except Exception as error:
            self.note(str(internal_error(error)), "error")

    def call_back(self, text: str) -> None:
        """Notify a person who looks elsewhere that zot is waiting or done."""
        if not self.focused:
            from zot.serve.interactive import look

            self.loop.terminal.write(look.notification(text, self.around.environ))

    def exit(self, code: int = 0) -> None:
        self.loop.end(code)

    def send(self, text: str, call: ToolCall | None = None) -> None:
        """Send a prompt, or queue it while the agent works. `call` is a tool to run first."""
        runtime = self.built
        if runtime is None:
            if self.loading:
                self.waiting.unsent.append(text)
            else:  # keep the text in the editor
                self.editor.set(text)
                from zot.serve.interactive.slash import models

                models.model(self, "")
        elif call is not None or not (
            runtime.runs.busy and runtime.follow(text, self._images(text))
        ):
            runtime.prompt(text, self._images(text), call=call)
            self._unheard = text

    def refresh_status(self) -> None:
        """Update the status line from the runtime."""
        if self.built is not None:
            from zot.serve.interactive import state as states

            self._status = states.status_of(self.built, self.approvals)
            self._status_line = None

    def use_status_parts(self, parts: tuple[str, ...]) -> None:
        self.status_parts, self._status_line = parts, None

    @property
    def cwd(self) -> str:
        return self.built.cwd if self.built is not None else self.around.cwd

    def _images(self, text: str) -> list[Image]:
        """Return the images whose chips are in the text."""
        if not self.images:
            return []
        from zot.serve.interactive import attach

        return attach.images_in(text, self.images)

    def transcript(self) -> Sequence[LiveBlock]:
        """Return all blocks, including messages from before the program began."""
        if self.view is None:
            return []
        if self._earlier:
            from zot.serve.interactive import view as views

            earlier = views.View()
            views.replay(earlier, self._earlier)
            self.view.record[:0] = earlier.record
            self._earlier = ()
        return self.view.record

    # --- life --------------------------------------------------------------------------------

    def loaded(
        self,
        runtime: Runtime,
        view: View,
        earlier: tuple[Message, ...] = (),
        agent_words: tuple[str, ...] = (),
    ) -> None:
        """Use the loaded agent and send it the texts queued meanwhile. `earlier` are messages of
        its session that the view does not show; `agent_words` are for swarm agents."""
        self._earlier = earlier
        self.agent_words = agent_words
        self.built = runtime
        self._show_view(view)
        self.refresh_status()
        self.watch_agents()
        for text in self.waiting.take_unsent():
            self._dispatch(text)

    def failed(self, view: View, error: ZotError) -> None:
        """Report why there is no agent, and keep the text written so far. Exit if the session could
        not be opened at start-up."""
        if self.view is None and isinstance(error, SessionError):
            self.fatal = error
            self.exit(1)
            return
        self._show_view(view)
        if not isinstance(error, NoModelError):  # the menu below says as much
            self.note(str(error), "error")
        elif self.seeks_server:
            self.note(_NO_SERVER, "warning")
        self.seeks_server = False
        unsent = self.waiting.take_unsent()
        if unsent and not self.editor.text:
            self.editor.set("\n".join(unsent))
        if isinstance(error, AuthError):
            self._lacks = "no model yet: /login, /llama"
            from zot.serve.interactive.slash import models

            models.first_run(self)
        else:
            self._lacks = "not started, for the reason above: /model has what can be used"

    def _show_view(self, view: View) -> None:
        """Show the view, with earlier notes first; loading is over."""
        view.follow(self.view)
        self.view, self.loading = view, False
        for text, level in self._early:
            view.note(text, level)
        self._early.clear()

    def signalled(self, number: int) -> None:
        """Exit because of a signal."""
        self.exit(128 + number)

    def stop_work(self) -> None:
        self.written.close("\n".join([*self.waiting.unsent, self.editor.full_text]).strip())
        self.ending.set()
        self._room.set()

    # --- frames ------------------------------------------------------------------------------

    def tick(self) -> float | None:
        """Prepare a frame; return the seconds until the next one is due, or None."""
        self._take_events()
        waits = []
        if self.view is not None and self.view.activity:
            passed = time.monotonic() - self.view.since
            waits.append(1.0 - passed % 1.0)
        waits += [1.0] * bool(self.shells)
        left = self.written.tick(lambda: self.editor.full_text)
        waits += [] if left is None else [left]
        return min(waits, default=None)

    def remember(self, history: History, draft: Draft, texts: list[str], left: str) -> None:
        """Load the history of earlier sessions, and the draft of one that died."""
        self.written.use(history, draft)
        for text in self.editor.history:
            history.add(text)  # sent before this was loaded
        self.editor.history[:0] = texts
        if left:
            self.editor.set(f"{left}\n{self.editor.text}" if self.editor.text else left)
            self.note("what was written and not sent the last time is back")

    def watch_agents(self) -> None:
        """Show answers of agents that this conversation started, if there are any."""
        if self.answers is None:
            if not os.access(f"{self.around.home}/swarm/agents", os.R_OK):
                return  # do not load the swarm while it has no agents
            from zot.serve.interactive import swarm_feed

            self.answers = swarm_feed.AnswerWatch(self)
        self.answers.begin()

    def _put_back(self) -> None:
        """Put a prompt that could not be recorded back into the editor."""
        if self._unheard and not self.editor.text:
            self.editor.set(self._unheard)

    def _take_events(self) -> None:
        if self.view is None or not self._events:
            return
        while self._events:
            event = self._events.popleft()
            self.view.take(event)
            kind = type(event).__name__
            if kind not in _PLENTY:
                self._noticed(event, kind)
        self._room.set()

    def _noticed(self, event: Event, kind: str) -> None:
        if kind == "QueueUpdate":
            self.waiting.update(event)  # type: ignore[arg-type]
        if kind == "UserMessage":
            self._unheard = ""
        elif kind == "ErrorRaised" and event.code == "session":  # type: ignore[union-attr]
            self._put_back()
        if kind in ("UsageReport", "Done", "TurnEnd", "QueueUpdate", "CompactDone", "FellBack"):
            self.refresh_status()
        from zot.serve.interactive import questions

        questions.take(self, event)
        if kind == "Done":
            self.watch_agents()  # the model may have started some

    def picture(self, columns: int, rows: int) -> Drawing:
        view = self.view
        settled = view.settle(columns) if view is not None else []
        margin = [EMPTY] * self.margin if rows > SMALL_ROWS else []
        if settled and margin:
            settled, margin, self.margin = [*margin, *settled], [], 0
        below = status.waiting_lines(view, self.shells, self.waiting.texts, columns)
        below = below[-max(0, rows - 6) :] if rows > 6 else []
        if self.overlays and rows < SMALL_ROWS:
            below = []
        fields, (row, column) = self._fields(columns, rows)
        has_foot = rows > 3 and (self.status_parts or self._hint or self.loading)
        foot = [self._foot(columns)] if has_foot else []
        if self.completion.is_open and not self.overlays and rows > 12:
            foot = [*self.completion.lines(columns), *foot]
        room = min(
            MAX_OPEN_LINES, rows - 2 - len(margin) - len(below) - len(fields) - len(foot) - 1
        )
        live = view.live(columns, room) if view is not None and room > 0 else []
        above = [*margin, *live, *below, EMPTY]
        return Drawing(settled, [*above, *fields, *foot], len(above) + row, column)

    def _fields(self, columns: int, rows: int) -> tuple[list[Line], tuple[int, int]]:
        """Return the lines that take keys (the open question or the editor), and the cursor."""
        if self.overlays:
            part = 2 / 3 if self.overlays[-1].tall else 1 / 2
            height = max(1, int(rows * part), min(rows - 3, MIN_OVERLAY))
            drawn = self.overlays[-1].draw(columns, height)
            return drawn.lines, drawn.cursor or (max(0, len(drawn.lines) - 1), 0)
        is_new = not self.loading and self.view is not None and not self.view.record
        is_normal = self.vi is not None and not self.vi.inserts
        height = max(1, rows // 3)
        return status.editor_lines(self.editor, columns, height, is_normal=is_normal, is_new=is_new)

    def _foot(self, columns: int) -> Line:
        if self._hint:
            return clip((("warn", self._hint),), columns)
        if self.loading:
            return (("status", "loading"),)
        if self.built is None or self._status is None:
            return clip((("warn", self._lacks),), columns)
        if self._status_line is None or self._status_line[0] != columns:
            line = status.status_line(self._status, columns, self.status_parts)
            self._status_line = (columns, line)
        return self._status_line[1]

    # --- keys --------------------------------------------------------------------------------

    def key(self, key: KeyPress) -> None:
        self._hint = ""
        match key.name:
            case "focus" | "blur":
                self.focused = key.name == "focus"
            case "reply":
                self._told(key.text)
            case _ if self.loop.full is not None:
                self.guarded(partial(self.loop.full.key, key))
            case _ if self.overlays and not self._still_typing(key):
                self.guarded(lambda: self.overlays[-1].key(key))
            case name if self.completion.is_open and self.completion.key(name):
                pass
            case _:
                if self.vi is None or not self.vi.key(key, self.editor):
                    self._type(key)
                self.completion.update()
                self.written.typed()

    def _type(self, key: KeyPress) -> None:
        match key.name:
            case "text":
                self._typed_at = time.monotonic()
                self.editor.insert(key.text)
            case "paste":
                from zot.serve.interactive import attach

                self.guarded(partial(attach.paste, self, key.text))
            case name:
                self._act(self.keymap.get(name, ""))

    def dress(self, choice: look.ThemeChoice) -> None:
        """Use a theme. If it depends on the background, query the terminal, and keep the current
        colours until it answers that or the device query after it."""
        self._themes = choice
        if choice.depends:
            self.loop.terminal.write("\x1b]11;?\x1b\\\x1b[c")
        else:
            self._wear(choice.dark)

    def _told(self, reply: str) -> None:
        """Handle a reply of the terminal."""
        light = palette.is_light(reply)
        is_fence = reply.startswith("[?") and reply.endswith("c")  # all terminals send it
        if self._themes is None or (light is None and not is_fence):
            return
        if light is not None or self.theme not in (self._themes.dark, self._themes.light):
            self._wear(self._themes.light if light else self._themes.dark)

    def _wear(self, theme: Theme) -> None:
        self.theme = theme
        self.loop.use_theme(theme)

    def _act(self, action: str) -> None:
        if action in EDITOR_ACTIONS:
            self.editor.do(action)
        elif action.startswith("/"):
            self._command(action)
        elif action in ("submit", "steer"):
            self._submit(steer=action == "steer")
        elif action in self._actions:  # else it comes from a later version's file
            self._actions[action]()

    def _end_of_input(self) -> None:
        if self.editor.text:
            self.editor.do("delete")
        else:
            self.exit()

    def _stop(self) -> bool:
        """Stop the turn, or else the shell command started last. Return whether there was one."""
        if self.built is not None and self.waiting.stop(self.built):
            return True
        running = [shell for shell in self.shells if not shell.cancel.is_set()]
        for shell in running[-1:]:
            shell.cancel.set()
        return bool(running)

    def _interrupt(self) -> None:
        if self._stop():
            return
        if self.editor.text:
            self.written.add(self.editor.take())
        elif time.monotonic() < self._leaves_until:
            self.exit()
        else:
            self._leaves_until = time.monotonic() + TWICE_SECONDS
            self._hint = "ctrl+c once more leaves"

    def _submit(self, *, steer: bool) -> None:
        if not self.editor.full_text.strip():
            return
        text = self.editor.take()
        self._typed_at = 0.0  # the person is no longer typing
        if self.vi is not None:
            self.vi.sent()
        self.written.sent(text)
        if self.loading:
            self.waiting.unsent.append(text)
        else:
            self._dispatch(text, steer=steer)

    def _dispatch(self, text: str, *, steer: bool = False) -> None:
        """Run the text as a slash command, a shell command or a prompt."""
        if text.startswith("/") and text[1:2].isalpha():
            self._command(text)
        elif text.startswith("!"):
            from zot.serve.interactive import own_shell

            self.guarded(lambda: own_shell.run_shell(self, text))
        elif not (steer and self._steer(text)):
            self.guarded(lambda: self.send(text))

    def _steer(self, text: str) -> bool:
        built = self.built
        return built is not None and built.runs.busy and built.steer(text, self._images(text))

    def _command(self, text: str) -> None:
        from zot.serve.interactive.slash import table as slash_table

        self.guarded(lambda: slash_table.run_slash(self, text))


def _raise(error: Exception) -> None:
    raise error


_NO_SERVER = "no server answered: start one (ollama serve, llama-server), or choose another way"
_PLENTY = frozenset(("TextDelta", "ReasoningDelta", "ToolCallArgs", "ToolProgress"))
"""Frequent events that concern only the view."""
