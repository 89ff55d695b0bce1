"""What `zot rpc` may not have loaded when it answers its first command: a budget, not a timing."""

import subprocess
import sys

import pytest
from support.environment import uncovered

FORBIDDEN = {
    *("asyncio", "ssl", "http", "http.client", "socket", "logging", "inspect", "dataclasses"),
    *("argparse", "json", "pathlib", "subprocess", "rich", "prompt_toolkit", "typing_extensions"),
    *("zot.build", "zot.runtime.runtime", "zot.core.agent", "zot.provider.http"),
}
# The main thread hands its answer to the writer; only then does the rest of the program start to
# load, in another thread. A wrapper around that hand-over takes the picture.
HARNESS = """
import os, sys
from zot.__main__ import _load_msgspec, main
_load_msgspec()  # first, as the command does
from zot.lines import LineWriter
plain_put = LineWriter.put
taken = []
def put(self, data):
    if not taken and b'"type":"response"' in data:
        taken.append(sorted(sys.modules))
    plain_put(self, data)
LineWriter.put = put
sys.argv = ["zot", "rpc", "--provider", "anthropic", "--api-key", "k", "--no-ext"]
main()
os.write(2, " ".join(taken[0]).encode())
"""


@pytest.mark.parametrize("command", ["hello", "ping"])
def test_the_first_answer_waits_for_nothing_that_it_does_not_need(command, tmp_path):
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
    assert loaded & FORBIDDEN == set()


def test_a_bare_interpreter_has_none_of_it_loaded():
    # Otherwise the test above would fail for a reason that is not ours.
    code = "import sys; print(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, env=uncovered())
    assert set(done.stdout.decode().split()) & FORBIDDEN == set()
