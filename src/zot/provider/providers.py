"""Every provider as data: where it is, how it is asked, which key opens it. The rows are in
data/providers.json.

Part of stage one: imports nothing but msgspec.
"""

import os
import threading
from collections.abc import Callable, Collection, Mapping
from typing import Literal

import msgspec

from zot.errors import ConfigError
from zot.home import RPC_TOKEN
from zot.provider.model import LEVELS, Api, Json, Level, Model
from zot.text import Frozen, nearest

# See text.prepared: this module is on the start-up path, and cannot prepare its struct there.
_reading = threading.Lock()

Auth = Literal["bearer", "x-api-key", "api-key", "x-goog-api-key", "none"]
"""How the key travels: `Authorization: Bearer`, or in a header of that name."""


class ProviderInfo(Frozen, kw_only=True):
    """One row of the table; a user's models.json makes the same rows."""

    name: str
    title: str = ""
    api: Api
    """The API of models that do not name another one."""
    base_url: str = ""
    """With or without the version part; empty: the user must give one."""
    env: tuple[str, ...] = ()
    """Variables that hold the key; the first one set wins."""
    base_url_env: tuple[str, ...] = ()
    default_model: str = ""
    """Empty: the user must name one, or it is discovered."""
    auth: Auth = "bearer"
    key_optional: bool = False
    """A local server: a key is sent when there is one, and not missed."""
    headers: dict[str, str] = {}
    quirks: dict[str, Json] = {}
    """Fields of Quirks; a model's `compat` overrides them."""
    aliases: tuple[str, ...] = ()
    catalog: str = ""
    """The catalog's file of this provider's models; empty: none is shipped."""
    open_models: bool = False
    """Takes ids that are not in the catalog (a gateway, a local server)."""
    paths: dict[str, str] = {}
    """Path of an API below the base URL, where it is not the usual one."""
    other_host_api: Api | None = None
    """The API to speak when the user points the provider to another host: servers that imitate
    OpenAI speak Chat Completions, and `openai-responses` is for those that do not."""


class Quirks(Frozen, kw_only=True):
    """How a server departs from its API. Defaults are the API as documented."""

    max_tokens_field: str = "max_completion_tokens"
    thinking: Literal["openai", "deepseek", "zai", "openrouter", "together", "none"] = "openai"
    """How reasoning is asked for on the OpenAI Chat wire."""
    effort: bool = True
    """Takes a reasoning effort word."""
    levels: dict[str, str | None] | None = None
    """Reasoning level to the model's word for it; null: the model does not have the level."""
    adaptive: bool = False
    """Anthropic: takes `thinking: adaptive` and an effort instead of a budget."""
    binding: bool = False
    """Anthropic: binds a thought to what came before it, and can be told to drop one that does not
    fit any more, by a beta header."""
    replay_reasoning: str = ""
    """Field of an assistant message that takes earlier reasoning back; empty: none does."""
    empty_signature: bool = False
    """Anthropic wire: thinking blocks come without a signature and are taken back so."""
    stream_usage: bool = True
    short_tool_ids: bool = False
    """Tool ids must be nine letters or digits (Mistral)."""
    tool_result_name: bool = False
    """Tool results must repeat the tool's name."""
    cache_key: bool = False
    """Takes `prompt_cache_key` on the OpenAI Chat wire."""
    cache_marks: bool = False
    """Takes Anthropic's cache_control on the OpenAI Chat wire."""
    cache_tools: bool = True
    """Anthropic wire: a tool may carry cache_control."""
    session_header: str = ""
    """Header that takes the conversation's cache key."""
    tool_stream: bool = False
    """Must be asked to stream tool arguments (z.ai)."""
    interleaved: bool = False
    """Anthropic: may think between tool calls, by a beta header."""
    extra_body: dict[str, Json] = {}
    """Fields of the server's own, added to every request on the OpenAI Chat wire."""


Key = str | Callable[[], str]
"""A key, or how to get the one that is good now: a token may have to be refreshed."""

# pathlib is not on the start-up path.
with open(os.path.join(os.path.dirname(__file__), "data", "providers.json"), "rb") as _file:  # noqa: PTH118, PTH120, PTH123
    _ROWS = msgspec.json.decode(_file.read(), type=tuple[ProviderInfo, ...])

