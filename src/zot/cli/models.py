"""`zot --list-models`: the models of a provider, as a table or as JSON."""

from __future__ import annotations

import os
from collections.abc import Sequence

from zot.bugs import complain
from zot.cli.output import say, say_table
from zot.errors import AuthError, ConfigError, ProviderError
from zot.home import of_process
from zot.lines import encode_line
from zot.local.provider import local_models
from zot.provider.catalog import price_date
from zot.provider.discover import live_models
from zot.provider.providers import ProviderInfo, env_base_url
from zot.provider.types import Model
from zot.settings.known import Known, with_token
from zot.settings.models import read_cache, write_cache
from zot.settings.options import Options
from zot.settings.resolve import (
    DEFAULT_PROVIDER,
    LOCAL,
    choose_provider,
    configured,
    working_directory,
)

ASK_SECONDS = 3.0
"""Seconds to wait for the provider's model list before doing without it."""

_HEAD = ("provider", "model", "context", "max out", "reasoning", "$/M in", "$/M out", "source")


def list_models(options: Options) -> int:
    models = _models(options)
    dates = _price_dates(models)
    if options.json:
        say(encode_line({"models": models, "price_dates": dates}).decode().removesuffix("\n"))
        return 0
    say_table([_HEAD, *(_row(model) for model in models)])
    for provider, date in dates.items():
        complain(f"prices of {provider}: US dollars per million tokens on {date}")
    return 0


def _price_dates(models: Sequence[Model]) -> dict[str, str]:
    """Return by provider the day on which the catalog's prices were looked up."""
    names = {model.provider for model in models if model.source == "catalog" and model.price}
    return {name: date for name in sorted(names) if (date := price_date(name))}


def _models(options: Options) -> Sequence[Model]:
    around = of_process()
    known = Known(around.home)
    try:
        cwd = working_directory(options.cwd, around)
        wanted, _ = configured(options, os.environ, cwd, known.home)
        choice = choose_provider(wanted, around, known)
    except AuthError:  # the list needs no key
        return known.all(DEFAULT_PROVIDER)
    info = choice.info
    if info.name == LOCAL:
        models = local_models(around.home)
        if not models:
            complain("no model is on this machine yet; `zot local pull` downloads one")
        return models
    base_url = wanted.base_url or choice.base_url or env_base_url(info, os.environ)
    try:
        return _told(known, info, wanted.api_key, base_url) or known.all(info.name)
    except (ProviderError, ConfigError) as error:
        complain(f"{error}; this is what is known without asking")
        return known.all(info.name)


def _told(known: Known, info: ProviderInfo, flag: str, base_url: str) -> Sequence[Model]:
    """Fetch the server's model list: return it if the server is another host, else cache it.

    Raises:
        ProviderError: the server does not list its models.
    """
    key = known.key(info, flag, os.environ)
    askable = bool(base_url or info.base_url) and info.api != "scripted"
    if not askable or not (key.text or info.key_optional):
        return ()
    if key.is_token:
        info = with_token(info, key.text)
    elsewhere = bool(base_url) and base_url.rstrip("/") != info.base_url
    if not elsewhere and read_cache(known.home, info.name):
        return ()
    models = live_models(info, key.text, base_url, seconds=ASK_SECONDS)
    if elsewhere:
        return models
    write_cache(known.home, info.name, models)
    return ()


def _row(model: Model) -> tuple[str, ...]:
    price = model.price
    return (
        model.provider,
        model.id,
        str(model.context_window),
        str(model.max_output),
        "yes" if model.reasoning else "",
        f"{price.input:g}" if price else "?",
        f"{price.output:g}" if price else "?",
        model.source,
    )
