"""The models zot ships facts about: windows, limits, prices. Reads one small file a provider.

The files are written by scripts/update_catalog.py. Part of stage one: nothing is read before it
is asked for, and only the file of the provider in use.
"""

import os
from functools import cache

import msgspec

from zot.errors import ConfigError
from zot.provider.model import Api, Json, Model, Price
from zot.provider.providers import PROVIDERS, ProviderInfo
from zot.text import Frozen, nearest

_DATA = os.path.join(os.path.dirname(__file__), "data", "models")  # noqa: PTH118, PTH120  pathlib is not on the start-up path
NEAR = 3
"""How many similar ids an error suggests."""


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
    """A model as it stands in a data file."""

    id: str
    name: str = ""
    api: Api | None = None
    """None: the provider's own."""
    context: int = 128_000
    output: int = 8_192
    reasoning: bool = False
    images: bool = False
    price: tuple[float, float, float, float] | None = None
    """Input, output, cache read, cache write; US dollars per million tokens."""
    base_url: str = ""
    compat: dict[str, Json] | None = None


class Snapshot(Frozen):
    date: str
    """The day the prices were true."""
    source: str
    models: tuple[CatalogRow, ...]


def models(provider: str) -> tuple[Model, ...]:
    """The listed models of a provider, in catalog order; empty where none are shipped."""
    info = PROVIDERS[provider]
    if info.api == "scripted":
        return (SCRIPTED,)
    return tuple(_as_model(info, row) for row in _load(info.catalog).values())


def find(provider: str, model: str, *, unlisted: bool = False) -> Model:
    """The model with that id.

    `unlisted` accepts an id that is not in the catalog (the user named another host).

    Raises:
        ConfigError: the provider has no such model; the text suggests near ids.
    """
    info = PROVIDERS[provider]
    if info.api == "scripted":
        scripted = SCRIPTED
        if model != scripted.id:  # an embedder's test should see what a user would
            raise ConfigError(_unknown(provider, model, [scripted.id]))
        return scripted
    rows = _load(info.catalog)
    row = rows.get(model)
    if row is not None:
        return _as_model(info, row)
    if not model:
        raise ConfigError(f"provider {provider!r} needs a model: pass --model ID")
    if unlisted or info.open_models:
        return Model(id=model, provider=info.name, api=info.api, name=model, source="unlisted")
    raise ConfigError(_unknown(provider, model, list(rows)))


def default_model(provider: str) -> Model | None:
    """The model to use when the user names none; None where it must be named or discovered."""
    name = PROVIDERS[provider].default_model
    return find(provider, name) if name else None


def price_date(provider: str) -> str:
    """The day of the price snapshot, or an empty string."""
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
        price=Price(*row.price) if row.price else None,
        base_url=row.base_url,
        compat=row.compat,
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
