import pytest

from zot.tui.cells import line_cells, plain
from zot.tui.keys import KeyPress
from zot.tui.menu import AnswerKey, Menu, MenuItem, QuestionBox, ShownQuestion, matching

ITEMS = [MenuItem("apple", "a fruit"), MenuItem("banana"), MenuItem("carrot", value=3)]


def press(overlay, *names):
    for name in names:
        overlay.key(KeyPress("text", name) if len(name) == 1 else KeyPress(name))


def menu(**more):
    picked = []
    made = Menu("things", ITEMS, picked.append, leave=lambda: picked.append("left"), **more)
    return made, picked


def test_typing_narrows_it_down_and_enter_picks():
    made, picked = menu()
    press(made, "c", "r", "t", "enter")
    assert picked == [3]
    press(made, "backspace", "backspace", "backspace", "down", "enter", "esc")
    assert picked == [3, "banana", "left"]


def test_moving_stops_at_the_ends():
    made, picked = menu()
    press(made, "up", "enter", "pagedown", "down", "enter", "pageup", "enter")
    assert picked == ["apple", 3, "apple"]


def test_further_keys_get_the_chosen_one():
    deleted = []
    made, _ = menu(keys={"ctrl+d": deleted.append})
    press(made, "down", "ctrl+d")
    assert deleted == ["banana"]


@pytest.mark.parametrize(("width", "height"), [(10, 3), (40, 5), (80, 20)])
def test_it_fits_into_the_room(width, height):
    made, _ = menu()
    drawn = made.draw(width, height)
    assert len(drawn.lines) <= max(height, 3)
    assert all(line_cells(line) <= width for line in drawn.lines)


def test_what_matches_nothing_is_said():
    made, picked = menu()
    press(made, "z", "z", "enter")
    assert picked == []
    assert "nothing matches" in plain(made.draw(40, 10).lines[1])


def test_another_list_can_take_its_place():
    made, picked = menu(chosen=2)
    made.replace([MenuItem("only")])
    press(made, "enter")
    assert picked == ["only"]


def test_letters_may_lie_apart_but_those_together_come_first():
    items = [MenuItem("cart"), MenuItem("a cat"), MenuItem("cat")]
    assert [item.label for item in matching("cat", items)] == ["cat", "a cat", "cart"]


def test_a_menu_is_read_out_and_answered_by_numbers():
    made, picked = menu()
    assert made.spoken()[:2] == ["things:", "1. apple, a fruit"]
    assert made.take_line("2")
    assert not made.take_line("carr")
    assert made.spoken()[1] == "1. carrot"
    assert made.take_line("1")
    assert made.take_line("")
    assert picked == ["banana", 3, "left"]


def question(replies=None, **more):
    answers = []
    keys = [AnswerKey("y", "yes", True), AnswerKey("r", "no, because", False, wants_text=True)]
    made = QuestionBox(
        ShownQuestion("Sure?", "line\n" * 30, keys if replies is None else replies, **more),
        lambda value, text: answers.append((value, text)),
        leave=lambda: answers.append("left"),
    )
    return made, answers


def test_a_question_is_answered_by_key_by_enter_and_left_by_escape():
    made, answers = question()
    press(made, "y", "down", "up", "enter", "x", "esc")
    assert answers == [(True, ""), (True, ""), "left"]


def test_a_reason_is_typed_and_escape_goes_back_to_the_answers():
    made, answers = question()
    press(made, "down", "enter", "n", "o", "esc", "r")
    made.key(KeyPress("text", "!!"))
    press(made, "enter")
    assert answers == [(False, "no!!")]


def test_a_question_without_answers_asks_for_a_text():
    made, answers = question([], text="old")
    press(made, "x", "enter", "esc")
    assert answers == [(None, "oldx"), "left"]
    drawn = made.draw(40, 6)
    assert drawn.cursor is not None
    assert len(drawn.lines) <= 6


def test_a_long_body_is_cut_and_the_answers_stay():
    made, _ = question()
    lines = [plain(line) for line in made.draw(40, 8).lines]
    assert len(lines) == 8
    assert "more lines" in lines[-2]
    assert "yes" in lines[-1]
    assert "no" in lines[-1]


def test_a_question_is_read_out_and_answered_by_letters():
    made, answers = question()
    assert "y: yes" in made.spoken()
    assert not made.take_line("what")
    assert made.take_line("Y")
    assert made.take_line("r bad idea")
    assert not made.take_line("r")
    assert made.spoken()[-1] == "no, because:"
    assert made.take_line("later")
    assert answers == [(True, ""), (False, "bad idea"), (False, "later")]
    made, answers = question()
    assert made.take_line(" ")
    assert answers == ["left"]
