"""Extensions behind `zot rpc`: the whole way, with real processes."""

import json
import os
import queue
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest
from support.bwrap import needs_bwrap
from support.extension import OBJECT, wait_for, write_extension
from support.patience import PATIENCE

from zot.ext import __file__ as SDK


class Rpc:
    """A spawned `zot rpc`, and what it said."""

    def __init__(self, root: Path, *flags: str, turns: list[dict], env: dict | None = None) -> None:
        (root / "work").mkdir(exist_ok=True)
        script = root / "script.json"
        script.write_text(json.dumps({"turns": turns}))
        environment = {**os.environ, "ZOT_HOME": str(root / "home"), "HOME": str(root)}
        environment |= env or {}
        command = [sys.executable, "-m", "zot", "rpc", "--provider", "scripted"]
        self.process = subprocess.Popen(
            [*command, "--script", str(script), *flags],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            cwd=root / "work",
            env=environment,
        )
        self.frames: list[dict] = []
        self._queue: queue.SimpleQueue[dict | None] = queue.SimpleQueue()
        self._thread = threading.Thread(target=self._read)
        self._thread.start()

    def _read(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            self._queue.put(json.loads(line))
        self._queue.put(None)

    def send(self, **command) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(json.dumps(command).encode() + b"\n")
        self.process.stdin.flush()

    def wait(self, predicate, start=0) -> dict:
        for frame in self.frames[start:]:
            if predicate(frame):
                return frame
        while (frame := self._queue.get(timeout=30)) is not None:
            self.frames.append(frame)
            if predicate(frame):
                return frame
        raise AssertionError(f"ended without it: {self.frames}")

    def ask(self, type: str, **fields) -> dict:
        id = f"q{len(self.frames)}-{time.monotonic_ns()}"
        self.send(type=type, id=id, **fields)
        return self.wait(lambda frame: frame.get("id") == id and frame["type"] == "response")

    def until_done(self, **command) -> list[dict]:
        start = len(self.frames)
        self.send(**command)
        self.wait(lambda frame: frame["type"] == "done", start)
        return self.frames[start:]

    def close(self) -> str:
        assert self.process.stdin is not None and self.process.stderr is not None
        if self.process.stderr.closed:
            return ""
        if not self.process.stdin.closed:
            self.process.stdin.close()
        errors = self.process.stderr.read().decode()
        self.process.wait(20)
        self._thread.join(PATIENCE)
        assert self.process.stdout is not None
        self.process.stdout.close()
        self.process.stderr.close()
        return errors


@pytest.fixture
def rpc(tmp_path):
    started = []

    def start(*flags, turns=(), env=None):
        started.append(Rpc(tmp_path, *flags, turns=list(turns), env=env))
        return started[-1]

    yield start
    for each in started:
        each.process.kill()
        each.close()


SAY = f"""
hello()
emit("register_tool", name="echo", description="echoes", schema={OBJECT!r})
emit("register_command", name="ask", description="asks")
emit("register_command", name="show", description="shows")
emit("notify", level="info", message="early")
emit("ready")
for frame in frames():
    if frame["type"] == "tool_call": text(frame["id"], "echo: " + json.dumps(frame["args"]))
    if frame["type"] == "command_invoked" and frame["name"] == "ask":
        emit("command_response", id=frame["id"], action="prompt", prompt="about " + frame["args"])
    if frame["type"] == "command_invoked" and frame["name"] == "show":
        emit("command_response", id=frame["id"], action="display", display="shown")
"""
USE = {"tools": [{"name": "echo", "args": {"a": 1}}]}
BYE = {"text": "bye"}


def test_the_model_uses_a_tool_of_an_extension(tmp_path, rpc):
    folder = write_extension(tmp_path, "say", SAY)
    zot = rpc("--ext", str(folder), turns=[USE, BYE])
    frames = zot.until_done(type="prompt", id="p", message="go")
    result = next(frame for frame in frames if frame["type"] == "tool_result")
    assert result["is_error"] is False
    assert result["content"][0]["text"] == 'echo: {"a": 1}'
    notes = [frame for frame in zot.frames if frame["type"] == "ext_notify"]
    assert notes == [
        {"type": "ext_notify", "extension": "say", "level": "info", "message": "early"}
    ]


def commands_of(zot):
    """Those that extensions bring; zot's own skills are listed too."""
    listed = zot.ask("get_commands")["data"]["commands"]
    return [command for command in listed if command["extension"]]


def test_commands_can_be_listed_and_run(tmp_path, rpc):
    folder = write_extension(tmp_path, "say", SAY)
    zot = rpc("--ext", str(folder), turns=[BYE])
    listed = commands_of(zot)
    assert listed == [
        {"name": "ask", "description": "asks", "extension": "say"},
        {"name": "show", "description": "shows", "extension": "say"},
    ]
    shown = zot.ask("run_command", name="/show")
    assert shown["data"] == {"action": "display", "extension": "say", "display": "shown"}
    zot.wait(lambda frame: frame["type"] == "ext_display" and frame["text"] == "shown")
    text = zot.ask("run_command", name="ask", args="x", submit=False)
    assert text["data"] == {"action": "prompt", "extension": "say", "prompt": "about x"}
    frames = zot.until_done(type="run_command", id="c", name="ask", args="cats")
    assert frames[0]["data"]["started"] is True
    assert frames[1]["type"] == "user_message"
    assert frames[1]["content"][0]["text"] == "about cats"
    missing = zot.ask("run_command", name="nope")
    assert (missing["success"], missing["error"]) == (False, "unknown extension command 'nope'")


@pytest.mark.slow
def test_the_first_response_does_not_wait_for_extensions(tmp_path, rpc):
    folder = write_extension(tmp_path, "slow", "time.sleep(60)")
    zot = rpc("--ext", str(folder), turns=[BYE], env={"ZOT_EXT_GRACE": "3"})
    assert zot.ask("ping")["success"] is True
    assert not [frame for frame in zot.frames if frame["type"] == "ext_notify"]
    frames = zot.until_done(type="prompt", id="p", message="go")
    warning = next(frame for frame in frames if frame["type"] == "ext_notify")
    assert "said no hello within 3 s" in warning["message"]
    assert frames[-1]["type"] == "done"
    assert "extension slow: said no hello" in zot.close()


def test_extensions_start_with_zot_and_not_with_the_first_line(tmp_path, rpc):
    folder = write_extension(tmp_path, "early", 'open("started", "w").close()' + SAY)
    # The flags that come last count: a server is not asked before the first prompt.
    rpc("--ext", str(folder), "--provider", "ollama", "--model", "m", turns=[BYE])
    wait_for((folder / "started").exists)


def test_no_ext_starts_nothing_but_what_is_named(tmp_path, rpc):
    write_extension(tmp_path / "home" / "extensions", "say", SAY)
    zot = rpc("--no-ext", turns=[BYE])
    assert commands_of(zot) == []
    other = write_extension(tmp_path, "other", SAY)
    zot = rpc("--no-ext", "--ext", str(other), turns=[BYE])
    assert {each["extension"] for each in commands_of(zot)} == {"other"}


def test_extensions_of_a_project_wait_for_trust(tmp_path, rpc):
    write_extension(tmp_path / "work" / ".zot" / "extensions", "say", SAY)
    zot = rpc(turns=[BYE])
    assert commands_of(zot) == []
    note = zot.wait(lambda frame: frame["type"] == "ext_notify")
    assert f"zot config trust {tmp_path / 'work'}" in note["message"]
    home = tmp_path / "home"
    home.mkdir(exist_ok=True)
    (home / "trust.json").write_text(json.dumps({"directories": [str(tmp_path / "work")]}))
    zot = rpc(turns=[BYE])
    assert len(commands_of(zot)) == 2


def test_trust_for_one_run_needs_no_file(tmp_path, rpc):
    write_extension(tmp_path / "work" / ".zot" / "extensions", "say", SAY)
    zot = rpc("--trust", turns=[BYE])
    assert len(commands_of(zot)) == 2
    assert not (tmp_path / "home" / "trust.json").exists()


def test_reload_keeps_the_conversation_and_brings_new_tools(tmp_path, rpc):
    root = tmp_path / "home" / "extensions"
    root.mkdir(parents=True)
    zot = rpc(turns=[BYE, USE, BYE])
    zot.until_done(type="prompt", id="p1", message="first")
    write_extension(root, "say", SAY)
    reloaded = zot.ask("reload_ext")["data"]["extensions"]
    assert reloaded == [
        {
            "name": "say",
            "version": "1.0.0",
            "state": "ready",
            "commands": ["ask", "show"],
            "tools": ["echo"],
        }
    ]
    typed = zot.ask("run_command", name="/reload-ext")
    assert typed["data"]["display"] == "reloaded extensions: say"
    frames = zot.until_done(type="prompt", id="p2", message="second")
    assert any("echo: " in json.dumps(frame) for frame in frames if frame["type"] == "tool_result")
    messages = zot.ask("get_messages")["data"]["messages"]
    assert messages[0]["content"][0]["text"] == "first"


def test_reload_is_refused_while_a_run_is_in_flight(tmp_path, rpc):
    root = tmp_path / "home" / "extensions"
    write_extension(root, "say", SAY)
    zot = rpc(turns=[{"text": ["a", "b"], "delay_ms": 20_000}])
    zot.send(type="prompt", id="p", message="go")
    zot.wait(lambda frame: frame["type"] == "turn_start")
    refused = zot.ask("reload_ext")
    assert refused["success"] is False
    assert "agent is busy" in refused["error"]
    assert "agent is busy" in zot.ask("run_command", name="reload-ext")["error"]
    zot.send(type="abort")
    zot.wait(lambda frame: frame["type"] == "done")


def test_a_guard_blocks_rewrites_and_is_checked(tmp_path, rpc):
    body = """
hello()
emit("subscribe", intercept=["tool_call"], fail_closed=True)
emit("ready")
answers = [{"block": True, "reason": "not today"}, {"modified_args": {"path": "other.txt"}},
           {"modified_args": {"path": 7}}]
for frame in frames():
    if frame["type"] == "event_intercept":
        emit("event_intercept_response", id=frame["id"], **answers.pop(0))
"""
    folder = write_extension(tmp_path, "guard", body)
    read = {"tools": [{"name": "read", "args": {"path": "x.txt"}}]}
    zot = rpc("--ext", str(folder), turns=[read, read, read, BYE])
    (tmp_path / "work" / "other.txt").write_text("the other file")
    frames = zot.until_done(type="prompt", id="p", message="go")
    results = [frame for frame in frames if frame["type"] == "tool_result"]
    assert results[0]["is_error"]
    assert results[0]["content"][0]["text"] == "blocked by extension guard: not today"
    assert "the other file" in results[1]["content"][0]["text"]
    assert results[2]["is_error"]
    assert "path' must be of type string" in results[2]["content"][0]["text"]


def test_events_of_a_run_reach_a_subscriber_in_order(tmp_path, rpc):
    body = """
hello()
names = ["session_start", "user_prompt_submit", "turn_start", "assistant_message", "tool_call",
         "turn_end", "tool_result", "session_end", "permission_decision"]
emit("subscribe", events=names)
emit("ready")
for frame in frames():
    if frame["type"] == "event":
        with open("seen.jsonl", "a") as file: file.write(json.dumps(frame) + "\\n")
"""
    folder = write_extension(tmp_path, "watch", body)
    read = {"tools": [{"name": "read", "args": {"path": "x.txt"}}]}
    zot = rpc("--ext", str(folder), turns=[read, BYE])
    zot.until_done(type="prompt", id="p", message="go")
    zot.close()
    seen = [json.loads(line) for line in (folder / "seen.jsonl").read_text().splitlines()]
    assert [event["event"] for event in seen] == [
        "session_start", "user_prompt_submit",
        "turn_start", "assistant_message", "tool_call", "turn_end", "permission_decision",
        "tool_result", "turn_start", "assistant_message", "turn_end", "session_end",
    ]  # fmt: skip
    assert len({event["session_id"] for event in seen}) == 1
    sequence = [event["sequence"] for event in seen]
    assert sequence == sorted(set(sequence))
    assert (seen[6]["decision"], seen[6]["source"]) == ("approved", "yolo")
    assert (seen[7]["status"], seen[7]["executed"]) == ("failed", True)


ALL_EVENTS = """
hello()
emit("subscribe", events=["tool_call", "tool_result", "tool_confirmation_requested",
     "permission_decision", "user_prompt_submit", "pre_compact", "post_compact"], intercept=GUARDED)
emit("ready")
for frame in frames():
    if frame["type"] == "event":
        with open("seen.jsonl", "a") as file: file.write(json.dumps(frame) + "\\n")
    if frame["type"] == "event_intercept":
        emit("event_intercept_response", id=frame["id"], **ANSWER)
"""


def watcher(tmp_path, guarded=(), answer="{}"):
    body = ALL_EVENTS.replace("GUARDED", repr(list(guarded))).replace("ANSWER", answer)
    return write_extension(tmp_path, "watch", body)


def seen_events(folder, *names):
    events = [json.loads(line) for line in (folder / "seen.jsonl").read_text().splitlines()]
    return [event for event in events if not names or event["event"] in names]


@needs_bwrap
def test_how_a_call_ended_and_who_decided_reach_a_subscriber(tmp_path, rpc):
    folder = watcher(tmp_path)
    turns = [
        {"tools": [{"name": "bash", "args": {"command": "sleep 60", "timeout": 0.2}}]},
        {"tools": [{"name": "nosuch", "args": {}}]},
        {"tools": [{"name": "read", "raw_args": "{no json"}]},
        {"tools": [{"name": "write", "args": {"path": "../out.txt", "content": "x"}}]},
        BYE,
    ]
    zot = rpc("--jail", "--ext", str(folder), turns=turns)
    zot.until_done(type="prompt", id="p", message="go")
    zot.close()
    results = seen_events(folder, "tool_result")
    assert [(event["status"], event["executed"]) for event in results] == [
        ("timed_out", True), ("failed", False), ("failed", False), ("blocked", True),
    ]  # fmt: skip
    assert results[2]["tool_args_raw"] == "{no json"
    assert "tool_args" not in results[2]
    decisions = seen_events(folder, "permission_decision")
    assert [(event["decision"], event["stage"]) for event in decisions] == [
        ("approved", "pre_execution"), ("approved", "pre_execution"), ("denied", "tool_execution"),
    ]  # fmt: skip
    assert "jail" in decisions[2]["reason"]


def test_a_guards_word_and_its_arguments_reach_a_subscriber(tmp_path, rpc):
    rewrite = '{"modified_args": {"path": "b"}} if frame["tool_args"]["path"] == "a" else BLOCK'
    rewrite = rewrite.replace("BLOCK", '{"block": True, "reason": "no"}')
    folder = watcher(tmp_path, ["tool_call"], f"({rewrite})")
    read = [{"tools": [{"name": "read", "args": {"path": name}}]} for name in "ac"]
    zot = rpc("--ext", str(folder), turns=[*read, BYE])
    zot.until_done(type="prompt", id="p", message="go")
    zot.close()
    first, second = seen_events(folder, "tool_result")
    assert first["tool_args"] == {"path": "b"}
    assert (second["status"], second["executed"]) == ("blocked", False)
    assert seen_events(folder, "tool_call")[0]["tool_args"] == {"path": "a"}
    denied = seen_events(folder, "permission_decision")[1]
    assert (denied["decision"], denied["source"]) == ("denied", "policy")
    assert denied["reason"] == "blocked by extension guard: no".replace("guard", "watch")


def test_a_question_to_a_person_and_its_answer_reach_a_subscriber(tmp_path, rpc):
    folder = watcher(tmp_path)
    run = {"tools": [{"name": "bash", "args": {"command": "make"}}]}
    zot = rpc("--ext", str(folder), turns=[run, run, run, BYE])
    zot.ask("hello", features=["approvals"])
    zot.send(type="prompt", id="p", message="go")
    for decision in ("deny", "allow_session"):
        asked = zot.wait(lambda frame: frame["type"] == "approval_request")
        zot.send(type="approve", request_id=asked["request_id"], decision=decision)
        zot.frames.clear()
    zot.wait(lambda frame: frame["type"] == "done")
    zot.close()
    asked = seen_events(folder, "tool_confirmation_requested")
    assert [event["tool_preview"] for event in asked] == ["make", "make"]
    decisions = seen_events(folder, "permission_decision")
    assert [(event["decision"], event["source"]) for event in decisions] == [
        ("denied", "user"), ("approved", "user"), ("approved", "remembered"),
    ]  # fmt: skip


def test_messages_that_waited_and_the_size_of_a_compaction_reach_a_subscriber(tmp_path, rpc):
    folder = watcher(tmp_path)
    long = {"text": ["a", "b"], "delay_ms": 300}
    zot = rpc("--ext", str(folder), turns=[long, BYE, BYE, BYE])
    zot.send(type="prompt", id="p", message="go")
    zot.wait(lambda frame: frame["type"] == "text_delta")
    zot.send(type="steer", id="s", message="faster")
    zot.wait(lambda frame: frame["type"] == "done")
    zot.until_done(type="prompt", id="q", message="more")
    zot.until_done(type="compact", id="c")
    zot.close()
    prompts = seen_events(folder, "user_prompt_submit")
    assert [(event["text"], event.get("queued")) for event in prompts] == [
        ("go", None), ("faster", True), ("more", None),
    ]  # fmt: skip
    before, after = seen_events(folder, "pre_compact", "post_compact")
    assert before["message_count"] >= 6
    assert after["message_count"] < before["message_count"]
    assert before["token_estimate"] > 0


@pytest.mark.slow
def test_a_slow_guard_holds_in_the_first_run_of_zot(tmp_path, rpc):
    body = """
time.sleep(5)
hello()
emit("subscribe", intercept=["tool_call"])
emit("ready")
for frame in frames():
    if frame["type"] == "event_intercept":
        emit("event_intercept_response", id=frame["id"], block=True, reason="never")
"""
    folder = write_extension(tmp_path, "guard", body)
    run = {"tools": [{"name": "bash", "args": {"command": "touch ran"}}]}
    zot = rpc("--ext", str(folder), turns=[run, BYE], env={"ZOT_EXT_GRACE": "0.2"})
    frames = zot.until_done(type="prompt", id="p", message="go")
    result = next(frame for frame in frames if frame["type"] == "tool_result")
    assert result["content"][0]["text"] == "blocked by extension guard: never"
    assert not (tmp_path / "work" / "ran").exists()


def test_the_system_prompt_and_the_reply_can_be_replaced(tmp_path, rpc):
    body = """
hello()
emit("subscribe", intercept=["before_agent_start", "assistant_message"])
emit("ready")
for frame in frames():
    if frame["type"] == "event_intercept":
        if frame["event"] == "assistant_message": answer = {"replace_text": "censored"}
        else: answer = {"system_prompt": "short"}
        emit("event_intercept_response", id=frame["id"], **answer)
"""
    folder = write_extension(tmp_path, "edit", body)
    zot = rpc("--ext", str(folder), turns=[BYE])
    frames = zot.until_done(type="prompt", id="p", message="go")
    message = next(frame for frame in frames if frame["type"] == "assistant_message")
    assert message["content"][0]["text"] == "censored"


def test_abort_stops_a_tool_of_an_extension_at_once(tmp_path, rpc):
    body = """
hello()
emit("register_tool", name="echo", schema={"type": "object"})
emit("ready")
for frame in frames():
    if frame["type"] == "tool_call": emit("notify", level="info", message="called")
    if frame["type"] == "tool_cancel": emit("notify", level="info", message="cancelled")
"""
    folder = write_extension(tmp_path, "slow", body)
    zot = rpc("--ext", str(folder), turns=[USE])
    zot.send(type="prompt", id="p", message="go")
    zot.wait(lambda frame: frame.get("message") == "called")
    zot.send(type="abort")
    zot.wait(lambda frame: frame["type"] == "done")
    zot.wait(lambda frame: frame.get("message") == "cancelled")


def test_call_tool_goes_through_the_guards(tmp_path, rpc):
    caller = f"""
import sys; sys.path.insert(0, {str(Path(SDK).parents[1])!r})
from zot.ext import Call, Extension
ext = Extension("caller")
@ext.tool
def echo(a: int, call: Call) -> str:
    first = ext.call_tool("read", {{"path": "x.txt"}}, call=call)
    second = ext.call_tool("bash", {{"command": "ls"}}, call=call)
    third = ext.call_tool("read", {{"path": [1]}})
    fourth = ext.call_tool("nothing", {{}})
    return "\\n".join([first.text, second.text, third.text, fourth.text])
ext.run()
"""
    guard = """
hello()
emit("subscribe", intercept=["tool_call"])
emit("ready")
for frame in frames():
    if frame["type"] == "event_intercept":
        blocked = frame["tool_name"] == "bash"
        emit("event_intercept_response", id=frame["id"], block=blocked, reason="no shell")
"""
    folders = [
        write_extension(tmp_path, "caller", caller),
        write_extension(tmp_path, "guard", guard),
    ]
    zot = rpc(*[word for each in folders for word in ("--ext", str(each))], turns=[USE, BYE])
    (tmp_path / "work" / "x.txt").write_text("file text")
    frames = zot.until_done(type="prompt", id="p", message="go")
    text = next(frame for frame in frames if frame["type"] == "tool_result")["content"][0]["text"]
    assert "file text" in text
    assert "blocked by extension guard: no shell" in text
    assert "invalid arguments for 'read'" in text
    assert "unknown tool 'nothing'" in text


def test_panels_work_over_the_wire(tmp_path, rpc):
    folder = Path(__file__).parents[2] / "examples" / "extensions" / "todo"
    zot = rpc("--ext", str(folder), turns=[])
    opened = zot.ask("run_command", name="todo", args="")
    assert opened["data"]["panel"]["title"] == "To do"
    zot.wait(lambda frame: frame["type"] == "ext_panel" and frame["action"] == "open")
    key = {"extension": "todo", "panel_id": "todo"}
    assert zot.ask("panel_key", key="esc", **key)["success"]
    zot.wait(lambda frame: frame["type"] == "ext_panel" and frame["action"] == "close")
    assert zot.ask("panel_close", **key)["success"]
    failed = zot.ask("panel_key", extension="nobody", panel_id="p", key="up")
    assert failed["error"] == "extension 'nobody' is not running"


def test_secrets_and_the_token_stay_with_zot(tmp_path, rpc):
    body = """
open("env.json", "w").write(json.dumps(dict(os.environ)))
hello()
emit("ready")
for frame in frames(): pass
"""
    folder = write_extension(tmp_path, "spy", body)
    env = {"ZOTCORE_RPC_TOKEN": "token-canary-1", "ANTHROPIC_API_KEY": "sk-canary-12345"}
    zot = rpc("--ext", str(folder), turns=[BYE], env=env)
    zot.ask("hello", token="token-canary-1")
    zot.ask("get_commands")
    seen = (folder / "env.json").read_text()
    assert "canary" not in seen


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL])
@pytest.mark.slow
def test_no_process_is_left_when_zot_ends(tmp_path, rpc, number):
    body = """
open("pid", "w").write(str(os.getpid()))
signal.signal(signal.SIGTERM, signal.SIG_IGN)
hello()
emit("ready")
time.sleep(120)
"""
    folder = write_extension(tmp_path, "stay", body)
    zot = rpc("--ext", str(folder), turns=[BYE])
    zot.ask("get_commands")
    pid = int((folder / "pid").read_text())
    zot.process.send_signal(number)
    zot.process.wait(20)
    wait_for(lambda: not Path(f"/proc/{pid}").exists())


