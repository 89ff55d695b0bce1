"""The models a user can choose: catalog and servers' lists, overridden by models.json.

On the start-up path: models.json is read only if it exists, the cache only when it is needed.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterable, Mapping
from datetime import datetime

import msgspec
from msgspec.structs import replace

from zot.errors import ConfigError
from zot.files import locked, read_bytes, write_atomic
from zot.provider import catalog
from zot.provider.auth.resolve import key_from_command
from zot.provider.providers import PROVIDERS, Auth, ProviderInfo, find_provider
from zot.provider.types import Api, Json, Model, Price
from zot.text import Frozen, prepared

CACHE_SECONDS = 6 * 3600
"""Seconds for which a server's list of models is cached."""
COMMAND_SECONDS = 10.0
"""Timeout of a command that prints a key, in seconds."""

_APIS: dict[str, Api] = {
    **dict.fromkeys(("anthropic", "anthropic-messages"), "anthropic"),
    **dict.fromkeys(("openai", "openai-chat", "openai-completions"), "openai-chat"),
    "openai-responses": "openai-responses",
    **dict.fromkeys(("google", "gemini", "google-generative-ai"), "google"),
}
_API_WORDS = "anthropic, openai-chat, openai-responses or google"
_KEY_HEADER: dict[Api, Auth] = {"anthropic": "x-api-key", "google": "x-goog-api-key"}
_ALIASES = {
    "anthropic-messages": "anthropic",
    "openai-codex": "openai",
    "moonshot-ai": "moonshot",
    "kimi-code": "kimi",
    "deepseek-chat": "deepseek",
    "deepseek-ai": "deepseek",
}


class Prices(Frozen, rename="camel"):
    """Prices in the format of pi's models.json."""

    input: float = 0.0
    output: float = 0.0
    cache_read: float = 0.0
    cache_write: float = 0.0


class ModelRow(Frozen, rename="camel"):
    """A model in models.json. Missing values come from the catalog, or are defaults."""

    id: str
    name: str = ""
    reasoning: bool | None = None
    context_window: int = 0
    max_tokens: int = 0
    cost: Prices | None = None
    """Prices in pi's format; the four fields below are the Go program's."""
    price_input: float = 0.0
    price_output: float = 0.0
    price_cache_read: float = 0.0
    price_cache_write: float = 0.0
    base_url: str = ""
    input: tuple[str, ...] | None = None
    api: str = ""
    headers: dict[str, str] | None = None
    compat: dict[str, Json] | None = None


class ProviderRow(Frozen, rename="camel"):
    """A provider in models.json: a new one, or changes to a built-in one."""

    models: tuple[Json, ...] = ()
    title: str = ""
    base_url: str = ""
    api: str = ""
    auth: str = ""
    api_key_env: str = ""
    """Variable that holds its key."""
    api_key: str = ""
    """As in pi: the name of a variable that is set, `!command`, or the key itself."""
    headers: dict[str, str] | None = None
    compat: dict[str, Json] | None = None


def cache_path(home: str) -> str:
    return os.path.join(home, "models-cache.json")


