"""Slash commands, approvals, going back, logins and rescue: the whole program in a pty."""

import base64
import json
import re
import shutil
import stat
import urllib.request
from contextlib import closing
from pathlib import Path

import pytest
from support.extension import write_extension
from support.local import small_model_file
from support.oauth import OAuthServer
from support.terminal import environment, zot

from zot.local.models import DEFAULT, SMALL, known_model
from zot.testing.fakeserver import FakeServer

HELLO = [{"text": "Hello `there`", "repeat": True}]
ANSWER = "Look:\n\n```python\nprint('hi')\n```\n\nand that is all."


def bash(command, **more):
    return {"tools": [{"name": "bash", "args": {"command": command}}], **more}


def write(path, content):
    return {"tools": [{"name": "write", "args": {"path": path, "content": content}}]}


def everything(program):
    return "\n".join(program.pump(0.1).everything)


def send(program, line, seen):
    program.type(line + "\r")
    return program.until(seen)


def leave(program, title):
    """Esc, and wait: what follows it at once would be taken for a key with Alt."""
    program.type("\x1b")
    program.until(lambda shown: title not in shown.text)


# --- approvals -------------------------------------------------------------------------------


def test_what_is_like_it_is_allowed_in_the_project_from_then_on(at_terminal, tmp_path):
    first, second = {"text": "first answer"}, {"text": "second answer"}
    turns = [bash("touch a"), first, bash("touch b"), second, *HELLO]
    program = at_terminal(turns, "look around")
    shown = program.until("May zot use bash?")
    assert "always in this project: touch *" in shown.text
    program.type("p")
    program.until("❯ touch *")
    program.type("\r")
    program.until("first answer")
    send(program, "again", "second answer")  # nothing is asked
    send(program, "/approvals", "Allowed without a question")
    program.type("\r")
    program.until("zot asks again before bash touch *")
    assert json.loads((tmp_path / "zot" / "approvals.json").read_text()) == {}


def test_shift_tab_goes_through_the_modes_and_each_one_counts(at_terminal, tmp_path):
    edit = {"tools": [{"name": "write", "args": {"path": "made.txt", "content": "made\n"}}]}
    hook = {"tools": [{"name": "write", "args": {"path": ".git/hooks/x", "content": "y"}}]}
    turns = [edit, {"text": "planned"}, edit, {"text": "written"}, hook, {"text": "kept off"}]
    program = at_terminal([*turns, bash("touch ran"), {"text": "ran it"}], size=(40, 24))
    program.until("ask · scripted")
    for name in ("accept edits", "plan"):
        program.type("\x1b[Z")
        program.until(f"{name} · scripted")
    send(program, "first", "planned")
    assert "plan mode is on" in everything(program)
    assert not (tmp_path / "work" / "made.txt").exists()
    send(program, "/mode accept edits", "mode: accept edits")
    send(program, "second", "written")
    assert (tmp_path / "work" / "made.txt").read_text() == "made\n"
    send(program, "third", "May zot use write?")  # programs obey hidden files
    program.type("n")
    program.until("kept off")
    program.type("\x1b[Z\x1b[Z")
    program.until("auto · scripted")
    send(program, "fourth", "ran it")
    assert (tmp_path / "work" / "ran").exists()


def test_a_command_of_several_lines_is_asked_about_line_by_line(at_terminal):
    program = at_terminal([bash("make one\nmake two"), *HELLO], "count")
    shown = program.until("May zot use bash?")
    assert "always in this project: make one make two" in shown.text
    program.type("y")
    shown = program.until("Hello")
    assert "waiting for you" not in shown.text
    assert "May zot use" not in shown.text


def test_a_call_is_changed_before_it_runs(at_terminal, tmp_path):
    program = at_terminal([bash(f"touch {tmp_path}/wrong"), *HELLO], "touch it")
    program.until("May zot use bash?")
    program.type("e")
    program.until("Run instead:")
    program.type("\x15")  # ctrl+u
    program.type(f"touch {tmp_path}/right\r")
    program.until("Hello")
    assert (tmp_path / "right").exists()
    assert not (tmp_path / "wrong").exists()
    assert "the user changed the call" in everything(program)


