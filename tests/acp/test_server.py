"""`zot acp` as a client sees it: real processes, every frame held against the published schema."""

from __future__ import annotations

import base64
import json
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from support.acp import HELLO, Acp, outline, selected, text_block
from support.extension import write_extension
from support.mcp import entry
from support.patience import PATIENCE
from support.rpc import write_script

from zot.jsonrpc import INTERNAL_ERROR, INVALID_PARAMS, INVALID_REQUEST, METHOD_NOT_FOUND
from zot.testing.fakeserver import FakeServer

Start = Callable[..., Acp]
AUTH_REQUIRED, NOT_FOUND, REQUEST_CANCELLED = -32000, -32002, -32800
SLOW = {"match": "slow", "text": ["a"] * 10_000, "delay_ms": 100}
SLEEP = {"match": "sleep", "tools": [{"name": "bash", "args": {"command": "sleep 30"}}]}
PNG = b"\x89PNG\r\n\x1a\n" + b"0" * 16


def tools(match: str, *calls: tuple[str, dict[str, Any]]) -> dict[str, Any]:
    return {"match": match, "tools": [{"name": name, "args": args} for name, args in calls]}


# --- initialize ------------------------------------------------------------------------------


def test_the_agent_says_what_it_can_do(acp: Start) -> None:
    with acp() as client:
        hello = client.hello
    assert hello["protocolVersion"] == 1
    assert hello["agentInfo"]["name"] == "zot"
    assert hello["agentCapabilities"]["loadSession"] is True
    assert hello["authMethods"][0]["type"] == "terminal"
    assert hello["authMethods"][0]["args"] == ["--login"]


def test_another_version_is_answered_with_ours(acp: Start) -> None:
    with acp(initialize=False) as client:
        assert client.ok("initialize", protocolVersion=2)["protocolVersion"] == 1


def test_terminal_login_is_offered_only_to_those_who_can(acp: Start) -> None:
    with acp(abilities={}) as client:
        assert "type" not in client.hello["authMethods"][0]
    with acp(abilities={"_meta": {"terminal-auth": True}}) as client:
        method = client.hello["authMethods"][0]
    assert method["_meta"]["terminal-auth"]["args"][-2:] == ["acp", "--login"]


def test_wrong_optional_fields_count_as_absent(acp: Start) -> None:
    abilities = {"session": {"notices": 5, "compaction": {}}, "auth": "yes", "fs": 7}
    with acp(abilities=abilities) as client:
        servers = [{"name": "x"}, 5, {"type": "http"}]
        session = client.new(mcpServers=servers, additionalDirectories="none")
        assert client.prompt(session) == {"stopReason": "end_turn"}


# --- prompts ---------------------------------------------------------------------------------


def test_a_prompt_with_thoughts_tools_and_diffs(acp: Start) -> None:
    turns = [
        {
            "match": "go",
            "thinking": "hm",
            "text": ["I will ", "look"],
            "usage": {"input": 20, "output": 4},
            "tools": [
                {"name": "write", "args": {"path": "a.txt", "content": "one\ntwo\n"}},
                {
                    "name": "edit",
                    "args": {"path": "a.txt", "edits": [{"oldText": "two", "newText": "2"}]},
                },
                {"name": "read", "args": {"path": "a.txt", "offset": 2}},
                {"name": "nothing", "args": {}},
            ],
        },
        HELLO,
    ]
    with acp(*turns) as client:
        session = client.new()
        client.wait_for("available_commands_update")
        begun = len(client.updates())
        assert client.prompt(session, "go") == {"stopReason": "end_turn"}
        updates = client.updates()[begun:]
        asked = client.requests("session/request_permission")
    assert outline(updates) == (
        "session_info agent_thought_chunk agent_message_chunk "
        "tool_call[call_1 pending] tool_call[call_2 pending] "
        "tool_call[call_3 pending] tool_call[call_4 pending] usage "
        "tool_call[call_1] tool_call[call_2] tool_call[call_3] tool_call[call_4] "
        "tool_call[call_1 in_progress] tool_call[call_1 completed diff] "
        "tool_call[call_2 in_progress] tool_call[call_2 completed diff] "
        "tool_call[call_3 in_progress] tool_call[call_3 completed content] "
        "tool_call[call_4 failed content] "
        "agent_message_chunk usage session_info"
    )
    path = str(client.cwd / "a.txt")
    edit = next(u for u in updates if u.get("toolCallId") == "call_2" and "content" in u)
    before_after = {"oldText": "one\ntwo\n", "newText": "one\n2\n"}
    assert edit["content"] == [{"type": "diff", "path": path, **before_after}]
    assert edit["locations"] == [{"path": path, "line": 2}]
    read = next(u for u in updates if u.get("toolCallId") == "call_3" and "rawInput" in u)
    assert (read["title"], read["locations"]) == ("Read a.txt", [{"path": path, "line": 2}])
    # A permission says what it is for: the new file, and then its change.
    calls = [frame["params"]["toolCall"] for frame in asked]
    assert [call["title"] for call in calls] == ["Write a.txt", "Edit a.txt"]
    assert [call["kind"] for call in calls] == ["edit", "edit"]
    assert calls[0]["content"][0]["oldText"] is None
    assert calls[1]["content"][0]["newText"] == "one\n2\n"
    kinds = [option["kind"] for option in asked[0]["params"]["options"]]
    assert kinds == ["allow_once", "allow_always", "reject_once", "reject_always"]  # one a kind


