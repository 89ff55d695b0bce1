import json
import sys
from itertools import groupby
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from zot.client import Client
from zot.observe import Observer, Status, normalize
from zot.observe.tables import TABLE as READERS

DATA = Path(__file__).parent / "data"
ZOT = str(Path(sys.executable).parent / "zot")

TABLE = {
    "response": None,
    "user_message": "message_update",
    "turn_start": "turn_start",
    "assistant_start": "message_start",
    "text_delta": "message_update",
    "tool_use_start": "tool_execution_start",
    "tool_use_args": "tool_execution_update",
    "tool_use_end": "tool_execution_update",
    "usage": None,
    "assistant_message": "message_end",
    "tool_call": None,
    "tool_progress": "tool_execution_update",
    "tool_result": "tool_execution_end",
    "turn_end": "turn_end",
    "error": "error",
    "done": "agent_end",
}


class Clock:
    def __init__(self):
        self.now = 100.0

    def __call__(self):
        return self.now


def recorded(name):
    return [json.loads(line) for line in (DATA / name).read_text().splitlines()]


def without_repeats(words):
    return [word for word, _ in groupby(words)]


# --- normalize -------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", sorted(TABLE))
def test_each_frame_of_zot_is_one_lifecycle_event_or_none(kind):
    assert normalize({"type": kind}) == TABLE[kind]
    assert normalize(json.dumps({"type": kind})) == TABLE[kind]
    assert normalize(json.dumps({"type": kind}).encode()) == TABLE[kind]


@pytest.mark.parametrize(
    "kind",
    ["agent_start", "turn_start", "message_start", "message_update", "message_end"]
    + ["tool_execution_start", "tool_execution_update", "tool_execution_end"]
    + ["turn_end", "agent_end"],
)
def test_events_of_pi_pass_through(kind):
    assert normalize({"type": kind}) == kind


@pytest.mark.parametrize(
    "frame", [b"", b"nonsense", b"[]", b"7", {}, {"type": 7}, {"type": "mood"}, b"[" * 99_999]
)
def test_what_is_no_frame_or_unknown_is_nothing(frame):
    assert normalize(frame) is None


def test_the_recorded_run_that_was_refused():
    states = [normalize(frame) for frame in recorded("refused.jsonl")]
    assert states == [None, "message_update", "turn_start", "turn_end", "error", "agent_end"]


def test_the_recorded_run_with_a_tool_call():
    frames = recorded("tool_call.jsonl")
    assert len(frames) == 61
    assert {frame["type"] for frame in frames} == set(TABLE) - {"error"}
    assert without_repeats(normalize(frame) for frame in frames) == [
        None,
        "message_update",
        "turn_start",
        "message_start",
        "tool_execution_start",
        "tool_execution_update",
        None,
        "message_end",
        None,
        "turn_end",
        "tool_execution_update",
        "tool_execution_end",
        "turn_start",
        "message_start",
        "message_update",
        None,
        "message_end",
        "turn_end",
        "agent_end",
    ]
    starts = [frame for frame in frames if normalize(frame) == "tool_execution_start"]
    assert len(starts) == 1


@pytest.mark.parametrize("name", ["refused.jsonl", "tool_call.jsonl"])
def test_the_client_reads_the_recorded_runs(name):
    frames = recorded(name)
    # A server that answers any command with the recording; the id of the first is also "1".
    code = f"import sys\nsys.stdin.readline()\nsys.stdout.write(open({str(DATA / name)!r}).read())"
    with Client([sys.executable, "-c", code]) as client:
        events = list(client.prompt("anything"))
    assert [event.to_wire()["type"] for event in events] == [f["type"] for f in frames[1:]]
    states = [normalize(event.to_wire()) for event in events]
    assert states == [normalize(frame) for frame in frames[1:]]