def test_a_write_is_asked_about_with_its_diff_and_escape_refuses(at_terminal, tmp_path):
    (tmp_path / "work").mkdir()
    (tmp_path / "work" / "a.txt").write_text("old line\n")
    program = at_terminal([write("a.txt", "new line\n"), *HELLO], "write it")
    shown = program.until("May zot use write?")
    assert "- old line" in shown.text
    assert "+ new line" in shown.text
    program.type("p")
    program.until("Always allow")
    program.type("\x1b")  # back to the question
    program.until("change it first")
    program.type("\x1b")
    program.until("Hello")
    assert (tmp_path / "work" / "a.txt").read_text() == "old line\n"


def test_the_bell_rings_only_for_who_looks_elsewhere(at_terminal):
    program = at_terminal([bash("touch made"), *HELLO, *HELLO])
    program.until("scripted")
    program.type("\x1b[O")  # the terminal lost the focus
    send(program, "go on", "May zot use bash?")
    assert program.written.count(b"\a") == 1
    program.type("\x1b[I")
    program.pump(0.7)
    program.type("y")
    program.until("Hello")
    assert program.written.count(b"\a") == 1


# --- going back ------------------------------------------------------------------------------


def test_a_session_goes_back_with_its_files(at_terminal, tmp_path):
    made, changed = {"text": "made it"}, {"text": "changed it"}
    turns = [write("a.txt", "one\n"), made, write("a.txt", "two\n"), changed, *HELLO]
    program = at_terminal(turns, "--yolo", "first prompt")
    program.until("made it")
    send(program, "second prompt", "changed it")
    send(program, "/diff", "+ two")
    program.type("/rewind\r")
    shown = program.until("Go back to before")
    assert "first prompt" in shown.text
    program.type("\r")
    shown = program.until("Back to before: second prompt")
    assert "+ one" in shown.text
    program.type("b")
    program.until("went back by 4 messages and 1 file")
    program.until(lambda shown: shown.lines[shown.cursor[0]].startswith("❯ second prompt"))
    assert (tmp_path / "work" / "a.txt").read_text() == "one\n"
    program.type("\x03")
    send(program, "/undo", "Back to before: first prompt")
    program.type("f")
    program.until("went back by 1 file")
    assert not (tmp_path / "work" / "a.txt").exists()


# --- sessions --------------------------------------------------------------------------------


def test_sessions_are_found_renamed_resumed_and_deleted(at_terminal):
    program = at_terminal(HELLO, "about apples")
    program.until("Hello")
    send(program, "/session rename Fruit", "the session is called 'Fruit'")
    send(program, "/new", "a new session")
    send(program, "about bears", "Hello")
    send(program, "/sessions", "Fruit")
    program.type("\x12")  # ctrl+r, the present one
    program.until("The session's name:")
    program.type("Animals\r")
    program.until("Animals")
    program.type("frui")
    program.until("1 of 2")
    program.type("\r")
    program.until("session: Fruit")
    send(program, "/sessions bears", "Animals")
    program.type("\x04")  # ctrl+d
    program.until("Delete Animals?")
    program.type("y")
    program.until(lambda shown: "nothing matches" in shown.text or "0;" in shown.text)
    leave(program, "Sessions")


def test_a_session_is_exported_forked_and_shown_as_a_tree(at_terminal, tmp_path):
    program = at_terminal(HELLO, "first prompt")
    program.until("Hello")
    send(program, "second prompt", lambda shown: shown.text.count("Hello") >= 2)
    page = tmp_path / "page.md"
    send(program, f"/session export markdown {page}", "written to")
    assert "second prompt" in page.read_text()
    send(program, "/session timeline", "Timeline")
    send(program, "/session fork", "going on in a copy")
    send(program, "/session tree", "Branches")
    program.type("first\r")
    program.until("going on from there")
    send(program, "/jump first", "Show again")
    leave(program, "Show again")
    exported = tmp_path / "copy.zotsession"
    # On the screen a long path may have pushed the first "written to" away.
    send(program, f"/session export zotsession {exported}", lambda shown: exported.exists())
    send(program, f"/session import {exported}", "session: first prompt")
    send(program, "/session nonsense", "rename NAME")


