"""The feature `agents`: many agents on one wire, each with its own frames, order and end."""

import json
import signal
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from support.patience import PATIENCE
from support.rpc import Zot

SLOW = {"match": "slow", "text": ["a"] * 2000, "delay_ms": 5, "repeat": True}
BASH = {"match": "where", "tools": [{"name": "bash", "args": {"command": "pwd"}}]}
FLOOD = {"match": "flood", "text": ["x" * 4000] * 3000, "repeat": True}
TOUCH = {
    "match": "touch",
    "tools": [{"name": "write", "args": {"path": "made.txt", "content": "x"}}],
}
QUICK = {"text": "ok", "usage": {"input": 3, "output": 1}, "repeat": True}
TURNS = [SLOW, BASH, TOUCH, QUICK]
FEATURES = ["agents", "codes", "seq"]

Start = Callable[..., Zot]


@pytest.fixture
def start(tmp_path: Path) -> Any:
    opened: list[Zot] = []

    def started(
        *args: str, features: list[str] | None = None, turns: Any = TURNS, **more: Any
    ) -> Zot:
        wanted = FEATURES if features is None else features
        opened.append(Zot(tmp_path, turns, args=args, features=wanted or None, **more))
        return opened[-1]

    yield started
    for zot in opened:
        zot.kill()


def of(zot: Zot, agent: str | None) -> list[dict]:
    return [frame for frame in zot.frames if frame.get("agent") == agent]


def done(zot: Zot, agent: str | None, count: int = 1) -> list[dict]:
    """The frames of an agent, once it has said so many times that it is done."""

    def enough() -> list[dict] | None:
        frames = of(zot, agent)
        return frames if sum(frame["type"] == "done" for frame in frames) >= count else None

    return zot.wait(enough, f"done of {agent}")


def text_of(frames: list[dict]) -> str:
    return "".join(frame["delta"] for frame in frames if frame["type"] == "text_delta")


def test_agents_work_side_by_side_and_each_frame_says_whose_it_is(start: Start) -> None:
    zot = start()
    assert zot.data("open_agent", agent="a") == {"agent": "a"}
    assert zot.data("open_agent") == {"agent": "agent-1"}
    zot.send("prompt", message="slow", agent="a", id="p1")
    zot.send("prompt", message="hi", agent="agent-1", id="p2")
    assert text_of(done(zot, "agent-1")) == "ok"
    assert zot.data("get_state", agent="a")["busy"] is True
    assert zot.data("get_state")["busy"] is False
    zot.ask("abort", agent="a")
    frames = done(zot, "a")
    assert [f["stop"] for f in frames if f["type"] == "turn_end"] == ["aborted"]
    assert {f["prompt_id"] for f in frames if "prompt_id" in f} == {"p1"}
    assert zot.data("get_messages", agent="agent-1")["messages"][0]["content"][0]["text"] == "hi"
    assert zot.data("get_messages")["messages"] == []


def test_seq_counts_for_each_agent_on_its_own(start: Start) -> None:
    zot = start()
    for name in ("a", "b"):
        zot.data("open_agent", agent=name)
        zot.send("prompt", message="hi", agent=name)
    for name in ("a", "b"):
        numbers = [frame["seq"] for frame in done(zot, name)]
        assert numbers == list(range(1, len(numbers) + 1))
    numbers = [frame["seq"] for frame in of(zot, None)]
    assert numbers == list(range(1, len(numbers) + 1))
    listed = zot.data("list_agents")["agents"]
    assert [row["seq"] for row in listed] == [len(of(zot, name)) for name in ("a", "b")]


def test_without_the_feature_nothing_changes(start: Start) -> None:
    zot = start(features=["codes"])
    answer = zot.ask("open_agent", agent="a")
    assert answer["success"] is False
    assert "feature `agents`" in answer["error"]
    assert text_of(zot.prompt("hi", agent="a")) == "ok"  # an unknown field, as any other
    assert all("agent" not in frame for frame in zot.frames)


