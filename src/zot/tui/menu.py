"""Menus and questions, drawn above the editor while they are open.

An overlay draws lines and takes keys; it calls back when it is done. Menu filters a list by the
text typed; QuestionBox offers a few answers, each with its key, and may take a text.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from msgspec import Struct

from zot.tui.cells import EMPTY, Line, cells, clean, clip, line_cells, plain, window, wrap
from zot.tui.editor import Editor
from zot.tui.keymap import EDITOR_ACTIONS, default_keymap
from zot.tui.keys import KeyPress

_KEYMAP = default_keymap()
SCROLLED = 5
"""Lines of a question scrolled per key press."""
MAX_SPOKEN = 30
ROOMY = 10
"""Lines from which a question has a blank one before its answers."""
SPOKEN_WIDTH = 1_000
"""Width for text that is read out."""
"""Maximum lines of a menu printed at once in line mode."""


class Drawn(Struct, frozen=True):
    """An overlay's lines, and the cursor in them, if any."""

    lines: list[Line]
    cursor: tuple[int, int] | None = None


class Overlay:
    """A part of the screen that takes all keys while it is open."""

    id = ""
    """Id of the approval request, if it is one."""
    tall = False
    """True if it gets more of the screen than a menu."""
    secret = False
    """True if typed text is not shown."""

    def draw(self, width: int, height: int) -> Drawn:
        """Draw at most `height` lines."""
        raise NotImplementedError

    def key(self, key: KeyPress) -> None:
        raise NotImplementedError

    def spoken(self) -> list[str]:
        """Return the content as plain lines, for line mode."""
        raise NotImplementedError

    def take_line(self, text: str) -> bool:
        """Take a typed line as the answer; False: it is none, and the overlay stays open."""
        return True


class NoticeBox(Overlay):
    """Lines to look at; any key closes it."""

    tall = True

    def __init__(
        self,
        lines: Callable[[int], list[Line]],
        close: Callable[[], None],
        *,
        follows: bool = False,
    ) -> None:
        """`follows`: the lines change; show their end, again and again."""
        self.follows = follows
        self._lines = lines
        self._close = close

    def draw(self, width: int, height: int) -> Drawn:
        room = max(1, height - 1)
        lines = self._lines(width)
        lines = lines[-room:] if self.follows else lines[:room]
        return Drawn([*lines, clip((("dim", "any key goes on"),), width)][:height])

    def key(self, key: KeyPress) -> None:
        self._close()

    def spoken(self) -> list[str]:
        return [plain(line) for line in self._lines(SPOKEN_WIDTH)]


class MenuItem(Struct, frozen=True):
    """A line of a menu."""

    label: str
    detail: str = ""
    value: Any = None
    """Value passed to the callback, which knows its type; None: the label."""


