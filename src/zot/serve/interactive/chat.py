"""The app's dealings with its agent: texts that go to it, events that come back, and the screens
that show the conversation. Loaded behind the first frame, with all that it imports.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import TYPE_CHECKING

from zot.core import events
from zot.errors import AuthError, NoModelError, SessionError, ZotError
from zot.serve.interactive import clipboard, look, questions, shell
from zot.serve.interactive.slash import models, table
from zot.serve.interactive.slash.work import copy_text
from zot.serve.interactive.view import WAITING, View, replay
from zot.tui.blocks import LiveBlock, RowsBlock, ToolBlock, UserBlock
from zot.tui.menu import MenuItem, NoticeBox
from zot.tui.pager import Pager

if TYPE_CHECKING:
    from zot.core.events import Event
    from zot.core.hook import ApprovalMode
    from zot.provider.types import Image, Message, ToolCall
    from zot.runtime.runtime import Runtime
    from zot.serve.interactive import swarm_feed
    from zot.serve.interactive.app import App
    from zot.serve.interactive.drafts import SavedTexts

MODE_CYCLE: tuple[ApprovalMode, ...] = ("ask", "edits", "plan", "yolo")
MAX_HISTORY = 2_000
"""Maximum texts offered by the search of the history."""
_NO_SERVER = "no server answered: start one (ollama serve, llama-server), or choose another way"
_STATUS_EVENTS = (
    events.UsageReport, events.Done, events.TurnEnd, events.QueueUpdate, events.CompactDone,
    events.FellBack,
)  # fmt: skip
"""Events that change the status line."""


class Chat:
    commands = table.COMMANDS
    aliases = table.ALIASES

    def __init__(self, app: App) -> None:
        self._app = app
        self.images: dict[str, Image] = {}
        """Images in texts, by the chip that stands for each."""
        self.agent_words: tuple[str, ...] = ()
        """Further arguments for the `zot rpc` of a swarm agent."""
        self.seeks_server = False
        """The person asked for a server on this machine; warn if there is none."""
        self._earlier: tuple[Message, ...] = ()
        """Messages of the session that the view does not show."""
        self._unheard = ""
        """Last prompt sent, until its UserMessage event arrives."""
        self._shown_activity: look.Activity = "idle"
        """State that the terminal's title shows."""
        self._failure = ""
        """Code of the last error of a run."""
        self._answers: swarm_feed.AnswerWatch | None = None
        """Shows answers of swarm agents; None: there are no agents."""

    # --- beginning ---------------------------------------------------------------------------

    def begin(
        self,
        runtime: Runtime,
        view: View,
        earlier: tuple[Message, ...],
        agent_words: tuple[str, ...],
        welcome: LiveBlock,
    ) -> None:
        """Use the loaded agent and send it the texts queued meanwhile. `earlier` are messages of
        its session that the view does not show; `agent_words` are for swarm agents; `welcome` is
        shown first, once."""
        app = self._app
        self._earlier, self.agent_words = earlier, agent_words
        is_first = app.view is None
        app.built = runtime
        runtime.shell.background.watch(lambda: app.loop.post(app.refresh_status))
        app.show_view(view, welcome if is_first else None)
        app.refresh_status()
        self.watch_agents()
        for text in app.queue.take_unsent():
            self.run(text)

    def fail(self, view: View, error: ZotError) -> None:
        """Report why there is no agent, and keep the text written so far. Exit if the session could
        not be opened at start-up."""
        app = self._app
        if app.view is None and isinstance(error, SessionError):
            app.fatal = error
            app.exit(1)
            return
        app.show_view(view)
        if not isinstance(error, NoModelError):  # the menu below says as much
            app.note(str(error), "error")
        elif self.seeks_server:
            app.note(_NO_SERVER, "warning")
        self.seeks_server = False
        unsent = app.queue.take_unsent()
        if unsent and not app.editor.text:
            app.editor.set("\n".join(unsent))
        if isinstance(error, AuthError):
            app.status.problem = "no model yet: /login, /llama"
            models.first_run(app)
        else:
            app.status.problem = "not started, for the reason above: /model has what can be used"

    def remember(self, saved: SavedTexts) -> None:
        """Use the history of earlier sessions, and the draft of one that died."""
        app = self._app
        app.saved = saved
        for text in app.editor.history:
            saved.add(text)  # sent before this was loaded
        app.editor.history[:0] = saved.history
        if saved.left:
            app.editor.set(f"{saved.left}\n{app.editor.text}" if app.editor.text else saved.left)
            app.note("what was written and not sent the last time is back")

    # --- texts to the agent ------------------------------------------------------------------

    def run(self, text: str, *, steer: bool = False) -> None:
        """Run the text as a slash command, a shell command or a prompt; errors become notes."""
        app = self._app
        if text.startswith("/") and text[1:2].isalpha():
            self.command(text)
        elif text.startswith("!"):
            app.guarded(lambda: shell.run_shell(app, text))
        elif not (steer and self._steer(text)):
            app.guarded(lambda: self.send(text))

    def command(self, text: str) -> None:
        """Run a slash command; errors become notes."""
        self._app.guarded(lambda: table.run_slash(self._app, text))

    def _steer(self, text: str) -> bool:
        runtime = self._app.built
        return (
            runtime is not None and runtime.runs.busy and runtime.steer(text, self.images_in(text))
        )

    def send(self, text: str, call: ToolCall | None = None) -> None:
        """Send a prompt, or queue it while the agent works. `call` is a tool to run first."""
        app, runtime, images = self._app, self._app.built, self.images_in(text)
        if runtime is None and app.loading:
            app.queue.unsent.append(text)
        elif runtime is None:  # keep the text in the editor
            app.editor.set(text)
            models.model(app, "")
        elif call is not None or not (runtime.runs.busy and runtime.follow(text, images)):
            runtime.prompt(text, images, call=call)
            self._unheard = text

    def images_in(self, text: str) -> list[Image]:
        """Return the images whose chips are in the text."""
        return clipboard.images_in(text, self.images)

    def to_background(self) -> bool:
        """Let the command that the model waits for go on in the background; False: there is
        none."""
        built = self._app.built
        return built is not None and built.shell.background.detach()

    # --- modes -------------------------------------------------------------------------------

    def next_mode(self) -> None:
        """Change to the next mode: ask, accept edits, plan, auto."""
        now = self._app.runtime.approvals.mode
        at = MODE_CYCLE.index(now) if now in MODE_CYCLE else -1
        self.set_mode(MODE_CYCLE[(at + 1) % len(MODE_CYCLE)])

    def set_mode(self, mode: ApprovalMode) -> None:
        app = self._app
        app.runtime.approvals.set_mode(mode)
        app.mode = mode
        app.refresh_status()

    # --- events of the agent -----------------------------------------------------------------

    def take(self, event: Event) -> None:
        """Act on an event that the view has taken."""
        app = self._app
        match event:
            case events.UserMessage():
                self._unheard = ""
            case events.QueueUpdate():
                app.queue.update(event)
            case events.TurnStart():
                self._failure = ""
            case events.ErrorRaised(_, code):
                self._failure = code
                if code == "session" and self._unheard and not app.editor.text:
                    app.editor.set(self._unheard)  # it could not be recorded
            case events.ApprovalRequest():
                self.call_back(f"zot wants to use {event.call.name}")
                questions.ApprovalQuestion(app, event).ask()
            case events.ApprovalResolved(id):
                app.dialogs.close_request(id)
            case events.ExtensionAsk():
                self.call_back(f"{event.extension} asks: {event.title}")
                questions.ask_for_extension(app, event)
            case events.ExtensionPanel():
                questions.take_panel(app, event)
            case events.Done(stop):
                self._run_ended(stop)
            case _:
                pass
        if isinstance(event, _STATUS_EVENTS):
            app.refresh_status()
        self._show_activity()

    def _show_activity(self) -> None:
        """Show in the terminal's title and tab that the agent works, waits or is done."""
        app = self._app
        activity = app.view.activity if app.view is not None else ""
        now: look.Activity = "busy" if activity else "idle"
        if activity == WAITING:
            now = "waiting"
        if now != self._shown_activity:
            self._shown_activity = now
            progress = look.progress(now, app.around.environ)
            app.loop.terminal.write(look.title(app.cwd, now) + progress)

    def _run_ended(self, stop: str) -> None:
        self.call_back("zot is done")
        if stop == "error" and not self._app.runtime.runs.busy:
            models.rescue(self._app, self._failure)
        self.watch_agents()  # the model may have started some

    def call_back(self, text: str) -> None:
        """Notify a person who looks elsewhere that zot is waiting or done."""
        if not self._app.focused:
            self._app.loop.terminal.write(look.notification(text, self._app.around.environ))

    def watch_agents(self) -> None:
        """Show answers of agents that this conversation started, if there are any."""
        if self._answers is None:
            if not os.access(f"{self._app.around.home}/swarm/agents", os.R_OK):
                return  # do not load the swarm while it has no agents
            from zot.serve.interactive import swarm_feed

            self._answers = swarm_feed.AnswerWatch(self._app)
        self._answers.begin()

    # --- screens -----------------------------------------------------------------------------

    def transcript(self) -> Sequence[LiveBlock]:
        """Return all blocks, including messages from before the program began."""
        view = self._app.view
        if view is None:
            return []
        if self._earlier:
            before = View()
            replay(before, self._earlier)
            view.record[:0] = before.record
            self._earlier = ()
        return view.record

    def open_pager(self, *, unfold: bool = False) -> None:
        """Show the whole transcript; with `unfold`, at the last tool call and with all output."""
        app = self._app
        sections = self.transcript()
        if app.view is None:
            return
        tools = [at for at, block in enumerate(sections) if isinstance(block, ToolBlock)]
        pager = Pager(
            sections,
            lambda section: isinstance(section, UserBlock),
            leave=app.loop.close_full,
            copy=lambda text: copy_text(app, text, "it"),
            at=tools[-1] if unfold and tools else None,
            folded=not unfold,
        )
        app.loop.open_full(pager, app.theme)

    def show_keys(self) -> None:
        """Show the keys over the editor; the next key closes that."""
        dialogs = self._app.dialogs
        box = NoticeBox(RowsBlock("Keys", table.KEYS).lines, lambda: dialogs.close(box))
        dialogs.open(box)

    def search_history(self) -> None:
        """Pick an earlier prompt; the current text goes to the history first."""
        app, editor = self._app, self._app.editor
        unique = list(dict.fromkeys(reversed(editor.history)))[:MAX_HISTORY]
        if not unique:
            app.note("there is no history yet")
            return

        def pick(value: object) -> None:
            if editor.text:
                editor.add_history(editor.full_text)
            editor.set(str(value))

        items = [MenuItem(text.replace("\n", " "), value=text) for text in unique]
        app.dialogs.choose("history", items, pick)

    def edit_outside(self) -> None:
        """Edit the text in the person's own editor."""
        app = self._app
        text = shell.edited_outside(app, app.editor.full_text)
        if text is not None:
            app.editor.chips.clear()
            app.editor.set(text)

    def paste(self, text: str) -> None:
        clipboard.paste(self._app, text)

    def paste_clipboard(self) -> None:
        clipboard.paste_clipboard(self._app)
