"""`zot swarm worker` and `zot swarm temporal`: the swarm on many machines."""

from __future__ import annotations

import argparse
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any, NoReturn

from msgspec.structs import asdict, replace

from zot.cli.output import say, say_json
from zot.errors import ConfigError
from zot.files import ensure_dir
from zot.home import home_dir
from zot.provider.providers import without_keys
from zot.settings.known import hide_keys
from zot.swarm.temporal.config import (
    TemporalConfig,
    WorkerPlace,
    hub_token,
    load_config,
    run_worker,
    save_config,
    server_command,
)

SERVER_PORT = 7233


def add_temporal_actions(action: Callable[..., argparse.ArgumentParser]) -> None:
    worker = action("worker", _worker, "do tasks of `--engine temporal` on this machine")
    worker.add_argument("--hub", default="", help="address of the machine that gave the tasks")
    worker.add_argument("--slots", type=int, default=8, help="tasks at once (default 8)")
    worker.add_argument("--queue", default="", help="whose tasks")
    worker.add_argument("--repository", default="", help="a clone or an address to fetch from")
    worker.add_argument("--folder", default="", help="where it works")
    worker.add_argument("--ca-file", default="", help="certificate to check the hub's with")
    temporal = action("temporal", _temporal, "a server for trying it (dev); settings (config)")
    temporal.add_argument("what", choices=("dev", "config"))
    temporal.add_argument("--port", type=int, default=SERVER_PORT, help="of the server")
    temporal.add_argument("--forget", action="store_true", help="keep the server's data in memory")
    temporal.add_argument("--queue", help="name of the queue")
    temporal.add_argument(
        "--lease", dest="lease_seconds", type=float, metavar="SECONDS", help="of a silent worker"
    )
    temporal.add_argument("--hub-host", help="where workers reach this machine")
    temporal.add_argument("--hub-port", type=int)
    temporal.add_argument("--hub-name", help="what they call it")
    temporal.add_argument(
        "--hub-cert", dest="tls_cert", type=_absolute, help="certificate (for other machines)"
    )
    temporal.add_argument("--hub-key", dest="tls_key", type=_absolute, help="and its key")


def _absolute(path: str) -> str:
    return str(Path(path).absolute()) if path else ""


def _swarm() -> Path:
    return Path(home_dir(os.environ)) / "swarm"


def change_config(**changes: Any) -> TemporalConfig:
    """Save the values that are not None; return the resulting settings."""
    config = load_config(_swarm())
    named = {name: value for name, value in changes.items() if value is not None}
    if named:
        config = replace(config, **named)
        save_config(_swarm(), config)
    return config


def _temporal(swarm: object, arguments: argparse.Namespace) -> None:
    if arguments.what == "dev":
        _dev(arguments)
    fields = TemporalConfig.__struct_fields__
    config = change_config(**{n: value for n, value in vars(arguments).items() if n in fields})
    if arguments.json:
        say_json(config)
        return
    for name, value in asdict(config).items():
        say(f"{name.replace('_', ' '):14} {value}")
    say(f"{'workers use':14} {config.hub_url} with the token in {_swarm() / 'hub.token'}")
    hub_token(_swarm())


def _dev(arguments: argparse.Namespace) -> NoReturn:
    database = "" if arguments.forget else str(ensure_dir(_swarm()) / "temporal.db")
    command = server_command(database, arguments.port)
    say(
        f"Temporal at 127.0.0.1:{arguments.port}, its page at http://127.0.0.1:"
        f"{arguments.port + 1000}; end it with Ctrl-C"
    )
    os.execve(command[0], command, without_keys(os.environ))


def _worker(swarm: object, arguments: argparse.Namespace) -> None:
    config = load_config(_swarm())
    if arguments.queue:
        config = replace(config, queue=arguments.queue)
    token = os.environ.get("ZOT_SWARM_TOKEN", "")
    if not token and not arguments.hub:
        token = hub_token(_swarm())  # the tasks are submitted on this machine, too
    if not token:
        raise ConfigError(
            "a worker on another machine needs ZOT_SWARM_TOKEN: what hub.token says where the "
            "tasks are given (zot swarm temporal config shows the file)"
        )
    if arguments.slots < 1:
        raise ConfigError(f"--slots must be at least 1, not {arguments.slots}")
    folder = Path(arguments.folder or Path(home_dir(os.environ)) / "worker")
    place = WorkerPlace(
        folder=folder.absolute(),
        hub=arguments.hub or config.hub_url,
        token=token,
        slots=arguments.slots,
        repository=arguments.repository,
        ca_file=arguments.ca_file,
    )
    hidden = ("ZOT_SWARM_TOKEN", "TEMPORAL_API_KEY")  # not for programs that agents run
    environment = {name: value for name, value in os.environ.items() if name not in hidden}
    hide_keys(home_dir(os.environ), os.environ, hidden)
    run_worker(config, place, environment)
