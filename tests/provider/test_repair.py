from datetime import datetime

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace
from support.session import assistant, call, results, user, valid

from zot.provider.catalog import SCRIPTED as MODEL
from zot.provider.client import load_wire
from zot.provider.providers import Quirks
from zot.provider.repair import CONTINUE, NO_IMAGES, NOT_RECORDED, Repair, repaired
from zot.provider.turns import EncodedTurns
from zot.provider.types import Image, Message, Reasoning, Request, Text, ToolCall, ToolResult
from zot.testing.rules import problems
from zot.text import encode_json

APIS = {
    "anthropic": "anthropic",
    "openai-chat": "chat",
    "openai-responses": "responses",
    "google": "google",
}
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
    assert [m.role for m in out] == ["user", "assistant", "tool", "assistant", "user"]


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


def test_a_late_result_is_moved_to_its_call():
    out = repaired([user("a"), assistant("", call("1")), user("b"), results("1"), user("c")])
    assert [m.role for m in out] == ["user", "assistant", "tool", "user", "user"]
    assert out[2].content[0].content == (Text("out"),)


def test_what_is_empty_is_left_out_and_the_user_begins_and_ends():
    blank = Message("user", (Text(" \n"),), 1.0)
    thought = Message("assistant", (Reasoning("hm", "scripted"),), 1.0)
    (only,) = repaired([blank, Message("assistant", (), 1.0), thought])
    assert (only.role, only.content) == ("user", (Text(CONTINUE),))
    assert [m.role for m in repaired([assistant("a")])] == ["user", "assistant", "user"]


def test_many_calls_with_one_id_cost_no_more_than_their_number():
    calls = [call("x") for _ in range(20_000)]
    out = repaired([user("a"), assistant("", *calls), results(*["x"] * len(calls))])
    assert valid(out)
    assert [each.content[0].text for each in out[2].content] == ["out"] * len(calls)


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


@pytest.mark.untraced
@given(st.lists(messages, max_size=8), st.booleans())
def test_any_list_of_messages_becomes_valid_once_and_for_all(given_messages, images):
    out = repaired(given_messages, images)
    assert valid(out)
    assert repaired(out, images) == out
    assert out[0].role == "user"
    assert out[-1].role != "assistant"
    # Nothing that the model said or asked for is lost, nor a result that has a call.
    assert said(out, Text) == [text for text in said(given_messages, Text) if text.text.strip()]
    assert len(said(out, ToolCall)) == len(said(given_messages, ToolCall))


@pytest.mark.untraced
@given(
    st.lists(messages, max_size=8),
    st.lists(st.tuples(st.integers(0, 8), st.booleans()), max_size=6),
)
def test_a_conversation_that_grows_is_repaired_like_a_new_one(given_messages, steps):
    growing = Repair(dated=True)
    for length, images in steps:
        now = tuple(given_messages[:length])
        assert growing.messages(now, images) == repaired(now, images, dated=True)


def said(messages, kind):
    return [
        block
        for message in messages
        if message.role == "assistant"
        for block in message.content
        if isinstance(block, kind)
    ]


@given(st.lists(messages, max_size=8), st.booleans())
def test_any_list_of_messages_is_a_request_that_all_four_servers_take(given_messages, images):
    for api, dialect in APIS.items():
        model = replace(MODEL, api=api, images=images)
        once = Request(model, "", tuple(given_messages))
        body = encode_json(load_wire(api).body(once, Quirks(), EncodedTurns()))
        assert problems(dialect, msgspec.json.decode(body)) == []
        twice = replace(once, messages=repaired(given_messages, images))
        assert encode_json(load_wire(api).body(twice, Quirks(), EncodedTurns())) == body


def test_a_model_without_eyes_gets_a_note_for_each_image():
    asked = Message("assistant", (ToolCall("1", "t", {}), ToolCall("2", "t", {})), 1.0)
    got = (ToolResult("1", (PICTURE, Text("x")), name="t"), ToolResult("2", (), name="t"))
    whole = (Message("user", (Text("look"), PICTURE), 1.0), asked, Message("tool", got, 2.0))
    assert repaired(whole) == whole
    first, _, last = repaired(whole, images=False)
    assert first.content == (Text("look"), Text(NO_IMAGES))
    assert last.content[0].content == (Text(NO_IMAGES), Text("x"))
    assert last.content[1] == got[1]


# --- the date --------------------------------------------------------------------------------


def test_the_date_stands_before_the_first_message_of_each_day():
    day = 86_400.0
    noon = datetime(2026, 11, 18, 12).timestamp()
    said = [
        Message("user", (Text(text),), noon + at * day)
        for text, at in (("a", 0), ("b", 0.01), ("c", 1))
    ]
    answer = Message("assistant", (Text("yes"),), noon)
    messages = repaired([said[0], answer, said[1], answer, said[2]], dated=True)
    texts = [[block.text for block in message.content] for message in messages]
    dates = ["(current date: 2026-11-18)", "(current date: 2026-11-19)"]
    assert texts == [[dates[0], "a"], ["yes"], ["b"], ["yes"], [dates[1], "c"]]
    assert said[0].content == (Text("a"),), "what is stored is not touched"
    unknown = repaired([Message("user", (Text("of no time"),), 0.0)], dated=True)
    assert unknown[0].content == (Text("of no time"),)
