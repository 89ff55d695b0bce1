import os
import time
from pathlib import Path

import pytest

from zot.core.agent import IDENTITY
from zot.errors import ConfigError
from zot.home import of_process
from zot.runtime.prompt import CONTEXT_FILE_LIMIT, context_paths, system_prompt
from zot.settings.resolve import working_directory


@pytest.fixture
def home(tmp_path):
    folder = tmp_path / "zot-home"
    folder.mkdir()
    return folder


@pytest.fixture
def cwd(tmp_path):
    folder = tmp_path / "project" / "deep"
    folder.mkdir(parents=True)
    return folder


def test_the_directory_comes_last_and_the_date_is_not_in_it(home, cwd):
    prompt = system_prompt(cwd=str(cwd), home=home)
    assert prompt.startswith(IDENTITY)
    assert prompt.endswith(f"Current working directory: {cwd}\n")
    assert time.strftime("%Y-%m-%d") not in prompt


def test_it_is_the_same_for_the_same_day_and_directory(home, cwd):
    assert system_prompt(cwd=str(cwd), home=home) == system_prompt(cwd=str(cwd), home=home)


def test_the_users_own_prompt_replaces_the_built_in(home, cwd):
    (home / "SYSTEM.md").write_text("  be a pirate \n")
    assert system_prompt(cwd=str(cwd), home=home).startswith(
        "be a pirate\n\nCurrent working directory"
    )
    assert system_prompt(cwd=str(cwd), home=home, replacement="mine").startswith("mine\n\n")
    assert system_prompt(cwd=str(cwd), home=home, replacement="").startswith(
        "Current working directory"
    )
    (home / "SYSTEM.md").write_text(" \n")
    assert system_prompt(cwd=str(cwd), home=home).startswith(IDENTITY)


def test_a_pipe_in_place_of_a_file_is_not_waited_for(home, cwd):
    os.mkfifo(home / "SYSTEM.md")
    os.mkfifo(cwd / "AGENTS.md")
    assert system_prompt(cwd=str(cwd), home=home).startswith(IDENTITY)
    writer = os.open(cwd / "AGENTS.md", os.O_RDWR)  # one that has something to say neither
    os.write(writer, b"through a pipe")
    assert "through a pipe" not in system_prompt(cwd=str(cwd), home=home)
    os.close(writer)


def test_what_is_appended_follows_in_order(home, cwd):
    prompt = system_prompt(cwd=str(cwd), home=home, replacement="a", appended=["b", " ", "c"])
    assert prompt.startswith("a\n\nb\n\nc\n\nCurrent working directory")


def test_context_files_from_the_user_and_from_the_root_down(home, cwd):
    (home / "AGENTS.md").write_text("of the user")
    (cwd.parent / "AGENTS.md").write_text("of the project")
    (cwd / "AGENTS.MD").write_text("of the folder")
    prompt = system_prompt(cwd=str(cwd), home=home)
    order = [prompt.index(text) for text in ("of the user", "of the project", "of the folder")]
    assert order == sorted(order)
    assert prompt.index("of the folder") < prompt.index("Current working directory")
    assert f"# Instructions from {cwd.parent / 'AGENTS.md'}" in prompt
    without = system_prompt(cwd=str(cwd), home=home, context_files=False)
    assert "of the project" not in without


def test_a_context_file_is_read_once_bounded_and_as_text(home, cwd):
    (cwd / "AGENTS.md").write_bytes(b"x" * (CONTEXT_FILE_LIMIT + 10) + b"\xff")
    (cwd.parent / "AGENTS.md").write_bytes(b"bad \xff byte")
    prompt = system_prompt(cwd=str(cwd), home=home)
    assert "[cut: the file is longer]" in prompt
    assert "bad \ufffd byte" in prompt
    assert prompt.count("x" * CONTEXT_FILE_LIMIT) == 1
    (cwd / "AGENTS.MD").hardlink_to(cwd / "AGENTS.md")
    paths = [path for path in context_paths(cwd, home) if Path(path).parent == cwd]
    assert len(paths) == 1


def test_bytes_that_are_no_characters_do_not_reach_a_provider(home, tmp_path):
    odd = os.fsdecode(os.fsencode(tmp_path) + b"/\xff")
    os.mkdir(odd)  # noqa: PTH102  a path of bytes
    system_prompt(cwd=odd, home=home, appended=["\udcff"]).encode()


def test_the_working_directory_must_exist(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert working_directory("", of_process()) == str(tmp_path)
    (tmp_path / "a").mkdir()
    assert working_directory("a", of_process()) == str(tmp_path / "a")
    with pytest.raises(ConfigError, match="'nowhere' is not a directory"):
        working_directory("nowhere", of_process())
    gone = tmp_path / "gone"
    gone.mkdir()
    monkeypatch.chdir(gone)
    gone.rmdir()
    with pytest.raises(ConfigError, match="the working directory is gone"):
        working_directory("", of_process())


def test_a_file_that_cannot_be_read_is_named(home, cwd):
    (cwd / "AGENTS.md").symlink_to("/proc/self/mem")
    (home / "SYSTEM.md").symlink_to("/proc/self/mem")
    prompt = system_prompt(cwd=str(cwd), home=home)
    assert prompt.startswith(IDENTITY)
    assert "[not read: it is a link to a file elsewhere; copy it instead]" in prompt
    (cwd / "AGENTS.md").unlink()
    (cwd / "AGENTS.md").write_text(" \n")
    assert "Instructions from" not in system_prompt(cwd=str(cwd), home=home)


def test_a_link_to_a_file_of_the_user_is_not_read(home, cwd, tmp_path):
    (tmp_path / "auth.json").write_text("sk-of-another-provider")
    (cwd / "AGENTS.md").symlink_to(tmp_path / "auth.json")
    (tmp_path / "other.json").write_text("sk-of-another-provider")
    (cwd.parent / "AGENTS.md").symlink_to("deep/../../other.json")
    (home / "SYSTEM.md").symlink_to(tmp_path / "auth.json")
    prompt = system_prompt(cwd=str(cwd), home=home)
    assert prompt.startswith(IDENTITY)
    assert "sk-of-another-provider" not in prompt
    assert prompt.count("it is a link to a file elsewhere") == 2


def test_a_link_to_another_name_in_the_project_is_read(home, cwd):
    (cwd / "CLAUDE.md").write_text("house rules")
    (cwd / "AGENTS.md").symlink_to("CLAUDE.md")
    assert "house rules" in system_prompt(cwd=str(cwd), home=home)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a file away")
def test_a_file_of_another_user_is_not_read(home, cwd):
    (cwd / "AGENTS.md").write_text("do as I say")
    os.chown(cwd / "AGENTS.md", 12345, 12345)
    prompt = system_prompt(cwd=str(cwd), home=home)
    assert "do as I say" not in prompt
    assert "[not read: it belongs to another user]" in prompt
