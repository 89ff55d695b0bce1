"""`zot --list-models`: list the models of a provider. `zot local`: models on this machine and the
server that runs them.
"""

from __future__ import annotations

import argparse
import importlib.util
import os
import signal
import sys
import time
from collections.abc import Sequence
from pathlib import Path

from zot.bugs import complain
from zot.cli.output import Subcommands, arg, json_flag, say, say_json, say_table
from zot.errors import AuthError, ConfigError, ProviderError, ZotError
from zot.extras import install_command
from zot.home import of_process
from zot.lines import encode_line
from zot.local.models import (
    DEFAULT,
    LocalModel,
    free_memory,
    is_pulled,
    known_model,
    known_models,
    models_dir,
    pulled_path,
    server_threads,
)
from zot.local.provider import local_models
from zot.local.pull import Bar, pull, remove
from zot.local.server import running_servers
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
from zot.text import size_text

ASK_SECONDS = 3.0
"""Seconds to wait for the provider's model list before doing without it."""

_HEAD = (
    *("provider", "model", "context", "max out", "reasoning"),
    *("$/M in", "$/M out", "$/M cached", "ends", "source"),
)


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
        complain(f"{error}; these are the models known without the server")
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
        f"{price.cache_read:g}" if price else "?",
        _end(model),
        model.source,
    )


def _end(model: Model) -> str:
    """Return the day on which a model ends, or that it has ended."""
    end = model.deprecation_date
    return f"ended {end}" if end and end <= time.strftime("%Y-%m-%d") else end


# --- zot local -------------------------------------------------------------------------------


def local(argv: Sequence[str]) -> int:
    actions = Subcommands("local", "Models that run on this machine, with no key and no network.")
    # fmt: off
    actions.add("list", _list, "list the known models, and which are here",
                json_flag("print one JSON array"))
    actions.add("pull", _pull, "download a model, or resume a download",
                arg("name", nargs="?", default=DEFAULT, help=f"default: {DEFAULT}"),
                arg("--url", default="", help="download from here; the SHA-256 is checked"))
    actions.add("remove", _remove, "delete a pulled model", arg("name"), aliases=("rm",))
    actions.add("status", _status, "show running servers and what this machine can run",
                json_flag("print one JSON object"))
    # fmt: on
    return actions.run(argv[1:])


def _list(options: argparse.Namespace) -> None:
    home = of_process().home
    models = known_models()
    if options.json:
        rows = [{**_facts(model, home), "pulled": is_pulled(model, home)} for model in models]
        say_json(rows)
        return
    say(f"{'NAME':<20} {'SIZE':>8}  {'LICENCE':<11} {'HERE':<5} GOOD FOR")
    for model in models:
        here = "yes" if is_pulled(model, home) else "no"
        size = size_text(model.bytes)
        say(f"{model.name:<20} {size:>8}  {model.licence:<11} {here:<5} {model.good_for}")
    say("")
    for model in models:
        say(f"{model.name}: {model.title} by {model.publisher}; {_sources(model)}")
        say(f"  sha256 {model.sha256}")
    say("\nAny other GGUF file: zot -p --provider local --model /path/to/file.gguf ...")


def _facts(model: LocalModel, home: str) -> dict[str, object]:
    return {
        "name": model.name,
        "title": model.title,
        "publisher": model.publisher,
        "licence": model.licence,
        "bytes": model.bytes,
        "memory": model.memory,
        "sha256": model.sha256,
        "packages": [f"{package.name}=={package.version}" for package in model.packages],
        "url": model.url,
        "path": str(pulled_path(model, home)),
    }


def _sources(model: LocalModel) -> str:
    places = []
    if len(model.packages) == 1:
        places.append(f"the package {model.packages[0].name}")
    elif model.packages:
        places.append(f"{len(model.packages)} packages, {model.packages[0].name} and so on")
    if model.url:
        places.append(model.url)
    return "from " + " or ".join(places)


def _pull(options: argparse.Namespace) -> None:
    home = of_process().home
    model = known_model(options.name)
    if is_pulled(model, home):
        say(f"{model.name} is here: {pulled_path(model, home)}")
        return
    sys.stderr.write(
        f"{model.title} by {model.publisher}, {model.licence}, {size_text(model.bytes)}, "
        f"to {models_dir(home)}\n"
    )
    bar = Bar(model.name, sys.stderr)
    # SIGTERM must end the downloads too, as Ctrl-C does.
    before = signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        path = pull(model, bar, home, url=options.url)
    except KeyboardInterrupt:
        sys.stderr.write("\n")
        complain("stopped; run the same command to go on from here")
        raise
    finally:
        signal.signal(signal.SIGTERM, before)
        bar.close()
    say(f"{path} (SHA-256 checked)")
    if importlib.util.find_spec("xllamacpp") is None:
        sys.stderr.write(f"to run it: {install_command('local')}\n")


def _remove(options: argparse.Namespace) -> None:
    home = of_process().home
    model = known_model(options.name)
    if not remove(model, home):
        raise ZotError(f"{model.name} is not on this machine: nothing to remove")
    say(f"removed {model.name}")


def _status(options: argparse.Namespace) -> None:
    home = of_process().home
    servers = running_servers(Path(home, "local"))
    memory = free_memory()
    if options.json:
        facts = {
            "servers": [
                {"pid": server.pid, "port": server.port, "model": server.model}
                for server in servers
            ],
            "pulled": [model.name for model in known_models() if is_pulled(model, home)],
            "memory_free": memory,
            "threads": server_threads(),
        }
        say_json(facts)
        return
    for model in known_models():
        state = "here" if is_pulled(model, home) else f"not pulled ({size_text(model.bytes)})"
        say(f"{model.name}: {state}")
    for server in servers:
        say(f"running: {Path(server.model).name}, process {server.pid}, port {server.port}")
    if not servers:
        say("running: nothing (a server starts with its first user and ends after the last)")
    free = size_text(memory) if memory is not None else "unknown"
    say(f"memory free: {free}; threads for the model: {server_threads()}")
