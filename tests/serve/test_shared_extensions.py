"""Agents of one `zot rpc` share the extensions of their directory: real extension processes."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest
from support.extension import wait_for, write_extension
from support.rpc import Zot, make_folder

from zot.testing.fakeserver import FakeServer

EXTENSION = """
hello()
emit("subscribe", events=["session_start", "session_end", "user_prompt_submit"],
     intercept=["tool_call"])
for name in ("whose", "ask", "look"):
    emit("register_tool", name=name, description="d", schema={"type": "object"})
emit("register_command", name="shout", description="shows")
emit("ready")
with open("pids", "a") as file:
    file.write(f"{os.getpid()}\\n")
asked = {}
for frame in frames():
    with open("heard", "a") as file:
        file.write(json.dumps(frame) + "\\n")
    if frame["type"] == "event_intercept":
        emit("event_intercept_response", id=frame["id"])
    if frame["type"] == "tool_call" and frame["name"] == "whose":
        text(frame["id"], f"pid {os.getpid()} session {frame['session_id']}")
    if frame["type"] == "tool_call" and frame["name"] == "ask":
        asked[frame["id"]] = frame["id"]
        emit("ask", id=frame["id"], method="input", title="who?", timeout=60,
             parent_id=frame["id"])
    if frame["type"] == "answer":
        text(asked.pop(frame["id"]), "answered " + str(frame.get("value")))
    if frame["type"] == "tool_call" and frame["name"] == "look":
        emit("call_tool", id="t" + frame["id"], name="bash", args={"command": "touch looked"},
             parent_id=frame["id"])
        asked["t" + frame["id"]] = frame["id"]
    if frame["type"] == "tool_result":
        text(asked.pop(frame["id"]), json.dumps(frame["content"]))
    if frame["type"] == "command_invoked":
        emit("command_response", id=frame["id"], action="display", display="shown")
"""
FEATURES = ["agents", "approvals", "codes", "dialogs"]


@pytest.fixture
def extension(tmp_path: Path) -> Path:
    return write_extension(tmp_path, "shared", EXTENSION)


@pytest.fixture
def start(tmp_path: Path, extension: Path):
    with FakeServer() as server:
        make_folder(tmp_path)
        flags = ["--provider", "anthropic", "--base-url", server.url, "--ext", str(extension)]

        def start(*args: str) -> Zot:
            return Zot(tmp_path, args=[*flags, *args], features=FEATURES)

        yield start


Start = Callable[..., Zot]


def of(zot: Zot, agent: str, kind: str) -> dict:
    """The next frame of that kind of an agent."""
    while True:
        frame = zot.until(kind)[-1]
        if frame.get("agent", "") == agent:
            return frame


def heard(extension: Path) -> list[dict]:
    return [json.loads(line) for line in (extension / "heard").read_text().splitlines()]


def ended(extension: Path) -> list[str]:
    return [e["session_id"] for e in heard(extension) if e.get("event") == "session_end"]


def pids(extension: Path) -> list[str]:
    return (extension / "pids").read_text().split()


def test_agents_of_one_directory_share_one_process_and_each_call_says_whose_it_is(
    start: Start, extension: Path
) -> None:
    with start("--yolo") as zot:
        names = [zot.data("open_agent")["agent"] for _ in range(5)]
        for name in ("", *names):
            fields = {"agent": name} if name else {}
            zot.send("prompt", message="tool:whose:{}\nthen\nsay:ok", **fields)
        said = set()
        while len(said) < 6:
            said.add(zot.until("tool_result")[-1]["content"][0]["text"])
        assert len({text.split()[1] for text in said}) == 1
        assert len({text.split()[3] for text in said}) == 6
        zot.data("close_agent", agent=names[0])
        wait_for(lambda: len(ended(extension)) == 1)
        zot.send("prompt", message="tool:whose:{}\nthen\nsay:ok")  # the others have it still
        assert "pid" in of(zot, "", "tool_result")["content"][0]["text"]
    assert len(pids(extension)) == 1
    started = {e["session_id"] for e in heard(extension) if e.get("event") == "session_start"}
    assert set(ended(extension)) == started
    assert len(ended(extension)) == 6


def test_another_directory_has_a_process_of_its_own(
    start: Start, extension: Path, tmp_path: Path
) -> None:
    (tmp_path / "other").mkdir()
    with start("--yolo") as zot:
        agent = zot.data("open_agent", cwd=str(tmp_path / "other"))["agent"]
        zot.send("prompt", message="tool:whose:{}\nthen\nsay:ok")
        of(zot, "", "done")
        zot.send("prompt", message="tool:whose:{}\nthen\nsay:ok", agent=agent)
        of(zot, agent, "done")
        assert len(set(pids(extension))) == 2


def test_questions_and_calls_of_tools_go_to_the_agent_in_whose_course_they_are_made(
    start: Start, extension: Path, tmp_path: Path
) -> None:
    with start("--approve", "bash") as zot:
        a = zot.data("open_agent", agent="a", tools=["bash", "ask", "look"])["agent"]
        b = zot.data("open_agent", agent="b", tools=["ask", "look"])["agent"]
        zot.send("prompt", message="tool:ask:{}\nthen\nsay:ok", agent=a)
        question_a = of(zot, a, "ext_ask")
        zot.send("prompt", message="tool:ask:{}\nthen\nsay:ok", agent=b)
        question_b = of(zot, b, "ext_ask")
        # While both wait, in the other order.
        zot.data("answer", agent=a, request_id=question_a["request_id"], value="for a")
        assert of(zot, a, "tool_result")["content"][0]["text"] == "answered for a"
        of(zot, a, "done")
        zot.send("prompt", message="tool:look:{}\nthen\nsay:ok", agent=a)
        approval = of(zot, a, "approval_request")  # asked of the person in front of a
        zot.data("approve", agent=a, request_id=approval["request_id"], decision="deny")
        assert "did not allow" in of(zot, a, "tool_result")["content"][0]["text"]
        zot.data("answer", agent=b, request_id=question_b["request_id"], value="for b")
        assert of(zot, b, "tool_result")["content"][0]["text"] == "answered for b"
        of(zot, b, "done")
        zot.send("prompt", message="tool:look:{}\nthen\nsay:ok", agent=b)  # it has no bash
        assert "bash" in of(zot, b, "tool_result")["content"][0]["text"]
    assert not (tmp_path / "work" / "looked").exists()


def test_a_command_is_shown_to_the_agent_that_ran_it_and_a_reload_serves_all(
    start: Start, extension: Path
) -> None:
    with start("--yolo") as zot:
        agent = zot.data("open_agent", agent="a")["agent"]
        zot.data("run_command", name="shout", args="", agent=agent)
        assert [f.get("agent") for f in zot.frames if f["type"] == "ext_display"] == ["a"]
        zot.data("reload_ext")
        wait_for(lambda: len(pids(extension)) == 2)
        zot.send("prompt", message="tool:whose:{}\nthen\nsay:ok", agent=agent)
        assert pids(extension)[1] in of(zot, agent, "tool_result")["content"][0]["text"]


def test_an_agent_of_the_tool_task_has_the_extensions_of_its_parent(
    start: Start, extension: Path
) -> None:
    with start("--yolo", "--tasks") as zot:
        task = json.dumps({"prompt": "tool:whose:{}\nthen\nsay:ok"})
        zot.send("prompt", message=f"tool:task:{task}\nthen\nsay:ok")
        said = of(zot, "task-1", "tool_result")["content"][0]["text"]
        assert pids(extension)[0] in said
        of(zot, "", "done")
    assert len(pids(extension)) == 1
