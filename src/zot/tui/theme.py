"""Turns the words of a style into escape codes."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from msgspec import Struct, field

from zot.tui import pictures
from zot.tui.cells import Line

if TYPE_CHECKING:
    from zot.tui.links import FileLinks

RESET = "\x1b[m"
PROMPT_MARK = "\x1b]133;A\x1b\\"
"""Lets a terminal jump between turns (OSC 133); written for a style's word `turn`."""

# The terminal's own sixteen colours, which its user chose: readable on light and dark.
PLAIN: dict[str, str] = {
    "bold": "1",
    "dim": "2",
    "italic": "3",
    "underline": "4",
    "reverse": "7",
    "strike": "9",
    "user": "1",
    "prompt": "1;36",
    "heading": "1;35",
    "code": "36",
    "link": "4;34",
    "quote": "2;3",
    "bullet": "36",
    "accent": "36",
    "ok": "32",
    "warn": "33",
    "error": "31",
    "tool": "1",
    "add": "32",
    "del": "31",
    "hunk": "36",
    "number": "2",
    "selected": "7",
    "match": "1;33",
    "thinking": "2;3",
    "status": "2",
    "chip": "35",
    "tok.keyword": "35",
    "tok.string": "32",
    "tok.number": "36",
    "tok.comment": "2;3",
    "tok.name": "34",
    "tok.type": "33",
    "tok.operator": "",
}


class Theme(Struct, frozen=True):
    """SGR parameters of each word of a style."""

    styles: Mapping[str, str] = field(default_factory=lambda: PLAIN)
    colour: bool = True
    """False: only bold, italics, underlines and reverse are left (NO_COLOR)."""
    links: bool = True

    def sgr(self, style: str) -> str:
        """Return the parameters for a style; empty for the terminal's default."""
        parts = [self.styles.get(word, "") for word in style.split(" ") if word[:5] not in _LINKS]
        numbers = [number for part in parts for number in part.split(";") if number]
        return ";".join(numbers if self.colour else _without_colour(numbers))


_LINKS = ("href:", "file:")
_ATTRIBUTES = frozenset("123479")


def _without_colour(numbers: list[str]) -> list[str]:
    kept = []
    rest = iter(numbers)
    for number in rest:
        if number in ("38", "48"):  # a colour follows: 5 and one number, or 2 and three
            for _ in range(1 if next(rest, "") == "5" else 3):
                next(rest, None)
        elif number in _ATTRIBUTES:
            kept.append(number)
    return kept


class Painter:
    """Turns lines into text with escape codes. Caches the codes of each style."""

    def __init__(self, theme: Theme, links: FileLinks | None = None) -> None:
        """`links`: finds addresses of files; None: no links."""
        self.theme = theme
        self.links = links
        self._known: dict[str, tuple[str, str]] = {"": ("", "")}

    def line(self, line: Line) -> str:
        """Return the line, ending in the default style."""
        out: list[str] = []
        for style, text in line:
            before, after = self._known.get(style) or self._learn(style)
            out += (before, text, after)
        return "".join(out)

    def _learn(self, style: str) -> tuple[str, str]:
        if style.startswith("picture:"):
            return pictures.drawn(style), ""  # not cached: it is written once
        sgr = self.theme.sgr(style)
        before, after = (f"\x1b[{sgr}m", RESET) if sgr else ("", "")
        if "turn" in style.split(" "):
            before = f"{PROMPT_MARK}{before}"
        word = next((word for word in style.split(" ") if word[:5] in _LINKS), "")
        if word:
            if address := self._address(word):
                before = f"{before}\x1b]8;;{address}\x1b\\"
                after = f"\x1b]8;;\x1b\\{after}"
            return before, after  # not cached: the number of addresses is unlimited
        self._known[style] = before, after
        return before, after

    def _address(self, word: str) -> str:
        if not self.theme.links:
            return ""
        if word.startswith("href:"):
            return word[5:]
        return self.links.address(word) if self.links is not None else ""
