"""Published npm packages that tests need as a peer; the test is skipped without npm.

`ZOT_TEST_CACHE` names where they are kept (default: .cache/packages in the repository).
"""

from __future__ import annotations

import os
import shutil
import subprocess
import tarfile
from pathlib import Path
from typing import Any

import pytest
from support.environment import alone, once


def node() -> str:
    found = shutil.which("node")
    if found is None:
        pytest.skip("node is not installed")
    return found


SAFELY: Any = {"filter": "data"} if hasattr(tarfile, "data_filter") else {}
"""How archives are unpacked: Python 3.11.4 was the first one with filters."""
CACHE = Path(__file__).parents[2] / ".cache" / "packages"


@pytest.fixture(scope="session")
def cache() -> Path:
    """Where packages are kept, also those of PyPI, for the next run."""
    return Path(os.environ.get("ZOT_TEST_CACHE") or CACHE)


def unpacked(package: str, cache: Path) -> Path:
    """A published package, fetched once."""
    folder = cache / package.rpartition("/")[2].replace("@", "-")
    with alone(folder):
        if not (folder / "package").exists():
            _fetch(package, folder)
    return folder / "package"


def _fetch(package: str, folder: Path) -> None:
    npm = shutil.which("npm")
    if npm is None:
        pytest.skip("npm is not installed")
    try:
        packed = subprocess.run(
            [npm, "pack", package, "--silent", "--pack-destination", str(folder)],
            capture_output=True,
            text=True,
            timeout=90,
        )
    except subprocess.TimeoutExpired:
        pytest.skip("the package registry does not answer")
    if packed.returncode != 0:
        pytest.skip(f"{package} cannot be fetched: {packed.stderr.strip()[-200:]}")
    half = folder / "half"
    with tarfile.open(folder / packed.stdout.strip().splitlines()[-1]) as archive:
        archive.extractall(half, **SAFELY)
    (half / "package").rename(folder / "package")  # whole, or not there


def installed(cache: Path, *packages: str) -> Path:
    """Published packages with all that they need, installed once; the folder of `node_modules`."""
    name = "-".join(package.rpartition("/")[2].replace("@", "-") for package in packages)
    folder = cache / f"installed-{name}"
    with alone(folder):
        if not (folder / "done").exists():
            once(folder, str(packages))
            _install(packages, folder)
            (folder / "done").touch()
    return folder


def _install(packages: tuple[str, ...], folder: Path) -> None:
    npm = shutil.which("npm")
    if npm is None:
        pytest.skip("npm is not installed")
    words = [npm, "install", "--silent", "--no-audit", "--no-fund", "--ignore-scripts"]
    try:
        done = subprocess.run(
            [*words, "--prefix", str(folder), *packages],
            capture_output=True,
            text=True,
            timeout=110,
        )
    except subprocess.TimeoutExpired:
        pytest.skip("the package registry does not answer")
    if done.returncode != 0:
        pytest.skip(f"{packages} cannot be installed: {done.stderr.strip()[-200:]}")
