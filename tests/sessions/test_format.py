import os

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from zot.core import session as core
from zot.core.session import Compaction, Entry, Title
from zot.provider import types
from zot.provider.types import Image, Message, Origin, Reasoning, Text, ToolCall, ToolResult, Usage
from zot.sessions import format, rows
from zot.sessions.format import BadRow, Transcript
from zot.sessions.rows import Meta

META = Meta("id-1", "/w", "m", "p", "2026-01-02T03:04:05Z", "0.1")

words = st.text(st.characters(exclude_categories=["Cs"]), max_size=12)
names = st.text("abc_xyz", min_size=1, max_size=8)
json = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**53), 2**53) | words,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(words, inner, max_size=3),
    max_leaves=6,
)
objects = st.dictionaries(words, json, max_size=3)
times = st.integers(0, 4_000_000_000_000_000).map(lambda us: us / 1_000_000)
texts = st.builds(Text, words)
images = st.builds(Image, st.just("image/png"), st.binary(max_size=20))
calls = st.builds(ToolCall, names, names, objects, opaque=st.none() | objects) | st.builds(
    ToolCall, names, names, st.none(), words
)
results = st.builds(
    ToolResult,
    names,
    st.lists(texts | images, max_size=3).map(tuple),
    st.booleans(),
    words,
    st.none() | objects,
)
reasonings = st.builds(Reasoning, words, names, st.none() | objects)
counts = st.integers(0, 10**9)
usages = st.builds(
    Usage,
    counts,
    counts,
    counts,
    counts,
    st.none() | counts,
    st.builds(types.Cost, st.floats(0, 100), st.floats(0, 100)),
    st.booleans(),
)
origins = st.builds(
    Origin, names, names, names, st.sampled_from(["end", "tool_use", "aborted"]), usages
)
messages = st.builds(
    Message,
    st.sampled_from(["user", "assistant", "tool"]),
    st.lists(texts | images | calls | results | reasonings, min_size=1, max_size=4).map(tuple),
    times,
    st.none() | origins,
    st.none() | objects.filter(bool),
)
bodies = (
    messages
    | st.builds(
        Compaction, words, st.none() | names, counts, usage=st.none() | usages, details=objects
    )
    | st.builds(core.LevelChange, st.sampled_from(["off", "high"]))
    | st.builds(Title, words)
    | st.builds(core.UsageNote, usages, usages)
    | st.builds(core.Label, names, st.none() | words)
    | st.builds(core.Replaced, st.lists(messages, max_size=2).map(tuple))
    | st.builds(core.Cleared)
    | st.builds(core.ResultNote, results)
    | st.builds(core.Custom, names, objects)
    | st.builds(core.ModelChange, names, names)
)


def decoded(*lines: bytes) -> Transcript:
    transcript = Transcript()
    for number, line in enumerate(lines, 1):
        assert line.endswith(b"\n")
        transcript.feed(line[:-1], number)
    return transcript


def near(a: object, b: object) -> bool:
    """Equal, but for a last microsecond that a written time may lose."""
    if isinstance(a, float) and isinstance(b, float):
        return abs(a - b) <= 2e-6 + 1e-12 * abs(a)
    if isinstance(a, msgspec.Struct):
        return type(a) is type(b) and near(msgspec.structs.astuple(a), msgspec.structs.astuple(b))
    if isinstance(a, tuple | list) and isinstance(b, tuple | list):
        return len(a) == len(b) and all(map(near, a, b))
    return a == b


@settings(max_examples=100, deadline=None)
@given(body=bodies, time=times)
def test_every_entry_survives_being_written_and_read(body, time):
    entry = Entry("0000abcd", None, time, body)
    transcript = decoded(format.ZOT.writer(META, None).head(), format.encode_entry(entry, META))
    assert transcript.bad == []
    (read,) = transcript.entries().values()
    assert near(msgspec.structs.replace(read, time=time), entry), (read, entry)


@settings(max_examples=100, deadline=None)
@given(line=st.binary(max_size=60) | json.map(msgspec.json.encode))
def test_no_line_breaks_the_reader(line):
    transcript = Transcript()
    assert transcript.feed(line, 1) in (True, False)


@settings(max_examples=60, deadline=None)
@given(body=messages, data=st.data())
def test_a_flipped_bit_is_noticed(body, data):
    line = bytearray(format.encode_entry(Entry("0000abcd", None, 1.0, body), META)[:-1])
    at = data.draw(st.integers(0, len(line) - 1 - len(b',"crc":"00000000"}')))
    line[at] ^= 1 << data.draw(st.integers(0, 7))
    with pytest.raises(BadRow):
        format.decode_row(bytes(line))


