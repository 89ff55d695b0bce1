import pytest

from zot.errors import ConfigError
from zot.provider import catalog
from zot.provider.catalog import SCRIPTED as MODEL
from zot.provider.client import connect
from zot.provider.providers import (
    PROVIDERS,
    api_of,
    env_base_url,
    env_key,
    env_secret_names,
    find_provider,
    ollama_url,
    resolve_quirks,
    word_for_level,
)
from zot.provider.types import Model


def test_a_provider_is_found_by_name_alias_and_any_case():
    assert find_provider("Gemini").name == "google"
    assert find_provider(" openai ").name == "openai"
    assert find_provider("hf").name == "huggingface"


def test_an_unknown_provider_names_those_there_are():
    with pytest.raises(ConfigError, match=r"unknown provider 'acme'.*anthropic.*models\.json"):
        find_provider("acme")


def test_aliases_are_unique():
    names = [name for row in PROVIDERS.values() for name in (row.name, *row.aliases)]
    assert len(names) == len(set(names))


def test_every_key_variable_is_a_secret():
    names = env_secret_names()
    assert {"ANTHROPIC_API_KEY", "OPENAI_API_KEY", "GOOGLE_API_KEY", "HF_TOKEN"} <= names


def test_the_first_variable_set_is_the_key():
    google = PROVIDERS["google"]
    assert env_key(google, {"GEMINI_API_KEY": " ", "GOOGLE_API_KEY": " k "}) == "k"
    assert env_key(google, {}) == ""


def test_the_base_url_comes_from_the_environment():
    assert env_base_url(PROVIDERS["anthropic"], {"ANTHROPIC_BASE_URL": "http://x"}) == "http://x"
    assert env_base_url(PROVIDERS["ollama"], {"OLLAMA_HOST": "box:9"}) == "http://box:9/v1"
    assert env_base_url(PROVIDERS["groq"], {}) == ""


@pytest.mark.parametrize(
    ("host", "url"),
    [
        ("0.0.0.0", "http://127.0.0.1:11434/v1"),
        (":1234", "http://127.0.0.1:1234/v1"),
        ("https://gpu.example/", "https://gpu.example:11434/v1"),
        ("gpu:80", "http://gpu:80/v1"),
        ("[::]:5", "http://127.0.0.1:5/v1"),
    ],
)
def test_ollama_host_becomes_a_url(host, url):
    assert ollama_url(host) == url


def test_a_models_quirks_override_the_providers():
    model = Model("x", "deepseek", "openai-chat", compat={"thinking": "none"})
    quirks = resolve_quirks(PROVIDERS["deepseek"], model)
    assert (quirks.thinking, quirks.max_tokens_field) == ("none", "max_tokens")


@pytest.mark.parametrize("compat", [{"colour": 1}, {"effort": "yes"}])
def test_a_bad_quirk_is_a_config_error(compat):
    model = Model("x", "openai", "openai-chat", compat=compat)
    with pytest.raises(ConfigError, match="compat"):
        resolve_quirks(PROVIDERS["openai"], model)


def test_openai_at_another_host_speaks_chat():
    info = PROVIDERS["openai"]
    model = catalog.find("openai", "gpt-5")
    assert api_of(info, model, None) == "openai-responses"
    assert api_of(info, model, "https://api.openai.com/v1/") == "openai-responses"
    assert api_of(info, model, "http://127.0.0.1:1/v1") == "openai-chat"
    other = PROVIDERS["openai-responses"]
    assert api_of(other, model, "http://127.0.0.1:1/v1") == "openai-responses"


@pytest.mark.parametrize(
    ("level", "levels", "word"),
    [
        ("off", None, None),
        ("minimum", None, "minimal"),
        ("max", None, "high"),
        ("max", {"max": "max"}, "max"),
        ("medium", {"minimum": None, "medium": None}, "high"),
        ("minimum", {"minimum": None}, "low"),
        ("low", {"minimum": None, "low": None, "medium": None, "high": None}, None),
    ],
)
def test_a_level_becomes_the_nearest_word_the_model_has(level, levels, word):
    assert word_for_level(level, levels) == word


def test_scripted_needs_a_script():
    with pytest.raises(ConfigError, match="script"):
        connect(PROVIDERS["scripted"], MODEL, "")


def test_scripted_plays_its_file(tmp_path):
    path = tmp_path / "s.json"
    path.write_text('{"turns":[]}')
    assert connect(PROVIDERS["scripted"], MODEL, "", script=str(path)).name == "scripted"


def test_a_provider_without_address_says_what_to_set():
    model = catalog.find("azure", "gpt-5")
    with pytest.raises(ConfigError, match="--base-url or AZURE_OPENAI_BASE_URL"):
        connect(PROVIDERS["azure"], model, "k")
