"""vi's keys for the editor: insert mode, and a normal mode with counts, operators, movements, text
objects, registers of one text, and the dot. A table made with vim says what each sequence does.

A command is a coroutine that asks for its next key: `dw`, `2fx` and `ci"` read as they are typed.
"""

from __future__ import annotations

import os.path
from collections.abc import Callable, Generator

from msgspec import Struct

from zot.tui.editor import Editor
from zot.tui.keys import KeyPress
from zot.tui.vimoves import MOVES, Span, find_letter, first_letter, line_end, line_start, object_at

MAX_COUNT = 1_000
OPERATORS = frozenset(("d", "c", "y", "g~", "gu", "gU"))
_CASES: dict[str, Callable[[str], str]] = {"~": str.swapcase, "u": str.lower, "U": str.upper}
Keys = Generator[None, str, None]
"""A command that is being typed: receives a key whenever it yields."""


class ViKeys:
    def __init__(self) -> None:
        self.inserts = True
        self._editor: Editor | None = None
        self._command: Keys | None = None
        self._typed: list[str] = []
        """Keys of the command being typed."""
        self._last_change: list[str] = []
        self._insert: _Insert | None = None
        self._register = ("", False)
        """Deleted or copied text, and whether it is whole lines."""
        self._found = ("", "")
        """Command and letter of the last search in a line."""
        self._repeats = False
        """True while the dot repeats a command."""
        self._failed = False
        self._steps = 0
        """Undo steps before the command."""

    def key(self, key: KeyPress, editor: Editor) -> bool:
        """Handle a key; False: it keeps its usual meaning."""
        self._editor = editor
        if key.name == "esc":
            if self.inserts:
                self._end_insert()
                return True
            was_typing = self._command is not None
            self._command, self._typed = None, []
            return was_typing
        if self.inserts:
            return False
        if key.name == "ctrl+r" and self._command is None:
            editor.do("redo")
            return True
        if key.name != "text":
            return False
        for letter in key.text:
            if not self._take(letter):
                break  # vi drops what was typed ahead after a command that failed
        return True

    def _take(self, letter: str) -> bool:
        if not self.inserts:
            return self._letter(letter)
        self._edit.insert(letter)  # an earlier letter began insert mode
        return True

    def sent(self) -> None:
        """Return to insert mode for a new text."""
        self.inserts, self._command, self._typed, self._insert = True, None, [], None

    # --- commands ----------------------------------------------------------------------------

    def _letter(self, letter: str) -> bool:
        """Go on with a command; return False if it failed."""
        if self._command is None:
            self._command = self._run()
            next(self._command)
            self._typed, self._failed = [], False
            self._steps = self._edit.undo_steps
        self._typed.append(letter)
        try:
            self._command.send(letter)
        except StopIteration:
            self._command = None
            if not self.inserts:
                self._clamp()
        return not self._failed

    def _run(self) -> Keys:
        """Read and run one command."""
        count, key = yield from _counted((yield))
        if key == "g":
            key += yield
        if key in OPERATORS:
            yield from self._operate(key, count)
        elif key in _SIMPLE:
            self._changed()
            _SIMPLE[key](self, count or 1)
        elif key == "r":
            self._replace_letters((yield), count or 1)
        elif key == ".":
            self._repeat(count)
        elif key in "iaIAoO":
            self._begin_insert(key, count or 1)
        else:
            to = yield from self._moved(key, count)
            self._failed = to is None or to.failed
            if to is not None:
                self._edit.cursor = to.end

    def _operate(self, operator: str, count: int) -> Keys:
        again, key = yield from _counted((yield))
        count = (count or 1) * (again or 1) if count or again else 0
        if key in ("g", "i", "a"):
            key += yield
        same = operator[-1]
        if key in (same, operator):
            span = self._lines(count or 1)
        elif key[0] in "ia":
            found = object_at(self._edit.text, self._edit.cursor, key, count or 1)
            if found is None:
                self._failed = True
                return
            span = found
        else:
            moved = yield from self._moved(key, count, operator)
            if moved is None:
                self._failed = True
                return
            span = moved
        self._changed()
        self._apply(operator, span)

    def _moved(self, key: str, count: int, operator: str = "") -> Generator[None, str, Span | None]:
        """Return the span of a movement from the cursor; its end is where the cursor goes."""
        edit = self._edit
        if key in "fFtT":
            self._found = (key, (yield))
        if key in "fFtT;,":
            return find_letter(edit.text, edit.cursor, *self._found, key, count or 1)
        on_letter = not edit.text[edit.cursor : edit.cursor + 1].isspace()
        if key in "wW" and operator == "c" and on_letter:
            key = f"c{key}"
        move = MOVES.get(key)
        return None if move is None else move(edit.text, edit.cursor, count, bool(operator))

    @property
    def _edit(self) -> Editor:
        assert self._editor is not None
        return self._editor

    def _lines(self, count: int) -> Span:
        """Return `count` whole lines from the cursor's on."""
        text, cursor = self._edit.text, self._edit.cursor
        end = line_end(text, cursor)
        for _ in range(count - 1):
            end = line_end(text, min(len(text), end + 1))
        return Span(cursor, end, lines=True, top=line_start(text, cursor))

    # --- operators ---------------------------------------------------------------------------

    def _apply(self, operator: str, span: Span) -> None:
        edit = self._edit
        start, end = span.range(edit.text)
        text = edit.text[start:end]
        if operator in ("d", "c", "y"):
            self._register = (text, span.lines)
        match operator:
            case "y":
                edit.cursor = start if not span.lines else min(edit.cursor, span.end)
            case "c":
                edit.replace(start, end, "")
                self._enter_insert("c", 1)
            case "d" if span.lines:
                self._delete_lines(start, end)
            case "d":
                edit.replace(start, end, "")
            case _:
                edit.replace(start, end, _CASES[operator[-1]](text))
                edit.cursor = start

    def _delete_lines(self, start: int, end: int) -> None:
        edit = self._edit
        if end < len(edit.text):
            end += 1  # the line feed after them
        elif start:
            start -= 1
        edit.replace(start, end, "")
        edit.cursor = first_letter(edit.text, min(start, len(edit.text)))

    def _replace_letters(self, letter: str, count: int) -> None:
        edit = self._edit
        if edit.cursor + count <= line_end(edit.text, edit.cursor):
            self._changed()
            edit.replace(edit.cursor, edit.cursor + count, letter * count)
            edit.cursor -= 1

    def _delete_letters(self, count: int) -> None:
        self._cut(self._edit.cursor, self._edit.cursor + count)

    def _delete_back(self, count: int) -> None:
        self._cut(self._edit.cursor - count, self._edit.cursor)

    def _cut(self, start: int, end: int) -> None:
        """Delete a part of the cursor's line."""
        edit = self._edit
        start = max(line_start(edit.text, edit.cursor), start)
        end = min(line_end(edit.text, edit.cursor), end)
        if start < end:
            self._register = (edit.text[start:end], False)
            edit.replace(start, end, "")

    def _delete_rest(self, count: int) -> None:
        span = MOVES["$"](self._edit.text, self._edit.cursor, count, True)
        if span is not None:
            self._apply("d", span)

    def _change_rest(self, count: int) -> None:
        self._delete_rest(count)
        self._enter_insert("C", 1)

    def _change_letters(self, count: int) -> None:
        self._delete_letters(count)
        self._enter_insert("s", 1)

    def _change_lines(self, count: int) -> None:
        self._apply("c", self._lines(count))

    def _copy_lines(self, count: int) -> None:
        self._apply("y", self._lines(count))

    def _swap_case(self, count: int) -> None:
        edit = self._edit
        start, end = edit.cursor, min(line_end(edit.text, edit.cursor), edit.cursor + count)
        if start < end:
            edit.replace(start, end, edit.text[start:end].swapcase())

    def _join(self, count: int) -> None:
        edit = self._edit
        for _ in range(max(1, count - 1)):
            end = line_end(edit.text, edit.cursor)
            if end >= len(edit.text):
                return
            rest = first_letter(edit.text, end + 1)
            follows = edit.text[rest : rest + 1]
            blank = "" if follows in ("", ")", "\n") or edit.text[end - 1 : end] in " \n" else " "
            edit.replace(end, rest, blank)
            edit.cursor = end if blank else max(0, end - 1 if not follows.strip() else end)

    def _put(self, count: int, *, after: bool) -> None:
        edit, (text, is_lines) = self._edit, self._register
        if not text and not is_lines:
            return
        cursor = edit.cursor
        if is_lines:
            at = line_end(edit.text, cursor) if after else line_start(edit.text, cursor)
            pasted = "\n".join([text] * count)
            edit.replace(at, at, f"\n{pasted}" if after else f"{pasted}\n")
            edit.cursor = first_letter(edit.text, at + 1 if after else at)
            return
        at = min(cursor + 1, line_end(edit.text, cursor)) if after else cursor
        edit.replace(at, at, text * count)
        edit.cursor = at if "\n" in text else at + len(text) * count - 1

    def _undo(self, count: int) -> None:
        edit = self._edit
        for _ in range(count):
            before = edit.text
            edit.do("undo")
            edit.cursor = min(edit.cursor, len(os.path.commonprefix([before, edit.text])))

    # --- inserting ---------------------------------------------------------------------------

    def _begin_insert(self, key: str, count: int) -> None:
        edit = self._edit
        self._changed()
        match key:
            case "a":
                edit.cursor = min(edit.cursor + 1, line_end(edit.text, edit.cursor))
            case "I":
                edit.cursor = first_letter(edit.text, edit.cursor)
            case "A":
                edit.cursor = line_end(edit.text, edit.cursor)
            case "o":
                at = line_end(edit.text, edit.cursor)
                edit.replace(at, at, "\n")
            case "O":
                at = line_start(edit.text, edit.cursor)
                edit.replace(at, at, "\n")
                edit.cursor = at
        self._enter_insert(key, count)

    def _enter_insert(self, key: str, count: int) -> None:
        self.inserts = True
        self._insert = _Insert(key, count, self._edit.cursor, len(self._edit.text))

    def _end_insert(self) -> None:
        """Return to normal mode; repeat the typed text if there was a count."""
        edit, begun, self._insert = self._edit, self._insert, None
        self.inserts = False
        if begun is not None:
            grown = len(edit.text) - begun.size
            typed = edit.text[begun.start : begun.start + grown] if grown > 0 else ""
            between = "\n" if begun.key in ("o", "O") else ""
            for _ in range(begun.count - 1 if typed else 0):
                edit.replace(edit.cursor, edit.cursor, between + typed)
            edit.join_steps(self._steps)
            if not self._repeats:
                self._last_change += [*typed, "\x1b"]
        if edit.cursor > line_start(edit.text, edit.cursor):
            edit.cursor -= 1

    # --- the dot -----------------------------------------------------------------------------

    def _changed(self) -> None:
        """Remember the command as the last change; the dot repeats it."""
        if not self._repeats and self._typed[-1:] not in (["u"], ["y"]) and self._typed[0] != "y":
            self._last_change = list(self._typed)

    def _repeat(self, count: int) -> None:
        keys = list(self._last_change)
        if count:
            while keys and keys[0].isdecimal():
                del keys[0]
            keys[:0] = list(str(count))
        self._command, self._repeats = None, True
        typed, self._typed = self._typed, []
        for letter in keys:
            if letter == "\x1b":
                self._end_insert()
            elif self.inserts:
                self._edit.insert(letter)
            else:
                self._letter(letter)
        self._repeats, self._typed = False, typed

    def _clamp(self) -> None:
        """Keep the cursor on a letter: in normal mode it does not stand behind the last one."""
        edit = self._edit
        edit.cursor = max(0, min(edit.cursor, len(edit.text)))
        start, end = line_start(edit.text, edit.cursor), line_end(edit.text, edit.cursor)
        edit.cursor = max(start, min(edit.cursor, end - 1))


class _Insert(Struct, frozen=True):
    """The begin of an insertion: its command and count, the cursor, and the length of the text."""

    key: str
    count: int
    start: int
    size: int


def _counted(key: str) -> Generator[None, str, tuple[int, str]]:
    """Read a count before a key; 0: there is none."""
    count = ""
    while key in "123456789" or (count and key == "0"):
        count += key
        key = yield
    return min(MAX_COUNT, int(count or 0)), key


_SIMPLE: dict[str, Callable[[ViKeys, int], None]] = {
    "x": ViKeys._delete_letters,
    "X": ViKeys._delete_back,
    "D": ViKeys._delete_rest,
    "C": ViKeys._change_rest,
    "s": ViKeys._change_letters,
    "S": ViKeys._change_lines,
    "Y": ViKeys._copy_lines,
    "~": ViKeys._swap_case,
    "J": ViKeys._join,
    "p": lambda vi, count: vi._put(count, after=True),
    "P": lambda vi, count: vi._put(count, after=False),
    "u": ViKeys._undo,
}
"""Commands of one key."""
