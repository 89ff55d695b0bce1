"""Completion under the editor: commands after a slash, files after an at-sign. Never sends
anything; finds files in its own thread.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import TYPE_CHECKING

from zot.serve.interactive import files
from zot.text import compiled, nearest
from zot.tui.cells import Line, clean, clip, window
from zot.tui.menu import MenuItem, matching

if TYPE_CHECKING:
    from zot.core.source import CommandInfo
    from zot.serve.interactive.app import App

MAX_SHOWN = 8
"""Maximum lines; arrow keys scroll to the rest."""
FRESH_SECONDS = 20.0
"""Maximum age of a list in seconds before it is rebuilt."""
_FILE = r"(?:^|(?<=\s))@([^\s@]*)$"
_COMMAND = r"^/([\w:.-]*)$"


class Completion:
    """Candidates for the word at the cursor, and the chosen one."""

    def __init__(self, app: App) -> None:
        self._app = app
        self._items: list[MenuItem] = []
        self._chosen = 0
        self._start = 0
        self._closed_for = ""
        self._files: files.FileIndex | None = None
        self._there: tuple[str, list[MenuItem]] = ("", [])
        """Last path typed, and the entries found there."""
        self._files_at = -FRESH_SECONDS
        self._others: Sequence[CommandInfo] = ()
        """Commands of extensions, skills and prompt files."""
        self._others_at = -FRESH_SECONDS
        self._knows_others = False
        """False while they are being fetched."""

    @property
    def is_open(self) -> bool:
        return bool(self._items)

    def close(self) -> None:
        """Close, and stay closed for this word."""
        self._items = []
        self._closed_for = self._app.editor.text

    def reopen(self) -> None:
        """Allow completion again for the word it was closed for."""
        self._closed_for = ""

    def update(self) -> None:
        """Update the candidates after the text or the cursor changed."""
        editor = self._app.editor
        head = editor.text[: editor.cursor]
        before = [item.label for item in self._items]
        self._items = []
        if not head or head == self._closed_for:
            return
        if head[0] == "/" and (match := compiled(_COMMAND).match(head)) is not None:
            self._start = 0
            self._items = self._commands(match[1])
        elif "@" in head and (match := compiled(_FILE).search(head)) is not None:
            self._start = match.start()
            self._items = self._files_for(match[1])
        if [item.label for item in self._items] != before:
            self._chosen = 0

    # --- keys --------------------------------------------------------------------------------

    def key(self, name: str) -> bool:
        """Handle a key while open; False: pass it to the editor."""
        match name:
            case "up" | "ctrl+p":
                self._chosen = max(0, self._chosen - 1)
            case "down" | "ctrl+n":
                self._chosen = min(len(self._items) - 1, self._chosen + 1)
            case "esc":
                self.close()
            case "tab":
                self._accept()
            case "enter":
                return self._accept()
            case _:
                return False
        return True

    def _accept(self) -> bool:
        """Insert the chosen word; False if the text already has it."""
        editor = self._app.editor
        word = str(self._items[self._chosen].value)
        typed = editor.text[self._start : editor.cursor]
        self._items = []
        if typed.casefold() == word.rstrip().casefold():
            return False
        editor.replace(self._start, editor.cursor, word)
        self._closed_for = editor.text if word.endswith(" ") else ""
        self.update()
        return True

    # --- what there is -----------------------------------------------------------------------

    def _commands(self, typed: str) -> list[MenuItem]:
        self._ask_others()
        from zot.serve.interactive.slash import table

        items = [MenuItem(f"/{c.name}", c.help, f"/{c.name} ") for c in table.COMMANDS.values()]
        items += [MenuItem(f"/{i.name}", i.description, f"/{i.name} ") for i in self._others]
        word = f"/{typed}".casefold()
        begins = [item for item in items if item.label.casefold().startswith(word)]
        begins.sort(key=lambda item: item.label.casefold() != word)  # /session, then /sessions
        if begins or not self._knows_others:  # else Enter would replace a command by a guess
            return begins
        return _meant(typed.casefold(), items)

    def _ask_others(self) -> None:
        """Fetch commands of extensions, skills and prompt files, which arrive once those have
        started; refresh them after FRESH_SECONDS."""
        runtime = self._app.built
        if runtime is not None and time.monotonic() - self._others_at > FRESH_SECONDS:
            self._others_at = time.monotonic()
            self._knows_others = False

            def then(infos: list[CommandInfo]) -> None:
                self._others, self._knows_others = infos, True
                self.update()

            self._app.work(runtime.commands.all, then)

    def _files_for(self, typed: str) -> list[MenuItem]:
        self._look_below()
        index = self._files
        if files.is_elsewhere(typed):
            return self._files_at_path(typed)
        items = index.find(typed) if index is not None else []
        if not items and index is not None and index.is_cut:
            return self._files_at_path(f"./{typed}")
        return items

    def _look_below(self) -> None:
        """Build or rebuild the file list in a thread."""
        runtime = self._app.built
        if runtime is None or time.monotonic() - self._files_at <= FRESH_SECONDS:
            return
        self._files_at = time.monotonic()
        cwd = runtime.cwd

        def then(index: files.FileIndex) -> None:
            self._files, self._files_at = index, time.monotonic()
            self.update()

        self._app.work(lambda: files.FileIndex.of(cwd), then)

    def _files_at_path(self, typed: str) -> list[MenuItem]:
        """List a directory in a thread: a slow or hanging one must not delay keys."""
        if self._there[0] == typed:
            return self._there[1]
        cwd = self._app.cwd

        def then(items: list[MenuItem]) -> None:
            self._there = (typed, items)
            self.update()

        self._app.work(lambda: files.files_at(typed, cwd), then)
        return []

    # --- drawing -----------------------------------------------------------------------------

    def lines(self, width: int) -> list[Line]:
        first = window(self._chosen, MAX_SHOWN, len(self._items))
        shown = self._items[first : first + MAX_SHOWN]
        widest = min(max((len(item.label) for item in shown), default=0), width // 2)
        lines: list[Line] = []
        for index, item in enumerate(shown, first):
            is_chosen = index == self._chosen
            label = clean(item.label)
            line = (
                ("", "  "),
                ("selected" if is_chosen else "accent", label),
                ("dim", " " * max(0, widest - len(label)) + "  " + clean(item.detail)),
            )
            lines.append(clip(line, width, "..."))
        if len(self._items) > MAX_SHOWN:
            cut = self._files is not None and self._files.is_cut
            more = "; there are more files than are listed: type ./ and a path" if cut else ""
            lines.append((("dim", f"  {self._chosen + 1} of {len(self._items)}{more}"),))
        return lines


def _meant(typed: str, items: list[MenuItem]) -> list[MenuItem]:
    """Return commands for a word that no name begins with: misspelt names, names with its letters,
    then commands whose description has the word."""
    names = {item.label.casefold(): item for item in items}
    near = nearest(f"/{typed}", names, most=3, cutoff=0.7)
    near += [item.label for item in matching(typed, [MenuItem(name) for name in names])]
    near += [name for name, item in names.items() if typed in item.detail.casefold()]
    return [names[name] for name in dict.fromkeys(near)]