def test_no_lasting_rule_for_what_reads_like_a_pattern(acp: Start) -> None:
    calls = [("bash", {"command": "rm *"}), ("bash", {"command": "rm -r build"})]
    with acp(tools("go", *calls), HELLO, decide="reject_once") as client:
        client.prompt(client.new(), "go")
        first, second = client.requests("session/request_permission")
    names = [option["name"] for option in first["params"]["options"]]
    assert names == ["Allow", "Deny"]
    assert "Always allow 'rm -r build' in this project" in str(second["params"]["options"])


def test_messages_have_ids_of_their_own(acp: Start) -> None:
    look = {"match": "go", "text": "look", "thinking": "hm", **tools("go", ("read", {"path": "x"}))}
    with acp(look, HELLO) as client:
        client.prompt(client.new(), "go")
        said = [u["messageId"] for u in client.updates(None, "agent_message_chunk")]
        thought = [u["messageId"] for u in client.updates(None, "agent_thought_chunk")]
    assert said[0] != said[1] == said[2]
    assert thought[0] not in said


def test_a_denied_tool_does_not_run(acp: Start) -> None:
    with acp(tools("go", ("bash", {"command": "touch made"})), HELLO, decide="reject_once") as c:
        assert c.prompt(c.new(), "go") == {"stopReason": "end_turn"}
        assert c.wait_for("tool_call_update", status="failed")["toolCallId"] == "call_1"
    assert not (c.cwd / "made").exists()


def test_whatever_is_no_yes_is_a_no(acp: Start) -> None:
    answers = [{"outcome": {"outcome": "cancelled"}}, {}, {"outcome": 5}, selected("else")]
    turns = [tools("go", ("bash", {"command": "touch made"}))] * len(answers)
    left = list(answers)
    with acp(*turns, HELLO, decide=lambda frame: left.pop()) as client:
        session = client.new()
        for _ in answers:
            client.prompt(session, "go")
    assert left == []
    assert not (client.cwd / "made").exists()


def test_an_error_to_a_permission_request_is_a_no(acp: Start) -> None:
    with acp(tools("go", ("bash", {"command": "touch made"})), HELLO, decide=None) as client:
        id = client.start_prompt(client.new(), "go")
        asked = client.wait(lambda: client.requests("session/request_permission"))[0]
        client.send(id=asked["id"], error={"code": -32601, "message": "what?"})
        assert client.answer(id)["result"] == {"stopReason": "end_turn"}
    assert not (client.cwd / "made").exists()


def test_always_allowed_is_asked_once(acp: Start) -> None:
    turn = tools("go", ("bash", {"command": "touch one"}), ("bash", {"command": "touch two"}))
    with acp(turn, HELLO, decide="allow_always") as client:
        client.prompt(client.new(), "go")
        assert len(client.requests("session/request_permission")) == 1
    with acp(turn, HELLO, decide="reject_once") as client:
        client.prompt(client.new(), "go")
        assert client.requests("session/request_permission") == []


def test_always_denied_is_asked_once_and_wins(acp: Start) -> None:
    turn = tools("go", ("bash", {"command": "touch one"}), ("bash", {"command": "touch two"}))
    with acp(turn, HELLO, decide="reject_always") as client:
        client.prompt(client.new(), "go")
        assert len(client.requests("session/request_permission")) == 1
    with acp(turn, HELLO, args=["--yolo"]) as client:
        client.prompt(client.new(), "go")
        assert client.requests("session/request_permission") == []
    assert not list(client.cwd.glob("*o*"))


def test_commands_that_only_read_are_not_asked_about(acp: Start) -> None:
    turn = tools("go", ("bash", {"command": "ls -la | head -3 && cat a.txt 2>/dev/null"}))
    with acp(turn, HELLO, decide="reject_once") as client:
        client.prompt(client.new(), "go")
        assert client.requests("session/request_permission") == []


def test_the_output_of_a_running_tool_is_shown_and_replaced(acp: Start) -> None:
    script = "echo first; sleep 0.3; for i in $(seq 2000); do echo line $i; done; sleep 0.3"
    with acp(tools("go", ("bash", {"command": script})), HELLO) as client:
        begun = time.monotonic()
        client.prompt(client.new(), "go")
        took = time.monotonic() - begun
        shown = [u for u in client.updates(None, "tool_call_update") if "content" in u]
    running = [u["content"][0]["content"]["text"] for u in shown[:-1]]
    assert running[0] == "```\nfirst\n```"
    assert "characters]" in running[-1]
    assert "line 2000" in running[-1]
    assert max(map(len, running)) < 17_000
    assert len(running) <= took * 10 + 2


def test_images_links_and_resources_of_a_prompt_reach_the_model(acp: Start, tmp_path: Path) -> None:
    data = base64.b64encode(PNG).decode()
    blocks = [
        text_block("see "),
        {"type": "resource_link", "uri": "file:///p/a%20b.py", "name": "a b.py"},
        {"type": "resource_link", "uri": "zed:///thread/1", "name": "thread"},
        {"type": "image", "data": data, "mimeType": "image/png"},
        {"type": "resource", "resource": {"uri": "file:///x#L1:2", "text": "inside"}},
        {
            "type": "resource",
            "resource": {"uri": "file:///y", "blob": data, "mimeType": "image/png"},
        },
        {"type": "resource", "resource": {"uri": "file:///z", "blob": data}},
    ]
    with acp() as client:
        session = client.new()
        result = client.ok("session/prompt", sessionId=session, prompt=blocks)
        assert result == {"stopReason": "end_turn"}
        client.ok("session/load", sessionId=session, cwd=str(client.cwd), mcpServers=[])
        shown = [u["content"] for u in client.updates(session, "user_message_chunk")]
    assert shown[0]["text"] == "see /p/a b.py[thread](zed:///thread/1)/x#L1:2/y/z"
    assert [part["type"] for part in shown].count("image") == 2
    assert any("inside" in part.get("text", "") for part in shown)


