import json
from types import SimpleNamespace
from typing import get_args

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import UNSET, Raw

from zot.core import events
from zot.errors import CommandError
from zot.provider.catalog import SCRIPTED as MODEL
from zot.provider.types import (
    Cost,
    Image,
    Message,
    Reasoning,
    Text,
    ToolCall,
    ToolResult,
    Usage,
)
from zot.runtime.runtime import State
from zot.text import encode_json
from zot.wire import commands, encode, frames, shapes, zot
from zot.wire.commands import AnyCommand
from zot.wire.encode import MessageEncoder, frame, message_shape, timestamp, usage_shape
from zot.wire.frames import EventFrame
from zot.wire.zot import FEATURES

ALL = FEATURES
CALL = ToolCall("c", "bash", {"command": "ls"})
BAD_CALL = ToolCall("c", "bash", None, "{bad")
SAID = Message("user", (Text("hi"), Image("image/png", b"1234"), Reasoning("x", "api")), 0.0)
RESULT = ToolResult("c", (Text("out"), Image("image/gif", b"12")), is_error=True)
USED = Usage(1, 2, 3, 4, cost=Cost(0.25, 0.5))
TIME = "1970-01-01T00:00:00.000Z"
CONTENT = [
    {"type": "text", "text": "hi"},
    {"type": "image", "mime_type": "image/png", "bytes": 4},
]
COUNTS = {"input": 1, "output": 2, "cache_read": 3, "cache_write": 4, "cost_usd": 0.75}
PARTS = {"cost": {"input": 0.25, "output": 0.5, "cache_read": 0.0, "cache_write": 0.0}}

