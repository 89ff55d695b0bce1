"""The tool `task`: agents that the model opens, with a context and limits of their own."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from support.extension import write_extension
from support.rpc import Zot, types

from zot.provider.scripted import ScriptedProvider
from zot.sdk import Limits, Runtime, events

Start = Callable[..., Zot]
USAGE = {"input": 100, "output": 10}


def task(prompt: str, **more: Any) -> dict:
    return {"name": "task", "args": {"prompt": prompt, **more}}


@pytest.fixture
def start(tmp_path: Path) -> Any:
    opened: list[Zot] = []

    def started(*turns: dict, features: list[str] | None = None, args: Any = ("--tasks",)) -> Zot:
        opened.append(Zot(tmp_path, list(turns), args=args, features=features))
        return opened[-1]

    yield started
    for zot in opened:
        zot.kill()


def to_the_end(zot: Zot) -> list[dict]:
    """Everything up to the end of the unnamed agent's run."""
    zot.send("prompt", message="go")
    zot.wait(lambda: [f for f in zot.frames if f["type"] == "done" and "agent" not in f])
    return zot.frames


def results(frames: list[dict]) -> list[str]:
    own = [f for f in frames if f["type"] == "tool_result" and "agent" not in f]
    return [frame["content"][0]["text"] for frame in own]


GO = {"match": "go", "tools": [task("look at a"), task("look at b")], "usage": USAGE}
LOOK = {"match": "look", "text": "seen", "usage": USAGE, "repeat": True}
THEN = {"text": "ok", "usage": USAGE, "repeat": True}


def test_it_is_off_over_rpc_unless_it_is_asked_for(start: Start) -> None:
    zot = start(GO, LOOK, THEN, args=())
    assert "unknown tool 'task'" in results(zot.prompt("go"))[0]


def test_a_task_answers_with_its_last_message_and_its_cost_adds_up(start: Start) -> None:
    zot = start(GO, LOOK, THEN)
    frames = zot.prompt("go")
    assert results(frames) == ["seen", "seen"]
    assert all("agent" not in frame for frame in zot.frames)
    usage = zot.data("get_state")["usage"]
    assert (usage["input"], usage["output"]) == (400, 40)
    texts = json.dumps(zot.data("get_messages"))
    assert "look at a" in texts  # the call
    assert texts.count('"role": "user"') == 1


def test_with_the_feature_agents_its_frames_carry_its_name_and_its_parent(start: Start) -> None:
    zot = start(GO, LOOK, THEN, features=["agents", "seq"])
    assert results(to_the_end(zot)) == ["seen", "seen"]
    for name in ("task-1", "task-2"):
        own = [frame for frame in zot.frames if frame.get("agent") == name]
        assert {frame["parent"] for frame in own} == {""}
        assert types(own)[-1] == "done"
        assert [frame["seq"] for frame in own] == list(range(1, len(own) + 1))
    assert zot.data("list_agents")["agents"] == []


def test_tasks_run_side_by_side(start: Start, tmp_path: Path) -> None:
    meet = {"match": "meet", "repeat": True}
    first = "echo a > f1; until [ -e f2 ]; do sleep 0.02; done"
    second = "echo b > f2; until [ -e f1 ]; do sleep 0.02; done"
    zot = start(
        {"match": "go", "tools": [task("meet one"), task("meet two")]},
        {**meet, "match": "meet one", "repeat": False, "tools": [_bash(first)]},
        {**meet, "match": "meet two", "repeat": False, "tools": [_bash(second)]},
        {"match": "meet", "text": "met", "repeat": True},
        THEN,
    )
    assert results(zot.prompt("go")) == ["met", "met"]


def _bash(command: str) -> dict:
    return {"name": "bash", "args": {"command": command}}


