"""Puts a new text where its old text was found leniently: in the file's own characters.

A three-way merge. What old and new text share stays as the file has it; what is new is written
as it was sent, at the file's indent. What cannot be known is refused (`Unclear`), never guessed.
"""

from __future__ import annotations

import json
import re
from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import cached_property, partial
from itertools import accumulate

from zot.text import Frozen
from zot.tools.gaps import Gaps, Unclear
from zot.tools.lenient import (
    FAMILIES,
    PLAIN,
    LineParts,
    SearchedText,
    Spot,
    columns,
    key,
    parts,
    plain,
)
from zot.tools.textdiff import Opcode, opcodes

TOKEN = re.compile(r"\w+|\s+|.", re.DOTALL)
UNITS = ("\t", "  ", "    ", "        ", "   ")

Change = tuple[int, int, str]
"""Start and end in the file's text, and what is written there."""


class LinePair(Frozen):
    """A line of the old text with the line of the file that it stands for."""

    old: str
    number: int
    low: int
    high: int


def changes(page: SearchedText, spot: Spot, old: str, new: str) -> list[Change]:
    """What to change in the file so that `new` stands for `old` at the spot.

    Raises:
        Unclear: it cannot be told what the new text means there.
    """
    olds, news = _lines(old, new)
    rows, news = _aligned(page, spot, olds, news)
    return Rewriter(page, spot, rows, news).changes()


def _lines(old: str, new: str) -> tuple[list[str], list[str]]:
    """Both texts as lines, without the newline that ends both. If only the old one has it, the
    file must have a blank line there (`_edges`)."""
    olds, news = old.split("\n"), new.split("\n")
    if old.endswith("\n") and not new:
        return olds[:-1], []
    both = old.endswith("\n") and new.endswith("\n")
    return (olds[:-1], news[:-1]) if both else (olds, news)


def _aligned(
    page: SearchedText, spot: Spot, olds: list[str], news: list[str]
) -> tuple[list[LinePair], list[str]]:
    """A row for every line of the spot, blank ones too, and the new lines to go with them."""
    olds, news, before, after = _edges(page, spot, olds, news)
    numbers = [at for at, line in enumerate(olds) if key(line)]
    gaps = Gaps(olds, news)
    rows = [_blank_row(page, olds[at], spot.rows[0] - before + at) for at in range(before)]
    for index, (at, number) in enumerate(zip(numbers, spot.rows, strict=True)):
        if index:
            blank = range(spot.rows[index - 1] + 1, number)
            lines = olds[numbers[index - 1] + 1 : at]
            if len(lines) != len(blank):
                lines = [page.lines[row] for row in blank]
                gaps.change(numbers[index - 1], at, lines)
            rows += (_blank_row(page, *pair) for pair in zip(lines, blank, strict=True))
        rows.append(LinePair(olds[at], number, *page.piece(spot, number)))
    for at in range(after):
        rows.append(_blank_row(page, olds[len(olds) - after + at], spot.rows[-1] + 1 + at))
    return rows, gaps.lines()


def _blank_row(page: SearchedText, old: str, number: int) -> LinePair:
    return LinePair(old, number, 0, len(page.lines[number]))


def _edges(
    page: SearchedText, spot: Spot, olds: list[str], news: list[str]
) -> tuple[list[str], list[str], int, int]:
    """Blank lines at both ends: left out where old and new agree on them, else they must be in
    the file. Returns the lines left and how many blank ones are still at each end."""
    counts = []
    for step in (1, -1):
        mine, theirs = _leading_blank(olds[::step]), _leading_blank(news[::step])
        if olds[::step][:mine] == news[::step][:theirs]:
            olds, news = olds[::step][mine:][::step], news[::step][theirs:][::step]
            mine = 0
        edge, free = (
            (spot.rows[0], spot.begins_line) if step == 1 else (spot.rows[-1], spot.ends_line)
        )
        there = [edge - step * (at + 1) for at in range(mine)]
        # What follows the last newline of a file is no line.
        count = len(page.lines) - (not page.lines[-1])
        inside = all(0 <= row < count and not key(page.lines[row]) for row in there)
        if mine and not (inside and free):
            raise Unclear("the blank lines around it differ")
        counts.append(mine)
    return olds, news, counts[0], counts[1]


def _leading_blank(lines: Sequence[str]) -> int:
    return next((at for at, line in enumerate(lines) if key(line)), len(lines))


