import json
import time

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from tests.support.around import around, zot_home
from zot.errors import AuthError, ConfigError
from zot.files import ensure_dir
from zot.provider import catalog
from zot.provider.types import Model, Price
from zot.settings import models
from zot.settings.known import Known
from zot.settings.options import parse
from zot.settings.resolve import resolve


@pytest.fixture(autouse=True)
def place(tmp_path, monkeypatch):
    monkeypatch.setenv("ZOT_HOME", str(tmp_path))
    return tmp_path


def write(place, value) -> None:
    (place / "models.json").write_text(value if isinstance(value, str) else json.dumps(value))


OWN = {
    "baseUrl": "http://127.0.0.1:9/v1",
    "api": "openai",
    "auth": "none",
    "headers": {"x-a": "b"},
    "models": [
        {
            "id": "m",
            "name": "Mine",
            "contextWindow": 1000,
            "maxTokens": 100,
            "reasoning": True,
            "input": ["text", "image"],
            "priceInput": 1,
            "priceOutput": 2,
        },
        {"id": "n", "api": "anthropic-messages", "cost": {"input": 3, "cacheRead": 0.5}},
    ],
}


def test_a_provider_of_the_users_own(place):
    write(place, {"providers": {"mine": OWN}})
    known = Known(str(place))
    info = known.provider("mine")
    assert (info.api, info.base_url, info.auth, info.headers) == (
        "openai-chat",
        "http://127.0.0.1:9/v1",
        "none",
        {"x-a": "b"},
    )
    first, second = known.all("mine")
    assert first == Model(
        id="m",
        provider="mine",
        api="openai-chat",
        name="Mine",
        context_window=1000,
        max_output=100,
        reasoning=True,
        images=True,
        price=Price(1, 2),
        source="user",
    )
    assert (second.api, second.price) == ("anthropic", Price(3, 0, 0.5))
    assert known.default("mine") == first
    assert known.find("mine", "unheard").source == "unlisted"
    assert known.warnings == []
    with pytest.raises(ConfigError, match="needs a model"):
        known.find("mine", "")


def test_a_key_for_a_provider_of_ones_own_comes_from_its_variable(place):
    row = {"baseUrl": "http://x", "api": "anthropic"}
    write(place, {"providers": {"my-host": row, "b": {**row, "apiKeyEnv": "B_SECRET"}}})
    known = Known(str(place))
    assert (known.provider("my-host").env, known.provider("my-host").auth) == (
        ("MY_HOST_API_KEY",),
        "x-api-key",
    )
    assert known.provider("b").env == ("B_SECRET",)


def key_of(place, row, environ) -> str:
    base = {"baseUrl": "http://127.0.0.1:9", "api": "openai-chat", "models": [{"id": "m"}]}
    write(place, {"providers": {"mine": {**base, **row}}})
    return resolve(
        parse(["--provider", "mine", "--cwd", str(place)]),
        replace(around(environ), home=str(place)),
    ).key


@pytest.mark.parametrize(
    ("row", "key"),
    [
        ({}, ""),  # its server says when it wants one
        ({"apiKey": "sk-literal"}, "sk-literal"),
        ({"apiKey": "HAS_A_KEY"}, "sk-of-variable"),
        ({"apiKey": "HAS_NONE"}, "HAS_NONE"),
        ({"apiKey": "!echo sk-$((40 + 2))"}, "sk-42"),
        ({"apiKey": "sk-literal", "apiKeyEnv": "HAS_A_KEY"}, "sk-of-variable"),
        ({"apiKey": "sk-literal", "auth": "none"}, ""),
    ],
)
def test_a_key_in_models_json_is_used_as_pi_does(place, row, key):
    assert key_of(place, row, {"HAS_A_KEY": "sk-of-variable"}) == key


def test_a_login_is_stronger_than_a_key_in_models_json(place):
    (place / "auth.json").write_text('{"mine": {"api_key": "sk-login"}}')
    (place / "auth.json").chmod(0o600)
    assert key_of(place, {"apiKey": "sk-file"}, {}) == "sk-login"