def test_a_block_that_cannot_be_used_is_refused_and_the_session_goes_on(acp: Start) -> None:
    blocks = [
        {"type": "audio", "data": "", "mimeType": "audio/wav"},
        {"type": "image", "data": "%", "mimeType": "image/png"},
        {"type": "image", "data": "AAAA", "mimeType": "image/png"},
        {"type": "new"},
        5,
    ]
    with acp() as client:
        session = client.new()
        for block in blocks:
            error = client.fails("session/prompt", sessionId=session, prompt=[block])
            assert error["code"] == INVALID_PARAMS
            assert "prompt[0]" in error["message"]
        assert client.prompt(session) == {"stopReason": "end_turn"}


def test_an_empty_prompt_is_refused(acp: Start) -> None:
    with acp() as client:
        error = client.fails("session/prompt", sessionId=client.new(), prompt=[])
    assert error["code"] == INVALID_PARAMS


# --- stop reasons ----------------------------------------------------------------------------


def test_why_a_turn_stopped(acp: Start) -> None:
    cut = {"match": "long", "text": "cut", "stop": "length"}
    loop = {**tools("loop", ("read", {"path": "x"})), "repeat": True}
    with acp(cut, loop, HELLO, args=["--max-steps", "3"]) as client:
        session = client.new()
        assert client.prompt(session, "long") == {"stopReason": "max_tokens"}
        assert client.prompt(session, "loop") == {"stopReason": "max_turn_requests"}
        assert client.prompt(session) == {"stopReason": "end_turn"}


def test_the_limit_of_tokens_is_a_reason_and_that_of_cost_an_error(acp: Start) -> None:
    with acp(args=["--max-tokens", "1"]) as client:
        assert client.prompt(client.new(), "many words") == {"stopReason": "max_tokens"}
    with acp(args=["--max-seconds", "0.2"], turns=[SLOW]) as client:
        error = client.fails("session/prompt", sessionId=client.new(), prompt=[text_block("slow")])
    assert error["data"] == {"code": "limit"}


def test_an_error_is_the_answer_and_the_session_goes_on(acp: Start) -> None:
    broken = {"match": "break", "error": {"status": 400, "message": "no such thing"}}
    locked = {"match": "key", "error": {"status": 401, "message": "bad key"}}
    with acp(broken, locked, HELLO) as client:
        session = client.new()
        blocks = [text_block("break")]
        error = client.fails("session/prompt", sessionId=session, prompt=blocks)
        assert error["code"] == INTERNAL_ERROR
        assert "no such thing" in error["message"]
        error = client.fails("session/prompt", sessionId=session, prompt=[text_block("key")])
        assert error["code"] == AUTH_REQUIRED
        assert client.prompt(session) == {"stopReason": "end_turn"}


def test_a_retry_is_a_notice(acp: Start) -> None:
    busy = {"error": {"status": 529, "message": "busy", "retry_after": 0.01}}
    with acp(busy, HELLO) as client:
        client.prompt(client.new())
        notice = client.wait_for("notice")
    assert (notice["severity"], "busy" in notice["description"]) == ("warning", True)


# --- cancel ----------------------------------------------------------------------------------


def test_cancel_in_the_same_write_as_the_prompt(acp: Start) -> None:
    with acp({**SLOW, "repeat": True}, HELLO) as client:
        session = client.new()
        for _ in range(20):
            with client.in_one_write():
                id = client.start_prompt(session, "slow")
                client.notify("session/cancel", sessionId=session)
            assert client.answer(id)["result"] == {"stopReason": "cancelled"}
        assert client.prompt(session) == {"stopReason": "end_turn"}


def test_cancel_before_the_first_byte_of_a_server_that_says_nothing(acp: Start) -> None:
    with FakeServer() as server:
        args = ["--provider", "anthropic", "--api-key", "k", "--base-url", server.url]
        with acp(turns=[], args=args) as client:
            session = client.new()
            id = client.start_prompt(session, "hang")
            assert server.wait_for(1)
            client.notify("session/cancel", sessionId=session)
            assert client.answer(id)["result"] == {"stopReason": "cancelled"}


def test_cancel_in_the_stream(acp: Start) -> None:
    with acp(SLOW, HELLO) as client:
        session = client.new()
        id = client.start_prompt(session, "slow")
        client.wait_for("agent_message_chunk")
        client.notify("session/cancel", sessionId=session)
        assert client.answer(id)["result"] == {"stopReason": "cancelled"}
        assert client.prompt(session) == {"stopReason": "end_turn"}


def test_cancel_in_a_tool_ends_its_call_too(acp: Start) -> None:
    with acp(SLEEP, HELLO) as client:
        session = client.new()
        id = client.start_prompt(session, "sleep")
        client.wait_for("tool_call_update", status="in_progress")
        client.notify("session/cancel", sessionId=session)
        assert client.answer(id)["result"] == {"stopReason": "cancelled"}
        assert client.wait_for("tool_call_update", status="failed")["toolCallId"] == "call_1"


def test_cancel_while_permission_is_asked_withdraws_the_question(acp: Start) -> None:
    with acp(SLEEP, HELLO, decide=None) as client:
        session = client.new()
        id = client.start_prompt(session, "sleep")
        asked = client.wait(lambda: client.requests("session/request_permission"))[0]
        client.notify("session/cancel", sessionId=session)
        assert client.answer(id)["result"] == {"stopReason": "cancelled"}
        withdrawn = [f for f in client.frames if f.get("method") == "$/cancel_request"]
        assert [frame["params"] for frame in withdrawn] == [{"requestId": asked["id"]}]
        client.send(id=asked["id"], result=selected("allow_once"))  # too late, and harmless
        assert client.prompt(session) == {"stopReason": "end_turn"}


