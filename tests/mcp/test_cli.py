"""`zot mcp`, as a person types it."""

import json
import subprocess
import sys

import pytest
from support.mcp import PROGRAM, configure, entry
from support.rpc import environment, make_folder

from zot.settings.trust import trust


@pytest.fixture
def run(tmp_path):
    make_folder(tmp_path)

    def run(*words: str, code: int = 0) -> str:
        done = subprocess.run(
            [sys.executable, "-m", "zot", "mcp", *words],
            env=environment(tmp_path),
            cwd=tmp_path / "work",
            capture_output=True,
            timeout=60,
            text=True,
        )
        assert done.returncode == code, (done.stdout, done.stderr)
        run.stderr = done.stderr
        return done.stdout if code == 0 else done.stderr

    run.home, run.work = tmp_path / "zot-home", tmp_path / "work"
    return run


def test_a_server_is_added_listed_tried_and_removed(run):
    python = [sys.executable, "-I", "-S", PROGRAM]
    assert "added test" in run("add", "test", "--env", "A=${HOME}", "--trust", "--", *python)
    written = json.loads((run.home / "mcp.json").read_text())["mcpServers"]["test"]
    assert written["args"] == python[1:] and written["env"] == {"A": "${HOME}"}
    assert (run.home / "mcp.json").stat().st_mode & 0o777 == 0o600
    assert "test [user, idle, not tried yet]" in run("list")
    tried = run("test", "test")
    assert "MCP 2025-11-25 (legacy)" in tried
    assert "echo (reads only): Says it back" in tried
    assert "prompts: greet" in tried and "has resources" in tried
    row = json.loads(run("list", "--json"))
    assert (row["state"], row["tools"], row["origin"]) == ("idle", 18, "user")
    assert json.loads(run("test", "test", "--json"))["version"] == "2025-11-25"
    assert "already" in run("add", "test", "--", "x", code=1)
    assert "removed test" in run("remove", "test")
    assert run("list") == ""
    assert "no MCP server 'test'" in run("remove", "test", code=1)


def test_a_server_of_the_project_needs_two_words_of_trust(run):
    configure(run.work / ".mcp.json", theirs=entry())
    assert run("list") == ""
    assert ".mcp.json is not used before you trust the directory" in run.stderr
    assert "zot config trust" in run("trust", "theirs", code=1)
    assert "zot config trust" in run("test", "theirs", code=1)
    trust(str(run.work), str(run.home))
    assert "theirs [project, untrusted" in run("list")
    assert "zot mcp trust theirs" in run("test", "theirs", code=1)
    assert "trusted: theirs" in run("trust", "theirs", "--hints")
    assert "echo" in run("test", "theirs")


def test_who_adds_a_server_to_a_project_has_agreed_to_it(run):
    trust(str(run.work), str(run.home))
    run("add", "ours", "--project", "--", sys.executable, "-I", "-S", PROGRAM)
    assert "ours [project, idle" in run("list")
    run("remove", "ours", "--project")
    assert json.loads((run.work / ".mcp.json").read_text()) == {"mcpServers": {}}


def test_changed_tools_are_shown_and_agreed_to(run):
    configure(run.home / "mcp.json", test=entry(tools=[{"name": "a", "description": "first"}]))
    run("test", "test")
    # The same program says something else the next time.
    seen = run.home / "mcp" / "trust.json"
    agreed = json.loads(seen.read_text())
    for server in agreed.values():
        server["tools"]["a"] = "0" * 16
    seen.write_text(json.dumps(agreed))
    assert "changed, and off: a" in run("list")
    assert "a (changed, and off until you agree): first" in run("test", "test")
    assert "agreed to: a" in run("trust", "test")
    assert "changed" not in run("list")


@pytest.mark.slow
def test_what_is_wrong_is_said_in_one_line(run):
    assert "either a program" in run("add", "x", code=2)
    assert "give NAME=VALUE" in run("add", "x", "--env", "novalue", "--", "y", code=2)
    assert "put -- before the program: zot mcp add x -- npx y" in run(
        "add", "x", "npx", "y", code=2
    )
    assert "--env sets variables of a program" in run(
        "add", "x", "--url", "https://x.test", "--env", "A=b", code=2
    )
    assert "--header goes with --url" in run("add", "x", "--header", "A: b", "--", "y", code=2)
    assert "needs https" in run("add", "x", "--url", "http://x.test/mcp", code=1)
    assert "must start with http" in run("add", "x", "--url", "x.test", code=1)
    assert "its name must have" in run("add", "a/b", "--", "y", code=1)
    assert "no MCP server 'x'; there is: none" in run("test", "x", code=1)
    configure(run.home / "mcp.json", bad={}, dead=entry(start="die"))
    assert "'bad' is left out" in run("list", code=1)
    assert "cannot find my configuration" in run("test", "dead", code=1)
    (run.home / "mcp.json").write_text("{")
    assert "is not valid JSON" in run("add", "x", "--", "y", code=1)
