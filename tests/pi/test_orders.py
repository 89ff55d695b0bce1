"""The order of events in every scenario of the three generations: the golden transcripts."""

import base64
import json

import pytest
from support.pi import PiServers, ended, outline

PLAIN = "asst text_start text_delta text_end /asst"
CALL = "toolcall_start toolcall_delta toolcall_end"
HELLO = {"text": ["Hel", "lo"], "usage": {"input": 10, "output": 3}, "repeat": True}
SUMMARY = {"match": "<conversation>", "text": "a summary", "usage": {"input": 7, "output": 2}}
BASH = {"name": "bash", "args": {"command": "echo out"}}
SLEEP = {"name": "bash", "args": {"command": "sleep 30"}}
SLOW = {"text": ["part"] + ["x"] * 5000, "delay_ms": 200}
PNG = base64.b64encode(b"\x89PNG\r\n\x1a\n" + b"0" * 16).decode()


def pinned(generation: str) -> list[str]:
    return ["--no-session", "--pi-protocol", generation]


# --- plain -----------------------------------------------------------------------------------


def test_a_plain_prompt_in_generation_a(servers: PiServers) -> None:
    with servers.start(HELLO) as server:
        frames = server.run("hi", end="agent_end")
        assert outline(frames) == f"run turn user /user {PLAIN} /turn /run"
        assert server.rest() == []
        assert server.wait() == 0


def test_a_plain_prompt_in_generation_b(servers: PiServers) -> None:
    with servers.start(HELLO) as server:
        frames = server.run("hi", id="req_1")
    assert frames[0] == {
        "id": "req_1",
        "type": "response",
        "command": "prompt",
        "success": True,
        "data": {"disposition": "started"},
    }
    assert outline(frames[1:]) == f"run turn user /user {PLAIN} /turn /run settled"
    assert frames[-1]["aborted"] is False


def test_a_plain_prompt_in_generation_c(servers: PiServers) -> None:
    with servers.start(HELLO, args=pinned("c")) as server:
        first, second = server.run("hi", id="1"), server.run("again", id="2")
    system = "message_start:system message_end:system"
    assert outline(first[1:]) == f"run turn {system} user /user {PLAIN} /turn /run settled"
    assert outline(second[1:]) == f"run turn user /user {PLAIN} /turn /run settled"
    assert first[-2]["willRetry"] is False


@pytest.mark.parametrize("generation", ["a", "b", "c"])
def test_the_messages_of_agent_end_are_those_of_the_prompt_only(
    servers: PiServers, generation: str
) -> None:
    with servers.start(HELLO, args=pinned(generation)) as server:
        server.run("one", end="agent_end")
        last = server.run("two", end="agent_end")[-1]
    assert [each["role"] for each in last["messages"]] == ["user", "assistant"]
    assert last["messages"][0]["content"] == [{"type": "text", "text": "two"}]


def test_an_assistant_message_has_every_documented_field(servers: PiServers) -> None:
    with servers.start(HELLO) as server:
        frames = server.run("hi", end="agent_end")
    message = ended(frames)[-1]
    assert set(message) == {
        "role",
        "content",
        "api",
        "provider",
        "model",
        "usage",
        "stopReason",
        "timestamp",
    }
    assert message["stopReason"] == "stop"
    assert message["timestamp"] > 1_700_000_000_000
    assert message["usage"]["input"] == 10
    assert message["usage"]["output"] == 3
    assert set(message["usage"]["cost"]) == {"input", "output", "cacheRead", "cacheWrite", "total"}


def test_generation_a_sends_only_documented_fields_in_updates(servers: PiServers) -> None:
    with servers.start({"text": "x", "tools": [BASH]}, HELLO) as server:
        frames = server.run("hi", end="agent_end")
    updates = [frame for frame in frames if frame["type"] == "message_update"]
    assert all(set(frame) == {"type", "message", "assistantMessageEvent"} for frame in updates)
    start = next(
        frame["assistantMessageEvent"]
        for frame in updates
        if frame["assistantMessageEvent"]["type"] == "toolcall_start"
    )
    assert set(start) == {"type", "contentIndex", "partial"}