def test_an_abort_without_a_name_is_for_the_unnamed_one(start: Start) -> None:
    zot = start()
    zot.data("open_agent", agent="a")
    zot.send("prompt", message="slow", agent="a")
    zot.send("prompt", message="slow")
    zot.wait(lambda: text_of(of(zot, "a")) and text_of(of(zot, None)))
    zot.ask("abort")
    done(zot, None)
    assert zot.data("get_state", agent="a")["busy"] is True


@pytest.mark.parametrize(
    ("line", "code"),
    [
        ({"type": "open_agent", "agent": "a"}, "exists"),
        ({"type": "open_agent", "agent": "x" * 65}, "invalid_params"),
        ({"type": "open_agent", "agent": "a\nb"}, "invalid_params"),
        ({"type": "open_agent", "agent": "b", "cwd": "nowhere"}, "config"),
        ({"type": "open_agent", "agent": "b", "tools": ["reed"]}, "config"),
        ({"type": "open_agent", "agent": "b", "provider": "nobody"}, "config"),
        ({"type": "open_agent", "agent": "b", "session": "/proc/nope"}, "session"),
        ({"type": "prompt", "message": "hi", "agent": "c"}, "not_found"),
        ({"type": "prompt", "message": "hi", "agent": 7}, "invalid_params"),
        ({"type": "close_agent", "agent": "c"}, "not_found"),
        ({"type": "close_agent"}, "invalid_params"),
    ],
)
def test_what_cannot_be_is_refused_and_leaves_no_agent(start: Start, line: dict, code: str) -> None:
    zot = start()
    zot.data("open_agent", agent="a")
    answer = zot.ask(**line)
    assert (answer["success"], answer["code"]) == (False, code)
    assert "agent" not in answer
    assert [row["agent"] for row in zot.data("list_agents")["agents"]] == ["a"]


def test_too_many_are_refused(start: Start) -> None:
    zot = start()
    for number in range(1000):
        zot.send("open_agent", id=number)
    assert zot.answer(999)["success"] is True
    assert zot.ask("open_agent")["code"] == "too_many"
    zot.ask("close_agent", agent="agent-7")
    assert zot.data("open_agent", agent="one more") == {"agent": "one more"}


def test_each_has_its_directory_tools_model_and_limits(start: Start, tmp_path: Path) -> None:
    zot = start()
    (zot.cwd / "sub").mkdir()
    zot.data("open_agent", agent="m", provider="openai", model="gpt-6.1-sol")
    state = zot.data("get_state", agent="m")
    assert (state["cwd"], state["provider"], state["model"]) == (
        str(zot.cwd),
        "openai",
        "gpt-6.1-sol",
    )
    more = {"tools": ["bash", "read"], "limits": {"max_steps": 1}}
    zot.data("open_agent", agent="a", cwd="sub", **more)
    assert zot.data("get_state", agent="a")["cwd"] == str(zot.cwd / "sub")
    zot.send("prompt", message="where", agent="a")
    frames = done(zot, "a")
    results = [f["content"][0]["text"] for f in frames if f["type"] == "tool_result"]
    assert str(zot.cwd / "sub") in results[0]
    assert "limit" in [frame.get("code") for frame in frames]


def test_each_may_be_jailed_or_not(start: Start, tmp_path: Path) -> None:
    (tmp_path / "outside.txt").write_text("from outside")
    look = {"tools": [{"name": "read", "args": {"path": str(tmp_path / "outside.txt")}}]}
    zot = start(turns=[{"match": "look", **look}, QUICK])
    said = {}
    for name, jail in (("in", True), ("out", False)):
        zot.data("open_agent", agent=name, jail=jail)
        zot.send("prompt", message="look", agent=name)
        (result,) = [f for f in done(zot, name) if f["type"] == "tool_result"]
        said[name] = result["content"][0]["text"]
    assert "from outside" in said["out"]
    assert "from outside" not in said["in"]