def test_an_abort_of_the_parent_ends_them(start: Start) -> None:
    zot = start(
        {"match": "go", "tools": [task("sleep one"), task("sleep two")]},
        {"match": "sleep", "tools": [_bash("echo on; sleep 60")], "repeat": True},
        features=["agents"],
    )
    zot.send("prompt", message="go")
    both = {"task-1", "task-2"}
    zot.wait(lambda: both <= {f.get("agent") for f in zot.frames if f["type"] == "tool_progress"})
    assert {row["parent"] for row in zot.data("list_agents")["agents"]} == {""}
    zot.ask("abort")
    zot.wait(lambda: [f for f in zot.frames if f["type"] == "done" and "agent" not in f])
    assert zot.data("list_agents")["agents"] == []
    ends = [f["stop"] for f in zot.frames if f["type"] == "turn_end" and f.get("agent") in both]
    assert ends[-2:] == ["aborted", "aborted"]
    assert zot.close()[0] == 0  # no process is left


def test_a_question_of_a_task_is_asked_in_the_name_of_its_parent(start: Start) -> None:
    zot = start(
        {"match": "go", "tools": [task("make it")]},
        {
            "match": "make",
            "tools": [{"name": "write", "args": {"path": "made", "content": "x"}}],
        },
        {"match": "make", "text": "made it", "repeat": True},
        THEN,
        features=["approvals"],
    )
    zot.send("prompt", message="go")
    asked = zot.until("approval_request")[-1]
    assert asked["request_id"] == "task-1/approval-1"
    assert zot.ask("approve", request_id="task-1/approval-9", decision="allow")["success"] is False
    zot.data("approve", request_id=asked["request_id"], decision="allow")
    assert results(zot.until("done")) == ["made it"]
    assert (zot.cwd / "made").exists()


