"""Start-up has two stages. Stage one answers hello, ping, flags and usage errors; stage two is the
agent, loaded behind the first answer. Rooms that few runs need are loaded by none of them.
"""

import json
import subprocess
import sys

import pytest
from support.environment import uncovered

from zot.testing.fakeserver import FakeServer

STAGE_ONE = {
    *("zot", "zot.__main__", "zot.bugs", "zot.cancel", "zot.cli", "zot.cli.main", "zot.errors"),
    *("zot.home", "zot.lines", "zot.text", "zot.writer"),
    *("zot.provider", "zot.provider.address", "zot.provider.catalog", "zot.provider.model"),
    "zot.provider.providers",
    *("zot.runtime", "zot.runtime.client"),
    *("zot.serve", "zot.serve.rpc", "zot.serve.rpc_served"),
    *("zot.settings", "zot.settings.known", "zot.settings.options", "zot.settings.resolve"),
    *("zot.wire", "zot.wire.serving", "zot.wire.zot"),
}
HEAVY = {
    *("asyncio", "ssl", "http", "http.client", "socket", "logging", "inspect", "dataclasses"),
    *("argparse", "hashlib", "json", "pathlib", "subprocess", "rich", "prompt_toolkit"),
}
"""What no first answer waits for."""
FEW_RUNS_NEED = (
    *("zot.swarm", "zot.local", "zot.glasspane", "zot.tui", "zot.serve.interactive", "zot.observe"),
    *(
        "zot.acp",
        "zot.pi",
        "zot.mcpserver",
        "zot.mcp.servers",
        "zot.mcp.connection",
        "zot.mcp.http",
    ),
    *("zot.sessions.export", "zot.extensions.host", "zot.runtime.durable", "zot.runtime.task"),
    *("zot.provider.auth.oauth", "zot.provider.discover", "zot.testing", "zot.conformance"),
)
"""Rooms that a prompt without their flags and files does not enter."""
# The main thread hands its answer to the writer; only then does the rest of the program start to
# load, in another thread. A wrapper around that hand-over takes the picture.
HARNESS = """
import os, sys
from zot.__main__ import main
from zot.writer import LineWriter
plain_put = LineWriter.put
taken = []
def put(self, data, **more):
    if not taken and b'WANTED' in data:
        taken.append(sorted(sys.modules))
    plain_put(self, data, **more)
LineWriter.put = put
sys.argv = ["zot", *sys.argv[1:]]
main()
os.write(2, b"\\n" + " ".join(taken[0]).encode())
"""
FLAGS = ("--provider", "anthropic", "--api-key", "k", "--no-ext")


def loaded_by(words, wanted, line, tmp_path):
    """The modules that were loaded when the first line with `wanted` was written."""
    done = subprocess.run(
        [sys.executable, "-c", HARNESS.replace("WANTED", wanted), *words],
        input=line.encode() + b"\n",
        capture_output=True,
        timeout=100,
        env={**uncovered(), "ZOT_HOME": str(tmp_path)},
    )
    assert wanted.encode() in done.stdout, done
    return set(done.stderr.decode().splitlines()[-1].split())


@pytest.fixture(scope="module")
def msgspec_loads():
    """Modules that msgspec brings along, which depends on what else is installed."""
    code = "import sys, msgspec; print(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, env=uncovered())
    return set(done.stdout.decode().split())


def of_zot(loaded):
    return {name for name in loaded if name.partition(".")[0] == "zot"}


@pytest.mark.parametrize("flags", [FLAGS, ()], ids=["flags", "a key in the environment"])
@pytest.mark.parametrize("command", ["hello", "ping"])
def test_the_first_answer_is_given_by_stage_one_alone(
    command, flags, tmp_path, msgspec_loads, monkeypatch
):
    if not flags:
        monkeypatch.setenv("ANTHROPIC_API_KEY", "k")
    line = json.dumps({"id": "1", "type": command})
    loaded = loaded_by(("rpc", *flags), '"type":"response"', line, tmp_path)
    assert "zot.serve.rpc" in loaded
    assert of_zot(loaded) - STAGE_ONE == set()
    assert (loaded - msgspec_loads) & HEAVY == set()


def test_an_editor_is_answered_before_the_agent_is_loaded(tmp_path, msgspec_loads):
    request = {"jsonrpc": "2.0", "id": 0, "method": "initialize", "params": {"protocolVersion": 1}}
    loaded = loaded_by(("acp", *FLAGS), '"protocolVersion":1', json.dumps(request), tmp_path)
    assert "zot.acp.server" in loaded
    assert loaded & {"zot.build", "zot.core.agent", "zot.runtime.runtime"} == set()
    assert (loaded - msgspec_loads) & HEAVY == set()


def test_a_prompt_enters_no_room_that_few_runs_need(tmp_path, msgspec_loads):
    with FakeServer() as server:
        words = ("rpc", *FLAGS, "--base-url", server.url)
        line = '{"id":"1","type":"prompt","message":"say:hi"}'
        loaded = loaded_by(words, '"type":"text_delta"', line, tmp_path)
    assert "zot.core.agent" in loaded
    entered = {
        name
        for name in of_zot(loaded)
        if any(name == room or name.startswith(f"{room}.") for room in FEW_RUNS_NEED)
    }
    assert entered - {"zot.testing", "zot.testing.fakeserver"} == set()
    # Plain HTTP needs no TLS, and no first answer of a model needs what tools work with.
    heavy = HEAVY - {"socket"} | {
        "email",
        "ctypes",
        "difflib",
        "tempfile",
        "shutil",
        "random",
    }
    assert (loaded - msgspec_loads) & heavy == set()


def test_an_agent_at_rest_loads_openssl_for_tls_only(tmp_path, msgspec_loads):
    line = '{"id":"1","type":"get_state"}'
    words = ("rpc", *FLAGS, "--base-url", "http://127.0.0.1:9")
    loaded = loaded_by(words, '"busy":false', line, tmp_path)
    assert "zot.core.agent" in loaded
    assert (loaded - msgspec_loads) & {"_hashlib", "_ssl"} == set()


@pytest.mark.parametrize("words", [("--help",), ("rpc", "--no-such-flag"), ("swarmm",)])
def test_flags_and_usage_errors_need_stage_one_alone(words, tmp_path):
    code = (
        "import os, sys\n"
        "from zot.cli.main import run\n"
        "code = run(sys.argv[1:])\n"
        "os.write(2, ('\\n' + ' '.join(sys.modules)).encode())"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, *words],
        capture_output=True,
        timeout=100,
        env={**uncovered(), "ZOT_HOME": str(tmp_path)},
    )
    loaded = of_zot(done.stderr.decode().split("\n")[-1].split())
    assert loaded - STAGE_ONE <= {"zot.cli.help", "zot.extras"}


def test_a_bare_interpreter_has_none_of_it_loaded():
    # Otherwise the tests above would fail for a reason that is not ours.
    code = "import sys; print(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, env=uncovered())
    assert set(done.stdout.decode().split()) & HEAVY == set()
