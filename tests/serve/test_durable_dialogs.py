"""Questions of extensions and MCP servers, and extensions themselves, across a `kill -9`; and two
processes that go on with one session in spite of the lock."""

import json
from pathlib import Path

import pytest
from serve.test_durable import Durable, durable, results, server, tool
from support.extension import write_extension
from support.mcp import configure, entry
from support.rpc import types

__all__ = ["durable", "server"]

ASKER = """
hello()
emit("subscribe", events=["run_resumed", "session_start"])
emit("register_tool", name="deploy", description="d", schema={"type": "object"}, replay="safe")
emit("ready")
for frame in frames():
    if frame["type"] == "event":
        with open("heard", "a") as file:
            file.write(json.dumps(frame) + "\\n")
    if frame["type"] == "tool_call":
        call = frame["id"]
        emit("ask", id="where", method="input", title="where to?", timeout=600)
    if frame["type"] == "answer" and frame["id"] == "where":
        where = frame.get("value")
        emit("ask", id="sure", method="confirm", title="to " + str(where) + "?", timeout=600)
    if frame["type"] == "answer" and frame["id"] == "sure":
        text(call, f"deployed to {where}: {frame['confirmed']} {frame['cancelled']}")
"""


@pytest.fixture
def asker(tmp_path: Path) -> Path:
    return write_extension(tmp_path, "asker", ASKER)


SCRIPT = "tool:deploy:{}\nthen\nsay:ok"
FEATURES = ("dialogs", "seq")


def start(durable: Durable, asker: Path, *args: str, **more):
    return durable.start("--ext", str(asker), *args, features=FEATURES, **more)


def test_an_answer_counts_after_a_kill_and_an_open_question_is_asked_and_listed_again(
    durable, asker
):
    zot = start(durable, asker)
    zot.send("prompt", message=SCRIPT, run="a")
    first = zot.until("ext_ask")[-1]
    assert zot.data("get_state")["dialogs"] == [without_seq(first)]
    zot.data("answer", request_id=first["request_id"], value="mars")
    second = zot.until("ext_ask")[-1]
    assert second["title"] == "to mars?"
    zot.kill()
    with start(durable, asker) as zot:
        again = zot.until("ext_ask")[-1]
        assert again["title"] == "to mars?"  # the first one was answered already
        assert again["request_id"] not in (first["request_id"], second["request_id"])
        assert zot.data("get_state")["dialogs"] == [without_seq(again)]
        late = zot.ask("answer", request_id=second["request_id"], confirmed=True)
        assert not late["success"]
        zot.data("answer", request_id=again["request_id"], confirmed=True)
        zot.until("done")
        assert results(zot) == ["deployed to mars: True False"]
        assert zot.data("get_state")["dialogs"] == []
    rows = [row["type"] for row in durable.rows()]
    assert rows.count("dialog_answered") == 2


def test_an_answer_is_not_one_to_the_same_question_of_a_later_call(durable, asker):
    zot = start(durable, asker)
    zot.send("prompt", message="tool:deploy:{}\nthen\ntool:deploy:{}\nthen\nsay:ok", run="a")
    zot.data("answer", request_id=zot.until("ext_ask")[-1]["request_id"], value="mars")
    zot.until("ext_ask")
    zot.kill()
    with start(durable, asker) as zot:
        zot.data("answer", request_id=zot.until("ext_ask")[-1]["request_id"], confirmed=True)
        question = zot.until("ext_ask")[-1]
        assert question["title"] == "where to?"  # of the second call
        zot.data("answer", request_id=question["request_id"], value="venus")
        zot.data("answer", request_id=zot.until("ext_ask")[-1]["request_id"], confirmed=True)
        zot.until("done")
        assert results(zot)[1] == "deployed to venus: True False"


def test_a_question_that_nobody_answers_any_more_is_left_for_the_next_process(durable, asker):
    zot = start(durable, asker)
    zot.send("prompt", message=SCRIPT, run="a")
    zot.until("ext_ask")
    assert zot.close()[0] == 0
    zot.kill()
    assert zot.frames[-1]["type"] == "run_suspended"
    with start(durable, asker) as zot:
        zot.data("answer", request_id=zot.until("ext_ask")[-1]["request_id"], value="mars")
        zot.data("answer", request_id=zot.until("ext_ask")[-1]["request_id"], confirmed=True)
        zot.until("done")


def test_the_end_of_input_cancels_the_question_of_a_run_that_is_not_durable(
    tmp_path, asker, server
):
    plain = Durable(tmp_path / "plain", server)
    plain.flags = lambda: ["--provider", "anthropic", "--base-url", server.url]  # type: ignore[method-assign]
    zot = start(plain, asker)
    zot.send("prompt", message=SCRIPT)
    zot.until("ext_ask")
    assert zot.close()[0] == 0
    zot.kill()
    assert zot.frames[-1]["type"] == "done"
    returned = [frame for frame in zot.frames if frame["type"] == "tool_result"]
    assert "deployed to None: False True" in json.dumps(returned)


