"""Every command: the exact fields of its answer, what it refuses, and what it changes."""

import base64

import pytest
from support.rpc import Zot, types

PIXEL = base64.b64encode(b"\x89PNG\r\n\x1a\n" + b"\0" * 20).decode()
FIELDS = {
    "response": {"type", "id", "command", "success", "data", "error"},
    "user_message": {"type", "content", "time"},
    "turn_start": {"type", "step"},
    "assistant_start": {"type"},
    "text_delta": {"type", "delta"},
    "tool_use_start": {"type", "id", "name"},
    "tool_use_args": {"type", "id", "delta"},
    "tool_use_end": {"type", "id"},
    "usage": {
        *("type", "input", "output", "cache_read", "cache_write", "cost_usd", "cumulative"),
        "cost_known",
    },
    "assistant_message": {"type", "content", "time"},
    "tool_call": {"type", "id", "name", "args"},
    "turn_end": {"type", "stop", "stop_reason", "error"},
    "tool_progress": {"type", "id", "text"},
    "tool_result": {"type", "id", "is_error", "content"},
    "error": {"type", "message"},
    "done": {"type"},
    "compact_start": {"type", "reason"},
    "compact_done": {"type", "summary"},
}
TURNS = [
    {
        "match": "tool please",
        "text": "looking",
        "thinking": "hm",
        "tools": [{"name": "bash", "args": {"command": "echo out"}}],
        "usage": {"input": 10, "output": 5, "cache_read": 3, "cache_write": 2},
    },
    {"match": "fail please", "error": {"status": 400, "message": "no"}},
    {"match": "<conversation>", "text": "the summary", "usage": {"input": 7, "output": 2}},
    {"text": "answer", "repeat": True},
]


@pytest.fixture
def zot(tmp_path):
    with Zot(tmp_path, TURNS) as process:
        yield process
        process.invariants()
        for frame in process.frames:
            assert frame.keys() <= FIELDS[frame["type"]], frame


def test_hello_says_who_answers(zot):
    answer = zot.ask("hello", token="whatever")
    data = answer.pop("data")
    assert answer == {"type": "response", "id": answer["id"], "command": "hello", "success": True}
    assert data.keys() == {"protocol_version", "version", "provider", "model"}
    assert data["protocol_version"] == 1
    assert (data["provider"], data["model"]) == ("scripted", "scripted")
    assert zot.ask("hello")["success"] is True


def test_a_prompt_with_a_tool_in_the_order_of_the_wire(zot):
    frames = zot.prompt("tool please")
    assert types(frames) == [
        *("response", "user_message", "turn_start", "assistant_start", "text_delta"),
        *("tool_use_start", "tool_use_args", "tool_use_end"),
        *("usage", "assistant_message", "tool_call", "turn_end", "tool_progress", "tool_result"),
        *("turn_start", "assistant_start", "text_delta", "usage", "assistant_message"),
        *("turn_end", "done"),
    ]
    assert frames[0]["data"] == {"started": True}
    assert frames[1]["content"] == [{"type": "text", "text": "tool please"}]
    assert frames[2] == {"type": "turn_start", "step": 1}
    assert frames[5] == {"type": "tool_use_start", "id": "call_1", "name": "bash"}
    assert frames[6] == {"type": "tool_use_args", "id": "call_1", "delta": '{"command":"echo out"}'}
    assert frames[7] == {"type": "tool_use_end", "id": "call_1"}
    counts = {"input": 10, "output": 5, "cache_read": 3, "cache_write": 2, "cost_usd": 0.0}
    assert frames[8] == {"type": "usage", **counts, "cumulative": counts}
    call = {"id": "call_1", "name": "bash", "args": {"command": "echo out"}}
    assert frames[9]["content"] == [
        {"type": "text", "text": "looking"},
        {"type": "tool_call", **call},
    ]
    assert frames[10] == {"type": "tool_call", **call}
    assert frames[11] == {"type": "turn_end", "stop": "tool_use", "stop_reason": "tool_use"}
    assert frames[12] == {"type": "tool_progress", "id": "call_1", "text": "out\n"}
    assert frames[13]["id"] == "call_1"
    assert frames[13]["is_error"] is False
    assert "out" in frames[13]["content"][0]["text"]
    assert frames[14] == {"type": "turn_start", "step": 2}
    assert frames[-2] == {"type": "turn_end", "stop": "end", "stop_reason": "end_turn"}
    assert frames[-1] == {"type": "done"}