def test_one_prompt_of_two_is_cancelled_by_its_request(acp: Start) -> None:
    with acp(SLOW, HELLO) as client:
        session = client.new()
        first, second = client.start_prompt(session, "slow"), client.start_prompt(session)
        client.wait_for("agent_message_chunk")
        client.notify("$/cancel_request", requestId=first)
        assert client.answer(first)["result"] == {"stopReason": "cancelled"}
        assert client.answer(second)["result"] == {"stopReason": "end_turn"}


def test_a_prompt_that_comes_while_another_is_cancelled_is_answered(acp: Start) -> None:
    with acp(SLOW, HELLO) as client:
        session = client.new()
        first = client.start_prompt(session, "slow")
        client.notify("session/cancel", sessionId=session)
        second = client.start_prompt(session)
        assert client.answer(first)["result"] == {"stopReason": "cancelled"}
        assert client.answer(second)["result"] == {"stopReason": "end_turn"}
    assert client.texts() == "Hello"


def test_nothing_happens_for_a_cancel_of_nothing(acp: Start) -> None:
    with acp() as client:
        client.notify("session/cancel", sessionId="none")
        client.notify("$/cancel_request", requestId=77)
        client.notify("$/cancel_request")
        client.notify("something/else")
        assert client.prompt(client.new()) == {"stopReason": "end_turn"}


# --- sessions --------------------------------------------------------------------------------


def test_sessions_of_one_connection_have_directories_of_their_own(acp: Start) -> None:
    turn = {**tools("where", ("bash", {"command": "pwd"})), "repeat": False}
    with acp(turn, HELLO) as client:
        folders = [client.folder / name for name in ("one", "two")]
        for folder in folders:
            folder.mkdir()
        sessions = [client.new(folder) for folder in folders]
        prompts = [client.start_prompt(session, "where") for session in sessions]
        for prompt in prompts:
            assert client.answer(prompt)["result"] == {"stopReason": "end_turn"}
        for session, folder in zip(sessions, folders, strict=True):
            done = [u for u in client.updates(session) if u.get("status") == "completed"]
            assert str(folder) in done[0]["content"][0]["content"]["text"]


def test_a_session_is_on_disk_at_once_and_another_process_resumes_it(acp: Start) -> None:
    with acp() as client:
        session = client.new()
    with acp() as client:
        client.ok("session/resume", sessionId=session, cwd=str(client.cwd))
        assert client.updates(None, "user_message_chunk") == []
        assert client.prompt(session, "remember me") == {"stopReason": "end_turn"}
    with acp() as client:
        opened = client.ok("session/load", sessionId=session, cwd=str(client.cwd), mcpServers=[])
        assert "sessionId" not in opened
        said = client.updates(session, "user_message_chunk")
        assert [update["content"]["text"] for update in said] == ["remember me"]
        assert client.texts(session) == "Hello"


def test_a_killed_process_leaves_its_session_to_another(acp: Start) -> None:
    client = acp()
    session = client.new()
    client.prompt(session, "before")
    client.kill()
    with acp() as client:
        client.ok("session/load", sessionId=session, cwd=str(client.cwd), mcpServers=[])
        assert client.texts(session) == "Hello"


def test_calls_are_shown_again_and_their_ids_not_used_twice(acp: Start) -> None:
    turns = [tools("go", ("read", {"path": "x"}), ("bash", {"command": "echo out"})), HELLO]
    with acp(*turns) as client:
        session = client.new()
        client.prompt(session, "go")
    with acp(*turns) as client:
        client.ok("session/load", sessionId=session, cwd=str(client.cwd), mcpServers=[])
        shown = client.updates(session, "tool_call")
        assert [(call["toolCallId"], call["status"]) for call in shown] == [
            ("call_1", "failed"),
            ("call_2", "completed"),
        ]
        client.prompt(session, "go")
        ids = [call["toolCallId"] for call in client.updates(session, "tool_call")]
    assert ids == ["call_1", "call_2", "call_1#2", "call_2#2"]


def test_sessions_are_listed_in_pages(acp: Start) -> None:
    with acp() as client:
        other = client.folder / "other"
        other.mkdir()
        for number in range(3):
            client.prompt(client.new(), f"number {number}")
        client.prompt(client.new(other), "elsewhere")
        client.new()  # nothing was said in it
        listed = client.ok("session/list")["sessions"]
        assert {each["title"] for each in listed} == {
            "number 0",
            "number 1",
            "number 2",
            "elsewhere",
        }
        here = client.ok("session/list", cwd=str(other))
        assert [each["cwd"] for each in here["sessions"]] == [str(other)]
        for cursor in ("x", "²", "9" * 5000):
            assert client.fails("session/list", cursor=cursor)["code"] == INVALID_PARAMS
        assert client.ok("session/list", cursor="3")["sessions"] == [listed[3]]


def test_close_cancels_and_the_session_can_be_resumed(acp: Start) -> None:
    with acp(SLOW, HELLO) as client:
        session = client.new()
        id = client.start_prompt(session, "slow")
        client.wait_for("agent_message_chunk")
        assert client.ok("session/close", sessionId=session) == {}
        assert client.answer(id)["result"] == {"stopReason": "cancelled"}
        blocks = [text_block("hi")]
        error = client.fails("session/prompt", sessionId=session, prompt=blocks)
        assert error["code"] == NOT_FOUND
        client.ok("session/resume", sessionId=session, cwd=str(client.cwd))
        assert client.prompt(session) == {"stopReason": "end_turn"}


