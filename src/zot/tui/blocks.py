"""The parts of a transcript as lines: user messages, notes, tool calls, thinking.

A block that still changes is redrawn in the live area; when it has ended it is drawn once more, for
good. `markdown.py` has the one that settles piece by piece.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import TYPE_CHECKING, Literal

import msgspec

from zot.tui.cells import (
    INDENT,
    Line,
    Span,
    cells,
    clean,
    clip,
    indented,
    plain,
    visible,
    wrap,
)
from zot.tui.diff import DiffLines, counts_line
from zot.tui.links import file_word, linked

if TYPE_CHECKING:
    from zot.tui.pictures import InlineImage

HEAD, TAIL = 3, 7
"""Lines kept at the start and the end of folded tool output."""
LIVE_TAIL = 5
MAX_SOURCE = 1_000_000
"""Maximum characters of a tool's output kept in its block."""

# Strings of incomplete JSON.
_NAME = re.compile(r'"((?:[^"\\]|\\.){0,200})"\s*:\s*"')
_VALUE = re.compile(r'(?:[^"\\]|\\u(?![dD][89abAB])\w{4}|\\u\w{4}\\u\w{4}|\\[^u])*')
"""Matches up to the end of the string, or to an incomplete escape."""
_LONGEST_ESCAPE = 12
_LONGEST_NAME = 500
"""Maximum characters of a name, all of them escapes, with its quotes and the colon."""
_MAX = 20_000
"""Maximum characters kept of a string: its end is shown."""

Level = Literal["info", "warning", "error"]


class LiveBlock:
    """A part of a transcript, which settles when it is closed. Subclasses draw it."""

    closed = True
    """True if it will not change any more."""
    pictures: Sequence[InlineImage] = ()
    """Drawn below it on terminals that can; the pager has only its lines."""

    def settle(self, width: int) -> list[Line]:
        """Return the lines that became final since the last call; all once it is closed."""
        if not self.closed:
            return []
        lines = self.lines(width)
        for picture in self.pictures:
            lines = [*lines, *picture.lines(width)]
        return lines

    def live(self, width: int, height: int) -> list[Line]:
        """Return the unsettled lines as they are now."""
        return self.lines(width)[-height:]

    def lines(self, width: int, *, folded: bool = True) -> list[Line]:
        """Return all lines, for a pager."""
        raise NotImplementedError

    @property
    def source(self) -> str:
        """Text to search and copy."""
        return str(getattr(self, "text", ""))


class UserBlock(LiveBlock):
    def __init__(self, text: str, pictures: Sequence[InlineImage] = ()) -> None:
        self.text = text
        self.pictures = pictures

    def lines(self, width: int, *, folded: bool = True) -> list[Line]:
        first: Line = (("user prompt turn", "❯ "),)
        rows = wrap([("user", clean(self.text))], width, first=first, rest=(("user", "  "),))
        return [(("user fill", ""), *row) for row in rows]


class NoteBlock(LiveBlock):
    """A message of the program itself."""

    _STYLES = {"info": "dim", "warning": "warn", "error": "error"}

    def __init__(self, text: str, level: Level = "info") -> None:
        self.text = text
        self.level = level

    def lines(self, width: int, *, folded: bool = True) -> list[Line]:
        return wrap(linked(self._STYLES[self.level], clean(self.text)), width)


class LinesBlock(LiveBlock):
    """Lines drawn elsewhere; clipped at the margin."""

    def __init__(self, drawn: list[Line]) -> None:
        self._drawn = drawn

    def lines(self, width: int, *, folded: bool = True) -> list[Line]:
        return [clip(line, width) for line in self._drawn]

    @property
    def source(self) -> str:
        return "\n".join(plain(line) for line in self._drawn)


