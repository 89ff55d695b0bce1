"""Durable runs through the real thing: a spawned `zot rpc --session PATH --durable`, a model server
on loopback, and a `kill -9` at the moment that matters."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from support.rpc import Zot, make_folder, types

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

    def start(self, *args: str, features=("seq",), **more) -> Zot:
        flags = ["--provider", "anthropic", "--base-url", self.server.url]
        flags += ["--session", str(self.path), "--durable", *args]
        return Zot(self.folder, args=flags, features=sorted(features), **more)

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


def killed_in_bash(durable: Durable, **fields: object) -> None:
    """A run that is killed while its second command waits for a pipe."""
    gate = durable.gate()
    script = [
        tool("bash", command="echo one >> log"),
        tool("bash", command=f"echo two >> log; cat {gate.name}"),
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


def test_a_prompt_is_not_run_twice_under_one_name(durable):
    killed_in_bash(durable, run="job-1")
    with durable.start() as zot:
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
