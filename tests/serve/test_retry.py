"""A prompt that failed, answered once more without being said again."""

from pathlib import Path

from support.rpc import Zot

from zot.provider.auth.store import AuthFile, Credential
from zot.testing.fakeserver import FakeServer


def test_a_failed_prompt_is_answered_once_more(tmp_path):
    turns = [{"error": {"status": 400, "message": "no"}}, "the answer"]
    with Zot(tmp_path, turns) as zot:
        assert zot.prompt("ask")[-1]["type"] == "done"
        zot.send("retry_prompt")
        frames = zot.until("done")
        kinds = [frame["type"] for frame in frames]
        assert "user_message" not in kinds
        assert "the answer" in str(frames)
        messages = zot.data("get_messages")["messages"]
        assert [message["role"] for message in messages] == ["user", "assistant"]
        refused = zot.ask("retry_prompt")
        assert "nothing to try again" in refused["error"]
        zot.invariants()


def test_what_was_answered_before_the_failure_is_left_out(tmp_path):
    path = str(tmp_path / "s.jsonl")
    slow = {"text": ["half "] * 2000, "delay_ms": 5}
    with Zot(tmp_path, [slow, "whole"], args=["--session", path]) as zot:
        zot.send("prompt", message="ask")
        zot.until("text_delta")
        zot.ask("abort")
        zot.until("done")
        assert "half" in str(zot.data("get_messages"))
        zot.send("retry_prompt")
        zot.until("done")
        said = str(zot.data("get_messages"))
        assert "half" not in said
        assert "whole" in said
    with Zot(tmp_path, ["more"], args=["--session", path]) as zot:
        assert "half" not in str(zot.data("get_messages"))
        assert zot.data("get_state")["message_count"] == 2


def test_there_is_nothing_to_try_again_at_the_beginning_or_while_busy(tmp_path):
    with Zot(tmp_path, [{"text": ["a"] * 2000, "delay_ms": 5}]) as zot:
        assert "nothing to try again" in zot.ask("retry_prompt")["error"]
        zot.send("prompt", message="ask")
        zot.until("text_delta")
        assert "busy" in zot.ask("retry_prompt")["error"]
        zot.ask("abort")
        zot.until("done")


def test_after_a_login_the_new_key_is_used(tmp_path: Path):
    home = tmp_path / "zot-home"
    file = AuthFile(str(home))
    file.put("anthropic", Credential(api_key="sk-old-0123456789"))
    with FakeServer() as server:
        env = {"ANTHROPIC_API_KEY": None, "ANTHROPIC_BASE_URL": server.url}
        with Zot(tmp_path, args=["--provider", "anthropic"], env=env) as zot:
            assert zot.prompt("status:401:1\nsay:hello")[-1]["type"] == "done"
            file.put("anthropic", Credential(api_key="sk-new-0123456789"))
            zot.send("retry_prompt")
            assert "hello" in str(zot.until("done"))
        keys = [seen.headers["x-api-key"] for seen in server.requests if seen.body]
    assert keys == ["sk-old-0123456789", "sk-new-0123456789"]


def test_without_a_login_any_more_it_says_so_and_stays_as_it_is(tmp_path: Path):
    file = AuthFile(str(tmp_path / "zot-home"))
    file.put("anthropic", Credential(api_key="sk-old-0123456789"))
    with FakeServer() as server:
        env = {"ANTHROPIC_API_KEY": None, "ANTHROPIC_BASE_URL": server.url}
        with Zot(tmp_path, args=["--provider", "anthropic"], env=env) as zot:
            zot.prompt("status:401")
            file.remove("anthropic")
            refused = zot.ask("retry_prompt")
            assert not refused["success"]
            assert "no credential" in refused["error"]
