"""What things cost, counted and not timed: threads, writes, processes and system calls."""

import itertools
import json
import os
import shutil
import subprocess
import sys
import threading
from pathlib import Path

import pytest
from support.environment import uncovered

from zot import trees
from zot.cancel import Cancel
from zot.lines import AT_ONCE, LineWriter
from zot.testing.fakeserver import FakeServer
from zot.tools import process

# Notes every thread that is started and the lines of every write to stdout.
PROMPT = """
import json, os, sys, threading
from zot.__main__ import main
plain_start, plain_write, plain_writev = threading.Thread.start, os.write, os.pwritev
threads, writes = [], []
def start(self):
    threads.append(self.name)
    plain_start(self)
def types(data):
    return [json.loads(line)["type"] for line in data.splitlines()]
def write(fd, data):
    if bytes(data).startswith(b'{"'):
        writes.append(types(bytes(data)))
    return plain_write(fd, data)
def writev(fd, lines, *how):
    writes.append(types(b"".join(lines)))
    return plain_writev(fd, lines, *how)
threading.Thread.start, os.write, os.pwritev = start, write, writev
sys.argv = ["zot", "rpc", "--provider", "anthropic", "--api-key", "k", "--base-url", sys.argv[1]]
main()
plain_write(2, json.dumps([threads, writes]).encode())
"""
# Runs `true` three times; what it looks for marks the beginning and the end of the last one.
COMMANDS = """
import os, sys
from pathlib import Path
from zot.cancel import Cancel
from zot.tools.process import Supervisor
supervisor = Supervisor()
for number in range(3):
    os.path.exists(f"/nowhere-{number}")
    supervisor.run(["/bin/true"], Path("/"), {}, bytes, Cancel())
os.path.exists("/nowhere-end")
supervisor.close()
"""


def told_by(commands, home):
    """The threads that these commands start, the kinds of frames in each write, and the lines."""
    with FakeServer() as server:
        done = subprocess.run(
            [sys.executable, "-c", PROMPT, server.url],
            input=commands,
            capture_output=True,
            timeout=60,
            env={**uncovered(), "ZOT_HOME": str(home)},
        )
    assert done.returncode == 0, done.stderr
    return *json.loads(done.stderr), done.stdout.splitlines()


def test_a_prompt_needs_one_thread_and_what_comes_at_once_one_write(tmp_path):
    threads, writes, lines = told_by(b'{"id":"1","type":"prompt","message":"say:hi"}\n', tmp_path)
    assert threads == ["zot-conductor", "zot-drain"]
    assert sum(map(len, writes)) == len(lines)
    assert writes[0] == ["response", "user_message", "turn_start"]  # while the model thinks
    assert writes[-1][-1] == "done"
    assert len(writes) <= 4  # the answer may come in pieces


def test_the_first_words_do_not_wait_for_the_end_nor_the_client_for_less(tmp_path):
    _, writes, _ = told_by(b'{"type":"prompt","message":"say:hi"}\n' * 5, tmp_path)
    assert [kinds for kinds in writes if {"text_delta", "done"} <= set(kinds)] == []
    # Not in all of them: on a busy machine a server may be slower than a client is patient.
    assert ["assistant_start", "text_delta", "usage"] in [kinds[-3:] for kinds in writes]


# Counts the Python functions that run in other threads than the main one, up to each `done`.
CALLS = """
import json, os, sys, threading
from zot.__main__ import main
from zot.lines import LineWriter
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
    assert prompt < 330
    assert (deltas - prompt) / 1000 < 20
    assert (more - fewer) / 10 < 280


@pytest.mark.slow
def test_a_prompt_costs_the_same_in_a_long_conversation(tmp_path):
    *_, early = calls_of(["text:1"] * 4, tmp_path)
    *_, late = calls_of(["text:1"] * 60, tmp_path)
    assert late < early * 1.1


def test_a_few_lines_need_no_thread_and_many_are_written_together(monkeypatch):
    read, write = os.pipe()
    written = []
    plain_write, plain_writev = os.write, os.pwritev

    def writev(fd, lines, *how):
        written.extend(lines)
        return plain_writev(fd, lines, *how)

    monkeypatch.setattr(os, "write", lambda fd, data: written.append(data) or plain_write(fd, data))
    monkeypatch.setattr(os, "pwritev", writev)
    writer = LineWriter(write)
    for _ in range(AT_ONCE):
        writer.put(b"x\n")
    assert (len(written), writer._thread) == (AT_ONCE, None)
    for _ in range(5000):
        writer.put(b"x\n")
    writer.close(60)
    assert isinstance(writer._thread, threading.Thread)
    assert len(b"".join(written)) == 2 * (AT_ONCE + 5000)
    assert len(written) < 2500
    os.close(read)
    os.close(write)


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
    plain = process.RunningCommand._listen

    def listen(self):
        heard.append(self)
        return plain(self)

    monkeypatch.setattr(process.RunningCommand, "_listen", listen)
    supervisor = process.Supervisor()
    for _ in range(3):
        supervisor.run(["/bin/true"], tmp_path, {}, bytes, Cancel())
    supervisor.close()
    assert len(heard) == 3


@pytest.mark.skipif(not shutil.which("strace"), reason="needs strace")
def test_a_prompt_after_another_costs_few_system_calls(tmp_path):
    trace = tmp_path / "trace"
    command = [sys.executable, "-m", "zot", "rpc", "--provider", "anthropic", "--api-key", "k"]
    with FakeServer() as server:
        done = subprocess.run(
            ["strace", "-f", "-s", "2000", "-o", str(trace), *command, "--base-url", server.url],
            input=b'{"type":"prompt","message":"text:1"}\n' * 4,
            capture_output=True,
            timeout=60,
            env={**uncovered(), "ZOT_HOME": str(tmp_path / "home")},
        )
    if b'"type":"done"' not in done.stdout:
        pytest.skip("this system lets nobody trace")
    calls = trace.read_text(errors="replace").splitlines()
    ends = [at for at, call in enumerate(calls) if "write" in call and '\\"done\\"' in call]
    last = [call for call in calls[ends[-2] : ends[-1]] if "resumed" not in call]
    assert len(last) <= 17, "\n".join(last)


def last_command(trace: Path) -> list[str]:
    lines = trace.read_text(errors="replace").splitlines()
    first = next(number for number, line in enumerate(lines) if "/nowhere-2" in line)
    end = next(number for number, line in enumerate(lines) if "/nowhere-end" in line)
    return lines[first:end]
