"""Hooks in a file, through a spawned `zot rpc`: scripts as people have them for Claude Code."""

import json
import shutil
import subprocess
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from support.patience import PATIENCE
from support.rpc import CANARIES, Zot, command, environment, make_folder

BASH = {"tools": [{"name": "bash", "args": {"command": "echo ran > made; echo out"}}]}
OK = {"text": "ok", "repeat": True}
Start = Callable[..., Zot]


@pytest.fixture
def start(tmp_path: Path) -> Any:
    opened: list[Zot] = []

    def started(*turns: dict, args: Any = (), features: list[str] | None = None) -> Zot:
        opened.append(Zot(tmp_path, list(turns), args=args, features=features))
        return opened[-1]

    yield started
    for zot in opened:
        zot.kill()


def user_hooks(folder: Path, **events: Any) -> None:
    write_hooks(folder / "zot-home" / "hooks.json", **events)


def write_hooks(path: Path, **events: Any) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps({"hooks": events}))


def hook(command: str, matcher: str = "", **more: Any) -> dict:
    return {"matcher": matcher, "hooks": [{"type": "command", "command": command, **more}]}


def result(frames: list[dict]) -> str:
    found = [frame for frame in frames if frame["type"] == "tool_result"]
    return "\n".join(part["text"] for part in found[0]["content"])


def made(folder: Path) -> bool:
    return (folder / "work" / "made").exists()


def test_exit_code_2_blocks_a_tool_and_the_model_reads_why(start: Start, tmp_path: Path) -> None:
    user_hooks(tmp_path, PreToolUse=[hook("echo not here >&2; exit 2", "Bash")])
    frames = start(BASH, OK).prompt()
    assert "not here" in result(frames)
    assert not made(tmp_path)


def test_a_hook_of_another_tool_is_not_run(start: Start, tmp_path: Path) -> None:
    user_hooks(tmp_path, PreToolUse=[hook("exit 2", "Write|Edit"), hook("exit 2", "mcp__.*")])
    frames = start(BASH, OK).prompt()
    assert "out" in result(frames)


def test_the_input_is_in_the_words_of_claude_code_and_holds_no_secret(
    start: Start, tmp_path: Path
) -> None:
    body = "cat > seen.json; env > seen.env"
    user_hooks(tmp_path, PreToolUse=[hook(body, "Write")])
    write = {"tools": [{"name": "write", "args": {"path": "a.txt", "content": "x"}}]}
    start(write, OK).prompt()
    seen = json.loads((tmp_path / "work" / "seen.json").read_text())
    assert seen["hook_event_name"] == "PreToolUse"
    assert seen["tool_name"] == "Write"
    here = str(tmp_path / "work")
    assert seen["tool_input"] == {"file_path": f"{here}/a.txt", "content": "x"}
    assert seen["cwd"] == here
    assert seen["session_id"]
    env = (tmp_path / "work" / "seen.env").read_text()
    assert f"CLAUDE_PROJECT_DIR={here}" in env
    assert not any(canary in env for canary in CANARIES)


def test_a_changed_input_is_what_runs(start: Start, tmp_path: Path) -> None:
    changed = {"hookEventName": "PreToolUse", "permissionDecision": "allow"}
    changed |= {"updatedInput": {"command": "echo other"}}
    answer = json.dumps({"hookSpecificOutput": changed})
    user_hooks(tmp_path, PreToolUse=[hook(f"echo '{answer}'", "Bash")])
    frames = start(BASH, OK).prompt()
    assert "other" in result(frames)
    assert not made(tmp_path)


@pytest.mark.parametrize(
    ("command", "more"),
    [
        ("/no/such/program", {}),
        ("sleep 60", {"timeout": 0.2}),
        ("kill -9 $$", {}),
        ("echo '{broken'", {}),
    ],
)
def test_a_guard_that_cannot_answer_blocks(
    start: Start, tmp_path: Path, command: str, more: dict
) -> None:
    user_hooks(tmp_path, PreToolUse=[hook(command, "*", **more)])
    frames = start(BASH, OK).prompt()
    assert "blocked by a hook" in result(frames)
    assert "zot hooks test PreToolUse" in result(frames)
    assert not made(tmp_path)