# --- the work at hand ------------------------------------------------------------------------


def test_an_answer_is_copied_as_its_source(at_terminal):
    program = at_terminal([{"text": ANSWER}, *HELLO], "show me")
    program.until("that is all")
    send(program, "/copy code", "terminal's clipboard")
    copied = base64.b64encode(b"print('hi')\n")
    assert b"\x1b]52;c;" + copied + b"\x07" in program.written
    send(program, "/copy", "code block 1")
    program.type("\r")
    program.until(lambda shown: shown.text.count("clipboard") >= 2)
    assert base64.b64encode(ANSWER.encode()) in program.written
    send(program, "/copy diff", "nothing to copy")
    send(program, "and now?", "Hello there")
    send(program, "/copy code", lambda shown: shown.text.count("sent the last code block") >= 2)


def test_commands_of_an_empty_session_say_what_there_is_once(at_terminal):
    program = at_terminal(HELLO, "--yolo")
    program.until("scripted")
    program.type("/session")
    program.until("  /sessions  ")
    program.type("\r")  # the one that was typed, not the longer one
    program.until("timeline")
    leave(program, "timeline")
    send(program, "/compact", "nothing to compact")
    shown = send(program, "/approvals", "approvals are off: zot asks for nothing")
    assert shown.text.count("nothing to compact") == 1


def test_a_question_on_the_side_does_not_enter_the_conversation(at_terminal):
    turns = [{"match": "aside", "text": "a side answer", "repeat": True}, *HELLO]
    program = at_terminal(turns, "hi there")
    program.until("Hello")
    send(program, "/btw aside, what is it?", "a side answer")
    leave(program, "On the side")
    assert "side answer" not in everything(program)
    send(program, "/session export json", "written to")
    send(program, "/cost", "answered")
    (page,) = Path(program.cwd).glob("*.json")
    assert "side answer" not in page.read_text()


def test_a_chat_on_the_side_goes_on_reads_files_and_is_forgotten(at_terminal, tmp_path):
    (tmp_path / "work").mkdir()
    (tmp_path / "work" / "facts.txt").write_text("the number is 42\n")
    read = {"name": "read", "args": {"path": "facts.txt"}}
    wrong = {"name": "write", "args": {"path": "made.txt", "content": "x"}}
    slow = [f"word{number} " for number in range(2000)]
    turns = [
        {"match": "go on", "text": slow, "delay_ms": 20},
        {"match": "look it up", "tools": [read, wrong]},
        {"match": "look it up", "text": "It is **42**, I looked."},
        {"match": "and then", "text": "Then nothing."},
    ]
    program = at_terminal(turns, "go on", "--yolo")
    program.until("word3")
    program.type("/btw\r")
    program.until("nothing of this enters the conversation")
    program.type("look it up\r")
    shown = program.until("It is 42, I looked.")
    assert "read facts.txt" in shown.text
    program.type("and then?\r")
    program.until("Then nothing.")
    leave(program, "On the side")  # the turn went on beside it
    program.type("\x1b")
    program.until("stopped")
    assert not (tmp_path / "work" / "made.txt").exists()
    (session,) = (tmp_path / "zot" / "sessions").rglob("*.jsonl")
    for text in ("look it up", "I looked", "Then nothing"):
        assert text not in session.read_text()


def test_a_question_on_the_side_is_stopped_and_its_error_told(at_terminal):
    turns = [
        {"match": "slowly", "text": ["one ", "two ", "three "], "delay_ms": 3000},
        {"match": "badly", "error": {"status": 401, "message": "no such key"}},
    ]
    program = at_terminal(turns)
    program.until("scripted")
    send(program, "/btw slowly", "answering")
    program.type("\x1b")
    program.until("stopped")
    program.type("badly\r")
    program.until("no such key")
    leave(program, "On the side")


