"""Whatever happens, the terminal is given back as it was; and a full disk is no such thing."""

import os
import signal
import sys

import pytest
from support.bwrap import needs_bwrap
from support.environment import uncovered
from support.patience import PATIENCE
from support.terminal import environment, zot

HELLO = [{"text": "Hello there", "repeat": True}]
SLOW = [{"text": [f"word{number} " for number in range(400)], "delay_ms": 20, "repeat": True}]
MODES = (b"\x1b[?2004l", b"\x1b[?1004l", b"\x1b[?7h", b"\x1b[<u", b"\x1b[>4m", b"\x1b[?25h")
"""What was asked of the terminal is taken back."""


def given_back(program):
    program.pump(0.1)
    return program.is_restored() and all(mode in program.written for mode in MODES)


# --- exits -----------------------------------------------------------------------------------


@pytest.mark.parametrize("flags", [(), ("--linear",)])
def test_a_file_that_is_no_session_is_told_and_ends_it(flags, opened, tmp_path):
    (tmp_path / "notes.txt").write_text("not a session")
    words = ("--provider", "scripted", "--session", "notes.txt", "--no-ext", *flags)
    program = opened(zot(*words), environment(tmp_path), tmp_path)
    assert program.end() == 1
    assert "zot: 'notes.txt' is not a session file" in program.shown.text
    assert program.is_restored()


BROKEN = """
import sys
from zot.serve.interactive.app import App
from zot.__main__ import main

real = App.picture
def picture(self, columns, rows):
    if "boom" in self.editor.text:
        raise RuntimeError("a bug of zot's")
    return real(self, columns, rows)
App.picture = picture
sys.exit(main())
"""


def test_an_exception_in_the_drawing_gives_the_terminal_back(opened, scripted, tmp_path):
    command = [sys.executable, "-c", BROKEN, *scripted(HELLO)[3:]]
    program = opened(command, environment(tmp_path), tmp_path)
    program.until("scripted")
    program.type("boom")
    assert program.end() != 0
    assert given_back(program)
    assert "Traceback" not in program.shown.text
    text = " ".join(program.shown.text.split())
    assert "internal error: RuntimeError: a bug of zot's" in text
    assert "a bug of zot's" in (tmp_path / "zot" / "crash.log").read_text()
    assert (tmp_path / "zot" / "crash.log").stat().st_mode & 0o777 == 0o600


SIGNALLED = """
import os, signal, sys
from zot.serve.interactive.app import App
from zot.__main__ import main

real = App.tick
def tick(self):
    if "now" in self.editor.text:
        App.tick = real  # once: another one would wake it
        os.kill(os.getpid(), signal.SIGTERM)
    return real(self)
App.tick = tick
sys.exit(main())
"""


def test_a_signal_in_the_middle_of_drawing_ends_it_too(opened, tmp_path):
    command = [sys.executable, "-c", SIGNALLED]
    program = opened(command, environment(tmp_path), tmp_path)
    program.until("It needs a model")
    program.type("\x1b")
    program.until("ask anything")
    program.type("now")
    assert program.end() == 128 + signal.SIGTERM
    assert given_back(program)


@pytest.mark.parametrize("name", ["TERM", "HUP", "INT", "QUIT"])
@pytest.mark.parametrize("where", ["idle", "pager", "menu"])
def test_a_signal_gives_it_back_wherever_one_is(at_terminal, name, where):
    program = at_terminal(HELLO, "say hello")
    program.until("Hello")
    match where:
        case "pager":
            program.type("\x1bOQ")
            program.until(lambda shown: shown.is_alternate)
        case "menu":
            program.type("/reasoning\r")
            program.until("How much to think")
    number = getattr(signal, f"SIG{name}")
    program.process.send_signal(number)
    assert program.end() == 128 + number
    assert given_back(program)
    assert not program.shown.is_alternate


def test_a_terminal_that_is_closed_ends_it(at_terminal):
    program = at_terminal(SLOW, "go on")
    program.until("word3")
    os.close(program.fd)
    os.close(program._child)
    try:
        assert program.process.wait(PATIENCE) == 128 + signal.SIGHUP
    finally:
        program.fd, program._child = os.openpty()


def test_a_command_whose_process_is_killed_is_told_and_the_terminal_goes_on(at_terminal):
    turns = [{"tools": [{"name": "bash", "args": {"command": "kill -9 $$"}}]}, *HELLO]
    program = at_terminal(turns, "kill it", "--yolo")
    program.until("Hello")
    program.type("!kill -9 $$\r")
    program.until("✗ !")
    program.type("still here")
    program.until("❯ still here")
    program.type("\x15\x04")
    assert program.end() == 0
    assert given_back(program)


def test_an_editor_that_is_killed_gives_the_terminal_back_to_zot(at_terminal, tmp_path):
    editor = tmp_path / "editor"
    editor.write_text("#!/bin/sh\nprintf '\\033[?1049h\\033[?25l'; stty raw; kill -9 $$\n")
    editor.chmod(0o755)
    program = at_terminal(HELLO, EDITOR=str(editor))
    program.until("scripted")
    program.type("my words\x07")
    program.until(lambda shown: "my words" in shown.text and b"\x1b[?25l" in program.written)
    program.type(" go on")
    shown = program.until("❯ my words go on")
    assert not shown.is_alternate
    program.type("\x15\x04")
    assert program.end() == 0
    assert given_back(program)


