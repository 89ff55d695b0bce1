"""The model data that zot ships: windows, limits, prices. Reads one small file per provider.

The files are written by scripts/update_catalog.py. Part of stage one: nothing is read before it is
needed, and only the file of the provider in use.
"""

import os
import time
from collections.abc import Iterable
from functools import cache

import msgspec
from msgspec.structs import replace

from zot.errors import ConfigError
from zot.provider.model import (
    Api,
    Json,
    Model,
    Price,
    PriceTier,
    Rates,
    ServiceFactors,
)
from zot.provider.providers import PROVIDERS, ProviderInfo
from zot.text import Frozen, compiled, nearest

_DATA = os.path.join(os.path.dirname(__file__), "data", "models")  # noqa: PTH118, PTH120  pathlib is not on the start-up path
NEAR = 3
"""Number of similar ids that an error suggests."""
NEAR_END_DAYS = 60
"""Days before a model's end from which its users are warned."""


SCRIPTED = Model(
    id="scripted",
    provider="scripted",
    api="scripted",
    name="scripted (not a model)",
    context_window=200_000,
    max_output=8_192,
    reasoning=True,
    price=Price(input=0.0, output=0.0),
)


class CatalogRow(Frozen, omit_defaults=True):
    """A model in a data file."""

    id: str
    name: str = ""
    api: Api | None = None
    """None: the provider's API."""
    context: int = 128_000
    output: int = 8_192
    reasoning: bool = False
    images: bool = False
    price: tuple[float, ...] | None = None
    """Fields of Rates in their order; US dollars per million tokens."""
    tiers: tuple[tuple[float, ...], ...] = ()
    """Input tokens, then the price above them."""
    services: dict[str, tuple[float, float, float]] = {}
    """Factors on input, output and cache read by the provider's word."""
    cache: tuple[int, int] | None = None
    """Seconds that the prompt cache holds an entry: usual, long."""
    max_request_bytes: int | None = None
    max_images: int | None = None
    base_url: str = ""
    compat: dict[str, Json] | None = None
    deprecation_date: str = ""


class Snapshot(Frozen):
    date: str
    """Date of the prices."""
    source: str
    models: tuple[CatalogRow, ...]


def models(provider: str) -> tuple[Model, ...]:
    """Return the listed models of a provider, in catalog order; empty if none are shipped."""
    info = PROVIDERS[provider]
    if info.api == "scripted":
        return (SCRIPTED,)
    return tuple(_as_model(info, row) for row in _load(info.catalog).values())


def find(provider: str, model: str, *, unlisted: bool = False) -> Model:
    """Return the model with this id.

    `unlisted` accepts an id that is not in the catalog: providers add new models every week.

    Raises:
        ConfigError: the provider has no such model; the text suggests near ids.
    """
    info = PROVIDERS[provider]
    if info.api == "scripted":
        scripted = SCRIPTED
        if model != scripted.id:  # an embedder's test should fail like a user's run
            raise ConfigError(_unknown(provider, model, [scripted.id]))
        return scripted
    rows = _load(info.catalog)
    row = rows.get(model)
    if row is not None:
        return _as_model(info, row)
    if not model:
        raise ConfigError(f"provider {provider!r} needs a model: pass --model ID")
    if unlisted or info.open_models:
        return unlisted_model(info, model)
    raise ConfigError(_unknown(provider, model, list(rows)))


def unlisted_model(info: ProviderInfo, id: str) -> Model:
    """Return a model that is not in the catalog: with the limits of its nearest relative, and
    unknown price."""
    rows = _load(info.catalog)
    relative = relative_of(id, rows)
    if not relative:
        return Model(id=id, provider=info.name, api=info.api, name=id, source="unlisted")
    known = _as_model(info, rows[relative])
    return replace(known, id=id, name=id, price=None, deprecation_date="", source="unlisted")


def relative_of(id: str, known: Iterable[str]) -> str:
    """Return the most similar known id of the same family: among those that share the most words,
    the newest that is not newer than `id`. Empty: the family is unknown."""
    words, version = _words(id), _version(id)
    family = words[: 2 if "/" in id else 1]  # a gateway's ids are VENDOR/FAMILY-...
    shared = {
        other: len({*words} & {*_words(other)})
        for other in known
        if family and _words(other)[: len(family)] == family
    }
    most = max(shared.values(), default=0)
    closest = [other for other, count in shared.items() if count == most]
    older = [other for other in closest if _version(other) <= version]
    if not older:
        return min(closest, key=_version, default="")
    return max(older, key=lambda other: (_version(other), -len(_words(other))))


