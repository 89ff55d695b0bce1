import json
from typing import Literal, get_args, get_origin

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from zot.lines import encode_line
from zot.wire import frames, shapes
from zot.wire.frames import KNOWN, EventFrame, FrameError, Response, Unknown, parse_frame

TEXT = st.text(st.characters(codec="utf-8"), max_size=20)
NUMBERS = st.integers(-(2**53), 2**53)
JSON = st.recursive(
    st.none() | st.booleans() | NUMBERS | st.floats(allow_nan=False, allow_infinity=False) | TEXT,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXT, inner, max_size=3),
    max_leaves=8,
)


def values(kind):
    """Values of a field's type."""
    if kind is msgspec.UnsetType:
        return st.just(msgspec.UNSET)
    if isinstance(kind, type) and issubclass(kind, msgspec.Struct):
        return structs(kind)
    simple = {str: TEXT, int: NUMBERS, bool: st.booleans(), type(None): st.none()}
    if kind in simple:
        return simple[kind]
    if kind is float:
        return st.floats(allow_nan=False, allow_infinity=False)
    if get_origin(kind) is Literal:
        return st.sampled_from(get_args(kind))
    if get_origin(kind) is tuple:
        return st.lists(values(get_args(kind)[0]), max_size=3).map(tuple)
    if get_origin(kind) is dict:
        return st.dictionaries(TEXT, JSON, max_size=3)
    if get_args(kind):
        return st.one_of([values(member) for member in get_args(kind)])
    return JSON


def structs(kind):
    fields = {field.name: values(field.type) for field in msgspec.structs.fields(kind)}
    return st.builds(kind, **fields)


FRAMES = st.one_of([structs(kind) for kind in get_args(EventFrame)])


@given(FRAMES)
def test_a_frame_is_parsed_back_into_what_it_was(frame):
    assert parse_frame(frame.to_wire()) == frame
    assert parse_frame(encode_line(frame)) == frame
    assert parse_frame(encode_line(frame).decode()) == frame


@given(FRAMES)
def test_to_wire_is_what_the_wire_carries(frame):
    assert frame.to_wire() == json.loads(encode_line(frame))
    assert frame.to_wire()["type"] in KNOWN


@given(FRAMES)
def test_unknown_fields_are_passed_over(frame):
    assert parse_frame({**frame.to_wire(), "no such field": [1]}) == frame


@given(st.binary(max_size=200) | JSON.map(lambda value: json.dumps(value).encode()))
def test_whatever_comes_is_a_frame_or_a_frame_error(line):
    try:
        parse_frame(line)
    except FrameError as error:
        assert str(error).startswith("not a frame: ")


def test_a_response_is_parsed_with_its_id_as_it_was():
    line = b'{"type":"response","command":"ping","success":true,"id":7,"data":{"pong":true}}'
    assert parse_frame(line) == Response("ping", True, 7, {"pong": True})


def test_the_data_of_a_response_becomes_a_type_or_an_error():
    response = Response("get_models", True, data={"models": []})
    assert response.data_as(shapes.Models) == shapes.Models(())
    with pytest.raises(FrameError, match="the answer to 'get_models' has another shape"):
        response.data_as(shapes.State)


def test_a_frame_of_a_later_version_is_unknown_and_keeps_its_fields():
    frame = {"type": "mood", "value": 7}
    assert parse_frame(frame) == Unknown("mood", frame)
    assert parse_frame(frame).to_wire() == frame


def test_a_known_frame_with_wrong_fields_is_unknown_and_says_why():
    found = parse_frame(b'{"type":"turn_start"}')
    assert isinstance(found, Unknown)
    assert "step" in found.problem


def test_frames_of_the_first_zot_are_parsed_without_our_additions():
    assert parse_frame(b'{"stop":"end","type":"turn_end"}') == frames.TurnEnd("end")


def test_half_a_character_is_mended():
    assert parse_frame(b'{"type":"text_delta","delta":"\\ud83d"}') == frames.TextDelta("\ufffd")
    assert frames.TextDelta("a\ud83d").to_wire() == {"type": "text_delta", "delta": "a\ufffd"}