@pytest.mark.parametrize(
    ("url", "key", "warned"),
    [
        ("http://10.0.0.5:8000/v1", "sk-x", True),
        ("HTTP://models.example/v1", "sk-x", True),
        ("http://127.evil.example/v1", "sk-x", True),
        ("http://10.0.0.5:8000/v1", "", False),
        ("https://models.example/v1", "sk-x", False),
        ("http://localhost:8000/v1", "sk-x", False),
        ("http://127.0.0.2:8000/v1", "sk-x", False),
        ("http://[::1]:8000/v1", "sk-x", False),
    ],
)
def test_a_key_that_travels_unencrypted_to_another_machine_is_warned_of(place, url, key, warned):
    row = {"baseUrl": url, "api": "openai-chat", "apiKey": key, "models": [{"id": "m"}]}
    write(place, {"providers": {"mine": row}})
    setup = resolve(
        parse(["--provider", "mine", "--cwd", str(place)]), replace(around({}), home=str(place))
    )
    assert any("without encryption" in warning for warning in setup.warnings) is warned
    assert not any("sk-x" in warning for warning in setup.warnings)


def test_a_command_that_prints_no_key_is_told(place):
    with pytest.raises(AuthError, match="key command of 'mine'"):
        key_of(place, {"apiKey": "!exit 3"}, {})


def test_what_the_user_says_of_a_listed_model_wins_and_the_rest_stays(place):
    listed = catalog.default_model("anthropic")
    row = {"id": listed.id, "contextWindow": 5, "maxTokens": 0, "priceInput": 9, "priceOutput": 9}
    write(place, {"providers": {"anthropic-messages": {"models": [row, {"id": "brand-new"}]}}})
    known = Known(str(place))
    changed = known.find("anthropic", listed.id)
    assert (changed.context_window, changed.max_output) == (5, listed.max_output)
    assert (changed.reasoning, changed.price) == (listed.reasoning, Price(9, 9))
    assert changed.source == "user"
    assert known.find("anthropic", "brand-new").api == "anthropic"
    assert len(known.all("anthropic")) == len(catalog.models("anthropic")) + 1
    assert known.default("anthropic") == changed


def test_a_listed_provider_can_be_pointed_elsewhere(place):
    write(
        place, {"providers": {"openai": {"baseUrl": "http://x", "apiKeyEnv": "X", "auth": "none"}}}
    )
    info = Known(str(place)).provider("openai")
    assert (info.base_url, info.env[0], info.auth, info.key_optional) == (
        "http://x",
        "X",
        "none",
        True,
    )
    assert "mine" not in Known(str(place)).providers()


@pytest.mark.parametrize(
    ("text", "word"),
    [
        ("{", "models.json"),
        ("{}", "providers"),
        ('{"providers": 5}', "models.json"),
        ('{"providers": {"a": {"api": "openai"}}}', "baseUrl"),
        ('{"providers": {"a": {"baseUrl": "x", "api": "telepathy"}}}', "telepathy"),
        ('{"providers": {"openai": {"models": [{"name": "no id"}]}}}', "model 1"),
        ('{"providers": {"openai": {"models": [{"id": "x", "api": "??"}]}}}', "??"),
        ('{"providers": {"openai": 7}}', "openai"),
    ],
)
def test_what_cannot_be_used_is_a_warning_that_names_the_file(place, text, word):
    write(place, text)
    known = Known(str(place))
    assert any(word in warning for warning in known.warnings)
    assert all("models.json" in warning for warning in known.warnings)
    assert known.default("anthropic") == catalog.default_model("anthropic")
    assert (place / "models.json").read_text() == text


