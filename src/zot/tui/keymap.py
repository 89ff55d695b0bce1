"""Key bindings: a default table, a user's file on top of it, and vi's modes."""

from __future__ import annotations

from collections.abc import Mapping

from zot.errors import ConfigError
from zot.text import nearest
from zot.tui.editor import Editor
from zot.tui.keys import KeyPress

EDITOR: dict[str, tuple[str, ...]] = {
    "left": ("left", "ctrl+b"),
    "right": ("right", "ctrl+f"),
    "up": ("up", "ctrl+p"),
    "down": ("down", "ctrl+n"),
    "word-left": ("alt+left", "ctrl+left", "alt+b"),
    "word-right": ("alt+right", "ctrl+right", "alt+f"),
    "line-start": ("home", "ctrl+a"),
    "line-end": ("end", "ctrl+e"),
    "text-start": ("alt+<", "ctrl+home"),
    "text-end": ("alt+>", "ctrl+end"),
    "delete-back": ("backspace", "ctrl+h", "shift+backspace"),
    "delete": ("delete",),
    "kill-end": ("ctrl+k",),
    "kill-start": ("ctrl+u",),
    "kill-word": ("alt+d", "ctrl+delete", "alt+delete"),
    "kill-word-back": ("alt+backspace", "alt+ctrl+h", "ctrl+backspace"),
    "kill-blank-back": ("ctrl+w",),
    "yank": ("ctrl+y",),
    "yank-pop": ("alt+y",),
    "undo": ("ctrl+_", "ctrl+/"),
    "redo": ("alt+_", "alt+/"),
    "transpose": ("ctrl+t",),
    "newline": ("ctrl+j", "alt+enter", "shift+enter", "ctrl+enter"),
    "history-back": ("alt+p",),
    "history-forward": ("alt+n",),
    "open-paste": ("alt+o",),
}
PROGRAM: dict[str, tuple[str, ...]] = {
    "submit": ("enter",),
    "steer": ("ctrl+s",),
    "take-back": ("alt+up",),
    "stop": ("esc",),
    "interrupt": ("ctrl+c",),
    "end-of-input": ("ctrl+d",),
    "suspend": ("ctrl+z",),
    "redraw": ("ctrl+l",),
    "unfold": ("ctrl+o",),
    "paste": ("ctrl+v",),
    "complete": ("tab",),
    "search-history": ("ctrl+r",),
    "external-editor": ("ctrl+g",),
    "pager": ("f2", "pageup"),
}
EDITOR_ACTIONS = frozenset(EDITOR)
ACTIONS = {**EDITOR, **PROGRAM}


def default_keymap() -> dict[str, str]:
    return {key: action for action, keys in ACTIONS.items() for key in keys}


def keymap_with(changes: Mapping[str, object]) -> dict[str, str]:
    """Return the keymap with a user's changes: `{"ctrl+x": "submit"}`. An empty action frees the
    key; one that begins with a slash is a command.

    Raises:
        ConfigError: there is no such action.
    """
    keymap = default_keymap()
    for key, action in changes.items():
        if action in ("", None):
            keymap.pop(key, None)
        elif isinstance(action, str) and (action in ACTIONS or action.startswith("/")):
            keymap[key] = action
        else:
            near = nearest(str(action), ACTIONS)
            hint = f" (did you mean {near[0]}?)" if near else ""
            raise ConfigError(f"key {key!r}: there is no action {action!r}{hint}")
    return keymap


# --- vi ---------------------------------------------------------------------------------------

_MOVES = {
    "h": "left",
    "l": "right",
    " ": "right",
    "j": "down",
    "k": "up",
    "w": "word-right",
    "e": "word-right",
    "b": "word-left",
    "0": "line-start",
    "^": "line-start",
    "$": "line-end",
    "G": "text-end",
}
_KILLS = {
    "w": "kill-word",
    "e": "kill-word",
    "b": "kill-word-back",
    "$": "kill-end",
    "0": "kill-start",
}
_INSERTS = {"i": (), "a": ("right",), "I": ("line-start",), "A": ("line-end",)}
MAX_COUNT = 1_000


class ViKeys:
    """vi's keys: insert mode, and a normal mode with movements, counts and operators. Only what a
    text of a few lines needs; everything is built from the editor's own actions."""

    def __init__(self) -> None:
        self.inserts = True
        self._typed = ""

    def key(self, key: KeyPress, editor: Editor) -> bool:
        """Handle a key; False: it keeps its usual meaning."""
        if key.name == "esc":
            was_inserting, self.inserts, self._typed = self.inserts, False, ""
            if was_inserting:
                editor.do("left")
            return was_inserting
        if self.inserts or key.name != "text":
            return False
        for letter in key.text:
            self._letter(letter, editor)
        return True

    def sent(self) -> None:
        """Return to insert mode for a new text."""
        self.inserts, self._typed = True, ""

    def _letter(self, letter: str, editor: Editor) -> None:
        if self.inserts:  # an earlier letter began insert mode
            editor.insert(letter)
            return
        self._typed += letter
        rest, count = self._typed, 1
        if rest[0] in "123456789":
            end = next((i for i, char in enumerate(rest) if not char.isdecimal()), len(rest))
            count, rest = min(MAX_COUNT, int(rest[:end])), rest[end:]
        if not rest or rest in ("d", "c", "y", "g", "r"):
            return  # incomplete
        self._typed = ""
        if rest[0] in "dcy" and len(rest) == 2:
            self._operate(rest[0], rest[1], count, editor)
        else:
            self._command(rest, count, editor)

    def _command(self, word: str, count: int, editor: Editor) -> None:
        if word in _MOVES:
            for _ in range(count):
                editor.do(_MOVES[word])
        elif word in _INSERTS:
            for action in _INSERTS[word]:
                editor.do(action)
            self.inserts = True
        elif word[0] == "r" and len(word) == 2:
            editor.replace(editor.cursor, min(len(editor.text), editor.cursor + 1), word[1])
            editor.do("left")
        else:
            self._other(word, count, editor)

    def _other(self, word: str, count: int, editor: Editor) -> None:
        match word:
            case "gg":
                editor.do("text-start")
            case "x":
                for _ in range(count):
                    editor.do("delete")
            case "D" | "C":
                editor.do("kill-end")
                self.inserts = word == "C"
            case "o" | "O":
                editor.do("line-end" if word == "o" else "line-start")
                editor.do("newline")
                if word == "O":
                    editor.do("left")
                self.inserts = True
            case "u":
                editor.do("undo")
            case "p" | "P":
                if word == "p":
                    editor.do("right")
                editor.do("yank")
            case _:
                pass

    def _operate(self, operator: str, target: str, count: int, editor: Editor) -> None:
        if target == operator:
            editor.do("line-start")
            for _ in range(count):
                editor.do("kill-end")
                if operator != "c":
                    editor.do("kill-end")  # and the line feed
        elif target in _KILLS:
            for _ in range(count):
                editor.do(_KILLS[target])
        else:
            return
        if operator == "y":
            editor.do("yank")
        self.inserts = operator == "c"
