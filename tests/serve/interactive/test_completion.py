"""Files after an at-sign: many of them, hidden ones, and those elsewhere."""

import os
import time

import pytest

from zot.serve.interactive.completion import FileIndex, files_at, is_elsewhere

HELLO = [{"text": "Hello there."}]


def labels(items):
    return [item.label for item in items]


def names(folders):
    return [
        f"dir_{one}/sub_{two}/file_{one}_{two}_{three}"
        for one in range(folders)
        for two in range(10)
        for three in range(105)
    ]


def test_a_file_is_found_among_fifty_thousand():
    index = FileIndex("/x", names(50))
    assert labels(index.find("file_49_2_17")) == ["dir_49/sub_2/file_49_2_17"]
    assert labels(index.find("d49s2f104"))[0] == "dir_49/sub_2/file_49_2_104"
    began = time.monotonic()
    for typed in ("f", "fi", "fil", "file_49", "zzz", "file_49_9_10"):
        index.find(typed)
    assert time.monotonic() - began < 6  # far more than it takes: keys wait for it


@pytest.mark.long
def test_the_last_of_many_files_is_completed_at_the_terminal(at_terminal, tmp_path):
    paths = names(20)
    assert len(paths) > 20_000
    for folder in dict.fromkeys(path.rpartition("/")[0] for path in paths):
        (tmp_path / "work" / folder).mkdir(parents=True)
    for path in paths:
        os.close(os.open(tmp_path / "work" / path, os.O_CREAT, 0o644))
    program = at_terminal(HELLO)
    program.until("scripted")
    program.type("look at @file_19_2_17")
    program.until("  dir_19/sub_2/file_19_2_17", 40)
    program.type("\t")
    program.until("❯ look at @dir_19/sub_2/file_19_2_17")


def test_hidden_files_come_behind_the_others_and_what_is_ignored_does_not(tmp_path):
    (tmp_path / ".github" / "workflows").mkdir(parents=True)
    (tmp_path / ".github" / "workflows" / "test.yml").write_text("")
    (tmp_path / ".git").mkdir()
    (tmp_path / ".git" / "config").write_text("")
    (tmp_path / ".env.example").write_text("")
    (tmp_path / "test.py").write_text("")
    (tmp_path / "test.log").write_text("")
    (tmp_path / ".gitignore").write_text("*.log\n")
    index = FileIndex.of(str(tmp_path))
    assert labels(index.find("test")) == ["test.py", ".github/workflows/test.yml"]
    assert labels(index.find(".env")) == [".env.example"]
    assert ".git/config" not in labels(index.find("config"))


def test_paths_lead_elsewhere(tmp_path, monkeypatch):
    home, work = tmp_path / "home", tmp_path / "work"
    (home / "notes").mkdir(parents=True)
    (home / "notes" / "plan.md").write_text("")
    (home / ".profile").write_text("")
    (work / "inner").mkdir(parents=True)
    monkeypatch.setenv("HOME", str(home))
    assert labels(files_at("../", str(work))) == ["../home/", "../work/"]
    assert labels(files_at("../ho", str(work))) == ["../home/"]
    assert labels(files_at("~/", str(work))) == ["~/notes/"]
    assert labels(files_at("~/.p", str(work))) == ["~/.profile"]
    assert labels(files_at("~/notes/PL", str(work))) == ["~/notes/plan.md"]
    assert labels(files_at(f"{tmp_path}/wo", str(work))) == [f"{tmp_path}/work/"]
    assert labels(files_at("./in", str(work))) == ["./inner/"]
    assert labels(files_at("..", str(work))) == ["../"]
    assert labels(files_at("/no/such/place/x", str(work))) == []
    assert [is_elsewhere(text) for text in ("..", "../a", "~", "/", "a/../b", ".env")] == [
        *(True, True, True, True),
        *(False, False),
    ]


def test_a_path_outside_is_completed_step_by_step_at_the_terminal(at_terminal, tmp_path):
    (tmp_path / "beside").mkdir()
    (tmp_path / "beside" / "other.txt").write_text("")
    program = at_terminal(HELLO)
    program.until("scripted")
    program.type("@../bes")
    program.until("  ../beside/")
    program.type("\t")
    program.until("  ../beside/other.txt")
    program.type("\t")
    program.until("❯ @../beside/other.txt")
