"""A long day at the terminal: 500 turns, resume, fork, going back. And one with a real model."""

import os
import select
import time
from pathlib import Path

import pytest
from support.local import small_model_file
from support.patience import patience
from support.terminal import environment, zot

from zot.local.models import SMALL

TURNS = 500
EVERY = 25
"""So often a turn writes to a file."""
PATIENCE = patience(60.0)


def turns():
    script = []
    for number in range(TURNS):
        if number % EVERY == 0:
            args = {"path": "log.txt", "content": f"turn {number}\n"}
            script.append({"tools": [{"name": "write", "args": args}]})
        script.append({"text": f"answer-{number}-end with **words**"})
    return [*script, {"text": "after all of it", "repeat": True}]


def until_written(program, text):
    """Read until the program wrote this; the emulator sees it later. Much faster than a look at
    the whole screen after each turn."""
    deadline = time.monotonic() + PATIENCE
    start = len(program.written)
    while text not in program.written[max(0, start - 200) :]:
        assert time.monotonic() < deadline, program.written[-2000:]
        if select.select([program.fd], [], [], 0.5)[0]:
            program.written += os.read(program.fd, 65536)


def resident(program):
    rows = Path(f"/proc/{program.process.pid}/status").read_text().splitlines()
    return next(int(row.split()[1]) for row in rows if row.startswith("VmRSS"))


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_a_day_of_500_turns_is_resumed_forked_and_gone_back_in(at_terminal, emulator, tmp_path):
    program = at_terminal(turns(), "--yolo", size=(80, 24))
    until_written(program, b"scripted")
    early = 0
    for number in range(TURNS):
        program.type(f"turn {number}\r")
        until_written(program, f"answer-{number}-end".encode())
        if number == 50:
            early = resident(program)
    assert resident(program) < 1.5 * early  # what is settled costs little more than its text
    emulator.reset(80, 24)
    shown = emulator.write(program.written)
    text = "\n".join(shown.everything)
    for number in range(TURNS):
        assert text.count(f"answer-{number}-end") == 1
        assert text.count(f"❯ turn {number}\n") == 1
    program.type("\x04")
    assert program.end() == 0

    again = at_terminal([{"text": "after all of it", "repeat": True}], "-c", "--yolo")
    again.until(f"❯ turn {TURNS - 1}")
    assert "earlier messages" in "\n".join(again.shown.everything)
    again.type("\x1bOQ")
    again.until(f"of {TURNS}")
    again.type("/answer-3-end\r")
    again.until(lambda shown: "answer-3-end" in shown.text)
    again.type("q")
    again.until(lambda shown: not shown.is_alternate)
    again.type("/session fork\r")
    again.until("copy")
    again.type("one more\r")
    again.until("after all of it")
    again.type("/rewind\r")
    again.until("Go back to before")
    again.type(f"turn {TURNS - EVERY}")
    again.until(f"❯ turn {TURNS - EVERY}  ")  # the first; the time of others may have its digits
    again.type("\r")
    again.until(f"Back to before: turn {TURNS - EVERY}")
    again.type("b")
    again.until(f"❯ turn {TURNS - EVERY}")
    assert (tmp_path / "work" / "log.txt").read_text() == f"turn {TURNS - 2 * EVERY}\n"
    again.type("\x15\x04")
    assert again.end() == 0


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_a_session_with_a_real_model_on_this_machine(opened, tmp_path):
    models = tmp_path / "zot" / "models"
    models.mkdir(parents=True)
    (models / f"{SMALL}.gguf").symlink_to(small_model_file())
    words = ("--provider", "local", "--model", SMALL, "--no-ext", "--no-tools")
    program = opened(zot(*words), environment(tmp_path), tmp_path, (80, 24))
    program.until(SMALL, 60)
    program.type("Say hello in one short sentence.\r")
    program.until(lambda shown: "esc stops" in shown.text, 60)
    program.until(lambda shown: "esc stops" not in shown.text and " out" in shown.text, 300)
    lines = [line for line in program.shown.everything if line.strip()]
    said = lines[lines.index("❯ Say hello in one short sentence.") + 1 : -2]
    assert " ".join(said).strip()
    program.type("\x04")
    assert program.end(60) == 0
    assert program.is_restored()