def test_a_failed_call_ends_its_turn_then_says_error_then_done(zot):
    frames = zot.prompt("fail please")
    assert types(frames) == ["response", "user_message", "turn_start", "turn_end", "error", "done"]
    text = "scripted: http 400: no"
    assert frames[3] == {
        "type": "turn_end",
        "stop": "error",
        "stop_reason": "error",
        "error": text,
    }
    assert frames[4] == {"type": "error", "message": text}


def test_get_messages_shows_the_transcript(zot):
    zot.prompt("tool please", images=[{"mime_type": "image/png", "data": PIXEL}])
    messages = zot.data("get_messages")["messages"]
    assert [message["role"] for message in messages] == ["user", "assistant", "tool", "assistant"]
    assert all(message.keys() == {"role", "content", "time"} for message in messages)
    assert messages[0]["content"] == [
        {"type": "text", "text": "tool please"},
        {"type": "image", "mime_type": "image/png", "bytes": 28},
    ]
    assert messages[1]["content"][0] == {"type": "text", "text": "looking"}
    (result,) = messages[2]["content"]
    assert result.keys() == {"type", "call_id", "is_error", "content"}
    assert (result["type"], result["call_id"]) == ("tool_result", "call_1")
    assert messages[0]["time"].endswith("Z")
    part = zot.data("get_messages", offset=1, limit=2)["messages"]
    assert part == messages[1:3]
    assert zot.data("get_messages", offset=99)["messages"] == []
    assert zot.data("get_messages", limit=0)["messages"] == []


@pytest.mark.parametrize("fields", [{"offset": -1}, {"limit": -1}, {"offset": "1"}])
def test_get_messages_refuses_what_is_no_part(zot, fields):
    assert zot.ask("get_messages", **fields)["success"] is False


def test_get_state_has_the_documented_fields(zot):
    state = zot.data("get_state")
    usage = {"input": 0, "output": 0, "cache_read": 0, "cache_write": 0, "cost_usd": 0.0}
    assert state == {
        "provider": "scripted",
        "model": "scripted",
        "cwd": str(zot.cwd),
        "message_count": 0,
        "busy": False,
        "usage": usage,
    }
    zot.prompt("tool please")
    state = zot.data("get_state")
    assert state["message_count"] == 4
    assert state["usage"]["input"] == 10


def test_clear_drops_the_transcript_and_keeps_the_cost(zot):
    zot.prompt("tool please")
    answer = zot.ask("clear")
    assert answer == {
        "type": "response",
        "id": answer["id"],
        "command": "clear",
        "success": True,
    }
    assert zot.data("get_messages") == {"messages": []}
    state = zot.data("get_state")
    assert (state["message_count"], state["usage"]["input"]) == (0, 10)
    assert types(zot.prompt("again"))[-1] == "done"


def test_set_model_takes_a_model_of_the_provider_only(zot):
    assert zot.data("set_model", model="scripted") == {"model": "scripted"}
    for model in ("claude-opus-4-5", "", "nope", "x" * 10_000, "../../etc/passwd", "a\0b"):
        answer = zot.ask("set_model", model=model)
        assert answer["success"] is False
        assert "error" in answer
    assert zot.ask("set_model")["success"] is False
    assert zot.ask("set_model", model=7)["success"] is False
    assert zot.data("get_state")["model"] == "scripted"


def test_set_reasoning_takes_every_level_and_no_other(zot):
    for level in ("off", "minimum", "low", "medium", "high", "xhigh", "max"):
        assert zot.data("set_reasoning", reasoning=level) == {"reasoning": level}
    for level in ("", "LOW", "extreme", None, 3):
        assert zot.ask("set_reasoning", reasoning=level)["success"] is False
    assert zot.ask("set_reasoning")["success"] is False