class Rewriter:
    """Writes the new lines over the rows of a spot."""

    def __init__(
        self, page: SearchedText, spot: Spot, rows: list[LinePair], news: list[str]
    ) -> None:
        self._page, self._spot = page, spot
        self._rows, self._news = rows, news
        self._olds = [parts(row.old) for row in rows]
        self._theirs = [parts(self._piece(row)) for row in rows]
        pairs = list(zip(self._olds, self._theirs, strict=True))
        self._padded = any(mine.trail and not theirs.trail for mine, theirs in pairs)
        """The old text has blanks at the ends of lines that the file has not."""
        self._other_trail = any(
            mine.trail and theirs.trail and mine.trail != theirs.trail for mine, theirs in pairs
        )
        self._stripped, self._indents = self._shift(pairs)
        self._typed = _typed(pairs)

    def _piece(self, row: LinePair) -> str:
        return self._page.lines[row.number][row.low : row.high]

    def _shift(self, pairs: list[tuple[LineParts, LineParts]]) -> tuple[bool, Indents]:
        """How indents change, and whether that leaves the first line out: it began in the middle
        of a line, or its blanks were lost."""
        indents = [(mine.indent, theirs.indent) for mine, theirs in pairs if mine.text]
        if not self._spot.begins_line:
            return True, Indents(indents[1:])
        rest = Indents(indents[1:])
        if indents[0][0] == "" != indents[0][1]:
            many = sum(map(bool, map(key, self._news))) > 1
            if len(indents) == 1 and many:
                raise Unclear("it has no indent, and newText has several lines")
            if len(indents) > 1 and rest.clear and not Indents(indents).clear:
                return True, rest
        return False, Indents(indents)

    def changes(self) -> list[Change]:
        codes = opcodes([row.old for row in self._rows], self._news)
        moved = ("insert", "delete")
        if codes and (
            (self._stripped and codes[0][0] in moved)
            or (not self._spot.ends_line and codes[-1][0] in moved)
        ):
            raise Unclear("it is a part of a line, and newText does not begin or end like it")
        self._check(codes)
        return [
            self._change(i1, i2, self._block(i1, i2, j1, j2))
            for tag, i1, i2, j1, j2 in codes
            if tag != "equal"
        ]

    def _check(self, codes: list[Opcode]) -> None:
        """Raises Unclear where another way to get from old to new would give another file."""
        for tag, i1, i2, j1, j2 in codes:
            if tag in ("insert", "delete"):
                self._check_sliding(i1, i2, j1, j2)
            elif tag == "replace" and not all(map(key, self._news[j1:j2])):
                self._check_blank(range(i1, i2))
            elif tag == "equal":
                # A blank line beside a change may be another one of the new text's.
                last = [i2 - 1] if i2 < len(self._rows) else []
                self._check_blank([i1, *last] if i1 else last)

    def _check_blank(self, numbers: Iterable[int]) -> None:
        """It matters which blank line it is where the file has other blanks in it."""
        for row in (self._rows[at] for at in numbers):
            if not key(row.old) and row.old != self._piece(row):
                raise Unclear("the blanks in blank lines differ beside a change")

    def _check_sliding(self, i1: int, i2: int, j1: int, j2: int) -> None:
        """Where the same lines could as well have been added (or taken away) a line further up or
        down, each line passed must be in the file as it would be written."""
        taken = [row.old for row in self._rows[i1:i2]]
        block = self._news[j1:j2] or taken
        for step, first, last in ((1, i2, block), (-1, i1 - 1, block[::-1])):
            row, at = first, 0
            while 0 <= row < len(self._rows) and self._rows[row].old == last[at % len(last)]:
                there = self._piece(self._rows[row])
                if taken:
                    same = there == self._piece(self._rows[row - step * len(taken)])
                else:
                    same = there == self._written(self._rows[row].old)
                if not same:
                    raise Unclear("lines beside it are alike, but not in the file")
                row, at = row + step, at + 1

    def _written(self, line: str) -> str:
        new = parts(line)
        trail = "" if self._padded else self._typed_in(new.trail)
        text = self._typed_in(new.text)
        return (self._indents.there(new.indent) if text else "") + text + trail

    def _change(self, i1: int, i2: int, lines: list[str]) -> Change:
        """Lines instead of the rows from i1 to i2, with the newline that has to go with them."""
        text = "\n".join(lines)
        if i1 == i2:  # nothing is taken away
            if i1 < len(self._rows):
                return self._start(i1), self._start(i1), text + "\n"
            return self._end(i1 - 1), self._end(i1 - 1), "\n" + text
        start, end = self._start(i1), self._end(i2 - 1)
        if lines:
            return start, end, text
        if end < len(self._page.text):
            return start, end + 1, ""
        return max(0, start - 1), end, ""

    def _start(self, at: int) -> int:
        return self._page.starts[self._rows[at].number] + self._rows[at].low

    def _end(self, at: int) -> int:
        return self._page.starts[self._rows[at].number] + self._rows[at].high

    def _block(self, i1: int, i2: int, j1: int, j2: int) -> list[str]:
        """The new lines j1 to j2 as the file would have them."""
        news = [parts(line) for line in self._news[j1:j2]]
        texts = self._texts(i1, i2, [line.text for line in news])
        lines = []
        if self._other_trail and any(line.trail for line in news):
            raise Unclear("the blanks at the ends of lines differ")
        for at, (line, text) in enumerate(zip(news, texts, strict=True), j1):
            if self._in_raw_string(at) and self._indents.there(line.indent) != line.indent:
                raise Unclear("the blanks inside a string of several lines may be meant or not")
            trail = "" if self._padded else self._typed_in(line.trail)
            if at == 0 and self._stripped:
                if line.indent != self._olds[0].indent:
                    raise Unclear("newText begins with other blanks")
                lines.append(text + trail)
            elif at == len(self._news) - 1 and not self._spot.ends_line:
                if line.trail != self._olds[-1].trail:
                    raise Unclear("newText ends with other blanks")
                lines.append(self._indents.there(line.indent) + text)
            else:
                lines.append((self._indents.there(line.indent) if text else "") + text + trail)
        return lines

    def _in_raw_string(self, at: int) -> bool:
        """Whether a new line begins inside backquotes, where an indent is no indent."""
        return self._indents.converts and self._open_quotes[at]

    @cached_property
    def _open_quotes(self) -> list[bool]:
        counts = (line.replace("```", "").count("`") for line in self._news)
        return [count % 2 == 1 for count in accumulate(counts, initial=0)]

    def _texts(self, i1: int, i2: int, news: list[str]) -> list[str]:
        """What they share with the rows that they replace stays as the file has it."""
        mine = [line.text for line in self._olds[i1:i2]]
        theirs = [line.text for line in self._theirs[i1:i2]]
        new = TOKEN.findall("\n".join(news))
        if mine == theirs or not news:
            return [self._typed_in(text) for text in news]
        old = [token for pair in zip(mine, theirs, strict=True) for token in _tokens(*pair)]
        codes = opcodes([token for token, _ in old], new)
        text = ""
        for at, (tag, a1, a2, b1, b2) in enumerate(codes):
            outer = at in (0, len(codes) - 1)
            words = "".join(new[b1:b2])
            # A blank or a bracket in the midst of new words is no sign that they are the same.
            if tag == "equal" and (outer or re.search(r"\w", words)):
                ends = [old[a1]] if _has_blank(new, codes, at - 1) else []
                ends += [old[a2 - 1]] if _has_blank(new, codes, at + 1) else []
                if any(not token.strip() and plain(token) != plain(there) for token, there in ends):
                    raise Unclear("the blanks beside a change differ")
                text += "".join(there for _, there in old[a1:a2])
            else:
                text += self._typed_in(words)
        return text.split("\n")

    def _typed_in(self, text: str) -> str:
        """New words as they would have been typed, if the old text's were not."""
        if not self._typed:
            return text
        for char in set(text).intersection(PLAIN):
            if PLAIN[char] not in self._typed or char in self._page.text:
                raise Unclear(f"newText has {char!r}, which may be meant or not")
        return plain(text)