def test_tools_flags_cover_extensions(tmp_path, rpc):
    folder = write_extension(tmp_path, "say", SAY)
    zot = rpc("--ext", str(folder), "--tools", "read,echo", turns=[USE, BYE])
    frames = zot.until_done(type="prompt", id="p", message="go")
    assert not next(frame for frame in frames if frame["type"] == "tool_result")["is_error"]
    for flags in (("--no-tools",), ("--tools", "read")):
        zot = rpc("--ext", str(folder), *flags, turns=[USE, BYE])
        frames = zot.until_done(type="prompt", id="p", message="go")
        result = next(frame for frame in frames if frame["type"] == "tool_result")
        assert "unknown tool 'echo'" in result["content"][0]["text"]


def test_print_mode_has_extensions_too(tmp_path):
    folder = write_extension(tmp_path, "say", SAY)
    script = tmp_path / "script.json"
    script.write_text(json.dumps({"turns": [USE, BYE]}))
    command = [sys.executable, "-m", "zot", "-p", "--provider", "scripted", "--script", str(script)]
    done = subprocess.run(
        [*command, "--ext", str(folder), "go"],
        env={**os.environ, "ZOT_HOME": str(tmp_path / "home")},
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=60,
        stdin=subprocess.DEVNULL,
    )
    assert (done.returncode, done.stdout) == (0, "bye\n")
    assert "zot: [say] early" in done.stderr