def test_questions_are_asked_and_answered_by_agent(start: Start) -> None:
    zot = start(features=["agents", "approvals", "codes"])
    for name in ("a", "b"):
        zot.data("open_agent", agent=name, cwd=".", approve=["write"])
        zot.send("prompt", message="touch", agent=name)
    asked = {
        name: zot.wait(lambda name=name: [f for f in of(zot, name) if "request_id" in f])[0]
        for name in ("a", "b")
    }
    rows = zot.data("list_agents")["agents"]
    assert [row["state"] for row in rows] == ["waiting", "waiting"]
    assert [row["questions"] for row in rows] == [[asked[name]["request_id"]] for name in "ab"]
    zot.data("approve", agent="a", request_id=asked["a"]["request_id"], decision="allow")
    done(zot, "a")
    assert (zot.cwd / "made.txt").exists()
    zot.data("approve", agent="b", request_id=asked["b"]["request_id"], decision="deny")
    done(zot, "b")
    rows = zot.data("list_agents")["agents"]
    assert [(row["state"], row["busy"]) for row in rows] == [("idle", False)] * 2
    assert all(row["usage"]["input"] == 3 for row in rows)


def test_a_closed_agent_ends_its_run_and_its_name_is_free(start: Start, tmp_path: Path) -> None:
    zot = start()
    path = str(tmp_path / "kept.jsonl")
    zot.data("open_agent", agent="a", session=path)
    zot.send("prompt", message="slow", agent="a", id="p")
    zot.wait(lambda: text_of(of(zot, "a")))
    close = zot.send("close_agent", agent="a")
    assert zot.answer(close)["success"] is True
    kinds = [frame["type"] for frame in of(zot, "a")]
    assert kinds[-1] == "done"
    assert zot.ask("get_state", agent="a")["code"] == "not_found"
    zot.data("open_agent", agent="a", session=path)
    messages = zot.data("get_messages", agent="a")["messages"]
    assert messages[0]["content"][0]["text"] == "slow"


def test_two_agents_cannot_have_one_session_file(start: Start, tmp_path: Path) -> None:
    zot = start()
    path = str(tmp_path / "kept.jsonl")
    zot.data("open_agent", agent="a", session=path)
    assert zot.ask("open_agent", agent="b", session=path)["code"] == "session"


def test_all_use_one_helper_process(start: Start) -> None:
    zot = start()
    for name in ("a", "b", "c"):
        zot.data("open_agent", agent=name)
        zot.send("prompt", message="where", agent=name)
    for name in ("a", "b", "c"):
        done(zot, name)
    children = Path(f"/proc/{zot.process.pid}/task/{zot.process.pid}/children").read_text().split()
    assert len(children) <= 1
    zot.data("close_agent", agent="a")
    zot.send("prompt", message="where", id="u")
    assert str(zot.cwd) in json.dumps(done(zot, None))  # closing one leaves it to the others


def test_one_that_floods_does_not_keep_the_others_waiting(start: Start) -> None:
    zot = start(read=False, features=[], turns=[FLOOD, QUICK])
    zot.send("hello", features=["agents"])
    for name in ("a", "b"):
        zot.send("open_agent", agent=name)
    zot.send("prompt", message="flood", agent="a")
    line = b""
    while b'"text_delta"' not in line:  # it has begun, and soon waits for somebody who reads
        line = zot.process.stdout.readline()
    zot.send("prompt", message="hi", agent="b")
    zot.start_reading()
    done(zot, "b")
    before = len(text_of(of(zot, "a")))
    assert before < 8 * 1024 * 1024, "b came after all that a had to say"
    assert len(text_of(done(zot, "a"))) > before


def test_the_end_of_input_lets_all_finish(start: Start) -> None:
    zot = start()
    for name in ("a", "b"):
        zot.data("open_agent", agent=name)
        zot.send("prompt", message="where", agent=name)
    assert zot.close()[0] == 0
    for name in ("a", "b"):
        assert [frame["type"] for frame in of(zot, name)][-1] == "done"


def test_a_signal_ends_all_of_them(start: Start) -> None:
    zot = start()
    for name in ("a", "b", "c"):
        zot.data("open_agent", agent=name)
        zot.send("prompt", message="slow", agent=name)
        zot.wait(lambda name=name: text_of(of(zot, name)))
    zot.signal(signal.SIGTERM)
    assert zot.finish()[0] == 128 + signal.SIGTERM
    for name in ("a", "b", "c"):
        assert [frame["type"] for frame in of(zot, name)][-1] == "done"