class RowsBlock(LiveBlock):
    """Names with a text each: side by side, or stacked in a narrow window."""

    NARROW = 60

    def __init__(self, title: str, rows: Sequence[tuple[str, str]]) -> None:
        self._title = title
        self._rows = [(clean(name), clean(text)) for name, text in rows]

    def lines(self, width: int, *, folded: bool = True) -> list[Line]:
        lines: list[Line] = wrap([("heading", clean(self._title))], width)
        widest = min(30, max((cells(name) for name, _ in self._rows), default=0))
        for name, text in self._rows:
            if width < self.NARROW:
                lines.append(clip((("accent", f"  {name}"),), width, "..."))
                lines += wrap([("", text)], width, first=(("", "    "),), rest=(("", "    "),))
                continue
            blanks = " " * max(0, widest - cells(name))
            first: Line = (("accent", f"  {name}{blanks}  "),)
            rest: Line = (("", " " * (widest + 4)),)
            lines += wrap([("", text)], width, first=first, rest=rest)
        return lines

    @property
    def source(self) -> str:
        return "\n".join([self._title, *(f"{name}  {text}" for name, text in self._rows)])


class ThinkingBlock(LiveBlock):
    """The model's thinking: its last lines while it goes on, one line afterwards."""

    def __init__(self, clock: float) -> None:
        self.closed = False
        self.text = ""
        self._began = clock
        self._seconds = 0.0

    def add(self, text: str) -> None:
        self.text += text

    def close(self, clock: float) -> None:
        self.closed = True
        self._seconds = clock - self._began

    def live(self, width: int, height: int) -> list[Line]:
        tail = clean(self.text[-width * 4 :]).replace("\n", " ")
        rows = indented([("thinking", tail)], max(1, width - 2))
        return [(("thinking", "thinking"),), *rows[-2:]][:height]

    def lines(self, width: int, *, folded: bool = True) -> list[Line]:
        if folded:
            took = f" for {self._seconds:.0f} s" if self._seconds >= 1 else ""
            return [clip((("thinking", f"thought{took}"),), width)]
        return indented([("thinking", clean(self.text))], width)


