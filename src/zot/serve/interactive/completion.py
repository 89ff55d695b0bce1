"""Completion under the editor: commands after a slash, files after an at-sign. Never sends
anything; finds files in its own thread, below the working directory by parts of names, elsewhere by
path.
"""

from __future__ import annotations

import os
import re
import time
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from zot.text import compiled, nearest
from zot.tools.disk import Disk
from zot.tools.search.walk import Tree
from zot.tui.cells import Line, clean, clip, window
from zot.tui.menu import MenuItem, matching

if TYPE_CHECKING:
    from zot.core.source import CommandInfo
    from zot.serve.interactive.app import App

MAX_SHOWN = 8
"""Maximum lines; arrow keys scroll to the rest."""
FRESH_SECONDS = 20.0
"""Maximum age of a list in seconds before it is rebuilt."""
MAX_FILES = 300_000
"""Maximum files in memory; the list says if there are more."""
MAX_MATCHES = 200
MAX_RANKED = 5_000
"""Maximum matches to rank, nearest first; a single letter matches nearly all files."""
ELSEWHERE = ("/", "~", "../", "./")
"""Prefixes of paths that are looked up directly."""
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
        self._files: FileIndex | None = None
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
        own = self._app.chat.commands.values()
        items = [MenuItem(f"/{command.name}", command.help, f"/{command.name} ") for command in own]
        items += [MenuItem(f"/{i.name}", i.description, f"/{i.name} ") for i in self._others]
        aliases = self._app.chat.aliases if typed else {}
        items += [MenuItem(f"/{n}", f"/{meant} here", f"/{n} ") for n, meant in aliases.items()]
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
        if is_elsewhere(typed):
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

        def then(index: FileIndex) -> None:
            self._files, self._files_at = index, time.monotonic()
            self.update()

        self._app.work(lambda: FileIndex.of(cwd), then)

    def _files_at_path(self, typed: str) -> list[MenuItem]:
        """List a directory in a thread: a slow or hanging one must not delay keys."""
        if self._there[0] == typed:
            return self._there[1]
        cwd = self._app.cwd

        def then(items: list[MenuItem]) -> None:
            self._there = (typed, items)
            self.update()

        self._app.work(lambda: files_at(typed, cwd), then)
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


# --- files -----------------------------------------------------------------------------------


class FileIndex:
    """Files below a directory that .gitignore does not exclude, least nested first and hidden ones
    last."""

    def __init__(self, folder: str = "", paths: list[str] | None = None) -> None:
        self.folder = folder
        self._paths = sorted(paths or [], key=_rank)
        self._folded = [path.casefold() for path in self._paths]
        self.is_cut = len(self._paths) >= MAX_FILES

    @classmethod
    def of(cls, folder: str) -> FileIndex:
        return cls(folder, list(_below(folder)))

    def find(self, typed: str) -> list[MenuItem]:
        """Return up to MAX_MATCHES files whose path has the text, else its letters in order."""
        word = typed.casefold()
        hits = [at for at, path in enumerate(self._folded) if word in path]
        if hits:
            best = sorted(hits[:MAX_RANKED], key=lambda at: _place(self._folded[at], word))
            return [item_of(self._paths[at]) for at in best[:MAX_MATCHES]]
        letters = re.compile(
            "".join(f"[^{re.escape(letter)}]*{re.escape(letter)}" for letter in word)
        )
        loose = [at for at, path in enumerate(self._folded) if letters.match(path)]
        items = [item_of(self._paths[at]) for at in loose[: MAX_MATCHES * 10]]
        return matching(typed, items)[:MAX_MATCHES]


def _below(folder: str) -> Iterator[str]:
    count = 0
    for path, entry in Tree(folder, folder, Disk()).walk(hidden=True, check=lambda: None):
        name = "/".join(path)
        if not name.isprintable():
            continue
        yield name + "/" if entry.is_dir(follow_symlinks=False) else name
        count += 1
        if count >= MAX_FILES:
            return


def _rank(path: str) -> tuple[bool, int]:
    return path.startswith(".") or "/." in path, path.rstrip("/").count("/")


def _place(path: str, word: str) -> int:
    """Return the rank of a match: at the start (0), at the start of the last name (1), elsewhere
    (2)."""
    if path.startswith(word):
        return 0
    name = path.rstrip("/").rpartition("/")[2]
    return 1 if name.startswith(word) else 2


def is_elsewhere(typed: str) -> bool:
    return typed.startswith(ELSEWHERE) or typed == ".."


def files_at(typed: str, folder: str) -> list[MenuItem]:
    """Return the entries of the path's directory that begin with its last name. Hidden entries only
    if that begins with a dot."""
    if typed in ("~", ".."):
        return [item_of(f"{typed}/")]
    above, _, begun = typed.rpartition("/")
    where = os.path.join(folder, os.path.expanduser(f"{above}/"))  # noqa: PTH111, PTH118  as typed
    try:
        with os.scandir(where) as entries:
            names = [entry.name + "/" * entry.is_dir() for entry in entries]
    except OSError:
        return []
    word = begun.casefold()
    shown = [name for name in names if name.casefold().startswith(word) and name.isprintable()]
    shown = [name for name in shown if begun.startswith(".") or not name.startswith(".")]
    return [item_of(f"{above}/{name}") for name in sorted(shown)[:MAX_MATCHES]]


def item_of(path: str) -> MenuItem:
    return MenuItem(path, value=f"@{path}" if path.endswith("/") else f"@{path} ")