class Menu(Overlay):
    """A list filtered by typing. Enter picks, Esc leaves.

    `keys` are further keys for the chosen line: `{"ctrl+d": delete}`; their functions get its value
    and the menu stays open.
    """

    def __init__(
        self,
        title: str,
        choices: Sequence[MenuItem],
        pick: Callable[[Any], None],
        *,
        leave: Callable[[], None] = lambda: None,
        keys: Mapping[str, Callable[[Any], None]] | None = None,
        hint: str = "enter picks · esc leaves",
        chosen: int = 0,
        moved: Callable[[Any], None] | None = None,
    ) -> None:
        """`moved` gets the value of the line that becomes the chosen one."""
        self.title = title
        self._choices = list(choices)
        self._pick = pick
        self._leave = leave
        self._keys = keys or {}
        self._hint = hint
        self._filter = Editor()
        self._chosen = chosen
        self._moved = moved

    @property
    def matching(self) -> list[MenuItem]:
        return matching(self._filter.text, self._choices)

    def replace(self, choices: Sequence[MenuItem]) -> None:
        """Replace the list, for example after one item changed."""
        self._choices = list(choices)
        self._chosen = max(0, min(self._chosen, len(self.matching) - 1))

    def draw(self, width: int, height: int) -> Drawn:
        choices = self.matching
        room = max(1, height - 2)
        first = window(self._chosen, room, len(choices))
        widest = max((cells(clean(c.label)) for c in choices), default=0)
        lines = [
            self._line(choice, first + index == self._chosen, min(widest, width // 2), width)
            for index, choice in enumerate(choices[first : first + room])
        ]
        if not choices:
            lines = [(("dim", "  nothing matches"),)]
        typed = self._filter.layout(max(2, width - cells(self.title) - 3), 1)
        head: Line = (("heading", self.title), ("", "  "), *typed.rows[0])
        count = (
            f"{len(choices)} of {len(self._choices)}" if self._filter.text else str(len(choices))
        )
        foot: Line = (("dim", f"  {count} · {self._hint}"),)
        column = cells(self.title) + 2 + typed.column
        return Drawn([clip(head, width), *lines, clip(foot, width)], (0, min(column, width - 1)))

    def spoken(self) -> list[str]:
        items = self.matching[:MAX_SPOKEN]
        lines = [f"{self.title}:"]
        for number, item in enumerate(items, 1):
            detail = f", {clean(item.detail)}" if item.detail else ""
            lines.append(f"{number}. {clean(item.label)}{detail}".replace("\n", " "))
        more = len(self.matching) - len(items)
        lines += [f"and {more} more"] if more > 0 else []
        return [*lines, "a number picks, words narrow the list down, an empty line leaves"]

    def take_line(self, text: str) -> bool:
        text = text.strip()
        items = self.matching
        if not text:
            self._leave()
        elif text.isdecimal() and 1 <= int(text) <= len(items):
            self._pick(_value(items[int(text) - 1]))
        else:
            self._filter.set(text)
            return False
        return True

    def _line(self, choice: MenuItem, is_chosen: bool, label_width: int, width: int) -> Line:
        label = clean(choice.label.replace("\n", " "))
        blanks = " " * max(0, label_width - cells(label))
        detail = clean(choice.detail.replace("\n", " "))
        line: Line = (
            ("prompt", "❯ ") if is_chosen else ("", "  "),
            ("selected" if is_chosen else "", label),
            ("", blanks + "  " if detail else ""),
            ("dim", detail),
        )
        return clip(line, width, "...")

    def key(self, key: KeyPress) -> None:
        before = self._value_under()
        self._act(key)
        now = self._value_under()
        ends = key.name in ("enter", "tab", "esc", "ctrl+c")
        if self._moved is not None and now not in (None, before) and not ends:
            self._moved(now)

    def _value_under(self) -> Any:
        """Return the value of the chosen line; None: nothing matches."""
        choices = self.matching
        return _value(choices[self._chosen]) if self._chosen < len(choices) else None

    def _act(self, key: KeyPress) -> None:
        choices = self.matching
        chosen = choices[self._chosen] if self._chosen < len(choices) else None
        match key.name:
            case "enter" | "tab" if chosen is not None:
                self._pick(_value(chosen))
            case "esc" | "ctrl+c":
                self._leave()
            case "up" | "ctrl+p" | "shift+tab":
                self._chosen = max(0, self._chosen - 1)
            case "down" | "ctrl+n":
                self._chosen = max(0, min(len(choices) - 1, self._chosen + 1))
            case "pageup" | "pagedown":
                step = 10 if key.name == "pagedown" else -10
                self._chosen = max(0, min(len(choices) - 1, self._chosen + step))
            case name if name in self._keys:
                if chosen is not None:
                    self._keys[name](_value(chosen))
            case _:
                if type_into(self._filter, key):
                    self._chosen = 0


def _value(choice: MenuItem) -> Any:
    return choice.label if choice.value is None else choice.value


def type_into(editor: Editor, key: KeyPress) -> bool:
    """Pass the key to a one-line field; return whether its text changed."""
    before = editor.text
    if key.name in ("text", "paste"):
        editor.insert(key.text.replace("\n", " "))
    elif (action := _KEYMAP.get(key.name)) in EDITOR_ACTIONS and action != "newline":
        editor.do(str(action))
    return editor.text != before


def matching(typed: str, choices: Sequence[MenuItem]) -> list[MenuItem]:
    """Return the choices with every word typed, in the given order; matches whose letters lie apart
    come after the others."""
    words = typed.casefold().split()
    if not words:
        return list(choices)
    ranked = []
    for index, choice in enumerate(choices):
        text = f"{choice.label} {choice.detail}".casefold()
        scores = [_distance(word, text) for word in words]
        if None not in scores:
            ranked.append((sum(score or 0 for score in scores), index, choice))
    return [choice for _, _, choice in sorted(ranked, key=lambda row: row[:2])]


def _distance(word: str, text: str) -> int | None:
    """Return 0 if the text begins with the word, more the farther its letters lie apart; None: no
    match."""
    at = text.find(word)
    if at >= 0:
        return 0 if at == 0 else 1
    place, first = -1, 0
    for index, letter in enumerate(word):
        place = text.find(letter, place + 1)
        if place < 0:
            return None
        if index == 0:
            first = place
    return 2 + place - first


def end_of_line(line: Line, width: int) -> Line:
    """Return the line; if it is too long, the end of its last part: of a path, the file's name."""
    if line_cells(line) <= width:
        return line
    *before, (style, text) = line
    room = max(1, width - line_cells(tuple(before)) - 3)
    while text and cells(text) > room:
        text = text[1:]
    return (*before, (style, f"...{text}"))


class AnswerKey(Struct, frozen=True):
    """One of the answers a question offers."""

    key: str
    label: str
    value: Any
    wants_text: bool = False
    """The person may add a text, such as a reason or a name; Enter ends it."""
    short: str = ""
    """Label for narrow windows."""


TakesAnswer = Callable[[Any, str], None]
"""Called with the value of the reply, and the text."""


class ShownQuestion(Struct, frozen=True):
    """Content of a question."""

    title: str
    body: Callable[[int], Sequence[Line]] | str = ""
    """A diff or a command: a text, or a function that draws it for a width."""
    replies: Sequence[AnswerKey] = ()
    """Empty: only a text is requested."""
    text: str = ""
    """Initial text of the field."""
    subject: Line = ()
    """Subject below the title, such as a path; always visible."""
    start: Callable[[Sequence[Line]], int] = lambda lines: 0
    """Returns the first body line to show if not all of it fits."""
    secret: bool = False
    """True if typed text is not shown."""


class QuestionBox(Overlay):
    """A question with its body; answered by key, or with arrows and Enter."""

    tall = True

    def __init__(
        self,
        question: ShownQuestion,
        answer: TakesAnswer,
        *,
        leave: Callable[[], None] = lambda: None,
    ) -> None:
        self.title = question.title
        self._body = question.body
        self._replies = list(question.replies)
        self._answer = answer
        self._leave = leave
        self._chosen = 0
        self._subject = question.subject
        self._start = question.start
        self._top: int | None = None
        """First visible line of the body; None: not scrolled."""
        self._seen_top = 0
        """First visible line in the last drawing."""
        self._field = Editor()
        self._field.set(question.text)
        self.secret = question.secret
        self._writing = None if self._replies else AnswerKey("", "", None, wants_text=True)

    def draw(self, width: int, height: int) -> Drawn:
        foot = self._field_line(width) if self._writing else self._reply_lines(width, height)
        head: list[Line] = wrap([("heading", clean(self.title))], width)[: max(1, height // 4)]
        if self._subject:
            head.append(end_of_line(self._subject, width))
        spare = 1 if height >= ROOMY else 0
        room = max(0, height - len(head) - len(foot.lines) - spare)
        body = self._scrolled(self._body_lines(width), room)
        if self._replies and len(head) + len(body) + len(foot.lines) < height:
            body = [*body, EMPTY]
        lines = [*head, *body, *foot.lines][:height]
        if foot.cursor is None:
            return Drawn(lines)
        row, column = foot.cursor
        return Drawn(lines, (min(len(lines) - 1, len(head) + len(body) + row), column))

    def _body_lines(self, width: int) -> Sequence[Line]:
        return self._body(width) if callable(self._body) else wrap([("", clean(self._body))], width)

    def _scrolled(self, body: Sequence[Line], room: int) -> list[Line]:
        """Return the part of a long body that fits, at the scroll position."""
        if len(body) <= room:
            return list(body)
        seen = max(1, room - 1)
        top = self._start(body) - (seen > 3) if self._top is None else self._top
        top = self._seen_top = max(0, min(top, len(body) - seen))
        self._top = None if self._top is None else top
        hidden = len(body) - top - seen
        text = f"  ... {hidden} more lines (page down)" if hidden else "  (page up)"
        return [*body[top : top + seen], (("dim", text),)][:room]

    def spoken(self) -> list[str]:
        body = self._body_lines(SPOKEN_WIDTH)
        subject = [plain(self._subject)] if self._subject else []
        lines = [clean(self.title), *subject, *(plain(line) for line in body)]
        if self._writing is not None:
            return [
                *lines,
                f"{clean(self._writing.label)}:" if self._writing.label else "your text:",
            ]
        lines += [f"{reply.key}: {clean(reply.label)}" for reply in self._replies]
        return [*lines, "type a letter; an empty line means no"]

    def take_line(self, text: str) -> bool:
        if self._writing is not None:
            self._answer(self._writing.value, text)
            return True
        letter, _, more = text.strip().partition(" ")
        if not letter:
            self._leave()
            return True
        reply = next((r for r in self._replies if r.key == letter.casefold()), None)
        if reply is None:
            return False
        if reply.wants_text and not more:
            self._writing = reply
            return False
        self._answer(reply.value, more)
        return True

    def _field_line(self, width: int) -> Drawn:
        if self.secret:
            dots = "•" * min(len(self._field.text), max(0, width - 3))
            return Drawn([(("prompt", "❯ "), ("", dots))], (0, 2 + len(dots)))
        layout = self._field.layout(max(2, width - 2), 1)
        label = clean(self._writing.label) if self._writing else ""
        lines: list[Line] = [clip((("dim", f"  {label}"),), width)] if label else []
        row = len(lines)
        lines.append((("prompt", "❯ "), *(layout.rows[0] if layout.rows else EMPTY)))
        return Drawn(lines, (row, 2 + layout.column))

    def _reply_lines(self, width: int, height: int) -> Drawn:
        """Return the answers side by side, shortened if they would take much of the height."""
        lines = self._flowed([reply.label for reply in self._replies], width)
        if len(lines) > max(1, height // 4):
            short = [reply.short or reply.label for reply in self._replies]
            lines = self._flowed(short, width, gap=1)
        return Drawn(lines)

    def _flowed(self, labels: list[str], width: int, gap: int = 2) -> list[Line]:
        lines: list[Line] = []
        for index, (reply, label) in enumerate(zip(self._replies, labels, strict=True)):
            style = "selected" if index == self._chosen else ""
            item: Line = (("accent", reply.key), ("", " "), (style, clean(label)))
            if lines and line_cells(lines[-1]) + gap + line_cells(item) <= width:
                lines[-1] = (*lines[-1], ("", " " * gap), *item)
            else:
                lines.append(clip(item, width, "..."))
        return lines

    def key(self, key: KeyPress) -> None:
        for letter in key.letters():
            if self._writing is not None:
                self._write(letter)
            else:
                self._choose(letter)

    def _choose(self, key: KeyPress) -> None:
        typed = key.text if key.name == "text" else key.name
        match key.name:
            case "esc" | "ctrl+c":
                self._leave()
            case "up" | "left" | "ctrl+p":
                self._chosen = max(0, self._chosen - 1)
            case "down" | "right" | "ctrl+n" | "tab":
                self._chosen = min(len(self._replies) - 1, self._chosen + 1)
            case "pageup" | "pagedown":
                top = self._seen_top if self._top is None else self._top
                self._top = top + (SCROLLED if key.name == "pagedown" else -SCROLLED)
            case "enter":
                self._take(self._replies[self._chosen])
            case _:
                reply = next((r for r in self._replies if r.key == typed), None)
                if reply is not None:
                    self._take(reply)

    def _take(self, reply: AnswerKey) -> None:
        if reply.wants_text:
            self._writing = reply
        else:
            self._answer(reply.value, "")

    def _write(self, key: KeyPress) -> None:
        assert self._writing is not None
        match key.name:
            case "enter":
                self._answer(self._writing.value, self._field.text)
            case "esc" | "ctrl+c":
                if not self._replies:
                    self._leave()
                self._writing = None if self._replies else self._writing
            case _:
                type_into(self._field, key)
