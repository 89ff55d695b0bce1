"""Inline pictures: their size, and the sequences of kitty and iTerm2. Terminals that are not known
to understand these get nothing.
"""

from __future__ import annotations

import base64
from collections.abc import Mapping
from typing import Literal

from msgspec import Struct

from zot.tui.cells import Line
from zot.tui.terminal import through_tmux

ImageProtocol = Literal["kitty", "iterm"]
MAX_BYTES = 1_000_000
"""Maximum bytes of a picture written to a terminal; a larger one is only named."""
MAX_COLUMNS, MAX_ROWS = 60, 14
CELL_WIDTH, CELL_HEIGHT = 8, 16
"""Assumed size of a cell in pixels; terminals scale the picture into its cells."""
CHUNK = 4096
"""Characters of base64 in one of kitty's sequences."""
_KITTY = ("ghostty",)
_ITERM = ("iTerm.app", "WezTerm", "mintty")


class InlineImage(Struct, frozen=True):
    """A picture that is drawn once, below its block."""

    data: bytes
    protocol: ImageProtocol
    in_tmux: bool = False

    def lines(self, width: int) -> list[Line]:
        """Return blank rows; the last one carries the picture, which is drawn from there upwards
        once all its rows are on the screen. Empty if it cannot be shown."""
        size = image_size(self.data)
        is_png = self.data.startswith(b"\x89PNG")
        if size is None or len(self.data) > MAX_BYTES or (self.protocol == "kitty" and not is_png):
            return []
        columns, rows = fitted(size, width)
        text = base64.b64encode(self.data).decode()
        way = f"{self.protocol}{'+tmux' if self.in_tmux else ''}"
        return [*[()] * (rows - 1), ((f"picture:{way},{columns},{rows},{text}", " "),)]


def fitted(size: tuple[int, int], width: int) -> tuple[int, int]:
    """Return columns and rows for a picture of `size` pixels, keeping its aspect ratio."""
    wide, high = max(1, size[0]), max(1, size[1])
    columns = max(1, min(-(-wide // CELL_WIDTH), MAX_COLUMNS, width))
    rows = -(-columns * CELL_WIDTH * high // (wide * CELL_HEIGHT))
    if rows > MAX_ROWS:
        rows = MAX_ROWS
        columns = max(1, min(columns, rows * CELL_HEIGHT * wide // (high * CELL_WIDTH)))
    return columns, max(1, rows)


def protocol_of(environ: Mapping[str, str], wanted: str = "auto") -> ImageProtocol | None:
    """Return the terminal's picture protocol; None: none, or unknown. Inside tmux and similar
    programs only an explicit choice counts."""
    if wanted in ("kitty", "iterm"):
        return "kitty" if wanted == "kitty" else "iterm"
    term, program = environ.get("TERM", ""), environ.get("TERM_PROGRAM", "")
    if wanted == "off" or in_multiplexer(environ):
        return None
    if term in ("xterm-kitty", "xterm-ghostty") or "KITTY_WINDOW_ID" in environ:
        return "kitty"
    if program in _KITTY:
        return "kitty"
    if program in _ITERM or environ.get("LC_TERMINAL") == "iTerm2":
        return "iterm"
    return None


def in_multiplexer(environ: Mapping[str, str]) -> bool:
    return (
        any(name in environ for name in ("TMUX", "STY", "ZELLIJ"))
        or environ.get("TERM", "").partition("-")[0] in ("screen", "tmux")
        or environ.get("TERM_PROGRAM") == "tmux"
    )


def drawn(word: str) -> str:
    """Return the sequence for a style's word `picture:...`; it restores the cursor."""
    way, columns, rows, text = word.removeprefix("picture:").split(",", 3)
    protocol, _, tmux = way.partition("+")
    if protocol == "kitty":
        sequence = _kitty(columns, rows, text)
    else:
        size = len(text) * 3 // 4
        sequence = (
            f"\x1b]1337;File=inline=1;size={size};width={columns};height={rows};"
            f"preserveAspectRatio=1;doNotMoveCursor=1:{text}\x07"
        )
    if tmux:
        sequence = through_tmux(sequence)
    up = f"\x1b[{int(rows) - 1}A" if rows != "1" else ""
    return f"\x1b7{up}{sequence}\x1b8"


def _kitty(columns: str, rows: str, text: str) -> str:
    pieces = [text[start : start + CHUNK] for start in range(0, len(text), CHUNK)]
    parts = []
    for index, piece in enumerate(pieces):
        more = f"m={int(index + 1 < len(pieces))}"
        # Show a PNG in so many cells, keep the cursor, request no reply.
        head = f"a=T,f=100,C=1,q=2,c={columns},r={rows},{more}" if index == 0 else f"q=2,{more}"
        parts.append(f"\x1b_G{head};{piece}\x1b\\")
    return "".join(parts)


# --- how large a picture is ------------------------------------------------------------------


def image_size(data: bytes) -> tuple[int, int] | None:
    """Return width and height in pixels from a PNG, JPEG, GIF or WebP header; None: unknown."""
    try:
        if data.startswith(b"\x89PNG\r\n\x1a\n"):
            size = _number(data[16:20], "big"), _number(data[20:24], "big")
        elif data.startswith((b"GIF87a", b"GIF89a")):
            size = _number(data[6:8], "little"), _number(data[8:10], "little")
        elif data.startswith(b"RIFF") and data[8:12] == b"WEBP":
            size = _webp_size(data)
        else:
            size = _jpeg_size(data)
    except IndexError:
        return None
    return size if all(size) else None


def _number(data: bytes, order: Literal["big", "little"]) -> int:
    if not data:
        raise IndexError
    return int.from_bytes(data, order)


def _webp_size(data: bytes) -> tuple[int, int]:
    match data[12:16]:
        case b"VP8 ":
            return (
                _number(data[26:28], "little") & 0x3FFF,
                _number(data[28:30], "little") & 0x3FFF,
            )
        case b"VP8L":
            bits = _number(data[21:25], "little")
            return (bits & 0x3FFF) + 1, (bits >> 14 & 0x3FFF) + 1
        case b"VP8X":
            return _number(data[24:27], "little") + 1, _number(data[27:30], "little") + 1
        case _:
            return 0, 0


def _jpeg_size(data: bytes) -> tuple[int, int]:
    """Find the frame header; each segment states its length."""
    if not data.startswith(b"\xff\xd8"):
        return 0, 0
    at = 2
    while at + 9 < len(data):
        marker = data[at + 1]
        if data[at] != 0xFF:
            return 0, 0
        if 0xC0 <= marker <= 0xCF and marker not in (0xC4, 0xC8, 0xCC):
            return _number(data[at + 7 : at + 9], "big"), _number(data[at + 5 : at + 7], "big")
        at += 2 + max(2, _number(data[at + 2 : at + 4], "big"))
    return 0, 0
