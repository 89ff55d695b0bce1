"""Durable runs through the real thing: a spawned `zot rpc --session PATH --durable`, a model server
on loopback, and a `kill -9` at the moment that matters."""

import json
import os
import random
import re
import resource
import signal
import subprocess
import sys
import time
from functools import partial
from pathlib import Path

import pytest
from support.patience import PATIENCE
from support.rpc import Zot, make_folder, run_zot, types

from zot.formats import format_named
from zot.sessions import library
from zot.sessions.files import load
from zot.sessions.rows import Meta
from zot.testing.fakeserver import FakeServer


@pytest.fixture
def server():
    with FakeServer() as server:
        yield server


class Durable:
    """Starts processes on one session file, one after the other."""

    def __init__(self, folder: Path, server: FakeServer) -> None:
        self.folder = folder
        self.server = server
        self.path = folder / "s.jsonl"
        self.work = make_folder(folder)

    def flags(self) -> list[str]:
        flags = ["--provider", "anthropic", "--base-url", self.server.url]
        return [*flags, "--session", str(self.path), "--durable"]

    def start(self, *args: str, features=("seq",), **more) -> Zot:
        asked = None if features is None else sorted(features)
        return Zot(self.folder, args=[*self.flags(), *args], features=asked, **more)

    def rows(self) -> list[dict]:
        """The journal, row by row."""
        lines = (json.loads(line) for line in self.path.read_text().splitlines())
        return [line["data"] for line in lines if line.get("kind") == "journal"]

    def gate(self, name: str = "gate") -> Path:
        path = self.work / name
        os.mkfifo(path)
        return path


@pytest.fixture
def durable(tmp_path, server) -> Durable:
    return Durable(tmp_path, server)


def tool(name: str, **args: object) -> str:
    return f"tool:{name}:{json.dumps(args)}"


def results(zot: Zot) -> list[str]:
    messages = zot.data("get_messages")["messages"]
    blocks = [block for message in messages for block in message["content"]]
    return [b["content"][0]["text"] for b in blocks if b["type"] == "tool_result"]


def killed_in_bash(durable: Durable, *behind: str, **fields: object) -> None:
    """A run that is killed while its second command waits for a pipe; `behind` are more steps."""
    gate = durable.gate()
    script = [
        tool("bash", command="echo one >> log"),
        tool("bash", command=f"echo two >> log; cat {gate.name}"),
        *behind,
        "say:finished",
    ]
    zot = durable.start()
    zot.send("prompt", message="\nthen\n".join(script), **fields)
    with gate.open("w"):
        zot.kill()
    gate.unlink()


def test_a_run_that_was_cut_off_goes_on_and_ends_once(durable):
    killed_in_bash(durable, id="p1", run="job-1")
    with durable.start() as zot:
        frames = zot.until("done")
    resumed = next(frame for frame in frames if frame["type"] == "run_resumed")
    assert (resumed["run"], resumed["attempt"], resumed["prompt_id"]) == ("job-1", 2, "p1")
    (call,) = resumed["open"]
    assert (call["name"], call["started"], call["replay"]) == ("bash", True, "never")
    assert "finished" in [frame.get("delta") for frame in frames]
    assert (durable.work / "log").read_text() == "one\ntwo\n"  # neither command ran twice
    assert [row["type"] for row in durable.rows()] == [
        *("run_accepted", "run_attempted", "effect_started", "effect_started"),
        *("run_attempted", "run_ended"),
    ]


def test_the_model_is_told_of_a_command_that_may_have_taken_effect(durable):
    killed_in_bash(durable)
    with durable.start() as zot:
        zot.until("done")
        first, second = results(zot)
    assert "interrupted" not in first
    assert "may have taken effect" in second
    assert "seconds ago" in second


def flipped(row: bytes, place: float, bit: int) -> bytes:
    damaged = bytearray(row)
    damaged[int(place * len(row)) if 0 <= place < 1 else int(place)] ^= bit
    return bytes(damaged)


