"""The example that survives `kill -9`, and a small storm of them; the large one is in bench/."""

import os
import subprocess
import sys

import pytest
from support.docs import ROOT

from zot.testing.fakeserver import FakeServer

EXAMPLE = ROOT / "examples" / "rpc" / "python" / "durable.py"


def test_the_example_survives_the_death_of_both_programs(tmp_path):
    gate = tmp_path / "gate"
    os.mkfifo(gate)
    text = 'tool:bash:{"command": "echo begun; cat gate"}\nthen\nsay:the end'
    with FakeServer() as server:
        environment = {
            **os.environ,
            "ZOT_HOME": str(tmp_path / "home"),
            "ANTHROPIC_API_KEY": "k",
            "ANTHROPIC_BASE_URL": server.url,
        }
        command = [sys.executable, str(EXAMPLE), "job", text, "--provider", "anthropic"]
        options = {"cwd": tmp_path, "env": environment}
        first = subprocess.Popen(command, stdout=subprocess.PIPE, **options)
        with gate.open("w"):  # waits until the command runs
            first.kill()
            shown = first.communicate()[0].decode()
        gate.unlink()
        again = subprocess.run(command, capture_output=True, text=True, timeout=60, **options)
        last = subprocess.run(command, capture_output=True, text=True, timeout=60, **options)
    assert "the end" not in shown
    assert "[goes on, attempt 2]" in again.stdout, again.stderr
    # Once as it is streamed; and once more if it had ended before the prompt was sent again.
    assert again.stdout.replace("[it has ended before: the end]", "").count("the end") == 1
    assert (shown + again.stdout).count("[bash ") in (1, 2)  # told again, perhaps, never run again
    assert last.stdout.strip() == "[it has ended before: the end]"
    assert len(server.requests) == 2


@pytest.mark.slow
def test_a_small_storm_loses_nothing_and_does_nothing_twice(tmp_path):
    command = [sys.executable, str(ROOT / "bench" / "durable.py"), "--kills", "6", "--seed", "3"]
    environment = {**os.environ, "TMPDIR": str(tmp_path)}
    done = subprocess.run(command, capture_output=True, text=True, timeout=170, env=environment)
    assert done.returncode == 0, done.stderr
    assert "nothing lost, nothing twice" in done.stdout
