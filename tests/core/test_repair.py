from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace
from support.session import assistant, call, results, user, valid

from zot.core.repair import NO_IMAGES, NOT_RECORDED, fitting, repaired
from zot.provider.scripted import MODEL
from zot.provider.types import Image, Message, Reasoning, Text, ToolCall, ToolResult

PICTURE = Image("image/png", b"x")


def test_a_valid_transcript_is_unchanged():
    messages = (
        user("a"),
        assistant("b", call("1"), call("2")),
        results("1", "2"),
        assistant("c"),
        user("d"),
    )
    assert repaired(messages) == messages


def test_a_lost_result_is_made_up_and_says_so():
    out = repaired([user("a"), assistant("", call("1"), call("2")), results("2"), user("b")])
    assert valid(out)
    first, second = out[2].content
    assert first.is_error
    assert first.content == (Text(NOT_RECORDED),)
    assert second.content == (Text("out"),)


def test_a_call_at_the_end_gets_its_result():
    out = repaired([user("a"), assistant("", call("1"))])
    assert [m.role for m in out] == ["user", "assistant", "tool"]
    assert valid(out)


def test_orphans_are_dropped_and_split_results_joined():
    out = repaired(
        [
            results("0"),
            user("a"),
            results("0"),
            assistant("", call("1"), call("2")),
            results("2"),
            results("1", "9"),
            results("1"),
            assistant("b"),
        ]
    )
    assert valid(out)
    assert [m.role for m in out] == ["user", "assistant", "tool", "assistant"]


def test_empty_and_repeated_ids_become_ids_of_their_own():
    twice = assistant("", call("x"), call("x"), call(""))
    given_results = Message(
        "tool",
        (
            ToolResult("x", (Text("first"),)),
            ToolResult("x", (Text("second"),)),
            ToolResult("", (Text("third"),)),
        ),
        3.0,
    )
    out = repaired([user("a"), twice, given_results, assistant("", call("x")), results("x")])
    assert valid(out)
    assert [b.id for b in out[1].content] == ["x", "x_2", "call_2"]
    assert [b.content[0].text for b in out[2].content] == ["first", "second", "third"]
    assert out[3].content[0].id == "x_3"


def test_empty_messages_are_left_out():
    assert repaired([Message("user", (), 1.0), Message("assistant", (), 1.0)]) == ()
    assert repaired([]) == ()


ids = st.sampled_from(["", "1", "2", "x"])
blocks = st.one_of(
    st.builds(Text, st.sampled_from(["a", ""])),
    st.just(PICTURE),
    st.builds(lambda id: ToolCall(id, "t", {}), ids),
    st.builds(lambda id, text: ToolResult(id, (Text(text),)), ids, st.text(max_size=1)),
    st.just(Reasoning("hm", "scripted")),
)
messages = st.builds(
    lambda role, content: Message(role, tuple(content), 1.0),
    st.sampled_from(["user", "assistant", "tool"]),
    st.lists(blocks, max_size=4),
)


@given(st.lists(messages, max_size=8))
def test_any_list_of_messages_becomes_valid_once_and_for_all(given_messages):
    out = repaired(given_messages)
    assert valid(out)
    assert repaired(out) == out
    if valid(given_messages) and all(
        isinstance(b, Text | Image) for m in given_messages if m.role == "user" for b in m.content
    ):
        assert out == tuple(given_messages)


def test_a_model_without_eyes_gets_a_note_for_each_image():
    blind = replace(MODEL, images=False)
    said = (
        Message("user", (Text("look"), PICTURE), 1.0),
        Message("tool", (ToolResult("1", (PICTURE, Text("x"))), ToolResult("2", ())), 2.0),
    )
    assert fitting(said, MODEL) == said
    first, second = fitting(said, blind)
    assert first.content == (Text("look"), Text(NO_IMAGES))
    assert second.content[0].content == (Text(NO_IMAGES), Text("x"))
    assert second.content[1] == said[1].content[1]
