"""Diffs: numbers of both sides, marked words, side by side; drawn only where they are looked at."""

import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from zot.tools.edit.text import diff
from zot.tui.cells import line_cells, plain
from zot.tui.diff import DiffLines, changed_counts, parse_diff

OLD = "".join(f"line {number}\n" for number in range(1, 61))
NEW = OLD.replace("line 10\n", "line ten\n").replace("line 50\n", "").replace("line 55\n", "a\nb\n")


def shown(text, width=80, path="", first=0):
    return [plain(line) for line in DiffLines(text, width, path, first)]


def test_every_row_has_the_numbers_of_both_files():
    old, new = OLD.split("\n"), NEW.split("\n")
    rows = parse_diff(diff(OLD, NEW)[0])
    assert len([row for row in rows if row.mark == "gap"]) == 3
    for row in rows:
        if row.mark in "- ":
            assert old[row.old - 1] == row.text
        if row.mark in "+ ":
            assert new[row.new - 1] == row.text


def test_a_diff_of_an_older_session_has_the_numbers_it_can_have():
    rows = parse_diff("...\n six\n-seven\n+sieben\n...\n ten", first_changed=7, context=1)
    assert [(row.old, row.new) for row in rows] == [
        (None, None), (6, 6), (7, None), (None, 7), (None, None), (None, None),
    ]  # fmt: skip


def test_changed_words_are_marked_and_rows_are_tinted():
    lines = DiffLines("-    print('Hello ' + name)\n+    print(f'Hello {name}!')", 80, "a.py")
    marked = ["".join(text for style, text in line if ".word" in style) for line in lines]
    assert marked == [" + name", "f{name}!"]
    assert [line[0] for line in lines] == [("del.row fill", ""), ("add.row fill", "")]
    assert any("tok.string" in style for style, _ in lines[0])


def test_lines_that_have_little_in_common_are_not_marked():
    lines = DiffLines("-import os\n+return the_other_thing(1, 2)", 80)
    assert not any(".word" in style for line in lines for style, _ in line)


def test_a_wide_window_has_both_sides_beside_each_other():
    text = " same\n-old one\n-old two\n+new one"
    rows = shown(text, 160)
    assert [row.split() for row in rows] == [
        ["1", "same", "│", "1", "same"],
        ["2", "-", "old", "one", "│", "2", "+", "new", "one"],
        ["3", "-", "old", "two", "│"],
    ]
    assert len({row.index("│") for row in rows}) == 1
    assert len(shown(text, 139)) == 4


def test_it_says_how_much_changes():
    assert changed_counts(diff(OLD, NEW)[0]) == (3, 3)


@given(
    st.text(alphabet="ab \t\n\\ü漢😀", max_size=80),
    st.text(alphabet="ab \t\n\\ü漢😀", max_size=80),
    st.sampled_from([12, 20, 41, 80, 139, 140, 200]),
)
def test_any_diff_fits_any_width_and_counts_its_lines(old, new, width):
    text, first = diff(old, new)
    lines = DiffLines(text, width, "a.py", first)
    drawn = list(lines)
    assert len(drawn) == len(lines)
    assert all(line_cells(line) <= max(width, 16) for line in drawn)
    assert lines[len(lines) // 2 :] == drawn[len(lines) // 2 :]
    if text and width < 140:
        added, removed = changed_counts(text)
        assert sum(line[0][0] == "add.row fill" for line in drawn) >= added
        assert sum(line[0][0] == "del.row fill" for line in drawn) >= removed
        assert lines.first_change < len(lines)


@pytest.mark.parametrize("width", [100, 180])
def test_a_screen_of_a_long_diff_draws_only_what_is_seen(width):
    text = "\n".join(f"-def name_{n}(self): pass\n+def name_{n}(this): pass" for n in range(2_500))
    lines = DiffLines(text, width, "a.py")
    lines[:40]  # loads the lexer
    began = time.process_time()
    lines[2_000:2_040]
    assert time.process_time() - began < 0.25  # all of it takes seconds
