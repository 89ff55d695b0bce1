import json
import os
import random
from pathlib import Path
from types import SimpleNamespace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import UNSET, Raw

from zot.core.events import Done
from zot.runtime.journal import RunEnded
from zot.wire import eventlog
from zot.wire.eventlog import EventLog, follow_lines, read_events, seq_of


def line(text: str) -> bytes:
    return b'{"type":"text_delta","delta":"%s"}\n' % text.encode()


@pytest.fixture
def session(tmp_path) -> str:
    return str(tmp_path / "s.jsonl")


@given(st.integers(1, 10**15), st.text(), st.sampled_from([UNSET, Raw(b'"p"'), Raw(b"7")]))
def test_the_number_of_a_frame_is_found_whatever_it_says(seq, text, tag):
    from zot.wire import zot

    made = zot.encode({"type": "tool_call", "args": {"a": text, "seq": 5}})
    assert seq_of(zot.stamped(made, seq, tag)) == seq


@pytest.mark.untraced
@pytest.mark.parametrize("size", [1, 5000, 200_000])
def test_every_cursor_gets_what_is_behind_it(session, monkeypatch, size):
    monkeypatch.setattr(eventlog, "CHUNK", 1024)
    log = EventLog(session)
    for number in range(40):
        log.append(line(f"{number}" + "x" * size))
    for after in range(41):
        page = read_events(session, after, limit=100, most=1 << 30)
        assert [seq_of(each) for each in page.lines] == list(range(after + 1, 41))
        assert not page.expired
    log.close()


def test_a_log_is_bounded_and_says_what_is_gone(session, monkeypatch):
    monkeypatch.setattr(eventlog, "MAX_FILE", 2000)
    log = EventLog(session)
    for number in range(200):
        log.append(line(str(number)))
    files = [Path(f"{session}.events"), Path(f"{session}.events.1")]
    assert all(file.stat().st_size < 2200 for file in files)
    page = read_events(session, 0)
    assert page.expired
    numbers = [seq_of(each) for each in page.lines]
    assert numbers == list(range(numbers[0], 201))
    assert not read_events(session, numbers[0] - 1).expired
    assert read_events(session, numbers[0] - 2).expired
    log.close()


def test_numbers_go_on_after_a_restart_and_a_torn_line_is_cut(session):
    log = EventLog(session)
    log.append(line("a"))
    log.number()
    log.close()
    path = Path(f"{session}.events")
    path.write_bytes(path.read_bytes() + b'{"type":"text_delta","de')
    log = EventLog(session)
    log.append(line("b"))
    numbers = [seq_of(each) for each in read_events(session, 0).lines]
    assert numbers == [1, 1 + eventlog.GAP + 1]
    assert path.stat().st_mode & 0o777 == 0o600
    log.close()


def test_a_full_disk_costs_the_log_and_not_the_run(session, monkeypatch):
    log = EventLog(session)
    log.append(line("a"))
    write = os.write

    def full(fd: int, data: bytes) -> int:
        return write(fd, data[:5])

    monkeypatch.setattr(os, "write", full)
    log.append(line("b"))
    log.append(line("c"))
    monkeypatch.setattr(os, "write", write)
    log.append(line("d"))
    page = read_events(session, 1)
    assert page.expired
    assert [seq_of(each) for each in page.lines] == [4]
    assert not read_events(session, 3).expired
    log.close()


def test_who_follows_is_told_when_something_is_gone(session, monkeypatch):
    monkeypatch.setattr(eventlog, "MAX_FILE", 500)
    log = EventLog(session)
    for number in range(100):
        log.append(line(str(number)))
    lines = list(follow_lines(session, 3, lambda: False))
    assert lines[0] == b'{"type":"cursor_expired","from":3}\n'
    assert seq_of(lines[-1]) == 100
    assert list(follow_lines(session + "-none", 0, lambda: False)) == []
    log.close()


def test_a_process_that_lost_the_session_adds_nothing_to_the_log(session):
    old = EventLog(session)
    old.append(line("before"))
    new = EventLog(session)
    for text in ("lost", "lost again"):
        old.append(line(text))
    new.append(line("after"))
    os.write(old._fd, b'{"type":"done","seq":2}\n')  # it had looked before the other one began
    new.append(line("and after"))
    page = read_events(session, 0)
    assert [b"after" in each for each in page.lines] == [False, True, True]
    numbers = [seq_of(each) for each in page.lines]
    assert numbers == [1, new.seq - 1, new.seq]
    assert not page.expired
    old.close()
    new.close()


@pytest.mark.parametrize("tidy", [os.unlink, lambda path: os.truncate(path, 0)])
def test_a_log_that_somebody_removed_begins_anew(session, tidy):
    log = EventLog(session)
    log.append(line("1"))
    tidy(f"{session}.events")
    log.append(line("2"))
    page = read_events(session, 0)
    assert [seq_of(each) for each in page.lines] == [2]
    assert page.expired
    log.close()
    log.append(line("too late"))
    assert read_events(session, 0).lines == page.lines


def test_a_changed_byte_costs_its_line_and_nothing_else(session):
    log = EventLog(session)
    for number in range(60):
        log.append(line(f"{number} é \\n"), Raw(b'"p"') if number % 2 else UNSET)
    log.close()
    path, chosen = Path(f"{session}.events"), random.Random(11)
    whole = path.read_bytes()
    durable = SimpleNamespace(last_ended=lambda: RunEnded(run="r", stop="end"))
    runtime = SimpleNamespace(runs=SimpleNamespace(durable=durable))
    sent = {seq_of(each): each for each in read_events(session, 0).lines}
    assert list(sent) == list(range(1, 61))
    for case in range(500):
        damaged = bytearray(whole)
        damaged[case if case < 40 else chosen.randrange(len(whole))] ^= chosen.randrange(1, 256)
        path.write_bytes(damaged)
        pages = [read_events(session, after) for after in (0, 30, 59)]
        assert all(sent[seq_of(each)] == each for page in pages for each in page.lines)
        assert len(pages[0].lines) >= 58
        assert all(json.loads(each) for each in follow_lines(session, 0, lambda: False))
        again = EventLog(session)
        assert again.seq >= 59  # no number is given twice
        assert again.missed_end(runtime) == Done("end", "r")
        again.close()


def test_a_log_without_checksums_is_read(session):
    rows = [b'{"type":"event_log","after":0}\n']
    rows += [b'{"type":"text_delta","delta":"%d","seq":%d}\n' % (n, n) for n in range(1, 9)]
    Path(f"{session}.events").write_bytes(b"".join(rows))
    assert read_events(session, 0).lines == rows[1:]
    rows[3] = rows[3].replace(b'"delta"', b'"delta')
    rows[8] = rows[8].replace(b'"seq":8', b'"seq":X')
    Path(f"{session}.events").write_bytes(b"".join(rows))
    assert [seq_of(each) for each in read_events(session, 0).lines] == [1, 2, 4, 5, 6, 7]
    log = EventLog(session)
    assert log.seq == 7 + eventlog.GAP
    log.append(line("new"))
    assert [seq_of(each) for each in read_events(session, 6).lines] == [7, log.seq]
    log.close()