# --- a full disk -----------------------------------------------------------------------------


@pytest.fixture
def on_full_disk(opened, scripted, tmp_path):
    """zot where no file can be larger than so many blocks of 512 bytes."""

    def start(turns, blocks, *words):
        limited = ["sh", "-c", f'ulimit -f {blocks}; exec "$@"', "sh", *scripted(turns, *words)]
        environ = uncovered(environment(tmp_path))  # coverage finds no room for its data either
        return opened(limited, environ, tmp_path / "work", (100, 30))

    return start


def leave(program):
    program.type("\x15\x04")
    assert program.end() == 0
    assert given_back(program)


def test_where_nothing_can_be_written_the_prompt_stays_and_one_is_told(on_full_disk):
    program = on_full_disk(HELLO, 0)
    program.until("scripted")
    program.type("precious words")
    shown = program.until("what you write is not kept on disk")
    program.type("\r")
    shown = program.until("cannot write to the session")
    shown = program.until("❯ precious words")  # to be sent again when there is room
    assert "free some space" in " ".join(shown.text.split())
    program.type(" and more\r")
    program.until(lambda shown: shown.text.count("cannot write to the session") == 2)
    assert program.shown.text.count("is not kept on disk") == 1
    assert "Traceback" not in program.shown.text
    leave(program)


def test_a_disk_that_fills_up_in_a_turn_ends_the_turn_and_not_the_terminal(on_full_disk, tmp_path):
    write = {"tools": [{"name": "write", "args": {"path": "b.txt", "content": "new\n" * 400}}]}
    program = on_full_disk([write, *HELLO], 2, "--yolo", "write it")
    program.until("cannot write to the session")
    program.until(lambda shown: "esc stops" not in shown.text)
    program.type("/help\r")
    program.until(lambda shown: any("a new line" in line for line in shown.everything))
    leave(program)
    assert "Traceback" not in "\n".join(program.shown.everything)


def test_a_tool_that_finds_no_room_fails_and_the_file_is_as_it_was(on_full_disk, tmp_path):
    work = tmp_path / "work"
    work.mkdir()
    (work / "b.txt").write_text("old\n")
    write = {"tools": [{"name": "write", "args": {"path": "b.txt", "content": "x" * 60_000}}]}
    program = on_full_disk([write, {"text": "I see"}], 64, "--yolo", "--no-session", "write it")
    program.until("I see")
    assert "✗ write b.txt" in "\n".join(program.shown.everything)
    assert (work / "b.txt").read_text() == "old\n"
    leave(program)


def test_without_room_for_settings_and_exports_the_command_says_so(on_full_disk, tmp_path):
    program = on_full_disk(HELLO, 4, "say hello")
    program.until("Hello")
    program.type("/session export markdown out.md\r")
    program.until(lambda shown: "out.md" in shown.text)
    program.type("/statusline " + "model " * 400 + "\r")
    program.until(lambda shown: "File too large" in " ".join(shown.text.split()))
    leave(program)


def test_a_change_whose_old_content_cannot_be_kept_is_told_or_not_made(on_full_disk, tmp_path):
    work = tmp_path / "work"
    work.mkdir()
    (work / "b.txt").write_text("old line\n" * 6_000)
    write = {"tools": [{"name": "write", "args": {"path": "b.txt", "content": "new\n"}}]}
    program = on_full_disk([write, {"text": "I see"}], 64, "--yolo", "write it")
    program.until("I see")
    program.type("/rewind\r")
    program.until("Go back to before")
    program.type("\r")
    shown = program.until("Back to before: write it")
    assert "b.txt" in shown.text
    program.type("\x1b")
    program.until(lambda shown: "Back to before" not in shown.text)
    leave(program)


@needs_bwrap
def test_on_a_disk_that_is_really_full_the_same_prompt_goes_through_once_there_is_room(
    opened, scripted, tmp_path
):
    home = tmp_path / "small"
    home.mkdir()
    command = [
        *("bwrap", "--dev-bind", "/", "/", "--size", "262144", "--tmpfs", str(home)),
        *("--chdir", str(home)),
        *scripted(HELLO),
    ]
    program = opened(command, environment(home), tmp_path, (100, 30))
    program.until("scripted")
    program.type(f"!!head -c 1000000 /dev/zero > {home}/fill\r")
    program.until("✗ !!")
    program.type("are you there?\r")
    shown = program.until("❯ are you there?")
    program.until("cannot write to the session")
    assert "Hello" not in shown.text
    program.until(lambda shown: shown.lines[shown.cursor[0]].startswith("❯ are you there?"))
    program.type(f"\x15!!rm {home}/fill\r")
    program.until("✓ !!")
    program.type("\x19\r")  # ctrl+y: what ctrl+u cut
    program.until("Hello there")
    program.type("\x04")
    assert program.end() == 0
    assert given_back(program)
