"""At the terminal: a cut answer, a command that is stopped, a program that gets the screen, and a
question in a small window."""

import re
import shutil
import subprocess

import pytest
from support.terminal import environment, zot

from zot.serve.interactive.shell import needs_terminal
from zot.testing.fakeserver import FakeServer

HELLO = {"text": "Hello there."}


def everything(program):
    return "\n".join(program.shown.everything)


# --- retries -----------------------------------------------------------------------------------


def test_a_cut_answer_is_replaced_and_the_wait_is_one_line(at_terminal):
    cut = {"text": ["half of ", "it"], "cut_after": 1}
    program = at_terminal([cut, cut, cut, HELLO], "say hello")
    seen = set()

    def answered(shown):
        retries = [line for line in shown.lines if "attempt" in line]
        assert len(retries) <= 1
        seen.update(re.findall(r"attempt \d+ of 10 in \d+ s", shown.text))
        return "Hello there." in shown.text

    program.until(answered)
    assert any(text.startswith("attempt 4 of 10 in") for text in seen), seen
    assert len([text for text in seen if "attempt 4" in text]) > 1, seen  # it counts down
    text = everything(program)
    assert "half of" not in text
    assert "attempt" not in text
    assert "Go on:" not in text


def test_what_was_scrolled_away_before_a_cut_is_marked(at_terminal):
    # Slowly enough to be drawn, and so scrolled away, before the cut.
    cut = {"text": [f"paragraph {n}\n\n" for n in range(30)], "cut_after": 29, "delay_ms": 20}
    program = at_terminal([cut, HELLO], "say hello")
    program.until("Hello there.")
    text = everything(program)
    assert text.count("cut off here; it begins anew") == 1
    assert text.index("paragraph 3") < text.index("begins anew") < text.index("Hello there.")


def test_escape_stops_the_wait_for_the_next_attempt(at_terminal):
    busy = {"error": {"status": 503, "message": "busy", "retry_after": 50}}
    program = at_terminal([busy, HELLO], "say hello")
    program.until("attempt 2 of 10 in")
    program.type("\x1b")
    shown = program.until("stopped")
    assert "attempt" not in shown.text
    assert "Go on:" not in shown.text


def test_only_a_failure_that_stays_opens_the_rescue_menu(opened, tmp_path):
    with FakeServer() as server:
        command = zot("--provider", "anthropic", "--base-url", server.url, "--no-ext")
        environ = environment(tmp_path, ANTHROPIC_API_KEY="sk-test-0123456789")
        program = opened([*command, "status:503:1 say:fine"], environ, tmp_path / "work")
        shown = program.until("fine")
        assert "Go on:" not in shown.text
        program.type("status:401\r")
        program.until("Go on:")


# --- the person's own commands -----------------------------------------------------------------


@pytest.mark.parametrize("key", ["\x1b", "\x03"], ids=["esc", "ctrl+c"])
def test_a_command_of_the_person_is_stopped(at_terminal, tmp_path, key):
    program = at_terminal([HELLO])
    program.until("scripted")
    program.type("!sleep 1000.25\r")
    program.until("esc stops")
    program.type(key)
    shown = program.until("[stopped]")
    assert "esc stops" not in shown.text
    left = subprocess.run(["pgrep", "-f", "sleep 1000.25"], capture_output=True, check=False)
    assert left.stdout == b""
    program.type("hi\r")
    program.until("Hello there.")


@pytest.mark.skipif(shutil.which("vim") is None, reason="vim is not installed")
def test_a_full_screen_program_gets_the_terminal_and_gives_it_back(at_terminal, tmp_path):
    program = at_terminal([HELLO])
    program.until("scripted")
    (program.cwd / "note.txt").write_text("first line of the note\n")
    program.type("!vim -u NONE -N note.txt\r")
    shown = program.until("first line of the note")
    assert shown.is_alternate
    program.type("Gosecond line\x1b:wq\r")
    shown = program.until("had the terminal")
    assert not shown.is_alternate
    assert (program.cwd / "note.txt").read_text() == "first line of the note\nsecond line\n"
    program.type("hi\r")
    program.until("Hello there.")
    assert "\\x1b" not in everything(program)


@pytest.mark.skipif(shutil.which("less") is None, reason="less is not installed")
def test_ctrl_c_in_a_pager_does_not_end_zot(at_terminal):
    program = at_terminal([HELLO])
    program.until("scripted")
    (program.cwd / "long.txt").write_text("line\n" * 500)
    program.type("!less long.txt\r")
    program.until(lambda shown: shown.text.count("line") > 15)
    program.type("\x03")
    program.pump(0.3)
    program.type("q")
    program.until("had the terminal")
    program.type("hi\r")
    program.until("Hello there.")


@pytest.mark.parametrize(
    ("command", "needed"),
    [
        ("vim a.txt", True),
        ("EDITOR=vi sudo /usr/bin/vim a", True),
        ("cat a | less -R", True),
        ("git rebase -i HEAD~3", True),
        ("git commit", True),
        ("git commit -am done", False),
        ("git log", False),
        ("less a | cat", False),
        ("echo vim", False),
        ("", False),
    ],
)
def test_which_commands_need_the_terminal(command, needed):
    assert needs_terminal(command) is needed


# --- questions ---------------------------------------------------------------------------------


@pytest.mark.parametrize("size", [(40, 10), (80, 12), (80, 24), (120, 40)])
def test_a_question_shows_the_command_at_any_size(at_terminal, size):
    turn = {"text": "I will look. " * 30, "tools": [bash("rm -rf the-precious-directory")]}
    program = at_terminal([turn, HELLO], "go on", size=size)
    shown = program.until("May zot use bash?")
    shown = program.until("rm -rf the-precious-directory")
    assert shown.text.count("the-precious-directory") == 1 or size[1] > 12
    assert re.search(r"y yes", shown.text)
    assert re.search(r"n no", shown.text)
    program.pump(0.7)
    program.type("n")
    program.until("Hello there.")


@pytest.mark.parametrize("size", [(40, 10), (80, 12), (80, 24), (120, 40)])
def test_a_question_shows_the_first_changed_line_at_any_size(at_terminal, tmp_path, size):
    (tmp_path / "work").mkdir()
    lines = [f"line {number}\n" for number in range(200)]
    (tmp_path / "work" / "long.txt").write_text("".join(lines))
    edits = [{"oldText": "line 77\n", "newText": "line seventy-seven\n"}]
    edit = {"name": "edit", "args": {"path": "long.txt", "edits": edits}}
    program = at_terminal([{"tools": [edit]}, HELLO], "go on", size=size)
    shown = program.until("May zot use edit?")
    shown = program.until("- line 77")
    assert "long.txt" in shown.text
    assert "y yes" in shown.text
    assert sum("seventy-seven" in line for line in shown.lines) <= 1  # no second block of the call
    program.pump(0.7)
    program.type("y")
    program.until("Hello there.")
    assert "seventy-seven" in (tmp_path / "work" / "long.txt").read_text()


def bash(command):
    return {"name": "bash", "args": {"command": command}}
