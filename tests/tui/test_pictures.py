import base64
import re
import struct
import zlib

import pytest

from zot.tui.blocks import UserBlock
from zot.tui.cells import plain
from zot.tui.pictures import (
    MAX_BYTES,
    MAX_COLUMNS,
    MAX_ROWS,
    InlineImage,
    fitted,
    image_size,
    protocol_of,
)
from zot.tui.screen import LiveScreen
from zot.tui.theme import Theme


def png(width, height):
    def chunk(kind, data):
        body = kind + data
        return struct.pack(">I", len(data)) + body + struct.pack(">I", zlib.crc32(body))

    head = struct.pack(">IIBBBBB", width, height, 8, 0, 0, 0, 0)
    rows = zlib.compress((b"\0" + b"\x80" * width) * height)
    parts = chunk(b"IHDR", head) + chunk(b"IDAT", rows) + chunk(b"IEND", b"")
    return b"\x89PNG\r\n\x1a\n" + parts


JPEG = (
    b"\xff\xd8\xff\xe0\x00\x10JFIF\0" + bytes(9) + b"\xff\xc4\x00\x04\0\0"
    b"\xff\xc2\x00\x11\x08\x00\x30\x00\x40\x03" + bytes(20)
)
WEBP_LOSSY = b"RIFF\0\0\0\0WEBPVP8 " + bytes(10) + struct.pack("<HH", 64, 48)
WEBP_LOSSLESS = b"RIFF\0\0\0\0WEBPVP8L\0\0\0\0\x2f" + struct.pack("<I", 63 | 47 << 14)
WEBP_EXTENDED = b"RIFF\0\0\0\0WEBPVP8X" + bytes(8) + b"\x3f\0\0\x2f\0\0"
GIF = b"GIF89a" + struct.pack("<HH", 64, 48)


@pytest.mark.parametrize("data", [png(64, 48), JPEG, GIF, WEBP_LOSSY, WEBP_LOSSLESS, WEBP_EXTENDED])
def test_the_size_of_an_image_is_told_by_its_head(data):
    assert image_size(data) == (64, 48)
    for end in range(len(data[:60])):
        image_size(data[:end])  # a torn one is no error


def test_what_is_no_image_has_no_size():
    for data in (b"", b"hello", b"\xff\xd8nothing in it at all", b"RIFF\0\0\0\0WEBPXXXX"):
        assert image_size(data) is None


@pytest.mark.parametrize(
    "size", [(1, 1), (64, 48), (8000, 20), (20, 8000), (640, 480), (5000,) * 2]
)
@pytest.mark.parametrize("width", [1, 10, 40, 200])
def test_a_picture_stays_within_its_room_and_keeps_its_shape(size, width):
    columns, rows = fitted(size, width)
    assert 1 <= columns <= min(width, MAX_COLUMNS)
    assert 1 <= rows <= MAX_ROWS


@pytest.mark.parametrize(
    ("environ", "protocol"),
    [
        ({"TERM": "xterm-kitty"}, "kitty"),
        ({"TERM": "xterm-256color", "TERM_PROGRAM": "ghostty"}, "kitty"),
        ({"TERM": "xterm-256color", "TERM_PROGRAM": "iTerm.app"}, "iterm"),
        ({"TERM": "xterm-256color", "TERM_PROGRAM": "WezTerm"}, "iterm"),
        ({"TERM": "xterm-256color", "LC_TERMINAL": "iTerm2"}, "iterm"),
        ({"TERM": "xterm-256color"}, None),
        ({"TERM": "xterm-256color", "TERM_PROGRAM": "Apple_Terminal"}, None),
        ({"TERM": "tmux-256color", "KITTY_WINDOW_ID": "1"}, None),
        ({"TERM": "xterm-kitty", "TMUX": "/tmp/x"}, None),
        ({"TERM": "xterm-kitty", "ZELLIJ": "0"}, None),
    ],
)
def test_only_terminals_that_are_known_to_show_pictures_get_them(environ, protocol):
    assert protocol_of(environ) == protocol
    assert protocol_of(environ, "off") is None
    assert protocol_of(environ, "kitty") == "kitty"


def written(block, width=40):
    return LiveScreen(Theme()).frame(block.settle(width), [(("", "live"),)], 0, 0)


def test_kitty_gets_a_png_in_pieces_and_iterm_gets_any_image():
    data = png(300, 300)
    text = written(UserBlock("look", [InlineImage(data, "kitty")]))
    pieces = re.findall(r"\x1b_G([^;]*);([^\x1b]*)\x1b\\", text)
    assert base64.b64decode("".join(piece for _, piece in pieces)) == data
    assert pieces[0][0].startswith("a=T,f=100,C=1,q=2,c=")
    assert pieces[-1][0].endswith("m=0")
    text = written(UserBlock("look", [InlineImage(JPEG, "iterm")]))
    assert base64.b64encode(JPEG).decode() + "\x07" in text
    assert "\x1b]1337;File=inline=1;" in text


def test_a_picture_that_cannot_be_shown_leaves_only_the_line():
    large = png(10, 10) + bytes(MAX_BYTES)
    for image in (
        InlineImage(JPEG, "kitty"),
        InlineImage(large, "iterm"),
        InlineImage(b"?", "iterm"),
    ):
        assert [plain(line) for line in UserBlock("look", [image]).settle(40)] == ["❯ look"]


def test_through_tmux_the_sequence_is_wrapped():
    text = written(UserBlock("look", [InlineImage(png(8, 8), "kitty", in_tmux=True)]))
    assert "\x1bPtmux;\x1b\x1b_Ga=T" in text


@pytest.mark.parametrize("protocol", ["kitty", "iterm"])
def test_the_screen_around_a_picture_is_what_it_would_be_without(emulator, protocol):
    emulator.reset(40, 10)
    screen = LiveScreen(Theme())
    block = UserBlock("look", [InlineImage(png(64, 64), protocol)])
    rows = fitted((64, 64), 40)[1]
    emulator.write(screen.frame([], [(("", "one"),), (("", "two"),)], 0, 0))
    emulator.write(screen.frame(block.settle(40), [(("", "live"),)], 0, 2))
    shown = emulator.write(screen.frame([(("", "after"),)], [(("", "live too"),)], 0, 2))
    lines = [line.rstrip() for line in shown.everything]
    while not lines[-1]:
        lines.pop()
    assert lines == ["❯ look", *[""] * rows, "after", "live too"]
