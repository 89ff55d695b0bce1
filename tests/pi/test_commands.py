"""Every other command of pi's: state, models, sessions, the shell."""

import json
from pathlib import Path
from typing import Any

import pytest
from support.extension import write_extension
from support.pi import PiServers, ended, kinds

HELLO = {"text": ["Hel", "lo"], "usage": {"input": 10, "output": 3}, "repeat": True}
SUMMARY = {"match": "<conversation>", "text": "a summary"}
BASH = {"name": "bash", "args": {"command": "echo out"}}
KEEP: list[str] = []


def rows(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text().splitlines()]


# --- state and models ------------------------------------------------------------------------


def test_the_state_leaves_out_what_there_is_not(servers: PiServers) -> None:
    with servers.start(HELLO) as server:
        state = server.data("get_state")
    assert set(state) == {
        "model",
        "thinkingLevel",
        "isStreaming",
        "isCompacting",
        "steeringMode",
        "followUpMode",
        "sessionId",
        "autoCompactionEnabled",
        "messageCount",
        "pendingMessageCount",
    }
    assert state["steeringMode"] == state["followUpMode"] == "one-at-a-time"
    assert state["model"]["cost"] == {"input": 0, "output": 0, "cacheRead": 0, "cacheWrite": 0}


def test_the_state_shows_a_run(servers: PiServers) -> None:
    with servers.start({"text": ["a"] * 50, "delay_ms": 200}) as server:
        server.send("prompt", message="hi", id="1")
        server.until("message_update")
        state = server.data("get_state")
        assert (state["isStreaming"], state["isCompacting"]) == (True, False)


def test_thinking_levels_are_told_when_they_change(servers: PiServers) -> None:
    with servers.start(HELLO) as server:
        server.data("set_thinking_level", level="high")
        assert server.seen[-2] == {"type": "thinking_level_changed", "level": "high"}
        server.data("set_thinking_level", level="high")
        assert kinds(server.seen).count("thinking_level_changed") == 1
        server.data("set_thinking_level", level="max")  # this model has no more than high
        assert server.data("get_state")["thinkingLevel"] == "high"
        assert server.data("cycle_thinking_level") == {"level": "off"}
        assert server.data("cycle_thinking_level") == {"level": "minimal"}
        response = server.ask("set_thinking_level", level="very")
        assert "must be one of" in response["error"]


def test_models_of_every_provider_with_a_key_can_be_chosen(servers: PiServers) -> None:
    with servers.start(HELLO, env={"ANTHROPIC_API_KEY": "sk-x"}) as server:
        models = server.data("get_available_models")["models"]
        assert {each["provider"] for each in models} == {"scripted", "anthropic"}
        chosen = server.data("set_model", provider="anthropic", modelId="claude-sonnet-4-6")
        assert (chosen["provider"], chosen["api"]) == ("anthropic", "anthropic-messages")
        assert chosen["baseUrl"].startswith("https://")
        assert server.data("get_state")["model"] == chosen
        next_one = server.data("cycle_model")
        assert next_one["model"]["provider"] == "anthropic"
        assert next_one["isScoped"] is False
        server.data("new_session")
        assert server.data("get_state")["model"]["provider"] == "scripted"


def test_cycling_stays_within_the_models_that_were_named(servers: PiServers) -> None:
    args = ["--no-session", "--models", "anthropic/claude-sonnet-5-5:high,*haiku*"]
    with servers.start(HELLO, args=args, env={"ANTHROPIC_API_KEY": "sk-x"}) as server:
        first, second = server.data("cycle_model"), server.data("cycle_model")
        assert first["isScoped"] is True
        assert first["model"]["id"] == "claude-sonnet-5-5"
        assert second["model"]["id"].startswith("claude-") and "haiku" in second["model"]["id"]


def test_a_session_whose_model_is_gone_goes_on_with_another(servers: PiServers) -> None:
    with servers.start(HELLO, args=KEEP, env={"ANTHROPIC_API_KEY": "sk-x"}) as server:
        server.run("hi", id="1")
        server.data("set_model", provider="anthropic", modelId="claude-sonnet-5-5")
    args = ["--continue", "--pi-protocol", "b"]
    with servers.start(HELLO, args=args, env={"ANTHROPIC_API_KEY": "sk-x"}) as server:
        assert server.data("get_state")["model"]["provider"] == "anthropic"
    with servers.start(HELLO, args=args) as server:
        assert server.data("get_state")["model"]["provider"] == "scripted"


