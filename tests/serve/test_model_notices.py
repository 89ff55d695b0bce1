"""What a user hears of a model, through real processes: that it is new, that it ends, that it
always thinks; and how much each is asked to think.
"""

import subprocess

import pytest
from support.rpc import Zot, command, environment, make_folder

from zot.testing.fakeserver import FakeServer


@pytest.fixture
def server():
    with FakeServer() as made:
        yield made


def once(folder, server, *args, provider="anthropic"):
    cwd = make_folder(folder)
    flags = ["-p", "--provider", provider, "--base-url", server.url, *args]
    return subprocess.run(
        [*command(), *flags, "say:hi"],
        cwd=cwd,
        env=environment(folder),
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


def test_an_unknown_model_is_asked_for_with_one_warning(tmp_path, server):
    done = once(tmp_path, server, "--model", "claude-opus-6")
    assert (done.returncode, done.stdout) == (0, "hi\n")
    assert done.stderr.count("'claude-opus-6' is not in zot's list") == 1
    body = server.requests[-1].body
    assert (body["model"], body["max_tokens"]) == ("claude-opus-6", 128_000)
    assert body["thinking"]["type"] == "adaptive"


NOT_THERE = {
    "anthropic": {"type": "error", "error": {"type": "not_found_error", "message": "model: {}"}},
    "openai-responses": {
        "error": {
            "message": "The model `{}` does not exist or you do not have access to it.",
            "type": "invalid_request_error",
            "code": "model_not_found",
        }
    },
    "google": {
        "error": {
            "code": 404,
            "message": "models/{} is not found for API version v1beta.",
            "status": "NOT_FOUND",
        }
    },
}


class Refusing(FakeServer):
    """Has no model at all, and says so as each provider does."""

    provider = ""

    def _reply(self, connection, seen):
        connection.send_json(404, NOT_THERE[self.provider])
        return "error", True


@pytest.mark.parametrize(
    ("provider", "wrong", "right"),
    [
        ("anthropic", "claude-sonet-5-5", "claude-sonnet-5-5"),
        ("openai-responses", "gpt-6.1-soll", "gpt-6.1-sol"),
        ("google", "gemini-4-argonn", "gemini-4-argon"),
    ],
)
def test_when_the_server_does_not_have_it_the_error_names_others(tmp_path, provider, wrong, right):
    with Refusing() as server:
        server.provider = provider
        done = once(tmp_path, server, "--model", wrong, "--api-key", "k" * 20, provider=provider)
    assert done.returncode == 1
    assert f"(did you mean {right}, " in done.stderr.splitlines()[-1]
    assert f"`zot --list-models --provider {provider}` shows all" in done.stderr


def test_a_model_that_ends_is_told_once(tmp_path, server):
    done = once(tmp_path, server, "--model", "claude-sonnet-4-5")
    assert done.returncode == 0
    assert done.stderr.count("on 2026-11-30") == 1
    assert "claude-sonnet-5-5" in done.stderr


def test_the_default_model_is_told_nothing_of(tmp_path, server):
    done = once(tmp_path, server)
    assert (done.returncode, done.stdout) == (0, "hi\n")
    assert "warning" not in done.stderr
    body = server.requests[-1].body
    assert body["output_config"] == {"effort": "medium"}
    assert body["thinking"]["display"] == "summarized"


def test_off_where_a_model_always_thinks_is_its_lowest_level_with_a_notice(tmp_path, server):
    done = once(tmp_path, server, "--reasoning", "off")
    assert done.returncode == 0
    assert done.stderr.count("always thinks: 'off' is its lowest level, 'low'") == 1
    assert server.requests[-1].body["output_config"] == {"effort": "low"}
    done = once(tmp_path, server, "--reasoning", "off", provider="openai-responses")
    assert "always thinks" in done.stderr
    assert server.requests[-1].body["reasoning"] == {"effort": "low", "summary": "auto"}


def test_off_turns_thinking_off_where_that_can_be_done(tmp_path, server):
    named = ("--reasoning", "off", "--model")
    done = once(tmp_path, server, *named, "claude-haiku-5-5")
    assert "always thinks" not in done.stderr
    assert server.requests[-1].body["thinking"] == {"type": "disabled"}
    once(tmp_path, server, *named, "gpt-6.1-terra", provider="openai-responses")
    assert server.requests[-1].body["reasoning"] == {"effort": "none"}


def test_a_change_at_run_time_is_told_by_a_notice(tmp_path, server):
    flags = ["--provider", "anthropic", "--base-url", server.url]
    with Zot(tmp_path, args=flags) as zot:
        assert zot.data("set_reasoning", reasoning="off") == {"reasoning": "low"}
        assert zot.data("set_reasoning", reasoning="off") == {"reasoning": "low"}
        zot.data("set_model", model="claude-opus-7")
        zot.data("set_model", model="claude-sonnet-4-5")
        zot.data("ping")
        told = [f for f in zot.frames if f["type"] == "ext_notify"]
        assert [(f["extension"], f["level"]) for f in told] == [("zot", "warn")] * 3
        words = ("always thinks", "not in zot's list", "2026-11-30")
        assert all(word in f["message"] for word, f in zip(words, told, strict=True))


def test_a_model_that_does_not_reason_is_sent_nothing(tmp_path, server):
    flags = ["--provider", "openai-responses", "--base-url", server.url, "--model", "gpt-4.1"]
    with Zot(tmp_path, args=flags) as zot:
        zot.prompt("say:hi")
    assert "reasoning" not in server.requests[-1].body


def test_off_that_was_chosen_stays_with_the_session(tmp_path, server):
    session = str(tmp_path / "kept.jsonl")
    flags = ["--provider", "anthropic", "--base-url", server.url, "--session", session]
    named = ["--model", "claude-haiku-5-5"]
    with Zot(tmp_path, args=[*flags, *named, "--reasoning", "off"]) as zot:
        zot.prompt("say:hi")
    with Zot(tmp_path, args=[*flags, *named]) as zot:
        zot.prompt("say:hi")
    assert server.requests[-1].body["thinking"] == {"type": "disabled"}
