"""The whole program in a pty, with xterm.js as the screen."""

import os
import re
import signal
import time

import pytest
from support.patience import PATIENCE
from support.terminal import environment, zot

from zot.serve.interactive.status import branch_of
from zot.testing.fakeserver import FakeServer

HELLO = [{"text": ["Hello ", "**there**"], "repeat": True}]
SLOW = [{"text": [f"word{number} " for number in range(400)], "delay_ms": 20, "repeat": True}]


def bash(command, **more):
    return {"tools": [{"name": "bash", "args": {"command": command}}], **more}


def test_a_prompt_is_answered_and_the_terminal_is_given_back(at_terminal):
    program = at_terminal(HELLO)
    program.until("❯")
    program.type("good morning")
    program.until("❯ good morning")
    program.type("\r")
    shown = program.until("Hello")
    assert "❯ good morning" in shown.text
    program.type("\x04")
    assert program.end() == 0
    assert program.is_restored()
    assert b"\x1b[?7h" in program.written and b"\x1b[<u" in program.written


def test_a_prompt_on_the_command_line_is_sent_when_the_agent_is_loaded(at_terminal):
    program = at_terminal(HELLO, "what is this?")
    shown = program.until("Hello")
    assert "❯ what is this?" in shown.text


def test_what_is_typed_before_the_agent_is_loaded_counts(at_terminal):
    program = at_terminal(HELLO)
    program.type("early\r")
    program.until("Hello")


def test_escape_stops_the_turn_and_keeps_the_draft(at_terminal):
    program = at_terminal(SLOW, "go on")
    program.until("word3")
    program.type("my draft")
    program.until("❯ my draft")
    program.type("\x1b")
    shown = program.until("stopped")
    assert "❯ my draft" in shown.text


def test_ctrl_c_stops_then_clears_then_leaves(at_terminal):
    program = at_terminal(SLOW, "go on")
    program.until("word3")
    program.type("draft")
    program.until("❯ draft")
    program.type("\x03")
    program.until("stopped")
    program.type("\x03")
    program.until(lambda shown: "❯ draft" not in shown.text)
    program.type("\x1b[A")
    program.until("❯ draft")  # cleared text is in the history
    program.type("\x03\x03")
    program.until("once more leaves")
    program.type("\x03")
    assert program.end() == 0


def test_what_is_typed_while_it_works_waits_and_can_be_taken_back(at_terminal):
    program = at_terminal(SLOW, "go on")
    program.until("word3")
    program.type("first\r")
    program.until("next: first")
    program.type("second\r")
    program.until("next: second")
    program.type("\x1b[1;3A")
    program.until("❯ second")
    assert "next: first" in program.shown.text
    assert "next: second" not in program.shown.text
    program.type("\x1b")  # what waits outlives the turn
    shown = program.until("stopped")
    assert "❯ first\n  second" in shown.text


def test_a_tool_asks_runs_and_is_shown_folded(at_terminal):
    program = at_terminal([bash("seq 100; exit 3"), *HELLO], "count them")
    program.until("May zot use bash?")
    program.type("y")
    shown = program.until("Hello")
    text = "\n".join(shown.everything)
    assert "exit 3" in text and "more lines" in text
    assert "  100" in text and "  50" not in text


def test_a_tool_that_is_refused_does_not_run(at_terminal, tmp_path):
    program = at_terminal([bash(f"touch {tmp_path}/ran"), *HELLO], "touch it")
    program.until("May zot use bash?")
    program.type("rnot today\r")
    program.until("Hello")
    assert not (tmp_path / "ran").exists()
    assert "not today" in "\n".join(program.shown.everything)


def test_who_is_typing_when_a_question_comes_up_answers_nothing_by_accident(at_terminal, tmp_path):
    turn = bash(f"touch {tmp_path}/ran", text=["a ", "b ", "c "], delay_ms=150)
    program = at_terminal([turn, *HELLO], "touch it")
    program.until("a b")
    while "May zot use bash?" not in program.pump(0.1).text:
        program.type("y")
    program.type("y")
    program.pump(0.3)
    assert "May zot use bash?" in program.shown.text
    program.pump(1.0)
    program.type("n")
    shown = program.until("Hello")
    assert not (tmp_path / "ran").exists()
    assert "❯ yy" in shown.text


def test_control_characters_of_a_model_and_a_tool_do_not_reach_the_terminal(at_terminal):
    hostile = "\x1b]0;pwned\x07\x1b[2J\x1b[?1049h\x9b31m\u202eevil\x08\x08"
    program = at_terminal(
        [bash(f"printf '%s' '{hostile}'", text=hostile), {"text": "the end"}], "go on", "--yolo"
    )
    program.until("the end")
    written = program.written.decode()
    for sequence in ("\x1b]0;pwned", "\x1b[2J", "\x1b[?1049h", "\x9b", "\u202e", "\x08"):
        assert sequence not in written