def test_a_deleted_session_is_gone(acp: Start) -> None:
    with acp() as client:
        session = client.new()
        client.prompt(session)
        assert client.ok("session/delete", sessionId=session) == {}
        assert client.ok("session/list")["sessions"] == []
        for method in ("session/load", "session/resume", "session/delete"):
            params = {"sessionId": session, "cwd": str(client.cwd), "mcpServers": []}
            assert client.fails(method, **params)["code"] == NOT_FOUND
        assert client.fails("session/close", sessionId=session)["code"] == NOT_FOUND


def test_a_session_that_another_process_is_about_to_leave_is_waited_for(acp: Start) -> None:
    with acp() as first, acp() as second:
        session = first.new()
        id = second.start("session/resume", sessionId=session, cwd=str(second.cwd))
        first.ok("session/close", sessionId=session)
        assert "result" in second.answer(id)
        assert second.prompt(session) == {"stopReason": "end_turn"}


@pytest.mark.slow
def test_a_session_in_use_by_another_process_is_left_alone(acp: Start) -> None:
    with acp() as first, acp() as second:
        session = first.new()
        first.prompt(session)
        for method in ("session/resume", "session/delete"):
            error = second.fails(method, sessionId=session, cwd=str(second.cwd))
            assert error["data"] == {"code": "session"}
        assert first.prompt(session) == {"stopReason": "end_turn"}


def test_a_session_opened_again_is_closed_first(acp: Start) -> None:
    with acp() as client:
        session = client.new()
        client.prompt(session)
        for _ in range(3):
            client.ok("session/load", sessionId=session, cwd=str(client.cwd), mcpServers=[])
        assert client.prompt(session) == {"stopReason": "end_turn"}


def test_a_directory_that_is_none_is_refused(acp: Start) -> None:
    with acp() as client:
        for cwd in ("relative", "/does/not/exist"):
            error = client.fails("session/new", cwd=cwd, mcpServers=[])
            assert error["code"] == INVALID_PARAMS
            assert cwd in error["message"]


# --- settings --------------------------------------------------------------------------------


def values(options: list[dict[str, Any]]) -> dict[str, Any]:
    return {option["id"]: option["currentValue"] for option in options}


def test_modes_and_options_are_in_step(acp: Start) -> None:
    with acp(tools("go", ("bash", {"command": "echo"})), HELLO) as client:
        opened = client.ok("session/new", cwd=str(client.cwd), mcpServers=[])
        session = opened["sessionId"]
        assert opened["modes"]["currentModeId"] == "ask"
        assert values(opened["configOptions"]) == {
            "model": "scripted/scripted",
            "reasoning": "off",
            "mode": "ask",
            "jail": False,
        }
        client.ok("session/set_mode", sessionId=session, modeId="yolo")
        changed = client.wait_for("config_option_update")
        assert values(changed["configOptions"])["mode"] == "yolo"
        client.prompt(session, "go")
        assert client.requests("session/request_permission") == []
        client.ok("session/set_config_option", sessionId=session, configId="mode", value="ask_all")
        assert client.wait_for("current_mode_update")["currentModeId"] == "ask_all"


def test_ask_all_asks_before_a_tool_that_only_reads(acp: Start) -> None:
    with acp(tools("go", ("read", {"path": "x"})), HELLO) as client:
        session = client.new()
        client.ok("session/set_mode", sessionId=session, modeId="ask_all")
        client.prompt(session, "go")
        assert len(client.requests("session/request_permission")) == 1


def test_yolo_on_the_command_line_is_a_mode_that_can_be_left(acp: Start) -> None:
    with acp(args=["--yolo"]) as client:
        opened = client.ok("session/new", cwd=str(client.cwd), mcpServers=[])
        assert opened["modes"]["currentModeId"] == "yolo"
        client.ok("session/set_mode", sessionId=opened["sessionId"], modeId="ask")


def test_the_jail_is_a_switch_or_a_choice(acp: Start) -> None:
    with acp() as client:
        session = client.new()
        set_jail = {"sessionId": session, "configId": "jail"}
        options = client.ok("session/set_config_option", **set_jail, type="boolean", value=True)
        assert values(options["configOptions"])["jail"] is True
    with acp(abilities={}) as client:
        session = client.new()
        set_jail = {"sessionId": session, "configId": "jail"}
        options = client.ok("session/set_config_option", **set_jail, value="on")
        assert values(options["configOptions"])["jail"] == "on"
        assert client.fails("session/set_config_option", **set_jail, value="maybe")


def test_the_model_and_its_thinking_are_set_and_remembered(acp: Start) -> None:
    args = ["--provider", "anthropic"]
    with acp(turns=[], args=args) as client:
        opened = client.ok("session/new", cwd=str(client.cwd), mcpServers=[])
        session = opened["sessionId"]
        model, reasoning = opened["configOptions"][:2]
        groups = {group["group"]: group["options"] for group in model["options"]}
        assert {"anthropic", "openai"} <= set(groups)
        thinks = [option["value"] for option in reasoning["options"]]
        wanted = groups["openai"][0]["value"]
        set_option = {"sessionId": session, "configId": "reasoning", "value": thinks[-1]}
        options = client.ok("session/set_config_option", **set_option)["configOptions"]
        assert values(options)["reasoning"] == thinks[-1]
        set_option = {"sessionId": session, "configId": "model", "value": wanted}
        options = client.ok("session/set_config_option", **set_option)["configOptions"]
        assert values(options)["model"] == wanted
    with acp(turns=[], args=[]) as client:
        opened = client.ok("session/resume", sessionId=session, cwd=str(client.cwd))
        assert values(opened["configOptions"])["model"] == wanted


