import json
import signal
import subprocess
import sys
import urllib.request

import pytest
from support.patience import PATIENCE

import zot.testing
from zot.testing.fakeserver import FakeServer
from zot.testing.replies import dialect_of
from zot.testing.rules import problems
from zot.testing.script import delta_of, parse_line, parse_script, pick_turn, turn_for


def test_a_line_of_prose_is_no_script():
    for line in ("hello", "text:five", "say:", "tools:x", "unknown:1", "text:1 and more", "Text:1"):
        assert parse_line(line) is None
    assert parse_script("nothing here\nat all") is None


def test_directives_take_their_values():
    assert parse_line("delay:20 text:3") == [("delay", "20"), ("text", "3")]
    assert parse_line("say:a b c") == [("say", "a b c")]
    assert parse_line("tools:2 text:1") == [("tools", "2"), ("text", "1")]
    assert parse_line("tools:2:ls -l") == [("tools", "2:ls -l")]
    assert parse_line("status:529:2 retry-after:1") == [("status", "529:2"), ("retry-after", "1")]


def test_turns_follow_each_other():
    turns = parse_script("please\nrounds:2 tool:bash:ls\nthen\nread:a.txt\nthen\nsay:end")
    content = [pick_turn(turns, index).content for index in range(5)]
    assert content == [
        [("tool", "bash", "ls")],
        [("tool", "bash", "ls")],
        [("tool", "read", "a.txt")],
        [("text", ("end",))],
        [("text", ("done",))],
    ]
    assert pick_turn(parse_script("loop"), 999).content == [("tool", "bash", "true")]


def test_without_a_script_the_message_comes_back():
    assert turn_for("hi there", 0).content == [("text", ("hi ", "there"))]
    assert turn_for("hi there", 1).content == [("text", ("done",))]
    assert turn_for("", 0).content == [("text", ("(empty)",))]
    assert len(delta_of(60)) == 60


def test_the_paths_say_the_api():
    assert dialect_of("/v1beta/models/x:streamGenerateContent?alt=sse") == "google"
    assert dialect_of("/nothing") is None


def post(url, body):
    request = urllib.request.Request(url, json.dumps(body).encode())
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    with opener.open(request, timeout=10) as answer:
        return answer.read()


def test_it_serves_from_the_command_line():
    command = [sys.executable, "-m", "zot.testing.fakeserver", "--port", "0"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        url = process.stdout.readline().strip()
        body = {"messages": [{"role": "user", "content": "say:hello"}], "model": "m"}
        assert b"hello" in post(f"{url}/v1/chat/completions", body)
        process.send_signal(signal.SIGTERM)
        assert process.wait(PATIENCE) == 0


def test_it_tells_what_it_took_itself_and_keeps_as_much_as_it_should():
    with FakeServer(keep=2) as server:
        body = {"messages": [{"role": "user", "content": "ttft:50 text:2"}], "model": "m"}
        for _ in range(3):
            post(f"{server.url}/v1/chat/completions", body)
        with urllib.request.urlopen(f"{server.url}/spent", timeout=10) as answer:
            spent = json.load(answer)
        with urllib.request.urlopen(f"{server.url}/spent", timeout=10) as answer:
            assert json.load(answer) == {"first": 0.0, "whole": 0.0}
        assert 0.15 <= spent["first"] <= spent["whole"]
        assert len(server.requests) == 2


def test_an_unknown_place_is_a_404():
    with FakeServer() as server:
        with pytest.raises(urllib.error.HTTPError, match="404") as raised:
            post(f"{server.url}/nowhere", {})
        raised.value.close()
        assert server.wait_outcome("error")
        assert len(server.wait_for(1)) == 1


@pytest.mark.parametrize(
    ("dialect", "body"),
    [
        ("anthropic", {"messages": [], "max_tokens": 0}),
        (
            "anthropic",
            {
                "messages": [
                    {"role": "assistant", "content": []},
                    {
                        "role": "assistant",
                        "content": [
                            {"type": "tool_use", "id": "a b"},
                            {"type": "text", "text": " "},
                        ],
                    },
                ],
                "max_tokens": 1,
                "thinking": {"budget_tokens": 5},
                "x": ["cache_control"] * 5,
            },
        ),
        (
            "chat",
            {
                "messages": [
                    {"role": "tool", "tool_call_id": "x", "content": ""},
                    {"role": "assistant", "content": None, "tool_calls": [{"id": ""}]},
                    {"role": "assistant", "content": ""},
                    {"role": "assistant", "content": None, "tool_calls": [{"id": "q"}]},
                ]
            },
        ),
        ("responses", {"input": []}),
        (
            "responses",
            {
                "input": [
                    {"type": "function_call", "call_id": "!"},
                    {"type": "reasoning"},
                    {"type": "message", "role": "user"},
                ]
            },
        ),
        (
            "google",
            {
                "contents": [
                    {"role": "model", "parts": [{"functionCall": {"name": "x"}}]},
                    {"role": "model", "parts": []},
                ]
            },
        ),
    ],
)
def test_what_a_server_would_refuse_is_found(dialect, body):
    assert len(problems(dialect, body)) >= 2


def test_the_door_has_what_it_promises():
    for name in zot.testing.__all__:
        assert getattr(zot.testing, name).__name__ == name
    assert set(zot.testing.__all__) == set(zot.testing._HOMES)
    with pytest.raises(AttributeError, match="no_such_name"):
        zot.testing.no_such_name  # noqa: B018  the access is the test