DAMAGE = {
    **{f"bit {place}": partial(flipped, place=place, bit=1) for place in (0, 0.2, 0.5, 0.8, -15)},
    **{f"feed {bit}": partial(flipped, place=-1, bit=bit) for bit in (1, 0x20, 0x80)},
    "NULs": lambda row: bytes(len(row) - 1) + b"\n",
    "NULs to the end": lambda row: bytes(len(row)),
    "NULs behind": lambda row: row[:100] + bytes(len(row) - 100),
    "other bytes": lambda row: b"\xff" * (len(row) - 1) + b"\n",
}


@pytest.mark.parametrize("damage", DAMAGE.values(), ids=DAMAGE)
def test_a_damaged_row_means_that_a_command_may_have_begun(durable, damage):
    killed_in_bash(durable, run="job-1")
    lines = durable.path.read_bytes().splitlines(keepends=True)
    assert b'"effect_started"' in lines[-1]
    durable.path.write_bytes(b"".join(lines[:-1]) + damage(lines[-1]))
    durable.start().kill()  # whoever looks first must not make it forgotten
    with durable.start() as zot:
        zot.until("done")
        assert "may have taken effect" in results(zot)[1]
    assert (durable.work / "log").read_text() == "one\ntwo\n"


def test_a_damaged_event_log_neither_stops_the_process_nor_gets_onto_the_wire(durable):
    with durable.start(features=("seq", "tools")) as zot:
        zot.prompt(tool("bash", command="echo one") + "\nthen\nsay:finished")
    path = durable.path.with_name(durable.path.name + ".events")
    whole = path.read_bytes()
    end = whole.rindex(b'"seq":') + len(b'"seq":')
    chosen = random.Random(5)
    places = [end, 0, len(whole) - 1, len(whole) - 3, *(chosen.randrange(end) for _ in range(6))]
    for place in places:
        damaged = bytearray(whole)
        damaged[place] ^= chosen.randrange(1, 256)
        path.write_bytes(damaged)
        with durable.start(features=("seq", "tools")) as zot:
            page = zot.data("events")
            assert page["events"]
            zot.ask("ping")
            zot.close()  # looks whether every line is JSON
            assert zot.stderr().count("damaged lines") <= 1
            assert "Traceback" not in zot.stderr()


def test_a_prompt_is_not_run_twice_under_one_name(durable):
    later = durable.gate("later")
    killed_in_bash(durable, tool("bash", command="cat later"), run="job-1")
    with durable.start() as zot:
        with later.open("w"):  # it goes on, and waits here
            answer = zot.data("prompt", message="ignored", run="job-1", id="again")
        assert answer == {"started": True, "run": "job-1", "resumed": True}
        assert zot.until("done")[-1]["prompt_id"] == "again"
        asked = len(durable.server.requests)
        answer = zot.data("prompt", message="ignored", run="job-1")
        end = {"stop": "end", "text": "finished"}
        assert answer == {"started": False, "run": "job-1", "already_done": True, "end": end}
    with durable.start() as zot:
        assert zot.data("prompt", message="x", run="job-1")["end"] == end
        assert "run_resumed" not in types(zot.frames)
    assert len(durable.server.requests) == asked


def test_a_queued_prompt_and_a_message_that_waited_survive(durable):
    gate = durable.gate()
    zot = durable.start()
    zot.send("prompt", message=tool("bash", command="cat gate") + "\nthen\nsay:first", run="a")
    with gate.open("w"):
        zot.data("prompt", message="say:second", run="b")
        zot.data("follow_up", message="say:followed")
        zot.kill()
    with durable.start() as zot:
        zot.until("done")
        zot.until("done")
        messages = zot.data("get_messages")["messages"]
    said = [m["content"][0].get("text") for m in messages if m["role"] == "user"]
    assert said[1:] == ["say:followed", "say:second"]
    assert [row["run"] for row in durable.rows() if row["type"] == "run_ended"] == ["a", "b"]