def test_extensions_are_told_that_a_run_was_resumed(durable, asker):
    zot = start(durable, asker)
    zot.send("prompt", message=SCRIPT, run="a")
    zot.until("ext_ask")
    zot.kill()
    (asker / "heard").unlink()
    with start(durable, asker) as zot:
        zot.until("ext_ask")
    heard = [json.loads(line) for line in (asker / "heard").read_text().splitlines()]
    (resumed,) = [event for event in heard if event["event"] == "run_resumed"]
    assert (resumed["run"], resumed["attempt"]) == ("a", 2)
    assert resumed["away"] >= 0
    (call,) = resumed["open_calls"]
    assert (call["tool_name"], call["started"], call["replay"]) == ("deploy", True, "safe")


ASK = "tool:mcp__test__ask:{}\nthen\nsay:ok"


def test_a_question_that_was_the_answer_to_a_call_is_asked_again_and_the_call_goes_on(
    durable, tmp_path
):
    """The server has answered, with questions: nothing was under way when the process died."""
    configure(tmp_path / "zot-home" / "mcp.json", test=entry(era="modern"))
    zot = durable.start(features=FEATURES)
    zot.send("prompt", message=ASK, run="a")
    zot.data("answer", request_id=zot.until("ext_ask")[-1]["request_id"], value="Ada")
    zot.until("ext_ask")
    zot.kill()  # the first field was answered, the second one is open
    zot = durable.start(features=FEATURES)
    again = zot.until("ext_ask")[-1]
    assert "age" in again["message"]
    assert zot.data("get_state")["dialogs"] == [without_seq(again)]
    assert zot.close()[0] == 0  # nobody answers: left for the next process
    zot.kill()
    with durable.start(features=FEATURES) as zot:
        resumed = zot.until("ext_ask")
        (call,) = next(f for f in resumed if f["type"] == "run_resumed")["open"]
        assert not call["started"]
        zot.data("answer", request_id=resumed[-1]["request_id"], value="36")
        for _ in ("colour", "sure", "note"):
            question = zot.until("ext_ask")[-1]
            zot.data("answer", request_id=question["request_id"], value="", confirmed=True)
        zot.until("done")
        (said,) = results(zot)
    assert json.loads(said)["state"] == "opaque-7"
    assert json.loads(said)["content"]["name"] == "Ada"
    rows = [row["type"] for row in durable.rows()]
    assert (rows.count("effect_started"), rows.count("effect_paused")) == (1, 4)


def test_a_question_of_an_mcp_server_is_gone_with_it_and_the_model_is_told(durable, tmp_path):
    """A server of the older revisions waits in the middle of its call, and dies with zot."""
    configure(tmp_path / "zot-home" / "mcp.json", test=entry())
    zot = durable.start(features=FEATURES)
    zot.send("prompt", message=ASK, run="a")
    question = zot.until("ext_ask")[-1]
    assert zot.data("get_state")["dialogs"] == [without_seq(question)]
    zot.kill()
    with durable.start(features=FEATURES) as zot:
        zot.until("done")
        assert "may have taken effect" in results(zot)[0]
        assert zot.data("get_state")["dialogs"] == []


# --- a second process in spite of the lock ---------------------------------------------------


def test_a_process_stops_when_another_one_has_gone_on_with_its_session(durable):
    """As on a network file system, where a lock holds on one machine only."""
    gate = durable.gate()
    script = [tool("bash", command="cat gate"), tool("bash", command="echo two >> log"), "say:ok"]
    with durable.start(features=("codes", "seq")) as zot:
        zot.send("prompt", message="\nthen\n".join(script), run="a")
        with gate.open("w"):
            rows = [json.loads(line) for line in durable.path.read_text().splitlines()]
            (row,) = [row for row in rows if row.get("data", {}).get("type") == "run_attempted"]
            del row["crc"]
            with durable.path.open("a") as file:
                file.write(json.dumps(row | {"id": "00000000", "parent": rows[-1]["id"]}) + "\n")
            taken = durable.path.read_bytes()
        zot.until("run_suspended")
        assert zot.frames[-2]["type"] == "error"
        assert zot.frames[-2]["code"] == "session_taken"
        assert "done" not in types(zot.frames)
        refused = zot.ask("prompt", message="more", run="b")
        assert not refused["success"]
        assert "another process" in refused["error"]
    assert durable.path.read_bytes() == taken
    assert not (durable.work / "log").exists()
    with durable.start() as zot:  # the one that is left
        zot.until("done")
    assert (durable.work / "log").read_text() == "two\n"


def without_seq(frame: dict) -> dict:
    return {name: value for name, value in frame.items() if name not in ("seq", "prompt_id")}