def test_small_commands(at_terminal, tmp_path):
    program = at_terminal(HELLO)
    program.until("scripted")
    send(program, "/TOOLS", "grep")
    send(program, "/reasoning", "How much to think")
    leave(program, "How much to think")
    send(program, "/skills", "write-zot-extension")
    program.type("\r")
    program.until("❯ /skill:write-zot-extension")
    program.type("\x03")
    send(program, "/reload-ext", "there are no extensions")
    send(program, "/approvals", "nothing is allowed for good")
    send(program, "/mcp", "no MCP server is configured")
    send(program, "/study", "Hello")
    send(program, "/settings", "Settings")
    program.type("idle_timeout\r")
    program.until("idle_timeout:")
    program.type("\x15" + "45\r")
    program.until("idle_timeout is kept")
    assert "45" in (tmp_path / "zot" / "config.json").read_text()
    (tmp_path / "elsewhere").mkdir()
    send(program, f"/cd {tmp_path}/elsewhere", lambda shown: "~/elsewhere" in shown.text)
    send(program, "/cd nowhere", "is not a directory")
    send(program, "/retry", "nothing to try again")
    send(program, "/help", lambda shown: any("/reload-ext" in line for line in shown.everything))


# --- models and logins -----------------------------------------------------------------------


@pytest.fixture
def server():
    with FakeServer() as server:
        yield server


@pytest.fixture
def with_server(opened, tmp_path, server):
    """zot at a terminal, with real providers that are all this server."""

    def start(*words, **variables):
        urls = {"ANTHROPIC_BASE_URL": server.url, "OPENAI_BASE_URL": f"{server.url}/v1"}
        environ = environment(tmp_path, **urls, **variables)
        return opened(zot("--no-ext", *words), environ, tmp_path / "work", (100, 30))

    return start


def test_a_first_run_is_guided_to_a_key_and_the_prompt_is_still_there(with_server, tmp_path):
    program = with_server("--provider", "anthropic", "say:welcome")
    program.until("It needs a model")
    program.type("\r")
    program.until("Log in to")
    program.type("anthropic\r")
    program.until(lambda shown: "API key" in shown.text)
    if "with the browser" in program.shown.text:
        program.type("\r")
        program.until("API key of")
    program.type("sk-typed-0123456789\r")
    program.until("logged in to")
    assert b"sk-typed" not in program.written
    program.until("❯ say:welcome")
    program.until("claude")
    program.type("\r")
    program.until(lambda shown: "\nwelcome" in shown.text)
    kept = tmp_path / "zot" / "auth.json"
    assert "sk-typed-0123456789" in kept.read_text()
    assert stat.S_IMODE(kept.stat().st_mode) == 0o600
    send(program, "/logout anthropic", "logged out of anthropic")
    assert "sk-typed" not in kept.read_text()


def test_a_prompt_that_failed_goes_on_with_another_model(with_server, server):
    keys = {"ANTHROPIC_API_KEY": "sk-a-0123456789", "OPENAI_API_KEY": "sk-o-0123456789"}
    words = ("--provider", "anthropic", "--model", "claude-sonnet-5-5")
    program = with_server(*words, "status:401:1\nsay:rescued", **keys)
    program.until("The key was refused. Go on")
    program.type("another\r")
    program.until("Model  ")
    program.type("openai/gpt-5-mini\r")
    program.until(lambda shown: "\nrescued" in shown.text)
    assert "model: openai/gpt-5-mini" in everything(program)
    bodies = [seen.body for seen in server.requests if seen.body]
    said = [message for message in bodies[-1]["messages"] if message["role"] == "user"]
    assert len(said) == 1
    send(program, "/model claude-sonnet-5-5", "claude-sonnet-5-5")
    send(program, "/reasoning high", "reasoning: high")


# --- extensions ------------------------------------------------------------------------------

