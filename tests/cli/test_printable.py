"""No subcommand lets what it found in a file steer the terminal it prints to."""

import json
import os
import pty
import re
import subprocess
import sys

import pytest
from support.extension import write_extension
from support.rpc import environment, make_folder

NASTY = "x\x1b]0;owned\x07\x1b[2J\x9b31m\u202ey"
COLOURS = re.compile(r"\x1b\[\d*m")
SCRIPT = {"turns": [{"text": NASTY}]}


@pytest.fixture
def place(tmp_path):
    work = make_folder(tmp_path)
    home = tmp_path / "zot-home"
    home.mkdir()
    model = {"id": NASTY, "name": NASTY, "baseUrl": "http://127.0.0.1:9"}
    (home / "models.json").write_text(
        json.dumps({"providers": {NASTY: {"api": "openai", "models": [model]}}})
    )
    (home / "config.json").write_text(json.dumps({"model": NASTY, "provider": NASTY, NASTY: NASTY}))
    (home / "auth.json").write_text(json.dumps({NASTY: {"api_key": NASTY}}))
    (home / "auth.json").chmod(0o600)
    body = f'hello()\nemit("notify", message={NASTY!r})\nemit("ready")\nfor f in frames(): pass'
    text = {"description": NASTY, "version": NASTY, "language": NASTY}
    write_extension(home / "extensions", "nasty", body, **text)
    (home / "extensions" / "broken").mkdir()
    (home / "extensions" / "broken" / "extension.json").write_text(json.dumps({"name": NASTY}))
    (home / "logs").mkdir()
    (home / "logs" / "ext-nasty.log").write_text(NASTY)
    skill = home / "skills" / "nasty"
    skill.mkdir(parents=True)
    (skill / "SKILL.md").write_text(f"---\nname: nasty\ndescription: {NASTY}\n{NASTY}: 1\n---\nx")
    server = {"command": NASTY, "args": [NASTY], "env": {NASTY: NASTY}}
    rows = {"mcpServers": {"nasty": server, NASTY: server, "url": {"url": f"http://{NASTY}/"}}}
    rule = {"tool": NASTY, "pattern": NASTY}
    (home / "approvals.json").write_text(json.dumps({str(work): [rule], NASTY: [rule]}))
    (home / "mcp.json").write_text(json.dumps(rows))
    (tmp_path / "script.json").write_text(json.dumps(SCRIPT))
    (tmp_path / "schema.json").write_text(json.dumps({"$defs": {NASTY: {}}, NASTY: NASTY}))
    (work / f"dir{NASTY}".replace("/", "")).mkdir()
    return tmp_path


def _read(fd):
    try:
        return os.read(fd, 65536)
    except OSError:  # the last one has closed it
        return b""


def on_a_terminal(place, *words):
    """What a terminal is sent."""
    ours, theirs = pty.openpty()
    env = environment(place, TERM="xterm")
    command = [sys.executable, "-m", "zot", *words]
    with subprocess.Popen(
        command, stdin=theirs, stdout=theirs, stderr=theirs, env=env, cwd=place / "work"
    ) as process:
        os.close(theirs)
        data = b""
        try:
            while piece := _read(ours):
                data += piece
            process.wait(60)
        finally:
            process.kill()  # one that waits for somebody to type must not hold up the others
    os.close(ours)
    return data.decode("utf-8", "surrogateescape")


def scripted(place, *words):
    script = str(place / "script.json")
    return ("--provider", "scripted", "--script", script, "--model", "scripted", *words)


def assert_harmless(said):
    assert said
    plain = COLOURS.sub("", said)
    assert not re.search("[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\u202e\ud800-\udfff]", plain), said