GO_FILE = [
    {
        "type": "meta",
        "meta": {
            "id": "u-1",
            "cwd": "/w",
            "model": "claude",
            "provider": "anthropic",
            "started": "2026-05-01T10:00:00.123456789Z",
            "version": "0.0.4",
        },
    },
    {
        "type": "message",
        "message": {
            "role": "user",
            "content": [{"text": "look"}, {"mime_type": "image/png", "data": "AAEC"}],
            "time": "2026-05-01T10:00:01+02:00",
        },
    },
    {
        "type": "message",
        "message": {
            "role": "assistant",
            "content": [
                {"reasoning_id": "rs_1", "encrypted_content": "blob", "summary": "why"},
                {"text": "I will"},
                {"id": "t1", "name": "read", "arguments": {"path": "a"}, "thought_signature": "s"},
                {"id": "t2", "name": "read", "arguments": None},
            ],
            "time": "2026-05-01T10:00:02Z",
            "meta": {"origin_extension": "x"},
        },
    },
    {
        "type": "message",
        "message": {
            "role": "tool",
            "content": [
                {
                    "call_id": "t1",
                    "is_error": True,
                    "content": [{"text": "no", "format": "md"}, {"mime_type": "image/png"}],
                }
            ],
            "time": "0001-01-01T00:00:00Z",
        },
    },
    {
        "type": "usage",
        "usage": {"input_tokens": 5, "output_tokens": 2, "cost_usd": 0.25},
        "cumulative": {"input_tokens": 7, "output_tokens": 3, "cost_usd": 0.5},
    },
    {"type": "message", "message": {"role": "user", "content": [], "time": "x"}},
    {"type": "rename", "title": "A name"},
    {"type": "meta", "meta": {"id": "u-1", "cwd": "/w", "model": "opus", "provider": "anthropic"}},
    {"type": "from_the_future", "id": 7, "thing": [1, 2]},
    {
        "type": "compaction",
        "messages": [{"role": "user", "content": [{"text": "so far"}], "time": "nonsense"}],
    },
]


def test_rows_of_the_go_program_are_read():
    transcript = decoded(*[msgspec.json.encode(row) + b"\n" for row in GO_FILE])
    assert transcript.bad == []
    assert transcript.meta is not None
    assert (transcript.meta.id, transcript.meta.model) == ("u-1", "claude")
    user, assistant, tool, usage, title, model, custom, compaction = transcript.entries().values()
    assert user.body == Message(
        "user", (Text("look"), Image("image/png", b"\x00\x01\x02")), user.time
    )
    assert user.time == rows.unix("2026-05-01T08:00:01Z")
    assert assistant.body.content == (
        Reasoning(
            "why",
            "openai-responses",
            {
                "item": {
                    "type": "reasoning",
                    "id": "rs_1",
                    "summary": [{"type": "summary_text", "text": "why"}],
                    "encrypted_content": "blob",
                }
            },
        ),
        Text("I will"),
        ToolCall("t1", "read", {"path": "a"}, opaque={"thoughtSignature": "s"}),
        ToolCall("t2", "read", None),
    )
    assert assistant.body.extra == {"origin_extension": "x"}
    assert tool.body.content == (ToolResult("t1", (Text("no"), Image("image/png", b"")), True),)
    assert usage.body.cumulative.cost.total == 0.5
    assert title.body == Title("A name")
    assert model.body == core.ModelChange("anthropic", "opus")
    assert custom.body == core.Custom("from_the_future", {"thing": [1, 2]})
    assert compaction.body == core.Replaced((Message("user", (Text("so far"),), 0.0),))


def test_rows_without_ids_form_one_branch_with_the_same_ids_at_every_reading():
    lines = [msgspec.json.encode(row) + b"\n" for row in GO_FILE]
    first, second = decoded(*lines), decoded(*lines)
    assert list(first.entries()) == list(second.entries())
    parents = [entry.parent for entry in first.entries().values()]
    assert parents == [None, *list(first.entries())[:-1]]


