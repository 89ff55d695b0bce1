"""Queueing, aborting and steering: every accepted run ends in exactly one done."""

import json

import pytest
from support.rpc import Zot, rss_megabytes, texts, types

SLOW = {"match": "slow", "text": ["a"] * 2000, "delay_ms": 5, "repeat": True}
BASH = {"match": "bash", "tools": [{"name": "bash", "args": {"command": "sleep 30"}}]}
BATCH = {
    "match": "batch",
    "tools": [
        {"name": "bash", "args": {"command": "sleep 30"}},
        {"name": "write", "args": {"path": "after-abort.txt", "content": "x"}},
    ],
}
BUSY = {"match": "retry", "error": {"status": 503, "message": "busy", "retry_after": 30}}
QUICK = {"text": "ok", "usage": {"input": 3, "output": 1}, "repeat": True}
TURNS = [SLOW, BASH, BATCH, BUSY, QUICK]


@pytest.fixture(scope="module")
def zot(tmp_path_factory):
    with Zot(tmp_path_factory.mktemp("runs"), TURNS) as process:
        yield process


@pytest.fixture(autouse=True)
def settled(request):
    yield
    if "zot" in request.fixturenames:
        request.getfixturevalue("zot").invariants()


def run(folder, turns, **options):
    return Zot(folder, turns, **options)


# --- queueing ----------------------------------------------------------------------------------


def test_a_second_prompt_is_acknowledged_at_once_and_waits(zot):
    zot.send("prompt", message="slow", id="first")
    zot.until("text_delta")
    assert zot.ask("prompt", message="quick", id="second")["data"] == {"started": True, "queued": 1}
    assert zot.ask("compact", id="third")["data"] == {"started": True, "queued": 2}
    state = zot.data("get_state")
    assert state["busy"] is True
    zot.ask("abort")
    # The answer to the abort may come between any two frames of what it sets going.
    first, second, third = (
        [frame for frame in zot.until("done") if frame["type"] != "response"] for _ in range(3)
    )
    assert first[-2]["stop"] == "aborted"
    assert texts(second) == "ok"
    assert types(third)[0] == "compact_start"
    assert zot.data("get_state")["busy"] is False


def test_what_changes_the_agent_is_refused_while_it_is_busy(zot):
    zot.send("prompt", message="slow")
    zot.until("text_delta")
    before = zot.data("get_messages")
    for command, fields in (
        ("clear", {}),
        ("set_model", {"model": "scripted"}),
        ("set_reasoning", {"reasoning": "low"}),
    ):
        answer = zot.ask(command, **fields)
        assert answer["success"] is False
        assert "agent is busy" in answer["error"]
    assert zot.data("get_messages") == before
    assert len(zot.data("get_models")["models"]) == 1
    assert zot.ask("hello")["success"] is True
    zot.ask("abort")
    zot.until("done")
    assert zot.ask("clear")["success"] is True


def test_clear_sent_right_after_done_is_never_refused(zot):
    for _ in range(30):
        zot.prompt("quick")
        assert zot.ask("clear")["success"] is True


@pytest.mark.slow
def test_ten_thousand_prompts_fill_the_queue_and_not_the_memory(tmp_path):
    with run(tmp_path, TURNS) as zot:
        zot.send("prompt", message="slow")
        zot.until("text_delta")
        lines = (
            b'{"id":%d,"type":"prompt","message":"quick %s"}\n' % (n, b"x" * 500)
            for n in range(10_000)
        )
        zot.write(b"".join(lines))
        zot.wait(lambda: len(zot.answers()) == 10_001, "10,000 answers", 60)
        refused = [frame for frame in zot.answers() if not frame["success"]]
        accepted = [frame for frame in zot.answers() if frame["success"]]
        assert len(accepted) == 256
        assert accepted[-1]["data"] == {"started": True, "queued": 255}
        assert all(frame["error"].startswith("queue_full: ") for frame in refused)
        assert rss_megabytes(zot.process.pid) < 200
        zot.ask("abort")
        zot.invariants()
        assert zot.done_count() == 256