class KnownModels:
    """Every provider and model, by name. `warnings` lists the ignored parts of models.json."""

    def __init__(self, home: str) -> None:
        self.home = home
        self.path = os.path.join(home, "models.json")
        self.warnings: list[str] = []
        self._providers: dict[str, ProviderInfo] = {}
        self._models: dict[str, dict[str, ModelRow]] = {}
        self._keys: dict[str, str] = {}
        for name, row in self._read().items():
            self._take(_ALIASES.get(name, name), row)

    def providers(self) -> Mapping[str, ProviderInfo]:
        return {**PROVIDERS, **self._providers}

    def provider(self, name: str) -> ProviderInfo:
        """Return the provider with this name or alias. Raises ConfigError: there is none."""
        if name in self._providers:
            return self._providers[name]
        info = find_provider(name)
        return self._providers.get(info.name, info)

    def all(self, provider: str) -> tuple[Model, ...]:
        """Return a provider's models: the user's rows override the server's and the catalog's."""
        by_id = {model.id: model for model in self._listed(provider)}
        for model in read_cache(self.home, provider):
            by_id[model.id] = _told(model, by_id.get(model.id))
        for id, row in self._models.get(provider, {}).items():
            by_id[id] = self._overridden(provider, row, by_id.get(id))
        return tuple(by_id.values())

    def find(self, provider: str, id: str, *, unlisted: bool = False) -> Model:
        """Return one model. Raises ConfigError: the provider has no such model."""
        row = self._models.get(provider, {}).get(id)
        listed = next((model for model in self._listed(provider) if model.id == id), None)
        if row is not None:
            return self._overridden(provider, row, listed)
        if listed is None:
            cached = next(
                (model for model in read_cache(self.home, provider) if model.id == id), None
            )
            if cached is not None:
                return _told(cached, None)
        if provider not in PROVIDERS:
            return self._of_own_provider(provider, id)
        return listed or catalog.find(provider, id, unlisted=unlisted)

    def default(self, provider: str) -> Model | None:
        """Return the model to use when none is named; None: the user must name one."""
        info = self.provider(provider)
        if info.default_model:
            return self.find(provider, info.default_model)
        first = next(iter(self._models.get(provider, {})), None)
        return None if first is None else self.find(provider, first)

    def own_key(self, provider: str, environ: Mapping[str, str]) -> str:
        """Return the provider's key from models.json; empty when there is none.

        Raises:
            AuthError: its command failed.
        """
        text = self._keys.get(provider, "")
        if not text.startswith("!"):
            return environ.get(text) or text
        words, hidden = ("sh", "-c", text[1:]), frozenset(self.key_variables(environ))
        return key_from_command(words, COMMAND_SECONDS, provider, environ, hidden)

    def key_variables(self, environ: Mapping[str, str]) -> set[str]:
        """Return the variables with keys of providers in models.json."""
        named = {text for text in self._keys.values() if text in environ}
        return named | {name for info in self._providers.values() for name in info.env}

    def written_keys(self, environ: Mapping[str, str]) -> set[str]:
        """Return the keys written literally in models.json."""
        return {text for text in self._keys.values() if text not in environ and text[:1] != "!"}

    # --- inside ------------------------------------------------------------------------------

    def _listed(self, provider: str) -> Iterable[Model]:
        return catalog.models(provider) if provider in PROVIDERS else ()

    def _of_own_provider(self, provider: str, id: str) -> Model:
        info = self.provider(provider)
        if not id:
            raise ConfigError(f"provider {provider!r} needs a model: pass --model ID")
        return Model(id=id, provider=provider, api=info.api, name=id, source="unlisted")

    def _overridden(self, provider: str, row: ModelRow, known: Model | None) -> Model:
        info = self.provider(provider)
        base = known or Model(id=row.id, provider=provider, api=info.api, name=row.id, images=False)
        price = _price(row)
        return replace(
            base,
            name=row.name or base.name,
            api=_APIS[row.api] if row.api else base.api,
            reasoning=base.reasoning if row.reasoning is None else row.reasoning,
            context_window=row.context_window if row.context_window > 0 else base.context_window,
            max_output=row.max_tokens if row.max_tokens > 0 else base.max_output,
            images=base.images if row.input is None else "image" in row.input,
            price=base.price if price is None else price,
            base_url=row.base_url or base.base_url,
            headers=row.headers or base.headers,
            compat=row.compat or base.compat,
            source="user",
        )

    def _take(self, name: str, row: ProviderRow) -> None:
        known = PROVIDERS.get(name)
        api = self._api(row.api, f"provider {name!r}")
        if known is None:
            if not row.base_url or api is None:
                self._warn(f"provider {name!r} needs a baseUrl and an api of {_API_WORDS}")
                return
            known = _own_provider(name, row, api)
        self._providers[name] = _changed(known, row, api)
        self._keys[name] = row.api_key
        models = self._models.setdefault(name, {})
        for position, value in enumerate(row.models):
            where = f"model {position + 1} of provider {name!r}"
            try:
                model = msgspec.convert(value, ModelRow)
            except msgspec.ValidationError as error:
                self._warn(f"{where}: {error}")
                continue
            if not model.api or self._api(model.api, where):
                models[model.id] = model

    def _api(self, word: str, where: str) -> Api | None:
        if word and word not in _APIS:
            self._warn(f"{where} has the unknown api {word!r}; use {_API_WORDS}")
        return _APIS.get(word)

    def _read(self) -> dict[str, ProviderRow]:
        try:
            data = read_bytes(self.path)
            if data is None:
                return {}
            providers = msgspec.json.decode(data, type=dict[str, dict[str, Json]])["providers"]
        except KeyError:
            self._warn('it has no "providers"')
            return {}
        except (OSError, msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
            self._warn(str(error))
            return {}
        rows = {}
        for name, value in providers.items():
            try:
                rows[name] = msgspec.convert(value, ProviderRow)
            except msgspec.ValidationError as error:
                self._warn(f"provider {name!r}: {error}")
        return rows

    def _warn(self, text: str) -> None:
        self.warnings.append(f"{self.path!r}: {text}; it is not used")


def _own_provider(name: str, row: ProviderRow, api: Api) -> ProviderInfo:
    variable = name.upper().replace("-", "_").replace(".", "_") + "_API_KEY"
    return ProviderInfo(
        name=name,
        title=row.title or name,
        api=api,
        env=() if row.api_key_env else (variable,),
        auth=_KEY_HEADER.get(api, "bearer"),
        key_optional=True,  # the server reports when it needs one
        open_models=True,
    )


def _changed(known: ProviderInfo, row: ProviderRow, api: Api | None) -> ProviderInfo:
    free = row.auth == "none"
    return replace(
        known,
        api=api or known.api,
        base_url=row.base_url or known.base_url,
        env=(row.api_key_env, *known.env) if row.api_key_env else known.env,
        auth="none" if free else known.auth,
        key_optional=free or known.key_optional,
        headers={**known.headers, **(row.headers or {})},
        quirks={**known.quirks, **(row.compat or {})},
    )


def _price(row: ModelRow) -> Price | None:
    if row.cost is not None:
        return Price(row.cost.input, row.cost.output, row.cost.cache_read, row.cost.cache_write)
    if not (row.price_input > 0 or row.price_output > 0):
        return None
    return Price(row.price_input, row.price_output, row.price_cache_read, row.price_cache_write)


# --- cached lists of servers -----------------------------------------------------------------


class CachedModel(Frozen, omit_defaults=True):
    """A model in models-cache.json, with the Go program's field names."""

    provider: str = msgspec.field(name="Provider")
    id: str = msgspec.field(name="ID")
    name: str = msgspec.field(name="DisplayName", default="")
    context_window: int = msgspec.field(name="ContextWindow", default=0)
    max_output: int = msgspec.field(name="MaxOutput", default=0)
    reasoning: bool = msgspec.field(name="Reasoning", default=False)
    base_url: str = msgspec.field(name="BaseURL", default="")
    fetched: float = 0.0
    """Unix time in seconds; the Go program has one time for all models."""


class Cache(Frozen):
    fetched_at: str = ""
    models: tuple[CachedModel, ...] = ()


prepared(ModelRow, ProviderRow, Cache)


def read_cache(home: str, provider: str) -> tuple[CachedModel, ...]:
    """Return the server's models cached within CACHE_SECONDS; none if the cache is unreadable."""
    now = time.time()
    return tuple(
        model
        for model in _cached(home)
        if model.provider == provider and now - model.fetched < CACHE_SECONDS
    )


def write_cache(home: str, provider: str, models: Iterable[Model]) -> None:
    """Cache the models listed by a provider's server."""
    now = time.time()
    rows = (msgspec.convert(model, CachedModel, from_attributes=True) for model in models)
    fresh = [replace(row, provider=provider, fetched=now) for row in rows]
    path = cache_path(home)
    with locked(path):
        others = [model for model in _cached(home) if model.provider != provider]
        stamp = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(now))
        write_atomic(path, msgspec.json.encode(Cache(stamp, (*others, *fresh))))


def _cached(home: str) -> tuple[CachedModel, ...]:
    try:
        data = read_bytes(cache_path(home))
        cache = Cache() if data is None else msgspec.json.decode(data, type=Cache)
    except (OSError, msgspec.MsgspecError, UnicodeDecodeError):
        return ()
    when = _seconds(cache.fetched_at)
    return tuple(row if row.fetched else replace(row, fetched=when) for row in cache.models)


def _seconds(stamp: str) -> float:
    try:
        return datetime.fromisoformat(stamp).timestamp()
    except (ValueError, OverflowError):
        return 0.0


def _told(cached: CachedModel, known: Model | None) -> Model:
    if known is not None:
        return known  # the catalog has prices and limits that servers do not report
    if cached.provider in PROVIDERS:
        base = catalog.unlisted_model(PROVIDERS[cached.provider], cached.id)
    else:
        base = Model(id=cached.id, provider=cached.provider, api="openai-chat")
    return replace(
        base,
        name=cached.name or cached.id,
        context_window=cached.context_window or base.context_window,
        max_output=cached.max_output or base.max_output,
        reasoning=cached.reasoning or base.reasoning,
        base_url=cached.base_url,
        source="cache",
    )