def own_stream(tmp_path, turns):
    script = tmp_path / "script.json"
    script.write_text(json.dumps({"turns": turns}))
    flags = ["--provider", "scripted", "--script", str(script), "--no-ext"]
    with Client([ZOT, "rpc", *flags], cwd=tmp_path) as client:
        return [{"type": "response"}, *(event.to_wire() for event in client.prompt("go"))]


def test_our_own_stream_of_the_refused_run_has_the_same_types_in_the_same_order(tmp_path):
    ours = own_stream(tmp_path, [{"error": {"status": 401, "message": "..."}}])
    assert [f["type"] for f in ours] == [f["type"] for f in recorded("refused.jsonl")]


def test_our_own_stream_of_the_tool_run_has_the_same_types_in_the_same_order(tmp_path):
    call = {"name": "bash", "args": {"command": "uname -a"}}
    ours = own_stream(tmp_path, [{"tools": [call]}, {"text": ["This", " system"]}])
    theirs = recorded("tool_call.jsonl")
    assert without_repeats(f["type"] for f in ours) == without_repeats(f["type"] for f in theirs)


# --- the state machine -----------------------------------------------------------------------


def states_of(frames):
    clock = Clock()
    observer = Observer(clock)
    seen = [observer.status().state]
    for frame in frames:
        clock.now += 1
        observer.feed(frame)
        seen.append(observer.status().state)
    return without_repeats(seen), observer.status()


def test_the_states_of_the_run_with_a_tool_call():
    states, last = states_of(recorded("tool_call.jsonl"))
    assert states == ["idle", "thinking", "tool", "thinking", "idle"]
    assert (last.turns, last.tool_calls, last.cost_usd) == (2, 1, 0.0009)


def test_the_states_of_the_run_that_was_refused():
    states, last = states_of(recorded("refused.jsonl"))
    assert states == ["idle", "thinking", "failed"]
    assert last.error == "deepseek: http 401: ..."


def test_a_running_tool_says_which_and_for_how_long():
    clock = Clock()
    observer = Observer(clock)
    observer.feed({"type": "tool_use_start", "id": "1", "name": "bash"})
    observer.feed({"type": "tool_use_start", "id": "2", "name": "read"})
    assert observer.status().state == "idle"  # the model only writes the call
    observer.feed({"type": "turn_end", "stop": "tool_use"})
    clock.now += 7
    assert (observer.status().tool, observer.status().seconds) == ("bash", 7.0)
    observer.feed({"type": "tool_result", "id": "1"})
    assert (observer.status().tool, observer.status().seconds) == ("read", 0.0)
    observer.feed({"type": "tool_result", "id": "2"})
    assert observer.status().state == "thinking"
    assert observer.status().tool == ""


def test_a_tool_that_is_told_twice_is_one_call():
    observer = Observer()
    for _ in range(2):
        observer.feed({"type": "tool_use_start", "id": "1", "name": "bash"})
    assert observer.status().tool_calls == 1


def test_calls_of_a_void_answer_are_no_calls():
    observer = Observer()
    for frame in (
        {"type": "turn_start", "step": 1},
        {"type": "tool_use_start", "id": "1", "name": "bash"},
        {"type": "retry", "reason": "cut", "dropped": True},
        {"type": "turn_end", "stop": "length"},
        {"type": "turn_start", "step": 1},
        {"type": "turn_end", "stop": "end"},
        {"type": "done"},
    ):
        observer.feed(frame)
    status = observer.status()
    assert status.tool_calls == 0
    assert status.state == "idle"


def test_an_error_that_the_run_gets_over_is_forgotten():
    observer = Observer()
    for kind in ("turn_start", "error", "turn_start", "turn_end", "done"):
        observer.feed({"type": kind, "message": "compaction failed", "stop": "end"})
    assert observer.status().state == "idle"


