"""Every provider as data: address, API and key variables. The rows are in data/providers.json.

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
"""Header for the key: `Authorization: Bearer`, or the one of that name."""


class ProviderInfo(Frozen, kw_only=True):
    """A row of the table; a user's models.json adds rows of the same type."""

    name: str
    title: str = ""
    api: Api
    """API of models that do not set another one."""
    base_url: str = ""
    """With or without the version part; empty: the user must set one."""
    env: tuple[str, ...] = ()
    """Variables that hold the key; the first one set wins."""
    base_url_env: tuple[str, ...] = ()
    default_model: str = ""
    """Empty: the user must name one, or it is discovered."""
    auth: Auth = "bearer"
    key_optional: bool = False
    """Whether the key may be missing (a local server); it is sent if there is one."""
    headers: dict[str, str] = {}
    quirks: dict[str, Json] = {}
    """Fields of Quirks; a model's `compat` overrides them."""
    aliases: tuple[str, ...] = ()
    catalog: str = ""
    """Catalog file of this provider's models; empty: none is shipped."""
    open_models: bool = False
    """Accepts ids that are not in the catalog (a gateway, a local server)."""
    paths: dict[str, str] = {}
    """Path of an API below the base URL, if not the usual one."""
    other_host_api: Api | None = None
    """API to use when the user points the provider to another host: servers that imitate OpenAI
    speak Chat Completions, and `openai-responses` is for those that do not."""


class Quirks(Frozen, kw_only=True):
    """Deviations of a server from its API. Defaults are the API as documented."""

    max_tokens_field: str = "max_completion_tokens"
    """Name of the field for the answer's token limit, on the OpenAI Chat wire."""
    thinking: Literal["openai", "deepseek", "zai", "openrouter", "together", "none"] = "openai"
    """Form of the reasoning request on the OpenAI Chat wire."""
    effort: bool = True
    """Accepts a reasoning effort word."""
    levels: dict[str, str | None] | None = None
    """Reasoning level to the model's word for it; null: the model does not have the level."""
    adaptive: bool = False
    """Anthropic: accepts `thinking: adaptive` and an effort instead of a budget."""
    binding: bool = False
    """Anthropic: binds a thought to its prefix, and drops one that no longer fits if a beta header
    asks for it."""
    replay_reasoning: str = ""
    """Field of an assistant message that returns earlier reasoning; empty: there is none."""
    empty_signature: bool = False
    """Anthropic wire: thinking blocks have no signature, and are accepted back without one."""
    stream_usage: bool = True
    short_tool_ids: bool = False
    """Tool ids must be nine letters or digits (Mistral)."""
    tool_result_name: bool = False
    """Tool results must repeat the tool's name."""
    cache_key: bool = False
    """Accepts `prompt_cache_key` on the OpenAI Chat wire."""
    cache_marks: bool = False
    """Accepts Anthropic's cache_control on the OpenAI Chat wire."""
    cache_tools: bool = True
    """Anthropic wire: a tool may carry cache_control."""
    cache_options: bool = False
    """OpenAI: accepts `prompt_cache_options` with a lifetime."""
    long_cache: bool = True
    """Can keep an entry in its cache for longer than usual."""
    session_header: str = ""
    """Header for the conversation's cache key."""
    grammar_tools: bool | None = None
    """OpenAI Responses: takes custom tools with a grammar; None: by the model's id."""
    strict_tools: bool = False
    """Samples the arguments of tools by their schema on request."""
    tool_stream: bool = False
    """Streams tool arguments only on request (z.ai)."""
    interleaved: bool = False
    """Anthropic: may think between tool calls, by a beta header."""
    json_schema: bool = False
    """Accepts a JSON Schema as `response_format` on the OpenAI Chat wire."""
    extra_body: dict[str, Json] = {}
    """Fields added to every request: objects are merged, tools are added to zot's."""


Key = str | Callable[[], str]
"""A key, or a function that returns a valid one: a token may have to be refreshed."""

# pathlib is not on the start-up path.
with open(os.path.join(os.path.dirname(__file__), "data", "providers.json"), "rb") as _file:  # noqa: PTH118, PTH120, PTH123
    _ROWS = msgspec.json.decode(_file.read(), type=tuple[ProviderInfo, ...])

PROVIDERS: Mapping[str, ProviderInfo] = {row.name: row for row in _ROWS}
"""Every provider zot knows, by name."""

_NAMES = {alias: row.name for row in _ROWS for alias in (row.name, *row.aliases)}


def find_provider(name: str) -> ProviderInfo:
    """Return the provider with this name or alias.

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
    """Return every variable that a provider reads as a key; tools must not see them."""
    return frozenset(name for row in _ROWS for name in row.env)


def without_keys(environ: Mapping[str, str], hidden: Collection[str] = ()) -> dict[str, str]:
    """Return the environment without provider keys, for programs that do not need them. `hidden`
    are more variables with secrets: those of the user's own providers."""
    secret = {*env_secret_names(), *hidden, RPC_TOKEN}
    return {name: value for name, value in environ.items() if name not in secret}


def env_key(info: ProviderInfo, environ: Mapping[str, str]) -> str:
    """Return the key from the environment, or an empty string."""
    return next((value for name in info.env if (value := environ.get(name, "").strip())), "")


def env_base_url(info: ProviderInfo, environ: Mapping[str, str]) -> str:
    """Return the base URL from the environment, or an empty string."""
    names = info.base_url_env
    url = next((value for name in names if (value := environ.get(name, "").strip())), "")
    host = environ.get("OLLAMA_HOST", "").strip() if info.name == "ollama" else ""
    return url or (ollama_url(host) if host else "")


def ollama_url(host: str) -> str:
    """Return the URL for OLLAMA_HOST, which is an address to listen on."""
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
    """Return the provider's quirks, overridden by the model's.

    Raises:
        ConfigError: a quirk (of models.json) has a wrong name or type.
    """
    merged = {**info.quirks, **(model.compat or {})}
    bodies = [quirks.get("extra_body") for quirks in (info.quirks, model.compat or {})]
    if all(isinstance(body, dict) for body in bodies):
        merged["extra_body"] = merge(*bodies)
    unknown = sorted(set(merged) - set(Quirks.__struct_fields__))
    if unknown:
        raise ConfigError(f"unknown compat field {unknown[0]!r} of model {model.id!r}")
    try:
        with _reading:
            return msgspec.convert(merged, Quirks)
    except msgspec.ValidationError as error:
        raise ConfigError(f"bad compat of model {model.id!r}: {error}") from error


def merge(body: Json, more: Json) -> dict[str, Json]:
    """Return a body with more fields: objects are merged, `tools` are appended."""
    out = dict(body)
    for key, value in more.items():
        old = out.get(key)
        if isinstance(old, msgspec.Raw):
            old = msgspec.json.decode(old)
        if isinstance(old, dict) and isinstance(value, dict):
            out[key] = merge(old, value)
        elif key == "tools" and isinstance(old, list) and isinstance(value, list):
            out[key] = old + value
        else:
            out[key] = value
    return out


def api_of(info: ProviderInfo, model: Model, base_url: str | None) -> Api:
    """Return the API that a call will use."""
    if base_url and info.other_host_api and base_url.rstrip("/") != info.base_url:
        return info.other_host_api
    return model.api


def word_for_level(level: Level, levels: Mapping[str, str | None] | None) -> str | None:
    """Return the model's word for a reasoning level: the nearest it has, ties upward; None for off.

    A level that `levels` does not mention keeps its own word, except those only few models have.
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
