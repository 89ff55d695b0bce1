"""What `zot rpc` may not have loaded when it answers its first command: a budget, not a timing."""

import json
import subprocess
import sys

import pytest
from support.environment import uncovered

from zot.testing.fakeserver import FakeServer

FORBIDDEN = {
    *("asyncio", "ssl", "http", "http.client", "socket", "logging", "inspect", "dataclasses"),
    *("argparse", "json", "pathlib", "signal", "subprocess", "rich", "prompt_toolkit"),
    *("zot.build", "zot.runtime.runtime", "zot.core.agent", "zot.provider.http"),
}
# The main thread hands its answer to the writer; only then does the rest of the program start to
# load, in another thread. A wrapper around that hand-over takes the picture.
HARNESS = """
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
sys.argv = ["zot", "rpc", "--provider", "anthropic", "--api-key", "k", "--no-ext"]
main()
os.write(2, " ".join(taken[0]).encode())
"""


@pytest.fixture(scope="module")
def msgspec_loads():
    """Modules that msgspec brings along, which depends on what else is installed."""
    code = "import sys, msgspec; print(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, env=uncovered())
    return set(done.stdout.decode().split())


@pytest.mark.parametrize("command", ["hello", "ping"])
def test_the_first_answer_waits_for_nothing_that_it_does_not_need(command, tmp_path, msgspec_loads):
    done = subprocess.run(
        [sys.executable, "-c", HARNESS],
        input=b'{"id":"1","type":"%s"}\n' % command.encode(),
        capture_output=True,
        timeout=60,
        env={**uncovered(), "ZOT_HOME": str(tmp_path)},
    )
    assert b'"success":true' in done.stdout
    loaded = set(done.stderr.decode().split())
    assert "zot.serve.rpc" in loaded
    assert (loaded - msgspec_loads) & {*FORBIDDEN, "threading"} == set()


def test_an_editor_is_answered_before_the_agent_is_loaded(tmp_path, msgspec_loads):
    code = HARNESS.replace('"type":"response"', '"result"').replace('"rpc"', '"acp"')
    request = {"jsonrpc": "2.0", "id": 0, "method": "initialize", "params": {"protocolVersion": 1}}
    done = subprocess.run(
        [sys.executable, "-c", code],
        input=json.dumps(request).encode() + b"\n",
        capture_output=True,
        timeout=60,
        env={**uncovered(), "ZOT_HOME": str(tmp_path)},
    )
    assert b'"protocolVersion":1' in done.stdout
    loaded = set(done.stderr.decode().split())
    assert "zot.acp.server" in loaded
    assert (loaded - msgspec_loads) & FORBIDDEN == set()


def test_a_bare_interpreter_has_none_of_it_loaded():
    # Otherwise the test above would fail for a reason that is not ours.
    code = "import sys; print(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, env=uncovered())
    assert set(done.stdout.decode().split()) & FORBIDDEN == set()


# --- the first delta over plain HTTP -----------------------------------------------------------

NOT_FOR_PLAIN_HTTP = {
    *("http", "http.client", "email", "ssl", "asyncio", "subprocess", "json", "logging"),
    *("tempfile", "shutil", "hashlib", "random", "base64", "struct"),
    *("pathlib", "fnmatch", "urllib", "urllib.parse", "ipaddress"),
}
NOT_FOR_THE_COMMAND = {
    *("socket", "selectors", "fcntl"),
    *("zot.wire.shapes", "zot.core.shell"),  # for answers to other commands
    *("zot.provider.failure", "zot.provider.fetch", "zot.core.compact", "zot.core.image"),
    "zot.runtime.rules",
}
FIRST_DELTA = """
import os, sys
from zot.__main__ import main
from zot.writer import LineWriter
plain_put = LineWriter.put
taken = []
def put(self, data, **more):
    if not taken and b'"type":"text_delta"' in data:
        taken.append(sorted(sys.modules))
    plain_put(self, data, **more)
LineWriter.put = put
def hear(event, arguments):
    if event == "compile" and not taken and arguments[1] == "<string>":
        os.write(2, b"compiled:" + repr(arguments[0]).encode().replace(b" ", b"") + b" ")
sys.argv = ["zot", "rpc", "--provider", "anthropic", "--api-key", "k", "--base-url", sys.argv[1]]
sys.addaudithook(hear)
main()
os.write(2, " ".join(taken[0]).encode())
"""
# The model client alone: what it needs for a whole answer.
ONE_ANSWER = """
import os, sys
from zot.cancel import Cancel
from zot.provider.providers import PROVIDERS, connect
from zot.provider.types import Message, Model, Request, Text
model = Model("m", sys.argv[2], sys.argv[3])
client = connect(PROVIDERS[sys.argv[2]], model, "k", sys.argv[1])
request = Request(model, "", (Message("user", (Text("say:hi"),), 0.0),))
events = list(client.stream(request, Cancel()))
client.close()
print(events[-1].content[0].text)
os.write(2, " ".join(sys.modules).encode())
"""


def loaded_by(code, *arguments, tmp_path, input=b""):
    with FakeServer() as server:
        done = subprocess.run(
            [sys.executable, "-c", code, server.url, *arguments],
            input=input,
            capture_output=True,
            timeout=60,
            env={**uncovered(), "ZOT_HOME": str(tmp_path)},
        )
    assert b"hi" in done.stdout
    return set(done.stderr.decode().split())


def test_the_first_delta_over_plain_http_needs_neither_tls_nor_the_email_package(tmp_path):
    prompt = b'{"id":"1","type":"prompt","message":"say:hi"}\n'
    loaded = loaded_by(FIRST_DELTA, tmp_path=tmp_path, input=prompt)
    assert "zot.provider.http" in loaded
    assert loaded & NOT_FOR_PLAIN_HTTP == set()
    if sys.version_info >= (3, 14):
        return  # nobody has looked at it there
    assert loaded & NOT_FOR_THE_COMMAND == set()
    # The first text that Python compiles costs milliseconds: the type of a field, written as text.
    # msgspec compiles one while it loads.
    assert {name for name in loaded if name.startswith("compiled:")} <= {"compiled:'Foo'"}


@pytest.mark.parametrize(
    ("provider", "api"),
    [
        ("anthropic", "anthropic"),
        ("openai", "openai-chat"),
        ("openai-responses", "openai-responses"),
        ("google", "google"),
    ],
)
def test_a_model_client_needs_little_of_the_standard_library(provider, api, tmp_path):
    loaded = loaded_by(ONE_ANSWER, provider, api, tmp_path=tmp_path)
    assert loaded & NOT_FOR_PLAIN_HTTP == set()


# --- how much is loaded ------------------------------------------------------------------------


def test_the_modules_before_the_first_answer_and_the_first_delta_are_counted(tmp_path):
    # A ratchet: each costs a tenth of a millisecond at the least. Lower it when there are fewer.
    done = subprocess.run(
        [sys.executable, "-c", HARNESS],
        input=b'{"id":"1","type":"hello"}\n',
        capture_output=True,
        timeout=60,
        env={**uncovered(), "ZOT_HOME": str(tmp_path)},
    )
    prompt = b'{"id":"1","type":"prompt","message":"say:hi"}\n'
    first_delta = loaded_by(FIRST_DELTA, tmp_path=tmp_path, input=prompt)
    first_answer = done.stderr.decode().split()
    assert sum(name.startswith("zot.") for name in first_answer) <= 32
    assert sum(name.startswith("zot.") for name in first_delta) <= 95
    assert len(first_delta) <= 215 or sys.version_info >= (3, 14)  # as above