def test_a_model_set_while_a_prompt_runs_counts_from_the_next(acp: Start) -> None:
    with acp(SLOW, HELLO) as client:
        session = client.new()
        id = client.start_prompt(session, "slow")
        client.wait_for("agent_message_chunk")
        set_model = {"sessionId": session, "configId": "model", "value": "scripted"}
        client.ok("session/set_config_option", **set_model)
        set_jail = {"sessionId": session, "configId": "jail", "value": True, "type": "boolean"}
        assert client.fails("session/set_config_option", **set_jail)["data"] == {"code": "busy"}
        client.notify("session/cancel", sessionId=session)
        assert client.answer(id)["result"] == {"stopReason": "cancelled"}


def test_what_is_no_option_or_value_is_refused(acp: Start) -> None:
    wrong = {"model": "nothing", "reasoning": "hard", "mode": "wild", "jail": "on?", "x": "y"}
    with acp() as client:
        session = client.new()
        for option, value in wrong.items():
            params = {"sessionId": session, "configId": option, "value": value}
            assert client.fails("session/set_config_option", **params)["code"] == INVALID_PARAMS


# --- commands --------------------------------------------------------------------------------

EXTENSION = """
hello()
emit("register_command", name="greet", description="says hello")
emit("register_command", name="ask-me", description="asks")
emit("register_command", name="prompt-it", description="prompts")
emit("register_command", name="stuck", description="never answers")
emit("register_command", name="insert-it", description="inserts")
emit("ready")
waiting = {}
for frame in frames():
    if frame["type"] == "command_invoked":
        id, name = frame["id"], frame["name"]
        if name == "greet":
            emit("notify", level="warn", message="careful")
            emit("command_response", id=id, action="display", display="hello " + frame["args"])
        elif name == "prompt-it":
            emit("command_response", id=id, action="prompt", prompt="from the command")
        elif name == "insert-it":
            emit("command_response", id=id, action="insert", insert="a text")
        elif name == "ask-me":
            method = frame["args"] or "confirm"
            waiting["q"] = id
            emit("ask", id="q", method=method, title="Sure?", message="really", options=["a", "b"])
    elif frame["type"] == "answer":
        said = json.dumps({k: frame.get(k) for k in ("value", "confirmed", "cancelled")})
        emit("command_response", id=waiting["q"], action="display", display=said)
    elif frame["type"] == "shutdown":
        break
"""


@pytest.fixture
def extension(tmp_path: Path) -> list[str]:
    return ["--ext", str(write_extension(tmp_path, "helper", EXTENSION))]


def test_commands_are_shown_and_run(acp: Start, extension: list[str]) -> None:
    with acp(args=extension) as client:
        session = client.new()
        shown = client.wait_for("available_commands_update")["availableCommands"]
        names = [command["name"] for command in shown]
        assert names[0] == "compact"
        assert {"greet", "ask-me"} <= set(names)
        assert client.prompt(session, "/greet you") == {"stopReason": "end_turn"}
        assert client.texts(session) == "hello you"
        assert client.wait_for("notice", severity="warning")["title"] == "careful"
        assert client.prompt(session, "/insert-it") == {"stopReason": "end_turn"}
        assert client.prompt(session, "/prompt-it") == {"stopReason": "end_turn"}
        assert client.prompt(session, "/no/such/path is odd") == {"stopReason": "end_turn"}
        assert client.texts(session) == "hello youa textHelloHello"


def test_prompts_behind_a_command_wait_for_it_and_all_can_be_cancelled(
    acp: Start, extension: list[str]
) -> None:
    with acp(args=extension) as client:
        session = client.new()
        ids = [client.start_prompt(session, text) for text in ("/stuck", "one", "/greet", "two")]
        client.notify("$/cancel_request", requestId=ids[1])
        client.notify("$/cancel_request", requestId=ids[0])
        answers = [client.answer(id)["result"]["stopReason"] for id in ids]
        assert answers == ["cancelled", "cancelled", "end_turn", "end_turn"]
        stuck = client.start_prompt(session, "/stuck")
        client.notify("session/cancel", sessionId=session)
        assert client.answer(stuck)["result"] == {"stopReason": "cancelled"}


def test_without_notices_an_extension_speaks_as_the_agent(acp: Start, extension: list[str]) -> None:
    with acp(args=extension, abilities={}) as client:
        session = client.new()
        client.prompt(session, "/greet")
        assert client.texts(session) == "helper: carefulhello "
        assert client.updates(None, "notice") == []


ANSWERS = [
    ("confirm", {"action": "accept", "content": {"confirmed": True}}, (None, True, False)),
    ("confirm", {"action": "decline"}, (None, False, False)),
    ("select", {"action": "accept", "content": {"value": "b"}}, ("b", False, False)),
    ("input", {"action": "accept", "content": {"value": "typed"}}, ("typed", False, False)),
    ("editor", {"action": "cancel"}, (None, False, True)),
    ("input", {"action": "accept", "content": {"value": 5}}, (None, False, True)),
    ("input", [], (None, False, True)),
]
CLICKS = [
    ("confirm", "yes", (None, True, False)),
    ("confirm", "no", (None, False, False)),
    ("select", "1", ("b", False, False)),
    ("select", "no", (None, False, True)),
    ("input", "", (None, False, True)),  # nobody is asked
]


def last_heard(client: Acp) -> tuple[Any, ...]:
    said = json.loads(client.updates(None, "agent_message_chunk")[-1]["content"]["text"])
    return (said["value"], said["confirmed"] or False, said["cancelled"] or False)