class ToolBlock(LiveBlock):
    """A tool call: its arguments as they arrive, the end of its output while it runs; afterwards
    both ends of the output, the exit code and the time."""

    def __init__(self, name: str) -> None:
        self.closed = False
        self.name = name
        self._args: dict[str, object] = {}
        self._partial = PartialFields()
        self.output = ""
        self.failed = False
        self.running = False
        self.seconds: float | None = None
        self.exit_code: int | None = None
        self.diff = ""
        self.diff_line = 0

    # --- what happens to it ------------------------------------------------------------------

    def add_args(self, text: str) -> None:
        self._partial.add(text)
        self._args = {}

    def set_args(self, args: dict[str, object] | None, raw: str = "") -> None:
        self._args, self._partial = args or {}, PartialFields()
        if not args:
            self._partial.add(raw)

    def begin(self, args: dict[str, object] | None) -> None:
        self.running = True
        if args:
            self.set_args(args)

    def add_output(self, text: str) -> None:
        self.output = (self.output + text)[-MAX_SOURCE:]

    def finish(self, output: str, *, failed: bool, seconds: float) -> None:
        self.output = output[:MAX_SOURCE]
        self.failed, self.seconds = failed, seconds
        self.running, self.closed = False, True

    def give_up(self) -> None:
        """Close as failed: the tool never ran, or its end was not reported."""
        self.running, self.closed, self.failed = False, True, True

    # --- drawing -----------------------------------------------------------------------------

    def live(self, width: int, height: int) -> list[Line]:
        head = self._head(width, "")
        body = self._written(width)[-LIVE_TAIL:] if not self.running else []
        if self.output:
            body = self._rows(self.output[-LIVE_TAIL * width * 2 :], width)[-LIVE_TAIL:]
        return [*head, *body][:height]

    def lines(self, width: int, *, folded: bool = True) -> list[Line]:
        body: Sequence[Line]
        if self.diff:
            body, ends = DiffLines(self.diff, width, self._path(), self.diff_line), (40, 10)
        else:
            body, ends = self._body(width), (HEAD, TAIL)
        return [*self._head(width, self._end()), *(fold(body, *ends) if folded else body)]

    @property
    def source(self) -> str:
        return f"{self.name} {self._title()}\n{self.diff or self.output}"

    def _head(self, width: int, end: str) -> list[Line]:
        state = "error" if self.failed else "ok" if self.closed else "accent"
        mark = "✗" if self.failed else "✓" if self.closed else "▸"
        title, path = clean(self._title()), self._path()
        first = (("", ""), (state, f"{mark} "), ("tool", self.name), ("", " "))
        shown = [(file_word(path), title)] if path and title == path else linked("", title)
        counts = counts_line(self.diff)
        spans = [*shown, *((("", "  "), *counts) if counts else ()), ("dim", end)]
        rows = wrap(spans, width, first=first, rest=INDENT)
        return rows if len(rows) <= 6 else [*rows[:5], (("dim", "  ..."),)]

    def summary(self) -> list[Span]:
        """Return the subject of the call and how much it returned, for one line."""
        title, path = clean(self._title()).replace("\n", " "), self._path()
        is_file = path and title == path
        spans = [(file_word(path), title)] if is_file else [("", title)]
        lines = self.output.strip("\n").count("\n") + 1 if self.output.strip() else 0
        image = next((line for line in self.output.split("\n") if line.startswith("[image")), "")
        if image:
            spans.append(("dim", f" {image}"))
        elif self.closed and lines:
            nothing = self.name != "read" and lines == 1 and self.output.startswith("No ")
            found = "nothing" if nothing else f"{lines} line{'s' * (lines != 1)}"
            spans.append(("dim", f" ({found})"))
        return spans

    def _end(self) -> str:
        parts = []
        if self.exit_code:
            parts.append(f"exit {self.exit_code}")
        if self.seconds is not None and self.seconds >= 0.1:
            parts.append(f"{self.seconds:.1f} s")
        return f"  {', '.join(parts)}" if parts else ""

    def _fields(self) -> dict[str, object]:
        return self._args or self._partial.fields

    def _path(self) -> str:
        """Return the file that the call is about."""
        args = self._fields()
        value = args.get("path") or args.get("file_path")
        return value if isinstance(value, str) and value.isprintable() else ""

    def _title(self) -> str:
        args = self._fields()
        for name in ("command", "path", "file_path", "pattern", "query", "url", "id"):
            value = args.get(name)
            if isinstance(value, str):
                more = args.get("path") if name == "pattern" else None
                return visible(value) + (f" in {more}" if isinstance(more, str) else "")
        shown = ", ".join(f"{name}={value!r}" for name, value in args.items())
        return shown[:500]

    def _written(self, width: int) -> list[Line]:
        """Return the end of a long text argument, as far as the model has written it."""
        args = self._fields()
        text = args.get("content") or args.get("newText")
        edits = args.get("edits")
        if isinstance(edits, list) and edits and isinstance(edits[-1], dict):
            text = edits[-1].get("newText") or edits[-1].get("oldText")
        return self._rows(text[-LIVE_TAIL * width * 2 :], width) if isinstance(text, str) else []

    def _body(self, width: int) -> list[Line]:
        text = self.output
        if self.name == "bash":
            text = _without_frame(text, str(self._fields().get("command", "")))
        return self._rows(text, width) if text.strip() else []

    def _rows(self, text: str, width: int) -> list[Line]:
        style = "error" if self.failed and self.name != "bash" else "output"
        rows: list[Line] = []
        for line in clean(text.rstrip("\n")).split("\n"):
            rows += indented(linked(style, line), width)
        return rows


READING = frozenset(("read", "glob", "grep"))
"""Tools whose calls are shown as one line, consecutive ones joined."""
MAX_GROUP_LINES = 4
"""Maximum lines of the names of joined calls."""


