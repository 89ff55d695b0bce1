"""Text as a terminal shows it: styled lines, their width in cells, wrapping and clipping.

A style is a few words that a theme turns into colours ("bold code"); a word `href:URL` makes a
link. A line must not contain control sequences: `clean` all text from outside.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from zot.text import printable

Span = tuple[str, str]
"""A style and a text."""
Line = tuple[Span, ...]
TAB = 4
_MARKS = dict.fromkeys(map(ord, "❯✓✗▸•│─┼☐☑…"))
FILL = " fill"
"""End of the style of an empty span at the start of a line: its background covers the line."""
EMPTY: Line = ()
INDENT: Line = (("", "  "),)


def window(at: int, room: int, count: int) -> int:
    """Return the first of `room` visible rows out of `count` so that row `at` is visible."""
    return max(0, min(at - room // 2, count - room))


def clean(text: str) -> str:
    """Remove control characters except line feeds from text of others."""
    if "\t" in text:
        text = text.expandtabs(TAB)
    return text if text.isascii() and text.isprintable() else printable(text)


def visible(text: str) -> str:
    """Like clean(), for text that a person must see in full: control characters are spelled out."""
    return "".join(_spelled(char) for char in text)


def _spelled(char: str) -> str:
    if char.isprintable() or char == "\n":
        return char
    return " " * TAB if char == "\t" else repr(char)[1:-1]


def is_simple(text: str) -> bool:
    """Return whether every character takes one cell on every terminal: Latin and our own marks."""
    if text.isascii():
        return True
    return max(text.translate(_MARKS), default="") < "\u0300" and "\u00ad" not in text


def cells(text: str) -> int:
    """Return the width of the text in cells. It must be clean, and one line."""
    if is_simple(text):
        return len(text)
    return sum(_cluster_cells(cluster) for cluster in clusters(text))


def clusters(text: str) -> Iterator[str]:
    """Iterate over user-perceived characters (grapheme clusters)."""
    if is_simple(text):
        return iter(text)
    import wcwidth  # after the first paint, and only for non-Latin text

    return wcwidth.iter_graphemes(text)


def _cluster_cells(cluster: str) -> int:
    if cluster.isascii():
        return len(cluster)
    import wcwidth

    return max(0, wcwidth.wcswidth(cluster))


def line_cells(line: Line) -> int:
    return sum(cells(text) for _, text in line)


def split_at(text: str, width: int) -> tuple[str, str]:
    """Split off the part that fits into `width` cells, at least one character."""
    # The beginning suffices, unless its characters take no room. Measuring all of it for each line
    # of a long text without blanks would take quadratic time.
    beginning = text[: 4 * max(1, width) + 16]
    end = _end_of(beginning, width)
    if end == len(beginning):
        end = _end_of(text, width)
    return text[:end], text[end:]


def _end_of(text: str, width: int) -> int:
    """Return the length of the part that fits into `width` cells."""
    if is_simple(text):
        return min(max(1, width), len(text))
    used = end = 0
    for cluster in clusters(text):
        size = _cluster_cells(cluster)
        if used + size > width and end:
            break
        used += size
        end += len(cluster)
    return end


def plain(line: Iterable[Span]) -> str:
    return "".join(text for _, text in line)


def joined(spans: Iterable[Span]) -> Line:
    """Merge adjacent spans of the same style; drop empty ones that fill no line."""
    merged: list[Span] = []
    for style, text in spans:
        if not text and not style.endswith(FILL):
            continue
        if merged and merged[-1][0] == style:
            merged[-1] = (style, merged[-1][1] + text)
        else:
            merged.append((style, text))
    return tuple(merged)


def clip(line: Iterable[Span], width: int, mark: str = "") -> Line:
    """Return as much of the line as fits; `mark` ends a clipped one. Line feeds become blanks."""
    kept: list[Span] = []
    left = width
    line = tuple((style, text.replace("\n", " ")) for style, text in line)
    if mark and line_cells(line) > width:
        left -= cells(mark)
    else:
        mark = ""
    for style, text in line:
        size = cells(text)
        if size > left:
            if left > 0:
                part = split_at(text, left)[0]
                kept.append((style, part if cells(part) <= left else ""))
            kept.append((style, mark))
            break
        kept.append((style, text))
        left -= size
    return joined(kept)


def is_filled(line: Line) -> bool:
    return bool(line) and line[0][0].endswith(FILL)


def padded(line: Iterable[Span], width: int, style: str = "") -> Line:
    """Return the line, padded with blanks to the width."""
    line = tuple(line)
    return joined((*line, (style, " " * max(0, width - line_cells(line)))))


def wrap(
    spans: Iterable[Span], width: int, *, first: Line = EMPTY, rest: Line = EMPTY
) -> list[Line]:
    """Break at blanks so that no line is wider; `first` and `rest` are line prefixes."""
    return _Wrapper(max(1, width), first, rest).lines(spans)


def indented(spans: Iterable[Span], width: int) -> list[Line]:
    """Like wrap(), with two blanks before each line."""
    return wrap(spans, width, first=INDENT, rest=INDENT)


class _Wrapper:
    def __init__(self, width: int, first: Line, rest: Line) -> None:
        self._width = width
        self._rest = rest if line_cells(rest) < width - 1 else EMPTY
        self._done: list[Line] = []
        self._line: list[Span] = list(first if line_cells(first) < width - 1 else EMPTY)
        self._used = line_cells(tuple(self._line))
        self._start = self._used

    def lines(self, spans: Iterable[Span]) -> list[Line]:
        for style, text in spans:
            for index, piece in enumerate(text.split("\n")):
                if index:
                    self._break()
                self._add(style, piece)
        self._break()
        return self._done

    def _add(self, style: str, text: str) -> None:
        while text and not (text.isascii() and self._used + len(text) <= self._width):
            room = self._width - self._used
            cut = text.rfind(" ", 0, room + 1) if text[: room + 1].isascii() else -1
            if cut >= 0:  # all the words that fit, at once
                taken = min(cut + 1, room)
                self._put(style, text[:taken], taken)
                self._break()
                text = text[cut + 1 :]
                continue
            word, blank, text = text.partition(" ")
            if word:
                self._word(style, word)
            if blank:
                self._blank(style)
        if text:
            self._put(style, text, len(text))

    def _blank(self, style: str) -> None:
        if self._used < self._width:
            self._put(style, " ", 1)
        else:
            self._break()

    def _word(self, style: str, word: str) -> None:
        size = cells(word)
        if self._used + size > self._width and self._used > self._start:
            carried = self._carried() if size <= self._width else []
            self._break()
            for earlier in carried:
                self._put(*earlier, cells(earlier[1]))
        while self._used + size > self._width:
            if self._used > self._start and self._used + 1 >= self._width:
                self._break()
                continue
            part, word = split_at(word, self._width - self._used)
            taken = cells(part)
            self._put(style, part, taken)
            self._break()
            size -= taken
        self._put(style, word, size)

    def _carried(self) -> list[Span]:
        """Remove and return the start of a word that began in another style, to keep the word
        whole."""
        carried: list[Span] = []
        while self._line:
            style, text = self._line[-1]
            head, blank, tail = text.rpartition(" ")
            if blank:
                if not tail:
                    break
                self._line[-1] = (style, head + blank)
                carried.insert(0, (style, tail))
                break
            if self._used - cells(text) <= self._start:
                return []  # the word is as long as the line: it is cut where it is
            carried.insert(0, self._line.pop())
        if plain(self._line).endswith(" "):
            return carried
        self._line.extend(carried)
        return []

    def _put(self, style: str, text: str, size: int) -> None:
        self._line.append((style, text))
        self._used += size

    def _break(self) -> None:
        line = joined(self._line)
        if line and len(plain(line).rstrip(" ")) > 0:
            style, text = line[-1]
            line = joined((*line[:-1], (style, text.rstrip(" "))))
        self._done.append(line)
        self._line = list(self._rest)
        self._used = self._start = line_cells(self._rest)