def test_a_thought_of_the_responses_api_is_where_the_go_program_looks():
    item = {"type": "reasoning", "id": "rs", "summary": [], "encrypted_content": "e"}
    body = Message("assistant", (Reasoning("t", "openai-responses", {"item": item}),), 1.0)
    line = format.encode_entry(Entry("0000abcd", None, 1.0, body), META)
    block = msgspec.json.decode(line)["message"]["content"][0]
    assert (block["reasoning_id"], block["encrypted_content"]) == ("rs", "e")
    assert next(iter(decoded(line).entries().values())).body == body


def test_the_go_program_finds_its_documented_keys():
    message = Message(
        "assistant",
        (Text("a"), ToolCall("c", "bash", {"command": "ls"}), ToolCall("d", "bash", None, "{")),
        1.5,
        extra={"compaction": True, "note": "n"},
    )
    row = msgspec.json.decode(format.encode_entry(Entry("0000abcd", None, 1.0, message), META))
    assert row["type"] == "message"
    assert row["message"]["time"] == "1970-01-01T00:00:01.500000Z"
    assert row["message"]["content"][1] == {
        "id": "c",
        "name": "bash",
        "arguments": {"command": "ls"},
    }
    assert row["message"]["content"][2]["arguments"] == {}
    assert row["message"]["meta"] == {"note": "n"}  # a map of texts there


def test_a_compaction_row_holds_the_whole_remaining_conversation():
    kept = Message("user", (Text("kept"),), 2.0)
    entry = Entry("0000abcd", None, 1.0, Compaction("sum", "00000001", 9))
    row = msgspec.json.decode(format.encode_entry(entry, META, [kept]))
    texts = [message["content"][0]["text"] for message in row["messages"]]
    assert texts == ["## Context Summary (compacted)\n\nsum", "kept"]
    assert row["messages"][0]["meta"] == {"compaction": "true", "tokens_before": "9"}


def test_half_an_emoji_is_written_and_read_as_a_replacement_character():
    body = Message("user", (Text("a\ud83db"),), 1.0)
    line = format.encode_entry(Entry("0000abcd", None, 1.0, body), META)
    (entry,) = decoded(line).entries().values()
    assert entry.body.content == (Text("a\ufffdb"),)
    foreign = (
        b'{"type":"message","message":{"role":"user","content":'
        b'[{"text":"\\ud83d \\ud83d\\ude00"}]}}\n'
    )
    (entry,) = decoded(foreign).entries().values()
    assert entry.body.content == (Text("\ufffd \U0001f600"),)


@pytest.mark.parametrize(
    "line",
    [
        b"null",
        b"[]",
        b'{"type":5}',
        b"{}",
        b"\x00\x00",
        b'{"type":"message","message":{"role":"king","content":[]}}',
        b'{"type":"compaction","messages":[{"role":1}]}',
        b"[" * 100_000,
        b'{"type":"message","message":{"role":"user","content":[{"data":"%%"}]}}',
        b'{"type":"rename","title":"x","crc":"00000000"}',
    ],
)
def test_garbage_is_left_out_with_its_line_number(line):
    transcript = Transcript()
    assert not transcript.feed(line, 17)
    assert [number for number, _ in transcript.bad] == [17]


def test_a_row_whose_parent_was_lost_follows_the_row_before_it():
    lines = [
        format.encode_entry(Entry(id, parent, 1.0, Title(id)), META)
        for id, parent in (("0000000a", None), ("0000000c", "0000000b"))
    ]
    assert decoded(*lines).entries()["0000000c"].parent == "0000000a"


def test_a_repeated_id_gets_another_one():
    line = format.encode_entry(Entry("00000002", None, 1.0, Title("x")), META)
    assert list(decoded(line, line, line).entries()) == ["00000002", "10000002", "00000003"]


@pytest.mark.parametrize(
    "type", ["meta", "message", "rename", "level", "label", "result", "custom", "x"]
)
def test_a_row_of_a_known_type_without_its_field_says_nothing(type):
    transcript = Transcript()
    assert transcript.feed(b'{"type":"%b"}' % type.encode(), 1)
    assert len(transcript.entries()) == (1 if type == "x" else 0)


def test_times_nobody_can_write_or_read_do_not_raise():
    assert rows.rfc3339(1e300) == "1970-01-01T00:00:00Z"
    assert rows.unix("yesterday") == 0.0
    assert rows.unix("2026-01-01T00:00:00") == rows.unix("2026-01-01T00:00:00Z")


def test_the_size_of_a_row_is_near_the_size_of_its_text():
    body = Message("user", (Text("x" * 1000),), 1.0)
    line = format.encode_entry(Entry(os.urandom(4).hex(), None, 1.0, body), META)
    assert len(line) < 1250