def test_generation_c_sends_no_snapshots(servers: PiServers) -> None:
    with servers.start({"text": "x", "tools": [BASH]}, HELLO, args=pinned("c")) as server:
        frames = server.run("hi")
    updates = [frame for frame in frames if frame["type"] == "message_update"]
    assert updates
    assert all(set(frame) == {"type", "usage", "assistantMessageEvent"} for frame in updates)
    pieces = [frame["assistantMessageEvent"] for frame in updates]
    assert not any("partial" in piece for piece in pieces)
    start = next(piece for piece in pieces if piece["type"] == "toolcall_start")
    assert (start["id"], start["toolName"]) == ("call_1", "bash")


def test_a_long_answer_stays_within_its_budget(servers: PiServers) -> None:
    with servers.start({"text": ["word "] * 20_000}) as server:
        frames = server.run("hi", id="1")
    deltas = [f["assistantMessageEvent"] for f in frames if f["type"] == "message_update"]
    assert "".join(each.get("delta", "") for each in deltas) == "word " * 20_000
    assert len(json.dumps(frames)) < 10_000_000
    assert ended(frames)[-1]["content"][0]["text"] == "word " * 20_000


# --- tools -----------------------------------------------------------------------------------


def test_a_tool_in_generation_a(servers: PiServers) -> None:
    with servers.start({"text": "look", "tools": [BASH]}, HELLO) as server:
        frames = server.run("hi", end="agent_end")
    asst = f"asst text_start text_delta text_end {CALL} /asst"
    group = "tool /tool result /result"
    assert outline(frames) == f"run turn user /user {asst} {group} /turn turn {PLAIN} /turn /run"
    turn = next(frame for frame in frames if frame["type"] == "turn_end")
    assert turn["message"]["stopReason"] == "toolUse"
    assert [each["toolCallId"] for each in turn["toolResults"]] == ["call_1"]
    end = next(frame for frame in frames if frame["type"] == "tool_execution_end")
    assert end["isError"] is False
    assert "out" in end["result"]["content"][0]["text"]


def test_two_tools_in_generation_a_run_one_after_the_other(servers: PiServers) -> None:
    with servers.start({"tools": [BASH, BASH]}, HELLO) as server:
        frames = server.run("hi", end="agent_end")
    group = "tool /tool result /result"
    assert outline(frames) == (
        f"run turn user /user asst {CALL} {CALL} /asst {group} {group} /turn "
        f"turn {PLAIN} /turn /run"
    )


@pytest.mark.parametrize("generation", ["b", "c"])
def test_two_tools_in_newer_generations_are_announced_together(
    servers: PiServers, generation: str
) -> None:
    with servers.start({"tools": [BASH, BASH]}, HELLO, args=pinned(generation)) as server:
        frames = [f for f in server.run("hi") if f["type"] != "tool_execution_update"]
    told = outline(frames)
    assert f"{CALL} {CALL} /asst tool tool /tool /tool result /result result /result /turn" in told
    starts = [f["toolCallId"] for f in frames if f["type"] == "tool_execution_start"]
    results = [each["toolCallId"] for each in ended(frames) if each["role"] == "toolResult"]
    assert starts == results == ["call_1", "call_2"]


def test_a_failed_tool_gives_a_string_in_generation_a(servers: PiServers) -> None:
    with servers.start({"tools": [{"name": "nope"}]}, HELLO) as server:
        frames = server.run("hi", end="agent_end")
    end = next(frame for frame in frames if frame["type"] == "tool_execution_end")
    assert end["isError"] is True
    assert isinstance(end["result"], str)
    assert "nope" in end["result"]


@pytest.mark.parametrize("generation", ["b", "c"])
def test_a_failed_tool_gives_an_object_in_newer_generations(
    servers: PiServers, generation: str
) -> None:
    with servers.start({"tools": [{"name": "nope"}]}, HELLO, args=pinned(generation)) as server:
        frames = server.run("hi")
    end = next(frame for frame in frames if frame["type"] == "tool_execution_end")
    assert end["isError"] is True
    assert end["result"]["content"][0]["type"] == "text"
    assert end["result"]["details"] == {}


def test_bad_tool_arguments_do_not_end_the_run(servers: PiServers) -> None:
    turn = {"tools": [{"name": "bash", "raw_args": "{not json"}]}
    with servers.start(turn, HELLO) as server:
        frames = server.run("hi", end="agent_end")
    assert ended(frames)[-1]["stopReason"] == "stop"
    assert [f["isError"] for f in frames if f["type"] == "tool_execution_end"] == [True]