def test_an_answer_that_must_be_json_is_checked_and_asked_for_once_more(start: Start) -> None:
    schema = {"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]}
    zot = start(
        {"match": "go", "tools": [task("count", schema=schema), task("guess", schema=schema)]},
        {"match": "count", "text": "I think there are many"},
        {"match": "guess", "text": 'Here: {"n": "no"}'},
        {"match": '"n" must', "text": '```json\n{"n": 2}\n```'},
        {"match": "no JSON object", "text": '{"n": 7}'},
        {"match": "does not fit", "text": '{"n": 3}'},
        THEN,
    )
    first, second = results(zot.prompt("go"))
    assert json.loads(first) == {"n": 7}
    assert json.loads(second) in ({"n": 2}, {"n": 3})


def test_an_answer_that_never_fits_is_a_failure(start: Start) -> None:
    schema = {"type": "object", "required": ["n"]}
    zot = start({"match": "go", "tools": [task("count", schema=schema)]}, THEN)
    assert "does not fit the schema" in results(zot.prompt("go"))[0]


@pytest.mark.parametrize(
    ("more", "said"),
    [
        ({"tools": ["reed"]}, "unknown tool"),
        ({"cwd": "nowhere"}, "not a directory"),
        ({"model": "nobody"}, "unknown model"),
    ],
)
def test_what_cannot_be_started_is_told_to_the_model(start: Start, more: dict, said: str) -> None:
    zot = start({"match": "go", "tools": [task("x", **more)]}, THEN)
    answer = results(zot.prompt("go"))[0]
    assert answer.startswith("the task cannot be started")
    assert said in answer


def test_tasks_have_tasks_only_so_deep(start: Start) -> None:
    zot = start(
        {"match": "go", "tools": [task("level one")]},
        {"match": "level one", "tools": [task("level two")]},
        {"match": "level two", "tools": [task("level three")]},
        {"match": "level two", "text": "deep enough", "repeat": True},
        {"match": "level one", "text": "back", "repeat": True},
        THEN,
        features=["agents"],
    )
    assert results(to_the_end(zot)) == ["back"]
    inner = [f for f in zot.frames if f["type"] == "tool_result" and f.get("agent") == "task-2"]
    assert "unknown tool 'task'" in inner[0]["content"][0]["text"]
    assert {f["parent"] for f in zot.frames if f.get("agent") == "task-2"} == {"task-1"}


def test_no_more_than_so_many_for_one_prompt(start: Start) -> None:
    many = [task("look") for _ in range(34)]
    zot = start({"match": "go", "tools": many}, LOOK, THEN)
    said = results(zot.prompt("go"))
    assert said[:32] == ["seen"] * 32
    assert all("no more can be" in text for text in said[32:])


def test_a_task_gets_a_share_of_the_budget_that_is_left() -> None:
    turns = [
        {"match": "go", "tools": [task("dig", max_steps=100)], "usage": USAGE},
        {"match": "dig", "tools": [{"name": "read", "args": {"path": "x"}}], "repeat": True},
        {"text": "ok", "usage": USAGE},
    ]
    with Runtime(provider=ScriptedProvider(turns), tasks=True, features=["codes"]) as runtime:
        frames = list(runtime.prompt("go", limits=Limits(max_steps=3)))
        said = [f.content[0].text for f in frames if isinstance(f, events.ToolResult)]
    assert said == ["the task failed: max steps (3) exceeded"]


def test_it_works_in_its_own_directory_with_its_own_tools(start: Start) -> None:
    zot = start(
        {"match": "go", "tools": [task("where", cwd="sub", tools=["bash"])]},
        {"match": "where", "tools": [_bash("pwd > here"), {"name": "read", "args": {"path": "x"}}]},
        {"match": "where", "text": "there", "repeat": True},
        THEN,
        features=["agents"],
    )
    (zot.cwd / "sub").mkdir()
    assert results(to_the_end(zot)) == ["there"]
    assert (zot.cwd / "sub" / "here").read_text().strip() == str(zot.cwd / "sub")
    said = [f["content"][0]["text"] for f in zot.frames if f["type"] == "tool_result"]
    assert any("unknown tool 'read'" in text for text in said)


@pytest.mark.parametrize("features", [["approvals"], ["agents", "approvals"]])
def test_a_question_that_nobody_can_answer_any_more_is_denied(
    start: Start, features: list[str]
) -> None:
    zot = start(
        {"match": "go", "tools": [task("make it")]},
        {"match": "make", "tools": [_bash("touch made")]},
        {"match": "make", "text": "it was not to be", "repeat": True},
        THEN,
        features=features,
    )
    zot.send("prompt", message="go")
    zot.wait(lambda: [f for f in zot.frames if f["type"] == "approval_request"])
    assert zot.close()[0] == 0  # the end of input: the question is denied, the run finishes
    assert results(zot.frames) == ["it was not to be"]
    assert not (zot.cwd / "made").exists()


@pytest.mark.parametrize(
    ("flags", "more", "said"),
    [
        (["--tools", "read,task"], {"tools": ["bash"]}, "cannot have the tool 'bash'"),
        (["--jail"], {"cwd": "@/elsewhere"}, "jailed: a task works in the directory"),
        (["--jail"], {"cwd": "link"}, "jailed: a task works in the directory"),
        (["--jail"], {"cwd": ".."}, "jailed: a task works in the directory"),
    ],
)
def test_a_task_has_no_more_rights_than_its_parent(
    start: Start, tmp_path: Path, flags: list[str], more: dict, said: str
) -> None:
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "work").mkdir()
    (tmp_path / "work" / "link").symlink_to(tmp_path / "elsewhere")
    more = {name: _filled(value, tmp_path) for name, value in more.items()}
    zot = start(
        {"match": "go", "tools": [task("break out", **more)]},
        {"match": "break", "tools": [_bash("echo out > out; pwd")], "repeat": True},
        THEN,
        args=["--tasks", *flags],
    )
    assert said in results(zot.prompt("go"))[0]
    assert not list(tmp_path.rglob("out"))


def _filled(value: Any, folder: Path) -> Any:
    return value.replace("@", str(folder)) if isinstance(value, str) else value


def test_a_task_of_a_task_has_no_more_tools_than_either(start: Start) -> None:
    zot = start(
        {"match": "go", "tools": [task("level one", tools=["read", "task"])]},
        {"match": "level one", "tools": [task("level two")]},
        {"match": "level two", "tools": [_bash("touch out")]},
        {"match": "level", "text": "back", "repeat": True},
        THEN,
        features=["agents"],
    )
    assert results(to_the_end(zot)) == ["back"]
    said = [f["content"][0]["text"] for f in zot.frames if f["type"] == "tool_result"]
    assert any("unknown tool 'bash'" in text for text in said)
    assert not (zot.cwd / "out").exists()


