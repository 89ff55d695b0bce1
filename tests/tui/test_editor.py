import pytest
from hypothesis import given
from hypothesis import strategies as st

from zot.tui.cells import cells, plain
from zot.tui.editor import Editor
from zot.tui.keymap import EDITOR_ACTIONS


def editor(text, cursor=None, history=()):
    made = Editor(history)
    made.set(text, cursor)
    return made


@pytest.mark.parametrize(
    ("action", "before", "after"),
    [
        ("left", "ab|", "a|b"),
        ("right", "a|b", "ab|"),
        ("left", "|ab", "|ab"),
        ("word-left", "one two|", "one |two"),
        ("word-right", "|one two", "one| two"),
        ("line-start", "x\nab|c", "x\n|abc"),
        ("line-end", "a|bc\nx", "abc|\nx"),
        ("text-start", "a\nb|", "|a\nb"),
        ("text-end", "|a\nb", "a\nb|"),
        ("up", "abc\nde|", "ab|c\nde"),
        ("down", "ab|c\nd", "abc\nd|"),
        ("delete-back", "ab|c", "a|c"),
        ("delete", "a|bc", "a|c"),
        ("delete-back", "e\u0301|", "|"),
        ("kill-end", "a|bc\nd", "a|\nd"),
        ("kill-end", "a|\nd", "a|d"),
        ("kill-start", "abc|d", "|d"),
        ("kill-word", "a |bc d", "a | d"),
        ("kill-word-back", "ab cd|", "ab |"),
        ("kill-blank-back", "a b/c-d|", "a |"),
        ("newline", "a|b", "a\n|b"),
        ("transpose", "ab|", "ba|"),
        ("transpose", "a|b", "ba|"),
        ("transpose", "|ab", "|ab"),
        ("yank", "a|b", "a|b"),
    ],
)
def test_what_each_action_does(action, before, after):
    made = editor(before.replace("|", ""), before.index("|"))
    made.do(action)
    assert f"{made.text[: made.cursor]}|{made.text[made.cursor :]}" == after


def test_kills_in_a_row_come_back_as_one():
    made = editor("one two three")
    made.do("kill-word-back")
    made.do("kill-word-back")
    assert made.text == "one "
    made.do("yank")
    assert made.text == "one two three"


def test_an_older_kill_takes_the_place_of_the_one_that_came_back():
    made = editor("one two")
    made.do("kill-word-back")
    made.do("left")
    made.do("kill-start")
    made.do("yank")
    made.do("yank-pop")
    assert made.text == "two "


def test_undo_and_redo_step_over_what_was_typed_in_a_row():
    made = editor("")
    for letter in "hello":
        made.insert(letter)
    made.insert(" ")
    for letter in "you":
        made.insert(letter)
    made.do("undo")
    assert made.text == "hello"
    made.do("redo")
    assert made.text == "hello you"
    made.do("undo")
    made.do("undo")
    assert made.text == ""


def test_the_text_is_still_there_after_looking_through_the_history():
    made = editor("draft", history=["first", "second"])
    made.do("up")
    made.do("up")
    assert made.text == "first"
    made.do("up")
    assert made.text == "first"
    made.do("down")
    made.do("down")
    assert made.text == "draft"


def test_what_was_sent_is_the_last_of_the_history_and_not_twice():
    made = editor("same", history=["same"])
    assert made.take() == "same"
    made.insert("other")
    made.take()
    assert made.history == ["same", "other"]
    assert made.text == ""


def test_a_long_paste_is_one_word_that_is_opened_when_it_is_sent():
    made = editor("see ")
    pasted = "\n".join(f"line {number}" for number in range(40))
    made.paste(pasted)
    assert made.text == "see [paste 1: 40 lines]"
    made.do("left")
    assert made.cursor == len("see ")
    made.do("right")
    assert made.full_text == f"see {pasted}"
    made.do("delete-back")
    assert made.text == "see "
    made.do("undo")
    made.do("open-paste")
    assert made.text == f"see {pasted}"


def test_a_long_line_that_was_pasted_is_a_chip_too():
    made = editor("")
    made.paste("x" * 2000)
    assert made.text == "[paste 1: 2000 characters]"
    assert made.take() == "x" * 2000


def test_control_characters_are_spelled_out():
    made = editor("")
    made.paste("a\x1b[2Jb\x07")
    assert made.text == "a\\x1b[2Jb\\x07"


TEXTS = st.text(alphabet="ab cd\n日e\u0301👍", max_size=60)


@pytest.mark.untraced
@given(TEXTS, st.data(), st.integers(2, 30), st.integers(1, 6))
def test_rows_hold_the_text_within_the_width_and_the_cursor_is_inside(text, data, width, height):
    made = editor(text, data.draw(st.integers(0, len(text))))
    layout = made.layout(width, height)
    assert 1 <= len(layout.rows) <= height
    assert 0 <= layout.row < len(layout.rows)
    assert 0 <= layout.column <= width
    assert all(cells(plain(row)) <= width for row in layout.rows)
    everything = made.layout(width, 10_000)
    assert "".join(plain(row) for row in everything.rows) == text.replace("\n", "")


@pytest.mark.untraced
@given(TEXTS, st.lists(st.one_of(st.sampled_from(sorted(EDITOR_ACTIONS)), TEXTS), max_size=25))
def test_no_order_of_actions_breaks_it_and_undo_leads_back(text, steps):
    made = editor(text, history=["older", "two\nlines"])
    for step in steps:
        if step in EDITOR_ACTIONS:
            made.do(step)
        else:
            made.insert(step)
        assert 0 <= made.cursor <= len(made.text)
        made.layout(10, 5)
    for _ in range(100):
        made.do("undo")
    assert made.text == ""