PROVIDERS: Mapping[str, ProviderInfo] = {row.name: row for row in _ROWS}
"""Every provider zot knows, by name."""

_NAMES = {alias: row.name for row in _ROWS for alias in (row.name, *row.aliases)}


def find_provider(name: str) -> ProviderInfo:
    """The provider of that name or alias.

    Raises:
        ConfigError: there is none; the text names those there are.
    """
    known = _NAMES.get(name.strip().lower())
    if known is None:
        near = nearest(name.strip().lower(), _NAMES, cutoff=0.7)
        hint = f" (did you mean {_NAMES[near[0]]}?)" if near else ""
        raise ConfigError(
            f"unknown provider {name!r}{hint}: use one of {', '.join(sorted(PROVIDERS))},"
            " or add it to models.json"
        )
    return PROVIDERS[known]


def env_secret_names() -> frozenset[str]:
    """Every variable that a provider reads as a key; tools must not see them."""
    return frozenset(name for row in _ROWS for name in row.env)


def without_keys(environ: Mapping[str, str], hidden: Collection[str] = ()) -> dict[str, str]:
    """What a program that is no business of the providers may see of the environment. `hidden` are
    more variables with secrets: those of the user's own providers."""
    secret = {*env_secret_names(), *hidden, RPC_TOKEN}
    return {name: value for name, value in environ.items() if name not in secret}


def env_key(info: ProviderInfo, environ: Mapping[str, str]) -> str:
    """The key from the environment, or an empty string."""
    return next((value for name in info.env if (value := environ.get(name, "").strip())), "")


def env_base_url(info: ProviderInfo, environ: Mapping[str, str]) -> str:
    """The base URL from the environment, or an empty string."""
    names = info.base_url_env
    url = next((value for name in names if (value := environ.get(name, "").strip())), "")
    host = environ.get("OLLAMA_HOST", "").strip() if info.name == "ollama" else ""
    return url or (ollama_url(host) if host else "")


def ollama_url(host: str) -> str:
    """OLLAMA_HOST is an address to listen on; this is the URL that reaches it."""
    scheme, mark, rest = host.partition("://")
    if not mark:
        scheme, rest = "http", host
    address, colon, port = rest.rstrip("/").rpartition(":")
    if not colon or not port.isdigit():
        address, port = rest.rstrip("/"), "11434"
    if address in ("", "0.0.0.0", "[::]"):
        address = "127.0.0.1"
    return f"{scheme}://{address}:{port}/v1"


def resolve_quirks(info: ProviderInfo, model: Model) -> Quirks:
    """The provider's quirks with the model's own over them.

    Raises:
        ConfigError: a quirk (of models.json) has a wrong name or type.
    """
    merged = {**info.quirks, **(model.compat or {})}
    unknown = sorted(set(merged) - set(Quirks.__struct_fields__))
    if unknown:
        raise ConfigError(f"unknown compat field {unknown[0]!r} of model {model.id!r}")
    try:
        with _reading:
            return msgspec.convert(merged, Quirks)
    except msgspec.ValidationError as error:
        raise ConfigError(f"bad compat of model {model.id!r}: {error}") from error


def api_of(info: ProviderInfo, model: Model, base_url: str | None) -> Api:
    """The API a call will speak."""
    if base_url and info.other_host_api and base_url.rstrip("/") != info.base_url:
        return info.other_host_api
    return model.api


def word_for_level(level: Level, levels: Mapping[str, str | None] | None) -> str | None:
    """The model's word for a reasoning level: the nearest it has, ties upward; None for off.

    A level that `levels` does not mention is taken as it is, except those only few models have.
    """
    table: dict[str, str | None] = {
        **{"minimum": "minimal", "low": "low", "medium": "medium", "high": "high"},
        **(levels or {}),
    }
    if level == "off":
        return None
    order = LEVELS[1:]
    at = order.index(level)
    for distance in range(len(order)):
        for index in (at + distance, at - distance):
            if 0 <= index < len(order) and (word := table.get(order[index])):
                return word
    return None