def test_large_prompts_fill_the_queue_by_their_size(tmp_path):
    with run(tmp_path, TURNS) as zot:
        zot.send("prompt", message="slow")
        zot.until("text_delta")
        large = json.dumps({"type": "prompt", "message": "y" * 15_000_000}).encode() + b"\n"
        for _ in range(5):
            zot.write(large)
        zot.wait(lambda: len(zot.answers()) == 6, "all answers", 60)
        assert [frame["success"] for frame in zot.answers()] == [True] * 5 + [False]
        zot.signal(15)
        assert zot.finish()[0] == 143


# --- abort -------------------------------------------------------------------------------------


def test_prompt_and_abort_in_one_write_end_in_one_done_each(zot):
    before, others = zot.done_count(), len(zot.frames)
    zot.write(b'{"type":"prompt","message":"quick"}\n{"type":"abort"}\n' * 60)
    zot.wait(lambda: zot.done_count() == before + 60, "60 done")
    ends = [frame for frame in zot.frames[others:] if frame["type"] == "turn_end"]
    assert {frame["stop"] for frame in ends} <= {"aborted", "end"}


def test_abort_in_the_stream_keeps_what_was_said(zot):
    zot.send("prompt", message="slow")
    zot.until("text_delta")
    zot.until("text_delta")
    zot.send("abort")
    frames = [frame for frame in zot.until("done") if frame["type"] != "response"]
    assert types(frames)[-3:] == ["assistant_message", "turn_end", "done"]
    assert frames[-2]["stop"] == "aborted"
    assert frames[-2]["stop_reason"] == "aborted"
    assert "error" not in types(frames)
    said = zot.data("get_messages")["messages"][-1]
    assert said["role"] == "assistant"
    assert set(said["content"][0]["text"]) == {"a"}
    assert texts(zot.prompt("quick")) == "ok"


def test_abort_in_a_tool_runs_nothing_of_the_batch(zot):
    zot.send("prompt", message="batch")
    zot.until("turn_end")
    zot.send("abort")
    frames = [frame for frame in zot.until("done") if frame["type"] != "response"]
    results = [frame for frame in frames if frame["type"] == "tool_result"]
    assert [frame["is_error"] for frame in results] == [True, True]
    assert "not run" in results[1]["content"][0]["text"]
    assert frames[-2]["type"] == "turn_end"
    assert frames[-2]["stop"] == "aborted"
    assert not (zot.cwd / "after-abort.txt").exists()
    assert texts(zot.prompt("quick")) == "ok"


def test_busy_stays_true_until_done(zot):
    zot.send("prompt", message="slow")
    zot.until("text_delta")
    zot.write(b'{"type":"abort"}\n{"id":"after","type":"get_state"}\n')
    state = zot.answer("after")
    zot.until("done")
    done = max(n for n, frame in enumerate(zot.frames) if frame["type"] == "done")
    assert state["data"]["busy"] is (zot.frames.index(state) < done)


def test_abort_by_id_takes_the_one_that_is_named(zot):
    zot.send("prompt", message="slow", id="one")
    zot.until("text_delta")
    zot.send("prompt", message="quick", id=2)
    zot.send("prompt", message="quick", id="d\u00e9j\u00e0")
    zot.write(b'{"type":"abort","target":2}\n{"type":"abort","target":"d\\u00e9j\\u00e0"}\n')
    zot.ask("ping")
    assert zot.data("get_state")["busy"] is True
    assert zot.ask("abort", target="one")["success"] is True
    first, second, third = zot.until("done"), zot.until("done"), zot.until("done")
    # The answer to the abort may come between the two.
    assert [frame for frame in first if frame["type"] != "response"][-2]["stop"] == "aborted"
    for frames in (second, third):
        ours = [frame for frame in frames if frame["type"] != "response"]
        assert types(ours) == ["turn_end", "done"]
        assert ours[0]["stop"] == "aborted"


MOMENTS = {
    "before anything": ("quick", None),
    "in the stream": ("slow", "text_delta"),
    "after the first step": ("bash", "tool_call"),
    "in a tool": ("bash", "turn_end"),
    "in a retry pause": ("retry", "retry"),
}


@pytest.mark.parametrize(("message", "moment"), MOMENTS.values(), ids=MOMENTS)
def test_abort_at_any_moment_ends_with_aborted_and_the_next_prompt_works(tmp_path, message, moment):
    with run(tmp_path, TURNS, features=["retries"]) as zot:
        if moment is None:
            zot.write(b'{"type":"prompt","message":"quick"}\n{"type":"abort"}\n')
        else:
            zot.send("prompt", message=message)
            zot.until(moment)
            zot.send("abort")
        frames = zot.until("done")
        last = [frame for frame in frames if frame["type"] == "turn_end"][-1]
        assert last["stop"] == "aborted" or moment is None
        assert texts(zot.prompt("quick")) == "ok"
        zot.invariants()
        assert zot.close()[0] == 0