def test_a_question_of_an_extension_is_a_form(acp: Start, extension: list[str]) -> None:
    with acp(args=extension) as client:
        session = client.new()
        for number, (method, answer, heard) in enumerate(ANSWERS):
            id = client.start_prompt(session, f"/ask-me {method}")
            asked = client.wait(lambda: client.requests("elicitation/create")[number:])[0]  # noqa: B023  waited for here
            assert asked["params"]["message"] == "Sure?\nreally"
            client.send(id=asked["id"], result=answer)
            assert client.answer(id)["result"] == {"stopReason": "end_turn"}
            assert last_heard(client) == heard


def test_without_forms_a_question_has_buttons(acp: Start, extension: list[str]) -> None:
    with acp(args=extension, abilities={}) as client:
        session = client.new()
        for method, option, heard in CLICKS:
            client.decide = option
            client.prompt(session, f"/ask-me {method}")
            assert last_heard(client) == heard


def test_compact_is_a_command(acp: Start) -> None:
    summary = {"match": "<conversation>", "text": "a summary", "usage": {"input": 7, "output": 2}}
    with acp(summary, HELLO) as client:
        session = client.new()
        for number in range(4):
            client.prompt(session, f"number {number} " + "x" * 400)
        assert client.prompt(session, "/compact briefly") == {"stopReason": "end_turn"}
        states = [u["status"] for u in client.updates(session, "compaction_update")]
        assert states == ["in_progress", "completed"]
        done = client.updates(session, "compaction_update")[-1]
        assert done["summary"] == [{"type": "text", "text": "a summary"}]


def test_compact_of_nothing_fails_and_is_told(acp: Start) -> None:
    with acp() as client:
        session = client.new()
        client.fails("session/prompt", sessionId=session, prompt=[text_block("/compact")])
        assert client.wait_for("compaction_update", status="failed")["error"]


def test_a_plan_tool_is_a_plan(acp: Start) -> None:
    steps = [
        {"content": "one", "status": "completed", "priority": "high"},
        {"text": "two", "status": "in_progress"},
        "three",
        5,
    ]
    with acp(tools("go", ("update_plan", {"plan": steps})), HELLO) as client:
        client.prompt(client.new(), "go")
        plan = client.wait_for("plan")
    assert [(e["content"], e["status"], e["priority"]) for e in plan["entries"]] == [
        ("one", "completed", "high"),
        ("two", "in_progress", "medium"),
        ("three", "pending", "medium"),
    ]


# --- MCP servers -----------------------------------------------------------------------------


def test_a_server_that_the_client_hands_in_is_used(acp: Start, tmp_path: Path) -> None:
    call = {"name": "mcp__other__zot", "args": {"prompt": "from outside"}}
    turn = {"match": "go", "tools": [call], "text": "asking"}
    flags = write_script(tmp_path, ["the other one answers"])
    server = {
        "name": "other",
        "command": sys.executable,
        "args": ["-m", "zot", "mcp-server", *flags, "--cwd", str(tmp_path)],
        "env": [{"name": "ZOT_HOME", "value": str(tmp_path / "other-home")}],
    }
    broken = {"name": "broken", "command": "/does/not/exist", "args": [], "env": []}
    with acp(*([turn] * 5), HELLO) as client:
        session = client.new(mcpServers=[server, broken, {"name": "neither"}])
        for _ in range(5):  # a server that starts slowly comes with the next prompt
            assert client.prompt(session, "go") == {"stopReason": "end_turn"}
            done = [u for u in client.updates(session) if u.get("status") == "completed"]
            if done:
                break
        assert "the other one answers" in done[0]["content"][0]["content"]["text"]
        assert client.requests("session/request_permission")[0]["params"]["toolCall"]["kind"]
        assert any("neither" in notice["title"] for notice in client.updates(None, "notice"))


def test_prompts_and_questions_of_a_server_reach_the_client(acp: Start) -> None:
    ask = tools("go", ("mcp__test__ask", {}))
    with acp({"match": "first", "text": "hi"}, ask, HELLO, HELLO) as client:
        session = client.new(mcpServers=[{"name": "test", **entry(era="modern"), "env": []}])
        names = [
            each["name"]
            for each in client.wait_for("available_commands_update")["availableCommands"]
        ]
        assert "mcp:test:greet" not in names  # nobody knows it yet
        client.prompt(session, "first")
        shown = client.wait(lambda: client.updates(session, "available_commands_update")[1:])[0]
        assert "mcp:test:greet" in [each["name"] for each in shown["availableCommands"]]

        id = client.start_prompt(session, "go")
        filled = [
            {"value": "Ada"},
            {"value": "36"},
            {"value": "red"},
            {"confirmed": True},
            {"value": "x"},
        ]
        for number, content in enumerate(filled):
            asked = client.wait(lambda: client.requests("elicitation/create")[number:])[0]  # noqa: B023  waited for here
            client.send(id=asked["id"], result={"action": "accept", "content": content})
        assert client.answer(id)["result"] == {"stopReason": "end_turn"}
        (done,) = [u for u in client.updates(session) if u.get("status") == "completed"]
        answer = json.loads(done["content"][0]["content"]["text"])
        assert answer["content"] == {
            "name": "Ada",
            "age": 36,
            "colour": "red",
            "sure": True,
            "note": "x",
        }

        assert client.prompt(session, "/mcp:test:greet who=Bob") == {"stopReason": "end_turn"}


# --- logging in ------------------------------------------------------------------------------

NO_KEYS: dict[str, str | None] = {"ANTHROPIC_API_KEY": None, "OPENAI_API_KEY": None}