def test_an_abort_is_not_undone_by_a_crash(durable):
    gate = durable.gate()
    zot = durable.start()
    zot.send("prompt", message=tool("bash", command="cat gate") + "\nthen\nsay:no", run="a")
    with gate.open("w"):
        durable.path.open("a").close()
        zot.data("abort")
        zot.kill()
    with durable.start() as zot:
        answer = zot.data("prompt", message="x", run="a")
        if not answer.get("already_done"):
            zot.until("done")
            answer = zot.data("prompt", message="x", run="a")
    assert answer["end"]["stop"] == "aborted"
    assert len(durable.server.requests) == 1


def test_a_write_that_happened_is_done_and_one_that_did_not_is_told(durable):
    (durable.work / "notes").write_text("hello\n")
    script = f"{tool('write', path='made', content='new')}\nthen\nsay:ok"
    zot = durable.start()
    zot.prompt(script, run="a")
    zot.kill()
    cut_after(durable, "effect_started")
    with durable.start() as zot:
        zot.until("done")
        assert results(zot) == ["made has this content (3 bytes)"]
    (durable.work / "made").unlink()
    cut_after(durable, "effect_started")
    with durable.start() as zot:
        zot.until("done")
        (said,) = results(zot)
    assert "may have taken effect" in said
    assert "made does not exist: it was not written." in said
    assert not (durable.work / "made").exists()


def cut_after(durable: Durable, type: str) -> None:
    """As if the process had been killed right after the first row of this type."""
    lines = durable.path.read_bytes().splitlines(keepends=True)
    at = next(n for n, line in enumerate(lines) if f'"type":"{type}"'.encode() in line)
    durable.path.write_bytes(b"".join(lines[: at + 1]))


