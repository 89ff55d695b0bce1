"""Fetches the models that a provider lists now, which also shows whether it accepts a key. Caching
and display are left to the caller.
"""

from __future__ import annotations

from typing import Literal

import msgspec
from msgspec.structs import replace

from zot.cancel import Cancel
from zot.errors import BadResponse, ConfigError, ProviderError
from zot.provider import catalog
from zot.provider.assemble import counted
from zot.provider.client import auth_headers, join_path
from zot.provider.failure import SHOWN, one_line
from zot.provider.http import Http
from zot.provider.keys import split_keys
from zot.provider.providers import PROVIDERS, ProviderInfo
from zot.provider.types import Json, Model
from zot.text import Frozen, prepared

SECONDS = 15.0
MAX_BODY = 16 * 1024 * 1024
# Kinds of models on the same lists that cannot hold a conversation.
NOT_FOR_TALK = (
    *("embed", "whisper", "tts", "audio", "realtime", "image", "transcribe", "moderation"),
    *("dall-e", "sora", "rerank", "veo", "imagen", "lyria", "speech"),
)


LiveRow = dict[str, Json]
"""A model of any list: each server has other fields."""


class LiveList(Frozen):
    data: tuple[LiveRow, ...] | None = None
    models: tuple[LiveRow, ...] | None = None


prepared(LiveList)


def live_models(
    info: ProviderInfo,
    key: str = "",
    base_url: str = "",
    *,
    seconds: float = SECONDS,
) -> tuple[Model, ...]:
    """Return the models the provider lists, with the catalog's data where available.

    Raises:
        ProviderError: no answer, or one that is not a list of models.
        ConfigError: there is no address to ask.
    """
    url = base_url or info.base_url
    if not url:
        raise ConfigError(f"no address for provider {info.name!r}: set --base-url")
    http = Http(info.name, url, secret=key, connect_seconds=seconds, idle_seconds=seconds)
    try:
        rows = fetch(http, info, key)
    finally:
        http.close()
    known = {model.id: model for model in catalog.models(info.name)} if info.catalog else {}
    return tuple(as_model(info, row, known) for row in rows if can_talk(row))


def fetch(http: Http, info: ProviderInfo, key: str) -> tuple[LiveRow, ...]:
    key = split_keys(key)[0]
    headers = {"accept": "application/json", **info.headers, **auth_headers(info, key)}
    path = "/v1/models"
    if info.api == "anthropic":
        headers["anthropic-version"] = "2023-06-01"
        path = "/v1/models?limit=1000"
    elif info.api == "google":
        path = "/v1beta/models?pageSize=1000"
    elif info.paths:
        # The list is beside the API's own path: /openai/v1/responses, /openai/v1/models.
        path = next(iter(info.paths.values())).removesuffix("/completions")
        path = path.rpartition("/")[0] + "/models"
    target = join_path(http.address.path, path)
    with http.exchange(http.head("GET", target, headers), None, Cancel()) as answer:
        if answer.status != 200:
            raise answer.error()
        body = answer.read_text(MAX_BODY)
    try:
        listed = msgspec.json.decode(body, type=LiveList)
    except (msgspec.MsgspecError, RecursionError) as error:
        shown = one_line(http.redact(body), SHOWN)
        raise BadResponse(f"{info.name}: not a list of models: {shown}") from error
    return listed.data or listed.models or ()


def can_talk(row: LiveRow) -> bool:
    id = model_id(row).lower()
    methods = row.get("supportedGenerationMethods")
    if isinstance(methods, list) and "generateContent" not in methods:
        return False
    return bool(id) and not any(word in id for word in NOT_FOR_TALK)


def model_id(row: LiveRow) -> str:
    return text_at(row, "id") or text_at(row, "name").removeprefix("models/")


def text_at(row: LiveRow, *names: str) -> str:
    texts = (row.get(name) for name in names)
    return next((text for text in texts if isinstance(text, str) and text), "")


def as_model(info: ProviderInfo, row: LiveRow, known: dict[str, Model]) -> Model:
    id = model_id(row)
    if id in known:
        return replace(known[id], source="live")
    name = text_at(row, "display_name", "displayName", *(["name"] if row.get("id") else [])) or id
    base = catalog.unlisted_model(PROVIDERS.get(info.name, info), id)
    # vLLM uses the second name.
    words = ("context_length", "max_model_len", "inputTokenLimit", "max_input_tokens")
    return replace(
        base,
        name=name,
        source="live",
        context_window=counted(row, *words) or base.context_window,
        max_output=counted(row, "outputTokenLimit") or base.max_output,
    )


# --- checking a key ----------------------------------------------------------------------------

Verdict = Literal["accepted", "refused", "unknown"]
PROBE_SECONDS = 10.0


class Probed(Frozen):
    verdict: Verdict
    reason: str = ""
    """Why the key was refused, or why the check failed."""
    models: tuple[Model, ...] = ()


def probe(info: ProviderInfo, key: str) -> Probed:
    """Check whether the provider accepts the key."""
    try:
        return Probed("accepted", models=live_models(info, key, seconds=PROBE_SECONDS))
    except ProviderError as error:
        if error.status in (401, 403):
            return Probed("refused", f"{info.name} refused the key (HTTP {error.status})")
        return Probed("unknown", str(error))
    except ConfigError as error:
        return Probed("unknown", str(error))