def test_get_models_lists_the_models_of_the_provider(zot):
    (model,) = zot.data("get_models")["models"]
    assert model == {
        "id": "scripted",
        "provider": "scripted",
        "context_window": 200_000,
        "max_output": 8_192,
        "reasoning": True,
    }


def test_abort_when_idle_is_a_success_without_data(zot):
    answer = zot.ask("abort")
    assert answer == {"type": "response", "id": answer["id"], "command": "abort", "success": True}
    assert zot.ask("abort", target="nobody")["success"] is True
    assert zot.ask("abort", target=[1])["success"] is False
    assert types(zot.prompt("still works"))[-1] == "done"


BAD_PROMPTS = {
    "no message": {},
    "empty": {"message": ""},
    "blank": {"message": " \n\t "},
    "null": {"message": None},
    "number": {"message": 5},
    "list": {"message": ["a"]},
    "images not a list": {"message": "x", "images": {}},
    "images a string": {"message": "x", "images": "aGk="},
    "image a string": {"message": "x", "images": ["aGk="]},
    "image without data": {"message": "x", "images": [{"mime_type": "image/png"}]},
    "image without a type": {"message": "x", "images": [{"data": PIXEL}]},
    "image empty": {"message": "x", "images": [{"mime_type": "image/png", "data": ""}]},
    "bad base64": {"message": "x", "images": [{"mime_type": "image/png", "data": "!!!"}]},
    "cut base64": {"message": "x", "images": [{"mime_type": "image/png", "data": "aGkx="}]},
    "wrong type": {"message": "x", "images": [{"mime_type": "text/html", "data": PIXEL}]},
    "another type": {"message": "x", "images": [{"mime_type": "image/jpeg", "data": PIXEL}]},
    "no image": {"message": "x", "images": [{"mime_type": "image/png", "data": "aGVsbG8="}]},
    "svg": {"message": "x", "images": [{"mime_type": "image/svg+xml", "data": PIXEL}]},
    "no type at all": {"message": "x", "images": [{"mime_type": "", "data": PIXEL}]},
    "second image bad": {
        "message": "x",
        "images": [
            {"mime_type": "image/png", "data": PIXEL},
            {"mime_type": "image/png", "data": 7},
        ],
    },
}


def test_prompts_that_are_refused_leave_nothing_behind(zot):
    for name, fields in BAD_PROMPTS.items():
        answer = zot.ask("prompt", **fields)
        assert answer["success"] is False, name
        assert answer["error"].startswith("invalid_params: "), name
        assert answer["command"] == "prompt"
    for command in ("steer", "follow_up"):
        assert zot.ask(command, message=" ")["success"] is False
    assert zot.data("get_state")["message_count"] == 0
    assert zot.done_count() == 0


def test_an_image_alone_is_a_prompt(zot):
    frames = zot.prompt("", images=[{"mime_type": "image/png", "data": PIXEL}])
    assert frames[1]["content"] == [{"type": "image", "mime_type": "image/png", "bytes": 28}]
    assert zot.ask("prompt", message="x", images=None)["success"] is True


def test_compact_lives_like_a_prompt(zot):
    for number in range(4):
        zot.prompt(f"prompt {number}")
    zot.send("compact")
    frames = zot.until("done")
    assert types(frames) == ["response", "compact_start", "usage", "compact_done", "done"]
    assert frames[0]["data"] == {"started": True}
    assert frames[1] == {"type": "compact_start", "reason": "manual"}
    assert frames[3] == {"type": "compact_done", "summary": "the summary"}
    messages = zot.data("get_messages")["messages"]
    assert messages[0]["role"] == "user"
    first = "## Context Summary (compacted)\n\nthe summary"
    assert messages[0]["content"] == [{"type": "text", "text": first}]
    assert len(messages) == 5
    assert zot.data("get_state")["usage"]["input"] == 7
    assert types(zot.prompt("goes on"))[-1] == "done"


def test_a_compact_with_nothing_to_do_still_ends(zot):
    zot.send("compact")
    frames = zot.until("done")
    assert types(frames) == ["response", "compact_start", "error", "done"]
    assert "nothing to compact" in frames[2]["message"]
    assert zot.ask("compact", instructions=5)["success"] is False