def _typed(pairs: list[tuple[LineParts, LineParts]]) -> set[str]:
    """The plain characters for which the old text has typographic ones and the file has not."""
    mine = {char for old, _ in pairs for char in old.indent + old.text + old.trail}
    theirs = {char for _, there in pairs for char in there.indent + there.text + there.trail}
    foreign = (mine - theirs).intersection(PLAIN)
    typed = {plain for chars, plain in FAMILIES.items() if foreign.intersection(chars)}
    # Whoever makes one kind of quotes curly does it with the other kind too.
    return typed | {"'", '"'} if typed & {"'", '"'} else typed


def _has_blank(new: list[str], codes: list[Opcode], at: int) -> bool:
    """Whether new words beside a place bring blanks, of which one may be the file's."""
    return 0 <= at < len(codes) and any(map(str.isspace, new[codes[at][3] : codes[at][4]]))


def _tokens(mine: str, theirs: str) -> Iterator[tuple[str, str]]:
    """The words of an old line, each with what the file has for it; then the newline."""
    here, there = columns(mine), columns(theirs)
    for match in TOKEN.finditer(mine):
        low, high = (there[bisect_left(here, at)] if at else 0 for at in match.span())
        yield match[0], theirs[low:high]
    yield "\n", "\n"


# --- indents ---------------------------------------------------------------------------------


