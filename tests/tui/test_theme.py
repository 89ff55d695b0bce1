import pytest

from zot.errors import ConfigError
from zot.tui.keymap import keymap_with
from zot.tui.theme import Painter, Theme, is_light, theme_of
from zot.tui.themes import DARK, LIGHT, PLAIN


@pytest.mark.parametrize(
    ("words", "colours", "sgr"),
    [
        ("bold cyan", 256, "1;36"),
        ("bright-red on blue", 256, "91;44"),
        ("208", 256, "38;5;208"),
        ("#ff8000", 1 << 24, "38;2;255;128;0"),
        ("#ff8000 on #000000", 256, "38;5;208;48;5;16"),
        ("plain", 256, ""),
        ("default underline", 256, "39;4"),
    ],
)
def test_colours_in_words(words, colours, sgr):
    assert theme_of({"code": words}, colours=colours).sgr("code") == sgr


@pytest.mark.parametrize(
    "styles", [{"cude": "red"}, {"code": "rde"}, {"code": 3}, {"code": "#12345"}]
)
def test_a_style_that_cannot_be_is_named(styles):
    with pytest.raises(ConfigError):
        theme_of(styles, colours=256)


def test_without_colour_bold_and_underlines_stay():
    theme = Theme(colour=False)
    assert theme.sgr("prompt") == "1"
    assert theme.sgr("link") == "4"
    assert theme.sgr("code") == ""
    assert theme_of({"code": "bold 1 on 4"}, colours=256, colour=False).sgr("code") == "1"


def test_a_link_is_closed_where_it_ends_and_can_be_left_out():
    line = (("link href:https://a.b/c", "text"),)
    assert Painter(Theme()).line(line).count("\x1b]8;;") == 2
    assert "\x1b]8" not in Painter(Theme(links=False)).line(line)


@pytest.mark.parametrize(
    ("reply", "light"),
    [
        ("]11;rgb:ffff/ffff/ffff", True),
        ("]11;rgb:1a/1b/26", False),
        ("]11;rgb:x/y/z", None),
        ("]11;rgb:1/2", None),
        ("[?62c", None),
    ],
)
def test_the_background_is_light_or_dark(reply, light):
    assert is_light(reply) is light


def test_keys_are_changed_freed_and_bound_to_commands():
    keymap = keymap_with({"ctrl+x": "submit", "ctrl+s": "", "f5": "/compact"})
    assert keymap["ctrl+x"] == "submit"
    assert "ctrl+s" not in keymap
    assert keymap["f5"] == "/compact"
    assert keymap["enter"] == "submit"
    with pytest.raises(ConfigError, match="did you mean submit"):
        keymap_with({"ctrl+x": "sumbit"})


def luminance(colour):
    parts = [int(colour[at : at + 2], 16) / 255 for at in (1, 3, 5)]
    linear = [p / 12.92 if p <= 0.03928 else ((p + 0.055) / 1.055) ** 2.4 for p in parts]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


def contrast(one, other):
    high, low = sorted((luminance(one), luminance(other)), reverse=True)
    return (high + 0.05) / (low + 0.05)


def colours(words):
    """The colours of the text and of its background."""
    text, _, ground = words.partition(" on ")
    return next((word for word in text.split() if word[0] == "#"), ""), ground


@pytest.mark.parametrize(
    ("styles", "grounds"),
    [
        (DARK, ("#000000", "#1e1e1e", "#282c34", "#002b36")),
        (LIGHT, ("#ffffff", "#fafafa", "#fdf6e3")),
    ],
)
def test_the_shipped_themes_can_be_read(styles, grounds):
    for name, words in styles.items():
        text, own = colours(words)
        needed = 1.5 if name == "rule" else 4.5  # a rule is no text
        for ground in (own,) if own else grounds:
            assert contrast(text, ground) >= needed, (name, ground)
    on_rows = [name for name in styles if name[:4] == "tok." or name.endswith(".sign")]
    for row in ("add.row", "del.row"):
        for name in (*on_rows, "number"):
            assert contrast(colours(styles[name])[0], colours(styles[row])[1]) >= 4.5, (row, name)
    assert contrast(colours(styles["prompt"])[0], colours(styles["user"])[1]) >= 4.5


def test_every_style_of_the_dark_theme_is_one_of_the_light_theme():
    assert DARK.keys() == LIGHT.keys() and DARK.keys() <= PLAIN.keys()


def test_a_background_covers_the_line_before_the_text_is_written():
    painter = Painter(Theme())
    drawn = painter.line((("add.row fill", ""), ("add.row", "text")))
    assert drawn.startswith("\x1b[38;5;255;48;5;22m\x1b[K")
    assert Painter(Theme(colour=False)).line((("add.row fill", ""), ("add.row", "x"))) == "x"