def test_flags_win_over_the_session_that_is_continued(servers: PiServers) -> None:
    with servers.start(HELLO, args=KEEP, env={"ANTHROPIC_API_KEY": "sk-x"}) as server:
        server.data("set_thinking_level", level="low")
        server.run("hi", id="1")
        server.data("set_model", provider="anthropic", modelId="claude-sonnet-5-5")
        path = server.data("get_state")["sessionFile"]
    args = ["--continue", "--model", "scripted", "--thinking", "high"]
    with servers.start(HELLO, args=args, env={"ANTHROPIC_API_KEY": "sk-x"}) as server:
        state = server.data("get_state")
        assert (state["model"]["provider"], state["thinkingLevel"]) == ("scripted", "high")
        server.data("new_session")
        server.data("switch_session", sessionPath=path)
        state = server.data("get_state")
        assert (state["model"]["provider"], state["thinkingLevel"]) == ("anthropic", "low")


def test_a_model_without_a_key_cannot_be_chosen(servers: PiServers) -> None:
    with servers.start(HELLO) as server:
        response = server.ask("set_model", provider="openai", modelId="gpt-6.1-sol")
        assert response["error"].startswith("model not found: openai/gpt-6.1-sol")
        response = server.ask("set_model", provider="nobody", modelId="x")
        assert "nobody" in response["error"]


def test_a_model_chosen_in_a_run_is_used_from_the_next_one(servers: PiServers) -> None:
    slow = {"text": ["a"] * 200, "delay_ms": 100}
    with servers.start(slow, env={"ANTHROPIC_API_KEY": "sk-x"}) as server:
        server.send("prompt", message="hi", id="1")
        server.until("message_update")
        server.data("set_model", provider="anthropic", modelId="claude-sonnet-5-5")
        assert server.data("get_state")["model"]["provider"] == "anthropic"
        server.send("abort", id="2")
        server.until("agent_settled")
        assert server.seen[-2]["messages"][-1]["provider"] == "scripted"
        assert server.data("get_state")["model"]["provider"] == "anthropic"


def test_session_statistics(servers: PiServers) -> None:
    with servers.start(SUMMARY, {"tools": [BASH]}, HELLO) as server:
        server.run("hi", id="1")
        stats = server.data("get_session_stats")
        counted = ("userMessages", "assistantMessages", "toolCalls", "toolResults")
        assert [stats[each] for each in counted] == [1, 2, 1, 1]
        assert stats["totalMessages"] == 4
        assert stats["tokens"]["input"] == 10
        assert stats["contextUsage"]["contextWindow"] == 200_000
        assert stats["contextUsage"]["tokens"] == 13
        server.data("compact")
        assert server.data("get_session_stats")["contextUsage"]["tokens"] is None


def test_skills_are_commands(servers: PiServers) -> None:
    with servers.start(HELLO) as server:
        found = server.data("get_commands")["commands"]
    skill = next(each for each in found if each["name"].startswith("skill:"))
    assert skill["source"] == "skill"
    assert set(skill["sourceInfo"]) >= {"path", "source", "scope", "origin"}


# --- the shell -------------------------------------------------------------------------------


def test_a_shell_command_streams_and_joins_the_next_prompt(servers: PiServers) -> None:
    with servers.start({"match": "heard-me", "text": "never"}, HELLO, args=KEEP) as server:
        server.send("bash", command="echo heard-me", id="1")
        frames = server.until("response")
        assert frames[0] == {"type": "bash_execution_update", "id": "1", "delta": "heard-me\n"}
        assert frames[-1]["data"]["output"] == "heard-me\n"
        found = server.data("get_messages")["messages"]
        assert found[0]["role"] == "bashExecution"
        assert found[0]["command"] == "echo heard-me"
        server.run("what", id="2")
    kept = [row["message"]["role"] for row in rows(servers.files()[0]) if row["type"] == "message"]
    assert kept == ["bashExecution", "user", "assistant"]


