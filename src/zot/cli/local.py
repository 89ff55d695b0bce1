"""`zot local list|pull|remove|status`: the models on this machine and the server that runs them."""

from __future__ import annotations

import argparse
import importlib.util
import signal
import sys
from collections.abc import Sequence
from pathlib import Path

from zot.bugs import complain
from zot.cli.output import Subcommands, say, say_json
from zot.errors import ZotError
from zot.home import of_process
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
from zot.local.pull import Bar, pull, remove
from zot.local.server import running_servers
from zot.text import size_text


def main(argv: Sequence[str]) -> int:
    actions = Subcommands("local", "Models that run on this machine, with no key and no network.")
    actions.add("list", _list, "the models zot knows, and which are here", json="as one JSON array")
    command = actions.add("pull", _pull, "download a model, or go on with a cut download")
    command.add_argument("name", nargs="?", default=DEFAULT, help=f"default: {DEFAULT}")
    command.add_argument(
        "--url", default="", help="take the file from here; its SHA-256 is checked"
    )
    actions.add("remove", _remove, "delete a pulled model", "rm").add_argument("name")
    actions.add("status", _status, "what runs, and what this machine can run", json="as one object")
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
        sys.stderr.write("to run it: pip install 'zot-agent[local]'\n")


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