def test_a_shell_command_of_the_person(at_terminal):
    program = at_terminal(HELLO)
    program.type("!echo from-$((40+2))\r")
    program.until("from-42")


def test_help_lists_commands_a_slip_is_told_and_a_path_is_sent_as_text(at_terminal):
    program = at_terminal(HELLO)
    program.type("/HELP\r")
    program.until(lambda shown: any("/clear" in line for line in shown.everything))
    program.type("/modle now\r")
    shown = program.until("there is no command /modle here (did you mean /model?)")
    assert "Hello" not in shown.text
    program.type("/usr/bin/thing is what?\r")
    program.until("Hello")


def test_a_new_session_begins_while_a_turn_runs(at_terminal):
    program = at_terminal(SLOW, "go on")
    program.until("word3")
    program.type("/new\r")
    shown = program.until("a new session")
    assert "stopped" in shown.text


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP, signal.SIGINT])
def test_a_signal_ends_it_and_the_terminal_is_given_back(at_terminal, number):
    program = at_terminal(SLOW, "go on")
    program.until("word3")
    program.process.send_signal(number)
    assert program.end() == 128 + number
    assert program.is_restored()


def test_it_stops_like_any_program_and_goes_on(at_terminal):
    program = at_terminal(HELLO)
    program.until("scripted")
    program.type("draft")
    program.until("❯ draft")
    program.type("\x1a")
    _, status = os.waitpid(program.process.pid, os.WUNTRACED)
    assert os.WIFSTOPPED(status)
    assert program.is_restored()
    program.process.send_signal(signal.SIGCONT)
    program.until(lambda shown: shown.text.count("❯ draft") >= 1)
    program.type("!\r")
    program.until("Hello")


def test_a_resize_keeps_every_settled_line_once(at_terminal):
    turns = [{"text": [f"line {number} of it\n\n" for number in range(60)], "delay_ms": 10}]
    program = at_terminal(turns, "go on")
    program.until(lambda shown: any("line 10 of" in line for line in shown.everything))
    for columns, rows in ((60, 20), (100, 30), (50, 24), (80, 24)):
        program.resize(columns, rows)
        program.pump(0.05)
    shown = program.until("line 59 of")
    lines = [line for line in shown.everything if line.startswith("line ")]
    assert lines == [f"line {number} of it" for number in range(60)]


def test_without_a_key_the_editor_stays_and_says_what_is_missing(at_terminal):
    program = at_terminal([], "--provider", "anthropic", "hello you")
    program.until("It needs a model")
    program.type("\x1b")
    shown = program.until("❯ hello you")
    assert "key" in shown.text


def test_a_home_that_cannot_be_written_says_how_to_work_without(at_terminal):
    program = at_terminal(HELLO, ZOT_HOME="/dev/null/home")
    program.until("scripted")
    program.type("hi\r")
    program.until(lambda shown: "zot --no-session keeps none" in " ".join(shown.text.split()))
    program.until("❯ hi")


def test_files_and_commands_are_completed(at_terminal, tmp_path):
    work = tmp_path / "work"
    (work / "src" / "deep").mkdir(parents=True)
    (work / "src" / "deep" / "needle.py").write_text("")
    (work / "junk.log").write_text("")
    (work / ".gitignore").write_text("*.log\n")
    program = at_terminal(HELLO)
    program.until("scripted")
    program.type("look at @ndl")
    program.until("  src/deep/needle.py")
    program.type("\t")
    program.until("❯ look at @src/deep/needle.py")
    program.type("@jun")
    program.pump(0.3)
    assert "junk.log" not in program.shown.text
    program.type("\x15/cle")
    program.until(lambda shown: any("/clear" in line for line in shown.everything))
    program.type("\r\r")
    program.until("the conversation is empty")
    program.type("/claer")  # letters that changed places
    program.until("  /clear  empty")
    program.type("\r")
    program.until("❯ /clear")


def test_escape_closes_a_completion_and_enter_sends_what_stands_there(at_terminal):
    program = at_terminal(HELLO)
    program.until("scripted")
    program.type("/he")
    program.until("commands and keys")
    program.type("\x1b")
    program.until(lambda shown: "commands and keys" not in shown.text)
    program.type("lp\r")
    program.until(lambda shown: any("a new line" in line for line in shown.everything))


