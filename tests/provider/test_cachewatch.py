"""Misses of a provider's prompt cache, found and explained."""

import pytest
from msgspec.structs import replace
from support.caches import CachingServer
from support.provider import BASH, BY_API, READ, ask, assistant, client, model_of, run, tool, user

from zot.provider import cachewatch
from zot.provider.types import CacheMissed, Text, ToolCall, ToolResult

LONG = "words " * 2_000


def talk(model, turns, **fields):
    said = []
    for number in range(turns):
        said += [user(f"{number} {LONG}"), assistant(model, Text("fine"))]
    said.append(user(f"{turns} {LONG}"))
    return replace(ask(model, *said, cache_key="c", **fields), system=f"be brief {LONG}")


def missed(made, request):
    events, error = run(made, request)
    assert error is None
    return [event for event in events if isinstance(event, CacheMissed)]


def changed_message(request, at):
    said = list(request.messages)
    said[at] = user("another") if said[at].role == "user" else assistant(request.model, Text("no"))
    return replace(request, messages=tuple(said))


CHANGES = {
    "tools": (lambda r: replace(r, tools=(BASH, replace(READ, description="x"))), 1, "read"),
    "system": (lambda r: replace(r, system=r.system[:20] + "!" + r.system[20:]), 20, None),
    "message": (lambda r: changed_message(r, 2), 2, "user"),
}


@pytest.mark.parametrize("api", sorted(BY_API))
@pytest.mark.parametrize("cause", CHANGES)
def test_a_miss_is_located_at_the_first_part_that_changed(api, cause):
    model, (change, position, detail) = model_of(BY_API[api]), CHANGES[cause]
    with CachingServer() as server, client(BY_API[api], server.url) as made:
        assert missed(made, talk(model, 3)) == []
        assert missed(made, talk(model, 4)) == []
        (miss,) = missed(made, change(talk(model, 5)))
        assert (miss.cause, miss.position) == (cause, position)
        assert detail is None or miss.detail == detail
        assert miss.expected > miss.read
        assert missed(made, change(talk(model, 6))) == []


def test_a_pause_longer_than_the_cache_lives_is_a_timeout(monkeypatch):
    model = model_of("anthropic")
    with CachingServer() as server, client("anthropic", server.url) as made:
        missed(made, talk(model, 3))
        server.now += 301
        monkeypatch.setattr(cachewatch, "USUAL_SECONDS", 300)
        clock = cachewatch.time.monotonic
        monkeypatch.setattr(cachewatch.time, "monotonic", lambda: clock() + 301)
        (miss,) = missed(made, talk(model, 4))
        assert (miss.cause, miss.read) == ("timeout", 0)
        assert miss.seconds > 300


def test_a_prefix_that_the_provider_dropped_itself_has_no_known_cause():
    model = model_of("anthropic")
    with CachingServer() as server, client("anthropic", server.url) as made:
        missed(made, talk(model, 3))
        server.forget()
        (miss,) = missed(made, talk(model, 4))
        assert miss.cause == "unknown"


def test_another_effort_and_another_conversation_are_told_apart():
    model = model_of("anthropic")
    with CachingServer() as server, client("anthropic", server.url) as made:
        missed(made, talk(model, 3, reasoning="low"))
        other = replace(talk(model, 3), cache_key="other", system="other")
        assert missed(made, other) == []
        server.forget()
        (miss,) = missed(made, talk(model, 4, reasoning="high"))
        assert (miss.cause, miss.detail) == ("settings", "low auto -> high auto")


def test_a_server_that_has_no_cache_misses_nothing():
    model = model_of("openai", price=None)
    with CachingServer() as server, client("openai", server.url) as made:
        for turns in (3, 4):
            server.forget()
            assert missed(made, talk(model, turns)) == []


def test_many_results_of_one_answer_do_not_hide_the_last_prompt_from_the_cache():
    model = model_of("anthropic")
    calls = [ToolCall(f"c{number}", "bash", {"command": "ls"}) for number in range(30)]
    results = tool(*[ToolResult(call.id, (Text("x"),)) for call in calls])
    first = talk(model, 3)
    second = (*first.messages, assistant(model, *calls, stop="tool_use"), results)
    with CachingServer() as server, client("anthropic", server.url) as made:
        assert missed(made, first) == []
        assert missed(made, replace(first, messages=second)) == []
    assert server.counts[1][2] == server.counts[0][2] + server.counts[0][3]


def test_openai_is_told_how_long_to_keep_a_prompt():
    model = model_of("openai-responses")
    assert model.cache_seconds == (1_800, 43_200)
    options = []
    with CachingServer() as server, client("openai-responses", server.url) as made:
        for fields in ({}, {"cache": "long"}, {"cache": "off"}, {"is_warmup": True}):
            missed(made, talk(model, 1, **fields))
            options.append(server.requests[-1].body.get("prompt_cache_options"))
        first = server.requests[0].body["input"][0]["content"][0]
    assert options == [None, {"ttl": "12h"}, {"mode": "explicit"}, {"prewarm": True}]
    assert first["prompt_cache_breakpoint"] == {"mode": "explicit"}