# Every event, as a client sees it that asked for everything, and as one that asked for nothing.
SAME = object()
EVENTS = [
    (events.UserMessage(SAID), {"type": "user_message", "content": CONTENT, "time": TIME}, SAME),
    (events.TurnStart(3), {"type": "turn_start", "step": 3}, SAME),
    (events.AssistantStart("p", "m", "a"), {"type": "assistant_start"}, SAME),
    (events.TextDelta("x"), {"type": "text_delta", "delta": "x"}, SAME),
    (events.ReasoningDelta("x"), {"type": "thinking_delta", "delta": "x"}, None),
    (events.ToolCallStart("c", "n"), {"type": "tool_use_start", "id": "c", "name": "n"}, SAME),
    (events.ToolCallArgs("c", "{"), {"type": "tool_use_args", "id": "c", "delta": "{"}, SAME),
    (events.ToolCallEnd("c"), {"type": "tool_use_end", "id": "c"}, SAME),
    (
        events.UsageReport(USED, USED),
        {"type": "usage", **COUNTS, **PARTS, "cumulative": {**COUNTS, **PARTS}},
        {"type": "usage", **COUNTS, "cumulative": COUNTS},
    ),
    (
        events.CacheMissed("tools", 900, 10, 3, "read", 1.5),
        {
            **{"type": "cache_miss", "cause": "tools", "expected": 900, "read": 10},
            **{"position": 3, "detail": "read", "seconds": 1.5},
        },
        None,
    ),
    (
        events.AssistantMessage(Message("assistant", (Text("a"), CALL, BAD_CALL), 0.0)),
        {
            "type": "assistant_message",
            "content": [
                {"type": "text", "text": "a"},
                {"type": "tool_call", "id": "c", "name": "bash", "args": {"command": "ls"}},
                {"type": "tool_call", "id": "c", "name": "bash", "args": None},
            ],
            "time": TIME,
        },
        SAME,
    ),
    (
        events.ToolCalled(CALL),
        {"type": "tool_call", "id": "c", "name": "bash", "args": {"command": "ls"}},
        SAME,
    ),
    (
        events.TurnEnd("end"),
        {"type": "turn_end", "stop": "end", "stop_reason": "end_turn"},
        SAME,
    ),
    (
        events.TurnEnd("error", "bad", "network"),
        {
            "type": "turn_end",
            "stop": "error",
            "stop_reason": "error",
            "error": "bad",
            "code": "network",
        },
        {"type": "turn_end", "stop": "error", "stop_reason": "error", "error": "bad"},
    ),
    (events.ToolStarted(CALL), None, None),
    (
        events.ToolAllowed(CALL),
        {"type": "tool_start", "id": CALL.id, "name": CALL.name, "args": CALL.args},
        None,
    ),
    (
        events.RunResumed("r", 2, 1.5, (events.OpenCall("1", "bash", True, "never"),)),
        {
            "type": "run_resumed",
            "run": "r",
            "attempt": 2,
            "away_ms": 1500,
            "open": [{"id": "1", "name": "bash", "started": True, "replay": "never"}],
        },
        SAME,
    ),
    (
        events.RunHeld("r", 3, "why"),
        {"type": "run_held", "run": "r", "attempt": 3, "reason": "why"},
        SAME,
    ),
    (events.RunSuspended("r"), {"type": "run_suspended", "run": "r"}, SAME),
    (events.ToolProgress("c", "o"), {"type": "tool_progress", "id": "c", "text": "o"}, SAME),
    (
        events.ToolReturned(CALL, RESULT, 1.0),
        {
            "type": "tool_result",
            "id": "c",
            "is_error": True,
            "content": [
                {"type": "text", "text": "out"},
                {"type": "image", "mime_type": "image/gif", "bytes": 2},
            ],
        },
        SAME,
    ),
    (
        events.ErrorRaised("bad", "limit"),
        {"type": "error", "message": "bad", "code": "limit"},
        {"type": "error", "message": "bad"},
    ),
    (events.Done("aborted"), {"type": "done"}, SAME),
    (events.CompactStart("manual"), {"type": "compact_start", "reason": "manual"}, SAME),
    (events.CompactDone("s", "manual"), {"type": "compact_done", "summary": "s"}, SAME),
    (events.CompactFailed("manual", "x"), None, None),
    (
        events.Retrying(1, 4, 0.5, "busy", "overloaded"),
        {
            **{"type": "retry", "attempt": 1, "max_attempts": 4, "delay_ms": 500},
            **{"reason": "busy", "code": "overloaded"},
        },
        None,
    ),
    (
        events.Retrying(2, 10, 1.0, "cut", "network", dropped=True),
        {
            **{"type": "retry", "attempt": 2, "max_attempts": 10, "delay_ms": 1000},
            **{"reason": "cut", "code": "network", "dropped": True},
        },
        None,
    ),
    (
        events.TurnEnd("length", again=True),
        {"type": "turn_end", "stop": "length", "stop_reason": "length"},
        SAME,
    ),
    (
        events.FellBack("a", "p", msgspec.structs.replace(MODEL, id="b"), "r"),
        {"type": "fallback", "failed_model": "a", "provider": "p", "model": "b", "reason": "r"},
        SAME,
    ),
    (
        events.QueueUpdate(("a",), ()),
        {"type": "queue_update", "steering": ["a"], "follow_up": []},
        None,
    ),
    (
        events.ApprovalRequest("r", CALL, "ls", 2.0),
        {
            "type": "approval_request",
            "request_id": "r",
            "id": "c",
            "name": "bash",
            "args": {"command": "ls"},
            "preview": "ls",
            "timeout_ms": 2000,
        },
        None,
    ),
    (
        events.ApprovalResolved("r", "c", "deny", "timeout"),
        {
            "type": "approval_resolved",
            "request_id": "r",
            "id": "c",
            "decision": "deny",
            "source": "timeout",
        },
        None,
    ),
    (
        events.ExtensionNotify("e", "info", "m"),
        {"type": "ext_notify", "extension": "e", "level": "info", "message": "m"},
        SAME,
    ),
    (
        events.ExtensionDisplay("e", "t"),
        {"type": "ext_display", "extension": "e", "text": "t"},
        SAME,
    ),
    (
        events.ExtensionPanel("e", "open", {"id": "p"}),
        {"type": "ext_panel", "extension": "e", "action": "open", "panel": {"id": "p"}},
        SAME,
    ),
    (
        events.ServerChanged("git", "failed", 2, "no program"),
        {
            "type": "mcp_server",
            "name": "git",
            "state": "failed",
            "tools": 2,
            "error": "no program",
        },
        None,
    ),
    (
        events.ExtensionAsk(
            "t", id="q", extension="e", method="select", options=("a", "b"), timeout=2.0
        ),
        {
            "type": "ext_ask",
            "request_id": "q",
            "extension": "e",
            "method": "select",
            "title": "t",
            "timeout_ms": 2000,
            "options": ["a", "b"],
        },
        None,
    ),
]