def test_an_earlier_prompt_is_found_again(at_terminal):
    program = at_terminal(HELLO)
    for text in ("first thing", "second thing"):
        program.type(text + "\r")
        program.until(lambda shown, text=text: f"❯ {text}" in shown.text)
    program.type("\x12")
    program.until("history")
    program.type("first")
    program.until("1 of 2")
    program.type("\r")
    program.until(lambda shown: shown.lines[shown.cursor[0]] == "❯ first thing")


def test_the_text_is_written_in_an_editor_of_choice(at_terminal, tmp_path):
    editor = tmp_path / "editor"
    editor.write_text('#!/bin/sh\nprintf "%s and more" "$(cat "$1")" > "$1"\n')
    editor.chmod(0o755)
    program = at_terminal(HELLO, EDITOR=str(editor))
    program.until("scripted")
    program.type("draft\x07")
    program.until("❯ draft and more")
    program.type("\x15x\x07")
    program.until("❯ x and more")


def test_an_editor_does_not_see_the_keys(at_terminal, tmp_path):
    editor = tmp_path / "editor"
    editor.write_text('#!/bin/sh\nenv > "$0.env"\necho seen > "$1"\n')
    editor.chmod(0o755)
    keys = {"OPENAI_API_KEY": "sk-canary-1", "ZOTCORE_RPC_TOKEN": "canary-2"}
    program = at_terminal(HELLO, EDITOR=str(editor), **keys)
    program.until("scripted")
    program.type("draft\x07")
    program.until("❯ seen")
    seen = (tmp_path / "editor.env").read_text()
    assert "EDITOR=" in seen
    assert "canary" not in seen


def test_a_branch_that_is_a_pipe_or_without_end_holds_nothing_up(tmp_path):
    head = tmp_path / ".git" / "HEAD"
    head.parent.mkdir()
    os.mkfifo(head)
    assert branch_of(str(tmp_path)) == ""
    head.unlink()
    head.symlink_to("/dev/zero")
    assert branch_of(str(tmp_path)) == ""
    head.unlink()
    head.write_text("ref: refs/heads/main\n")
    assert branch_of(str(tmp_path)) == "main"
    (tmp_path / "tree").mkdir()
    (tmp_path / "tree" / ".git").write_text(f"gitdir: {tmp_path / '.git'}\n")
    assert branch_of(str(tmp_path / "tree")) == "main"


def test_an_editor_that_is_not_there_is_named(at_terminal):
    program = at_terminal(HELLO, EDITOR="/no/such/editor")
    program.until("scripted")
    program.type("draft\x07")
    shown = program.until("cannot be started")
    assert "❯ draft" in shown.text


def test_the_pager_shows_what_was_folded_and_the_screen_comes_back(at_terminal):
    program = at_terminal([bash("seq 100 200"), *HELLO], "count them", "--yolo")
    program.until("Hello")
    program.type("\x0f")
    shown = program.until("turn 1 of 1")
    assert shown.is_alternate
    program.type(" ")
    program.until("130")
    program.resize(70, 20)
    program.type("/155\r")
    program.until(lambda shown: shown.lines[0].strip() == "155")
    program.type("q")
    shown = program.until(lambda shown: not shown.is_alternate and "❯" in shown.text)
    assert "Hello" in shown.text
    assert "155" not in "\n".join(shown.everything)


def test_a_session_is_gone_on_with_and_its_beginning_is_in_the_pager(at_terminal):
    program = at_terminal(HELLO)
    for number in range(14):
        program.type(f"question {number}\r")
        program.until(lambda shown, n=number: f"❯ question {n}\n\nHello" in shown.text)
    program.type("\x04")
    assert program.end() == 0
    again = at_terminal(HELLO, "-c")
    again.until("❯ question 13")
    text = "\n".join(again.shown.everything)
    assert "earlier messages" in text and "question 0\n" not in text
    again.type("\x1bOQ")
    again.until("of 14")
    again.type("g")
    again.until("question 0")


def drafts(tmp_path):
    return [path.read_text() for path in (tmp_path / "zot" / "drafts").glob("*")]


def test_a_draft_survives_a_kill_and_the_next_start_has_it(at_terminal, tmp_path):
    program = at_terminal(HELLO)
    program.until("scripted")
    program.type("precious words")
    program.until("❯ precious words")
    program.until(lambda _: drafts(tmp_path) == ["precious words"])
    program.process.kill()
    program.process.wait(PATIENCE)
    again = at_terminal(HELLO)
    again.until("❯ precious words")
    again.type("\r")
    again.until("Hello")
    again.type("\x04")
    assert again.end() == 0
    assert drafts(tmp_path) == []