ASKING = f"""
import sys; sys.path.insert(0, {str(Path(SDK).parents[1])!r})
from zot.ext import Extension
ext = Extension("asker")
@ext.tool
def echo(a: int) -> str:
    return f"{{ext.confirm('sure?', 'really')}} {{ext.select('which?', ['x', 'y'], timeout=100)}}"
ext.run()
"""


def test_an_extension_asks_a_client_that_shows_dialogs(tmp_path, rpc):
    folder = write_extension(tmp_path, "asker", ASKING)
    zot = rpc("--ext", str(folder), turns=[USE, BYE])
    zot.ask("hello", features=["dialogs"])
    zot.send(type="prompt", id="p", message="go")
    first = zot.wait(lambda frame: frame["type"] == "ext_ask")
    assert first == {
        "type": "ext_ask",
        "request_id": first["request_id"],
        "extension": "asker",
        "method": "confirm",
        "title": "sure?",
        "message": "really",
        "timeout_ms": 300_000,
    }
    assert zot.ask("answer", request_id=first["request_id"], confirmed=True)["success"]
    second = zot.wait(lambda frame: frame.get("method") == "select")
    assert second["options"] == ["x", "y"]
    assert zot.ask("answer", request_id=second["request_id"], value="y")["success"]
    result = zot.wait(lambda frame: frame["type"] == "tool_result")
    assert result["content"][0]["text"] == "True y"
    again = zot.ask("answer", request_id=second["request_id"], value="y")
    assert again["error"] == f"no question '{second['request_id']}' is open"