class Indents:
    """How the indents of an old text become those of the file, learnt from lines in both."""

    def __init__(self, pairs: list[tuple[str, str]]) -> None:
        self._typed = any(plain(mine) != mine for mine, _ in pairs)
        """The old text has typographic blanks where the file has plain ones."""
        pairs = [(plain(mine), theirs) for mine, theirs in pairs]
        self._sure = {mine for mine, _ in pairs} - {
            mine for mine, theirs in pairs if mine != theirs
        }
        levels: list[list[Way]] = [[_same], _shifts(pairs), [*_conversions()], [*_shifted(pairs)]]
        fitting = [[way for way in level if _fits(way, pairs)] for level in levels]
        self._ways: list[Way] = next(filter(None, fitting), [])
        self.clear = bool(self._ways)
        self.converts = self.clear and not fitting[0] and not fitting[1]
        """One unit of indent becomes another: tabs for spaces, two for four."""
        self._blanks = {blank for _, theirs in pairs for blank in theirs}
        self._seen = dict(pairs)
        self._mixed = any({" ", "\t"} <= set(theirs) for _, theirs in pairs)

    def there(self, indent: str) -> str:
        """Raises Unclear if it cannot be told."""
        if plain(indent) != indent and not self._typed:
            raise Unclear("newText is indented with typographic blanks, and oldText is not")
        indent = plain(indent)
        results = {way(indent) for way in self._ways}
        if not self._ways and indent in self._sure:
            return indent  # some other line is off on its own
        result = results.pop() if len(results) == 1 else None
        foreign = bool(result) and self._blanks.isdisjoint(result or "")
        if result is None or (self.converts and (foreign or self._strange(indent))):
            raise Unclear("the indent of newText cannot be told from that of oldText")
        return result

    def _strange(self, indent: str) -> bool:
        """An indent that was not seen, in a file that has tabs and spaces in one."""
        return self._mixed and indent not in self._seen


Way = Callable[[str], str | None]
"""An indent to another; None where that has no meaning."""


def _same(indent: str) -> str:
    return indent


def _fits(way: Way, pairs: list[tuple[str, str]]) -> bool:
    return all(way(mine) == theirs for mine, theirs in pairs)


def _shifts(pairs: list[tuple[str, str]]) -> list[Way]:
    """The file's lines are deeper, or less deep, by the same blanks."""
    mine, theirs = min(pairs, key=lambda pair: len(pair[0]), default=("", ""))
    if theirs.endswith(mine):
        more = theirs[: len(theirs) - len(mine)]
        return [lambda indent: more + indent]
    if mine.endswith(theirs):
        less = mine[: len(mine) - len(theirs)]
        return [lambda indent: indent[len(less) :] if indent.startswith(less) else None]
    return []


def _conversions() -> Iterator[Callable[[str], str]]:
    """Each unit of indent replaced by another: four spaces by a tab, two by four."""
    for unit in UNITS:
        for other in UNITS:
            if unit != other:
                yield partial(_converted, unit, other)


def _converted(unit: str, other: str, indent: str) -> str:
    count = 0
    while indent.startswith(unit, count * len(unit)):
        count += 1
    return other * count + indent[count * len(unit) :]


def _shifted(pairs: list[tuple[str, str]]) -> Iterator[Way]:
    """Replaced and shifted."""
    for convert in _conversions():
        for shift in _shifts([(convert(mine), theirs) for mine, theirs in pairs]):
            yield partial(_both, convert, shift)


def _both(convert: Callable[[str], str], shift: Way, indent: str) -> str | None:
    return shift(convert(indent))


# --- escapes ---------------------------------------------------------------------------------


def unescaped(old: str, new: str) -> Iterator[tuple[str, str]]:
    """Both texts as they were before something escaped them once too often."""
    for undo in (_all_escapes, _newlines, partial(_quotes, '"'), partial(_quotes, "'")):
        before, after = undo(old), undo(new)
        if before is not None and after is not None and before != old:
            yield before, after


def _all_escapes(text: str) -> str | None:
    try:
        value = str(json.loads(f'"{text}"'))
        value.encode()
    except ValueError:
        return None  # no JSON, or half a character
    return value


def _newlines(text: str) -> str | None:
    if "\n" in text:
        return None
    lines = text.replace("\\t", "\t").split("\\n")
    # An odd number of quotes: this was an escape inside a string, which has to stay.
    odd = any(line.count(quote) % 2 for line in lines for quote in "\"'`")
    return None if odd else "\n".join(lines)


def _quotes(quote: str, text: str) -> str | None:
    return None if re.search(rf"(?<!\\){quote}", text) else text.replace(f"\\{quote}", quote)
