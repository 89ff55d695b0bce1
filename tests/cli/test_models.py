import json
from datetime import UTC, datetime

import pytest

from zot.cli.main import run
from zot.provider.providers import env_secret_names
from zot.testing.fakeserver import FakeServer


@pytest.fixture(autouse=True)
def clean(monkeypatch, tmp_path):
    monkeypatch.setenv("ZOT_HOME", str(tmp_path / "home"))
    monkeypatch.setenv("HOME", str(tmp_path))
    for name in (*env_secret_names(), "OLLAMA_HOST", "OLLAMA_BASE_URL"):
        monkeypatch.delenv(name, raising=False)


@pytest.fixture
def server():
    with FakeServer() as made:
        yield made


def listed(capsysbinary, *args):
    assert run(["--list-models", "--json", *args]) == 0
    out = capsysbinary.readouterr().out
    return {model["id"]: model for model in json.loads(out)["models"]}


def test_without_a_key_the_catalog_is_listed_and_nobody_is_asked(server, capsysbinary):
    found = listed(capsysbinary, "--provider", "anthropic", "--base-url", server.url)
    assert found["claude-sonnet-5-5"]["source"] == "catalog"
    assert server.requests == []


def test_another_host_says_what_it_has(server, capsysbinary):
    args = ("--provider", "anthropic", "--api-key", "k", "--base-url", server.url)
    found = listed(capsysbinary, *args)
    assert list(found) == ["fake-model", "claude-sonnet-5-5", "gpt-6.1-sol"]
    assert {model["source"] for model in found.values()} == {"live"}


def test_where_no_model_is_on_the_machine_it_is_said_how_to_get_one(tmp_path, capsys, monkeypatch):
    monkeypatch.setenv("ZOT_HOME", str(tmp_path / "empty"))
    assert run(["--list-models", "--provider", "local"]) == 0
    assert "`zot local pull` downloads one" in capsys.readouterr().err


def test_a_local_server_that_does_not_run_is_said_on_stderr(server, capsys, monkeypatch):
    monkeypatch.setenv("OLLAMA_HOST", "127.0.0.1:9")
    assert run(["--list-models", "--provider", "ollama"]) == 0
    shown = capsys.readouterr()
    assert "cannot connect" in shown.err
    assert shown.out.startswith("provider")


def test_the_providers_own_server_is_asked_once_and_remembered(server, capsysbinary, monkeypatch):
    from msgspec.structs import replace

    from zot.provider import providers

    own = replace(providers.PROVIDERS["groq"], base_url=server.url)
    monkeypatch.setitem(providers.PROVIDERS, "groq", own)
    for _ in range(2):
        found = listed(capsysbinary, "--provider", "groq", "--api-key", "k")
        assert found["fake-model"]["source"] == "cache"
        assert found["openai/gpt-oss-120b"]["source"] == "catalog"
    assert len(server.requests) == 1


def test_prices_carry_their_date(capsysbinary):
    assert run(["--list-models", "--json", "--provider", "anthropic"]) == 0
    date = json.loads(capsysbinary.readouterr().out)["price_dates"]["anthropic"]
    assert date >= "2026-01-01"
    assert run(["--list-models", "--provider", "anthropic"]) == 0
    assert date.encode() in capsysbinary.readouterr().err


def test_what_the_go_program_was_told_lately_is_listed(tmp_path, capsysbinary):
    told = {"Provider": "anthropic", "ID": "new-9", "ContextWindow": 5, "PriceInput": 3}
    (tmp_path / "home").mkdir()
    file = tmp_path / "home" / "models-cache.json"
    for stamp, is_fresh in (("2020-01-01T00:00:00Z", False), ("soon", False), (now(), True)):
        file.write_text(json.dumps({"fetched_at": stamp, "models": [told]}))
        found = listed(capsysbinary, "--provider", "anthropic")
        assert ("new-9" in found) == is_fresh


def now():
    return datetime.now(UTC).isoformat().replace("+00:00", "Z")
