"""Line by line: append only, labels, numbered menus."""

import re
import signal

import pytest

TABLE = "| name | size |\n| --- | --- |\n| alpha | 1 |\n| beta | 2 |\n"
HELLO = [{"text": f"Hello.\n\n{TABLE}", "repeat": True}]
SLOW = [{"text": [f"word{number}\n\n" for number in range(400)], "delay_ms": 20, "repeat": True}]


def bash(command):
    return {"tools": [{"name": "bash", "args": {"command": command}}]}


def text(program):
    return "\n".join(program.shown.everything)


def test_it_says_so_and_answers_with_labels(at_terminal):
    program = at_terminal(HELLO, "--linear")
    program.until("line by line")
    program.until("you:")
    program.type("good morning\n")
    program.until("name: beta, size: 2")
    assert "zot: Hello." in text(program)
    assert "name: alpha, size: 1" in text(program)
    program.type("\x04")
    assert program.end() == 0
    assert not re.search(rb"\x1b", program.written)


def test_a_dumb_terminal_gets_it_unasked(at_terminal):
    program = at_terminal(HELLO, "what is this?", TERM="dumb")
    program.until("zot: Hello.")
    assert "you: what is this?" in text(program)
    assert b"\x1b" not in program.written


def test_a_permission_is_asked_in_words(at_terminal, tmp_path):
    program = at_terminal([bash(f"touch {tmp_path}/ran; echo did"), *HELLO], "--linear")
    program.until("you:")
    program.type("touch it\n")
    program.until("permission: May zot use bash?")
    program.until("y: yes")
    program.type("what\n")
    program.until(lambda shown: "\n".join(shown.everything).count("permission:") == 2)
    program.type("y\n")
    program.until("zot: Hello.")
    assert "tool: running bash" in text(program)
    assert "did" in text(program)
    assert (tmp_path / "ran").exists()
    program.type("/reasoning\n")
    program.until("question: How much to think")


def test_nobody_is_asked_to_speak_while_a_menu_loads(at_terminal):
    program = at_terminal(HELLO, "--linear")
    program.until("you:")
    program.type("/model\n")
    program.until("question: Model:")
    lines = [line for line in program.shown.everything if line.startswith("you:")]
    assert lines == ["you: /model"]


def test_a_refusal_has_its_reason_on_the_same_line(at_terminal):
    program = at_terminal([bash("touch made"), *HELLO], "--linear", "do it")
    program.until("n: no")
    program.type("r because I say so\n")
    program.until("zot: Hello.")
    assert "because I say so" in text(program)


def test_ctrl_c_stops_the_turn_and_then_leaves(at_terminal):
    program = at_terminal(SLOW, "--linear", "go on")
    program.until("word3")
    program.type("\x03")
    program.until("note: stopped")
    program.until("you:")
    program.type("\x03")
    assert program.end() == 128 + signal.SIGINT


@pytest.mark.parametrize("command", ["/help", "/exit"])
def test_commands_work(at_terminal, command):
    program = at_terminal(HELLO, "--linear")
    program.until("you:")
    program.type(f"{command}\n")
    if command == "/exit":
        assert program.end() == 0
    else:
        program.until(lambda shown: any("/clear" in line for line in shown.everything))