BOARD = """
hello()
emit("register_command", name="Board")
emit("register_command", name="again")
emit("register_command", name="typed")
emit("ready")
def draw(text):
    emit("panel_render", panel_id="b", title="Board", lines=[text, "second line"])
for frame in frames():
    kind = frame["type"]
    if kind == "command_invoked" and frame["name"] == "Board":
        panel = {"id": "b", "title": "Board", "lines": ["empty"]}
        emit("command_response", id=frame["id"], action="open_panel", open_panel=panel)
    elif kind == "command_invoked" and frame["name"] == "typed":
        emit("command_response", id=frame["id"], action="insert", insert="put here")
    elif kind == "command_invoked":
        emit("command_response", id=frame["id"], action="noop")
        emit("submit_slash", text="/tools")
        emit("submit", text="from the extension")
    elif kind == "panel_resize":
        draw(f"{frame['width']} columns")
    elif kind == "panel_key" and frame["key"] == "esc":
        emit("panel_close", panel_id="b")
    elif kind == "panel_key":
        draw("key " + frame["key"] + frame.get("text", ""))
"""


def test_an_extension_draws_a_panel_and_types(at_terminal, tmp_path):
    folder = write_extension(tmp_path / "extensions", "friend", BOARD)
    program = at_terminal(HELLO, "--ext", str(folder))
    program.until("scripted")
    send(program, "/board", "80 columns")
    program.type("x")
    program.until("key runex")
    program.type("\x1b[A")
    program.until("key up")
    program.resize(70, 24)
    program.until("70 columns")
    leave(program, "second line")  # the extension closes it on esc
    send(program, "/board", "second line")
    program.type("\x03")
    program.until(lambda shown: "second line" not in shown.text)
    send(program, "/typed", "❯ put here")
    program.type("\x03")
    send(program, "/again", "Hello")
    text = everything(program)
    assert "❯ from the extension" in text
    assert "Search file contents" in text


# --- other ways to a model -------------------------------------------------------------------


@pytest.fixture
def acme():
    with closing(OAuthServer()) as server:
        yield server


@pytest.fixture
def wide(opened, tmp_path):
    """A terminal on which an address fits into a line; nothing is set up."""

    def start(*words, **variables):
        environ = environment(tmp_path, **variables)
        return opened(zot("--no-ext", *words), environ, tmp_path / "work", (500, 30))

    return start


def test_a_login_by_code_and_one_by_browser(wide, acme, tmp_path, server):
    (tmp_path / "zot").mkdir()
    (tmp_path / "zot" / "oauth.json").write_text(json.dumps({"anthropic": acme.settings()}))
    program = wide("--provider", "anthropic", ANTHROPIC_BASE_URL=server.url)
    program.until("It needs a model")
    program.type("\r")
    program.until("Log in to")
    program.type("anthropic\r")
    program.until("with a code")
    program.type("code\r")
    program.until("enter the code ABCD-1234")
    acme.devices = dict.fromkeys(acme.devices, "allowed")
    program.until("logged in to")
    program.until("claude")
    send(program, "/login anthropic", "with the browser")
    program.type("browser\r")
    shown = program.until("Code, or the address")
    address = re.search(r"https?://\S+/authorize\S+", shown.text)
    with urllib.request.urlopen(address[0], timeout=10) as page:
        assert page.status == 200
    program.until(lambda shown: shown.text.count("logged in to") >= 2)
    stored = json.loads((tmp_path / "zot" / "auth.json").read_text())
    assert "oauth" in json.dumps(stored)


def test_a_wrong_provider_is_mended_with_model(wide):
    program = wide("--provider", "nope", ANTHROPIC_API_KEY="sk-a-0123456789")
    program.until("/model has what can be used")
    assert "unknown provider 'nope'" in program.shown.text
    program.type("good morning\r")
    program.until("anthropic/claude-opus-5-5")
    program.type("anthropic/claude-opus-5-5\r")
    shown = program.until(lambda shown: "claude-opus-5-5 " in shown.text.split("\n")[-1])
    assert "❯ good morning" in shown.text


