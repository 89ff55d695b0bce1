"""Key bindings: a default table, and a user's file on top of it."""

from __future__ import annotations

from collections.abc import Mapping

from zot.errors import ConfigError
from zot.text import nearest

EDITOR: dict[str, tuple[str, ...]] = {
    "left": ("left",),
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
    "background": ("ctrl+b",),
    "next-mode": ("shift+tab",),
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
