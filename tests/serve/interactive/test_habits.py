"""Habits of people who come from other agents: names, keys, the start and the end."""

import json
import re

from support.terminal import environment

HELLO = [{"text": ["Hello ", "**there**"], "repeat": True}]


def bash(command, **more):
    return {"tools": [{"name": "bash", "args": {"command": command}}], **more}


def call(name, **args):
    return {"name": name, "args": args}


def everything(program):
    return "\n".join(program.shown.everything)


def send(program, line, seen):
    program.type(f"{line}\r")
    return program.until(seen)


def test_the_start_says_what_there_is_and_the_end_how_to_go_on(at_terminal, tmp_path):
    (tmp_path / "work").mkdir()
    (tmp_path / "work" / "AGENTS.md").write_text("Be brief.\n")
    program = at_terminal(HELLO)
    shown = program.until("? shows the keys")
    lines = [line for line in shown.lines if line.strip()]
    assert re.match(r"zot \d+\.\d+", lines[0])
    assert lines[1].rstrip() == "scripted/scripted · ~/work"
    assert lines[2].startswith("AGENTS.md · ")
    send(program, "hi", "Hello there")
    program.type("\x04")
    assert program.end() == 0
    assert "zot -c goes on with this session" in everything(program)
    again = at_terminal(HELLO)
    again.until("last session 0 min ago (zot -c)")


def test_the_title_says_that_it_works_waits_and_is_done(at_terminal):
    program = at_terminal([bash("touch made"), *HELLO], "go", WT_SESSION="1")
    program.until("May zot use bash?")
    assert b"\x1b]2;* zot - work" in program.written
    assert b"\x1b]9;4;3;0" in program.written
    program.until(lambda _: b"\x1b]2;? zot - work" in program.written)
    program.type("y")
    program.until("Hello there")
    program.until(lambda _: b"\x1b]9;4;0;0" in program.written)


def test_reads_and_searches_are_one_line(at_terminal, tmp_path):
    work = tmp_path / "work"
    work.mkdir()
    for name in ("a.py", "b.py"):
        (work / name).write_text("one\ntwo\nneedle\n")
    reads = [call("read", path="a.py"), call("read", path="b.py"), call("grep", pattern="needle")]
    program = at_terminal(
        [{"tools": reads}, {"tools": [call("read", path="no")]}, *HELLO], "look at them"
    )
    program.until("Hello there")
    text = everything(program)
    assert "✓ read a.py (3 lines), b.py (3 lines) · grep needle (2 lines)" in text
    assert "✗ read no" in text
    program.type("\x0f")
    program.until(lambda shown: shown.is_alternate and "needle" in shown.text)


def test_names_of_other_agents_lead_to_ours(at_terminal):
    program = at_terminal(HELLO, size=(100, 40))
    program.until("scripted")
    send(program, "hi", "Hello there")
    send(program, "/permissions", "/permissions is /approvals here")
    send(program, "/context", "tokens")
    for part in ("system prompt", "tools", "your prompts", "answers", "free"):
        assert part in program.shown.text
    send(program, "/hooks", "hooks are commands")
    send(program, "/permisions", "❯ /permissions")
    program.type("\x15")
    send(program, "/resume", "Sessions")
    shown = program.until("0 min")
    assert "ctrl+a" in shown.text


def test_a_theme_is_seen_before_it_is_chosen(at_terminal, tmp_path):
    program = at_terminal(HELLO, COLORTERM="truecolor")
    program.until("scripted")
    send(program, "/theme", "Theme")
    program.type("light")
    program.until(lambda _: b"38;2;11;90;104" in program.written)
    program.type("\r")
    program.until("theme: light")
    assert json.loads((tmp_path / "zot" / "config.json").read_text())["theme"] == "light"


def test_a_question_mark_shows_the_keys_and_escape_twice_goes_back(at_terminal):
    program = at_terminal(HELLO)
    program.until("scripted")
    program.type("?")
    program.until("shift+tab")
    program.type("\x1b")
    program.until(lambda shown: "shift+tab" not in shown.text)
    send(program, "the first prompt", "Hello there")
    program.type("\x1b")
    program.until("esc once more goes back")
    program.type("\x1b")
    program.until("Go back to before")
    program.type("\r")
    program.until("the conversation (2 messages)")


def test_a_running_command_goes_to_the_background_and_is_stopped_there(at_terminal, tmp_path):
    program = at_terminal([bash("echo be''gun; sleep 600"), *HELLO], "go", "--yolo")
    program.until("begun")
    program.type("\x02")
    program.until("Hello there")
    program.until("1 command")
    send(program, "/ps", "Commands")
    program.type("\r")
    program.until("any key goes on")
    program.type("x")
    program.until("ctrl+d stops it")
    program.type("\x04")
    program.until(lambda shown: "running" not in shown.text)
    program.type("\x1b")
    program.until(lambda shown: "1 command" not in shown.text)


def test_a_command_without_output_says_once_how_it_ended(at_terminal):
    program = at_terminal([bash("exit 7"), bash("printf 'a\n\nb'; exit 8"), *HELLO], "go", "--yolo")
    program.until("Hello there")
    text = everything(program)
    assert text.count("exit 7") == 2  # the command, and its end
    assert "Took" not in text


def test_a_session_of_another_directory_is_found(opened, scripted, tmp_path):
    environ = environment(tmp_path)
    one = opened(scripted(HELLO), environ, tmp_path / "one")
    one.until("scripted")
    send(one, "said in one", "Hello there")
    one.type("\x04")
    assert one.end() == 0
    two = opened(scripted(HELLO), environ, tmp_path / "two")
    two.until("scripted")
    send(two, "/sessions", "said in one")
    assert "~/one" in two.shown.text
    two.type("\r")
    two.until(lambda shown: "❯ said in one" in shown.text)
    two.until("~/one")
