"""Inside a real tmux, whose window changes its size at random: one prompt, one status line, and
every word once."""

import json
import os
import random
import re
import shutil
import subprocess
import time

import pytest
from support.terminal import environment, zot

pytestmark = [
    pytest.mark.long,
    pytest.mark.skipif(shutil.which("tmux") is None, reason="no tmux"),
]
WORDS = 250
PATIENCE = 40.0


class Tmux:
    """A server of its own, with one window."""

    def __init__(self, name, environ):
        self._base = ["tmux", "-L", name, "-f", "/dev/null"]
        self._environ = environ

    def do(self, *words):
        done = subprocess.run(
            [*self._base, *words], env=self._environ, capture_output=True, text=True, timeout=20
        )
        return done.stdout

    def text(self, *words):
        return self.do("capture-pane", "-t", "a", "-p", "-J", *words)

    def resize(self, columns, rows):
        self.do("resize-window", "-t", "a", "-x", str(columns), "-y", str(rows))

    def until(self, holds):
        deadline = time.monotonic() + PATIENCE
        while not holds(self.text()):
            assert time.monotonic() < deadline, self.text()
            time.sleep(0.1)


@pytest.fixture
def tmux(tmp_path):
    environ = environment(tmp_path, LANG="C.UTF-8")
    (tmp_path / "work").mkdir()
    made = Tmux(f"zot-test-{os.getpid()}-{tmp_path.name[-20:]}", environ)
    made.do("new-session", "-d", "-x", "100", "-y", "30", "-s", "a", "bash --norc")
    yield made
    made.do("kill-server")


def start(tmux, tmp_path, turns):
    script = tmp_path / "script.json"
    script.write_text(json.dumps({"turns": turns}))
    command = zot("--provider", "scripted", "--script", str(script), "--no-ext")
    line = f"cd {tmp_path}/work; clear; {' '.join(command)}"
    tmux.do("send-keys", "-t", "a", line, "Enter")
    tmux.until(lambda text: "ask · scripted" in text)


def shake(tmux, seed, times):
    chance = random.Random(seed)
    for _ in range(times):
        time.sleep(chance.choice([0.05, 0.15, 0.4]))
        tmux.resize(chance.randint(45, 120), chance.randint(18, 40))
    tmux.resize(90, 30)
    time.sleep(1.0)


def count(text, pattern):
    return len(re.findall(pattern, text, re.MULTILINE))


@pytest.mark.parametrize("seed", [1, 2])
def test_a_resize_before_anything_was_said_leaves_one_prompt(tmux, tmp_path, seed):
    start(tmux, tmp_path, [{"text": "x"}])
    shake(tmux, seed, 10)
    tmux.until(lambda text: "ask · scripted" in text)
    text = tmux.text("-S", "-500")
    assert count(text, "^❯") == 1, text
    assert count(text, "ask · scripted") == 1, text


@pytest.mark.parametrize("seed", [3, 7])
def test_resizes_while_an_answer_streams_leave_every_word_once(tmux, tmp_path, seed):
    words = [f"word{number} " + "\n\n" * (number % 23 == 22) for number in range(WORDS)]
    start(tmux, tmp_path, [{"text": words, "delay_ms": 12}])
    tmux.do("send-keys", "-t", "a", "tell me", "Enter")
    shake(tmux, seed, 12)
    tmux.until(lambda text: "esc stops" not in text and f"word{WORDS - 1}" in text)
    text = tmux.text("-S", "-1000")
    assert count(text, "^❯") == 2, text  # what was said, and the editor
    assert count(text, "ask · scripted") == 1, text
    assert [int(word) for word in re.findall(r"word(\d+)", text)] == list(range(WORDS)), text
