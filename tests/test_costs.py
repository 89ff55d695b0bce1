"""Costs that are counted, not timed: function calls, processes and system calls."""

import itertools
import json
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from support.environment import uncovered

from zot import trees
from zot.cancel import Cancel
from zot.testing.fakeserver import FakeServer
from zot.tools.process import link
from zot.tools.process import supervisor as process

# Runs `true` three times; what it looks for marks the beginning and the end of the last one.
COMMANDS = """
import os, sys
from pathlib import Path
from zot.cancel import Cancel
from zot.tools.process.supervisor import Supervisor
supervisor = Supervisor()
for number in range(3):
    os.path.exists(f"/nowhere-{number}")
    supervisor.run(["/bin/true"], Path("/"), {}, bytes, Cancel())
os.path.exists("/nowhere-end")
supervisor.close()
"""


# Counts the Python functions that run in other threads than the main one, up to each `done`.
CALLS = """
import json, os, sys, threading
from zot.__main__ import main
from zot.writer import LineWriter
calls, seen = [0], []
def count(frame, event, argument):
    calls[0] += event == "call"
plain_put = LineWriter.put
def put(self, data, **more):
    if data.startswith(b'{"type":"done"'):
        seen.append(calls[0])
    plain_put(self, data, **more)
LineWriter.put = put
threading.setprofile(count)
sys.argv = ["zot", "rpc", "--provider", "anthropic", "--api-key", "k", "--base-url", sys.argv[1]]
main()
os.write(2, json.dumps(seen).encode())
"""


def calls_of(messages, folder):
    """How many functions were called for each of these prompts."""
    (folder / "small.txt").write_text("a line\n" * 40)
    lines = [json.dumps({"id": "1", "type": "prompt", "message": text}) for text in messages]
    with FakeServer() as server:
        done = subprocess.run(
            [sys.executable, "-c", CALLS, server.url],
            input="".join(f"{line}\n" for line in lines).encode(),
            capture_output=True,
            timeout=60,
            cwd=folder,
            env={**uncovered(), "ZOT_HOME": str(folder / "home")},
        )
    assert done.returncode == 0, done.stderr
    seen = json.loads(done.stderr)
    return [after - before for before, after in itertools.pairwise([0, *seen])]


def test_a_prompt_a_delta_and_a_tool_call_take_few_steps(tmp_path):
    short, long = "text:1", "text:1001"
    few, many = "rounds:10 read:small.txt", "rounds:20 read:small.txt"
    *_, prompt, deltas, fewer, more = calls_of([short, short, short, long, few, many], tmp_path)
    assert prompt < 400
    assert (deltas - prompt) / 1000 < 30
    assert (more - fewer) / 10 < 1200


@pytest.mark.slow
def test_a_prompt_takes_no_step_for_an_earlier_message(tmp_path):
    *_, early = calls_of(["text:1"] * 4, tmp_path)
    *_, late = calls_of(["text:1"] * 60, tmp_path)
    messages = 2 * (60 - 4)
    assert (late - early) / messages < 0.5


def test_the_version_is_told_without_loading_the_program():
    command = [sys.executable, "-X", "importtime", "-m", "zot", "--version"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, env=uncovered())
    assert done.stdout.startswith("zot 0.")
    assert not {"msgspec", "threading", "zot.cli.main"} & set(done.stderr.split())


@pytest.mark.skipif(not shutil.which("strace"), reason="needs strace")
@pytest.mark.skipif(not trees.TREES, reason="without trees each command has a keeper of its own")
def test_a_command_after_another_costs_one_process_and_few_system_calls(tmp_path):
    trace = tmp_path / "trace"
    traced = ["strace", "-f", "-o", str(trace), sys.executable, "-c", COMMANDS]
    if subprocess.run(traced, capture_output=True, timeout=60, env=uncovered()).returncode:
        pytest.skip("this system lets nobody trace")
    calls = last_command(trace)
    started = [call for call in calls if "clone" in call and "resumed" not in call]
    assert len(started) == 1
    program = next(call.split()[0] for call in calls if "execve(" in call)
    ours = [call for call in calls if call.split()[0] != program and "resumed" not in call]
    assert len(ours) <= 56


def test_zot_is_woken_once_by_a_command_that_prints_nothing(monkeypatch, tmp_path):
    monkeypatch.setattr(process, "FIRST_LOOK", 60.0)
    heard = []
    plain = link.KeeperLink.listen

    def listen(self):
        heard.append(self)
        return plain(self)

    monkeypatch.setattr(link.KeeperLink, "listen", listen)
    supervisor = process.Supervisor()
    for _ in range(3):
        supervisor.run(["/bin/true"], tmp_path, {}, bytes, Cancel())
    supervisor.close()
    assert len(heard) == 3


def last_command(trace: Path) -> list[str]:
    lines = trace.read_text(errors="replace").splitlines()
    first = next(number for number, line in enumerate(lines) if "/nowhere-2" in line)
    end = next(number for number, line in enumerate(lines) if "/nowhere-end" in line)
    return lines[first:end]