def test_a_draft_of_a_terminal_that_lives_is_left_to_it(at_terminal, tmp_path):
    first = at_terminal(HELLO)
    first.until("scripted")
    first.type("mine")
    first.until(lambda _: drafts(tmp_path) == ["mine"])
    second = at_terminal(HELLO)
    second.until("scripted")
    assert "mine" not in second.shown.text


def test_what_was_sent_is_in_the_history_of_the_next_session(at_terminal):
    program = at_terminal(HELLO)
    program.type("sent long ago\r")
    program.until("Hello")
    program.type("\x04")
    assert program.end() == 0
    again = at_terminal(HELLO)
    again.until("scripted")
    again.type("\x1b[A")
    again.until("❯ sent long ago")


def test_vis_keys_for_who_wants_them(at_terminal):
    program = at_terminal(HELLO, "--vi")
    program.until("scripted")
    program.type("one two")
    program.until("❯ one two")
    program.type("\x1b")
    program.until(": one two")
    program.type("bcwA")
    program.until("❯ one A")
    program.type("\r")
    program.until("Hello")


def test_a_terminal_that_does_not_read_delays_nothing_and_the_end_comes(at_terminal):
    turns = [{"text": [f"line {number} {'x' * 60}\n\n" for number in range(3000)]}]
    program = at_terminal(turns, "go on")
    program.until("line")
    time.sleep(1.0)  # nobody reads: the pty is full
    program.process.send_signal(signal.SIGTERM)
    assert program.process.wait(PATIENCE) == 128 + signal.SIGTERM
    assert program.is_restored()


def test_an_empty_machine_is_welcomed_and_a_prompt_waits_for_a_model(opened, tmp_path):
    program = opened(zot(), environment(tmp_path), tmp_path, (60, 20))
    shown = program.until("Welcome to zot. It needs a model:")
    assert "an API key or a login" in shown.text
    program.type("\x1b")
    program.until(lambda shown: "It needs a model" not in shown.text)
    assert "no model yet: /login, /llama" in program.shown.text
    program.type("what is this?\r")
    program.until("It needs a model")
    program.type("\x1b[B\r")
    program.until("no server answered: start one")
    program.until("It needs a model")
    program.type("\x1b")
    program.until("❯ what is this?")
    program.type("\x15\x04")
    assert program.end() == 0
    assert program.is_restored()


def test_one_word_is_a_prompt_at_a_terminal(at_terminal):
    shown = at_terminal(HELLO, "hello").until("Hello")
    assert "❯ hello" in shown.text


def test_an_empty_editor_says_what_can_be_typed_until_something_was(at_terminal):
    program = at_terminal(HELLO)
    shown = program.until("❯ ask anything; / commands")
    assert shown.cursor[1] == 2
    program.type("hi")
    program.until(lambda shown: "❯ hi" in shown.text and "ask anything" not in shown.text)
    program.type("\r")
    program.until("Hello")
    program.pump(0.1)
    assert "ask anything" not in program.shown.text


def test_a_long_list_of_completions_is_gone_through(at_terminal):
    program = at_terminal(HELLO)
    program.until("scripted")
    program.type("/")
    program.until("1 of ")
    program.type("\x1b[B" * 80)
    program.until(lambda shown: re.search(r"(\d+) of \1\n", shown.text))
    program.type("\t")
    program.until("❯ /skill:write-zot-extension")


def test_a_long_change_is_scrolled_in_its_question(at_terminal, tmp_path):
    content = "".join(f"line {number}\n" for number in range(40))
    write = {"tools": [{"name": "write", "args": {"path": "a.txt", "content": content}}]}
    program = at_terminal([write, *HELLO], "write it", size=(60, 20))
    shown = program.until("more lines (page down)")
    assert "+ line 39" not in shown.text
    program.type("\x1b[6~" * 10)
    shown = program.until("(page up)")
    assert "+ line 39" in shown.text
    program.type("y")
    program.until("Hello")


def test_help_is_whole_in_a_narrow_window(at_terminal):
    program = at_terminal(HELLO, size=(40, 20))
    program.until("scripted")
    program.type("/help\r")
    program.until("!command")
    text = " ".join(" ".join(program.shown.everything).split())
    assert "run a shell command (!!command: the model does not see it)" in text
    assert "what runs without a question" in text


def test_the_model_may_hand_work_to_agents_of_its_own(at_terminal):
    with FakeServer() as server:
        flags = ("--provider", "anthropic", "--base-url", server.url)
        program = at_terminal([], *flags, ANTHROPIC_API_KEY="sk-test-0123456789")
        program.until("❯")
        program.type("say:hello there\r")
        server.wait_for(1)
        (asked,) = [seen.body for seen in server.requests if seen.body]
    assert "task" in [tool["name"] for tool in asked["tools"]]