def test_a_key_that_a_shell_command_prints_goes_nowhere(servers: PiServers) -> None:
    key = "sk-canary-0123456789"  # in two pieces, as one that is written slowly
    with servers.start(HELLO, args=KEEP, env={"ANTHROPIC_API_KEY": key}) as server:
        text = f"printf {key[:9]}; sleep 0.1; echo {key[9:]}"
        server.send("bash", command=text, id="1")
        frames = server.until("response")
        assert key not in "".join(f.get("delta", "") for f in frames)
        assert "[secret removed]" in frames[-1]["data"]["output"]
        assert key not in str(server.data("get_messages"))
        server.run("what", id="2")
    assert key not in servers.files()[0].read_text()


def test_a_shell_command_can_be_kept_from_the_model(servers: PiServers) -> None:
    with servers.start(HELLO, args=KEEP) as server:
        server.data("bash", command="echo secret", excludeFromContext=True)
        assert server.data("get_messages")["messages"] == []
        entries = server.data("get_entries")["entries"]
        assert entries[-1]["message"]["excludeFromContext"] is True
        server.run("hi", id="1")
    kept = [row["message"]["role"] for row in rows(servers.files()[0]) if row["type"] == "message"]
    assert kept == ["bashExecution", "user", "assistant"]


def test_a_shell_command_during_a_run_is_heard_after_it(servers: PiServers) -> None:
    with servers.start({"text": ["a"] * 200, "delay_ms": 100}) as server:
        server.send("prompt", message="hi", id="1")
        server.until("message_update")
        assert server.data("bash", command="echo x")["exitCode"] == 0
        server.send("abort", id="2")
        server.until("agent_settled")
        roles = [each["role"] for each in server.data("get_messages")["messages"]]
        assert roles == ["user", "assistant", "bashExecution"]


def test_a_failing_and_an_empty_shell_command(servers: PiServers) -> None:
    with servers.start(HELLO) as server:
        assert server.data("bash", command="echo no; exit 3")["exitCode"] == 3
        assert server.ask("bash", command="  ")["success"] is False


def test_a_long_output_is_cut_and_kept_in_a_file(servers: PiServers, tmp_path: Path) -> None:
    with servers.start(HELLO, env={"TMPDIR": str(tmp_path)}) as server:
        answer = server.data("bash", command="seq 1 20000")
        assert answer["truncated"] is True
        assert len(answer["output"]) < 60_000
        assert Path(answer["fullOutputPath"]).read_text().endswith("20000\n")


def test_a_command_that_prints_for_ever_waits_for_a_client_that_does_not_read(
    servers: PiServers,
) -> None:
    with servers.start(HELLO) as server:
        server.data("get_state")
        server.send("bash", command="yes", id="1")
        server.until("bash_execution_update")
        server.send("abort_bash", id="2")
        response = server.until(lambda frame: frame.get("id") == "1" and "success" in frame)[-1]
        assert response["data"]["cancelled"] is True
        assert response["data"]["truncated"] is True


# --- extensions and dialogs ------------------------------------------------------------------

COMMANDS = """
hello()
emit("register_command", name="greet", description="says hello")
emit("register_command", name="ask", description="asks the model")
emit("register_command", name="put", description="puts text into the editor")
emit("register_command", name="bad", description="fails")
emit("ready")
emit("notify", level="warn", message="careful")
for frame in frames():
    if frame["type"] == "command_invoked":
        action = {"greet": {"action": "display", "display": "hello there"},
                  "ask": {"action": "prompt", "prompt": "asked: " + frame.get("args", "")},
                  "put": {"action": "insert", "insert": "in the editor"},
                  "bad": {"error": "it went wrong"}}
        emit("command_response", id=frame["id"], **action[frame["name"]])
    if frame["type"] == "shutdown":
        break
"""


