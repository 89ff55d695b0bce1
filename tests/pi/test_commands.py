"""Every other command of pi's: state, models, sessions, the shell."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from support.extension import write_extension
from support.pi import PiProcess, PiServers, ended, kinds, outline

HELLO = {"text": ["Hel", "lo"], "usage": {"input": 10, "output": 3}, "repeat": True}
SUMMARY = {"match": "<conversation>", "text": "a summary"}
BASH = {"name": "bash", "args": {"command": "echo out"}}
WRITE = {"name": "write", "args": {"path": "a.txt", "content": "x"}}
READ = {"name": "read", "args": {"path": "b.txt"}}
KEEP: list[str] = []


def rows(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text().splitlines()]


def texts(server: PiProcess) -> list[str]:
    found = server.data("get_messages")["messages"]
    return [each["content"][0]["text"] for each in found if each["role"] == "user"]


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
        chosen = server.data("set_model", provider="anthropic", modelId="claude-sonnet-4-5")
        assert (chosen["provider"], chosen["api"]) == ("anthropic", "anthropic-messages")
        assert chosen["baseUrl"].startswith("https://")
        assert server.data("get_state")["model"] == chosen
        next_one = server.data("cycle_model")
        assert next_one["model"]["provider"] == "anthropic"
        assert next_one["isScoped"] is False
        server.data("new_session")
        assert server.data("get_state")["model"]["provider"] == "scripted"


def test_cycling_stays_within_the_models_that_were_named(servers: PiServers) -> None:
    args = ["--no-session", "--models", "anthropic/claude-sonnet-4-5:high,*haiku*"]
    with servers.start(HELLO, args=args, env={"ANTHROPIC_API_KEY": "sk-x"}) as server:
        first, second = server.data("cycle_model"), server.data("cycle_model")
        assert first["isScoped"] is True
        assert first["model"]["id"] == "claude-sonnet-4-5"
        assert second["model"]["id"].startswith("claude-") and "haiku" in second["model"]["id"]


def test_a_session_whose_model_is_gone_goes_on_with_another(servers: PiServers) -> None:
    with servers.start(HELLO, args=KEEP, env={"ANTHROPIC_API_KEY": "sk-x"}) as server:
        server.run("hi", id="1")
        server.data("set_model", provider="anthropic", modelId="claude-sonnet-4-5")
    args = ["--continue", "--pi-protocol", "b"]
    with servers.start(HELLO, args=args, env={"ANTHROPIC_API_KEY": "sk-x"}) as server:
        assert server.data("get_state")["model"]["provider"] == "anthropic"
    with servers.start(HELLO, args=args) as server:
        assert server.data("get_state")["model"]["provider"] == "scripted"


def test_flags_win_over_the_session_that_is_continued(servers: PiServers) -> None:
    with servers.start(HELLO, args=KEEP, env={"ANTHROPIC_API_KEY": "sk-x"}) as server:
        server.data("set_thinking_level", level="low")
        server.run("hi", id="1")
        server.data("set_model", provider="anthropic", modelId="claude-sonnet-4-5")
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
        response = server.ask("set_model", provider="openai", modelId="gpt-5")
        assert response["error"].startswith("model not found: openai/gpt-5")
        response = server.ask("set_model", provider="nobody", modelId="x")
        assert "nobody" in response["error"]


def test_a_model_chosen_in_a_run_is_used_from_the_next_one(servers: PiServers) -> None:
    slow = {"text": ["a"] * 200, "delay_ms": 100}
    with servers.start(slow, env={"ANTHROPIC_API_KEY": "sk-x"}) as server:
        server.send("prompt", message="hi", id="1")
        server.until("message_update")
        server.data("set_model", provider="anthropic", modelId="claude-sonnet-4-5")
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


# --- sessions --------------------------------------------------------------------------------


def test_a_session_is_written_where_pi_looks_for_it(servers: PiServers) -> None:
    with servers.start({"tools": [BASH, BASH]}, HELLO, args=KEEP) as server:
        path = server.data("get_state")["sessionFile"]
        assert not Path(path).exists()
        server.run("hi", id="1")
    assert servers.files() == [Path(path)]
    assert Path(path).parent.name == "--" + str(servers.cwd).strip("/").replace("/", "-") + "--"
    found = rows(Path(path))
    assert [row["type"] for row in found] == [
        "session",
        "model_change",
        "thinking_level_change",
        "message",
        "message",
        "message",
        "message",
        "message",
    ]
    assert found[0]["cwd"] == str(servers.cwd)
    assert [row["parentId"] for row in found[1:]] == [None, *[row["id"] for row in found[1:-1]]]
    assert oct(Path(path).stat().st_mode & 0o777) == "0o600"


def test_no_session_leaves_no_file(servers: PiServers) -> None:
    with servers.start(HELLO) as server:
        server.run("hi", id="1")
        server.data("new_session")
        server.run("hi", id="2")
        assert "sessionFile" not in server.data("get_state")
    assert servers.files() == []


def test_a_session_in_which_nothing_was_said_leaves_no_file(servers: PiServers) -> None:
    with servers.start(HELLO, args=KEEP) as server:
        server.data("set_thinking_level", level="high")
        server.rest()
        server.wait()
    assert servers.files() == []


def test_continue_goes_on_with_the_latest_session(servers: PiServers) -> None:
    with servers.start(HELLO, args=KEEP) as server:
        server.run("remember", id="1")
        server.data("set_thinking_level", level="low")
        server.data("set_session_name", name="  mine ")
        id = server.data("get_state")["sessionId"]
    with servers.start(HELLO, args=["--continue"]) as server:
        state = server.data("get_state")
        assert (state["sessionId"], state["sessionName"]) == (id, "mine")
        assert state["thinkingLevel"] == "low"
        assert texts(server) == ["remember"]
    with servers.start(HELLO, args=["--session", id[:13]]) as server:
        assert texts(server) == ["remember"]
    with servers.start(HELLO, args=["--session", str(servers.files()[0])]) as server:
        assert server.data("get_state")["messageCount"] == 2


def test_a_torn_last_line_loses_nothing_before_it(servers: PiServers) -> None:
    with servers.start(HELLO, args=KEEP) as server:
        server.run("one", id="1")
        server.run("two", id="2")
    path = servers.files()[0]
    path.write_bytes(path.read_bytes()[:-20])
    with servers.start(HELLO, args=["--continue"]) as server:
        assert texts(server) == ["one", "two"]
        server.run("three", id="1")
    assert all(row["type"] for row in rows(path))
    assert rows(path)[-1]["message"]["role"] == "assistant"


def test_a_session_of_pi_itself_can_be_opened(servers: PiServers) -> None:
    lines = [
        {"type": "session", "version": 3, "id": "s", "timestamp": "2026-01-01T00:00:00.000Z"},
        {
            "type": "message",
            "id": "aaaaaaaa",
            "parentId": None,
            "timestamp": "2026-01-01T00:00:01.000Z",
            "message": {"role": "user", "content": "from pi", "timestamp": 1767225601000},
        },
    ]
    servers.agent.mkdir(parents=True)
    path = servers.agent / "old.jsonl"
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    with servers.start(HELLO, args=KEEP) as server:
        server.data("switch_session", sessionPath=str(path))
        assert texts(server) == ["from pi"]
        server.run("go on", id="1")
        server.data("switch_session", sessionPath=str(path))  # the one that is open
        assert texts(server) == ["from pi", "go on"]
    assert rows(path)[2]["parentId"] == "aaaaaaaa"


def test_entries_are_a_durable_cursor(servers: PiServers) -> None:
    with servers.start({"tools": [BASH, BASH]}, HELLO, args=KEEP) as server:
        server.run("one", id="1")
        first = server.data("get_entries")
        server.run("two", id="2")
        more = server.data("get_entries", since=first["leafId"])
        assert [each["message"]["role"] for each in more["entries"]] == ["user", "assistant"]
        assert server.ask("get_entries", since="nothere0")["success"] is False
        everything = server.data("get_entries")["entries"]
    assert [row["id"] for row in rows(servers.files()[0])[1:]] == [
        each["id"] for each in everything
    ]
    with servers.start(HELLO, args=["--continue"]) as server:
        again = server.data("get_entries", since=first["leafId"])
        assert again == more


def test_the_tree_shows_every_branch(servers: PiServers) -> None:
    with servers.start(HELLO) as server:
        server.run("one", id="1")
        found = server.data("get_tree")
    depth, node = 1, found["tree"][0]
    while node["children"]:
        assert len(node["children"]) == 1
        node = node["children"][0]
        depth += 1
    assert depth == 4
    assert node["entry"]["id"] == found["leafId"]


def test_a_fork_goes_on_before_the_message(servers: PiServers) -> None:
    with servers.start(HELLO, args=KEEP) as server:
        server.run("one", id="1")
        server.run("two", id="2")
        before = server.data("get_state")["sessionFile"]
        messages = server.data("get_fork_messages")["messages"]
        assert [each["text"] for each in messages] == ["one", "two"]
        answer = server.data("fork", entryId=messages[1]["entryId"])
        assert answer == {"text": "two", "cancelled": False}
        assert texts(server) == ["one"]
        server.run("other", id="3")
        after = server.data("get_state")["sessionFile"]
        assert server.ask("fork", entryId="nothere0")["success"] is False
    assert after != before
    head = rows(Path(after))[0]
    assert head["parentSession"] == before
    assert [row["message"]["role"] for row in rows(Path(before)) if "message" in row].count(
        "user"
    ) == 2


def test_sessions_in_memory_can_be_forked_and_switched_too(servers: PiServers) -> None:
    with servers.start(HELLO, args=KEEP) as server:
        server.run("kept", id="1")
        path = server.data("get_state")["sessionFile"]
    before = Path(path).read_bytes()
    with servers.start(HELLO) as server:
        server.run("one", id="1")
        server.run("two", id="2")
        id = server.data("get_fork_messages")["messages"][1]["entryId"]
        server.data("fork", entryId=id)
        assert texts(server) == ["one"]
        server.data("clone")
        server.data("switch_session", sessionPath=path)
        server.run("not kept", id="3")
        assert texts(server) == ["kept", "not kept"]
    assert Path(path).read_bytes() == before


def test_a_session_is_found_or_made_by_its_name(servers: PiServers) -> None:
    path = servers.cwd / "own.jsonl"
    with servers.start(HELLO, args=["--session", str(path)]) as server:
        assert server.data("get_state")["sessionFile"] == str(path)
        server.run("hi", id="1")
    assert rows(path)[0]["type"] == "session"
    with servers.start(HELLO, args=["--session", "no-such-id"]) as server:
        assert server.wait() == 1
    with servers.start(HELLO, args=["--continue"]) as server:
        assert server.data("get_state")["messageCount"] == 0


def test_a_session_can_be_forked_from_the_command_line(servers: PiServers) -> None:
    with servers.start(HELLO, args=["--session-id", "first"]) as server:
        server.run("one", id="1")
    with servers.start(HELLO, args=["--fork", "fir", "--session-id", "second"]) as server:
        assert texts(server) == ["one"]
        server.run("two", id="1")
    with servers.start(HELLO, args=["--session-id", "first"]) as server:
        assert texts(server) == ["one"]
    assert len(servers.files()) == 2
    with servers.start(HELLO, args=["--fork", "nobody"]) as server:
        assert server.wait() == 1


def test_a_page_is_made_from_the_command_line(servers: PiServers) -> None:
    with servers.start(HELLO, args=["--session-id", "first"]) as server:
        server.run("say <it>", id="1")
    done = call(servers, "--export", str(servers.files()[0]), "page.html")
    assert (done.returncode, done.stdout) == (0, b"page.html\n")
    assert "say &lt;it&gt;" in (servers.cwd / "page.html").read_text()
    done = call(servers, "--export", str(servers.files()[0]))
    assert (servers.cwd / done.stdout.decode().strip()).exists()
    assert call(servers, "--export", "nothing.jsonl").returncode == 1


def test_a_fork_from_the_first_message_starts_empty(servers: PiServers) -> None:
    with servers.start(HELLO, args=KEEP) as server:
        server.run("one", id="1")
        id = server.data("get_fork_messages")["messages"][0]["entryId"]
        assert server.data("fork", entryId=id)["text"] == "one"
        assert server.data("get_state")["messageCount"] == 0


def test_a_clone_is_a_session_of_its_own(servers: PiServers) -> None:
    with servers.start(HELLO, args=KEEP) as server:
        assert "nothing" in server.ask("clone")["error"]
        server.run("one", id="1")
        server.data("clone")
        server.run("two", id="2")
        assert texts(server) == ["one", "two"]
    assert len(servers.files()) == 2


def test_a_new_session_ends_what_runs(servers: PiServers) -> None:
    with servers.start({"text": ["a"] * 100, "delay_ms": 200}, HELLO, args=KEEP) as server:
        server.send("prompt", message="hi", id="1")
        server.until("message_update")
        server.data("new_session", parentSession="/somewhere.jsonl")
        assert {"agent_end", "agent_settled"} <= set(kinds(server.seen))
        server.run("hi", id="2")
        path = server.data("get_state")["sessionFile"]
    assert rows(Path(path))[0]["parentSession"] == "/somewhere.jsonl"


def test_a_page_is_made_of_a_session(servers: PiServers) -> None:
    with servers.start({"tools": [BASH]}, HELLO) as server:
        assert "nothing" in server.ask("export_html")["error"]
        server.run("make <b>it</b>", id="1")
        path = server.data("export_html")["path"]
        assert "make &lt;b&gt;it&lt;/b&gt;" in Path(path).read_text()
        named = server.data("export_html", outputPath="out/page.html")["path"]
        assert named == str(servers.cwd / "out" / "page.html")
        assert server.ask("export_html", outputPath="/proc/no/page.html")["success"] is False


def test_a_compaction_tells_the_files_that_were_touched(servers: PiServers) -> None:
    with servers.start(SUMMARY, {"tools": [WRITE, READ]}, HELLO, args=KEEP) as server:
        server.run("hi", id="1")
        result = server.data("compact")
        assert result["details"] == {"readFiles": ["b.txt"], "modifiedFiles": ["a.txt"]}
        found = server.data("get_messages")["messages"]
        assert [each["role"] for each in found] == ["compactionSummary"]
        assert found[0]["summary"] == "a summary"
    row = next(row for row in rows(servers.files()[0]) if row["type"] == "compaction")
    assert row["id"] == row["firstKeptEntryId"] == result["firstKeptEntryId"]
    with servers.start(HELLO, args=["--continue"]) as server:
        assert server.data("get_messages")["messages"][0]["role"] == "compactionSummary"


def test_the_name_of_a_session(servers: PiServers) -> None:
    with servers.start(HELLO, args=["--no-session", "--name", "given"]) as server:
        assert server.data("get_state")["sessionName"] == "given"
        server.data("set_session_name", name="other")
        assert {"type": "session_info_changed", "name": "other"} in server.seen
        assert server.ask("set_session_name", name=" ")["success"] is False


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
    assert "this client cannot be asked" in end["result"]


# --- the command line ------------------------------------------------------------------------


def command(servers: PiServers, *args: str, program: str = "pi_main") -> list[str]:
    start = f"import sys; from zot.__main__ import {program}; sys.exit({program}())"
    return [sys.executable, "-c", start, *args]


def call(servers: PiServers, *args: str, text: bytes = b"") -> subprocess.CompletedProcess[bytes]:
    return subprocess.run(
        command(servers, *args),
        input=text,
        capture_output=True,
        cwd=servers.cwd,
        env=servers.environment(),
        timeout=60,
    )


def test_json_mode_writes_a_header_and_the_events(servers: PiServers) -> None:
    args = servers.arguments([HELLO], "--mode", "json", "hello", "there")
    done = call(servers, *args)
    lines = [json.loads(line) for line in done.stdout.splitlines()]
    assert done.returncode == 0
    assert (lines[0]["type"], lines[0]["version"]) == ("session", 3)
    asst = "asst text_start text_delta text_end /asst"
    assert outline(lines[1:]) == f"run turn user /user {asst} /turn /run settled"
    assert ended(lines)[0]["content"][0]["text"] == "hello there"
    assert len(servers.files()) == 1


def test_json_mode_says_by_its_code_that_it_failed(servers: PiServers) -> None:
    turn = {"error": {"status": 401, "message": "bad key"}}
    done = call(servers, *servers.arguments([turn], "--mode=json", "--no-session", "hi"))
    assert done.returncode == 1
    assert b"401" in done.stderr


def test_json_mode_compacts_and_stops_by_signal(servers: PiServers) -> None:
    import signal

    full = {"tools": [BASH], "usage": {"input": 190_000}}
    slow = {"text": ["a"] * 100, "delay_ms": 100}
    args = servers.arguments([SUMMARY, full, slow], "--mode", "json", "--no-session", "hi")
    process = subprocess.Popen(
        command(servers, *args),
        cwd=servers.cwd,
        env=servers.environment(),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    assert process.stdout is not None
    lines = []
    for line in process.stdout:
        lines.append(json.loads(line))
        if lines[-1]["type"] == "message_update" and len(lines) > 20:
            process.send_signal(signal.SIGTERM)
    assert process.wait(30) == 143
    process.stdout.close()
    assert process.stderr is not None
    process.stderr.close()
    types = kinds(lines)
    assert types.index("compaction_start") < types.index("compaction_end")
    assert lines[-1] == {"type": "agent_settled", "aborted": True}


def test_print_mode_writes_the_answer(servers: PiServers) -> None:
    (servers.cwd / "note.txt").write_text("the note")
    turn = {"match": "the note", "text": "read it"}
    args = servers.arguments([turn], "-p", "--no-session", "@note.txt", "summarise")
    assert call(servers, *args).stdout == b"read it\n"


def test_flags_of_pi_that_zot_has_not_are_ignored(servers: PiServers) -> None:
    args = ["-p", "--no-session", "--theme", "dark", "--no-themes", "--verbose", "-nt"]
    args += ["--approve", "--thinking", "bogus", "--tools", "read,find,ls,mcp__x", "hi"]
    done = call(servers, *servers.arguments([HELLO], *args))
    assert (done.returncode, done.stdout) == (0, b"Hello\n")


@pytest.mark.parametrize(
    "args",
    [
        ("--mode", "rpc", "@file.txt"),
        ("--mode", "fax"),
        ("--mode", "rpc", "--pi-protocol", "z"),
        ("--mode", "json", "@missing.txt"),
        ("--mode",),
    ],
)
def test_what_cannot_be_meant_is_refused_on_stderr(
    servers: PiServers, args: tuple[str, ...]
) -> None:
    done = call(servers, *servers.arguments([HELLO], "--no-session"), *args)
    assert done.returncode != 0
    assert done.stdout == b""
    assert b"Traceback" not in done.stderr
    assert done.stderr.startswith(b"zot: ")


def test_no_key_is_said_on_stderr(servers: PiServers) -> None:
    done = call(servers, "--mode", "rpc", "--provider", "anthropic", "--model", "claude-sonnet-4-5")
    assert (done.returncode, done.stdout) == (1, b"")
    assert b"ANTHROPIC_API_KEY" in done.stderr


@pytest.mark.parametrize(
    ("args", "model", "level"),
    [
        (["--model", "anthropic/claude-sonnet-4-5:high"], "claude-sonnet-4-5", "high"),
        (["--provider", "anthropic", "--model", "haiku-4"], "claude-haiku-4-5", "off"),
        (["--model", "sonnet-4-5", "--thinking", "low"], "claude-sonnet-4-5", "low"),
    ],
)
def test_a_model_may_be_named_in_pi_words(
    servers: PiServers, args: list[str], model: str, level: str
) -> None:
    command = ["--mode", "rpc", "--no-session", "--api-key", "sk-x", *args]
    done = call(servers, *command, text=b'{"type":"get_state","id":"1"}\n')
    state = json.loads(done.stdout)["data"]
    assert (state["model"]["id"], state["thinkingLevel"]) == (model, level)


def test_no_model_is_near_enough(servers: PiServers) -> None:
    command = ["--mode", "rpc", "--provider", "anthropic", "--api-key", "x", "--model", "gemini-x"]
    done = call(servers, *command)
    assert (done.returncode, done.stdout) == (1, b"")
    assert b"gemini-x" in done.stderr


def test_a_system_prompt_may_be_a_file(servers: PiServers) -> None:
    (servers.cwd / "sys.md").write_text("Speak like a pirate.")
    args = ["--no-session", "--pi-protocol", "c", "--system-prompt", "sys.md"]
    with servers.start(HELLO, args=[*args, "--append-system-prompt", "And be brief."]) as server:
        first = server.data("get_messages")["messages"][0]
    assert first["role"] == "system"
    text = first["sections"]["prompt"]
    assert text.startswith("Speak like a pirate.\n\nAnd be brief.")


def test_a_session_directory_can_be_named(servers: PiServers, tmp_path: Path) -> None:
    args = ["--session-dir", str(tmp_path / "there"), "--session-id", "my-id"]
    with servers.start(HELLO, args=args) as server:
        server.run("hi", id="1")
        assert server.data("get_state")["sessionId"] == "my-id"
    assert len(list((tmp_path / "there").glob("*_my-id.jsonl"))) == 1


def test_pi_home_is_not_touched_without_its_variable(servers: PiServers) -> None:
    with servers.start(HELLO, args=KEEP, env={"PI_CODING_AGENT_DIR": ""}) as server:
        server.run("hi", id="1")
        path = server.data("get_state")["sessionFile"]
    assert path.startswith(str(servers.home / "pi-agent" / "sessions"))
    assert not (servers.home.parent / ".pi").exists()
