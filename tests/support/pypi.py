"""Published Python packages that only tests need as a peer, fetched once and kept out of the
environment of the project; the test is skipped where there is no registry.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from support.environment import alone, once


def fetched(cache: Path, package: str) -> Path:
    """A folder with the package and all that it needs, for PYTHONPATH."""
    version = f"{sys.version_info.major}.{sys.version_info.minor}"
    folder = cache / f"pypi-{package.replace('==', '-')}-{version}"
    with alone(folder):
        if not (folder / "done").exists():
            once(folder, package)
            _install(package, folder)
            (folder / "done").touch()
    return folder


def _install(package: str, folder: Path) -> None:
    words = ["install", "--quiet", "--disable-pip-version-check", "--upgrade"]
    words += ["--target", str(folder)]
    try:
        done = subprocess.run(
            [sys.executable, "-m", "pip", *words, package],
            capture_output=True,
            text=True,
            timeout=110,
        )
    except subprocess.TimeoutExpired:
        pytest.skip("the package registry does not answer")
    if done.returncode != 0:
        pytest.skip(f"{package} cannot be fetched: {done.stderr.strip()[-200:]}")
