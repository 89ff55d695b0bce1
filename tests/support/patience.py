"""How long a test waits before it gives something up: longer on a slow or busy machine.

The factor is measured once, by the first process of a session, and handed to its workers in
`ZOT_TEST_SLOWNESS`, which may also be set by hand.
"""

import os
import subprocess
import sys
import time

USUAL_START = 0.05
"""Seconds in which a quiet machine starts Python with a few modules."""
MOST = 10.0
"""A machine that is slower than this has another trouble."""


def measured_slowness() -> float:
    """How many times slower than usual Python starts, or as many processes as share a core."""
    took = []
    for _ in range(3):
        started = time.monotonic()
        subprocess.run([sys.executable, "-I", "-c", "import json, socket, threading"], check=True)
        took.append(time.monotonic() - started)
    waiting = os.getloadavg()[0] / (os.cpu_count() or 1)
    return min(MOST, max(1.0, sorted(took)[1] / USUAL_START, waiting))


def slowness() -> float:
    if "ZOT_TEST_SLOWNESS" not in os.environ:
        os.environ["ZOT_TEST_SLOWNESS"] = f"{measured_slowness():.1f}"
    return float(os.environ["ZOT_TEST_SLOWNESS"])


def patience(seconds: float) -> float:
    """So many seconds of a quiet machine, on this one."""
    return seconds * slowness()


PATIENCE = patience(20.0)
"""Seconds; far more than anything takes, and less than the limit of a test."""
TEST_LIMIT = patience(120.0)
"""Seconds that one test may take."""
