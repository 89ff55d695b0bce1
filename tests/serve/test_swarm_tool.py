"""The tool `swarm` over `zot rpc`: real agents of a real supervisor, within a budget."""

import json
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from support.extension import write_extension
from support.rpc import Zot, environment

from zot.swarm.local import LocalSwarm

pytestmark = pytest.mark.slow
USAGE = {"input": 100, "output": 10}
WORK = {"match": "do a", "text": "did it", "usage": USAGE, "repeat": True}
THEN = {"text": "ok", "usage": USAGE, "repeat": True}


def swarm(action: str, **more: Any) -> dict:
    return {"tools": [{"name": "swarm", "args": {"action": action, **more}}], "usage": USAGE}


def tasks(*prompts: str, **more: Any) -> list[dict]:
    return [{"prompt": prompt, **more} for prompt in prompts]


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Callable[..., Zot]]:
    work = tmp_path / "work"
    work.mkdir()
    who = ["-c", "user.name=t", "-c", "user.email=t@t"]
    for words in (["init", "-q", "-b", "main"], ["commit", "-q", "--allow-empty", "-m", "first"]):
        subprocess.run(["git", *who, *words], cwd=work, check=True)
    opened: list[Zot] = []

    def started(*turns: dict, args: Any = ("--swarm-budget", "1", "--no-ext"), **more: Any) -> Zot:
        opened.append(Zot(tmp_path, list(turns), args=args, **more))
        return opened[-1]

    yield started
    for zot in opened:
        zot.kill()
    LocalSwarm(tmp_path / "zot-home", environment(tmp_path)).stop()


def results(frames: list[dict]) -> list[str]:
    return [f["content"][0]["text"] for f in frames if f["type"] == "tool_result"]


def test_it_is_off_unless_it_is_allowed(start: Callable[..., Zot]) -> None:
    zot = start({"match": "go", **swarm("look")}, THEN, args=())
    assert "unknown tool 'swarm'" in results(zot.prompt("go"))[0]


def test_agents_are_started_looked_at_waited_for_and_collected(
    start: Callable[..., Zot], tmp_path: Path
) -> None:
    write = {"name": "write", "args": {"path": "made.txt", "content": "hi\n"}}
    zot = start(
        {"match": "do a file", "tools": [write], "usage": USAGE},
        WORK,
        {"match": "go", **swarm("start", tasks=tasks("do a file", "do a poem"))},
        swarm("look"),
        swarm("wait"),
        swarm("collect", ids=["do-a-file"]),
        swarm("start", tasks=tasks("do a third", max_cost=2.0)),
        THEN,
    )
    told = results(zot.prompt("go"))
    assert told[0].startswith("started:\ndo-a-file-")
    assert "(at most $0.5000)" in told[0]
    assert "of $1 are left" in told[1]
    assert told[2].count("did it") == 2
    assert told[2].count("is done") == 2
    assert "on branch zot/do-a-file-" in told[3]
    assert "+hi" in told[3]
    assert "the budget is not enough" in told[4]
    engine = LocalSwarm(tmp_path / "zot-home", environment(tmp_path))
    summaries = engine.agents()
    assert [summary.collected for summary in summaries] == [True, True]
    assert len({summary.parent for summary in summaries}) == 1
    for summary in summaries:
        assert engine.task(summary.id).max_cost == 0.5
    assert not (tmp_path / "work" / "made.txt").exists()  # until somebody merges it


def test_agents_may_no_more_than_the_conversation_and_one_that_asks_is_said_so(
    start: Callable[..., Zot], tmp_path: Path
) -> None:
    bash = {"name": "bash", "args": {"command": "echo hi"}}
    zot = start(
        {"match": "do a thing", "tools": [bash], "usage": USAGE},
        {"match": "go", **swarm("start", tasks=tasks("do a thing"))},
        swarm("wait"),
        THEN,
        args=("--swarm-budget", "1", "--approve", "bash", "--no-ext"),
        features=["approvals"],
    )
    told = results(zot.prompt("go"))
    assert "waits for the user, approval of bash" in told[1]
    engine = LocalSwarm(tmp_path / "zot-home", environment(tmp_path))
    (summary,) = engine.agents()
    assert engine.task(summary.id).approve == ("bash",)
    engine.cancel(summary.id)


def test_agents_have_the_tools_and_the_guards_of_the_conversation(
    start: Callable[..., Zot], tmp_path: Path
) -> None:
    guard = write_extension(tmp_path / "work" / ".zot" / "extensions", "guard", GUARD)
    bash = {"name": "bash", "args": {"command": "touch ran"}}
    write = {"name": "write", "args": {"path": "made", "content": "x"}}
    zot = start(
        {"match": "do a thing", "tools": [bash, write], "usage": USAGE},
        WORK,
        {"match": "go", **swarm("start", tasks=tasks("do a thing"))},
        swarm("wait"),
        THEN,
        args=("--swarm-budget", "1", "--tools", "read,write,swarm", "--trust"),
    )
    assert "did it" in results(zot.prompt("go"))[1]
    engine = LocalSwarm(tmp_path / "zot-home", environment(tmp_path))
    (summary,) = engine.agents()
    assert engine.task(summary.id).words[-2:] == ("--tools", "read,write")
    assert str(guard) in engine.task(summary.id).words
    rows = [row.frame for _, row in engine.events(summary.id)]
    said = [row["content"][0]["text"] for row in rows if row["type"] == "tool_result"]
    assert "unknown tool 'bash'" in said[0]
    assert "blocked by extension guard: not here" in said[1]


GUARD = """
hello()
emit("subscribe", intercept=["tool_call"])
emit("ready")
for frame in frames():
    if frame["type"] == "event_intercept":
        no = frame["tool_name"] == "write"
        emit("event_intercept_response", id=frame["id"], block=no, reason="not here")
"""


def test_mistakes_are_told_to_the_model_and_an_abort_ends_a_wait(
    start: Callable[..., Zot],
) -> None:
    slow = {"name": "bash", "args": {"command": "sleep 60"}}
    zot = start(
        {"match": "do a nap", "tools": [slow], "usage": USAGE},
        {"match": "again", **swarm("wait")},
        {"match": "go", **swarm("look")},
        swarm("start"),
        swarm("start", tasks=[{"prompt": "x", "after": ["nobody"]}]),
        swarm("start", tasks=tasks("do a nap")),
        swarm("wait", seconds=0.1),
        swarm("wait", ids=["nobody"]),
        THEN,
    )
    told = results(zot.prompt("go"))
    assert "no agent was started here yet" in told[0]
    assert "start needs `tasks`" in told[1]
    assert "no agent 'nobody'" in told[2]
    assert "do-a-nap" in told[4]
    assert "no agent 'nobody'" in told[5]
    zot.send("prompt", message="again")
    zot.wait(lambda: [f for f in zot.frames if "working" in json.dumps(f.get("text", ""))])
    zot.send("abort")
    zot.wait(lambda: [f for f in zot.frames if f.get("stop") == "aborted"])