def test_progress_of_a_tool_is_cumulative(servers: PiServers) -> None:
    slow = {"name": "bash", "args": {"command": "echo one; sleep 0.3; echo two"}}
    with servers.start({"tools": [slow]}, HELLO) as server:
        frames = server.run("hi", id="1")
    updates = [f for f in frames if f["type"] == "tool_execution_update"]
    texts = [f["partialResult"]["content"][0]["text"] for f in updates]
    assert texts[-1] == "one\ntwo\n"
    assert texts[0] == "one\n"
    assert updates[0]["args"] == slow["args"]


# --- abort -----------------------------------------------------------------------------------


def test_abort_in_a_stream_keeps_what_was_said(servers: PiServers) -> None:
    with servers.start(SLOW, HELLO) as server:
        server.send("prompt", message="hi")
        server.until(lambda f: f.get("assistantMessageEvent", {}).get("type") == "text_delta")
        server.send("abort")
        server.until("agent_end")
        told = outline(server.seen)
        assert told == "run turn user /user asst text_start text_delta /asst /turn /run"
        last = ended(server.seen)[-1]
        assert (last["stopReason"], last["errorMessage"]) == ("aborted", "the run was aborted")
        assert last["content"][0]["text"].startswith("part")
        assert server.seen[-2]["toolResults"] == []
        assert outline(server.run("again", end="agent_end")).endswith("/turn /run")


def test_the_answer_to_abort_comes_when_all_is_settled(servers: PiServers) -> None:
    with servers.start(SLOW) as server:
        server.send("prompt", message="hi", id="1")
        server.until("message_update")
        server.send("abort", id="2")
        frames = server.until(lambda f: f.get("command") == "abort")
    assert outline(frames[-3:]) == "/run settled response"
    assert frames[-2]["aborted"] is True


@pytest.mark.parametrize("generation", ["a", "b"])
def test_abort_in_a_tool_ends_with_an_aborted_message(servers: PiServers, generation: str) -> None:
    with servers.start({"tools": [SLEEP, BASH]}, HELLO, args=pinned(generation)) as server:
        server.send("prompt", message="hi")
        server.until("tool_execution_start")
        server.send("abort")
        server.until("agent_end")
    aborted = "turn asst /asst /turn /run"
    assert outline(server.seen).endswith(f"/result /turn {aborted}")
    ends = [f for f in server.seen if f["type"] == "tool_execution_end"]
    assert [f["isError"] for f in ends] == [True, True]
    last = ended(server.seen)[-1]
    assert (last["stopReason"], last["content"]) == ("aborted", [])
    assert last["usage"]["totalTokens"] == 0


def test_abort_when_idle_says_nothing_in_generation_a(servers: PiServers) -> None:
    with servers.start(HELLO) as server:
        server.send("abort")
        assert outline(server.run("hi", end="agent_end")).startswith("run turn user")


# --- failures --------------------------------------------------------------------------------


@pytest.mark.parametrize("generation", ["a", "b", "c"])
def test_a_refused_key_is_a_message_that_failed(servers: PiServers, generation: str) -> None:
    turn = {"error": {"status": 401, "message": "bad key"}}
    with servers.start(turn, HELLO, args=pinned(generation)) as server:
        frames = server.run("hi", end="agent_end")
        assert outline(frames).endswith("user /user asst /asst /turn /run")
        assert "error" not in [frame["type"] for frame in frames]
        last = ended(frames)[-1]
        assert last["stopReason"] == "error"
        assert "401" in last["errorMessage"]
        assert ended(server.run("again", end="agent_end"))[-1]["stopReason"] == "stop"


def test_a_stream_that_fails_for_good_keeps_its_text(servers: PiServers) -> None:
    with servers.start({"text": ["some"], "error": {"status": 400}}) as server:
        frames = server.run("hi", end="agent_end")
    last = ended(frames)[-1]
    assert last["stopReason"] == "error"
    assert last["content"] == [{"type": "text", "text": "some"}]


