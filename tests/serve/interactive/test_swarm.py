"""`/swarm` at the terminal: real agents, a real supervisor, the whole program in a pty."""

import json
import os
import subprocess
import time
from pathlib import Path

import pytest
from support.terminal import environment

from zot.swarm.local import LocalSwarm

pytestmark = pytest.mark.slow
ANSWER = [{"text": "The answer is **42**.", "repeat": True}]


def bash(command):
    return {"tools": [{"name": "bash", "args": {"command": command}}]}


@pytest.fixture
def swarm(tmp_path):
    work = tmp_path / "work"
    work.mkdir()
    who = ["-c", "user.name=t", "-c", "user.email=t@t"]
    for words in (["init", "-q", "-b", "main"], ["commit", "-q", "--allow-empty", "-m", "first"]):
        subprocess.run(["git", *who, *words], cwd=work, check=True)
    variables = {**environment(tmp_path), "PATH": os.environ["PATH"]}
    made = LocalSwarm(tmp_path / "zot", variables)
    yield made
    made.stop()
    log = tmp_path / "zot" / "swarm" / "supervisor.log"
    assert not log.exists() or "Traceback" not in log.read_text()


def send(program, line, seen):
    program.type(line + "\r")
    return program.until(seen)


def sessions(tmp_path):
    return [path.read_text() for path in Path(tmp_path, "zot", "sessions").rglob("*.jsonl")]


def test_the_answer_of_an_agent_comes_back_into_the_conversation_once(at_terminal, swarm, tmp_path):
    program = at_terminal(ANSWER)
    program.until("scripted")
    send(program, "/swarm new --model scripted What is it?", "begins; its answer comes back here")
    program.until("is done")
    shown = program.until("The answer is 42.")
    assert "[swarm]" not in shown.text
    deadline = time.monotonic() + 30
    while not (collected := swarm.agents()[0].collected) and time.monotonic() < deadline:
        time.sleep(0.05)
    assert collected
    send(program, "and now?", lambda shown: shown.text.count("The answer is 42.") == 2)
    program.type("\x04")
    assert program.end() == 0
    (kept,) = sessions(tmp_path)
    rows = [json.loads(line) for line in kept.splitlines()]
    told = [row for row in rows if "[swarm] agent what-is-it-" in json.dumps(row)]
    assert len(told) == 1
    assert kept.index("[swarm] agent") < kept.index("and now?")
    again = at_terminal(ANSWER, "-c")
    again.until("[swarm] agent what-is-it-")
    send(again, "what was it?", lambda shown: shown.text.count("The answer is 42.") == 2)
    assert again.shown.text.count("is done") == 1  # it is not brought a second time


def test_the_dashboard_shows_asks_answers_and_merges(at_terminal, swarm, tmp_path):
    answer = {"match": "the answer", **ANSWER[0]}
    turns = [answer, bash("echo hi > made.txt"), {"text": "I made it."}]
    program = at_terminal(turns, size=(100, 30))
    program.until("scripted")
    send(program, "/swarm new make a file", "begins;")
    program.type("/swarm\r")
    shown = program.until("needs you")
    assert shown.is_alternate
    shown = program.until("a allow")
    assert "approval of bash" in shown.text
    assert "echo hi > made.txt" in shown.text
    program.type("a")
    shown = program.until("I made it.")
    assert "✓ bash echo hi > made.txt" in shown.text
    program.until(lambda shown: "done" in shown.lines[1] and "+1 -0" in shown.lines[1])
    program.type("D")
    program.until("+hi")
    program.type("q")
    program.until("enter writes to it")
    program.type("m")
    program.until("merged into your checkout")
    assert (tmp_path / "work" / "made.txt").read_text() == "hi\n"
    program.type("\r")
    program.until("a message")
    program.type("and the answer?\r")
    program.until("❯ and the answer?")
    program.until("The answer is 42.")
    program.resize(60, 15)
    program.until(lambda shown: shown.lines and "swarm" in shown.lines[0])
    program.type("n")
    program.until("a task for a new agent")
    program.type("\x1b")
    program.until("enter writes to it")
    program.type("r")
    program.until(lambda shown: "n begins an agent" in shown.text or "not merged" in shown.text)
    program.type("q")
    program.until(lambda shown: not shown.is_alternate)
    assert len(swarm.agents()) <= 1


def test_one_is_refused_with_a_reason_steered_stopped_and_gone_on_with(at_terminal, swarm):
    turns = [{"match": "Go on", **ANSWER[0]}, bash("echo hi"), bash("sleep 60")]
    program = at_terminal(turns, size=(100, 30))
    program.until("scripted")
    send(program, "/swarm new try it", "begins;")
    program.type("/swarm logs try\r")
    program.until("a allow")
    program.type("d")
    program.until("why not")
    program.type("not now\r")
    program.until("not now")
    program.until("sleep 60")
    program.until("a allow")
    program.type("a")
    program.until(lambda shown: "working" in shown.lines[1])
    program.type("\rhurry up\r")
    program.until("heard after the current tool")
    program.type("x")
    program.until(lambda shown: "cancelled" in shown.lines[1])
    program.type("R")
    program.until("The answer is 42.")
    program.type("q")
    program.until(lambda shown: not shown.is_alternate)


def test_nothing_an_agent_says_reaches_the_terminal_raw(at_terminal, swarm, tmp_path):
    evil = "\x1b]52;c;ZXZpbA==\x07\x1b[2J\u202ehidden"
    script = tmp_path / "evil.json"
    script.write_text(json.dumps({"turns": [{"thinking": evil, "text": evil, "repeat": True}]}))
    words = ("--script", str(script), "--no-ext")
    swarm.submit(
        f"Look {evil}", str(tmp_path / "work"), provider="scripted", words=words, id="evil-1"
    )
    program = at_terminal(ANSWER)
    program.until("scripted")
    program.type("/swarm\r")
    program.until(lambda shown: "done" in shown.lines[1])
    program.until(lambda shown: "hidden" in "\n".join(shown.lines[3:]))
    assert b"\x1b]52" not in program.written
    assert "\u202e".encode() not in program.written
    program.type("q")
    program.until(lambda shown: not shown.is_alternate)


def test_words_that_make_no_sense_are_explained(at_terminal, swarm):
    program = at_terminal(ANSWER)
    program.until("scripted")
    send(program, "/swarm dance", "/swarm opens the dashboard")
    send(program, "/swarm new", "say what is to be done")
    send(program, "/swarm send x", "say what: /swarm send ID TEXT")
    send(program, "/swarm kill nobody", "no agent 'nobody'")
    send(program, "/swarm logs nobody", lambda shown: shown.text.count("no agent 'nobody'") == 2)
