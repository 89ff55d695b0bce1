"""Markdown as lines, also while it is written: `MarkdownBlock` settles final blocks, and parses and
draws only the last one again; `Document` is a parsed text. Every prefix of every text can be drawn.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Literal

from markdown_it import MarkdownIt
from markdown_it.token import Token
from msgspec import Struct

from zot.tui.blocks import LiveBlock
from zot.tui.cells import EMPTY, Line, Span, cells, clean, clip, indented, joined, plain, wrap
from zot.tui.code import Highlighter
from zot.tui.links import linked
from zot.tui.math import TOKEN, formula_text, math_rule

_PARSER = MarkdownIt("commonmark").enable(["table", "strikethrough"])
_PARSER.inline.ruler.before("escape", TOKEN, math_rule)
_LINKED = ("http://", "https://", "mailto:", "file://")
MAX_NESTING = 20
_WORDS = {"strong": "bold", "em": "italic", "s": "strike"}
BETWEEN = " │ "
"""Between the columns of a table."""
_TASK = re.compile(r"\[([ xX])\] ")
_FOOTNOTE = re.compile(r"\[\^([\w-]{1,40})\](:?)")
Align = Literal["left", "center", "right"]
NARROWEST = 4
NARROWEST_TEXT = 2
"""Minimum cells for the text of a list or a quote; its marks are dropped if necessary."""
_FENCE = re.compile(r"^ {0,3}(`{3,}|~{3,})[ \t]*([^\s`]*)")
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
        lines: list[Line] = []
        if cut:
            done = document if cut >= end else Document(self._rest[:cut])
            lines = self._separated(done, width)
            self._wrote = self._wrote or bool(lines)
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
            lines = self._separated(Document(self._rest), width)
            self._parsed = (place, len(self._rest), lines)
        return self._with_tail(width, height)

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


class ListCut(Struct, frozen=True):
    """State of a list that is settled in part."""

    number: int | None
    """Number of the next item; None: the list is not numbered."""
    is_loose: bool
    """True if there are blank lines between its items."""


class Document:
    """A parsed text."""

    def __init__(self, source: str) -> None:
        self._source = source
        self._tokens = _PARSER.parse(source)
        self._starts = [0]
        """Offset of each line of the source."""
        for line in source.split("\n"):
            self._starts.append(self._starts[-1] + len(line) + 1)

    # --- how far it is settled ---------------------------------------------------------------

    @property
    def final(self) -> int:
        """Characters that later text cannot change: all but the last block; of a list, all but its
        last item."""
        tops = self._tops()
        if not tops:
            return 0
        last = tops[-1]
        if last.type.endswith("list_open"):
            starts = self._item_starts()
            return starts[-1] if starts else 0
        return self._at(last.map[0]) if last.map else 0

    def _item_starts(self) -> list[int]:
        """Return the offsets of the items of all outer lists."""
        items = [t for t in self._tokens if t.type == "list_item_open" and t.level == 1]
        return [self._at(item.map[0]) for item in items if item.map]

    @property
    def open_fence(self) -> int | None:
        """Offset of the last block if it is an unclosed code block, else None."""
        tops = self._tops()
        if not tops or tops[-1].type != "fence" or tops[-1].map is None:
            return None
        start, end = tops[-1].map
        lines = self._source[self._at(start) : self._at(end)].rstrip("\n").split("\n")
        mark = tops[-1].markup
        closed = len(lines) > 1 and lines[-1].strip().startswith(mark)
        return None if closed and not lines[-1].strip().strip(mark[:1]) else self._at(start)

    def _tops(self) -> list[Token]:
        return [token for token in self._tokens if token.level == 0 and token.map is not None]

    def _at(self, line: int) -> int:
        return min(self._starts[line], len(self._source))

    def cut_in_list(self, cut: int, before: ListCut | None) -> ListCut | None:
        """Return the state of the list if the cut is between two items of the last block."""
        tops = self._tops()
        if not tops or not tops[-1].type.endswith("list_open") or tops[-1].map is None:
            return None
        top = self._at(tops[-1].map[0])
        if not top < cut < len(self._source.rstrip()):
            return None
        done = sum(1 for start in self._item_starts() if top <= start < cut)
        is_numbered = tops[-1].type == "ordered_list_open"
        first = int(tops[-1].attrGet("start") or 1)
        if before is not None and before.number is not None and len(tops) == 1:
            first = before.number
        is_loose = self._source[:cut].rstrip(" \t").endswith("\n\n")
        return ListCut(first + done if is_numbered else None, is_loose)

    @property
    def begins_with_list(self) -> bool:
        return bool(self._tokens) and self._tokens[0].type.endswith("list_open")

    # --- lines -------------------------------------------------------------------------------

    def lines(self, width: int, number: int | None = None, *, spoken: bool = False) -> list[Line]:
        """Return all lines; `number` is that of the first item of a numbered list that begins here.
        `spoken`: tables become sentences."""
        return _Drawing(self._tokens, max(4, width), number, spoken=spoken).all()


class _Drawing:
    def __init__(
        self, tokens: Sequence[Token], width: int, number: int | None, *, spoken: bool
    ) -> None:
        self._tokens = tokens
        self._spoken = spoken
        self._width = width
        self._number = number
        self._place = 0

    def all(self) -> list[Line]:
        lines: list[Line] = []
        while self._place < len(self._tokens):
            block = self._block(self._width, 0)
            if block:
                lines += [EMPTY, *block] if lines else block
        return lines

    def _next(self) -> Token:
        token = self._tokens[self._place]
        self._place += 1
        return token

    def _block(self, width: int, depth: int) -> list[Line]:
        """Return the lines of the block that begins here; its closing token is not consumed."""
        token = self._next()
        match token.type:
            case "paragraph_open":
                return wrap(self._inline(), width)
            case "heading_open":
                style = "heading underline" if token.tag == "h1" else "heading"
                return wrap(self._inline(style), width)
            case "fence" | "code_block":
                return _code(token, width)
            case "bullet_list_open" | "ordered_list_open":
                return self._list(token, width, depth)
            case "blockquote_open":
                return self._quote(width, depth)
            case "table_open":
                return self._table(width)
            case "hr":
                return [(("rule", "─" * min(width, 40)),)]
            case "html_block":
                return wrap([("dim", clean(token.content.rstrip("\n")))], width)
            case "inline":
                return wrap(spans_of(token, ""), width)
            case _:
                return []  # a closing token

    def _inline(self, style: str = "") -> list[Span]:
        spans = spans_of(self._next(), style)
        self._next()  # the closing token
        return spans

    def _inside(self, end: str, width: int, depth: int, *, tight: bool) -> list[Line]:
        """Return the lines of the blocks up to the closing token, which is consumed."""
        lines: list[Line] = []
        while self._place < len(self._tokens):
            if self._tokens[self._place].type == end:
                self._place += 1
                break
            block = self._block(width, depth)
            if block:
                lines += block if tight or not lines else [EMPTY, *block]
        return lines

    def _list(self, token: Token, width: int, depth: int) -> list[Line]:
        is_numbered = token.type == "ordered_list_open"
        number = int(token.attrGet("start") or 1) if is_numbered else None
        if is_numbered and self._number is not None and token.level == 0:
            number, self._number = self._number, None
        end = token.type.replace("open", "close")
        lines: list[Line] = []
        while self._place < len(self._tokens) and self._tokens[self._place].type != end:
            item = self._next()
            if item.type != "list_item_open":
                continue
            mark = f"{number}. " if number is not None else "• "
            number = None if number is None else number + 1
            tight = self._paragraphs_hidden()
            lines += [EMPTY] if lines and not tight else []
            lines += self._item(mark, width, depth)
        self._place += 1
        return lines

    def _paragraphs_hidden(self) -> bool:
        """Return whether the list is tight, without space around its paragraphs."""
        following = self._tokens[self._place] if self._place < len(self._tokens) else None
        return following is None or following.type != "paragraph_open" or following.hidden

    def _item(self, mark: str, width: int, depth: int) -> list[Line]:
        if depth >= MAX_NESTING or width - len(mark) < NARROWEST_TEXT:
            mark = ""
        room = width - len(mark)
        box = self._task_box() if mark == "• " else ""
        body = self._inside("list_item_close", room, depth + 1, tight=True) or [EMPTY]
        first = (("bullet", box or mark), *body[0])
        rest = [(("", " " * len(mark)), *line) if line else EMPTY for line in body[1:]]
        return [clip(line, width) for line in (first, *rest)]

    def _task_box(self) -> str:
        """Return the box of a task (`- [x] done`), and take its mark out of the text."""
        for token in self._tokens[self._place : self._place + 2]:
            first = token.children[0] if token.type == "inline" and token.children else None
            if first is not None and (task := _TASK.match(first.content)):
                first.content = first.content[task.end() :]
                return "☐ " if task[1] == " " else "☑ "
        return ""

    def _quote(self, width: int, depth: int) -> list[Line]:
        if depth >= MAX_NESTING or width - 2 < NARROWEST_TEXT:
            return self._inside("blockquote_close", width, depth + 1, tight=False)
        body = self._inside("blockquote_close", width - 2, depth + 1, tight=False)
        return [clip((("quote", "│ "), *_restyled(line, "quote")), width) for line in body]

    # --- tables ------------------------------------------------------------------------------

    def _table(self, width: int) -> list[Line]:
        rows: list[list[list[Span]]] = []
        aligned: list[Align] = []
        heads = 0
        while self._place < len(self._tokens):
            token = self._next()
            if token.type == "table_close":
                break
            if token.type == "tr_open":
                rows.append([])
            elif token.type == "th_open":
                aligned.append(_alignment(token))
            elif token.type == "thead_close":
                heads = len(rows)
            elif token.type == "inline" and rows:
                rows[-1].append(spans_of(token, "" if heads else "bold"))
        if self._spoken:
            return _sentences(rows, heads)
        return table_lines(rows, heads, width, aligned)


def _alignment(token: Token) -> Align:
    style = str(token.attrGet("style") or "")
    return "right" if "right" in style else "center" if "center" in style else "left"


def table_lines(
    rows: list[list[list[Span]]], heads: int, width: int, aligned: Sequence[Align] = ()
) -> list[Line]:
    """Draw columns side by side, as wide as their content or as there is room for. Rows of several
    lines are separated."""
    columns = max((len(row) for row in rows), default=0)
    if not columns:
        return []
    widths = _column_widths(rows, columns, width)
    missing: list[Align] = ["left"] * columns
    aligned = [*aligned, *missing][:columns]
    drawn = [_row_lines(row, widths, aligned) for row in rows]
    is_tall = any(len(row) > 1 for row in drawn[heads:])
    rule: Line = (
        ("rule", BETWEEN.replace(" ", "─").replace("│", "┼").join("─" * w for w in widths)),
    )
    lines: list[Line] = []
    for index, row in enumerate(drawn):
        if index and (index == heads or is_tall):
            lines.append(rule)
        lines += row
    return [clip(line, width) for line in lines]


def _row_lines(row: list[list[Span]], widths: list[int], aligned: Sequence[Align]) -> list[Line]:
    filled = [*row, *[[] for _ in range(len(widths) - len(row))]]
    parts = [wrap(cell, size) for cell, size in zip(filled, widths, strict=True)]
    lines: list[Line] = []
    for number in range(max(len(part) for part in parts)):
        cut = [part[number] if number < len(part) else EMPTY for part in parts]
        lines.append(_row(cut, widths, aligned))
    return lines


def _sentences(rows: list[list[list[Span]]], heads: int) -> list[Line]:
    """Return each row as `header: value, header: value`."""
    names = [plain(cell) for cell in rows[0]] if heads else []
    lines: list[Line] = []
    for row in rows[heads:]:
        texts = [plain(cell) for cell in row]
        named = [f"{name}: {text}" for name, text in zip(names, texts, strict=False)] or texts
        lines.append((("", ", ".join(named)),))
    return lines


def _row(parts: list[Line], widths: list[int], aligned: Sequence[Align]) -> Line:
    spans: list[Span] = []
    for index, (part, size, align) in enumerate(zip(parts, widths, aligned, strict=True)):
        spans += [("rule", BETWEEN)] * bool(index)
        free = max(0, size - cells(plain(part)))
        before = {"left": 0, "center": free // 2, "right": free}[align]
        is_last = index == len(parts) - 1
        after = 0 if is_last else free - before
        spans += [("", " " * before), *part, ("", " " * after)]
    return joined(spans)


def _column_widths(rows: list[list[list[Span]]], columns: int, width: int) -> list[int]:
    natural = [
        max([NARROWEST, *(cells(plain(row[index])) for row in rows if index < len(row))])
        for index in range(columns)
    ]
    room = max(columns, width - len(BETWEEN) * (columns - 1))
    while sum(natural) > room and max(natural) > 1:
        widest = natural.index(max(natural))
        excess = sum(natural) - room
        second = max([1, *(size for size in natural if size < natural[widest])])
        natural[widest] -= max(1, min(excess, natural[widest] - second))
    return natural


def _restyled(line: Line, style: str) -> Line:
    return tuple((f"{own} {style}" if own else style, text) for own, text in line)


def _code(token: Token, width: int) -> list[Line]:
    highlighter = Highlighter(clean(token.info.split()[0]) if token.info.split() else "")
    lines: list[Line] = []
    for text in token.content.rstrip("\n").split("\n"):
        lines += indented(highlighter.line(text), width)
    return lines


def spans_of(token: Token, style: str) -> list[Span]:
    """Return the text of an inline token, with emphasis, code and links."""
    words = [style] if style else []
    spans: list[Span] = []
    for child in token.children or ():
        name = child.type.removesuffix("_open").removesuffix("_close")
        if name in _WORDS or name == "link":
            if child.type.endswith("_open"):
                words.append(_WORDS.get(name) or _link(child))
            elif words:
                words.pop()
        elif child.type in ("softbreak", "hardbreak"):
            spans.append(("", "\n"))
        elif child.type == "code_inline":
            spans += _linked(" ".join([*words, "code"]), clean(child.content))
        elif child.type == "image":
            source = str(child.attrGet("src") or "")
            alternative = clean(child.content or source.rpartition("/")[2]) or "image"
            spans.append((" ".join([*words, "link"]), f"[{alternative}]"))
        elif child.type == TOKEN:
            spans.append((" ".join([*words, "italic"]), clean(formula_text(child.content))))
        else:
            spans += _linked(" ".join(words), _FOOTNOTE.sub(r"[\1]", clean(child.content)))
    return spans


def _linked(style: str, text: str) -> list[Span]:
    """Turn addresses into links, unless the text is part of one."""
    return [(style, text)] if "href:" in style else linked(style, text, shown="link")


def _link(token: Token) -> str:
    address = str(token.attrGet("href") or "")
    if not address.startswith(_LINKED) or not address.isascii() or not address.isprintable():
        return "link"
    return f"link href:{address}" if " " not in address else "link"
