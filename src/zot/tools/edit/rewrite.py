"""Replaces an old text that was found leniently, adapting the new text to the file's style.

A three-way merge. Parts that old and new text share stay as they are in the file; new parts are
written as sent, with the file's indent. Ambiguous cases are refused (`Unclear`), never guessed.
"""

from __future__ import annotations

import re
from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import cached_property, partial
from itertools import accumulate

from zot.text import Frozen
from zot.tools.edit.lenient import (
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
from zot.tools.edit.text import Opcode, opcodes

TOKEN = re.compile(r"\w+|\s+|.", re.DOTALL)
UNITS = ("\t", "  ", "    ", "        ", "   ")

Change = tuple[int, int, str]
"""Start and end in the file's text, and the replacement."""


class Unclear(Exception):
    """The place of an edit is known, but not the text to write there; the message says why."""


class LinePair(Frozen):
    """A line of the old text with the matching line of the file."""

    old: str
    number: int
    low: int
    high: int


def changes(page: SearchedText, spot: Spot, old: str, new: str) -> list[Change]:
    """Return the changes to the file that replace `old` by `new` at the spot.

    Raises:
        Unclear: the new text is ambiguous there.
    """
    olds, news = _lines(old, new)
    rows, news = _aligned(page, spot, olds, news)
    return Rewriter(page, spot, rows, news).changes()


def _lines(old: str, new: str) -> tuple[list[str], list[str]]:
    """Split both texts into lines, without a newline at the end of both. If only the old one has
    it, the file must have a blank line there (`_edges`)."""
    olds, news = old.split("\n"), new.split("\n")
    if old.endswith("\n") and not new:
        return olds[:-1], []
    both = old.endswith("\n") and new.endswith("\n")
    return (olds[:-1], news[:-1]) if both else (olds, news)


def _aligned(
    page: SearchedText, spot: Spot, olds: list[str], news: list[str]
) -> tuple[list[LinePair], list[str]]:
    """Return a row for every line of the spot, including blank ones, and the new lines."""
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
    """Remove blank lines at both ends where old and new agree on them; others must be in the file.
    Return the remaining lines and the number of blank ones still at each end."""
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
        # The empty string after a file's last newline is not a line.
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
        """Whether the old text has trailing blanks that the file has not."""
        self._other_trail = any(
            mine.trail and theirs.trail and mine.trail != theirs.trail for mine, theirs in pairs
        )
        self._stripped, self._indents = self._shift(pairs)
        self._typed = _typed(pairs)

    def _piece(self, row: LinePair) -> str:
        return self._page.lines[row.number][row.low : row.high]

    def _shift(self, pairs: list[tuple[LineParts, LineParts]]) -> tuple[bool, Indents]:
        """Return whether the first line is exempt (it began in the middle of a line, or its blanks
        were lost), and how indents change."""
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
        """Raise Unclear where another alignment of old and new would give another result."""
        for tag, i1, i2, j1, j2 in codes:
            if tag in ("insert", "delete"):
                self._check_sliding(i1, i2, j1, j2)
            elif tag == "replace" and not all(map(key, self._news[j1:j2])):
                self._check_blank(range(i1, i2))
            elif tag == "equal":
                # A blank line beside a change may match another blank line of the new text.
                last = [i2 - 1] if i2 < len(self._rows) else []
                self._check_blank([i1, *last] if i1 else last)

    def _check_blank(self, numbers: Iterable[int]) -> None:
        """Raise Unclear for blank lines whose blanks in the file differ from the old text."""
        for row in (self._rows[at] for at in numbers):
            if not key(row.old) and row.old != self._piece(row):
                raise Unclear("the blanks in blank lines differ beside a change")

    def _check_sliding(self, i1: int, i2: int, j1: int, j2: int) -> None:
        """Raise Unclear if the same lines could have been added (or removed) a line further up or
        down, and a line passed over differs in the file from how it would be written."""
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
        """Return the change that replaces rows i1 to i2 by the lines, with the right newlines."""
        text = "\n".join(lines)
        if i1 == i2:  # nothing is removed
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
        """Return the new lines j1 to j2 in the file's style."""
        news = [parts(line) for line in self._news[j1:j2]]
        texts = self._texts(i1, i2, [line.text for line in news])
        lines = []
        if self._other_trail and any(line.trail for line in news):
            raise Unclear("the blanks at the ends of lines differ")
        for at, (line, text) in enumerate(zip(news, texts, strict=True), j1):
            # Inside backquotes the leading blanks of a line are content.
            is_content = self._indents.converts and self._open_quotes[at]
            if is_content and self._indents.there(line.indent) != line.indent:
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

    @cached_property
    def _open_quotes(self) -> list[bool]:
        """Whether each new line begins inside backquotes."""
        counts = (line.replace("```", "").count("`") for line in self._news)
        return [count % 2 == 1 for count in accumulate(counts, initial=0)]

    def _texts(self, i1: int, i2: int, news: list[str]) -> list[str]:
        """Return the new texts; parts shared with the rows they replace stay as in the file."""
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
            # A shared blank or bracket amid new words does not mean that it is the same text.
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
        """Return new words in plain characters if the old text wrongly had typographic ones."""
        if not self._typed:
            return text
        for char in set(text).intersection(PLAIN):
            if PLAIN[char] not in self._typed or char in self._page.text:
                raise Unclear(f"newText has {char!r}, which may be meant or not")
        return plain(text)


def _typed(pairs: list[tuple[LineParts, LineParts]]) -> set[str]:
    """Return the plain characters that are typographic in the old text, but not in the file."""
    mine = {char for old, _ in pairs for char in old.indent + old.text + old.trail}
    theirs = {char for _, there in pairs for char in there.indent + there.text + there.trail}
    foreign = (mine - theirs).intersection(PLAIN)
    typed = {plain for chars, plain in FAMILIES.items() if foreign.intersection(chars)}
    # A model that makes one kind of quotes curly does so with the other kind too.
    return typed | {"'", '"'} if typed & {"'", '"'} else typed


def _has_blank(new: list[str], codes: list[Opcode], at: int) -> bool:
    """Return whether adjacent new words contain blanks, one of which may be the file's."""
    return 0 <= at < len(codes) and any(map(str.isspace, new[codes[at][3] : codes[at][4]]))


def _tokens(mine: str, theirs: str) -> Iterator[tuple[str, str]]:
    """Yield the tokens of an old line, each with the file's counterpart; then the newline."""
    here, there = columns(mine), columns(theirs)
    for match in TOKEN.finditer(mine):
        low, high = (there[bisect_left(here, at)] if at else 0 for at in match.span())
        yield match[0], theirs[low:high]
    yield "\n", "\n"


# --- blank lines -----------------------------------------------------------------------------

NOWHERE = -1
"""In place of a line's index: there is none."""


class Gaps:
    """Carries differences in blank lines between the file and the old text over to the new text,
    where their place in it is unambiguous."""

    def __init__(self, olds: list[str], news: list[str]) -> None:
        self._olds, self._news = olds, news
        self._changed: dict[int, list[str]] = {}
        """Blank lines to insert, by the index of the new line that follows them."""

    def change(self, above: int, below: int, lines: list[str]) -> None:
        """Note that the file has the blank `lines` between these two lines of the old text."""
        where = {self._where(above, below, len(lines), links) for links in self._links}
        if len(where) > 1:
            raise Unclear("blank lines differ where lines were moved")
        for at in where - {NOWHERE}:
            self._changed[at] = lines

    def _where(self, above: int, below: int, size: int, links: dict[int, int]) -> int:
        """Return the new line before which blank lines are to be changed, or NOWHERE."""
        start, end = links.get(above), links.get(below)
        if start == end == NOWHERE:
            # Both lines and the blanks between them are gone, unless one occurs again elsewhere.
            if {key(self._olds[at]) for at in (above, below)} & set(map(key, self._news)):
                raise Unclear("blank lines differ beside a line that is there several times")
            return NOWHERE
        if start is None or end is None or NOWHERE in (start, end) or end <= start:
            return self._beside(above, below, size)
        if any(map(key, self._news[start + 1 : end])):
            return self._around_added(start, end, below - above - 1, size)
        there = end - start - 1
        if there == below - above - 1:
            return end
        sure = self._only(above) or self._only(below)
        if there == size and (sure or (self._stays(above, start) and self._stays(below, end))):
            return NOWHERE
        raise Unclear("old text, new text and file differ in their blank lines")

    def _around_added(self, start: int, end: int, old: int, size: int) -> int:
        """Return the line for blank lines in whose midst lines were added. The old blank lines are
        above or below; their number decides, if it fits only one side."""
        words = [at for at in range(start, end + 1) if key(self._news[at])]
        above, below = words[1] - start - 1, end - words[-2] - 1
        if above == old and below not in (old, size):
            return words[1]
        if below == old and above not in (old, size):
            return end
        if old not in (above, below) and size in (above, below):
            return NOWHERE
        raise Unclear("blank lines differ where lines are added")

    def _beside(self, above: int, below: int, size: int) -> int:
        """Return the line when only one of the two old lines remains: the blank lines beside it are
        meant, if the new text has as many nowhere else among its own lines."""
        old = below - above - 1
        for at, other, step in ((above, below, 1), (below, above, -1)):
            if not self._only(at) or self._only(other):
                continue
            edge = self._anchors[at]
            beside, *others = self._gaps_from(edge, step)
            if others and beside == old and old not in others:
                return edge if step == -1 else edge + beside + 1
            if others and beside == size and old not in others:
                return NOWHERE
        raise Unclear("blank lines differ where lines are added or taken away")

    def _gaps_from(self, edge: int, step: int) -> list[int]:
        """Return the number of blank lines beside a new line and between the following ones, up to
        the next line that is also in the old text."""
        gaps = [0]
        line = edge + step
        while 0 <= line < len(self._news) and line not in self._anchored:
            if key(self._news[line]):
                gaps.append(0)
            else:
                gaps[-1] += 1
            line += step
        return gaps

    def _stays(self, old: int, new: int) -> bool:
        return key(self._olds[old]) == key(self._news[new])

    def _only(self, at: int) -> bool:
        """Return whether a line of the old text is in both texts, once in each."""
        return at in self._anchors

    @cached_property
    def _anchors(self) -> dict[int, int]:
        """Old line to new line, for lines that are in both texts, once in each."""
        olds, news = ([key(line) for line in lines] for lines in (self._olds, self._news))
        once = {text for text in olds if text and olds.count(text) == news.count(text) == 1}
        return {at: news.index(text) for at, text in enumerate(olds) if text in once}

    @cached_property
    def _anchored(self) -> set[int]:
        return set(self._anchors.values())

    @cached_property
    def _links(self) -> list[dict[int, int]]:
        """Maps from old to new lines, aligned in four ways, whose results must agree: with and
        without blank lines, from the beginning and from the end."""
        olds = [at for at, line in enumerate(self._olds) if key(line)]
        news = [at for at, line in enumerate(self._news) if key(line)]
        everything = list(range(len(self._olds))), list(range(len(self._news)))
        ways = [everything, (olds, news)]
        return [self._linked(a[::step], b[::step]) for a, b in ways for step in (1, -1)]

    def _linked(self, olds: list[int], news: list[int]) -> dict[int, int]:
        links: dict[int, int] = {}
        codes = opcodes([self._olds[at] for at in olds], [self._news[at] for at in news])
        for tag, i1, i2, j1, j2 in codes:
            mine = [at for at in olds[i1:i2] if key(self._olds[at])]
            theirs = [at for at in news[j1:j2] if key(self._news[at])]
            if tag == "delete":
                links |= dict.fromkeys(mine, NOWHERE)
            elif len(mine) == len(theirs):
                links |= zip(mine, theirs, strict=True)
            elif len(mine) > 1 and theirs:
                links |= {mine[0]: theirs[0], mine[-1]: theirs[-1]}
        return links | self._anchors

    def lines(self) -> list[str]:
        result: list[str] = []
        for at, line in enumerate(self._news):
            if at in self._changed:
                while result and not key(result[-1]):
                    result.pop()
                result += self._changed[at]
            result.append(line)
        return result


# --- indents ---------------------------------------------------------------------------------


class Indents:
    """The mapping from an old text's indents to the file's, learnt from lines in both."""

    def __init__(self, pairs: list[tuple[str, str]]) -> None:
        self._typed = any(plain(mine) != mine for mine, _ in pairs)
        """Whether the old text is indented with typographic blanks."""
        pairs = [(plain(mine), theirs) for mine, theirs in pairs]
        self._sure = {mine for mine, _ in pairs} - {
            mine for mine, theirs in pairs if mine != theirs
        }
        levels: list[list[Way]] = [[str], _shifts(pairs), [*_conversions()], [*_shifted(pairs)]]
        fitting = [
            [way for way in level if all(way(mine) == theirs for mine, theirs in pairs)]
            for level in levels
        ]
        self._ways: list[Way] = next(filter(None, fitting), [])
        self.clear = bool(self._ways)
        self.converts = self.clear and not fitting[0] and not fitting[1]
        """Whether one indent unit becomes another: tabs for spaces, two for four."""
        self._blanks = {blank for _, theirs in pairs for blank in theirs}
        self._seen = dict(pairs)
        # In a file that mixes tabs and spaces, only indents that were seen are converted.
        self._mixed = any({" ", "\t"} <= set(theirs) for _, theirs in pairs)

    def there(self, indent: str) -> str:
        """Return the indent in the file. Raises Unclear if it is ambiguous."""
        if plain(indent) != indent and not self._typed:
            raise Unclear("newText is indented with typographic blanks, and oldText is not")
        indent = plain(indent)
        results = {way(indent) for way in self._ways}
        if not self._ways and indent in self._sure:
            return indent  # only other indents differ
        result = results.pop() if len(results) == 1 else None
        foreign = bool(result) and self._blanks.isdisjoint(result or "")
        unseen = self._mixed and indent not in self._seen
        if result is None or (self.converts and (foreign or unseen)):
            raise Unclear("the indent of newText cannot be told from that of oldText")
        return result


Way = Callable[[str], str | None]
"""Maps an indent to another; returns None where it does not apply."""


def _shifts(pairs: list[tuple[str, str]]) -> list[Way]:
    """Return the ways in which all lines are indented more, or less, by the same blanks."""
    mine, theirs = min(pairs, key=lambda pair: len(pair[0]), default=("", ""))
    if theirs.endswith(mine):
        more = theirs[: len(theirs) - len(mine)]
        return [lambda indent: more + indent]
    if mine.endswith(theirs):
        less = mine[: len(mine) - len(theirs)]
        return [lambda indent: indent[len(less) :] if indent.startswith(less) else None]
    return []


def _conversions() -> Iterator[Callable[[str], str]]:
    """Yield ways that replace each indent unit by another: four spaces by a tab, two by four."""
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
    """Yield ways that replace the indent unit and then shift."""
    for convert in _conversions():
        for shift in _shifts([(convert(mine), theirs) for mine, theirs in pairs]):
            yield partial(_both, convert, shift)


def _both(convert: Callable[[str], str], shift: Way, indent: str) -> str | None:
    return shift(convert(indent))