def test_an_abort_that_races_with_the_end_gives_one_end(zot):
    for frames_before in [*range(9)] * 4:
        zot.invariants()
        start = len(zot.frames)
        zot.send("prompt", message="quick")
        zot.wait(lambda start=start, count=frames_before: len(zot.frames) >= start + count)
        zot.send("abort")
        ends = [frame for frame in zot.until("done") if frame["type"] == "turn_end"]
        assert [end["stop"] for end in ends] in (["end"], ["aborted"])


def test_abort_of_a_compaction_ends_it_and_changes_nothing(tmp_path):
    slow = {"match": "<conversation>", "text": ["s"] * 2000, "delay_ms": 5}
    with run(tmp_path, [slow, QUICK]) as zot:
        for _ in range(4):
            zot.prompt("quick")
        before = zot.data("get_messages")
        zot.send("compact")
        zot.until("compact_start")
        zot.send("abort")
        frames = [frame for frame in zot.until("done") if frame["type"] != "response"]
        assert types(frames) == ["turn_end", "done"]
        assert frames[0]["stop"] == "aborted"
        assert zot.data("get_messages") == before
        zot.invariants()


def test_two_aborts_hit_one_run_only(zot):
    zot.send("prompt", message="slow")
    zot.until("text_delta")
    zot.send("prompt", message="quick", id="next")
    zot.write(b'{"type":"abort"}\n')
    zot.until("done")
    frames = zot.until("done")
    assert texts(frames) == "ok"


# --- features ----------------------------------------------------------------------------------


def test_hello_answers_with_the_features_that_are_supported(tmp_path):
    with run(tmp_path, TURNS) as zot:
        asked = ["thinking", "seq", "retries", "queue", "codes", "approvals", "telepathy"]
        data = zot.data("hello", features=asked)
        assert data["features"] == ["approvals", "codes", "queue", "retries", "seq", "thinking"]
        assert zot.data("hello", features=[])["features"] == []
        assert "features" not in zot.data("hello")
        for bad in ("seq", [1], {"seq": True}, 7):
            assert zot.ask("hello", features=bad)["success"] is False


def test_thinking_is_shown_to_who_asked(tmp_path):
    turns = [{"thinking": ["hm ", "so"], "text": "x", "repeat": True}]
    with run(tmp_path, turns) as zot:
        assert "thinking_delta" not in types(zot.prompt())
        zot.ask("hello", features=["thinking"])
        frames = zot.prompt()
        assert [f["delta"] for f in frames if f["type"] == "thinking_delta"] == ["hm ", "so"]
        assert frames[-3]["content"] == [{"type": "text", "text": "x"}]
        zot.invariants()


def test_every_frame_has_a_rising_seq_and_the_id_of_its_prompt(tmp_path):
    with run(tmp_path, TURNS, features=["seq"]) as zot:
        zot.prompt("quick", id="p")
        zot.prompt("quick", id=7)
        zot.prompt("quick", id="a\u2028b")
        zot.write(b'{"type":"prompt","message":"quick"}\n')
        zot.until("done")
        zot.ask("ping", id="x")
        zot.ask("nope", id="y")
        assert [frame["seq"] for frame in zot.frames] == list(range(1, len(zot.frames) + 1))
        tagged = [frame.get("prompt_id") for frame in zot.frames]
        assert set(tagged) == {None, "p", 7, "a\u2028b"}
        first = [frame for frame in zot.frames if frame.get("prompt_id") == "p"]
        assert types(first)[0] == "response"
        assert types(first)[-1] == "done"
        assert "prompt_id" not in zot.answer("x")
        zot.invariants()


