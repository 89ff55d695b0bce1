import os
import signal
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import get_type_hints

import pytest

from zot.cli.help import help_text
from zot.cli.main import SUBCOMMANDS, subcommand

ZOT = [sys.executable, "-m", "zot"]


@pytest.fixture(autouse=True)
def home(tmp_path, monkeypatch):
    monkeypatch.setenv("ZOT_HOME", str(tmp_path / "home"))
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.delenv("PYTHONUNBUFFERED", raising=False)
    return tmp_path


def zot(*words, **options):
    return subprocess.run([*ZOT, *words], capture_output=True, text=True, **options)


@pytest.mark.parametrize("name", SUBCOMMANDS)
def test_a_subcommand_is_a_function_of_the_words_that_gives_the_exit_code(name):
    hints = get_type_hints(subcommand(name))
    assert hints == {"argv": Sequence[str], "return": int}


def test_help_names_every_subcommand():
    assert all(f"\n  {word} " in help_text() for word in SUBCOMMANDS)


def test_help_says_each_thing_once_and_in_whole_sentences():
    rows = [row for row in help_text().splitlines() if row.strip()]
    assert len(set(rows)) == len(rows)
    assert "do not the" not in help_text()


def test_help_is_a_word_too():
    assert zot("help").stdout == help_text()
    assert zot("help", "sessions").stdout == zot("sessions", "--help").stdout != ""


@pytest.mark.parametrize(
    ("word", "shown"),
    [
        ("approvals", "nothing is allowed for good here"),
        ("auth", "no credentials"),
        ("config", "provider "),
        ("ext", "no extensions installed"),
        ("local", "NAME "),
        ("mcp", "no MCP servers; add one"),
        ("sessions", "no sessions here"),
        ("skills", "write-zot-extension"),
        ("swarm", "no agents; start one"),
    ],
)
def test_a_subcommand_without_a_word_lists(word, shown):
    ran = zot(word)
    assert ran.returncode == 0
    assert shown in ran.stdout + ran.stderr


@pytest.mark.parametrize(("word", "meant"), [("models", "--list-models"), ("resume", "-r")])
def test_the_word_of_another_program_is_answered_with_ours(word, meant):
    ran = zot(word)
    assert (ran.returncode, ran.stderr) == (
        2,
        f"zot: there is no subcommand {word!r}: use zot {meant}\n",
    )


@pytest.mark.parametrize(
    ("words", "code", "told"),
    [
        ("--modle x", 2, "did you mean --model?"),
        ("config unset nope", 1, "unknown setting 'nope'"),
        ("sessions search nope", 1, "'nope' was not found here"),
        ("swarm new --max-cost x task", 2, "must be a number above 0, not 'x'"),
        ("mcp add", 2, "zot mcp add [FLAGS] NAME (-- COMMAND ARGS... | --url URL)"),
        ("login", 2, "name a provider"),
    ],
)
def test_a_mistake_is_told_with_what_to_do(words, code, told):
    ran = zot(*words.split(), stdin=subprocess.DEVNULL)
    assert (ran.returncode, ran.stdout) == (code, "")
    assert told in ran.stderr


@pytest.mark.parametrize(
    ("words", "meant"), [("sesions list", "sessions"), ("rcp", "rpc"), ("confg", "config")]
)
def test_a_misspelt_subcommand_is_not_sent_to_a_model(words, meant):
    ran = zot(*words.split(), "--provider", "scripted", "--script", "none.json")
    assert (ran.returncode, ran.stdout) == (2, "")
    assert f"(did you mean {meant}?)" in ran.stderr
    assert f"zot -p {words!r}" in ran.stderr


def test_one_word_alone_is_not_a_prompt():
    ran = zot("status", "--provider", "scripted", "--script", "none.json")
    assert (ran.returncode, ran.stdout) == (2, "")
    assert "unknown subcommand 'status'; a prompt goes after -p" in ran.stderr


def test_a_working_directory_that_is_gone_is_told(tmp_path):
    (tmp_path / "gone").mkdir()
    gone = 'cd gone && rmdir ../gone && exec "$@"'
    words = ["sh", "-c", gone, "sh", *ZOT, "config"]
    ran = subprocess.run(words, cwd=tmp_path, capture_output=True, text=True)
    assert ran.returncode == 1
    assert ran.stderr == "zot: the working directory is gone: change to one that exists\n"


def test_a_home_that_cannot_be_made_is_named(tmp_path):
    (tmp_path / "file").touch()
    home = str(tmp_path / "file" / "home")
    ran = zot("swarm", "new", "x", env={**os.environ, "ZOT_HOME": home}, cwd=tmp_path)
    assert ran.returncode == 1
    assert "zot: cannot use '" in ran.stderr


def test_rpc_takes_no_words():
    ran = zot("rpc", "provider", "anthropic")
    assert (ran.returncode, ran.stdout) == (2, "")
    assert "got 'provider'" in ran.stderr


def test_a_misspelt_provider_is_shown_the_near_one():
    assert "(did you mean anthropic?)" in zot("-p", "--provider", "anthropc", "hi").stderr


PRINTING = ["--help", "--version", "schema", "config list", "skills list", "local list"]


