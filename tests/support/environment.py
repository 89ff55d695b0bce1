"""What tests share with their child processes and with each other."""

import fcntl
import os
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import pytest

AGAIN_SECONDS = 1800


def uncovered(environ: Mapping[str, str] = os.environ) -> dict[str, str]:
    """The environment without coverage, for tests that look at which modules a child loads."""
    return {name: value for name, value in environ.items() if not name.startswith("COVERAGE")}


def once(folder: Path, what: str) -> None:
    """Skip the test if the same was tried in vain a moment ago: a registry that did not answer is
    not asked again by every test that needs it."""
    tried = folder / "tried"
    if tried.exists() and time.time() - tried.stat().st_mtime < AGAIN_SECONDS:
        pytest.skip(f"{what} could not be installed a moment ago")
    tried.touch()


@contextmanager
def alone(folder: Path) -> Iterator[None]:
    """Tests run in several processes: one fetches into this folder, the others wait for it."""
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / ".lock").open("w") as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        yield