@pytest.mark.parametrize(("event", "full", "plain"), EVENTS, ids=lambda value: type(value).__name__)
def test_an_event_is_exactly_this_frame(event, full, plain):
    for features, expected in ((ALL, full), ((), full if plain is SAME else plain)):
        made = frame(event, features)
        if expected is None:
            assert made is None
            continue
        line = zot.encode(made)
        assert json.loads(line) == expected
        assert msgspec.json.decode(line, type=EventFrame) == made
        assert made.to_wire() == expected


def test_every_event_and_every_frame_is_in_the_table():
    assert {type(event) for event, _, _ in EVENTS} == set(get_args(events.Event))
    made = {type(frame(event, ALL)) for event, _, _ in EVENTS} - {type(None)}
    assert made == set(get_args(EventFrame))


def test_an_unknown_cost_is_the_only_one_mentioned():
    unknown = Usage(1, cost_known=False)
    shown = json.loads(zot.encode(frame(events.UsageReport(unknown, unknown))))
    assert shown["cost_known"] is False
    assert shown["cumulative"]["cost_known"] is False
    assert shown["cost_usd"] == 0
    assert "cost_known" not in json.loads(zot.encode(usage_shape(USED)))


def test_times_are_utc_to_the_millisecond():
    assert timestamp(0.9996) == "1970-01-01T00:00:01.000Z"
    assert timestamp(1_789_000_000.1234) == "2026-09-10T00:26:40.123Z"


def test_results_nest_in_messages():
    shape = message_shape(Message("tool", (RESULT,), 0.0))
    assert json.loads(zot.encode(shape))["content"][0] == {
        "type": "tool_result",
        "call_id": "c",
        "is_error": True,
        "content": [
            {"type": "text", "text": "out"},
            {"type": "image", "mime_type": "image/gif", "bytes": 2},
        ],
    }


@given(st.text(max_size=50))
def test_the_least_size_is_never_more_than_the_real_one(text):
    said = (Message("user", (Text(text), RESULT), 0.0), Message("tool", (RESULT,), 0.0))
    encoder = MessageEncoder()
    whole = encode_json(shapes.Messages(tuple(map(message_shape, said))))
    assert encoder.least_size(said) <= len(whole)
    incoming = zot.decode(b'{"type":"get_messages","id":7}')
    line = zot.encode(zot.success(incoming, shapes.Messages(tuple(map(message_shape, said)))))
    for _ in range(2):
        assert zot.success_in_pieces(incoming, encoder.answer(said)) == line
        assert encoder.least_size(said) <= len(whole)


# --- lines to commands -------------------------------------------------------------------------


@given(st.binary(max_size=80))
def test_no_bytes_make_it_raise(line):
    incoming = zot.decode(line)
    assert (incoming.command is None) == (incoming.error is not None)


fields = st.dictionaries(
    st.sampled_from(["id", "type", "message", "images", "model", "features", "token", "offset"]),
    st.recursive(
        st.none() | st.booleans() | st.integers() | st.text(max_size=5) | st.floats(),
        lambda inner: st.lists(inner, max_size=2) | st.dictionaries(st.text(max_size=3), inner),
        max_leaves=4,
    )
    | st.sampled_from(sorted(commands.BY_NAME)),
)


@pytest.mark.untraced
@given(fields)
def test_any_object_is_a_command_or_says_what_is_wrong_and_keeps_its_id(value):
    incoming = zot.decode(json.dumps(value).encode())
    answer = (
        zot.success(incoming)
        if incoming.command is not None
        else zot.failure(incoming, incoming.error, codes=True)
    )
    shown = json.loads(zot.encode(answer))
    assert shown["type"] == "response"
    assert shown["success"] is (incoming.command is not None)
    id = value.get("id")
    if "id" in shown:
        assert shown["id"] == id
        assert type(shown["id"]) is type(id)
    elif incoming.command is not None:
        assert id in (None, "")


