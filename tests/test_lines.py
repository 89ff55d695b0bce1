import fcntl
import json
import os
import resource

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from zot.errors import CommandError
from zot.lines import (
    LineCutter,
    LineSplitter,
    LineTooLong,
    decode_line,
    encode_line,
    readable,
    ready,
)
from zot.text import whole_characters, whole_value

LIMIT = 12


def split(pieces, limit=LIMIT):
    splitter = LineSplitter(limit)
    lines = [line for piece in pieces for line in splitter.feed(piece)]
    rest = splitter.finish()
    return [shown(line) for line in lines], shown(rest)


def shown(line):
    return f"too long: {line.limit}" if isinstance(line, LineTooLong) else line


stream = st.lists(
    st.sampled_from(
        [b"\n", b"\r", b" ", b"a", b"bc", b"\xef\xbb\xbf", b"\xe2\x80\xa8", b"{}", b"\0"]
    )
    | st.binary(max_size=4)
).map(b"".join)


@given(stream, st.lists(st.integers(0, 200)))
def test_a_stream_cut_anywhere_gives_the_same_lines(data, cuts):
    points = sorted({min(cut, len(data)) for cut in cuts})
    pieces = [data[a:b] for a, b in zip([0, *points], [*points, len(data)], strict=True)]
    assert split(pieces) == split([data])
    assert split([bytes([byte]) for byte in data]) == split([data])
    cutter = LineCutter()
    assert [line for piece in pieces for line in cutter.feed(piece)] == data.split(b"\n")[:-1]


@given(stream)
def test_lines_are_what_stands_between_line_feeds(data):
    lines, rest = split([data], limit=10_000)
    expected = [line.strip(b" \t\r") for line in data.removeprefix(b"\xef\xbb\xbf").split(b"\n")]
    *whole, last = expected
    assert lines == [line for line in whole if line]
    assert (rest or b"") == last


@given(st.lists(st.binary(max_size=30).filter(lambda b: b"\n" not in b)))
def test_a_line_over_the_limit_is_skipped_and_the_next_one_read(lines):
    data = b"".join(line + b"\n" for line in lines) + b"ok\n"
    got, _ = split([data])
    assert got[-1] == b"ok"
    assert got.count(f"too long: {LIMIT}") == sum(len(line) > LIMIT for line in lines)


def test_the_limit_itself_is_allowed():
    assert split([b"x" * LIMIT + b"\n"]) == ([b"x" * LIMIT], None)
    assert split([b"x" * (LIMIT + 1) + b"\ny"]) == ([f"too long: {LIMIT}"], b"y")
    assert split([b"x" * (LIMIT + 1)]) == ([], f"too long: {LIMIT}")
    assert len(list(LineSplitter(LIMIT, at_once=True).feed(b"x" * (LIMIT + 1)))) == 1


def test_a_byte_order_mark_is_taken_off_once():
    bom = b"\xef\xbb\xbf"
    assert split([bom + b"a\n" + bom + b"b\n"])[0] == [b"a", bom + b"b"]
    assert split([b"\n" + bom + b"a\n"])[0] == [bom + b"a"]


# --- decoding ----------------------------------------------------------------------------------


@given(st.binary(max_size=60) | st.text(max_size=40).map(str.encode))
def test_any_bytes_decode_or_are_refused_with_a_word(line):
    try:
        decode_line(line, msgspec.json.decode)
    except CommandError as error:
        assert error.code in ("parse_error", "invalid_params")


@given(st.text(st.characters(codec=None)))
def test_half_characters_in_json_become_replacement_characters(text):
    line = json.dumps({"x": text}).encode()  # escapes each half on its own
    assert decode_line(line, msgspec.json.decode) == {"x": whole_characters(text)}


surrogates = st.lists(
    st.sampled_from(["\\ud83d", "\\ude00", "\\uD83D", "\\uDE00", "\\\\", "\\n", "a", "u", "d83d"])
)


@given(surrogates)
def test_escaped_halves_are_mended_and_nothing_else(parts):
    line = ('"' + "".join(parts) + '"').encode()
    value = json.loads(line)
    assert decode_line(line, msgspec.json.decode) == whole_characters(value)
    assert readable(readable(line)) == readable(line)


def test_whole_characters_joins_pairs_and_replaces_halves():
    assert whole_characters("a\ud83d\ude00b") == "a😀b"
    assert whole_characters("a\ud83d b\ude00") == "a\ufffd b\ufffd"
    assert whole_characters("é😀") == "é😀"


# --- encoding ----------------------------------------------------------------------------------

values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(st.characters(codec=None)),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.text(st.characters(codec=None), max_size=3), inner, max_size=3)
    ),
    max_leaves=8,
)


@given(values)
def test_a_line_is_one_line_of_utf8_json_and_reads_back(value):
    line = encode_line(value)
    assert line.endswith(b"\n")
    text = line[:-1].decode()
    assert len(text.splitlines()) <= 1
    assert json.loads(text) == whole_value(value)


def test_an_answer_with_half_a_character_keeps_its_raw_parts():
    line = encode_line({"id": msgspec.Raw(b'"a"'), "x": "\ud83d", "y": ("\ude00", 1)})
    assert json.loads(line) == {"id": "a", "x": "\ufffd", "y": ["\ufffd", 1]}


def test_descriptors_above_1023_can_be_waited_for(pipe):
    read, write, _ = pipe
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    if most < 2000:
        pytest.skip("this system allows fewer descriptors")
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, 2000), most))
    high = fcntl.fcntl(read, fcntl.F_DUPFD_CLOEXEC, 1500)
    try:
        assert ready(high, timeout=0) == set()
        os.write(write, b"x")
        assert ready(high, writing=(write,), timeout=0) == {high, write}
    finally:
        os.close(high)
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, most))