def test_exit_code_1_is_shown_and_blocks_nothing(start: Start, tmp_path: Path) -> None:
    user_hooks(tmp_path, PreToolUse=[hook("echo odd >&2; exit 1")])
    zot = start(BASH, OK)
    frames = zot.prompt()
    assert made(tmp_path)
    notes = [frame["message"] for frame in frames if frame["type"] == "ext_notify"]
    assert len(notes) == 1
    assert "odd" in notes[0]


def test_a_decision_skips_or_forces_the_question(start: Start, tmp_path: Path) -> None:
    decide = 'case "$(cat)" in *echo*) d=allow;; *) d=ask;; esac; '
    decide += 'echo \'{"hookSpecificOutput":{"permissionDecision":"\'$d\'"}}\''
    user_hooks(tmp_path, PreToolUse=[hook(decide)])
    read = {"tools": [{"name": "read", "args": {"path": "made"}}]}
    zot = start(BASH, read, OK, features=["approvals"])
    zot.send("prompt", message="go")
    (request,) = [f for f in zot.until("approval_request") if f["type"] == "approval_request"]
    assert made(tmp_path)  # bash was allowed, the read is asked about
    zot.ask("approve", request_id=request["request_id"], decision="deny")
    zot.until("done")


def test_a_prompt_can_be_refused_or_get_context(start: Start, tmp_path: Path) -> None:
    body = 'case "$(cat)" in *secret*) echo no secrets >&2; exit 2;; *) echo it is Monday;; esac'
    user_hooks(tmp_path, UserPromptSubmit=[hook(body)])
    zot = start(OK)
    frames = zot.prompt("the secret")
    assert [f["message"] for f in frames if f["type"] == "error"] == [
        "a hook did not allow the prompt: no secrets"
    ]
    zot.prompt("which day is it?")
    said = json.dumps(zot.data("get_messages"))
    assert "it is Monday" in said
    assert "the secret" not in said


def test_the_hook_after_a_tool_adds_to_its_result(start: Start, tmp_path: Path) -> None:
    answer = json.dumps({"decision": "block", "reason": "format the file"})
    user_hooks(tmp_path, PostToolUse=[hook(f"cat > after.json; echo '{answer}'", "Bash")])
    frames = start(BASH, OK).prompt()
    assert "out" in result(frames)
    assert "[a hook says: format the file]" in result(frames)
    after = json.loads((tmp_path / "work" / "after.json").read_text())
    assert "out" in after["tool_response"]["stdout"]


def test_null_in_an_answer_means_nothing(start: Start, tmp_path: Path) -> None:
    answer = json.dumps({"decision": None, "reason": None, "hookSpecificOutput": {"x": 1}})
    user_hooks(tmp_path, PreToolUse=[hook(f"echo '{answer}'")])
    assert "out" in result(start(BASH, OK).prompt())


def test_a_stop_hook_keeps_the_run_going_until_it_agrees(start: Start, tmp_path: Path) -> None:
    body = "cat >> stops; test -e made || { echo make it >&2; exit 2; }"
    user_hooks(tmp_path, Stop=[hook(body)])
    zot = start({"text": "I am done"}, BASH, OK)
    frames = zot.prompt()
    assert frames[-1]["type"] == "done"
    assert made(tmp_path)
    rows = [json.loads(line) for line in (tmp_path / "work" / "stops").read_text().splitlines()]
    assert [row["stop_hook_active"] for row in rows] == [False, True]


def test_a_stop_hook_that_never_agrees_does_not_hang_the_run(start: Start, tmp_path: Path) -> None:
    user_hooks(tmp_path, Stop=[hook("echo more >&2; exit 2")])
    frames = start(OK).prompt()
    assert frames[-1]["type"] == "done"
    assert sum(frame["type"] == "turn_start" for frame in frames) == 9


def test_continue_false_ends_the_run(start: Start, tmp_path: Path) -> None:
    answer = json.dumps({"continue": False, "stopReason": "enough"})
    user_hooks(tmp_path, PostToolUse=[hook(f"echo '{answer}'")])
    frames = start(BASH, OK).prompt()
    assert [f["message"] for f in frames if f["type"] == "error"] == ["stopped by a hook: enough"]


def test_sessions_are_told_from_start_to_end(start: Start, tmp_path: Path) -> None:
    log = "cat >> sessions"
    user_hooks(tmp_path, SessionStart=[hook(log)], SessionEnd=[hook(log)], PreCompact=[hook(log)])
    zot = start(OK)
    zot.prompt("one")
    zot.prompt("two")
    zot.close()
    rows = (tmp_path / "work" / "sessions").read_text().splitlines()
    seen = [(row["hook_event_name"], row.get("source")) for row in map(json.loads, rows)]
    assert seen == [("SessionStart", "startup"), ("SessionEnd", None)]