def descriptors(pid: int) -> int:
    """How many a process has open. One that guards its memory shows only root which ones; since
    Linux 6.2 the size of the folder is their number, before it is 0."""
    folder = Path(f"/proc/{pid}/fd")
    try:
        return len(list(folder.iterdir()))
    except PermissionError:
        return folder.stat().st_size


def threads(pid: int) -> int:
    return len(list(Path(f"/proc/{pid}/task").iterdir()))


def test_agents_that_come_and_go_leave_nothing(start: Start, tmp_path: Path) -> None:
    # Leaks fail also where they cannot be counted.
    zot = start(wrapper=["sh", "-c", 'ulimit -n 96; exec "$@"', "sh"])
    pid = zot.process.pid

    def a_few(count: int) -> tuple[int, int]:
        for number in range(count):
            name = f"n{number}"
            zot.send("open_agent", agent=name, session=str(tmp_path / f"{name}.jsonl"))
            zot.send("prompt", message="where" if number % 5 == 0 else "hi", agent=name)
        for number in range(count):
            zot.wait(lambda n=number: [f for f in of(zot, f"n{n}") if f["type"] == "done"])
            zot.data("close_agent", agent=f"n{number}")
        for number in range(count):
            (tmp_path / f"n{number}.jsonl").unlink()
        zot.frames.clear()
        zot._at = 0
        return descriptors(pid), threads(pid)

    descriptors_then, threads_then = a_few(10)
    first = descriptors_then, threads_then + 1  # the thread that writes begins when many do
    end = time.monotonic() + PATIENCE
    seen = a_few(30)
    while seen > first and time.monotonic() < end:  # the thread that answered is about to end
        zot.ask("ping")
        seen = descriptors(pid), threads(pid)
    assert seen <= first
    assert zot.data("list_agents")["agents"] == []


def test_a_durable_agent_goes_on_in_the_next_process(start: Start, tmp_path: Path) -> None:
    turns = [
        {"match": "work", "tools": [{"name": "bash", "args": {"command": "echo on; sleep 30"}}]},
        {"text": "gone on", "repeat": True},
    ]
    more = {"agent": "a", "session": str(tmp_path / "kept.jsonl"), "durable": True}
    zot = start(turns=turns)
    zot.data("open_agent", **more)
    zot.send("prompt", message="work", agent="a", id="p", run="r1")
    zot.wait(lambda: [frame for frame in of(zot, "a") if frame["type"] == "tool_progress"])
    zot.process.kill()
    zot.process.wait()
    zot = start(turns=turns[1:])
    zot.data("open_agent", **more)
    frames = done(zot, "a")
    assert frames[0]["type"] == "run_resumed"
    assert text_of(frames) == "gone on"
    (row,) = zot.data("list_agents")["agents"]
    assert row["seq"] == frames[-1]["seq"]
    events = zot.data("events", agent="a")["events"]
    assert [event["seq"] for event in events][-1] == frames[-1]["seq"]
    zot.data("close_agent", agent="a")
    descriptors = Path(f"/proc/{zot.process.pid}/fd")
    assert not [link for link in descriptors.iterdir() if "kept.jsonl" in str(link.readlink())]
    assert zot.ask("open_agent", agent="b", durable=True)["code"] == "config"


def test_twenty_that_stream_at_once_come_on_together(start: Start) -> None:
    zot = start(turns=[{"text": ["word "] * 40, "delay_ms": 10, "repeat": True}])
    names = [f"n{number}" for number in range(20)]
    for name in names:
        zot.data("open_agent", agent=name)
    for name in names:
        zot.send("prompt", message="go", agent=name)
    zot.wait(lambda: [f for f in zot.frames if f["type"] == "done"])
    first_done = next(at for at, frame in enumerate(zot.frames) if frame["type"] == "done")
    before = zot.frames[:first_done]
    for name in names:
        heard = sum(f["type"] == "text_delta" and f.get("agent") == name for f in before)
        assert heard >= 10, f"{name} was kept waiting: {heard} of 40 deltas"
    for name in names:
        assert text_of(done(zot, name)) == "word " * 40
