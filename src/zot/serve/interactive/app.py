"""The terminal application. A key goes this way, on one thread but for the runtime's own:

    loop.py              bytes to keys
    App.key              to the full screen, the open dialog, completion, or the editor
    App.act              an action of the keymap: editing, a slash command, or a row of `_actions`
    App.submit           a text is sent; it waits while the agent is loading
    Chat.run             a slash command (slash/table.py), a shell command, or `Runtime.prompt`
    EventQueue           the events that the runtime's threads report
    App.tick             each event to View.take (blocks) and Chat.take (questions, status)
    frame.picture        blocks, activity, dialog or editor, and status line as one frame

The editor is drawn before the agent is loaded: this module and its imports are all that the first
frame needs. `chat.py` has the rest.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, TypeVar

from zot.bugs import internal_error
from zot.cancel import Cancel
from zot.errors import ZotError
from zot.serve.interactive import frame
from zot.serve.interactive.completion import Completion
from zot.serve.interactive.dialogs import DialogStack
from zot.serve.interactive.loop import Drawing, Loop
from zot.serve.interactive.queues import EventQueue, MessageQueue
from zot.serve.interactive.status import StatusLine
from zot.tui.editor import Editor
from zot.tui.keymap import EDITOR_ACTIONS, default_keymap
from zot.tui.keys import KeyPress
from zot.tui.theme import Theme

if TYPE_CHECKING:
    from zot.core.hook import ApprovalMode
    from zot.home import Surroundings
    from zot.runtime.runtime import Runtime
    from zot.serve.interactive.chat import Chat
    from zot.serve.interactive.drafts import SavedTexts
    from zot.serve.interactive.look import ThemeChoice
    from zot.serve.interactive.shell import RunningShell
    from zot.serve.interactive.view import View
    from zot.settings.resolve import Plan
    from zot.tui.blocks import Level, LiveBlock
    from zot.tui.vi import ViKeys

STOP_SECONDS = 3.0
"""Seconds to wait for the agent to end."""
TWICE_SECONDS = 2.0
"""Seconds within which a second key press counts as a double press."""

Result = TypeVar("Result")


class App:
    """One terminal, one runtime. Thread-safe: `events`, `warn`, `post_error`."""

    spoken = False
    """True if output is read out line by line instead of drawn."""

    def __init__(
        self,
        loop: Loop,
        find_plan: Callable[..., Plan],
        around: Surroundings,
        *,
        theme: Theme,
    ) -> None:
        """`find_plan` returns what to run with, optionally with other options than at the start."""
        self.loop = loop
        self.find_plan = find_plan
        self.around = around
        self.theme = theme
        self._themes: ThemeChoice | None = None
        self.editor = Editor()
        self.keymap = default_keymap()
        self.vi: ViKeys | None = None
        """Set if the person uses vi keys."""
        self.completion = Completion(self)
        self.saved: SavedTexts | None = None
        """History and draft on disk; None until they are loaded."""
        self.dialogs = DialogStack()
        self.status = StatusLine()
        self.events = EventQueue(loop.wake, self._submit_for_extension)
        self.queue = MessageQueue(self.editor, lambda text: self.chat.images_in(text))
        self.shells: list[RunningShell] = []
        """Running shell commands of the person."""
        self.built: Runtime | None = None
        """None until loaded, and if loading failed."""
        self.view: View | None = None
        self._chat: Chat | None = None
        self._early: list[tuple[str, Level]] = []
        """Notes from before there was a view."""
        self.loading = True
        self.working = 0
        """Number of `work` threads that have not ended."""
        self.mode: ApprovalMode | None = None
        """Mode that the person has chosen; None: as the settings say."""
        self.focused = True
        self.fatal: ZotError | None = None
        """Error that ended the program before it began."""
        self.margin = 0
        """Blank lines above the first line. A narrower window has more rows; tmux then moves the
        first rows out of reach, and these can be lost without harm."""
        self.ending = Cancel()
        """Set at exit; stops the threads of this front end."""
        self._leaves_until = 0.0
        """Time until which a second Ctrl+C ends the program."""
        self._goes_back_until = 0.0
        """Time until which a second Esc goes back to an earlier prompt."""
        self._actions = self._own_actions()

    def _own_actions(self) -> dict[str, Callable[[], object]]:
        """Return the actions of keys other than editing, by their name in the keymap."""
        return {
            "submit": self._send,
            "steer": lambda: self._send(steer=True),
            "complete": self.completion.reopen,
            "take-back": lambda: self.queue.take_back(self.built),
            "stop": self._escape,
            "interrupt": self._interrupt,
            "end-of-input": self._end_of_input,
            "suspend": self.loop.suspend,
            "redraw": self.loop.redraw,
            "background": self._to_background,
            "next-mode": lambda: self.guarded(self.chat.next_mode),
            "search-history": lambda: self.chat.search_history(),
            "external-editor": lambda: self.guarded(self.chat.edit_outside),
            "paste": lambda: self.chat.paste_clipboard(),
            "pager": lambda: self.chat.open_pager(),
            "unfold": lambda: self.chat.open_pager(unfold=True),
        }

    @property
    def chat(self) -> Chat:
        """The app's dealings with its agent. The door of all that the first frame does not need."""
        if self._chat is None:
            from zot.serve.interactive import chat

            self._chat = chat.Chat(self)
        return self._chat

    def load(self, **changes: str) -> None:
        """Load the agent in a thread, perhaps with other options; close the present one first."""
        old, self.built, self.loading = self.built, None, True

        def work() -> None:
            from zot.serve.interactive import loading

            if old is not None:
                old.close(timeout=STOP_SECONDS)
                old.release()
            loading.load(self, **changes)

        threading.Thread(target=work, name="zot-load", daemon=True).start()

    # --- keys --------------------------------------------------------------------------------

    def key(self, key: KeyPress) -> None:
        self.status.hint = ""
        match key.name:
            case "focus" | "blur":
                self.focused = key.name == "focus"
            case "reply":
                self._take_reply(key.text)
            case _ if self.loop.full is not None:
                self.guarded(partial(self.loop.full.key, key))
            case _ if self.dialogs.takes(key):
                self.guarded(partial(self.dialogs.overlays[-1].key, key))
            case name if self.completion.is_open and self.completion.key(name):
                pass
            case _:
                if self.vi is None or not self.vi.key(key, self.editor):
                    self._type(key)
                self.completion.update()
                if self.saved is not None:
                    self.saved.typed()

    def _type(self, key: KeyPress) -> None:
        match key.name:
            case "text":
                if key.text == "?" and not self.editor.text and self.built is not None:
                    self.chat.show_keys()
                    return
                self.dialogs.typed_at = time.monotonic()
                self.editor.insert(key.text)
            case "paste":
                self.guarded(lambda: self.chat.paste(key.text))
            case name:
                self.act(self.keymap.get(name, ""))

    def act(self, action: str) -> None:
        """Do what a key stands for: editing, an action of the app, or a slash command."""
        if action in EDITOR_ACTIONS:
            self.editor.do(action)
        elif action.startswith("/"):
            self.chat.command(action)
        elif action in self._actions:  # else it comes from a later version's file
            self._actions[action]()

    def _end_of_input(self) -> None:
        if self.editor.text:
            self.editor.do("delete")
        else:
            self.exit()

    def _stop(self) -> bool:
        """Stop the turn, or else the shell command started last. Return whether there was one."""
        if self.built is not None and self.queue.stop(self.built):
            return True
        running = [shell for shell in self.shells if not shell.cancel.is_set()]
        for shell in running[-1:]:
            shell.cancel.set()
        return bool(running)

    def _to_background(self) -> None:
        """Move the running command of the model to the background, or else go left."""
        if not self.chat.to_background():
            self.editor.do("left")

    def _escape(self) -> None:
        """Stop what runs. Twice, with nothing to stop and no text: go back to an earlier prompt."""
        if self._stop() or self.editor.text or self.built is None:
            return
        if time.monotonic() < self._goes_back_until:
            self._goes_back_until = 0.0
            self.chat.command("/rewind")
        elif self.view is not None and self.view.has_prompts:
            self._goes_back_until = time.monotonic() + TWICE_SECONDS
            self.status.hint = "esc once more goes back to an earlier prompt"

    def _interrupt(self) -> None:
        if self._stop():
            return
        if self.editor.text:
            text = self.editor.take()
            if self.saved is not None:
                self.saved.add(text)
        elif time.monotonic() < self._leaves_until:
            self.exit()
        else:
            self._leaves_until = time.monotonic() + TWICE_SECONDS
            self.status.hint = "ctrl+c once more leaves"

    # --- sending -----------------------------------------------------------------------------

    def _send(self, *, steer: bool = False) -> None:
        """Send the editor's text."""
        if not self.editor.full_text.strip():
            return
        text = self.editor.take()
        self.dialogs.typed_at = 0.0  # the person is no longer typing
        if self.vi is not None:
            self.vi.sent()
        if self.saved is not None:
            self.saved.sent(text)
        self.submit(text, steer=steer)

    def submit(self, text: str, *, steer: bool = False) -> None:
        """Run a text once the agent is loaded: a slash command, a shell command or a prompt."""
        if self.loading:
            self.queue.unsent.append(text)
        else:
            self.chat.run(text, steer=steer)

    def _submit_for_extension(self, text: str, slash: bool) -> None:
        """Run a text of an extension, as it says; callable from any thread."""
        if slash:
            self.loop.post(lambda: self.chat.command(text))
        else:
            self.loop.post(lambda: self.guarded(lambda: self.chat.send(text)))

    # --- the transcript ----------------------------------------------------------------------

    @property
    def runtime(self) -> Runtime:
        """Return the runtime; raise ZotError while there is none."""
        if self.built is None:
            raise ZotError("the agent is not ready yet" if self.loading else "there is no agent")
        return self.built

    @property
    def cwd(self) -> str:
        return self.built.cwd if self.built is not None else self.around.cwd

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

    def show_view(self, view: View, welcome: LiveBlock | None = None) -> None:
        """Show the view, with the welcome and earlier notes first; loading is over."""
        view.follow(self.view)
        if welcome is not None:
            view.begin_with(welcome)
        self.view, self.loading = view, False
        for text, level in self._early:
            view.note(text, level)
        self._early.clear()

    def refresh_status(self) -> None:
        """Update the status line from the runtime."""
        if self.built is not None:
            self.status.refresh(self.built)

    # --- work and errors ---------------------------------------------------------------------

    def work(
        self, function: Callable[[], Result], then: Callable[[Result], object] = lambda result: None
    ) -> None:
        """Run a slow function in a thread, then `then` with its result on this thread. Errors
        become notes."""
        self.working += 1

        def run() -> None:
            try:
                after: Callable[[], object] = partial(then, function())
            except Exception as error:
                after = partial(_raise, error)
            self.loop.post(lambda: finish(after))

        def finish(after: Callable[[], object]) -> None:
            self.working -= 1
            self.guarded(after)

        threading.Thread(target=run, name="zot-terminal", daemon=True).start()

    def guarded(self, action: Callable[[], object]) -> None:
        """Run the action; report an error as a note and go on."""
        try:
            action()
        except ZotError as error:
            self.note(str(error), "error")
        except Exception as error:
            self.note(str(internal_error(error)), "error")

    def warn(self, text: str) -> None:
        """Add a warning to the transcript; callable from any thread."""
        self.loop.post(lambda: self.note(text, "warning"))

    def post_error(self, error: Exception) -> None:
        """Add an error to the transcript; callable from any thread."""
        text = str(error)
        self.loop.post(lambda: self.note(text, "error"))

    # --- frames ------------------------------------------------------------------------------

    def tick(self) -> float | None:
        """Prepare a frame; return the seconds until the next one is due, or None."""
        view = self.view
        if view is not None:
            for event in self.events.take():
                view.take(event)
                self.chat.take(event)
        waits = [1.0] * (bool(self.shells) or self.dialogs.follows)
        if view is not None and view.activity:
            waits.append(1.0 - (time.monotonic() - view.since) % 1.0)
        if self.saved is not None:
            left = self.saved.tick(lambda: self.editor.full_text)
            waits += [] if left is None else [left]
        return min(waits, default=None)

    def picture(self, columns: int, rows: int) -> Drawing:
        return frame.picture(self, columns, rows)

    def use_theme(self, choice: ThemeChoice) -> None:
        """Use a theme. If it depends on the background, query the terminal, and keep the current
        colours until it answers that or the device query after it."""
        self._themes = choice
        if choice.depends:
            self.loop.terminal.write("\x1b]11;?\x1b\\\x1b[c")
        else:
            self.wear(choice.dark)

    def _take_reply(self, reply: str) -> None:
        """Handle a reply of the terminal."""
        if self._themes is not None and (theme := self._themes.after(reply, self.theme)):
            self.wear(theme)

    def wear(self, theme: Theme) -> None:
        """Use these colours."""
        self.theme = theme
        self.loop.use_theme(theme)

    # --- the end -----------------------------------------------------------------------------

    def exit(self, code: int = 0) -> None:
        self.loop.end(code)

    def signalled(self, number: int) -> None:
        """Exit because of a signal."""
        self.exit(128 + number)

    @property
    def farewell(self) -> str:
        """Line that says how to go on with the session; empty if nothing was said in it."""
        if self.built is None or not self.built.session.message_count():
            return ""
        stored = self.built.sessions.info().path
        return "zot -c goes on with this session, zot -r with any" if stored else ""

    def close(self) -> None:
        """Save what was written, and end the agent and the threads of this front end."""
        if self.saved is not None:
            self.saved.close("\n".join([*self.queue.unsent, self.editor.full_text]).strip())
        self.ending.set()
        self.events.close()
        if self.built is not None:
            self.built.client_left()
            self.built.close(timeout=STOP_SECONDS)
            self.built.release()
        self.loop.close()


def _raise(error: Exception) -> None:
    raise error
