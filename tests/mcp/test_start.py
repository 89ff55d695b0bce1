"""Servers cost nothing before they are needed: what is loaded and started, not how long."""

import json
import subprocess
import sys

from support.environment import uncovered
from support.mcp import configure, entry

from zot.testing.fakeserver import FakeServer

# Tells at the end which modules of the client were loaded, and which processes were started.
PROMPT = """
import subprocess, sys
from zot.__main__ import main
started = []
plain = subprocess.Popen.__init__
def popen(self, args, *rest, **more):
    started.append(str(args))
    plain(self, args, *rest, **more)
subprocess.Popen.__init__ = popen
sys.argv = ["zot", *sys.argv[1:]]
try:
    main()
finally:
    names = sorted(name for name in sys.modules if name.startswith("zot.mcp"))
    import json, os
    os.write(2, json.dumps([names, started]).encode())
"""


LATER = {"zot.mcp.stdio", "zot.mcp.http", "zot.mcp.oauth", "zot.mcp.connection"}
"""What only a server that is used needs."""


def run(tmp_path, lines: bytes) -> tuple[list[str], list[str]]:
    with FakeServer() as server:
        flags = ["--provider", "anthropic", "--api-key", "k", "--base-url", server.url]
        done = subprocess.run(
            [sys.executable, "-c", PROMPT, "rpc", *flags],
            input=lines,
            capture_output=True,
            timeout=60,
            env={**uncovered(), "ZOT_HOME": str(tmp_path / "home")},
            cwd=tmp_path,
        )
    modules, started = json.loads(done.stderr)
    return modules, started


def test_without_servers_nothing_of_the_client_is_loaded(tmp_path):
    modules, _ = run(tmp_path, b'{"id":"1","type":"prompt","message":"say:hi"}\n')
    assert modules == ["zot.mcp", "zot.mcp.source"]


def test_ten_servers_start_nothing_before_the_first_prompt(tmp_path):
    configure(tmp_path / "home" / "mcp.json", **{f"s{n}": entry() for n in range(10)})
    modules, started = run(tmp_path, b'{"id":"1","type":"hello"}\n{"id":"2","type":"get_state"}\n')
    assert started == []
    assert not set(modules) & LATER


def test_ten_servers_that_are_known_start_nothing_with_a_prompt(tmp_path):
    configure(tmp_path / "home" / "mcp.json", **{f"s{n}": entry() for n in range(10)})
    prompt = b'{"id":"1","type":"prompt","message":"say:hi"}\n'
    _, started = run(tmp_path, prompt)
    assert len(started) == 10
    modules, started = run(tmp_path, prompt)
    assert started == []
    assert "zot.mcp.servers" in modules
    assert not set(modules) & LATER
