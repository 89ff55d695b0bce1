"""Prompts in providers' caches: how long they are kept there, and how they are kept warm."""

from msgspec.structs import replace
from support.caches import CachingServer
from support.patience import PATIENCE
from support.provider import client, model_of
from support.session import Recorder, SmallTool

from zot.core import warm
from zot.provider.types import Price

TOOL = "tool:t\nthen\ntext:1"
SONNET = replace(model_of("anthropic"), price=Price(1_000.0, 1.0, 0.1, 1_250.0))


def caching(wish="auto"):
    return {"cache": wish, "reasoning": "medium"}


def marks(body):
    blocks = [*body.get("tools", []), *body.get("system", [])]
    blocks += [block for message in body["messages"] for block in message["content"]]
    return [block["cache_control"] for block in blocks if "cache_control" in block]


def test_a_prompt_is_kept_in_the_cache_while_a_tool_runs():
    model = replace(SONNET, cache_seconds=(0.2, 1))
    with CachingServer() as server, client("anthropic", server.url) as provider:
        waits = SmallTool("t", lambda args, context: str(len(server.wait_for(3, PATIENCE))))
        with Recorder([], provider=provider, model=model, tools=[waits], settings=caching()) as it:
            told, run = it.prompt(TOOL + " # " + "words " * 2_000)
            assert run.stop == "end"
        first, again, *_ = [seen.body for seen in server.requests]
        assert again == {**first, "max_tokens": 1}
        assert server.counts[1][2] > 2_000  # read from the cache, and so kept there
        # One that the end of the tool cut off is counted as read, too.
        usage, read = it.runtime.state().usage, sum(count[2] for count in server.counts)
        assert usage.cost_known == (usage.cache_read == read)
        assert abs(usage.cache_read - read) < 200


def test_nothing_is_kept_warm_that_is_not_worth_it():
    cheap = replace(SONNET, price=Price(0.1, 1.0, 0.01, 0.1))
    assert warm.is_worth(SONNET, 10_000)
    assert not warm.is_worth(cheap, 10_000)
    assert not warm.is_worth(replace(SONNET, cache_seconds=None), 10_000)
    assert not warm.is_worth(replace(SONNET, price=None), 10_000)


def test_a_conversation_that_had_a_long_pause_is_cached_for_longer(monkeypatch):
    with (
        CachingServer() as server,
        client("anthropic", server.url) as provider,
        Recorder([], provider=provider, model=SONNET, settings=caching()) as it,
    ):
        it.prompt("text:1")
        clock = warm.time.monotonic
        monkeypatch.setattr(warm.time, "monotonic", lambda: clock() + 301)
        it.prompt("text:1")
        it.prompt("text:1")
    lives = [{mark.get("ttl") for mark in marks(seen.body)} for seen in server.requests]
    assert lives == [{None}, {"1h"}, {"1h"}]


def test_the_setting_decides_how_long_prompts_are_cached():
    for wish, expected in (("short", {None}), ("long", {"1h"}), ("off", set())):
        with CachingServer() as server, client("anthropic", server.url) as provider:
            with Recorder([], provider=provider, model=SONNET, settings=caching(wish)) as it:
                it.prompt("text:1")
            assert {mark.get("ttl") for mark in marks(server.requests[0].body)} == expected