@pytest.mark.parametrize("words", PRINTING)
def test_a_full_disk_is_told_in_one_line(words):
    with Path("/dev/full").open("w") as full:
        ran = subprocess.run([*ZOT, *words.split()], stdout=full, stderr=subprocess.PIPE, text=True)
    assert ran.returncode == 1
    assert ran.stderr == "zot: cannot write the output: No space left on device\n"


@pytest.mark.parametrize("words", PRINTING)
def test_a_reader_that_has_gone_is_no_error(words):
    read, write = os.pipe()
    os.close(read)
    ran = subprocess.run([*ZOT, *words.split()], stdout=write, stderr=subprocess.PIPE, text=True)
    os.close(write)
    assert ran.stderr == ""
    assert ran.returncode in (0, 128 + signal.SIGPIPE)


@pytest.mark.parametrize("words", PRINTING)
def test_closed_standard_files_are_no_error(words):
    command = f'exec "$0" -m zot {words} <&- >&- 2>&-'
    assert subprocess.run(["sh", "-c", command, sys.executable], check=False).returncode == 0


def test_events_that_cannot_be_written_are_told(home):
    script = home / "script.json"
    script.write_text('{"turns": [{"text": "hello"}]}')
    with Path("/dev/full").open("w") as full:
        ran = subprocess.run(
            [*ZOT, "--json", "--provider", "scripted", "--script", str(script), "hi"],
            stdin=subprocess.DEVNULL,
            stdout=full,
            stderr=subprocess.PIPE,
            text=True,
        )
    assert ran.returncode == 1
    assert ran.stderr == "zot: the events could not be written: No space left on device\n"


def test_a_home_that_cannot_be_written_says_how_to_run_without(home, monkeypatch):
    script = home / "script.json"
    script.write_text('{"turns": [{"text": "hello"}]}')
    monkeypatch.setenv("ZOT_HOME", "/dev/null/home")
    flags = ["-p", "--provider", "scripted", "--script", str(script)]
    ran = zot(*flags, "hi", stdin=subprocess.DEVNULL)
    assert ran.returncode == 1
    assert ran.stderr.endswith("; --no-session keeps none\n")
    assert zot(*flags, "--no-session", "hi", stdin=subprocess.DEVNULL).stdout == "hello\n"


def test_letters_that_the_terminal_does_not_have_are_replaced(home):
    script = home / "script.json"
    script.write_text('{"turns": [{"text": "caf\\u00e9"}]}')
    zot("-p", "--provider", "scripted", "--script", str(script), "hi", stdin=subprocess.DEVNULL)
    ran = zot("sessions", "show", "latest", env={**os.environ, "PYTHONIOENCODING": "ascii"})
    assert (ran.returncode, ran.stderr) == (0, "")
    assert ran.stdout.endswith("caf?\n")


def test_a_misspelt_tool_in_approve_does_not_run_unasked(home):
    script = home / "script.json"
    script.write_text('{"turns": [{"tools": [{"name": "bash", "args": {"command": "ls"}}]}]}')
    flags = ["--provider", "scripted", "--script", str(script)]
    ran = zot("--json", *flags, "--approve", "bsh", "hi", stdin=subprocess.DEVNULL)
    assert ran.returncode == 1
    assert "tool_result" not in ran.stdout
    assert "--approve: unknown tool 'bsh'; there is: read, write" in ran.stderr


@pytest.mark.parametrize("flags", [["--approve", "all"], ["--no-yolo"]])
def test_a_tool_that_needs_an_approval_nobody_can_give_does_not_run(home, flags):
    script = home / "script.json"
    call = '{"name": "bash", "args": {"command": "touch ran"}}'
    script.write_text(f'{{"turns": [{{"tools": [{call}]}}, {{"text": "x"}}]}}')
    words = ["--json", "--provider", "scripted", "--script", str(script), *flags, "hi"]
    ran = zot(*words, stdin=subprocess.DEVNULL, cwd=home)
    assert (ran.returncode, ran.stderr) == (0, "")
    assert "needs an approval and nobody can give it" in ran.stdout
    assert not (home / "ran").exists()


def test_piped_text_is_a_prompt_also_without_a_flag(home):
    script = home / "script.json"
    script.write_text('{"turns": [{"match": "what is this", "text": "a question"}]}')
    ran = zot("--provider", "scripted", "--script", str(script), input="what is this")
    assert (ran.stdout, ran.stderr, ran.returncode) == ("a question\n", "", 0)


def test_a_home_that_every_user_can_write_to_is_warned_of(home):
    script = home / "script.json"
    script.write_text('{"turns": [{"text": "hello"}]}')
    (home / "home").mkdir()
    (home / "home").chmod(0o777)
    ran = zot("-p", "--provider", "scripted", "--script", str(script), "hi")
    assert (ran.stdout, ran.returncode) == ("hello\n", 0)
    assert ran.stderr == (
        f"zot: warning: every user can write to '{home}/home', where keys are kept: "
        f"chmod 700 {home}/home\n"
    )


def test_an_interrupt_while_it_loads_ends_it_without_a_traceback(home):
    # A module of the standard library that is loaded early interrupts its own process.
    (home / "msgspec.py").write_text("import os, signal\nos.kill(os.getpid(), signal.SIGINT)\n")
    ran = zot("--help", env={**os.environ, "PYTHONPATH": str(home)})
    assert (ran.returncode, ran.stderr) == (130, "")