@settings(max_examples=50, deadline=None)
@given(
    st.recursive(
        st.none() | st.integers() | st.text(max_size=5),
        lambda inner: (
            st.lists(inner, max_size=3)
            | st.dictionaries(
                st.sampled_from(["providers", "models", "id", "openai", "api"]), inner
            )
        ),
        max_leaves=8,
    )
)
def test_no_file_breaks_the_reader(tmp_path_factory, value):
    home = tmp_path_factory.getbasetemp()
    (home / "models.json").write_text(json.dumps(value))
    assert Known(str(home)).provider("anthropic").name == "anthropic"


# --- what servers told -----------------------------------------------------------------------


def test_what_a_server_told_is_kept_for_a_while(place, monkeypatch):
    models.write_cache(
        str(place), "ollama", [Model(id="q", provider="ollama", api="openai-chat", name="Q")]
    )
    models.write_cache(
        str(place), "openai", [Model(id="o", provider="openai", api="openai-responses")]
    )
    known = Known(str(place))
    (model,) = known.all("ollama")
    assert (model.id, model.name, model.source) == ("q", "Q", "cache")
    assert known.find("openai", "o").source == "cache"
    later = time.time() + models.CACHE_SECONDS + 1
    monkeypatch.setattr(time, "time", lambda: later)
    assert known.all("ollama") == ()


def test_the_catalog_knows_more_of_a_model_than_its_server(place):
    listed = catalog.default_model("anthropic")
    models.write_cache(
        str(place), "anthropic", [Model(id=listed.id, provider="anthropic", api="anthropic")]
    )
    assert listed in Known(str(place)).all("anthropic")


def test_a_broken_cache_is_an_empty_one(place):
    ensure_dir(place)
    (place / "models-cache.json").write_text('{"models": 3}')
    assert models.read_cache(str(place), "ollama") == {}


# --- at start-up -----------------------------------------------------------------------------


def test_without_files_the_catalog_is_what_is_known(place):
    known = Known(zot_home())
    assert known.provider("claude").name == "anthropic"
    assert known.default("openai") == catalog.default_model("openai")
    assert known.find("openai", "gpt-5") == catalog.find("openai", "gpt-5")
    assert list(known.warnings) == []
    with pytest.raises(ConfigError, match="unknown model"):
        known.find("openai", "gpt-nonsense")
    assert known.all("openai") == catalog.models("openai")


def test_with_a_file_its_providers_are_known(place):
    write(place, {"providers": {"mine": OWN, "bad": {}}})
    known = Known(zot_home())
    assert known.provider("mine").name == "mine"
    assert known.default("mine").id == "m"
    assert len(known.warnings) == 1


@pytest.mark.parametrize(
    ("words", "keys", "expected"),
    [
        ("--model openai/gpt-5", "OPENAI", ("openai", "gpt-5")),
        # A gateway's own ids look like that: where it alone can be asked, or is the one in use.
        ("--model openai/gpt-5", "OPENROUTER", ("openrouter", "openai/gpt-5")),
        ("--provider openrouter --model openai/gpt-5", "OPENAI OPENROUTER", ("openrouter", None)),
        # Another server may call its models as it likes.
        ("--base-url http://127.0.0.1:9 --model openai/gpt-oss", "ANTHROPIC OPENAI", (None, None)),
        ("--model mistralai/x --base-url http://127.0.0.1:9", "ANTHROPIC", ("anthropic", None)),
    ],
)
def test_a_model_may_be_named_with_its_provider(words, keys, expected):
    environ = {f"{name}_API_KEY": f"{name}-0123456789" for name in keys.split()}
    options = parse(words.split())
    setup = resolve(options, around(environ))
    provider, model = expected
    assert setup.info.name == (provider or "anthropic")
    assert setup.model.id == (model or options.model)


def test_the_gateway_of_the_configuration_keeps_its_ids(place):
    environ = {"OPENAI_API_KEY": "openai-0123456789", "OPENROUTER_API_KEY": "router-0123456789"}
    (place / "config.json").write_text('{"provider": "openrouter"}')
    setup = resolve(parse(["--model", "openai/gpt-5"]), around(environ))
    assert (setup.info.name, setup.model.id) == ("openrouter", "openai/gpt-5")
