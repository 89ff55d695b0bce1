"""Reads models.json, the user's own providers and models, and models-cache.json, the models that
servers listed. `known.Known` combines them with the catalog.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterable
from datetime import datetime

import msgspec
from msgspec.structs import replace

from zot.files import locked, read_bytes, write_atomic
from zot.provider import catalog
from zot.provider.providers import PROVIDERS, Auth, ProviderInfo
from zot.provider.types import Api, Json, Model, Price
from zot.settings.known import UserModels, catalog_models
from zot.text import Frozen, prepared

CACHE_SECONDS = 6 * 3600
"""Seconds for which a server's list of models is cached."""

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


def read_models(home: str) -> UserModels:
    """Read models.json. Parts that cannot be used are left out, with a warning."""
    path = os.path.join(home, "models.json")
    user = UserModels()
    for name, value in _read_providers(path, user.warnings).items():
        try:
            row = msgspec.convert(value, ProviderRow)
        except msgspec.ValidationError as error:
            user.warnings.append(f"provider {name!r}: {error}")
        else:
            _add_provider(user, _ALIASES.get(name, name), row)
    return replace(user, warnings=[f"{path!r}: {why}; it is not used" for why in user.warnings])


def _read_providers(path: str, warnings: list[str]) -> dict[str, Json]:
    try:
        data = read_bytes(path)
        if data is None:
            return {}
        return msgspec.json.decode(data, type=dict[str, dict[str, Json]])["providers"]
    except KeyError:
        warnings.append('it has no "providers"')
    except (OSError, msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        warnings.append(str(error))
    return {}


def _add_provider(user: UserModels, name: str, row: ProviderRow) -> None:
    info = PROVIDERS.get(name)
    api = _api(row.api, f"provider {name!r}", user.warnings)
    if info is None:
        if not row.base_url or api is None:
            user.warnings.append(f"provider {name!r} needs a baseUrl and an api of {_API_WORDS}")
            return
        info = _own_provider(name, row, api)
    info = user.providers[name] = _changed(info, row, api)
    user.keys[name] = row.api_key
    models = user.models.setdefault(name, {})
    listed = {model.id: model for model in catalog_models(name)} if row.models else {}
    for position, value in enumerate(row.models):
        where = f"model {position + 1} of provider {name!r}"
        try:
            model = msgspec.convert(value, ModelRow)
        except msgspec.ValidationError as error:
            user.warnings.append(f"{where}: {error}")
            continue
        if not model.api or _api(model.api, where, user.warnings):
            models[model.id] = _as_model(model, info, listed.get(model.id))


def _api(word: str, where: str, warnings: list[str]) -> Api | None:
    if word and word not in _APIS:
        warnings.append(f"{where} has the unknown api {word!r}; use {_API_WORDS}")
    return _APIS.get(word)


def _as_model(row: ModelRow, info: ProviderInfo, listed: Model | None) -> Model:
    base = listed or Model(id=row.id, provider=info.name, api=info.api, name=row.id, images=False)
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
        compat={**(base.compat or {}), **(row.compat or {})} or None,
        source="user",
    )


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


def read_cache(home: str, provider: str) -> dict[str, Model]:
    """Return the models that the server listed within CACHE_SECONDS, by id; none if the cache is
    unreadable."""
    now = time.time()
    return {
        row.id: _cached_model(row)
        for row in _cached(home)
        if row.provider == provider and now - row.fetched < CACHE_SECONDS
    }


def write_cache(home: str, provider: str, models: Iterable[Model]) -> None:
    """Cache the models listed by a provider's server."""
    now = time.time()
    rows = (msgspec.convert(model, CachedModel, from_attributes=True) for model in models)
    fresh = [replace(row, provider=provider, fetched=now) for row in rows]
    path = os.path.join(home, "models-cache.json")
    with locked(path):
        others = [model for model in _cached(home) if model.provider != provider]
        stamp = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(now))
        write_atomic(path, msgspec.json.encode(Cache(stamp, (*others, *fresh))))


def _cached(home: str) -> tuple[CachedModel, ...]:
    try:
        data = read_bytes(os.path.join(home, "models-cache.json"))
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


def _cached_model(row: CachedModel) -> Model:
    if row.provider in PROVIDERS:
        base = catalog.unlisted_model(PROVIDERS[row.provider], row.id)
    else:
        base = Model(id=row.id, provider=row.provider, api="openai-chat")
    return replace(
        base,
        name=row.name or row.id,
        context_window=row.context_window or base.context_window,
        max_output=row.max_output or base.max_output,
        reasoning=row.reasoning or base.reasoning,
        base_url=row.base_url,
        source="cache",
    )