def test_an_unknown_model_starts_with_a_warning_and_can_be_changed(wide):
    program = wide("--provider", "anthropic", "--model", "nope", ANTHROPIC_API_KEY="sk-a-01234567")
    program.until("'nope' is not in zot's list")
    program.type("/model claude-haiku-4-5\r")
    program.until(lambda shown: "claude-haiku-4-5 " in shown.text.split("\n")[-1])


def test_a_model_that_is_here_already_is_used_at_once(wide, tmp_path):
    models = tmp_path / "zot" / "models"
    models.mkdir(parents=True)
    (models / f"{SMALL}.gguf").symlink_to(small_model_file())
    program = wide("--provider", "anthropic")
    program.until("It needs a model")
    program.type("inside zot\r")
    program.until("Models on this machine")
    program.type(f"{SMALL}\r")
    program.until(f"{SMALL} is here")
    program.until(lambda shown: shown.lines and SMALL in shown.text.split("\n")[-1])


def test_a_local_model_is_removed_and_a_download_that_fails_says_why(at_terminal, tmp_path):
    here = tmp_path / "zot" / "models" / f"{SMALL}.gguf"
    here.parent.mkdir(parents=True)
    with here.open("wb") as file:
        file.truncate(known_model(SMALL).bytes)
    nowhere = {"PIP_NO_INDEX": "1", "PIP_CONFIG_FILE": "/dev/null"}
    program = at_terminal(HELLO, size=(120, 24), **nowhere)
    program.until("scripted")
    send(program, "/llama nosuch", f"there is: {DEFAULT}, {SMALL}")
    send(program, "/llama", "  a download of 1.1 GB")
    program.type(SMALL)
    program.until(f"❯ {SMALL}  here;")
    program.type("\x04")
    program.until(f"Remove {SMALL} from this machine?")
    program.type("y")
    program.until(f"❯ {SMALL}  a download of 98 MB")
    assert not here.exists()
    program.type("\r")
    program.until("was not fetched")
    program.until("❯")
    assert f"downloading {SMALL}" in everything(program)


def test_a_download_that_was_cut_is_gone_on_with(at_terminal, tmp_path):
    models = tmp_path / "zot" / "models"
    models.mkdir(parents=True)
    shutil.copyfile(small_model_file(), models / f"{SMALL}.gguf.part")
    program = at_terminal(HELLO)
    program.until("scripted")
    send(program, f"/llama {SMALL}", f"{SMALL} is here")
    assert (models / f"{SMALL}.gguf").is_file()


def test_a_key_that_is_typed_line_by_line_is_not_shown(wide, tmp_path, server):
    program = wide("--linear", "--provider", "anthropic", ANTHROPIC_BASE_URL=server.url)
    program.until("It needs a model")
    program.type("1\n")
    program.until("Log in to")
    program.type("anthropic\n")
    program.until("1. Anthropic\na number picks")
    program.type("1\n")
    program.until(lambda shown: "with an API key" in shown.text or "API key of" in shown.text)
    if "with an API key" in program.shown.text:
        program.type("1\n")
    program.until("API key of")
    program.pump(0.2)
    program.type("sk-lines-0123456789\n")
    program.until("logged in to")
    assert b"sk-lines" not in program.written
    assert "sk-lines" in (tmp_path / "zot" / "auth.json").read_text()
    program.type("\x04")
    assert program.end() == 0
    assert program.is_restored()


# --- commands of others ------------------------------------------------------------------------


def test_a_command_that_is_not_known_yet_is_run_and_not_replaced_by_a_guess(at_terminal, tmp_path):
    folder = tmp_path / "zot" / "prompts"
    folder.mkdir(parents=True)
    (folder / "show.md").write_text("---\ndescription: d\n---\nwhat $1 says\n")
    program = at_terminal(HELLO)
    program.until("scripted")
    send(program, "/show", "Hello")  # /jump shows something, too
    assert "❯ what" in everything(program)