def test_a_cut_message_ends_and_is_said_anew_in_a_turn_of_its_own(servers: PiServers) -> None:
    with servers.start({"text": ["some", "text"], "cut_after": 1}, HELLO) as server:
        frames = server.run("hi", id="1")
        messages = server.data("get_messages")["messages"]
    told = outline(frames)
    assert "/asst /turn auto_retry_start turn asst" in told
    assert told.endswith("auto_retry_end /asst /turn /run settled")
    cut, whole = [message for message in ended(frames) if message["role"] == "assistant"]
    assert (cut["stopReason"], whole["stopReason"]) == ("error", "stop")
    assert cut["content"] == [{"type": "text", "text": "some"}]
    assert [message["role"] for message in messages] == ["user", "assistant"]
    assert "some" not in str(messages)


def test_a_length_stop_ends_the_run(servers: PiServers) -> None:
    with servers.start({"text": "half", "stop": "length"}) as server:
        frames = server.run("hi", end="agent_end")
    assert ended(frames)[-1]["stopReason"] == "length"


def test_a_retry_is_told_and_its_success_before_the_end(servers: PiServers) -> None:
    with servers.start({"error": {"status": 529, "message": "overloaded"}}, HELLO) as server:
        frames = server.run("hi", id="1")
    told = outline(frames)
    assert "user /user auto_retry_start asst" in told
    assert "auto_retry_end /asst /turn /run settled" in told
    start = next(f for f in frames if f["type"] == "auto_retry_start")
    assert (start["attempt"], start["maxAttempts"]) == (1, 9)
    assert start["delayMs"] >= 500
    assert "overloaded" in start["errorMessage"]
    end = next(f for f in frames if f["type"] == "auto_retry_end")
    assert (end["success"], end["attempt"]) == (True, 1)


def test_a_retry_is_silent_in_generation_a(servers: PiServers) -> None:
    with servers.start({"error": {"status": 529, "message": "overloaded"}}, HELLO) as server:
        frames = server.run("hi", end="agent_end")
    assert outline(frames) == f"run turn user /user {PLAIN} /turn /run"


def test_abort_retry_ends_the_run_and_tells_the_failure_last(servers: PiServers) -> None:
    failing = {"error": {"status": 529, "message": "overloaded"}, "repeat": True}
    with servers.start(failing) as server:
        server.send("prompt", message="hi", id="1")
        server.until("auto_retry_start")
        server.send("abort_retry", id="2")
        # The answer to the abort may come between the last two.
        frames = [f for f in server.until("agent_settled") if f["type"] != "response"]
    assert outline(frames).endswith("/run auto_retry_end settled")
    assert frames[-2]["success"] is False


def test_without_auto_retry_the_first_failure_is_the_last(servers: PiServers) -> None:
    with servers.start({"error": {"status": 529, "message": "overloaded"}}, HELLO) as server:
        server.data("set_auto_retry", enabled=False)
        frames = server.run("hi", id="1")
    assert "auto_retry_start" not in outline(frames)
    assert ended(frames)[-1]["stopReason"] == "error"


# --- compaction ------------------------------------------------------------------------------


def test_compact_in_generation_a_is_one_event(servers: PiServers) -> None:
    with servers.start(SUMMARY, HELLO) as server:
        server.run("hi", end="agent_end")
        server.send("compact", customInstructions="be short")
        frame = server.frame()
        assert frame["type"] == "compaction"
        assert frame["summary"] == "a summary"
        assert frame["tokensBefore"] > 0
        assert "auto" not in frame


def test_compact_of_nothing_is_an_error_in_generation_a(servers: PiServers) -> None:
    with servers.start(HELLO) as server:
        server.send("compact")
        frame = server.frame()
        assert frame["type"] == "error"
        assert "nothing to compact" in frame["error"]
        assert outline(server.run("hi", end="agent_end")).startswith("run")


def test_compact_in_generation_b_is_two_events_and_an_answer(servers: PiServers) -> None:
    with servers.start(SUMMARY, HELLO) as server:
        server.run("hi", id="1")
        server.send("compact", id="2")
        frames = server.until("response")
    assert outline(frames) == "compaction_start compaction_end response"
    assert frames[0]["reason"] == "manual"
    assert frames[1]["willRetry"] is False
    assert frames[1]["result"] == frames[2]["data"]
    assert frames[2]["data"]["summary"] == "a summary"
    assert set(frames[2]["data"]) >= {"firstKeptEntryId", "tokensBefore", "details", "usage"}


