import errno
import fcntl
import json
import os
import resource
import threading
import time
from unittest.mock import Mock

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.patience import PATIENCE

from zot import lines as ndjson
from zot.cancel import Cancel
from zot.errors import CommandError
from zot.lines import (
    AT_ONCE,
    LineCutter,
    LineSplitter,
    LineTooLong,
    LineWriter,
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


# --- writing -----------------------------------------------------------------------------------


@pytest.fixture
def pipe():
    read, write = os.pipe()
    closed = []
    yield read, write, closed
    for fd in (read, write):
        if fd not in closed:
            os.close(fd)


def test_what_is_put_is_written_in_order(pipe):
    read, write, _ = pipe
    writer = LineWriter(write)
    for number in range(1000):
        writer.put(b"%d\n" % number)
    writer.close(PATIENCE)
    writer.put(b"too late\n")
    assert os.read(read, 65536).split() == [b"%d" % number for number in range(1000)]


@pytest.fixture(params=["asked at once", "unknown", "refused"])
def system(request, monkeypatch):
    """What the system says when it is to write now or not at all."""
    if request.param == "unknown":
        monkeypatch.delattr(os, "RWF_NOWAIT", raising=False)
    elif request.param == "refused":
        refused = OSError(errno.EOPNOTSUPP, "not supported")
        monkeypatch.setattr(os, "RWF_NOWAIT", 8, raising=False)
        monkeypatch.setattr(os, "pwritev", Mock(side_effect=refused), raising=False)


def test_a_line_is_written_by_who_has_it_while_the_pipe_takes_it(pipe, system):
    read, write, _ = pipe
    writer = LineWriter(write)
    writer.put(b"1\n")
    assert os.read(read, 100) == b"1\n"
    assert writer._thread is None
    full = b"x" * 4095 + b"\n"
    for _ in range(16):
        os.write(write, full)  # a pipe takes 64 KiB
    writer.put(b"2\n")
    assert writer._thread is not None
    taken = b""
    while not taken.endswith(b"2\n"):
        taken += os.read(read, 65536)
    assert taken == full * 16 + b"2\n"
    writer.close(PATIENCE)


def test_of_a_line_that_is_larger_than_the_room_the_thread_writes_the_rest(pipe, system):
    read, write, _ = pipe
    writer = LineWriter(write)
    writer.put(b"x" * 50_000 + b"\n")
    large = b"y" * 300_000 + b"\n"
    writer.put(large)
    writer.put(b"z\n")
    taken = b""
    while not taken.endswith(b"z\n"):
        taken += os.read(read, 65536)
    assert taken == b"x" * 50_000 + b"\n" + large + b"z\n"
    writer.close(PATIENCE)


def test_a_large_line_into_a_pipe_with_room_needs_no_thread(pipe):
    read, write, _ = pipe
    writer = LineWriter(write)
    writer.put(b"x" * 50_000 + b"\n")
    assert len(os.read(read, 65536)) == 50_001
    if not writer._at_once:
        pytest.skip("this system has to be asked first, about less than that")
    assert writer._thread is None


def test_a_client_that_reads_each_line_is_not_kept_waiting_by_a_thread(pipe, system):
    read, write, _ = pipe
    writer = LineWriter(write)
    for number in range(10 * AT_ONCE):
        line = b"%d\n" % number
        writer.put(line)
        assert os.read(read, 100) == line
    assert writer._thread is None
    for _ in range(2 * AT_ONCE):
        writer.put(b"x\n")
    assert writer._thread is not None
    writer.close(PATIENCE)
    assert os.read(read, 1000) == b"x\n" * 2 * AT_ONCE


def test_what_is_told_later_is_made_when_it_is_written_and_in_its_order(pipe):
    read, write, _ = pipe
    writer, made = LineWriter(write), []

    def make(number):
        made.append(number)
        return b"%d\n" % number

    writer.put_later(lambda: make(1))
    writer.put(b"2\n", held=True)
    writer.put_later(lambda: make(3))
    assert not made
    writer.flush(soon=True)
    assert made == [1, 3]
    assert not ready(read, timeout=0)
    writer.put(b"4\n")
    assert os.read(read, 100) == b"1\n2\n3\n4\n"
    assert made == [1, 3]
    for number in range(100):
        writer.put_later(lambda number=number: make(number))
    assert 0 < len(made) < 100
    writer.close(PATIENCE)
    assert os.read(read, 65536) == b"".join(b"%d\n" % number for number in range(100))
    lane = LineWriter(write).open_lane()
    lane.put_later(lambda: b"5\n")
    assert os.read(read, 100) == b"5\n"


def test_held_lines_go_out_in_one_piece_with_what_follows_or_when_flushed(pipe):
    read, write, _ = pipe
    writer = LineWriter(write)
    writer.put(b"1\n", held=True)
    writer.put(b"2\n", held=True)
    assert not ready(read, timeout=0)
    writer.put(b"3\n")
    assert os.read(read, 100) == b"1\n2\n3\n"
    writer.put(b"4\n", held=True)
    writer.flush()
    writer.flush()
    assert os.read(read, 100) == b"4\n"
    writer.put(b"5\n", held=True)
    writer.close(PATIENCE)
    assert os.read(read, 100) == b"5\n"


@given(
    st.lists(
        st.tuples(
            st.integers(1, 3000) | st.integers(50_000, 150_000),
            st.booleans(),
            st.sampled_from(["own", "lane", "flush"]),
        ),
        max_size=60,
    )
)
def test_held_lines_keep_their_order_and_none_is_lost(steps):
    read, write = os.pipe()
    lines: list[bytes] = []

    def read_all() -> None:
        with os.fdopen(read, "rb") as reader:
            lines.extend(reader)

    reading = threading.Thread(target=read_all)
    reading.start()
    writer = LineWriter(write)
    lane = writer.open_lane()
    put: dict[str, list[bytes]] = {"own": [], "lane": []}
    for number, (size, held, where) in enumerate(steps):
        if where == "flush":
            writer.flush()
            continue
        line = f"{where} {number} ".encode() + b"x" * size + b"\n"
        put[where].append(line)
        (lane.put if where == "lane" else writer.put)(line, held=held)
    writer.close(PATIENCE)
    os.close(write)
    reading.join(PATIENCE)
    for where, expected in put.items():
        assert [line for line in lines if line.startswith(where.encode())] == expected


def test_a_full_buffer_holds_the_turn_until_it_is_read_or_aborted(pipe, monkeypatch):
    read, write, _ = pipe
    monkeypatch.setattr(ndjson, "BUFFER_LIMIT", 200_000)
    writer = LineWriter(write)
    writer.put(b"x" * 300_000)
    cancel, passed = Cancel(), threading.Event()

    def turn():
        writer.wait(cancel)
        passed.set()

    thread = threading.Thread(target=turn)
    thread.start()
    assert not passed.is_set()
    cancel.set()
    assert passed.wait(PATIENCE)
    thread.join()
    again = threading.Thread(target=writer.wait, args=(Cancel(),))
    again.start()
    left = 300_000
    while left:
        left -= len(os.read(read, 65536))
    again.join(PATIENCE)
    assert not again.is_alive()
    writer.wait(Cancel())
    writer.close(PATIENCE)


def test_a_writer_past_all_bounds_says_so_and_says_when_it_is_over(pipe, monkeypatch):
    read, write, _ = pipe
    monkeypatch.setattr(ndjson, "OVERFULL", 400_000)
    drained = threading.Event()
    writer = LineWriter(write, drained=drained.set)
    assert not writer.overfull
    writer.put(b"x" * 500_000)
    assert writer.overfull
    left = 500_000
    while left:
        left -= len(os.read(read, 65536))
    assert drained.wait(PATIENCE)
    assert not writer.overfull
    writer.close(PATIENCE)


def test_a_reader_that_left_is_told_once_and_everything_is_dropped(pipe):
    read, write, closed = pipe
    gone = []
    there = threading.Event()
    writer = LineWriter(write, gone=lambda: (gone.append(1), there.set()))
    os.close(read)
    closed.append(read)
    writer.put(b"x")
    assert there.wait(PATIENCE)
    for _ in range(10):
        writer.put(b"x" * 1_000_000)
    writer.wait(Cancel())
    writer.close(PATIENCE)
    assert gone == [1]


def test_a_pipe_that_somebody_set_to_non_blocking_gets_every_byte(pipe):
    read, write, _ = pipe
    os.set_blocking(write, False)
    writer = LineWriter(write)
    writer.put(b"x" * 1_000_000)
    left = 1_000_000
    while left:
        left -= len(os.read(read, 65536))
    writer.close(PATIENCE)


def test_close_does_not_wait_for_a_reader_that_never_reads(pipe):
    read, write, closed = pipe
    writer = LineWriter(write)
    writer.put(b"x" * 1_000_000)
    while ready(writing=(write,), timeout=0):
        time.sleep(0.001)  # until its thread has filled the pipe
    writer.close(0.05)
    assert writer._thread.is_alive()
    os.close(read)
    closed.append(read)
    writer._thread.join(PATIENCE)  # it must not write to what gets the descriptor next


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


# --- lanes: several writers share one output ---------------------------------------------------


def test_lanes_are_written_in_turn_and_each_in_its_own_order():
    read, write = os.pipe()
    writer = LineWriter(write)
    flood, quiet = writer.open_lane(), writer.open_lane()
    for number in range(400):
        flood.put(b"f%d " % number + b"x" * 5000 + b"\n")
    quiet.put(b"q1\n")
    quiet.put(b"q2\n")
    data = bytearray()
    while data.count(b"\n") < 402:
        data += os.read(read, 1 << 16)
    words = [line.split(b" ")[0] for line in bytes(data).splitlines()]
    assert [word for word in words if word[:1] == b"f"] == [b"f%d" % n for n in range(400)]
    assert words.index(b"q1") < words.index(b"q2") < 100
    writer.close(5)
    os.close(read)
    os.close(write)


def test_a_full_lane_waits_alone():
    read, write = os.pipe()
    writer = LineWriter(write)
    flood, quiet = writer.open_lane(), writer.open_lane()
    for _ in range(100):
        flood.put(b"x" * 65_535 + b"\n")
    quiet.wait(Cancel())  # returns at once
    waiting = threading.Thread(target=flood.wait, args=(Cancel(),), daemon=True)
    waiting.start()
    waiting.join(0.1)
    assert waiting.is_alive()
    size = 0
    while size < 100 * 65_536:
        size += len(os.read(read, 1 << 20))
    waiting.join(PATIENCE)
    assert not waiting.is_alive()
    writer.close(5)
    os.close(read)
    os.close(write)


def test_a_lane_that_is_closed_leaves_its_share_to_the_others_and_loses_nothing():
    read, write = os.pipe()
    writer = LineWriter(write)
    lane = writer.open_lane()
    lines = [b"%d " % number + b"y" * 20_000 + b"\n" for number in range(250)]
    for line in lines:
        lane.put(line)
    writer.close_lane(lane)
    writer.wait(Cancel())
    data = bytearray()
    while len(data) < sum(map(len, lines)):
        data += os.read(read, 1 << 20)
    assert data == b"".join(lines)
    writer.close(5)
    os.close(read)
    os.close(write)


def test_a_held_line_before_an_empty_one_of_a_lane_is_not_forgotten(pipe):
    read, write, _ = pipe
    writer = LineWriter(write)
    lane = writer.open_lane()
    for _ in range(16):
        os.write(write, b"x" * 4096)  # a pipe takes 64 KiB
    writer.put(b"mine\n", held=True)
    lane.put(b"")
    taken = b""
    while not taken.endswith(b"mine\n"):
        assert ready(read, timeout=PATIENCE)
        taken += os.read(read, 65536)
    writer.close(PATIENCE)
