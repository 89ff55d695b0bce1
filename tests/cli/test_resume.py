import os
import subprocess
import sys
from pathlib import Path

import pytest
from support.rpc import environment, make_folder, write_script
from support.terminal import in_a_terminal

from tests.support.around import around, zot_home
from zot.core.session import ModelChange, Title
from zot.provider.types import Message, Text
from zot.sessions.open import begin_session
from zot.settings.known import Known
from zot.settings.options import parse
from zot.settings.resolve import plan, resumed


@pytest.fixture
def work(tmp_path, monkeypatch):
    monkeypatch.setenv("ZOT_HOME", str(tmp_path / "zot-home"))
    monkeypatch.chdir(make_folder(tmp_path))
    return tmp_path


def keep(text: str, provider: str = "openai", model: str = "gpt-5", change=None) -> str:
    session = begin_session(str(Path.cwd()), zot_home(), provider=provider, model=model)
    session.append(Message("user", (Text(text),), 1.0))
    if change:
        session.append(change)
    session.append(Title(f"about {text}"))
    session.close()
    return session.store.path


# --- the model -------------------------------------------------------------------------------


def test_a_session_goes_on_with_its_model(work):
    path = keep("a", change=ModelChange("anthropic", "claude-sonnet-5-5"))
    environ = {"ANTHROPIC_API_KEY": "k", "OPENAI_API_KEY": "k", "GROQ_API_KEY": "k"}
    for flags in (["--continue"], ["--session", path]):
        started = planned(flags, environ)
        assert (started.info.name, started.model.id) == ("anthropic", "claude-sonnet-5-5")
    assert planned(["--continue", "--provider", "groq"], environ).info.name == "groq"


def planned(flags, environ):
    made = plan(parse(flags), around(environ))
    assert made.session is not None
    made.session.close()
    return made.setup


def test_a_model_nobody_knows_any_more_is_not_insisted_on(work):
    for provider, model in (
        ("openai", "gpt-of-yesterday"),
        ("gone", "x"),
        ("scripted", "scripted"),
    ):
        options = parse(["--session", keep("a", provider, model)])
        assert resumed(options, (provider, model), Known(zot_home())) == options


def test_a_provider_without_a_key_any_more_is_not_insisted_on(work):
    keep("a", "groq", "llama-3.3-70b-versatile")
    assert planned(["--continue"], {"OPENAI_API_KEY": "k"}).info.name == "openai"


def test_where_there_is_no_session_yet_a_new_one_begins(work):
    assert plan(parse(["--continue"]), around({"OPENAI_API_KEY": "k"})).session is None


# --- the choice ------------------------------------------------------------------------------


def command(folder: Path, turn: str) -> list[str]:
    flags = write_script(folder, [turn])
    return [sys.executable, "-m", "zot", "--resume", *flags, "-p", "and now?"]


def test_without_a_terminal_the_sessions_are_listed(work):
    keep("apples")
    done = subprocess.run(
        command(work, "x"),
        env=environment(work),
        capture_output=True,
        text=True,
        stdin=subprocess.DEVNULL,
    )
    assert done.returncode == 1
    assert "about apples" in done.stderr
    assert done.stderr.endswith("choose one of them: --session PATH, or --continue for the first\n")
    assert done.stdout == ""


def test_where_there_is_none_it_is_said(work):
    done = subprocess.run(
        command(work, "x"), env=environment(work), capture_output=True, text=True, input=""
    )
    assert (done.returncode, "there is no session of" in done.stderr) == (1, True)


@pytest.mark.parametrize(("typed", "code"), [(b"2\n", 0), (b"\n", 0), (b"9\n", 2), (b"x\n", 2)])
def test_in_a_terminal_a_person_chooses(work, typed, code):
    older, newer = keep("apples"), keep("pears")
    os.utime(older, (1, 1))
    says = [(b"number (Enter: 1):", typed)]
    assert in_a_terminal(command(work, "the answer"), says, environment(work))[0] == code
    chosen = {b"2\n": older, b"\n": newer}.get(typed)
    for path in (older, newer):
        assert ("the answer" in Path(path).read_text()) == (path == chosen)