def test_without_a_key_the_client_is_told_to_log_in(acp: Start) -> None:
    with acp(turns=[], args=["--provider", "openai"], env=NO_KEYS) as client:
        error = client.fails("session/new", cwd=str(client.cwd), mcpServers=[])
        assert error["code"] == AUTH_REQUIRED
        assert client.fails("authenticate", methodId="zot-login")["code"] == AUTH_REQUIRED
        assert client.fails("authenticate", methodId="other")["code"] == INVALID_PARAMS


def test_login_in_a_terminal_lets_the_running_agent_in_and_logout_out(acp: Start) -> None:
    args = ["--provider", "openai"]
    with acp(turns=[], args=args, env=NO_KEYS) as client:
        assert client.fails("session/new", cwd=str(client.cwd), mcpServers=[])
        words = ["acp", "--login", "openai", "--no-probe"]
        done = subprocess.run(
            [*client.process.args[:3], *words],  # type: ignore[index]
            input=b"sk-canary-0123456789\n",
            env={**env_of(client), **{"OPENAI_API_KEY": ""}},
            capture_output=True,
            timeout=PATIENCE,
        )
        assert done.returncode == 0, done.stderr
        assert client.ok("authenticate", methodId="zot-login") == {}
        client.new()
        assert client.ok("logout") == {}
        assert client.fails("session/new", cwd=str(client.cwd), mcpServers=[])
        assert client.fails("logout")["code"] == AUTH_REQUIRED


def env_of(client: Acp) -> dict[str, str]:
    lines = Path(f"/proc/{client.process.pid}/environ").read_bytes().split(b"\0")
    return dict(line.decode().split("=", 1) for line in lines if line)


# --- trouble ---------------------------------------------------------------------------------


def test_unknown_and_broken_requests_are_answered(acp: Start) -> None:
    with acp() as client:
        assert client.fails("session/fork", sessionId="x")["code"] == METHOD_NOT_FOUND
        assert client.fails("_zot/other")["code"] == METHOD_NOT_FOUND
        assert client.fails("session/new", mcpServers=[])["code"] == INVALID_PARAMS
        assert client.fails("session/new", cwd=5, mcpServers=[])["code"] == INVALID_PARAMS
        assert client.fails("session/prompt", sessionId="none", prompt=[])["code"] == NOT_FOUND
        assert client.fails("session/set_mode", sessionId="x", modeId="ask")["code"] == NOT_FOUND


def test_garbage_is_answered_and_skipped(acp: Start) -> None:
    with acp() as client:
        for line in (b"{", b"[]", b"\xff\xfe", b"null", b'"text"', b"{}", b'{"id":1}', b"[" * 9999):
            client.write(line + b"\n")
        client.write(b"x" * (20 * 1024 * 1024) + b"\n")
        client.write((b"garbage " * 128 + b"\n") * 2048)
        client.send(id=999, result={})  # an answer to nothing
        assert client.prompt(client.new()) == {"stopReason": "end_turn"}
        faults = [f["error"]["code"] for f in client.frames if f.get("id", 0) is None]
        assert len(faults) == 8 + 1 + 2048
        assert INVALID_REQUEST in faults


def test_ids_may_be_texts_or_null(acp: Start) -> None:
    with acp() as client:
        client.asked["one"] = "session/list"
        client.send(id="one", method="session/list", params={})
        assert client.answer("one")["result"] == {"sessions": []}  # type: ignore[arg-type]
        client.send(id=None, method="session/list", params={})
        client.asked[None] = "session/list"
        client.wait(lambda: [f for f in client.frames if f.get("id", 0) is None])
        del client.asked[None]
        client.frames = [frame for frame in client.frames if frame.get("id", 0) is not None]


@pytest.mark.parametrize("text", ["slow", "sleep"])
def test_the_end_of_input_cancels_and_ends(acp: Start, text: str) -> None:
    with acp(SLOW, SLEEP, HELLO) as client:
        id = client.start_prompt(client.new(), text)
        if text == "slow":
            client.wait_for("agent_message_chunk")
        else:
            client.wait_for("tool_call_update", status="in_progress")
        assert client.close() == 0
        assert client.answer(id)["result"] == {"stopReason": "cancelled"}


def test_a_signal_cancels_and_ends(acp: Start) -> None:
    client = acp(SLEEP, HELLO)
    id = client.start_prompt(client.new(), "sleep")
    client.wait_for("tool_call_update", status="in_progress")
    client.process.send_signal(signal.SIGTERM)
    assert client.process.wait(PATIENCE) == 143
    assert client.answer(id)["result"] == {"stopReason": "cancelled"}
    client.check()
    client.kill()


def test_the_input_may_end_while_the_agent_still_loads(acp: Start) -> None:
    for _ in range(3):
        client = acp()
        client.start("session/new", cwd=str(client.cwd), mcpServers=[])
        assert client.close() == 0
        client.kill()


def test_a_session_too_many_is_refused(acp: Start) -> None:
    with acp() as client:
        ids = [client.start("session/new", cwd=str(client.cwd), mcpServers=[]) for _ in range(70)]
        answers = [client.answer(id) for id in ids]
    refused = [answer["error"] for answer in answers if "error" in answer]
    assert len(refused) >= 6


def test_a_bad_flag_is_told_before_anything_is_served(tmp_path: Path, acp: Start) -> None:
    with acp() as client:
        program = list(client.process.args[:3])  # type: ignore[index]
    for words in (["--nope"], ["hello"], ["--continue"], ["--session", "x"]):
        done = subprocess.run([*program, "acp", *words], capture_output=True, timeout=PATIENCE)
        assert done.returncode == 2
        assert done.stdout == b""
    done = subprocess.run([*program, "acp", "--help"], capture_output=True, timeout=PATIENCE)
    assert b"--login" in done.stdout