def test_compact_twice_fails_clearly(servers: PiServers) -> None:
    with servers.start(SUMMARY, HELLO) as server:
        server.run("hi", id="1")
        server.data("compact")
        response = server.ask("compact")
        assert not response["success"]
        assert "nothing was said since" in response["error"]
        end = next(f for f in reversed(server.seen) if f["type"] == "compaction_end")
        assert end["errorMessage"] == response["error"]


def test_a_full_context_is_compacted_after_the_run(servers: PiServers) -> None:
    full = {"text": "much", "usage": {"input": 190_000, "output": 10}}
    with servers.start(SUMMARY, full, HELLO) as server:
        server.run("hi", end="agent_end")
        frame = server.frame()
        assert frame["type"] == "compaction"
        assert frame["auto"] is True
        assert frame["tokensBefore"] == 190_010
        assert outline(server.run("next", end="agent_end")).startswith("run turn user")


def test_a_full_context_settles_after_its_compaction(servers: PiServers) -> None:
    full = {"text": "much", "usage": {"input": 190_000, "output": 10}}
    with servers.start(SUMMARY, full, HELLO) as server:
        frames = server.run("hi", id="1")
    assert outline(frames).endswith("/run compaction_start compaction_end settled")
    assert frames[-2]["reason"] == "threshold"


def test_a_failed_automatic_compaction_is_an_error_in_generation_a(servers: PiServers) -> None:
    full = {"text": "much", "usage": {"input": 190_000, "output": 10}}
    failing = {"match": "<conversation>", "error": {"status": 400, "message": "no"}}
    with servers.start(failing, full, HELLO) as server:
        server.run("hi", end="agent_end")
        frame = server.frame()
        assert frame["type"] == "error"
        assert frame["error"].startswith("Auto-compaction failed")


def test_without_auto_compaction_a_full_context_stays(servers: PiServers) -> None:
    full = {"text": "much", "usage": {"input": 190_000, "output": 10}}
    with servers.start(SUMMARY, full) as server:
        server.data("set_auto_compaction", enabled=False)
        assert outline(server.run("hi", id="1")).endswith("/run settled")
        assert server.data("get_state")["autoCompactionEnabled"] is False


def test_an_overflow_is_compacted_and_the_call_made_again(servers: PiServers) -> None:
    overflow = {
        "match": "more",
        "error": {"status": 400, "message": "prompt is too long: 210000 tokens > 200000 maximum"},
    }
    with servers.start(SUMMARY, overflow, HELLO) as server:
        server.run("hi", id="1")
        frames = server.run("more", id="2")
    told = outline(frames[1:])
    assert told == (
        f"run turn user /user compaction_start compaction_end {PLAIN} /turn /run settled"
    )
    end = next(f for f in frames if f["type"] == "compaction_end")
    assert (end["reason"], end["willRetry"]) == ("overflow", True)


# --- steering --------------------------------------------------------------------------------


def test_steering_and_follow_ups_are_heard_within_one_run(servers: PiServers) -> None:
    tool = {"tools": [{"name": "bash", "args": {"command": "sleep 0.5"}}]}
    with servers.start(tool, HELLO) as server:
        server.send("prompt", message="hi", id="1")
        server.until("tool_execution_start")
        assert server.data("steer", message="turn left") == {"disposition": "queued"}
        assert server.data("follow_up", message="then one") == {"disposition": "queued"}
        assert server.data("follow_up", message="then two") == {"disposition": "queued"}
        frames = server.until("agent_settled")
    heard = f"turn queue_update user /user {PLAIN} /turn"
    assert f"/turn {heard} {heard} {heard} /run settled" in outline(frames)
    updates = [(f["steering"], f["followUp"]) for f in server.seen if f["type"] == "queue_update"]
    assert updates == [
        (["turn left"], []),
        (["turn left"], ["then one"]),
        (["turn left"], ["then one", "then two"]),
        ([], ["then one", "then two"]),
        ([], ["then two"]),
        ([], []),
    ]