class ReadsBlock(LiveBlock):
    """Consecutive calls that only read: their names and how much each found. Failed ones have a
    line of their own. It stays open until something else begins."""

    def __init__(self) -> None:
        self.calls: list[ToolBlock] = []
        self._sealed = False

    def add(self, call: ToolBlock) -> None:
        self.calls.append(call)

    def seal(self) -> None:
        """End the group: later calls begin a new one."""
        self._sealed = True

    @property
    def is_open(self) -> bool:
        return not self._sealed

    @property
    def closed(self) -> bool:  # type: ignore[override]  # computed here, set elsewhere
        return self._sealed and all(call.closed for call in self.calls)

    @property
    def pictures(self) -> Sequence[InlineImage]:  # type: ignore[override]
        return [picture for call in self.calls for picture in call.pictures]

    def live(self, width: int, height: int) -> list[Line]:
        return self._summary(width)[:height]

    def lines(self, width: int, *, folded: bool = True) -> list[Line]:
        if folded:
            return self._summary(width)
        rows: list[Line] = []
        for call in self.calls:
            rows += call.lines(width, folded=False)
        return rows

    @property
    def source(self) -> str:
        return "\n".join(call.source for call in self.calls)

    def _summary(self, width: int) -> list[Line]:
        good = [call for call in self.calls if not call.failed]
        rows: list[Line] = []
        if good:
            done = all(call.closed for call in good)
            mark = ("ok", "✓ ") if done else ("accent", "▸ ")
            rows = wrap(_joined_calls(good), width, first=(("", ""), mark), rest=INDENT)
        if len(rows) > MAX_GROUP_LINES:
            more = f"  ... {len(good)} calls (ctrl+o shows them)"
            rows = [*rows[: MAX_GROUP_LINES - 1], clip((("dim", more),), width)]
        for call in self.calls:
            rows += call.lines(width) if call.failed else []
        return rows


def _joined_calls(calls: Sequence[ToolBlock]) -> list[Span]:
    """Return "read a, b · grep x in src (3 lines)": the tool's name once for a run of its calls."""
    spans: list[Span] = []
    before = ""
    for call in calls:
        if call.name != before:
            spans += [("dim", " · ")] * bool(before) + [("tool", call.name), ("", " ")]
        else:
            spans.append(("dim", ", "))
        spans += call.summary()
        before = call.name
    return spans


_END = re.compile(r"(?:\A|\n)\[exit -?\d+\][^\n]*\Z")
_FOR_MODEL = re.compile(r"\n*\[there is no terminal and nobody to type: [^\n]*\]\Z")


def _without_frame(text: str, command: str) -> str:
    """Strip the lines for the model: the command, its exit code, and advice."""
    if not text.startswith("$ "):
        return text
    text = text.removeprefix(f"$ {command}\n").removeprefix("\n")
    return _FOR_MODEL.sub("", _END.sub("", text))


def fold(rows: Sequence[Line], head: int, tail: int) -> list[Line]:
    """Return both ends of a long list, and the number of lines in between."""
    if len(rows) <= head + tail + 1:
        return list(rows)
    between = (("dim italic", f"  ... {len(rows) - head - tail} more lines (ctrl+o shows them)"),)
    return [*rows[:head], between, *rows[-tail:]]


class PartialFields:
    """String fields of incomplete JSON, the last one as far as it is written. Fields of inner
    objects are mixed with outer ones: for display only. Never raises; reads no input twice."""

    def __init__(self) -> None:
        self.fields: dict[str, object] = {}
        self._name = ""
        self._value: str | None = None
        """Value of the field being written; None: between fields."""
        self._rest = ""
        self._at = 0
        """Position in the rest up to which it was read."""

    def add(self, text: str) -> None:
        self._rest += text
        self._at = 0  # no slicing per field: one text may hold a million
        while self._begin() if self._value is None else self._go_on():
            pass
        self._rest = self._rest[self._at :]

    def _begin(self) -> bool:
        match = _NAME.search(self._rest, self._at)
        if match is None:
            # A name cannot begin further from the end.
            self._at = max(self._at, len(self._rest) - _LONGEST_NAME)
            return False
        self._name, self._value = _text(match[1]), ""
        self._at = match.end()
        return True

    def _go_on(self) -> bool:
        """Read the available part of the open string; return whether another field may follow."""
        assert self._value is not None
        match = _VALUE.match(self._rest, self._at)
        assert match is not None  # it matches the empty string
        self._value = (self._value + _text(match[0]))[-_MAX:]
        self.fields[self._name] = self._value
        self._at = match.end()
        if self._rest.startswith('"', self._at):
            self._at += 1
            self._value = None
            return True
        if len(self._rest) - self._at < _LONGEST_ESCAPE:
            return False
        self._at += 1  # not an escape at all
        return True


def _text(escaped: str) -> str:
    try:
        return msgspec.json.decode(f'"{escaped}"', type=str, strict=False)
    except (msgspec.DecodeError, UnicodeEncodeError):
        return escaped
