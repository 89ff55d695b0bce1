"""`--jail` from outside: the same runs, with and without it."""

import json

import pytest
from support.bwrap import needs_bwrap
from support.rpc import Zot, make_folder, marked, run_zot
from support.tools import eventually

from zot.sdk import Runtime
from zot.testing import FakeServer, ScriptedProvider

ESCAPE = {
    "tools": [
        {"name": "write", "args": {"path": "../home/.bashrc", "content": "evil"}},
        {"name": "read", "args": {"path": "../zot-home/auth.json"}},
        {"name": "write", "args": {"path": ".git/hooks/pre-commit", "content": "evil"}},
        {"name": "write", "args": {"path": "fine.txt", "content": "ok"}},
    ]
}


@pytest.fixture
def folder(tmp_path):
    make_folder(tmp_path)
    (tmp_path / "zot-home").mkdir()
    (tmp_path / "zot-home/auth.json").write_text('{"canary": 1}')
    return tmp_path


def results(frames):
    found = [frame for frame in frames if frame["type"] == "tool_result"]
    return [(frame["is_error"], frame["content"][0]["text"]) for frame in found]


def check_jailed(folder, found):
    assert [is_error for is_error, _ in found] == [True, True, True, False]
    assert all(text.startswith("jailed: path ") for _, text in found[:3])
    assert "canary" not in str(found)
    assert (folder / "work/fine.txt").read_text() == "ok"
    assert not (folder / "home/.bashrc").exists() and not (folder / "work/.git").exists()


def test_jailed_tools_answer_with_errors_and_the_run_goes_on(folder):
    with Zot(folder, [ESCAPE, "sorry"], args=["--jail"]) as zot:
        frames = zot.prompt("go")
    check_jailed(folder, results(frames))
    assert frames[-1]["type"] == "done"


HANG = {"tools": [{"name": "bash", "args": {"command": "touch on; setsid sleep 305 & sleep 306"}}]}


@needs_bwrap
def test_nothing_of_a_jailed_command_outlives_a_killed_zot_or_an_abort(folder):
    with Zot(folder, [HANG, HANG], args=["--jail"]) as zot:
        zot.send("prompt", message="go")
        assert eventually((folder / "work/on").exists)
        zot.ask("abort")
        assert zot.until("done")
        assert not [line for _, line in marked(zot.mark) if "sleep" in line or "bwrap" in line]
        (folder / "work/on").unlink()
        zot.send("prompt", message="again")
        assert eventually((folder / "work/on").exists)
        zot.process.kill()
        zot.process.wait()
        assert eventually(lambda: not marked(zot.mark))


LEAVE = "mkdir -p x/.git; touch on; sleep 306"


@needs_bwrap
def test_what_a_command_of_a_killed_zot_left_is_renamed_at_once(folder):
    (folder / "work/mine/.git").mkdir(parents=True)
    turns = [{"tools": [{"name": "bash", "args": {"command": LEAVE}}]}]
    with Zot(folder, turns, args=["--jail"]) as zot:
        zot.send("prompt", message="go")
        assert eventually((folder / "work/on").exists, 20)
        zot.process.kill()
        zot.process.wait()
        assert eventually(lambda: not (folder / "work/x/.git").exists(), 20)
    assert [path.name[:12] for path in (folder / "work/x").iterdir()] == [".git.jailed-"]
    assert (folder / "work/mine/.git").exists()


def test_the_setting_and_the_variable_jail_too(folder):
    (folder / "zot-home/config.json").write_text('{"jail": true}')
    ran = run_zot(folder, ["--json", "go"], turns=[ESCAPE, "sorry"])
    check_jailed(folder, results(json.loads(line) for line in ran.stdout.splitlines()))
    ran = run_zot(folder, ["--json", "go"], turns=[ESCAPE, "ok"], env={"ZOT_JAIL": "0"})
    found = results(json.loads(line) for line in ran.stdout.splitlines())
    assert [is_error for is_error, _ in found] == [False, False, False, False]


def test_a_project_cannot_turn_it_off(folder):
    (folder / "zot-home/config.json").write_text('{"jail": true}')
    (folder / "work/.zot").mkdir()
    (folder / "work/.zot/config.json").write_text('{"jail": false}')
    ran = run_zot(folder, ["--json", "go"], turns=[ESCAPE, "sorry"])
    check_jailed(folder, results(json.loads(line) for line in ran.stdout.splitlines()))


def test_a_directory_that_cannot_be_a_jail_is_said_before_anything_runs(folder):
    ran = run_zot(folder, ["-p", "go", "--jail", "--cwd", str(folder)], turns=["x"])
    assert ran.returncode != 0
    assert b"--jail needs a project's directory" in ran.stderr
    assert ran.stdout == b""


def test_the_help_names_it(folder):
    assert b"--jail" in run_zot(folder, ["--help"]).stdout


def test_jail_in_python(folder, monkeypatch):
    monkeypatch.setenv("ZOT_HOME", str(folder / "zot-home"))
    monkeypatch.setenv("HOME", str(folder / "home"))
    provider = ScriptedProvider([ESCAPE, "sorry"])
    with Runtime(provider=provider, cwd=folder / "work", jail=True) as runtime:
        frames = [event.to_wire() for event in runtime.prompt("go")]
    check_jailed(folder, results(frames))


LINK = "tool:bash:ln -s {home}/auth.json AGENTS.md; ls -l AGENTS.md\nthen\nsay:linked"


@needs_bwrap
@pytest.mark.parametrize("jail", [True, False])
def test_a_link_to_the_keys_that_a_command_made_reaches_no_request(folder, jail):
    home = folder / "zot-home"
    secret = "gsk-of-another-provider-01"
    (home / "auth.json").write_text(json.dumps({"groq": {"api_key": secret}, "canary": "CANARY"}))
    with FakeServer() as server:
        flags = ["--provider", "anthropic", "--base-url", server.url, "--api-key", "sk-test"]
        flags += ["--jail"] if jail else []
        for prompt in (LINK.format(home=home), "say:and now?"):
            with Zot(folder, args=flags) as zot:
                zot.prompt(prompt)
        assert (folder / "work/AGENTS.md").is_symlink()
        asked = [json.dumps(seen.body) for seen in server.requests if seen.body]
    assert len(asked) == 3
    assert not [text for text in asked if secret in text or "CANARY" in text]
    assert "it is a link to a file elsewhere" in asked[-1]


def test_keys_in_instructions_do_not_reach_the_request(folder):
    secret = "gsk-of-another-provider-01"
    make_folder(folder).joinpath("AGENTS.md").write_text(f"use {secret} here")
    with FakeServer() as server:
        flags = ["--provider", "anthropic", "--base-url", server.url, "--api-key", "sk-test"]
        with Zot(folder, args=flags, env={"GROQ_API_KEY": secret}) as zot:
            zot.prompt("say:hi")
        (asked,) = [json.dumps(seen.body) for seen in server.requests if seen.body]
    assert secret not in asked
    assert "use [secret removed] here" in asked
