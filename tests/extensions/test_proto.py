import json
from typing import get_args

import jsonschema_rs
import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.docs import ROOT

from zot.extensions import proto
from zot.lines import LineSplitter, LineTooLong


@pytest.mark.parametrize(
    ("line", "frame"),
    [
        (b'{"type":"ready"}', proto.Ready()),
        (b' {"name":"x","type":"hello","capabilities":null} ', proto.Hello("x")),
        (b'{"type":"tool_result","id":"1","content":null}', proto.ToolResult("1")),
        (b'{"type":"future","x":[1]}', proto.Unknown("future")),
        (b'{"type":"notify","message":"\\ud83d"}', proto.Notify("\ufffd")),
        (b'{"type":"notify","message":"\\ud83d\\ude00","x":"\\ud83d"}', proto.Notify("😀")),
        (
            b'{"type":"open_panel","panel":{"id":"p","lines":null,"title":null}}',
            proto.OpenPanel(proto.Panel("p")),
        ),
        (
            b'{"type":"subscribe","events":["a"],"fail_closed":true,"new":1}',
            proto.Subscribe(("a",), fail_closed=True),
        ),
    ],
)
def test_lines_of_an_extension_are_read_with_patience(line, frame):
    assert proto.decode(line) == frame


@pytest.mark.parametrize(
    "line",
    [b"", b"x", b"[]", b"null", b"{}", b'{"type":1}', b'{"type":"hello"}', b"\xff", b"[" * 100_000]
    + [b'{"type":"ready","x":' + b"[" * 501 + b"]" * 501 + b"}"]
    + [b'{"type":"tool_result","id":1}', b'{"type":"notify","message":{}}'],
)
def test_what_is_no_frame_says_why(line):
    with pytest.raises(proto.BadFrame, match=r"not JSON|not an object|bad '"):
        proto.decode(line)


@settings(max_examples=60, deadline=None)
@given(st.binary(max_size=300))
def test_any_line_is_a_frame_or_a_bad_frame(line):
    try:
        proto.decode(line)
    except proto.BadFrame:
        pass


json_values = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**53), 2**53) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=10,
)


@settings(max_examples=60, deadline=None)
@given(st.text(), st.dictionaries(st.text(), json_values, max_size=4))
@pytest.mark.slow
def test_a_frame_is_one_line_that_every_reader_splits_alike(name, args):
    line = proto.encode(proto.ToolCall("1", name, args))
    assert line.endswith(b"\n")
    text = line.decode("utf-8")
    assert len(text.splitlines()) == 1
    decoded = proto.decode_from_host(line)
    assert isinstance(decoded, proto.ToolCall)
    assert json.loads(text)["args"] == decoded.args


def test_a_lone_surrogate_never_raises():
    line = proto.encode(proto.ToolCall("1", "n", {"a": ["\ud800", {"\udfff": "x"}]}))
    assert json.loads(line)["args"] == {"a": ["\ufffd", {"\ufffd": "x"}]}


def test_a_line_that_is_too_long_tells_whose_answer_it_was():
    splitter = LineSplitter(100, at_once=True)
    long = b'{"type":"tool_result","id": "42","x":"' + b"y" * 200
    (found,) = splitter.feed(long)
    assert isinstance(found, LineTooLong)
    assert proto.id_of(found.start) == "42"
    assert list(splitter.feed(b'yyy"}\nnext\n')) == [b"next"]


# --- schema ----------------------------------------------------------------------------------


def test_the_schema_describes_every_frame():
    schema = proto.json_schema()
    assert set(get_args(proto.FromExtension)) | set(get_args(proto.ToExtension))
    names = {each.__name__ for each in get_args(proto.FromExtension) + get_args(proto.ToExtension)}
    assert names <= set(schema["$defs"])
    validator = jsonschema_rs.validator_for(schema)
    assert validator.is_valid({"type": "ready"})
    assert validator.is_valid({"type": "tool_call", "id": "1", "name": "x", "args": {}})
    assert not validator.is_valid({"type": "tool_call", "id": 1})
    assert not validator.is_valid({"type": "unheard_of"})


def test_the_schema_in_the_documents_is_current():
    stored = json.loads((ROOT / "docs" / "schema" / "extensions.json").read_text())
    current = json.loads(msgspec.json.encode(proto.json_schema()))
    assert stored == current, "run: zot schema extensions > docs/schema/extensions.json"
