import os

import pytest
from hypothesis import given
from hypothesis import strategies as st

from zot.swarm import rows
from zot.swarm.agent import SwarmAgent
from zot.swarm.log import AgentFolder, LogWriter, agent_folders, read_log
from zot.swarm.task import NoSuchAgent, SwarmError, SwarmTask, new_id, pick

TASK = SwarmTask(id="fix-1", prompt="fix it", directory="/work", created=10.0)


def rows_in(path, start=0):
    return [(row.seq, row.frame) for _, row in read_log(path, start)]


def test_what_is_written_is_read_back_and_only_the_user_may_read_it(tmp_path):
    path = tmp_path / "events.jsonl"
    log = LogWriter(path)
    log.frame(b'{"type":"text_delta","delta":"a"}\n')
    log.row(rows.RunOver("fix-1-1", "answered"), sync=True)
    assert log.frame(b"no frame") is None
    assert log.frame(b"[1]") is None
    log.close()
    assert rows_in(path) == [
        (1, {"type": "text_delta", "delta": "a"}),
        (2, {"type": "swarm_run_over", "run": "fix-1-1", "outcome": "answered"}),
    ]
    assert path.stat().st_mode & 0o777 == 0o600


def test_a_reader_goes_on_from_where_it_was(tmp_path):
    path = tmp_path / "events.jsonl"
    log = LogWriter(path)
    log.frame(b'{"type":"a"}')
    ((position, _),) = read_log(path)
    log.frame(b'{"type":"b"}')
    log.close()
    assert rows_in(path, position) == [(2, {"type": "b"})]
    assert rows_in(tmp_path / "none") == []


@pytest.mark.parametrize("torn", [b'{"seq":2,"at":1', b'{"seq":2,"at":1.0,"frame":{}}', b"\0\0\0"])
def test_a_row_that_a_crash_cut_is_not_read_and_does_not_spoil_the_next(tmp_path, torn):
    path = tmp_path / "events.jsonl"
    log = LogWriter(path)
    log.frame(b'{"type":"a"}')
    log.close()
    with path.open("ab") as file:
        file.write(torn)
    assert rows_in(path) == [(1, {"type": "a"})]
    log = LogWriter(path)
    log.frame(b'{"type":"b"}')
    log.close()
    assert rows_in(path) == [(1, {"type": "a"}), (2, {"type": "b"})]


def test_a_log_that_was_cut_to_garbage_begins_anew(tmp_path):
    path = tmp_path / "events.jsonl"
    path.write_bytes(b"garbage")
    log = LogWriter(path)
    log.frame(b'{"type":"a"}')
    log.close()
    assert rows_in(path) == [(1, {"type": "a"})]


@given(st.lists(st.integers(1, 60), max_size=20), st.data())
def test_any_split_of_the_file_gives_each_row_once(tmp_path_factory, sizes, data):
    path = tmp_path_factory.mktemp("log") / "events.jsonl"
    log = LogWriter(path)
    for size in sizes:
        log.frame(b'{"type":"%s"}' % (b"x" * size))
    log.close()
    whole = list(read_log(path))
    start = data.draw(st.sampled_from([0, *(position for position, _ in whole)]))
    cut = data.draw(st.integers(start, path.stat().st_size))
    everything = path.read_bytes()
    path.write_bytes(everything[:cut])  # a reader that looks while it is written
    first = list(read_log(path, start))
    path.write_bytes(everything)
    second = list(read_log(path, first[-1][0] if first else start))
    assert [*first, *second] == [row for row in whole if row[0] > start]


def test_an_agent_is_there_for_good_once_it_is_made(tmp_path):
    folder = AgentFolder(tmp_path / "agents" / "fix-1")
    folder.create(TASK)
    (listed,) = agent_folders(tmp_path)
    assert listed.task() == TASK
    assert agent_folders(tmp_path / "nothing") == []
    (tmp_path / "agents" / "half-made").mkdir()
    assert [folder.task() for folder in agent_folders(tmp_path)] == [TASK, None]
    (tmp_path / "agents" / "half-made" / "task.json").write_text("{")
    with pytest.raises(SwarmError, match=r"task\.json cannot be read"):
        AgentFolder(tmp_path / "agents" / "half-made").task()


