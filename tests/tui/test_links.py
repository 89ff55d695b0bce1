import pytest
from hypothesis import given
from hypothesis import strategies as st

from zot.errors import ConfigError
from zot.tui.blocks import NoteBlock, ToolBlock
from zot.tui.cells import plain
from zot.tui.diff import DiffLines, parse_diff
from zot.tui.links import FileLinks, linked, template_of
from zot.tui.markdown import MarkdownBlock
from zot.tui.theme import Painter, Theme


@pytest.fixture
def painter(tmp_path):
    (tmp_path / "src").mkdir()
    (tmp_path / "src" / "app.py").write_text("")
    (tmp_path / "a b.txt").write_text("")
    return Painter(Theme(), FileLinks(str(tmp_path), "host", template_of("file")))


def painted(painter, lines):
    return "\n".join(painter.line(line) for line in lines)


def link(address, text):
    return f"\x1b]8;;{address}\x1b\\{text}\x1b]8;;\x1b\\"


def test_addresses_and_places_in_files_are_found(tmp_path):
    text = "see https://a.b/c?d=1, src/app.py:12 and (x/y.c:3:4), 12:30, a:1, http://日本/"
    styles = {part: style for style, part in linked("dim", text) if ":" in style}
    assert styles == {
        "https://a.b/c?d=1": "dim href:https://a.b/c?d=1",
        "src/app.py:12": "dim file:src/app.py:12",
        "x/y.c:3": "dim file:x/y.c:3",
    }


def test_a_file_that_is_there_is_a_link_wherever_it_is_named(painter, tmp_path):
    address = f"file://host{tmp_path}/src/app.py"
    for lines in (
        MarkdownBlock("look at src/app.py:3 there", closed=True).settle(80),
        MarkdownBlock("- `src/app.py:3`", closed=True).settle(80),
        NoteBlock("it failed at src/app.py:3").settle(80),
    ):
        assert link(address, "src/app.py:3") in painted(painter, lines)
    gone = MarkdownBlock("look at src/gone.py:3", closed=True).settle(80)
    assert "\x1b]8" not in painted(painter, gone)


def test_calls_and_diffs_lead_to_their_files(painter, tmp_path):
    tool = ToolBlock("edit")
    tool.set_args({"path": "src/app.py"})
    tool.diff, tool.diff_line = "-old\n+new\n same", 1
    tool.finish("", failed=False, seconds=0.0)
    text = painted(painter, tool.settle(80))
    address = f"file://host{tmp_path}/src/app.py"
    assert link(address, "src/app.py") in text
    assert text.count(f"\x1b]8;;{address}\x1b\\") == 2  # the head, and the new line
    grep = ToolBlock("grep")
    grep.set_args({"pattern": "x"})
    grep.finish("src/app.py:7: x = 1", failed=False, seconds=0.0)
    assert link(address, "src/app.py:7") in painted(painter, grep.settle(80))


def test_a_link_is_closed_at_the_end_of_each_line(painter):
    address = "https://example.org/" + "x" * 60
    lines = MarkdownBlock(address, closed=True).settle(30)
    assert len(lines) > 1
    for line in lines:
        text = painter.line(line)
        assert text.count(f"\x1b]8;;{address}\x1b\\") == 1 == text.count("\x1b]8;;\x1b\\")


@pytest.mark.parametrize(
    ("wanted", "start"),
    [
        ("vscode", "vscode://file{}/src/app.py:9"),
        ("kitty", "file://host{}/src/app.py#9"),
        ("emacs://open?file={path}&line={line}", "emacs://open?file={}/src/app.py&line=9"),
    ],
)
def test_another_program_opens_the_file(painter, tmp_path, wanted, start):
    links = FileLinks(str(tmp_path), "host", template_of(wanted))
    assert links.address("file:src/app.py:9") == start.format(tmp_path)


def test_names_are_escaped_in_addresses(tmp_path):
    odd = tmp_path / "ö b\x07;.txt"
    odd.write_text("")
    links = FileLinks(str(tmp_path), "ho st", template_of("file"))
    address = links.address("file:%C3%B6%20b%07%3B.txt:1")
    assert address.isascii() and address.isprintable() and " " not in address
    assert "%C3%B6%20b%07%3B.txt" in address


@pytest.mark.parametrize("wanted", ["", "nosuch", "vscode://x", "a b{path}", "x:\x1b{path}"])
def test_what_is_no_address_is_refused(wanted):
    with pytest.raises(ConfigError, match="file_links"):
        template_of(wanted)
    assert template_of("off") == ""


@given(st.text(alphabet="ab./:12~ \x1bhttps日(),[]*", max_size=60))
def test_no_letter_is_lost_and_no_control_character_gets_into_a_word(text):
    spans = linked("dim", text)
    assert plain(spans) == text
    assert all("\x1b" not in style and style.isascii() for style, _ in spans)


def test_diffs_without_a_path_have_no_links():
    assert not any("file:" in style for line in DiffLines("+a", 80) for style, _ in line)


def test_what_is_said_of_the_end_of_a_file_is_no_line_of_it():
    rows = parse_diff("-one\n\\ no newline at the end\n+two\n\\ no newline at the end")
    assert [(row.old, row.new) for row in rows] == [
        (1, None),
        (None, None),
        (None, 1),
        (None, None),
    ]
