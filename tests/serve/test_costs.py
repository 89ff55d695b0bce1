"""Money and misses of the prompt cache, as a client of a real process sees them."""

import pytest
from support.caches import CachingServer
from support.rpc import Zot

FLAGS = ["--provider", "anthropic", "--model", "claude-sonnet-5-5", "--base-url"]
FILL = "text:1 # " + "words " * 3_000


def talk(folder, features):
    with (
        CachingServer() as server,
        Zot(folder, args=[*FLAGS, server.url], features=features) as zot,
    ):
        frames = zot.prompt(FILL)
        server.forget()
        frames += zot.prompt("text:1")
        return frames, zot.data("get_state")["usage"]


def test_the_parts_of_the_cost_and_a_miss_are_told_to_a_client_that_asks(tmp_path):
    frames, state = talk(tmp_path, ["costs"])
    (miss,) = [frame for frame in frames if frame["type"] == "cache_miss"]
    assert (miss["cause"], miss["read"]) == ("unknown", 0)
    assert miss["expected"] > 4_000
    used = [frame for frame in frames if frame["type"] == "usage"]
    assert used[-1]["cumulative"] == state
    assert sum(state["cost"].values()) == pytest.approx(state["cost_usd"])
    assert state["cost"]["cache_write"] == pytest.approx(state["cache_write"] * 2.5e-6)


def test_a_client_that_does_not_ask_sees_what_it_always_saw(tmp_path):
    frames, state = talk(tmp_path, None)
    assert not any(frame["type"] == "cache_miss" for frame in frames)
    assert set(state) == {"input", "output", "cache_read", "cache_write", "cost_usd"}


@pytest.mark.parametrize("flag", [["--wait-for-limit"], ["--durable", "--session", "s.jsonl"]])
def test_a_usage_limit_is_waited_for_until_it_resets(tmp_path, flag):
    with (
        CachingServer() as server,
        Zot(tmp_path, args=[*FLAGS, server.url, *flag], features=["retries"]) as zot,
    ):
        zot.data("prompt", message="status:429 retry-after:7200")
        waiting = zot.until("retry")[-1]
        assert waiting["delay_ms"] >= 7_200_000
        zot.data("abort")
        assert zot.until("done")[-2]["stop"] == "aborted"


def test_the_time_of_a_reset_is_told(tmp_path):
    with CachingServer() as server, Zot(tmp_path, args=[*FLAGS, server.url]) as zot:
        frames = zot.prompt("status:429 retry-after:7200")
        (error,) = [frame["error"] for frame in frames if frame.get("error")]
        assert "the limit resets at 20" in error
        assert "in 2 h 0 min; --wait-for-limit waits for it" in error