def _words(id: str) -> list[str]:
    """Return the words of an id without its numbers: claude, opus."""
    words: list[str] = compiled(r"[a-z]+").findall(id.lower())
    return [word for at, word in enumerate(words) if at == 0 or len(word) > 1]


def _version(id: str) -> tuple[int, ...]:
    """Return the numbers of an id without its date: 5, 5."""
    undated: str = compiled(r"-?20\d\d-?\d\d-?\d\d").sub("", id)
    return tuple(int(number) for number in compiled(r"\d+").findall(undated)[:2])


def notices(model: Model) -> list[str]:
    """Return notices about a model for its user: not in the catalog, or ending."""
    told: list[str] = []
    if model.source == "unlisted" and (rows := _rows_of(model.provider)):
        relative = relative_of(model.id, rows)
        limits = f"with the limits of {relative!r}" if relative else "with small limits"
        told.append(
            f"the model {model.id!r} is not in zot's list of {model.provider} "
            f"({price_date(model.provider)}): it is asked for as it is, {limits}, and its price is "
            "not known; models.json can say more about it"
        )
    end = model.deprecation_date
    if end and end <= _day(time.time() + NEAR_END_DAYS * 86_400):
        verb = "ended" if end <= _day(time.time()) else "ends"
        told.append(
            f"the model {model.id!r} of {model.provider} {verb} on {end}: choose another one with "
            f"--model{_instead(model)}"
        )
    return told


def _instead(model: Model) -> str:
    name = PROVIDERS[model.provider].default_model if model.provider in PROVIDERS else ""
    return f" (the default is {name})" if name and name != model.id else ""


def _rows_of(provider: str) -> dict[str, CatalogRow]:
    return _load(PROVIDERS[provider].catalog) if provider in PROVIDERS else {}


def _day(seconds: float) -> str:
    return time.strftime("%Y-%m-%d", time.localtime(seconds))


def near_ids(provider: str, model: str) -> list[str]:
    """Return the known ids most similar to one that the server refused."""
    known = [id for id in _rows_of(provider) if id != model]
    near = nearest(model, known, most=NEAR, cutoff=0.4)
    near = [*near[:1], relative_of(model, known), *near[1:]]
    return [id for id in dict.fromkeys(near) if id][:NEAR]


def default_model(provider: str) -> Model | None:
    """Return the model to use when the user names none; None if it must be named or discovered."""
    name = PROVIDERS[provider].default_model
    return find(provider, name) if name else None


def price_date(provider: str) -> str:
    """Return the date of the price snapshot, or an empty string."""
    info = PROVIDERS[provider]
    return _snapshot(info.catalog).date if info.catalog else ""


def _unknown(provider: str, model: str, known: list[str]) -> str:
    near = nearest(model, known, most=NEAR, cutoff=0.4) or known[:NEAR]
    return (
        f"unknown model {model!r} of provider {provider!r}: did you mean {', '.join(near)}?"
        " `zot --list-models` shows all; models.json adds others"
    )


def _as_model(info: ProviderInfo, row: CatalogRow) -> Model:
    return Model(
        id=row.id,
        provider=info.name,
        api=row.api or info.api,
        name=row.name or row.id,
        context_window=row.context,
        max_output=row.output,
        reasoning=row.reasoning,
        images=row.images,
        price=_price(row) if row.price else None,
        base_url=row.base_url,
        compat=row.compat,
        cache_seconds=row.cache,
        max_request_bytes=row.max_request_bytes,
        max_images=row.max_images,
        deprecation_date=row.deprecation_date,
    )


def _price(row: CatalogRow) -> Price:
    input, output, read, write, *long = row.price or ()
    tiers = [PriceTier(int(tier[0]), Rates(*tier[1:])) for tier in row.tiers]
    services = [ServiceFactors(name, *factors) for name, factors in row.services.items()]
    return Price(
        input, output, read, write, long[0] if long else None, tuple(tiers), tuple(services)
    )


@cache
def _snapshot(name: str) -> Snapshot:
    path = os.path.join(_DATA, f"{name}.json")  # noqa: PTH118  as above
    try:
        with open(path, "rb") as file:  # noqa: PTH123  as above
            return msgspec.json.decode(file.read(), type=Snapshot)
    except (OSError, msgspec.MsgspecError) as error:
        raise ConfigError(f"the model catalog {path!r} cannot be read: {error}") from error


@cache
def _load(name: str) -> dict[str, CatalogRow]:
    return {row.id: row for row in _snapshot(name).models} if name else {}
