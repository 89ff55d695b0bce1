"""The page under load, in a small version; bench/glasspane.md has the large one."""

import subprocess
import sys
from pathlib import Path

import pytest
from support.browser import CHROMIUM
from support.patience import patience

BENCH = Path(__file__).parents[2] / "bench" / "glasspane_load.py"


@pytest.mark.slow
@pytest.mark.skipif(CHROMIUM is None, reason="no chromium is installed")
def test_pages_that_lose_their_connections_hear_everything_once():
    # A page that is slow to connect anew needs a connection that lives long enough.
    size = ["--agents", "30", "--seconds", str(patience(12)), "--cut", str(patience(3))]
    done = subprocess.run(
        [sys.executable, str(BENCH), *size, "--untimed"],
        capture_output=True,
        text=True,
        timeout=patience(110),
    )
    assert done.returncode == 0, f"{done.stdout}\n{done.stderr}"
    assert "lost 0, twice 0" in done.stdout
