"""`--approve auto`: a model reviews the calls that rules leave open."""

import json

import pytest
from support.rpc import Zot

CALL = {"tools": [{"name": "bash", "args": {"command": "touch made"}}]}


REVIEWED = {"match": '"person"'}
"""Turns that answer the reviewer, whose request is a JSON object with the person's words."""


def verdict(decision: str, reason: str = "because") -> dict:
    usage = {"input": 100, "output": 10}
    return {"text": json.dumps({"decision": decision, "reason": reason}), "usage": usage}


def run(tmp_path, call, review=None, args=(), features=("approvals",), answer=""):
    turns = [] if review is None else [{**review, **REVIEWED}]
    turns += [call, {"text": "done"}]
    with Zot(tmp_path, turns, args=["--approve", "auto", *args]) as zot:
        zot.ask("hello", features=list(features))
        zot.send("prompt", message="make a file")
        if answer:
            asked = zot.until("approval_request")[-1]
            zot.send("approve", request_id=asked["request_id"], decision=answer)
        zot.until("done")
        frames = zot.events()
        return frames, (zot.cwd / "made").exists()


def resolved(frames: list[dict]) -> list[dict]:
    return [frame for frame in frames if frame["type"] == "approval_resolved"]


def test_the_reviewer_allows_and_says_why(tmp_path) -> None:
    frames, made = run(tmp_path, CALL, verdict("allow", "it was asked for"))
    assert made
    (event,) = resolved(frames)
    assert (event["decision"], event["source"]) == ("allow", "reviewer")
    assert event["reason"] == "it was asked for"
    usage = [frame for frame in frames if frame["type"] == "usage"][-1]
    assert usage["cumulative"]["input"] == 100  # the reviewer's call counts
    assert not [frame for frame in frames if frame["type"] == "approval_request"]


def test_the_reviewer_denies_and_the_model_hears_it(tmp_path) -> None:
    frames, made = run(tmp_path, CALL, verdict("deny", "too wild"), features=["approvals"])
    assert not made
    assert (resolved(frames)[0]["decision"], resolved(frames)[0]["source"]) == ("deny", "reviewer")
    result = next(frame for frame in frames if frame["type"] == "tool_result")
    assert "too wild" in str(result)


@pytest.mark.parametrize(
    "turn",
    [verdict("ask", "unsure"), {"text": "sure, go on"}, {"text": '{"decision": "yes"}'}]
    + [{"error": {"status": 400, "message": "broken"}}],
)
def test_doubt_and_failure_are_asked_about(turn, tmp_path) -> None:
    frames, made = run(tmp_path, CALL, turn, answer="deny")
    assert not made
    asked = next(frame for frame in frames if frame["type"] == "approval_request")
    assert asked["review"]
    assert resolved(frames)[0]["source"] == "client"


def test_a_deny_rule_stays_a_deny(tmp_path) -> None:
    frames, made = run(tmp_path, CALL, args=["--deny", "bash touch *"])
    assert not made
    assert resolved(frames) == []


def test_where_nobody_can_answer_doubt_denies(tmp_path) -> None:
    frames, made = run(tmp_path, CALL, verdict("ask"), features=())
    assert not made
    result = next(frame for frame in frames if frame["type"] == "tool_result")
    assert "nobody can give it" in str(result)


def test_what_only_reads_is_not_reviewed(tmp_path) -> None:
    frames, _ = run(tmp_path, {"tools": [{"name": "bash", "args": {"command": "ls"}}]})
    assert resolved(frames) == []


def test_calls_of_a_task_are_reviewed_too(tmp_path) -> None:
    task = {"match": "make a file", "tools": [{"name": "task", "args": {"prompt": "look"}}]}
    deny = {**verdict("deny", "not by a task"), **REVIEWED, "repeat": True}
    turns = [deny, {"match": "look", **CALL}, task, {"text": "done", "repeat": True}]
    with Zot(tmp_path, turns, args=["--approve", "auto", "--tasks"]) as zot:
        assert zot.prompt("make a file")[-1]["type"] == "done"
        assert not (zot.cwd / "made").exists()