def test_an_abort_kills_the_hook(start: Start, tmp_path: Path) -> None:
    user_hooks(tmp_path, PreToolUse=[hook("echo $$ > pid; sleep 1000")])
    zot = start(BASH, OK)
    zot.send("prompt", message="go")
    pid = tmp_path / "work" / "pid"
    deadline = time.monotonic() + PATIENCE
    while not (pid.exists() and pid.read_text().strip()):
        assert time.monotonic() < deadline
        time.sleep(0.01)
    zot.ask("abort")
    zot.until("done")
    assert not made(tmp_path)
    zot.close()  # checks that no process is left


def test_a_person_who_is_needed_is_told_of(start: Start, tmp_path: Path) -> None:
    user_hooks(tmp_path, Notification=[hook("cat > told.part; mv told.part told")])
    zot = start(BASH, OK, features=["approvals"])
    zot.send("prompt", message="go")
    request = zot.until("approval_request")[-1]
    told = tmp_path / "work" / "told"
    deadline = time.monotonic() + PATIENCE
    while not told.exists():
        assert time.monotonic() < deadline
        time.sleep(0.01)
    assert "permission to use Bash" in json.loads(told.read_text())["message"]
    zot.ask("approve", request_id=request["request_id"], decision="deny")
    zot.until("done")


@pytest.mark.parametrize("name", [".zot/hooks.json", ".claude/settings.json"])
def test_hooks_of_a_project_need_trust(start: Start, tmp_path: Path, name: str) -> None:
    write_hooks(tmp_path / "work" / name, PreToolUse=[hook("exit 2")])
    zot = start(BASH, OK)
    zot.prompt()
    assert made(tmp_path)
    assert "not trusted" in zot.stderr()
    (tmp_path / "work" / "made").unlink()
    frames = start(BASH, OK, args=("--trust",)).prompt()
    assert "blocked by a hook" in result(frames)


def test_a_broken_file_of_the_user_is_refused_with_its_name(tmp_path: Path) -> None:
    (make_folder(tmp_path).parent / "zot-home").mkdir()
    (tmp_path / "zot-home" / "hooks.json").write_text('{"hooks": {"PreToolUse": 1}}')
    ran = zot_command(tmp_path, "-p", "--provider", "scripted", "hi")
    assert ran.returncode != 0
    assert "hooks.json" in ran.stderr
    assert "Traceback" not in ran.stderr


@pytest.mark.skipif(shutil.which("bwrap") is None, reason="bubblewrap is not installed")
def test_in_a_jail_hooks_are_jailed(start: Start, tmp_path: Path) -> None:
    outside = tmp_path / "home" / "outside"
    user_hooks(tmp_path, PreToolUse=[hook(f"touch {outside}; touch inside; exit 0")])
    zot = start(BASH, OK, args=("--jail",))
    frames = zot.prompt()
    if "jail" in result(frames) and not made(tmp_path):
        pytest.skip(f"no jail here: {result(frames)[:200]}")
    assert (tmp_path / "work" / "inside").exists()
    assert not outside.exists()


def zot_command(folder: Path, *words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [*command(), *words],
        cwd=make_folder(folder),
        env=environment(folder),
        capture_output=True,
        text=True,
        timeout=PATIENCE,
        check=False,
    )


def test_the_command_lists_and_tries_hooks(tmp_path: Path) -> None:
    user_hooks(tmp_path, PreToolUse=[hook("echo no >&2; exit 2", "Bash")])
    write_hooks(tmp_path / "work" / ".claude" / "settings.json", Stop=[hook("true")])
    listed = zot_command(tmp_path, "hooks", "list")
    assert "PreToolUse Bash" in listed.stdout
    assert "not used: the project is not trusted" in listed.stdout
    tried = zot_command(tmp_path, "hooks", "test", "PreToolUse")
    assert "exit code: 2" in tried.stdout
    assert "stderr: no" in tried.stdout
    nothing = zot_command(
        tmp_path, "hooks", "test", "PreToolUse", "--input", '{"tool_name":"Read"}'
    )
    assert nothing.returncode == 1
    assert "no hook of PreToolUse matches 'Read'" in nothing.stdout