def test_waiting_says_for_what():
    observer = Observer()
    observer.feed({"type": "turn_start", "step": 1})
    observer.feed({"type": "retry", "reason": "http 503"})
    assert observer.status().waiting_for == "a retry: http 503"
    observer.feed({"type": "assistant_start"})
    assert observer.status().state == "thinking"
    observer.feed({"type": "turn_end", "stop": "tool_use"})
    assert observer.status().waiting_for == "a tool"
    observer.feed({"type": "approval_request", "name": "bash"})
    assert observer.status().waiting_for == "approval of bash"
    observer.feed({"type": "approval_resolved"})
    assert observer.status().state == "thinking"
    observer.feed({"type": "extension_ui_request"})
    assert observer.status().waiting_for == "an answer of the user"


def test_a_tool_goes_on_after_turn_end_and_approval():
    observer = Observer()
    observer.feed({"type": "tool_use_start", "id": "1", "name": "bash"})
    observer.feed({"type": "approval_request", "name": "bash"})
    observer.feed({"type": "approval_resolved"})
    assert observer.status().state == "tool"
    observer.feed({"type": "turn_end", "stop": "tool_use"})
    assert observer.status().state == "tool"


def test_a_price_that_is_not_known_is_said():
    observer = Observer()
    observer.feed({"type": "usage", "cumulative": {"cost_usd": 0, "cost_known": False}})
    assert observer.status().cost_known is False


def test_a_run_of_pi():
    cost = {"role": "assistant", "usage": {"cost": {"total": 0.25}}}
    frames = [
        {"type": "agent_start"},
        {"type": "turn_start"},
        {"type": "message_start", "message": {"role": "assistant"}},
        {"type": "message_end", "message": cost},
        {"type": "tool_execution_start", "toolCallId": "1", "toolName": "bash"},
        {"type": "tool_execution_update", "toolCallId": "1"},
        {"type": "tool_execution_end", "toolCallId": "1"},
        {"type": "turn_end"},
        {"type": "message_end", "message": cost},
        {"type": "agent_end"},
    ]
    states, last = states_of(frames)
    assert states == ["idle", "thinking", "tool", "thinking", "idle"]
    assert (last.cost_usd, last.tool_calls) == (0.5, 1)


def fed(*frames, clock=None):
    observer = Observer(clock or Clock())
    for frame in frames:
        observer.feed(frame)
    return observer


CALL = {"type": "tool_use_start", "id": "1", "name": "bash"}
ASK = {"type": "approval_request", "request_id": "q", "id": "1", "name": "bash"}


def test_the_clock_of_a_tool_does_not_count_the_approval():
    clock = Clock()
    observer = fed(CALL, {"type": "turn_end", "stop": "tool_use"}, clock=clock)
    observer.feed({**ASK, "preview": "rm -r build", "timeout_ms": 60_000})
    clock.now += 40
    (question,) = observer.status().questions
    assert (question.id, question.preview) == ("q", "rm -r build")
    assert (question.asked_seconds, question.left_seconds) == (40.0, 20.0)
    observer.feed({"type": "approval_resolved", "request_id": "q", "decision": "allow"})
    clock.now += 2
    status = observer.status()
    assert (status.state, status.seconds, status.questions) == ("tool", 2.0, ())


def test_a_frame_that_says_when_a_tool_starts_is_believed():
    clock = Clock()
    observer = fed(CALL, {"type": "turn_end", "stop": "tool_use"}, clock=clock)
    observer.feed({"type": "tool_use_start", "id": "2", "name": "read"})
    observer.feed({"type": "tool_start", "id": "2"})
    observer.feed({"type": "tool_result", "id": "1"})
    clock.now += 3
    assert (observer.status().tool, observer.status().seconds) == ("read", 3.0)


def test_a_dialog_of_an_extension_is_waiting_until_the_run_goes_on():
    ask = {"type": "ext_ask", "request_id": "d", "method": "select", "title": "Which?"}
    observer = fed({"type": "turn_start"}, CALL, {**ask, "options": ["a", "b"]})
    assert (observer.status().state, observer.status().waiting_for) == ("waiting", "Which?")
    assert observer.status().questions[0].options == ("a", "b")
    observer.feed({"type": "tool_progress", "id": "1", "text": "still there"})
    assert observer.status().waiting_kind == "answer"
    observer.feed({"type": "tool_result", "id": "1"})
    assert (observer.status().state, observer.status().questions) == ("thinking", ())


