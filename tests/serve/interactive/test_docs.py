"""What docs/terminal.md shows works."""

import re

import msgspec
from support.docs import ROOT, blocks

from zot.serve.interactive.slash.table import COMMANDS
from zot.tui.keymap import ACTIONS, keymap_with
from zot.tui.theme import theme_of
from zot.tui.themes import PLAIN

PAGE = "docs/terminal.md"


def test_its_examples_of_themes_and_keys_can_be_used():
    theme, keys = (msgspec.json.decode(block.text) for block in blocks(PAGE, "json"))
    for part in ("styles", "light"):
        theme_of(theme[part], colours=256)
    assert keymap_with(keys)["f5"] == "/compact"


def test_it_names_every_style_and_action_that_has_a_use():
    text = (ROOT / PAGE).read_text(encoding="utf-8")
    looks = {"bold", "dim", "italic", "underline", "reverse", "strike"}
    missing = [name for name in PLAIN if name not in looks and f"`{name}`" not in text]
    assert missing == []
    assert [name for name in ACTIONS if f"`{name}`" not in text] == []


def test_its_pictures_are_there():
    text = (ROOT / PAGE).read_text(encoding="utf-8")
    for name in ("answer", "pager", "question", "tools", "aside", "commands", "welcome"):
        assert f"pictures/terminal-{name}.svg" in text
        assert (ROOT / "docs" / "pictures" / f"terminal-{name}.svg").is_file()


def test_it_names_every_slash_command():
    text = (ROOT / PAGE).read_text(encoding="utf-8")
    assert [name for name in COMMANDS if not re.search(rf"/{name}\b", text)] == []
