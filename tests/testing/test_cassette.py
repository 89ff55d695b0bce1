import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from zot.core.tool import ToolOutput
from zot.errors import Overloaded, ProviderError
from zot.provider.failure import Unauthorized
from zot.provider.types import (
    Finished,
    Image,
    Message,
    Model,
    Reasoning,
    Request,
    Text,
    TextDelta,
    ToolCall,
    ToolResult,
    Usage,
    UsageSeen,
)
from zot.testing.cassette import (
    CWD,
    Packer,
    failure_of,
    failure_shape,
    nearest,
    request_shape,
    same,
)
from zot.text import SECRET_GONE as MARK

TEXT = st.text(max_size=20).filter(lambda text: CWD not in text)
ARGS = st.dictionaries(TEXT.filter(lambda key: key[:1] != "$"), st.lists(TEXT, max_size=2))
BLOCKS = st.one_of(
    st.builds(Text, TEXT),
    st.builds(Image, TEXT, st.binary(max_size=20)),
    st.builds(ToolCall, TEXT, TEXT, ARGS | st.none(), TEXT),
    st.builds(Reasoning, TEXT, TEXT, ARGS | st.none()),
    st.builds(ToolResult, TEXT, st.lists(st.builds(Text, TEXT), max_size=2).map(tuple)),
)
USAGES = st.builds(Usage, st.integers(0, 9), st.integers(0, 9))
EVENTS = st.one_of(
    st.builds(TextDelta, TEXT),
    st.builds(UsageSeen, USAGES),
    st.builds(Finished, st.lists(BLOCKS, max_size=3).map(tuple), st.just("end"), USAGES),
    st.builds(ToolOutput, st.lists(st.builds(Text, TEXT), max_size=2).map(tuple)),
)


def through_json(value):
    return json.loads(json.dumps(value))


@given(EVENTS)
def test_what_is_packed_comes_back_as_it_was(event):
    packer = Packer("/somewhere/else")
    assert packer.unpack(through_json(packer.pack(event))) == event


def test_the_working_directory_becomes_the_one_of_the_replay():
    packed = Packer("/home/a/project").pack(TextDelta("see /home/a/project/x"))
    assert packed["text"] == "see <cwd>/x"
    assert Packer("/ci").unpack(packed) == TextDelta("see /ci/x")


def request(*content, role="user", **fields):
    model = Model("m", "p", "anthropic")
    return Request(model, "system", (Message(role, content, 1.0),), **fields)


def test_a_request_counts_without_times_and_with_images_by_digest():
    packer = Packer("/x")
    image = Image("image/png", b"data")
    result = ToolResult("1", (Text("a"), image), is_error=True, details={"took": 1.5})
    first = request_shape(request(image, result), packer)
    assert first == through_json(first)
    assert first["messages"][0]["content"][1]["content"][1]["sha256"]
    assert "details" not in first["messages"][0]["content"][1]
    assert first["system"] == ["system"]


def test_the_date_of_the_system_prompt_does_not_count():
    def shape(day):
        asked = Request(Model("m", "p", "anthropic"), f"Hi.\nCurrent date: {day}\n", ())
        return request_shape(asked, Packer("/x"))

    assert shape("2026-01-01") == shape("2027-12-31")


def test_a_long_difference_is_cut():
    packer = Packer("/x")
    asked = request_shape(request(Text("a")), packer)
    other = request_shape(request(*(Text(str(number)) for number in range(100))), packer)
    assert "more lines" in nearest(asked, [other])


def test_failures_come_back_as_their_class():
    for error in (
        Overloaded("busy", status=503, retry_after=2.0),
        Unauthorized("no", status=401, request_id="r1"),
    ):
        back = failure_of(through_json(failure_shape(error)))
        assert type(back) is type(error)
        assert (str(back), back.status, back.retry_after) == (
            str(error),
            error.status,
            error.retry_after,
        )


def test_a_class_that_is_gone_is_a_provider_error():
    line = failure_shape(ProviderError("x")) | {"class": "NoSuchError"}
    assert type(failure_of(line)) is ProviderError


@pytest.mark.parametrize(
    ("recorded", "asked", "expected"),
    [
        (f"key {MARK}!", "key sk-other!", True),
        (f"key {MARK}!", f"key {MARK}!", True),
        (f"{MARK} and {MARK}", "a and b and c", True),
        (f"key {MARK}!", "key sk-other?", False),
        (f"a{MARK}a", "a", False),
        ({"x": [f"{MARK}", 1]}, {"x": ["k", 1]}, True),
        ({"x": [MARK, 1]}, {"x": ["k", 2]}, False),
        ({"x": MARK}, {"y": MARK}, False),
        ([MARK], [MARK, MARK], False),
    ],
)
def test_where_a_secret_was_removed_any_text_may_stand(recorded, asked, expected):
    assert same(recorded, asked) is expected
