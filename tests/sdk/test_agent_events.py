"""What the agents of the tool `task` do, told to an embedder who asks for it."""

import asyncio
import json

import pytest

from zot.sdk import AgentEvent, AsyncRuntime, ConfigError, Runtime, events
from zot.testing.fakeserver import FakeServer

INNER = "tool:task:" + json.dumps({"prompt": "say:deep"}) + "\nthen\nsay:middle"
PROMPT = "tool:task:" + json.dumps({"prompt": INNER}) + "\nthen\nsay:top"


@pytest.fixture
def settings(monkeypatch, tmp_path):
    with FakeServer() as server:
        monkeypatch.setenv("ZOT_HOME", str(tmp_path))
        yield {
            "provider": "anthropic",
            "model": "claude-sonnet-5-5",
            "api_key": "sk-test-0123456789",
            "base_url": server.url,
            "tasks": True,
            "cwd": tmp_path,
        }


def check(heard: list[AgentEvent]) -> None:
    by_agent: dict[str, list] = {}
    for told in heard:
        by_agent.setdefault(told.agent, []).append(told)
    (first, second) = by_agent  # in the order in which they were heard of
    assert {told.parent for told in by_agent[first]} == {""}
    assert {told.parent for told in by_agent[second]} == {first}
    for agent, text in ((first, "middle"), (second, "deep")):
        frames = [told.event for told in by_agent[agent]]
        assert sum(isinstance(frame, events.Done) for frame in frames) == 1
        said = "".join(frame.delta for frame in frames if isinstance(frame, events.TextDelta))
        assert said.endswith(text)


def test_events_of_sub_agents_carry_agent_and_parent(settings):
    heard: list[AgentEvent] = []
    with Runtime(**settings, on_agent_event=heard.append) as it:
        told = list(it.prompt(PROMPT))
    assert isinstance(told[-1], events.Done)
    assert any(isinstance(event, events.ToolProgress) for event in told)  # as before
    check(heard)


def test_in_a_loop_they_are_told_in_the_loop(settings):
    heard: list[AgentEvent] = []

    async def main() -> None:
        loop = asyncio.get_running_loop()

        def hear(event: AgentEvent) -> None:
            assert asyncio.get_running_loop() is loop
            heard.append(event)

        async with AsyncRuntime(**settings, on_agent_event=hear) as it:
            async for _ in it.prompt(PROMPT):
                pass

    asyncio.run(main())
    check(heard)


def test_a_question_of_a_sub_agent_is_heard_on_both_ways_and_answered_once(settings, tmp_path):
    heard: list[AgentEvent] = []
    ask = "tool:bash:" + json.dumps({"command": "touch made"}) + "\nthen\nsay:ok"
    prompt = "tool:task:" + json.dumps({"prompt": ask}) + "\nthen\nsay:top"
    with Runtime(**settings, features=["approvals"], on_agent_event=heard.append) as it:
        for event in it.prompt(prompt):
            if isinstance(event, events.ApprovalRequest):
                it.approve(event.request_id, "allow")
    assert (tmp_path / "made").exists()
    assert any(isinstance(told.event, events.ApprovalRequest) for told in heard)


def test_what_is_no_function_is_refused(settings):
    with pytest.raises(ConfigError, match="on_agent_event"):
        Runtime(**settings, on_agent_event="print")
