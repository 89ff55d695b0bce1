from __future__ import annotations

import pytest

from tests.support.around import tools_at
from zot.local.form import forms_for
from zot.local.prompt import (
    BANK,
    EXAMPLES,
    MAX_RESULT,
    nearest,
    shorten,
    system_text,
    turns,
    users_part,
)
from zot.provider.types import (
    Image,
    Message,
    Reasoning,
    Text,
    ToolCall,
    ToolResult,
    ToolSpec,
)
from zot.runtime.prompt import system_prompt

FORMS = forms_for(ToolSpec(tool.name, tool.description, tool.schema) for tool in tools_at("/"))


def user(text: str) -> Message:
    return Message("user", (Text(text),), 0.0)


def plain(messages: tuple[Message, ...]) -> list[tuple[str, str]]:
    said = []
    for message in messages:
        (block,) = message.content
        assert isinstance(block, Text)
        said.append((message.role, block.text))
    return said


def test_our_own_prompt_is_replaced_by_the_short_one(tmp_path) -> None:
    long = system_prompt(cwd=str(tmp_path), home=tmp_path)
    assert users_part(long) == ""
    short = system_text(long, FORMS)
    assert short.startswith("You are zot")
    assert "From the user" not in short


def test_what_the_user_added_stays(tmp_path) -> None:
    (tmp_path / "AGENTS.md").write_text("Use tabs.")
    long = system_prompt(cwd=str(tmp_path), home=tmp_path, appended=["Speak French."])
    short = system_text(long, FORMS)
    assert "Use tabs." in short
    assert "Speak French." in short
    assert "Current date" not in short


def test_a_replaced_prompt_stays_and_long_ones_are_cut() -> None:
    assert users_part("You are a pirate.") == "You are a pirate."
    assert len(users_part("x" * 10_000)) < 2_100


def test_calls_and_results_become_turns_that_repeat_the_request() -> None:
    messages = (
        user("list"),
        Message("assistant", (Text("Yes."), ToolCall("1", "bash", {"command": "ls"})), 0.0),
        Message("tool", (ToolResult("1", (Text("a.txt"),), name="bash"),), 0.0),
        Message("assistant", (Text("One file."),), 0.0),
    )
    assert plain(turns(messages, FORMS)) == [
        ("user", "list"),
        ("assistant", 'Yes.\n{"tool":"bash","command":"ls"}'),
        (
            "user",
            "[bash result]\na.txt\nThat was for: list\n"
            "Next step as JSON, or the answer in words if done.",
        ),
        ("assistant", "One file."),
    ]


def test_failures_images_thoughts_and_silence_have_words() -> None:
    messages = (
        Message("user", (Image("image/png", b"x"),), 0.0),
        Message("assistant", (Reasoning("hm", "anthropic"),), 0.0),
        Message("tool", (ToolResult("1", (), is_error=True),), 0.0),
    )
    ((role, text),) = plain(turns(messages, FORMS))
    assert role == "user"
    assert text.startswith("[an image; this model cannot see it]\n\n[tool failed]\n(no output)")


def test_a_long_result_keeps_its_ends() -> None:
    text = "a" * MAX_RESULT + "b" * MAX_RESULT
    cut = shorten(text, MAX_RESULT)
    assert cut.startswith("aaa")
    assert cut.endswith("bbb")
    assert f"[{MAX_RESULT} characters left out]" in cut


def test_examples_come_first_and_only_for_tools_that_are_there() -> None:
    shown = plain(turns((user("hi"),), FORMS, EXAMPLES))
    assert shown[-1] == ("user", "hi")
    assert len(shown) == 2 * len(EXAMPLES) + 1
    assert "That was for: count the words of a.txt" in shown[-3][1]
    assert plain(turns((user("hi"),), {}, EXAMPLES)) == [
        ("user", "who are you?"),
        ("assistant", EXAMPLES[3][2]),
        ("user", "hi"),
    ]


@pytest.mark.parametrize(
    ("request_", "tool"),
    [
        ("Delete the file x.log.", "bash"),
        ("Show me what is in y.txt.", "read"),
        ("Create a file called z.txt with the text hi", "write"),
        ("In q.py replace A = 1 with A = 2.", "edit"),
        ("Who are you?", ""),
    ],
)
def test_the_nearest_example_uses_the_right_tool(request_: str, tool: str) -> None:
    assert nearest(request_)[-1][1] == tool


def test_the_nearest_are_as_many_as_wanted() -> None:
    assert len(nearest("anything", 3)) == 3
    assert set(nearest("")) <= set(BANK)