def test_commands_of_extensions_run_by_prompt(servers: PiServers, tmp_path: Path) -> None:
    folder = write_extension(tmp_path / "ext", "x", COMMANDS)
    with servers.start(HELLO, args=["--no-session", "-e", str(folder)]) as server:
        found = server.data("get_commands")["commands"]
        assert [c["name"] for c in found if c["source"] == "extension"] == [
            "greet",
            "ask",
            "put",
            "bad",
        ]
        assert server.data("prompt", message="/greet") == {"disposition": "handled"}
        shown = [f for f in server.seen if f["type"] == "extension_ui_request"]
        assert [(f["method"], f["message"], f["notifyType"]) for f in shown] == [
            ("notify", "careful", "warning"),
            ("notify", "hello there", "info"),
        ]
        frames = server.run("/ask why", id="2")
        assert ended(frames)[0]["content"][0]["text"] == "asked: why"
        assert server.data("prompt", message="/put") == {"disposition": "handled"}
        shown = server.seen[-2]
        assert (shown["method"], shown["text"]) == ("set_editor_text", "in the editor")
        assert server.ask("prompt", message="/bad")["error"] == "it went wrong"
        frames = server.run("/unknown thing", id="3")
        assert ended(frames)[0]["content"][0]["text"] == "/unknown thing"


ASKING = """
hello()
emit("register_command", name="ask", description="asks")
emit("ready")
asked = {}
for frame in frames():
    if frame["type"] == "command_invoked":
        asked[frame["id"]] = frame["id"]
        method, _, title = frame["args"].partition(" ")
        more = {"select": {"options": ["a", "b"]}, "confirm": {"message": "m"},
                "input": {"placeholder": "p"}, "editor": {"prefill": "e"}}[method]
        emit("ask", id=frame["id"], method=method, title=title, timeout=0.5, **more)
    if frame["type"] == "answer":
        said = [frame.get("value"), frame["confirmed"], frame["cancelled"]]
        emit("command_response", id=frame["id"], action="display", display=json.dumps(said))
    if frame["type"] == "shutdown":
        break
"""


@pytest.mark.parametrize(
    ("method", "fields", "answer", "said"),
    [
        ("select", {"options": ["a", "b"]}, {"value": "b"}, ["b", False, False]),
        ("confirm", {"message": "m"}, {"confirmed": True}, [None, True, False]),
        ("input", {"placeholder": "p"}, {"value": "typed"}, ["typed", False, False]),
        ("editor", {"prefill": "e"}, {"cancelled": True}, [None, False, True]),
        ("select", {"options": ["a", "b"]}, None, [None, False, True]),
    ],
)
def test_extensions_ask_with_dialogs(
    servers: PiServers,
    tmp_path: Path,
    method: str,
    fields: dict[str, object],
    answer: dict[str, object] | None,
    said: list[object],
) -> None:
    folder = write_extension(tmp_path / "ext", "x", ASKING)
    with servers.start(HELLO, args=["--no-session", "-e", str(folder)]) as server:
        server.data("get_state")
        server.send("prompt", message=f"/ask {method} The title", id="1")
        asked = server.until("extension_ui_request")[-1]
        assert asked == {**asked, "method": method, "title": "The title", **fields}
        assert asked["timeout"] == 500
        if answer is not None:
            server.send("extension_ui_response", id=asked["id"], **answer)
        frames = server.until("response")
        assert frames[-1]["data"] == {"disposition": "handled"}
        assert json.loads(frames[-2]["message"]) == said


@pytest.mark.parametrize(
    ("answer", "runs"), [({"confirmed": True}, True), ({"cancelled": True}, False)]
)
def test_an_approval_is_a_dialog(servers: PiServers, answer: dict[str, bool], runs: bool) -> None:
    args = ["--no-session", "--approve=bash"]
    with servers.start({"tools": [BASH]}, HELLO, args=args) as server:
        server.data("get_state")
        server.send("prompt", message="hi", id="1")
        asked = server.until("extension_ui_request")[-1]
        assert (asked["method"], asked["title"]) == ("confirm", "Allow bash?")
        assert asked["timeout"] > 0
        server.send("extension_ui_response", id="unknown", confirmed=True)
        server.send("extension_ui_response", id=asked["id"], **answer)
        frames = server.until("agent_settled")
    end = next(f for f in frames if f["type"] == "tool_execution_end")
    assert end["isError"] is not runs


def test_a_client_that_cannot_be_asked_has_not_allowed_it(servers: PiServers) -> None:
    args = ["--no-session", "--approve=bash"]
    with servers.start({"tools": [BASH]}, HELLO, args=args) as server:
        frames = server.run("hi", end="agent_end")
    end = next(f for f in frames if f["type"] == "tool_execution_end")
    assert "needs an approval and nobody can give it" in end["result"]
