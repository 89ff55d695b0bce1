import json
import subprocess
import sys
from datetime import date, datetime
from pathlib import Path

import pytest
from support.environment import uncovered

import zot.provider
from zot.core.cost import priced
from zot.errors import ConfigError
from zot.provider import catalog
from zot.provider.model import LEVELS, always_thinks, clamped, levels
from zot.provider.providers import PROVIDERS, resolve_quirks
from zot.provider.types import Usage

DATA = Path(zot.provider.__file__).parent / "data" / "models"


@pytest.mark.parametrize("provider", sorted(PROVIDERS))
def test_every_listed_model_has_usable_facts(provider):
    for model in catalog.models(provider):
        assert model.provider == provider
        assert model.context_window > 0
        assert model.max_output > 0
        assert model.price is None or min(model.price.input, model.price.output) >= 0
        resolve_quirks(PROVIDERS[provider], model)
        assert catalog.find(provider, model.id) == model


@pytest.mark.parametrize("provider", [n for n, row in PROVIDERS.items() if row.default_model])
def test_every_default_model_is_listed(provider):
    model = catalog.default_model(provider)
    assert model in catalog.models(provider)


def test_a_provider_without_default_says_so_with_none():
    assert catalog.default_model("ollama") is None
    assert catalog.models("ollama") == ()


@pytest.mark.parametrize("provider", [n for n, row in PROVIDERS.items() if row.default_model])
def test_no_default_model_ends_within_90_days_of_the_catalog(provider):
    model = catalog.default_model(provider)
    if model.deprecation_date:
        ends = date.fromisoformat(model.deprecation_date)
        left = ends - date.fromisoformat(catalog.price_date(provider))
        assert left.days > 90, f"{model.id} ends on {ends}: choose another default"
    assert catalog.notices(model) == []


@pytest.mark.parametrize("provider", sorted(PROVIDERS))
def test_every_level_of_every_model_is_one_that_it_has(provider):
    for model in catalog.models(provider):
        for level in LEVELS:
            assert clamped(level, model) in levels(model)
        assert always_thinks(model) == ("off" not in levels(model))


def test_a_model_that_ends_is_told():
    (told,) = catalog.notices(catalog.find("google", "gemini-2.5-pro"))
    assert "'gemini-2.5-pro' of google ended on 2026-10-20" in told
    assert "gemini-3.1-pro-preview" in told


def test_the_notice_comes_60_days_before_the_end(monkeypatch):
    model = catalog.find("openai", "gpt-5")
    assert model.deprecation_date == "2026-12-11"
    for day, words in (("2026-10-01", []), ("2026-10-20", ["ends on"]), ("2026-12-11", ["ended"])):
        now = datetime.fromisoformat(f"{day}T12:00:00").timestamp()
        monkeypatch.setattr(catalog.time, "time", lambda now=now: now)
        told = catalog.notices(model)
        assert [word for word, text in zip(words, told, strict=True) if word in text] == words


@pytest.mark.parametrize(
    ("provider", "id", "relative"),
    [
        ("anthropic", "claude-fable-5-3", "claude-fable-5-2"),
        ("anthropic", "claude-opus-6", "claude-opus-5-5"),
        ("openai", "gpt-5.5-2026-04-23", "gpt-5.5"),
        ("openai", "gpt-5.2-codex", "gpt-5.3-codex"),
        ("openai", "gpt-7-sol", "gpt-6.1-sol"),
        ("deepseek", "deepseek-v4-flash", "deepseek-flash"),
        ("google", "gemini-5-pro", "gemini-3.1-pro-preview"),
        ("xai", "grok-5", "grok-4.7"),
        ("openrouter", "anthropic/claude-fable-5.3", "anthropic/claude-fable-5.2"),
    ],
)
def test_an_unlisted_model_has_the_limits_of_its_relative(provider, id, relative):
    model, known = catalog.find(provider, id, unlisted=True), catalog.find(provider, relative)
    assert (model.id, model.name, model.source, model.price) == (id, id, "unlisted", None)
    for fact in ("context_window", "max_output", "reasoning", "images", "compat", "api"):
        assert getattr(model, fact) == getattr(known, fact)
    (told,) = catalog.notices(model)
    assert f"{id!r} is not in zot's list" in told
    assert repr(relative) in told


def test_an_unlisted_model_without_relatives_has_small_limits():
    model = catalog.find("anthropic", "@@@", unlisted=True)
    assert (model.context_window, model.max_output, model.reasoning) == (128_000, 8_192, False)
    assert "small limits" in catalog.notices(model)[0]


def test_an_unknown_model_suggests_near_ids():
    with pytest.raises(ConfigError, match="unknown model 'claude-sonet-5-5'.*claude-sonnet-5-5"):
        catalog.find("anthropic", "claude-sonet-5-5")
    with pytest.raises(ConfigError, match="did you mean"):
        catalog.find("anthropic", "@@@@")


def test_a_gateway_and_another_host_take_any_id():
    for model in (
        catalog.find("openrouter", "some/new-model"),
        catalog.find("anthropic", "mine", unlisted=True),
    ):
        assert model.source == "unlisted"
        assert model.price is None


def test_a_local_server_needs_a_model_name():
    with pytest.raises(ConfigError, match="needs a model"):
        catalog.find("ollama", "")


def test_the_scripted_model_is_listed():
    assert catalog.find("scripted", "scripted").id == "scripted"
    with pytest.raises(ConfigError, match="unknown model 'anything'"):
        catalog.find("scripted", "anything")
    assert catalog.price_date("scripted") == ""


def test_prices_carry_their_date():
    assert catalog.price_date("anthropic") >= "2026-01-01"


def test_the_data_is_small():
    assert sum(path.stat().st_size for path in DATA.glob("*.json")) < 500_000


def test_a_broken_catalog_file_is_a_config_error(monkeypatch, tmp_path):
    monkeypatch.setattr(catalog, "_DATA", str(tmp_path))
    catalog._snapshot.cache_clear()
    catalog._load.cache_clear()
    with pytest.raises(ConfigError, match="cannot be read"):
        catalog.models("anthropic")
    catalog._snapshot.cache_clear()
    catalog._load.cache_clear()


def test_the_start_path_stays_cheap():
    code = (
        "import sys; import zot.provider.catalog as c; c.default_model('anthropic');"
        "import json; print(json.dumps(sorted(sys.modules)))"
    )
    run = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, env=uncovered()
    )
    loaded = set(json.loads(run.stdout))
    assert not loaded & {"ssl", "http", "logging", "dataclasses", "asyncio", "pathlib", "difflib"}


def test_large_requests_cost_the_prices_of_their_tier():
    haiku = catalog.find("anthropic", "claude-haiku-5-5")
    small, large = (
        priced(Usage(input=size), haiku.price).cost.total for size in (100_000, 100_001)
    )
    assert (small, large) == pytest.approx((0.01, 0.0500005))


def test_no_cached_token_is_free_where_other_input_is_not():
    for provider in PROVIDERS:
        for model in catalog.models(provider):
            price = model.price
            if price is not None and price.input:
                assert price.cache_write > 0, model
                assert all(tier.rates.input for tier in price.tiers), model


def test_the_catalog_says_how_long_caches_live_and_how_large_requests_may_be():
    sonnet = catalog.find("anthropic", "claude-sonnet-5-5")
    assert sonnet.cache_seconds == (300, 3600)
    assert (sonnet.max_request_bytes, sonnet.max_images) == (32 * 1024 * 1024, 600)
    assert sonnet.price.cache_write_long == 2 * sonnet.price.input