def test_every_command_has_its_word():
    assert {each.__struct_config__.tag for each in get_args(AnyCommand)} == set(commands.BY_NAME)
    assert {"hello", "prompt", "abort", "compact", "ping"} <= set(commands.BY_NAME)


def test_frames_are_stamped_without_being_parsed():
    line = zot.encode(frames.Done())
    assert json.loads(zot.stamped(line, 7, UNSET)) == {"type": "done", "seq": 7}
    assert json.loads(zot.stamped(line, 8, Raw(b'"a"'))) == {
        "type": "done",
        "seq": 8,
        "prompt_id": "a",
    }
    assert zot.stamped(line, 9, Raw(b"5")).endswith(b"}\n")


def test_codes_are_only_for_who_asked():
    incoming = zot.decode(b'{"id":1,"type":"fly"}')
    error = CommandError("x", code="y")
    assert "code" not in json.loads(zot.encode(zot.failure(incoming, error)))
    assert json.loads(zot.encode(zot.failure(incoming, error, codes=True)))["code"] == "y"


@pytest.mark.parametrize(
    ("line", "code"),
    [
        (b"{}", "unknown_command"),
        (b'{"type":7}', "invalid_params"),
        (b'{"type":"ping","type":"abort"}', "invalid_params"),
        (b'{"type":"fly"}', "unknown_command"),
        (b'{"type":"ping","id":{}}', "invalid_params"),
        (b'{"type":"ping","id":"\\ud800"}', "invalid_params"),
        (b'{"type":"ping","id":"' + b"x" * 300 + b'"}', "id_too_long"),
        (b'{"type":"ping","x":' + b"1" * 4400 + b"}", "invalid_params"),
        (b"[]", "parse_error"),
        (b"{", "parse_error"),
        (b"[" * 5000, "parse_error"),
        (b'"\xff"', "parse_error"),
    ],
)
def test_what_is_wrong_has_a_word(line, code):
    assert zot.decode(line).error.code == code


def test_long_lines_without_long_numbers_are_fine():
    line = b'{"type":"ping","x":"' + b"1" * 5000 + b'","y":"' + b"a" * 5000 + b'"}'
    assert zot.decode(line).error is None


def test_replies_are_what_the_runtime_knows():
    state = State("p", MODEL, "/w", 3, True, 0, USED, 9, "off", "s")
    runtime = SimpleNamespace(state=lambda: state)
    assert json.loads(zot.encode(encode.state(runtime)))["message_count"] == 3
    assert encode.models([MODEL])[0].id == "scripted"


@pytest.mark.parametrize("before", [0, 1, 137, 399, 400, 5000])
def test_a_long_number_is_found_wherever_it_stands(before):
    line = b'{"type":"ping","a":"' + b"a" * before + b'","x":' + b"1" * 4301 + b"}"
    assert zot.decode(line).error.code == "invalid_params"
    assert zot.decode(line.replace(b"1" * 4301, b"1" * 4299)).error is None


@pytest.mark.parametrize(
    ("line", "says"),
    [
        (b'{"type":"set_reasoning","reasoning":"x"}', "at `$.reasoning`: use off, minimum, low,"),
        (b'{"type":"approve","request_id":"a","decision":"x"}', ": use allow, deny, allow_session"),
        (b'{"type":"set_messages","messages":[{"role":"x"}]}', "at `$.messages[0].role`"),
    ],
)
def test_a_word_that_a_field_does_not_take_is_answered_with_those_it_takes(line, says):
    error = zot.decode(line).error
    assert says in str(error)
    assert error.code == "invalid_params"


@pytest.mark.parametrize("mark", ["\u2028", "\u2029", "\u0085"])
def test_an_id_that_some_readers_would_split_is_echoed_escaped(mark):
    line = json.dumps({"id": f"a{mark}b", "type": "ping"}, ensure_ascii=False).encode()
    answer = zot.encode(zot.success(zot.decode(line)))
    assert mark.encode() not in answer
    assert json.loads(answer)["id"] == f"a{mark}b"
