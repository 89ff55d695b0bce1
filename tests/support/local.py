"""The real small model for tests: pulled once into a cache, then shared by all of them.

`ZOT_TEST_MODELS` names the cache (default: .cache/models in the repository).
"""

from __future__ import annotations

import importlib.util
import os
import struct
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from functools import cache
from pathlib import Path

import pytest
from support.environment import alone
from support.own_home import user_home
from support.patience import patience

from zot.home import home_dir
from zot.local.models import DEFAULT, SMALL, known_model, pulled_path
from zot.local.pull import PullError, pull

CACHE = Path(__file__).parents[2] / ".cache" / "models"


def cache_dir() -> Path:
    return Path(os.environ.get("ZOT_TEST_MODELS") or CACHE)


@cache
def why_not() -> str:
    """Why models cannot run here; empty if they can."""
    if importlib.util.find_spec("xllamacpp") is None:
        return "the extra `local` (xllamacpp) is not installed"
    loaded = subprocess.run(
        [sys.executable, "-c", "import xllamacpp"], capture_output=True, text=True
    )
    reason = (loaded.stderr.strip().splitlines() or [""])[-1]
    return f"xllamacpp cannot be loaded: {reason}" if loaded.returncode else ""


def small_model_file() -> Path:
    """The file of the small model; skips the test where it cannot be had."""
    if trouble := why_not():
        pytest.skip(trouble)
    path = cache_dir() / f"{SMALL}.gguf"
    with alone(cache_dir()):
        if not path.is_file():
            _pull_into(cache_dir())
    return path


def large_model_file() -> Path:
    """The file of the default model, only where somebody has put it: it is never fetched here."""
    if trouble := why_not():
        pytest.skip(trouble)
    model = known_model(DEFAULT)
    for folder in (cache_dir(), user_home() / ".local" / "state" / "zot" / "models"):
        path = folder / f"{DEFAULT}.gguf"
        if path.is_file() and path.stat().st_size == model.bytes:
            return path
    pytest.skip(f"{DEFAULT} is not on this machine (`zot local pull` fetches 1.1 GB)")


def _pull_into(folder: Path) -> None:
    before = os.environ.get("ZOT_HOME")
    os.environ["ZOT_HOME"] = str(folder.parent)
    try:
        found = pull(known_model(SMALL), lambda have, total: None, home_dir(os.environ))
        if found.parent != folder:
            found.replace(folder / found.name)
    except PullError as failed:
        pytest.skip(f"the small model cannot be fetched: {failed}")
    finally:
        if before is None:
            del os.environ["ZOT_HOME"]
        else:
            os.environ["ZOT_HOME"] = before


def place(file: Path) -> Path:
    """Put a model into the current ZOT_HOME as if it had been pulled."""
    name = file.name.removesuffix(".gguf")
    path = pulled_path(known_model(name), home_dir(os.environ))
    path.parent.mkdir(parents=True, exist_ok=True)
    path.symlink_to(file)
    return path


PATIENCE = patience(60.0)


def within(found: Callable[[], bool], what: str) -> None:
    """Wait until it is so."""
    deadline = time.monotonic() + PATIENCE
    while not found():
        assert time.monotonic() < deadline, f"waited for {what}"
        threading.Event().wait(0.02)


def text(value: str) -> bytes:
    data = value.encode()
    return struct.pack("<Q", len(data)) + data


def tiny_gguf(values: dict[str, str | int | list[str]]) -> bytes:
    """A GGUF header with these values and no tensors: well formed, but no model."""
    out = b"GGUF" + struct.pack("<IQQ", 3, 0, len(values))
    for key, value in values.items():
        out += text(key)
        if isinstance(value, str):
            out += struct.pack("<I", 8) + text(value)
        elif isinstance(value, int):
            out += struct.pack("<II", 4, value)
        else:
            out += struct.pack("<IIQ", 9, 8, len(value)) + b"".join(map(text, value))
    return out