def test_a_client_without_dialogs_is_not_asked(tmp_path, rpc):
    folder = write_extension(tmp_path, "asker", ASKING)
    zot = rpc("--ext", str(folder), turns=[USE, BYE])
    frames = zot.until_done(type="prompt", id="p", message="go")
    result = next(frame for frame in frames if frame["type"] == "tool_result")
    assert result["content"][0]["text"] == "False None"
    assert not [frame for frame in frames if frame["type"] == "ext_ask"]


def test_a_client_of_pis_protocol_is_asked_as_pi_asks(tmp_path):
    folder = write_extension(tmp_path, "asker", ASKING)
    script = tmp_path / "script.json"
    script.write_text(json.dumps({"turns": [USE, BYE]}))
    command = [sys.executable, "-m", "zot", "--mode", "rpc", "--no-session"]
    command += ["--provider", "scripted", "--script", str(script), "--ext", str(folder)]
    with subprocess.Popen(
        command,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        cwd=tmp_path,
        env={**os.environ, "ZOT_HOME": str(tmp_path / "home")},
    ) as process:
        assert process.stdin is not None and process.stdout is not None

        def send(**command) -> None:
            process.stdin.write(json.dumps(command).encode() + b"\n")
            process.stdin.flush()

        send(type="prompt", id="1", message="go")
        for line in process.stdout:
            frame = json.loads(line)
            if frame["type"] == "extension_ui_request" and frame["method"] == "confirm":
                assert (frame["title"], frame["message"]) == ("sure?", "really")
                send(type="extension_ui_response", id=frame["id"], confirmed=True)
            elif frame["type"] == "extension_ui_request" and frame["method"] == "select":
                send(type="extension_ui_response", id=frame["id"], value="x")
            elif frame["type"] == "tool_execution_end":
                assert "True x" in json.dumps(frame["result"])
                break
        process.stdin.close()
        for _ in process.stdout:
            pass
        assert process.wait(20) == 0