def test_a_compact_is_not_idle():
    observer = fed({"type": "compact_start", "reason": "manual"})
    assert observer.status().state == "compacting"
    observer.feed({"type": "compact_done", "summary": "..."})
    observer.feed({"type": "done"})
    assert (observer.status().state, observer.status().compactions) == ("idle", 1)


@pytest.mark.parametrize(
    ("frames", "outcome"),
    [
        ([{"type": "turn_end", "stop": "end"}], "answered"),
        ([{"type": "turn_end", "stop": "aborted"}], "aborted"),
        ([{"type": "error", "message": "no"}], "failed"),
        ([{"type": "error", "message": "enough", "code": "limit"}], "limit"),
    ],
)
def test_how_a_run_ended_is_kept_until_the_next_begins(frames, outcome):
    observer = fed({"type": "turn_start"}, *frames, {"type": "done"})
    assert observer.status().outcome == outcome
    observer.feed({"type": "user_message", "content": []})
    assert observer.status().outcome == ""


def test_a_stream_that_stops_in_a_run_leaves_the_agent_gone():
    observer = fed({"type": "turn_start"}, ASK)
    observer.end("exit code -9")
    status = observer.status()
    assert (status.state, status.error, status.questions) == ("gone", "exit code -9", ())


def test_a_stream_that_stops_after_its_run_leaves_the_agent_as_it_was():
    observer = fed({"type": "turn_start"}, {"type": "done"})
    observer.end()
    assert observer.status().state == "idle"


def test_a_run_that_another_process_goes_on_with_has_nothing_open():
    observer = fed({"type": "turn_start"}, CALL, ASK)
    observer.feed({"type": "run_resumed", "run": "r", "attempt": 2, "away_ms": 5, "open": []})
    assert (observer.status().state, observer.status().questions) == ("thinking", ())


def test_a_silent_model_is_marked_and_a_silent_tool_is_not():
    clock = Clock()
    observer = fed({"type": "turn_start"}, clock=clock)
    clock.now += 121
    assert (observer.status().state, observer.status().stalled) == ("thinking", True)
    observer.feed(CALL)
    observer.feed({"type": "turn_end", "stop": "tool_use"})
    clock.now += 1000
    status = observer.status()
    assert (status.state, status.stalled, status.silent_seconds) == ("tool", False, 1000.0)


def test_tokens_and_context_and_the_model():
    sums = {"input": 30, "output": 8, "cache_read": 50, "cost_usd": 0.5}
    usage = {"type": "usage", "input": 10, "output": 3, "cache_read": 50, "cumulative": sums}
    state = {"type": "response", "success": True, "command": "get_state"}
    observer = fed({**state, "data": {"model": "large"}}, usage)
    status = observer.status()
    assert (status.input_tokens, status.output_tokens, status.cache_read_tokens) == (30, 8, 50)
    assert (status.context_tokens, status.cost_usd, status.model) == (63, 0.5, "large")
    observer.feed({"type": "fallback", "failed_model": "large", "model": "small"})
    assert observer.status().model == "small"


def test_pi_tells_aborts_failures_and_compactions():
    aborted = {"role": "assistant", "stopReason": "aborted", "model": "m"}
    observer = fed({"type": "agent_start"}, {"type": "message_end", "message": aborted})
    observer.feed({"type": "agent_end"})
    assert (observer.status().outcome, observer.status().model) == ("aborted", "m")
    broken = {"role": "assistant", "stopReason": "error", "errorMessage": "http 500"}
    observer.feed({"type": "message_end", "message": broken})
    observer.feed({"type": "agent_end"})
    assert (observer.status().outcome, observer.status().error) == ("failed", "http 500")
    observer.feed({"type": "compaction_start"})
    assert observer.status().state == "compacting"
    observer.feed({"type": "extension_ui_request", "id": "u", "method": "notify"})
    assert observer.status().state == "compacting"  # it only tells
    observer.feed({"type": "extension_ui_request", "id": "u", "method": "confirm", "title": "Go?"})
    assert observer.status().waiting_for == "Go?"


