import json
import shutil
import subprocess
import time
from xml.etree import ElementTree

import pytest
from support.picture import svg
from support.terminal import environment, zot

from zot.serve.interactive.look import find_theme

pytestmark = pytest.mark.long

HELLO = [{"text": "Hello **there**\n\n| a | b |\n| - | - |\n| 1 | 2 |", "repeat": True}]


def write(path, value):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(value if isinstance(value, str) else json.dumps(value))


def test_a_theme_of_ones_own(at_terminal, tmp_path):
    write(tmp_path / "zot" / "themes" / "mine.json", {"styles": {"prompt": "#ff0000"}})
    program = at_terminal(HELLO, "--theme", "mine", COLORTERM="truecolor")
    program.until("scripted")
    program.until(lambda _: b"\x1b[38;2;255;0;0m" in program.written)


def test_a_theme_of_an_extension_that_is_nothing_else(at_terminal, tmp_path):
    folder = tmp_path / "zot" / "extensions" / "sunset"
    write(folder / "extension.json", {"name": "sunset", "theme": "colours.json"})
    write(folder / "colours.json", {"styles": {"prompt": "#ff0000"}})
    program = at_terminal(HELLO, "--theme", "sunset", COLORTERM="truecolor")
    program.until(lambda _: b"\x1b[38;2;255;0;0m" in program.written)


def test_a_theme_of_an_extension_stays_inside_it(at_terminal, tmp_path):
    folder = tmp_path / "zot" / "extensions"
    write(folder / "outside" / "extension.json", {"name": "outside", "theme": "../x.json"})
    write(folder / "plain" / "extension.json", {"name": "plain", "theme": {"styles": {}}})
    at_terminal(HELLO, "--theme", "outside", size=(200, 24)).until("there is: terminal")
    assert find_theme("plain", str(tmp_path / "zot"), {}).dark


def test_the_background_decides_between_light_and_dark(at_terminal):
    program = at_terminal(HELLO, "--theme", "auto", COLORTERM="truecolor")
    program.until(lambda _: b"\x1b]11;?" in program.written)
    program.type("\x1b]11;rgb:ffff/ffff/ffff\x1b\\")
    program.until(lambda _: b"38;2;11;90;104" in program.written)
    assert "rgb" not in program.shown.text


def test_a_light_terminal_never_sees_the_dark_colours(at_terminal):
    program = at_terminal(HELLO, "--theme", "auto", "say hello", COLORTERM="truecolor")
    program.background = b"\x1b]11;rgb:ffff/ffff/ffff\x1b\\"
    program.until("Hello there")
    program.until(lambda _: b"38;2;11;90;104" in program.written)
    assert b"38;2;127;193;214" not in program.written  # the dark mark of a prompt


@pytest.mark.parametrize(
    ("name", "content"), [("nosuch", None), ("broken", "{"), ("odd", {"styles": 3})]
)
def test_a_theme_that_cannot_be_used_is_named(at_terminal, tmp_path, name, content):
    if content is not None:
        write(tmp_path / "zot" / "themes" / f"{name}.json", content)
    program = at_terminal(HELLO, "--theme", name, size=(200, 24))
    program.until(name)


def test_keys_of_ones_own(at_terminal, tmp_path):
    write(tmp_path / "zot" / "keys.json", {"f5": "/help", "ctrl+x": "submit"})
    program = at_terminal(HELLO)
    program.until("scripted")
    program.type("\x1b[15~")
    program.until(lambda shown: any("/clear" in line for line in shown.everything))
    program.type("hi there\x18")
    program.until("Hello there")


def test_keys_that_cannot_be_used_are_named(at_terminal, tmp_path):
    write(tmp_path / "zot" / "keys.json", {"f5": "nosuch"})
    program = at_terminal(HELLO)
    program.until("there is no action 'nosuch'")


def test_no_colour_is_used_where_none_is_wanted(at_terminal):
    program = at_terminal(HELLO, "say hello", NO_COLOR="1")
    program.until("Hello there")
    assert b"\x1b[1m" in program.written
    assert b"\x1b[36m" not in program.written and b"36m" not in program.written


def test_the_terminal_is_told_where_one_is_and_where_a_turn_begins(at_terminal):
    program = at_terminal(HELLO, "say hello")
    program.until("Hello there")
    assert b"\x1b]2;zot - work\x1b\\" in program.written
    assert b"\x1b]7;file://" in program.written
    assert program.written.count(b"\x1b]133;A") == 1


def test_a_picture_is_made_of_the_cells(at_terminal):
    program = at_terminal(HELLO, "say hello")
    program.until("Hello there")
    drawn = svg(program.pump(0.1, cells=True).cells)
    texts = [element.text for element in ElementTree.fromstring(drawn).iter() if element.text]
    assert "there" in texts
    assert "say\u00a0hello" in texts


@pytest.mark.skipif(shutil.which("tmux") is None, reason="tmux is not installed")
def test_tmux_shows_every_line_once_after_resizes(tmp_path):
    turns = [{"text": [f"line {number} of it\n\n" for number in range(60)], "delay_ms": 20}]
    write(tmp_path / "script.json", {"turns": turns})
    command = zot("--provider", "scripted", "--script", str(tmp_path / "script.json"), "--no-ext")

    def tmux(*words):
        arguments = ["tmux", "-S", str(tmp_path / "socket"), "-f", "/dev/null", *words]
        done = subprocess.run(arguments, capture_output=True, text=True, env=environment(tmp_path))
        return done.stdout

    def seen():
        return [line for line in tmux("capture-pane", "-p", "-S", "-").split("\n") if line]

    def until(text):
        deadline = time.monotonic() + 30
        while not any(text in line for line in seen()):
            assert time.monotonic() < deadline, seen()
            time.sleep(0.05)

    words = [*command, "go on"]
    tmux("new-session", "-d", "-x", "100", "-y", "30", *words)
    try:
        until("line 5 of it")
        for columns, rows in ((60, 24), (120, 30), (50, 20), (100, 30)):
            tmux("resize-window", "-x", str(columns), "-y", str(rows))
            time.sleep(0.1)
        until("line 59 of it")
        lines = [line for line in seen() if line.startswith("line ")]
        assert lines == [f"line {number} of it" for number in range(60)]
        assert sum(line.startswith("❯") for line in seen()) <= 2
    finally:
        tmux("kill-server")


def test_names_of_files_lead_to_the_program_of_ones_choice(at_terminal, tmp_path):
    write(tmp_path / "work" / "app.py", "x = 1\n")
    turns = [{"text": "It is in app.py:1, see https://example.org/docs."}]
    program = at_terminal(turns, "where?", "--file-links", "vscode")
    program.until("It is in app.py:1")
    work = (tmp_path / "work").as_posix().encode()
    assert (
        b"\x1b]8;;vscode://file" + work + b"/app.py:1\x1b\\app.py:1\x1b]8;;\x1b\\"
        in program.written
    )
    assert b"\x1b]8;;https://example.org/docs\x1b\\" in program.written


def test_a_kind_of_link_that_is_none_is_named(at_terminal):
    at_terminal(HELLO, "--file-links", "nosuch", size=(200, 24)).until("'nosuch' is none of")
