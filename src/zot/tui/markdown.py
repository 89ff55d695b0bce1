"""Markdown as lines, also while it is written: final blocks settle, and only the last block is
parsed and drawn again. Every prefix of every text can be drawn.
"""

from __future__ import annotations

import re

from zot.tui.blocks import LiveBlock
from zot.tui.cells import EMPTY, Line, clean, indented, wrap
from zot.tui.code import Highlighter
from zot.tui.document import Document, ListCut
from zot.tui.links import linked

_FENCE = re.compile(r"^ {0,3}(`{3,}|~{3,})[ \t]*([^\s`]*)")
_PROSE = re.compile(r"[^\W\d_][^*_`\[\]<>&\\|~!\n]*")
"""Start of a paragraph without markup."""
_NEXT_BLOCK = re.compile(r"\n[ \t]*\n[^\s>]")
LARGE = 1_000
"""Characters above which an open block is parsed again only after growing by an eighth; otherwise
the work per word would grow with the text before it."""
MAX_LIVE = 8_000
"""Characters above which an open block is shown as source until it ends."""
MAX_OPEN = 50_000
"""Characters above which an open block settles as it is."""


class MarkdownBlock(LiveBlock):
    """The text of an answer."""

    def __init__(self, text: str = "", *, closed: bool = False, spoken: bool = False) -> None:
        self.closed = closed
        self.spoken = spoken
        """True in line mode: tables become sentences."""
        self.text = text
        self._rest = text
        """Text that has not settled."""
        self._scanned = 0
        """Length of the part of it already parsed, up to a line feed."""
        self._wrote = False
        self._list: ListCut | None = None
        """State of the list whose first items have settled."""
        self._fence: _OpenFence | None = None
        self._drawn: tuple[tuple[int, ...], list[Line]] = ((), [])
        self._parsed: tuple[tuple[int, int], int, list[Line]] = ((0, 0), 0, [])
        """Open block: its (offset, width), the characters drawn so far, and their lines."""

    def add(self, text: str) -> None:
        self.text += text
        self._rest += text

    def close(self) -> None:
        self.closed = True

    # --- what is final -----------------------------------------------------------------------

    def settle(self, width: int) -> list[Line]:
        lines: list[Line] = []
        while True:
            before = len(self._rest)
            lines += self._settle_code(width) if self._fence else self._settle_blocks(width)
            if len(self._rest) == before:
                break
        return lines

    def _settle_code(self, width: int) -> list[Line]:
        """Settle code line by line."""
        assert self._fence is not None
        lines: list[Line] = []
        while self._fence is not None:
            code, feed, rest = self._rest.partition("\n")
            if not feed and not (self.closed and code):
                break
            self._rest = rest
            if self._fence.is_end(code):
                self._fence = None
            else:
                lines += self._fence.lines(code, width)
        self._scanned = 0
        return lines

    def _settle_blocks(self, width: int) -> list[Line]:
        end = len(self._rest) if self.closed else self._rest.rfind("\n") + 1
        if not self._rest or not (self.closed or self._is_due(self._scanned, end)):
            return []
        self._scanned = end
        document = Document(self._rest[:end])  # an incomplete line may become anything
        cut = end if self.closed or end > MAX_OPEN else document.final
        fence = document.open_fence
        if fence is not None:
            cut = min(cut, fence)
        lines = self._drawn_part(document.before(cut), width) if cut else []
        if cut:
            self._list = document.cut_in_list(cut, self._list)
        # The rest is one block, or one item of a list: parsing again would settle nothing.
        self._rest, self._scanned = self._rest[cut:], end - cut
        if fence is not None:
            self._scanned = 0
            lines += self._open_code(separate=bool(self._wrote))
        return lines

    def _is_due(self, seen: int, end: int) -> bool:
        """Return whether to parse the open text again, of which `seen` characters were parsed."""
        if end - seen > max(0, seen - LARGE) // 8:
            return True
        return end > seen and _NEXT_BLOCK.search(self._rest, max(0, seen - 2), end) is not None

    def _open_code(self, *, separate: bool) -> list[Line]:
        head, feed, rest = self._rest.partition("\n")
        match = _FENCE.match(head)
        may_be_table = "|" in head and "\n" not in rest  # depends on the line below
        if match is None or not (feed and not may_be_table or self.closed):
            self._scanned = len(self._rest)
            return []
        self._fence = _OpenFence(match[1], match[2])
        self._rest = rest
        self._wrote = True
        return [EMPTY] if separate else []

    def _drawn_part(self, document: Document, width: int) -> list[Line]:
        lines = self._separated(document, width)
        self._wrote = self._wrote or bool(lines)
        return lines

    def _separated(self, document: Document, width: int) -> list[Line]:
        """Return the document's lines, after a blank one unless they continue a list."""
        before = self._list if document.begins_with_list else None
        lines = document.lines(width, before.number if before else None, spoken=self.spoken)
        goes_on = before is not None and not before.is_loose
        return [EMPTY, *lines] if lines and self._wrote and not goes_on else lines

    # --- what is not -------------------------------------------------------------------------

    def live(self, width: int, height: int) -> list[Line]:
        key = (len(self.text), len(self._rest), width, height)
        if self._drawn[0] != key:
            self._drawn = (key, self._live(width, height)[-height:])
        return self._drawn[1]

    def _live(self, width: int, height: int) -> list[Line]:
        if self._fence is not None:
            return self._fence.lines(self._rest, width, last=False) if self._rest else []
        if not self._rest.strip():
            return []
        if len(self._rest) > MAX_LIVE:
            return wrap([("", _end_of(self._rest, width, height))], width)
        place = (len(self.text) - len(self._rest), width)
        if self._parsed[0] != place or self._is_due(self._parsed[1], len(self._rest)):
            self._parsed = (place, len(self._rest), self._open_lines(width))
        return self._with_tail(width, height)

    def _open_lines(self, width: int) -> list[Line]:
        if _PROSE.fullmatch(self._rest) and self._list is None:
            # No markup: skip the parser.
            lines = wrap(linked("", clean(self._rest), shown="link"), width)
            return [EMPTY, *lines] if self._wrote else lines
        return self._separated(Document(self._rest), width)

    def _with_tail(self, width: int, height: int) -> list[Line]:
        """Return the drawn lines of the open block, followed by newer words as plain text."""
        _, seen, lines = self._parsed
        tail = _end_of(self._rest[seen:], width, height)
        if not tail:
            return lines
        goes_on = bool(lines) and self._rest[seen - 1] != "\n"
        begun = lines[-1] if goes_on else EMPTY
        return [*(lines[:-1] if goes_on else lines), *wrap([*begun, ("", tail)], width)]

    def lines(self, width: int, *, folded: bool = True) -> list[Line]:
        return MarkdownBlock(self.text, closed=True).settle(width)


def _end_of(text: str, width: int, height: int) -> str:
    """Return as much of the end of the text as fits."""
    lines = text.rstrip("\n")[-(height + 1) * width :].split("\n")
    return clean("\n".join(lines[-height:]))


class _OpenFence:
    """A code block whose end has not arrived."""

    def __init__(self, mark: str, language: str) -> None:
        self._mark = mark
        self._highlighter = Highlighter(clean(language))

    def is_end(self, line: str) -> bool:
        bare = line.strip()
        return len(bare) >= len(self._mark) and set(bare) == {self._mark[0]}

    def lines(self, code: str, width: int, *, last: bool = True) -> list[Line]:
        return indented(self._highlighter.line(code, last=last), width)
