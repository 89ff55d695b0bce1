"""Colours: the words of a style become escape codes. Themes as people write them:

    {"styles": {"heading": "bold #ff9e3b", "code": "cyan", "error": "white on red"}}

A file may have `dark` and `light` beside or instead of `styles`, for what differs.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from msgspec import Struct, field

from zot.errors import ConfigError
from zot.text import nearest
from zot.tui import pictures
from zot.tui.cells import FILL, Line
from zot.tui.themes import ON_TINT, PLAIN, TINTED

if TYPE_CHECKING:
    from zot.tui.links import FileLinks

RESET = "\x1b[m"
ERASE_LINE = "\x1b[K"
PROMPT_MARK = "\x1b]133;A\x1b\\"
"""Lets a terminal jump between turns (OSC 133); written for a style's word `turn`."""


class Theme(Struct, frozen=True):
    """SGR parameters of each word of a style."""

    styles: Mapping[str, str] = field(default_factory=lambda: _PLAIN)
    on_tint: Mapping[str, str] = field(default_factory=lambda: _ON_TINT)
    """Parameters of words on a row with a background, where they differ."""
    colour: bool = True
    """False: only bold, italics, underlines and reverse are left (NO_COLOR)."""
    links: bool = True

    def sgr(self, style: str) -> str:
        """Return the parameters for a style; empty for the terminal's default."""
        words = [word for word in style.split(" ") if word[:5] not in _LINKS]
        tinted = self.on_tint if self.on_tint and not TINTED.isdisjoint(words) else {}
        parts = [tinted.get(word) or self.styles.get(word, "") for word in words]
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
        if style.endswith(FILL) and sgr:
            before += ERASE_LINE  # with the background, to the end of the line
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


# --- themes in words -----------------------------------------------------------------------

NAMES = ("black", "red", "green", "yellow", "blue", "magenta", "cyan", "white")
_WORDS = {
    "bold": "1", "dim": "2", "italic": "3", "underline": "4", "reverse": "7", "strike": "9",
    "default": "39", "plain": "",
}  # fmt: skip


def theme_of(styles: Mapping[str, object], *, colours: int, colour: bool = True) -> Theme:
    """Return a theme with these styles over the built-in ones. `colours`: how many the terminal
    has.

    Raises:
        ConfigError: there is no such style or colour.
    """
    known = dict(_PLAIN)
    for name, words in styles.items():
        if name not in PLAIN:
            near = nearest(name, PLAIN)
            hint = f" (did you mean {near[0]}?)" if near else ""
            raise ConfigError(f"there is no style {name!r}{hint}")
        if not isinstance(words, str):
            raise ConfigError(f"the style {name!r} must be a text, not {words!r}")
        known[name] = _parameters(name, words, colours)
    own = {name: sgr for name, sgr in _ON_TINT.items() if name not in styles}
    return Theme(known, own, colour=colour)


def _parameters(name: str, words: str, colours: int) -> str:
    numbers: list[str] = []
    ground = 30
    for word in words.split():
        if word == "on":
            ground = 40
        elif word in _WORDS:
            numbers.append(_WORDS[word])
        else:
            numbers.append(_colour(name, word, ground, colours))
            ground = 30
    return ";".join(number for number in numbers if number)


def _colour(name: str, word: str, ground: int, colours: int) -> str:
    bright = word.startswith("bright-")
    if word.removeprefix("bright-") in NAMES:
        return str(ground + 60 * bright + NAMES.index(word.removeprefix("bright-")))
    if word.isdecimal() and int(word) < 256:
        return f"{ground + 8};5;{word}"
    digits = word.removeprefix("#")
    if len(word) == 7 and len(digits) == 6 and all(d in "0123456789abcdef" for d in digits.lower()):
        red, green, blue = (int(digits[i : i + 2], 16) for i in (0, 2, 4))
        if colours > 256:
            return f"{ground + 8};2;{red};{green};{blue}"
        return f"{ground + 8};5;{_nearest_of_256(red, green, blue)}"
    raise ConfigError(f"the style {name!r}: {word!r} is no colour; try cyan, bright-red or #ff8800")


def _nearest_of_256(red: int, green: int, blue: int) -> int:
    """Return the nearest colour of the 6 x 6 x 6 cube."""
    levels = [
        min(5, round(max(0, part - 35) / 40)) if part > 47 else 0 for part in (red, green, blue)
    ]
    return 16 + 36 * levels[0] + 6 * levels[1] + levels[2]


def is_light(reply: str) -> bool | None:
    """Return whether the terminal's reply reports a light background; None: it is another reply."""
    if not reply.startswith("]11;rgb:"):
        return None
    parts = reply[8:].split("/")
    try:
        red, green, blue = (int(part, 16) / (16 ** len(part) - 1) for part in parts)
    except (ValueError, ZeroDivisionError):
        return None
    return bool(0.299 * red + 0.587 * green + 0.114 * blue > 0.5)


_PLAIN: dict[str, str] = {name: _parameters(name, words, 256) for name, words in PLAIN.items()}
_ON_TINT: dict[str, str] = {name: _parameters(name, words, 256) for name, words in ON_TINT.items()}
