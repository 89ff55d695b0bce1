"""Servers cost nothing before they are needed: what is loaded and started, not how long."""

import json
import shutil
import subprocess
import sys

import pytest
from support.environment import uncovered
from support.mcp import configure, entry

from zot.testing.fakeserver import FakeServer

# Tells at the end which modules of the client were loaded, and which processes were started.
PROMPT = """
import os, sys
from zot.__main__ import main
started = []
plain = os.posix_spawn
def spawn(path, argv, *rest, **more):
    started.append(str(argv))
    return plain(path, argv, *rest, **more)
os.posix_spawn = spawn
sys.argv = ["zot", *sys.argv[1:]]
try:
    main()
finally:
    names = sorted(name for name in sys.modules if name.startswith("zot.mcp"))
    import json
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


# Takes a picture of what is loaded when the first answer is handed to the writer.
HELLO = """
import os, sys
from zot.__main__ import main
from zot.writer import LineWriter
plain_put = LineWriter.put
taken = []
def put(self, data, **more):
    if not taken and b'"type":"response"' in data:
        taken.append(sorted(sys.modules))
    plain_put(self, data, **more)
LineWriter.put = put
sys.argv = ["zot", "rpc", "--provider", "anthropic", "--api-key", "k"]
main()
os.write(2, " ".join(taken[0]).encode())
"""


def hello(home, prefix: list[str], code: list[str]) -> subprocess.CompletedProcess:
    return subprocess.run(
        [*prefix, sys.executable, *code],
        input=b'{"id":"1","type":"hello"}\n',
        capture_output=True,
        timeout=60,
        env={**uncovered(), "ZOT_HOME": str(home)},
        cwd=home,
    )


def calls_until_the_answer(home) -> int:
    """System calls until `hello` is answered; not those by which threads wait for each other."""
    log = home / "strace"
    words = ["rpc", "--provider", "anthropic", "--api-key", "k"]
    hello(home, ["strace", "-f", "-s", "100", "-o", str(log)], ["-m", "zot", *words])
    lines = log.read_text(errors="replace").splitlines()
    calls = [line.split(maxsplit=1)[1] for line in lines]
    end = next(at for at, call in enumerate(calls) if "write" in call[:6] and "hello" in call)
    return sum(not call.startswith(("futex", "<...", "---")) for call in calls[:end])


def test_the_first_answer_loads_nothing_more_with_ten_servers(tmp_path):
    loaded = []
    for count in (0, 10):
        home = tmp_path / str(count)
        configure(home / "mcp.json", **{f"s{n}": entry() for n in range(count)})
        loaded.append(hello(home, [], ["-c", HELLO]).stderr.split())
    assert loaded[0] == loaded[1] and b"zot.serve.rpc" in loaded[0]


@pytest.mark.skipif(shutil.which("strace") is None, reason="strace is not installed")
def test_the_first_answer_makes_no_more_system_calls_with_ten_servers(tmp_path):
    counts = []
    for count in (0, 10):
        home = tmp_path / str(count)
        home.mkdir()
        if count:
            configure(home / "mcp.json", **{f"s{n}": entry() for n in range(count)})
        calls_until_the_answer(home)  # what Python keeps compiled is there now
        counts.append(calls_until_the_answer(home))
    assert abs(counts[1] - counts[0]) <= 5, counts