def test_retries_are_told_to_who_asked(tmp_path):
    turns = [{"error": {"status": 429, "message": "slow down", "retry_after": 0.01}}, "fine"] * 2
    with run(tmp_path, turns) as zot:
        frames = zot.prompt()
        assert "retry" not in types(frames)
        assert texts(frames) == "fine"
        zot.ask("hello", features=["retries"])
        frames = zot.prompt()
        (retry,) = [frame for frame in frames if frame["type"] == "retry"]
        assert retry.keys() == {"type", "attempt", "max_attempts", "delay_ms", "reason", "code"}
        assert retry["code"] == "rate_limited"
        assert retry["attempt"] == 1
        assert "slow down" in retry["reason"]
        assert types(frames).count("turn_end") == 1


def test_codes_name_the_class_of_an_error(tmp_path):
    turns = [{"error": {"status": 400, "message": "no"}}]
    with run(tmp_path, turns, features=["codes"]) as zot:
        frames = zot.prompt()
        ends = {frame["type"]: frame.get("code") for frame in frames}
        assert ends["turn_end"] == "invalid_request"
        assert ends["error"] == "invalid_request"
        assert zot.ask("fly")["code"] == "unknown_command"
        assert zot.ask("prompt", message="")["code"] == "invalid_params"
        assert zot.ask("set_model", model="x")["code"] == "config"


def test_steering_is_heard_after_the_current_tool(tmp_path):
    turns = [
        {
            "match": "start",
            "tools": [
                {"name": "bash", "args": {"command": "until [ -e go ]; do sleep 0.02; done"}},
                {"name": "bash", "args": {"command": "touch not-run"}},
            ],
        },
        {"match": "turn left", "text": "left"},
    ]
    with run(tmp_path, turns, features=["queue"]) as zot:
        zot.send("prompt", message="start")
        zot.until("turn_end")
        assert "data" not in zot.ask("steer", message="turn left")
        (zot.cwd / "go").touch()
        frames = zot.until("done")
        updates = [frame for frame in frames if frame["type"] == "queue_update"]
        assert updates[0] == {
            "type": "queue_update",
            "steering": ["turn left"],
            "follow_up": [],
        }
        assert updates[-1]["steering"] == []
        assert texts(frames) == "left"
        results = [frame for frame in frames if frame["type"] == "tool_result"]
        assert "not run" in results[1]["content"][0]["text"]
        assert not (zot.cwd / "not-run").exists()
        order = [t for t in types(frames) if t in ("tool_result", "user_message", "turn_start")]
        assert order == ["tool_result", "tool_result", "user_message", "turn_start"]
        zot.invariants()


def test_a_follow_up_is_heard_when_the_model_would_stop(tmp_path):
    turns = [
        {"match": "start", "text": ["a"] * 200, "delay_ms": 5},
        {"match": "and then", "text": "b"},
    ]
    with run(tmp_path, turns, features=["queue"]) as zot:
        zot.send("prompt", message="start")
        zot.until("text_delta")
        zot.ask("follow_up", message="and then")
        frames = zot.until("done")
        assert texts(frames).endswith("ab")
        assert types(frames).count("turn_start") == 1
        assert types(frames).count("user_message") == 1
        assert zot.done_count() == 1
        zot.invariants()


def test_steering_when_nothing_runs_is_a_prompt(zot):
    for command in ("steer", "follow_up"):
        assert zot.ask(command, message="quick")["data"] == {"started": True}
        assert texts(zot.until("done")) == "ok"


def test_abort_drops_what_waits_to_be_heard(tmp_path):
    with run(tmp_path, TURNS, features=["queue"]) as zot:
        zot.send("prompt", message="slow")
        zot.until("text_delta")
        zot.ask("steer", message="one")
        zot.ask("follow_up", message="two")
        zot.ask("abort")
        frames = zot.until("done")
        updates = [frame for frame in frames if frame["type"] == "queue_update"]
        assert updates[-1] == {"type": "queue_update", "steering": [], "follow_up": []}
        frames = zot.prompt("quick")
        assert types(frames).count("user_message") == 1
        zot.invariants()


def test_steering_at_the_very_end_is_never_lost(tmp_path):
    with run(tmp_path, [QUICK]) as zot:
        for number in range(100):
            zot.write(
                b'{"type":"prompt","message":"p"}\n{"type":"steer","message":"s%d"}\n' % number
            )
        zot.invariants()
        messages = zot.data("get_messages")["messages"]
        said = [m["content"][0]["text"] for m in messages if m["role"] == "user"]
        assert sorted(text for text in said if text != "p") == sorted(f"s{n}" for n in range(100))
