"""Decides which blank lines to write when old text, new text and file differ in them."""

from __future__ import annotations

from functools import cached_property

from zot.tools.edit.lenient import key
from zot.tools.edit.textdiff import opcodes


class Unclear(Exception):
    """The place of an edit is known, but not the text to write there; the message says why."""


NOWHERE = -1


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
