import json
import subprocess
import sys
from pathlib import Path

import pytest
from support.environment import uncovered

import zot.provider
from zot.errors import ConfigError
from zot.provider import catalog
from zot.provider.providers import PROVIDERS, resolve_quirks

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


def test_an_unknown_model_suggests_near_ids():
    with pytest.raises(ConfigError, match="unknown model 'claude-sonet-4-5'.*claude-sonnet-4-5"):
        catalog.find("anthropic", "claude-sonet-4-5")
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
