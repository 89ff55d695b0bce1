import os
import threading
import time

from hypothesis import given
from hypothesis import strategies as st
from support.patience import PATIENCE

from zot import writer as writing
from zot.cancel import Cancel
from zot.lines import ready
from zot.writer import LineWriter


def test_what_is_put_is_written_in_order(pipe):
    read, write, _ = pipe
    writer = LineWriter(write)
    for number in range(1000):
        writer.put(b"%d\n" % number)
    writer.close(PATIENCE)
    writer.put(b"too late\n")
    assert os.read(read, 65536).split() == [b"%d" % number for number in range(1000)]


def test_streamed_lines_that_come_fast_are_written_in_one_go(pipe, monkeypatch):
    monkeypatch.setattr(writing, "STREAM_GAP", PATIENCE)
    written = []
    monkeypatch.setattr(writing, "write_all", lambda fd, data: written.append(data))
    writer = LineWriter(pipe[1])
    writer.put(b"first\n")
    with writer._lock:
        for number in range(100):
            writer.put(b"%d\n" % number)
    writer.close(PATIENCE)
    assert os.read(pipe[0], 65536) == b"first\n"
    assert written == [b"".join(b"%d\n" % number for number in range(100))]


def test_a_line_that_is_not_streamed_is_written_by_its_caller(pipe):
    writer = LineWriter(pipe[1])
    for number in range(10):
        writer.put(b"%d\n" % number, streamed=False)
        assert os.read(pipe[0], 100) == b"%d\n" % number
    assert writer._thread is None


def test_a_file_is_written_by_the_thread_only(tmp_path):
    path = tmp_path / "out"
    with path.open("wb") as file:
        writer = LineWriter(file.fileno())
        writer.put(b"x\n", streamed=False)
        writer.close(PATIENCE)
        assert writer._thread is not None
    assert path.read_bytes() == b"x\n"


def test_a_line_that_is_larger_than_the_room_is_written_whole(pipe):
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


@given(
    st.lists(
        st.tuples(
            st.integers(1, 3000) | st.integers(50_000, 150_000),
            st.sampled_from(["own", "lane"]),
            st.booleans(),
        ),
        max_size=60,
    )
)
def test_lines_keep_their_order_and_none_is_lost(steps):
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
    for number, (size, where, streamed) in enumerate(steps):
        line = f"{where} {number} ".encode() + b"x" * size + b"\n"
        put[where].append(line)
        (lane if where == "lane" else writer).put(line, streamed=streamed)
    writer.close(PATIENCE)
    os.close(write)
    reading.join(PATIENCE)
    for where, expected in put.items():
        assert [line for line in lines if line.startswith(where.encode())] == expected


def test_a_full_buffer_holds_the_turn_until_it_is_read_or_aborted(pipe, monkeypatch):
    read, write, _ = pipe
    monkeypatch.setattr(writing, "BUFFER_LIMIT", 200_000)
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
    monkeypatch.setattr(writing, "OVERFULL", 400_000)
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
