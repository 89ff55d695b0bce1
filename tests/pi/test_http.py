"""pi's dialect in front of a provider that is asked over HTTP."""

from collections.abc import Iterator

import pytest
from support.pi import PiServers, ended, outline

from zot.testing.fakeserver import FakeServer

PLAIN = "asst text_start text_delta text_end /asst"


@pytest.fixture(scope="module")
def model() -> Iterator[FakeServer]:
    with FakeServer() as server:
        yield server


def args(model: FakeServer, *more: str) -> list[str]:
    address = ["--provider", "anthropic", "--base-url", model.url, "--api-key", "sk-x"]
    return ["--no-session", *address, "--model", "claude-sonnet-5-5", *more]


def test_an_answer_with_thinking_and_a_tool(servers: PiServers, model: FakeServer) -> None:
    script = 'think:2 text:3\ntool:bash:{"command":"echo out"}\nthen\nsay:all done'
    with servers.start(args=args(model, "--thinking", "low")) as server:
        frames = server.run(script, id="1")
    first, second = [each for each in ended(frames) if each["role"] == "assistant"]
    assert [block["type"] for block in first["content"]] == ["thinking", "text", "toolCall"]
    assert first["content"][0]["thinkingSignature"]
    assert (first["api"], first["provider"]) == ("anthropic-messages", "anthropic")
    assert (first["stopReason"], second["stopReason"]) == ("toolUse", "stop")
    assert first["usage"]["cost"]["total"] > 0
    told = outline([f for f in frames if f["type"] != "tool_execution_update"])
    thinking = "asst thinking_start thinking_delta thinking_end text_start text_delta text_end"
    call = "toolcall_start toolcall_delta toolcall_end /asst tool /tool result /result /turn"
    assert f"{thinking} {call} turn {PLAIN} /turn /run settled" in told


@pytest.mark.parametrize("generation", ["a", "b"])
def test_a_refused_key(servers: PiServers, model: FakeServer, generation: str) -> None:
    with servers.start(args=args(model, "--pi-protocol", generation)) as server:
        frames = server.run("status:401", end="agent_end")
        assert ended(frames)[-1]["stopReason"] == "error"
        assert "401" in ended(frames)[-1]["errorMessage"]
        assert "sk-x" not in str(frames)
        assert ended(server.run("say:still here", end="agent_end"))[-1]["stopReason"] == "stop"


def test_an_overloaded_server_is_asked_again(servers: PiServers, model: FakeServer) -> None:
    with servers.start(args=args(model)) as server:
        frames = server.run("status:529:1 text:2", id="1")
    told = outline(frames[1:])
    asst = PLAIN.replace(" /asst", " auto_retry_end /asst")
    assert told == f"run turn user /user auto_retry_start {asst} /turn /run settled"


def test_abort_before_the_first_byte(servers: PiServers, model: FakeServer) -> None:
    with servers.start(args=args(model)) as server:
        server.send("prompt", message="hang", id="1")
        server.until(lambda frame: frame["type"] == "message_end")
        server.send("abort", id="2")
        frames = server.until(lambda frame: frame.get("command") == "abort")
    assert outline(frames) == "asst /asst /turn /run settled response"
    assert frames[1]["message"]["stopReason"] == "aborted"
