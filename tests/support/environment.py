"""What tests share with their child processes and with each other."""

import fcntl
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path


def uncovered(environ: Mapping[str, str] = os.environ) -> dict[str, str]:
    """The environment without coverage, for tests that look at which modules a child loads."""
    return {name: value for name, value in environ.items() if not name.startswith("COVERAGE")}


@contextmanager
def alone(folder: Path) -> Iterator[None]:
    """Tests run in several processes: one fetches into this folder, the others wait for it."""
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / ".lock").open("w") as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        yield