@pytest.mark.parametrize(
    "words",
    [
        "config get model",
        "config list",
        "config list --json",
        f"config|--cwd|{NASTY}|path|--project",
        f"config|get|{NASTY}",
        f"config|trust|{NASTY}",
        "auth status --no-probe",
        "auth status --no-probe --json",
        "logout",
        f"logout|{NASTY}z",
        f"login|{NASTY}",
        "--list-models",
        "--list-models --json",
        "ext list",
        "ext list --json",
        "ext doctor",
        "ext doctor --json",
        "ext logs nasty",
        "ext logs nasty --json",
        "ext disable nasty",
        f"ext|install|{NASTY}",
        f"ext|remove|-y|{NASTY}",
        "skills list",
        "skills list --json",
        "skills show nasty",
        f"skills|show|{NASTY}",
        "skills check",
        "local status",
        "mcp list",
        "mcp list --json",
        "mcp test",
        f"mcp|test|{NASTY}",
        f"mcp|add|{NASTY}|--|x",
        "approvals list",
        "approvals list --all",
        "approvals list --all --json",
        f"approvals|remove|bash|{NASTY}",
        f"glasspane|--host|{NASTY}",
        f"local|pull|{NASTY}",
        "schema --against ../schema.json",
        f"schema|{NASTY}",
        f"watch|{NASTY}",
        f"conformance|--|{NASTY}",
        f"-p|--provider|{NASTY}|hi",
        f"--{NASTY}",
    ],
)
def test_a_subcommand_prints_what_it_found_as_text(place, words):
    said = on_a_terminal(place, *(words.split("|") if "|" in words else words.split(" ")))
    assert_harmless(said)


def test_joined_emoji_and_all_kinds_of_spaces_are_shown_as_they_are(place):
    text = "\U0001f469\u200d\U0001f467 a\u00a0b\u202fc \u2764\ufe0f"
    on_a_terminal(place, *scripted(place, "-p", f"say {text}"))
    assert text in on_a_terminal(place, "sessions", "show", "latest")


@pytest.mark.slow
def test_what_the_swarm_and_streams_hold_is_shown_as_text(place):
    session = place / "kept.jsonl"
    (place / "script.json").write_text(json.dumps({"turns": [{"text": NASTY, "repeat": True}]}))
    command = [sys.executable, "-m", "zot", *scripted(place, "rpc", "--durable")]
    asked = json.dumps({"type": "prompt", "message": NASTY}) + "\n"
    done = subprocess.run(
        [*command, "--session", str(session)],
        input=asked.encode(),
        capture_output=True,
        env=environment(place),
        cwd=place / "work",
    )
    (place / "stream.jsonl").write_bytes(done.stdout)
    assert_harmless(on_a_terminal(place, "follow", "--once", str(session)))
    said = on_a_terminal(place, "watch", str(place / "stream.jsonl"))
    assert_harmless(re.sub(r"\x1b\[K", "", said))  # its own
    words = [f"--rpc={word}" for word in ("--script", str(place / "script.json"), "--no-ext")]
    swarm = ["--provider", "scripted", "--model", "scripted", "--here", "--wait", *words]
    try:
        assert_harmless(on_a_terminal(place, "swarm", "new", *swarm, NASTY))
        for word in ("list", "show x", "logs x", "diff x", f"show|{NASTY}"):
            words = word.split("|") if "|" in word else word.split(" ")
            assert_harmless(on_a_terminal(place, "swarm", *words) or "x")
    finally:
        on_a_terminal(place, "swarm", "stop")


def test_sessions_are_shown_as_text(place):
    title = f"{NASTY} title"
    assert_harmless(on_a_terminal(place, *scripted(place, "-p", f"say {NASTY}")))
    assert_harmless(on_a_terminal(place, "sessions", "rename", "latest", title) or "x")
    for words in (
        *(["list"], ["list", "--json"], ["show", "latest"], ["show", "latest", "--json"]),
        *(["tree", "latest"], ["search", "x"], ["search", "--json", "x"], ["search", NASTY]),
        *(["export", "latest", "-"], ["export", "latest", "-", "--format", "json"]),
        *(["export", "latest", f"{NASTY}.md"], ["fork", NASTY], ["import", NASTY]),
        *(["prune", "--dry-run", "--older-than", NASTY],),
    ):
        assert_harmless(on_a_terminal(place, "sessions", *words) or "x")
    assert_harmless(on_a_terminal(place, *scripted(place, "-p", "--session", NASTY, "hi")))
