"""What ten configured MCP servers cost before one is called: `hello` and the first prompt, with
none and with ten servers whose lists are known. Prints medians in milliseconds.

    .venv/bin/python bench/mcp_start.py [runs]
"""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).parent.parent
sys.path.insert(0, str(ROOT / "tests"))

from support.mcp import configure, entry  # noqa: E402  # the test server

from zot.testing.fakeserver import FakeServer  # noqa: E402


def once(home: Path, url: str) -> tuple[float, float]:
    """Seconds from the start to the answer of `hello`, and from a prompt to its `done`."""
    command = [sys.executable, "-m", "zot", "rpc", "--provider", "anthropic", "--api-key", "k"]
    began = time.perf_counter()
    process = subprocess.Popen(
        [*command, "--base-url", url],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        env={**os.environ, "ZOT_HOME": str(home)},
        cwd=home,
    )
    assert process.stdin is not None and process.stdout is not None
    process.stdin.write(b'{"id":"1","type":"hello"}\n')
    process.stdin.flush()
    process.stdout.readline()
    hello = time.perf_counter() - began
    time.sleep(0.5)  # the client thinks, and the agent loads
    asked = time.perf_counter()
    process.stdin.write(b'{"id":"2","type":"prompt","message":"say:hi"}\n')
    process.stdin.flush()
    while json.loads(process.stdout.readline())["type"] != "done":
        pass
    prompt = time.perf_counter() - asked
    process.stdin.close()
    process.wait()
    return hello, prompt


def main() -> None:
    runs = int(sys.argv[1]) if len(sys.argv) > 1 else 20
    with FakeServer() as server, tempfile.TemporaryDirectory() as folder:
        homes = {0: Path(folder) / "none", 10: Path(folder) / "ten"}
        homes[0].mkdir()
        configure(homes[10] / "mcp.json", **{f"s{number}": entry() for number in range(10)})
        for home in homes.values():
            once(home, server.url)  # the lists become known
        rows: dict[int, list[tuple[float, float]]] = {0: [], 10: []}
        for _ in range(runs):
            for number, home in homes.items():
                rows[number].append(once(home, server.url))
    for number, times in rows.items():
        hello, prompt = (statistics.median(column) * 1000 for column in zip(*times, strict=True))
        sys.stdout.write(
            f"{number:>2} servers: hello {hello:.0f} ms, first prompt {prompt:.1f} ms\n"
        )


if __name__ == "__main__":
    main()