@pytest.mark.slow
@pytest.mark.parametrize("number", range(4))
def test_a_run_goes_on_from_wherever_it_was_cut(durable, number):
    """Every row of the file, whole and torn."""
    script = "\nthen\n".join(
        [tool("bash", command="echo one >> log"), tool("read", path="notes"), "say:finished"]
    )
    (durable.work / "notes").write_text("hello\n")
    zot = durable.start()
    zot.prompt(script, run="a")
    zot.kill()
    whole = durable.path.read_bytes()
    lines = whole.splitlines(keepends=True)
    first = next(n for n, line in enumerate(lines) if b"run_accepted" in line)
    for at in range(first + 1 + number, len(lines), 4):
        torn = lines[at][: len(lines[at]) // 2] if at % 2 else b""
        durable.path.write_bytes(b"".join(lines[:at]) + torn)
        with durable.start() as zot:
            data = zot.data("prompt", message="ignored", run="a")
            if not data.get("already_done"):
                zot.until("done")
                data = zot.data("prompt", message="ignored", run="a")
            assert data["end"] == {"stop": "end", "text": "finished"}, at
            zot.check_transcript()
        rows = [row for row in durable.rows() if row["type"] == "run_ended"]
        assert len(rows) == 1


# --- what a client missed --------------------------------------------------------------------


def heard(frames: list[dict]) -> list[dict]:
    return [frame for frame in frames if frame["type"] != "response"]


def test_what_was_heard_before_the_crash_can_be_read_again_after_it(durable):
    gate = durable.gate()
    zot = durable.start(features=("seq", "tools"))
    zot.send("prompt", message=tool("bash", command="cat gate") + "\nthen\nsay:end", run="a")
    with gate.open("w"):
        zot.until("tool_start")
        zot.kill()
    before = heard(zot.frames)
    with durable.start(features=("seq", "tools")) as zot:
        zot.until("done")
        page = zot.data("events")
        assert page["events"][: len(before)] == before
        assert page["events"] == before + heard(zot.frames)
        numbers = [frame["seq"] for frame in page["events"]]
        assert numbers == sorted(set(numbers))
        cursor = before[3]["seq"]
        page = zot.data("events", **{"from": cursor, "limit": 2})
        assert page == {"events": before[4:6], "last": before[5]["seq"], "more": True}
        last = zot.frames[-1]["seq"]
        assert zot.data("events", **{"from": last})["events"] == []


def test_a_client_is_sent_again_only_what_it_understands(durable):
    with durable.start(features=("seq", "tools")) as zot:
        zot.prompt(tool("bash", command="true") + "\nthen\nsay:end")
        assert "tool_start" in [f["type"] for f in zot.data("events")["events"]]
    with durable.start(features=("seq",)) as zot:
        assert "tool_start" not in [f["type"] for f in zot.data("events")["events"]]


def test_a_cursor_that_is_too_old_gets_a_snapshot(durable):
    with durable.start() as zot:
        zot.prompt("say:one", run="a")
        assert zot.data("events", **{"from": 10**9})["cursor_expired"]
    log = Path(f"{durable.path}.events")
    lines = log.read_bytes().splitlines(keepends=True)
    log.write_bytes(b'{"type":"event_log","after":4}\n' + b"".join(lines[5:]))
    with durable.start() as zot:
        page = zot.data("events", **{"from": 2})
        assert page["cursor_expired"]
        assert page["snapshot"]["state"]["message_count"] == 2
        assert page["events"]


def test_an_end_that_was_written_and_not_told_is_told_after_the_restart(durable):
    with durable.start() as zot:
        zot.prompt("say:one", run="a")
    log = Path(f"{durable.path}.events")
    lines = log.read_bytes().splitlines(keepends=True)
    assert json.loads(lines[-1])["run"] == "a"
    log.write_bytes(b"".join(lines[:-1]) + lines[-1][:20])  # killed while it was written
    with durable.start() as zot:
        done = zot.until("done")[-1]
        assert done["run"] == "a"
    with durable.start() as zot:
        zot.data("get_state")
        assert "done" not in types(zot.frames)


def test_a_second_reader_follows(durable):
    command = [sys.executable, "-m", "zot", "follow", str(durable.path)]
    with durable.start() as zot:
        zot.prompt("say:one", run="a")
        follower = subprocess.Popen(command, stdout=subprocess.PIPE)
        assert follower.stdout is not None
        lines = (json.loads(line) for line in follower.stdout)
        first = [next(lines) for _ in heard(zot.frames)]
        assert first == heard(zot.frames)
        at = len(zot.frames)
        zot.prompt("say:two", run="b")
        assert [next(lines) for _ in heard(zot.frames[at:])] == heard(zot.frames[at:])
        follower.kill()
        follower.wait()
        follower.stdout.close()
    once = subprocess.run([*command, "--once", "--from", "0"], capture_output=True, check=True)
    assert len(once.stdout.splitlines()) == len(heard(zot.frames))


def test_who_follows_a_session_that_keeps_nothing_is_told(tmp_path):
    command = [sys.executable, "-m", "zot", "follow", str(tmp_path / "none.jsonl")]
    once = subprocess.run([*command, "--once"], capture_output=True, text=True)
    assert (once.returncode, once.stdout) == (2, "")
    assert "only a run with --durable keeps its frames" in once.stderr
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as follower:
        assert follower.stderr is not None
        assert "waiting for one" in follower.stderr.readline()
        follower.kill()


# --- approvals -------------------------------------------------------------------------------


def test_a_question_is_asked_again_after_a_restart_and_waits_for_ever(durable):
    asking = ("--approval-timeout", "none")
    script = tool("bash", command="echo one >> log") + "\nthen\nsay:ok"
    zot = durable.start(*asking, features=("approvals",))
    zot.send("prompt", message=script, run="a")
    first = zot.until("approval_request")[-1]
    assert first["timeout_ms"] == 0
    assert zot.data("get_state")["questions"] == [first]
    zot.kill()
    with durable.start(*asking, features=("approvals",)) as zot:
        again = zot.until("approval_request")[-1]
        assert (again["args"], again["id"]) == (first["args"], first["id"])
        assert again["request_id"] != first["request_id"]
        assert zot.data("get_state")["questions"] == [again]
        zot.data("approve", request_id=again["request_id"], decision="allow")
        zot.until("done")
        assert zot.data("get_state")["questions"] == []
    assert (durable.work / "log").read_text() == "one\n"


@pytest.mark.parametrize("changed", [False, True])
def test_an_answer_counts_after_a_restart_for_these_arguments_only(durable, changed):
    script = tool("bash", command="echo one >> log") + "\nthen\nsay:ok"
    zot = durable.start(features=("approvals",))
    zot.send("prompt", message=script, run="a")
    question = zot.until("approval_request")[-1]
    zot.data("approve", request_id=question["request_id"], decision="allow")
    zot.until("done")
    zot.kill()
    (durable.work / "log").unlink()
    cut_after(durable, "question_answered")
    if changed:
        text = durable.path.read_text().replace("echo one", "echo two")
        lines = [re.sub(r',"crc":"[0-9a-f]+"}$', "}", line) for line in text.splitlines()]
        durable.path.write_text("\n".join(lines) + "\n")
    with durable.start(features=("approvals",)) as zot:
        if changed:
            again = zot.until("approval_request")[-1]
            zot.data("approve", request_id=again["request_id"], decision="deny")
        zot.until("done")
        assert ("approval_request" in types(zot.frames)) == changed
    assert (durable.work / "log").exists() != changed


def test_a_question_that_nobody_can_answer_any_more_is_left_for_the_next_process(durable):
    zot = durable.start(features=("approvals",))
    zot.send("prompt", message=tool("bash", command="echo one >> log") + "\nthen\nsay:ok", run="a")
    zot.until("approval_request")
    assert zot.close()[0] == 0
    zot.kill()
    assert zot.frames[-1]["type"] == "run_suspended"
    with durable.start("--yolo") as zot:
        zot.until("done")
    assert (durable.work / "log").read_text() == "one\n"


# --- ends ------------------------------------------------------------------------------------


@pytest.mark.parametrize("how", ["signal", "parent"])
def test_an_orderly_end_of_the_process_is_not_the_end_of_the_run(durable, how):
    gate = durable.gate()
    zot = durable.start(features=None, read=how == "signal")
    zot.send("prompt", message=tool("bash", command="cat gate") + "\nthen\nsay:end", run="a")
    with gate.open("w"):
        if how == "signal":
            zot.signal(signal.SIGTERM)
            assert zot.finish()[0] == 143
            assert zot.frames[-1] == {"type": "run_suspended", "run": "a"}
        else:  # a client that is killed: its ends of the pipes are closed, the tool is silent
            zot.process.stdout.close()
            assert zot.process.wait(PATIENCE) == 0
    zot.kill()
    assert durable.rows()[-1] == {"type": "run_left", "run": "a"}
    with durable.start("--on-crash", "fail") as zot:  # it is none
        zot.until("done")
        assert zot.data("prompt", message="x", run="a")["end"]["stop"] == "end"


def test_what_becomes_of_a_run_after_a_crash_can_be_chosen(durable):
    killed_in_bash(durable, run="job")
    with durable.start("--on-crash", "hold", features=("codes", "seq")) as zot:
        held = zot.until("run_held")[-1]
        assert (held["run"], held["attempt"]) == ("job", 1)
        for name in ("job", "other"):
            assert zot.ask("prompt", message="x", run=name)["code"] == "held"
        assert zot.ask("resume_run", run="other")["code"] == "not_found"
        zot.data("resume_run", run="job", decision="fail")
        frames = zot.until("done")
        assert [f["code"] for f in frames if f["type"] == "error"] == ["interrupted"]
        zot.prompt("say:again", run="other")


def test_a_run_that_fails_after_a_crash_lets_the_next_one_run(durable):
    killed_in_bash(durable, run="job")
    with durable.start("--on-crash", "fail") as zot:
        zot.until("done")
        assert zot.data("prompt", message="x", run="job")["end"]["stop"] == "error"
        assert "finished" in str(zot.prompt("say:finished", run="next"))


def test_three_crashes_at_one_place_hold_the_run(durable):
    zot = durable.start()
    zot.send("prompt", message=tool("grep", pattern="x", path=".") + "\nthen\nsay:ok", run="a")
    zot.until("done")
    zot.kill()
    cut_after(durable, "effect_started")
    start = durable.path.read_bytes().splitlines(keepends=True)[-1]
    for _ in range(2):
        with durable.path.open("ab") as file:
            row = re.sub(rb'"id":"[0-9a-f]+"', b'"id":"%s"' % os.urandom(4).hex().encode(), start)
            file.write(re.sub(rb',"crc":"[0-9a-f]+"}', b"}", row))
    with durable.start() as zot:
        reason = zot.until("run_held")[-1]["reason"]
        assert "3 times during grep" in reason
        zot.data("resume_run", run="a")
        zot.until("done")
        assert zot.data("prompt", message="x", run="a")["end"]["stop"] == "end"


# --- faults ----------------------------------------------------------------------------------


def test_limits_go_on_counting_and_a_call_that_was_cut_off_costs(durable):
    zot = durable.start()
    zot.send("prompt", message="hang:headers", run="a", max_steps=1)
    durable.server.wait_for(1)
    zot.kill()
    with durable.start() as zot:
        frames = zot.until("done")
        cost = zot.data("get_state")["usage"]
    assert "max steps (1) exceeded" in str(frames)
    assert cost["cost_known"] is False
    assert cost["cost_usd"] > 0
    assert len(durable.server.requests) == 1


def test_a_compaction_that_was_cut_off_is_made_again_and_the_first_one_costs(durable):
    zot = durable.start()
    for _ in range(3):
        zot.prompt("say:something")
    zot.send("compact", instructions="keep this\nhang")
    durable.server.wait_for(4)
    zot.kill()
    with durable.start() as zot:
        assert types(zot.until("compact_start"))[-3:] == ["run_resumed", "usage", "compact_start"]
        assert zot.data("get_state")["usage"]["cost_known"] is False
        durable.server.wait_for(5)
        zot.data("abort")
        zot.until("done")


def test_what_a_task_has_spent_is_counted_when_it_is_cut_off(durable):
    gate = durable.gate()
    zot = durable.start("--tasks")
    task = f"usage:500,5\n{tool('bash', command='cat gate')}"
    zot.send(
        "prompt", message=tool("task", prompt=task) + "\nusage:100,5\nthen\nsay:ok\nusage:100,5"
    )
    with gate.open("w"):
        zot.kill()
    with durable.start("--tasks") as zot:
        frames = zot.until("done")
        usage = zot.data("get_state")["usage"]
    assert next(f for f in frames if f["type"] == "run_resumed")["open"][0]["name"] == "task"
    assert usage["input"] >= 700  # two calls of the run and one of the task
    assert usage["cost_known"] is False  # the task may have asked once more


def test_a_full_disk_means_that_the_tool_does_not_run(durable):
    script = tool("bash", command="echo one >> log") + "\nthen\nsay:ok"
    with durable.start() as zot:
        zot.prompt("say:hi")
        size = durable.path.stat().st_size
        room = 1800  # for the prompt and the answer, not for what comes behind them
        resource.prlimit(zot.process.pid, resource.RLIMIT_FSIZE, (size + room, -1))
        answer = zot.ask("prompt", message=script, run="a")
        if answer["success"]:
            assert "cannot write" in str(zot.until("done"))
        resource.prlimit(zot.process.pid, resource.RLIMIT_FSIZE, (-1, -1))
    assert not (durable.work / "log").exists()
    with durable.start() as zot:
        answer = zot.data("prompt", message=script, run="a")
        zot.until("done")
    assert (durable.work / "log").read_text() == "one\n"


@pytest.mark.slow
def test_of_two_that_start_at_once_one_serves_and_the_other_says_who(durable):
    gate = durable.gate()
    first = durable.start()
    first.send("prompt", message=tool("bash", command="cat gate") + "\nthen\nsay:end", run="a")
    with gate.open("w"):
        first.kill()
    gate.unlink()
    starters = [durable.start(features=None) for _ in range(2)]
    try:
        deadline = time.monotonic() + 30
        while all(zot.process.poll() is None for zot in starters):
            assert time.monotonic() < deadline
            time.sleep(0.05)  # nothing tells when a process has ended
        loser = next(zot for zot in starters if zot.process.poll() is not None)
        winner = next(zot for zot in starters if zot is not loser)
        assert f"in use by process {winner.process.pid}" in loser.stderr()
        winner.until("done")
    finally:
        for zot in starters:
            zot.kill()
    assert [row["type"] for row in durable.rows()].count("run_ended") == 1


def test_a_start_waits_for_a_process_that_is_about_to_end(durable):
    with durable.start() as zot:
        zot.prompt("say:one")
        other = Zot(durable.folder, args=[*durable.flags()], features=None)
        time.sleep(0.3)
        zot.close_input()
        assert other.data("get_state")["message_count"] == 2
        other.close()
        other.kill()


def test_a_clock_that_was_set_back_and_one_that_jumped_do_no_harm(durable):
    for shift in (10**7, -(10**7)):
        killed_in_bash(durable, run=f"job{shift}", max_seconds=60)
        text = durable.path.read_text()
        lines = [json.loads(line) for line in text.splitlines()]
        for row in lines[-4:]:
            row["time"] = row.get("time", 0) + shift
            row.pop("crc", None)
        durable.path.write_text("".join(json.dumps(row) + "\n" for row in lines))
        with durable.start() as zot:
            frames = zot.until("done")
            assert "finished" in [frame.get("delta") for frame in frames]
            resumed = next(frame for frame in frames if frame["type"] == "run_resumed")
            assert resumed["away_ms"] >= 0


# --- other readers ---------------------------------------------------------------------------


def test_a_copy_of_a_session_does_not_go_on_with_its_runs(durable):
    killed_in_bash(durable, run="job")
    copy = durable.folder / "copies"
    forked = library.fork_into(
        str(copy), load(str(durable.path)), None, cwd=str(durable.work), parent="x"
    )
    durable.path = Path(forked)
    with durable.start() as zot:
        assert "new" in str(zot.prompt("say:new", run="other"))
        assert "run_resumed" not in types(zot.frames)


def test_a_session_of_pi_is_refused(durable):
    """Its messages do not say which run they belong to."""
    meta = Meta(
        id="0198-pi", cwd=str(durable.work), model="claude-sonnet-5-5", provider="anthropic"
    )
    with durable.path.open("xb") as file:
        file.write(format_named("pi").writer(meta, None).head())
    durable.path.chmod(0o600)
    zot = durable.start(features=None)
    code, stderr = zot.finish()
    zot.kill()
    assert code == 1
    assert "has pi's format, which cannot hold a durable run" in stderr


@pytest.mark.parametrize("words", [["-p", "hi"], ["--mode", "rpc"]])
def test_other_modes_say_that_they_are_not_durable(tmp_path, words):
    ran = run_zot(tmp_path, [*words, "--durable", "--session", "s.jsonl"], turns=["x"])
    assert ran.returncode == 2
    assert b"--durable" in ran.stderr