def test_a_queue_update_comes_before_the_answer(servers: PiServers) -> None:
    with servers.start(HELLO) as server:
        server.send("steer", message="later", id="1")
        assert outline([server.frame(), server.frame()]) == "queue_update response"


def test_steering_when_idle_waits_for_the_next_prompt(servers: PiServers) -> None:
    with servers.start(HELLO) as server:
        server.data("steer", message="mind this")
        assert server.data("get_state")["pendingMessageCount"] == 1
        frames = server.run("go", id="1")
    users = [each["content"][0]["text"] for each in ended(frames) if each["role"] == "user"]
    assert users == ["go", "mind this"]
    assert outline(frames[1:]).startswith("run turn user /user queue_update user /user asst")


def test_all_steering_at_once_when_asked(servers: PiServers) -> None:
    with servers.start(HELLO) as server:
        server.data("set_steering_mode", mode="all")
        server.data("steer", message="one")
        server.data("steer", message="two")
        frames = server.run("go", id="1")
        assert server.data("get_state")["steeringMode"] == "all"
    users = [each["content"][0]["text"] for each in ended(frames) if each["role"] == "user"]
    assert users == ["go", "one", "two"]
    assert outline(frames).count("asst") == 2


def test_clear_queue_gives_the_texts_back(servers: PiServers) -> None:
    with servers.start(HELLO) as server:
        server.data("steer", message="one")
        server.data("follow_up", message="two")
        assert server.data("clear_queue") == {"steering": ["one"], "followUp": ["two"]}


def test_a_prompt_while_busy_needs_to_say_how(servers: PiServers) -> None:
    with servers.start(SLOW, HELLO) as server:
        server.send("prompt", message="hi", id="1")
        server.until("message_update")
        assert not server.ask("prompt", message="again")["success"]
        answer = server.data("prompt", message="left", streamingBehavior="steer")
        assert answer == {"disposition": "queued"}
        answer = server.data("prompt", message="right", streamingBehavior="followUp")
        assert answer == {"disposition": "queued"}


def test_prompts_of_generation_a_wait_for_each_other(servers: PiServers) -> None:
    with servers.start({"text": ["a", "b", "c"], "delay_ms": 100}, HELLO) as server:
        server.send("prompt", message="one")
        server.send("prompt", message="two")
        frames = server.until("agent_end") + server.until("agent_end")
    one = f"run turn user /user {PLAIN} /turn /run"
    assert outline(frames) == f"{one} {one}"


# --- attachments -----------------------------------------------------------------------------


def attachment(**fields: object) -> dict[str, object]:
    return {"id": "1", "fileName": "a.txt", "size": 3, "content": "YWJj", **fields}


def test_attachments_reach_the_model_and_are_echoed(servers: PiServers) -> None:
    sent = [
        attachment(type="image", fileName="a.png", mimeType="image/png", content=PNG),
        attachment(type="document", mimeType="text/plain", extractedText="the words"),
        attachment(type="document", mimeType="application/pdf"),
    ]
    with servers.start(HELLO) as server:
        frames = server.run("look", end="agent_end", attachments=sent)
        again = server.run("and now", end="agent_end")
    user = ended(frames)[0]
    assert user["attachments"] == sent
    assert [block["type"] for block in user["content"]] == ["text", "image", "text"]
    assert user["content"][1] == {"type": "image", "data": PNG, "mimeType": "image/png"}
    assert "Document: a.txt" in user["content"][2]["text"]
    assert user["content"][2]["text"].endswith("\nthe words")
    assert "attachments" not in ended(again)[0]


def test_a_bad_attachment_is_an_error(servers: PiServers) -> None:
    with servers.start(HELLO) as server:
        for wrong in (
            attachment(type="image", mimeType="image/png", content="%%%"),
            attachment(type="image", mimeType="image/x", content=PNG),
            attachment(type="film"),
        ):
            server.send("prompt", message="look", attachments=[wrong])
            assert server.frame()["type"] == "error"


def test_images_of_newer_generations_reach_the_model(servers: PiServers) -> None:
    image = {"type": "image", "data": PNG, "mimeType": "image/png"}
    with servers.start(HELLO) as server:
        frames = server.run("look", id="1", images=[image])
    assert ended(frames)[0]["content"] == [{"type": "text", "text": "look"}, image]
    assert "attachments" not in json.dumps(frames)
