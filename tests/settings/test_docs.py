"""Every example of docs/sessions.md, config.md, auth.md and skills.md is run."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from support.docs import ROOT, blocks, runnable
from support.oauth import OAuthServer
from support.rpc import Zot

from tests.support.around import zot_home
from zot.provider.auth.oauth import server_of
from zot.provider.auth.store import AuthFile
from zot.provider.types import Message, Text
from zot.sessions.format import Transcript
from zot.sessions.open import begin_session
from zot.settings.config import read_configuration
from zot.settings.known import Known
from zot.settings.options import Options
from zot.skills.skill import SkillFolder, read_skill

SESSIONS, CONFIG, AUTH, SKILLS = (
    f"docs/{name}.md" for name in ("sessions", "config", "auth", "skills")
)


@pytest.fixture
def work(tmp_path, monkeypatch):
    for name in list(os.environ):
        if name.endswith(("_API_KEY", "_BASE_URL")) or name.startswith("ZOT_"):
            monkeypatch.delenv(name)
    for name in ("home", "work", "zot-home"):
        (tmp_path / name).mkdir(mode=0o700)
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.setenv("ZOT_HOME", str(tmp_path / "zot-home"))
    monkeypatch.setenv("PATH", f"{Path(sys.executable).parent}:{os.environ['PATH']}")
    monkeypatch.chdir(tmp_path / "work")
    return tmp_path


def keep_session() -> None:
    session = begin_session(str(Path.cwd()), zot_home(), provider="anthropic", model="m")
    for role, text in (("user", "fix the parser"), ("assistant", "done"), ("user", "thanks")):
        session.append(Message(role, (Text(text),), 1.0))
    session.close()


def run_all(page: str) -> str:
    output = ""
    for block in runnable(page, "sh"):
        done = subprocess.run(
            ["bash", "-e", "-o", "pipefail", "-c", block.text], capture_output=True, text=True
        )
        assert done.returncode == 0, f"{block}: {done.stderr}"
        output += done.stdout
    return output


def shown(page: str, start: str) -> list[str]:
    texts = [block.text for block in blocks(page, "json") if block.text.startswith(start)]
    assert texts
    return texts


# --- sessions.md -----------------------------------------------------------------------------


@pytest.mark.slow
def test_the_commands_of_sessions(work):
    keep_session()
    output = run_all(SESSIONS)
    assert "fix the parser" in output
    assert "title: the parser bug" in output
    assert Path("page.html").is_file()
    assert Path("shared.zotsession").is_file()


def test_the_rpc_commands_of_sessions(work):
    keep_session()
    with Zot(work, ["x"], args=["--continue"], env={"HOME": str(work / "home")}) as zot:
        for line in shown(SESSIONS, '{"id"'):
            command = json.loads(line)
            assert zot.ask(command.pop("type"), **command)["success"], line


def test_the_rows_of_sessions(work):
    transcript = Transcript()
    for number, line in enumerate(shown(SESSIONS, '{"type"'), 1):
        assert transcript.feed(line.strip().encode(), number), transcript.bad
    kinds = [type(entry.body).__name__ for entry in transcript.entries().values()]
    assert kinds == ["Message", "Message", "Message", "UsageNote", "Title", "Compaction"]


# --- config.md -------------------------------------------------------------------------------


@pytest.mark.slow
def test_the_commands_of_config(work):
    output = run_all(CONFIG)
    assert "claude-sonnet-5-5" in output
    assert json.loads((work / "zot-home" / "config.json").read_text()) == {
        "model": "claude-sonnet-5-5"
    }


def test_the_files_of_config(work):
    settings, models, prompt = (block.text for block in blocks(CONFIG, "json"))
    (work / "zot-home" / "config.json").write_text(settings)
    read = read_configuration(Options(), {}, str(work), str(work / "zot-home"))
    assert (read.warnings, read["max_cost"]) == ([], 2.5)
    assert read.others == {}
    (work / "zot-home" / "models.json").write_text(models)
    known = Known(str(work / "zot-home"))
    assert known.warnings == []
    assert known.find("my-server", "my-model").price.output == 0.8
    assert known.find("anthropic", "claude-sonnet-5-5").context_window == 1_000_000
    with Zot(work, ["x"], env={"ZOT_HOME": str(work / "elsewhere")}) as zot:
        command = json.loads(prompt)
        frames = zot.prompt(**{key: value for key, value in command.items() if key != "type"})
        assert frames[-1]["type"] == "done"


def test_the_table_of_settings_is_the_one_of_the_code():
    command = [sys.executable, str(ROOT / "scripts" / "settings_table.py")]
    table = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    assert table in (ROOT / CONFIG).read_text(), "run scripts/settings_table.py --write"


# --- auth.md ---------------------------------------------------------------------------------


@pytest.mark.slow
def test_the_commands_of_auth(work, monkeypatch):
    server = OAuthServer()
    try:
        server.keys.add("sk-doc")
        row = {"baseUrl": server.url, "api": "openai-chat"}
        models = {"providers": {"my-server": row}}
        (work / "zot-home" / "models.json").write_text(json.dumps(models))
        monkeypatch.setenv("MY_KEY", "sk-doc")
        output = run_all(AUTH)
    finally:
        server.close()
    assert "accepted" in output
    assert "logged out of my-server" in output
    assert "sk-doc" not in output


def test_the_files_of_auth(work):
    oauth, auth = (block.text for block in blocks(AUTH, "json"))
    home = work / "zot-home"
    (home / "oauth.json").write_text(oauth)
    for name in ("anthropic", "my-server"):
        assert server_of(name, str(home)).client_id
    (home / "auth.json").write_text(auth)
    assert set(AuthFile(str(home)).all()) == {"anthropic", "openai", "groq", "mistral"}


# --- skills.md -------------------------------------------------------------------------------


def test_the_commands_of_skills(work):
    assert "write-zot-extension" in run_all(SKILLS)


def test_the_skill_of_skills(work):
    (block,) = blocks(SKILLS, "markdown")
    path = work / "release-notes" / "SKILL.md"
    path.parent.mkdir()
    path.write_text(block.text)
    skill = read_skill(path, SkillFolder(work))
    assert skill.problems == ()
    assert skill.body.startswith("# Release notes")


def test_no_example_is_left_out():
    for page in (SESSIONS, CONFIG, AUTH, SKILLS):
        languages = {block.language for block in blocks(page)}
        assert languages <= {"sh", "json", "markdown"}
        assert all(block.not_run is None for block in blocks(page))