def test_trust_of_one_run_and_guards_of_the_project_hold_in_another_directory(
    start: Start, tmp_path: Path
) -> None:
    work = tmp_path / "work"
    write_guard(work / ".zot" / "extensions" / "guard")
    write_started(work / "cloned" / ".zot" / "extensions" / "hostile")
    zot = start(
        {"match": "go", "tools": [task("do it", cwd="cloned")]},
        {"match": "do it", "tools": [_bash("touch ran")]},
        {"match": "do it", "text": "tried", "repeat": True},
        THEN,
        features=["agents"],
        args=["--tasks", "--trust"],
    )
    assert results(to_the_end(zot)) == ["tried"]
    said = [f["content"][0]["text"] for f in zot.frames if f["type"] == "tool_result"]
    assert any("blocked by extension guard: not here" in text for text in said)
    assert not list(tmp_path.rglob("ran"))
    assert not list(tmp_path.rglob("started"))


def write_guard(folder: Path) -> None:
    write_extension(
        folder.parent,
        folder.name,
        """
hello()
emit("subscribe", intercept=["tool_call"])
emit("ready")
for frame in frames():
    if frame["type"] == "event_intercept":
        no = frame["tool_name"] == "bash"
        emit("event_intercept_response", id=frame["id"], block=no, reason="not here")
""",
    )


def write_started(folder: Path) -> None:
    write_extension(folder.parent, folder.name, 'open("started", "w").close(); hello()')


WATCH = """
hello()
emit("subscribe", events=["subagent_start", "subagent_stop"])
emit("ready")
for frame in frames():
    if frame["type"] == "event":
        with open("seen.jsonl", "a") as file: file.write(json.dumps(frame) + "\\n")
"""


def told_of_subagents(folder: Path) -> list[tuple[str, str, str]]:
    rows = [json.loads(line) for line in (folder / "seen.jsonl").read_text().splitlines()]
    assert all(row["agent_run_id"] and row["agent_id"] == row["name"] for row in rows)
    assert [row["sequence"] for row in rows] == sorted(row["sequence"] for row in rows)
    return [(row["event"], row["name"], row["status"]) for row in rows]


def test_an_extension_hears_of_subagents_and_how_they_ended(start: Start, tmp_path: Path) -> None:
    folder = write_extension(tmp_path, "watch", WATCH)
    schema = {"type": "object", "required": ["n"]}
    zot = start(
        {"match": "go", "tools": [task("look at a")]},
        {"match": "go", "tools": [task("count", schema=schema)]},
        LOOK,
        THEN,
        args=["--tasks", "--ext", str(folder)],
    )
    zot.prompt("go")
    assert zot.close()[0] == 0
    assert told_of_subagents(folder) == [
        ("subagent_start", "task-1", "running"),
        ("subagent_stop", "task-1", "completed"),
        ("subagent_start", "task-2", "running"),
        ("subagent_stop", "task-2", "failed"),
    ]


@pytest.mark.parametrize(
    ("flags", "status"), [((), "cancelled"), (("--max-seconds", "2"), "timed_out")]
)
def test_an_extension_hears_of_a_subagent_that_was_stopped(
    start: Start, tmp_path: Path, flags: tuple[str, ...], status: str
) -> None:
    folder = write_extension(tmp_path, "watch", WATCH)
    zot = start(
        {"match": "go", "tools": [task("sleep one")]},
        {"match": "sleep", "tools": [_bash("echo on; sleep 60")], "repeat": True},
        features=["agents"],
        args=["--tasks", "--ext", str(folder), *flags],
    )
    zot.send("prompt", message="go")
    if not flags:
        zot.wait(lambda: [f for f in zot.frames if f["type"] == "tool_progress"])
        zot.ask("abort", agent="task-1")
        zot.ask("abort")
    zot.wait(lambda: [f for f in zot.frames if f["type"] == "done" and "agent" not in f])
    assert zot.close()[0] == 0
    assert told_of_subagents(folder)[-1] == ("subagent_stop", "task-1", status)