def claude(kind, *blocks, **message):
    return {"type": kind, "message": {"content": list(blocks), **message}}


def test_a_run_of_claude_code():
    use = {"type": "tool_use", "id": "t", "name": "Bash", "input": {"command": "ls"}}
    result = {"type": "tool_result", "tool_use_id": "t", "content": "a b", "is_error": False}
    used = {"input_tokens": 10, "output_tokens": 2, "cache_read_input_tokens": 100}
    end = {"type": "result", "subtype": "success", "is_error": False, "total_cost_usd": 0.25}
    states, last = states_of(
        [
            {"type": "system", "subtype": "init", "model": "claude"},
            claude("assistant", {"type": "text", "text": "Looking."}, id="m1", usage=used),
            claude("assistant", use, id="m1", usage=used),
            claude("user", result),
            claude("assistant", {"type": "text", "text": "Two."}, id="m2", usage=used),
            end,
        ]
    )
    assert states == ["idle", "thinking", "tool", "thinking", "idle"]
    assert (last.turns, last.tool_calls, last.input_tokens) == (2, 1, 20)
    assert (last.cost_usd, last.outcome, last.model) == (0.25, "answered", "claude")
    assert last.context_tokens == 112


def test_claude_code_that_came_to_its_limit():
    end = {"type": "result", "subtype": "error_max_turns", "is_error": True}
    status = fed(claude("user", {"type": "text", "text": "go"}), end).status()
    assert (status.state, status.outcome, status.error) == ("failed", "limit", "error max turns")


def codex(kind, **item):
    return {"type": f"item.{kind}", "item": item}


def test_a_run_of_codex():
    command = {"id": "i1", "type": "command_execution", "command": "ls"}
    used = {"input_tokens": 100, "cached_input_tokens": 60, "output_tokens": 5}
    states, last = states_of(
        [
            {"type": "thread.started", "thread_id": "t"},
            {"type": "turn.started"},
            codex("completed", id="i0", type="reasoning", text="hm"),
            codex("started", **command, status="in_progress"),
            codex("completed", **command, status="completed", aggregated_output="a"),
            codex("completed", id="i2", type="agent_message", text="One."),
            {"type": "turn.completed", "usage": used},
        ]
    )
    assert states == ["idle", "thinking", "tool", "thinking", "idle"]
    assert (last.turns, last.tool_calls, last.outcome) == (1, 1, "answered")
    assert (last.input_tokens, last.cache_read_tokens, last.cost_known) == (40, 60, False)


def test_a_turn_of_codex_that_failed():
    failed = {"type": "turn.failed", "error": {"message": "stream cut"}}
    status = fed({"type": "turn.started"}, failed).status()
    assert (status.state, status.error, status.outcome) == ("failed", "stream cut", "failed")


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(st.text(max_size=5), inner),
    max_leaves=4,
)
KINDS = st.sampled_from([*TABLE, *READERS])
FIELDS = st.sampled_from(
    ["id", "name", "stop", "error", "cumulative", "message", "reason", "content", "item", "data"]
    + ["usage", "subtype", "event", "request_id", "result", "options", "timeout_ms", "success"]
)


@pytest.mark.untraced
@given(st.lists(st.tuples(KINDS, st.dictionaries(FIELDS, JSON, max_size=3)), max_size=20))
def test_no_stream_breaks_the_observer(frames):
    observer = Observer()
    for kind, fields in frames:
        observer.feed({**fields, "type": kind})
        status = observer.status()
        assert isinstance(status, Status)
        assert status.seconds >= 0
        assert (status.state == "waiting") == bool(status.waiting_kind)