def test_ids_are_typed_by_their_beginning():
    ids = ["fix-a", "fix-b", "docs-c", "fix"]
    assert pick(ids, "d") == "docs-c"
    assert pick(ids, "fix") == "fix"
    with pytest.raises(NoSuchAgent, match="could be fix-a, fix-b"):
        pick(ids, "fix-")
    for wrong in ("", "x"):
        with pytest.raises(NoSuchAgent, match="no agent"):
            pick(ids, wrong)
    assert new_id("Fix the *flaky* test, please!").startswith("fix-the-flaky-test-pleas-")
    assert new_id("???").startswith("task-")
    assert new_id("a") != new_id("a")


# --- an agent, folded -------------------------------------------------------------------------


def agent_of(*frames, alive=True):
    agent = SwarmAgent(TASK, clock=lambda: 100.0)
    agent.alive = alive
    for number, frame in enumerate(frames):
        agent.take(rows.LogRow(number, 20.0 + number, frame))
    return agent


def frame(row):
    from msgspec import to_builtins

    return to_builtins(row)


ASK = {"type": "approval_request", "request_id": "q", "id": "c", "name": "bash"}


@pytest.mark.parametrize(
    ("frames", "alive", "stage"),
    [
        ([], False, "queued"),
        ([{"type": "turn_start"}], True, "working"),
        ([ASK], True, "needs_you"),
        ([ASK, {"type": "approval_resolved", "request_id": "q"}], True, "working"),
        ([frame(rows.RunOver("fix-1-1", "answered"))], False, "done"),
        ([frame(rows.RunOver("fix-1-1", "limit", "enough"))], False, "failed"),
        ([frame(rows.AgentCancelled())], True, "working"),
        ([frame(rows.AgentCancelled())], False, "cancelled"),
        ([frame(rows.Exited(-9)), frame(rows.Lost("died"))], False, "lost"),
        ([frame(rows.Lost("died")), frame(rows.Retried())], False, "queued"),
        ([{"type": "swarm_of_the_future", "x": 1}], False, "queued"),
    ],
)
def test_the_stage_comes_from_typed_rows_only(frames, alive, stage):
    assert agent_of(*frames, alive=alive).summary().stage == stage


def test_a_summary_says_what_it_does_and_for_how_long():
    agent = agent_of(
        {"type": "turn_start"},
        {"type": "tool_use_start", "id": "c", "name": "bash"},
        {"type": "turn_end", "stop": "tool_use", "seq": 7},
    )
    summary = agent.summary()
    assert (summary.doing, summary.turns, summary.tool_calls) == ("bash", 1, 1)
    assert agent.last_seq == 7


def test_crashes_are_counted_while_it_does_nothing():
    agent = agent_of(frame(rows.Exited(2)), frame(rows.Exited(2)))
    assert agent.crashes == 2
    for row in (frame(rows.AgentStarted(3, 1)), {"type": "turn_start"}, frame(rows.Exited(-9))):
        agent.take(rows.LogRow(3, 30.0, row))
    assert (agent.crashes, agent.kills) == (0, 1)
    agent.take(rows.LogRow(3, 30.0, frame(rows.RunOver("fix-1-1", "answered"))))
    agent.take(rows.LogRow(4, 31.0, frame(rows.Exited(0))))
    assert (agent.crashes, agent.summary().outcome) == (0, "answered")


def test_a_full_disk_is_an_error_and_no_row_is_half_there(tmp_path):
    path = tmp_path / "events.jsonl"
    log = LogWriter(path)
    os.close(log._fd)
    log._fd = os.open("/dev/full", os.O_WRONLY)
    with pytest.raises(OSError, match="No space left"):
        log.frame(b'{"type":"a"}')
    log.close()
