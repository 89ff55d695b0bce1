"""A question shows what it is about at any size, with its answers in a row."""

import pytest

from zot.serve.interactive.questions import first_change
from zot.tui.cells import line_cells, plain
from zot.tui.diff import DiffLines
from zot.tui.keys import KeyPress
from zot.tui.menu import AnswerKey, QuestionBox, ShownQuestion

REPLIES = [
    AnswerKey("y", "yes", "allow"),
    AnswerKey("a", "yes, to every edit in this session", "session", short="all"),
    AnswerKey("p", "yes, always in this project: src/*", "project", short="always"),
    AnswerKey("e", "change it first", "edit", short="edit"),
    AnswerKey("n", "no", "deny"),
    AnswerKey("r", "no, and tell the model why", "deny", wants_text=True, short="why"),
]
DIFF = "\n".join(["...", " one", " two", " three", "-old", "+new", *(f" {n}" for n in range(40))])
SIZES = [(columns, rows) for columns in (40, 57, 80, 120) for rows in (7, 8, 12, 20)]


def box(answers=None):
    question = ShownQuestion(
        "May zot use edit?",
        lambda width: DiffLines(DIFF, width, "", 10),
        REPLIES,
        subject=(("accent", "src/" + "deep/" * 20 + "file.py"),),
        start=first_change,
    )
    return QuestionBox(question, lambda value, text: answers.append(value))


@pytest.mark.parametrize(("columns", "height"), SIZES)
def test_the_file_the_first_change_and_the_answers_are_seen(columns, height):
    drawn = [plain(line) for line in box().draw(columns, height).lines]
    assert len(drawn) <= height
    assert all(line_cells((("", line),)) <= columns for line in drawn)
    assert drawn[0] == "May zot use edit?"
    assert drawn[1].endswith("file.py")
    assert any("- old" in line for line in drawn)
    assert drawn[-1].split()[-2] in ("r", "model")


def test_answers_take_one_row_where_there_is_little_room():
    drawn = [plain(line) for line in box().draw(40, 7).lines]
    assert drawn[-1] == "y yes a all p always e edit n no r why"


def test_arrows_choose_and_keys_scroll():
    answers = []
    made = box(answers)
    made.draw(40, 8)
    made.key(KeyPress("pageup", ""))
    assert any("two" in plain(line) for line in made.draw(40, 8).lines)
    for _ in range(20):
        made.key(KeyPress("pagedown", ""))
        made.draw(40, 8)
    assert any("39" in plain(line) for line in made.draw(40, 8).lines)
    made.key(KeyPress("right", ""))
    made.key(KeyPress("enter", ""))
    assert answers == ["session"]
