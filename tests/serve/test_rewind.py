"""Going back to an earlier prompt, over the wire of a real process."""

import os
import stat
from hashlib import sha256
from pathlib import Path

import pytest
from support.rpc import Zot

from zot.sessions.contents import MAX_CONTENT, SessionContents
from zot.sessions.library import fork, remove


def write(path, content):
    return {"tools": [{"name": "write", "args": {"path": path, "content": content}}]}


def edit(path, old, new):
    edits = [{"oldText": old, "newText": new}]
    return {"tools": [{"name": "edit", "args": {"path": path, "edits": edits}}]}


TURNS = [
    write("a.txt", "one\n"),
    write("new/b.txt", "new\n"),
    "made both",
    edit("a.txt", "one", "two"),
    "changed a",
    edit("a.txt", "two", "three"),
    "changed a again",
]


@pytest.fixture
def path(tmp_path: Path) -> str:
    return str(tmp_path / "kept.jsonl")


@pytest.fixture
def worked(tmp_path: Path, path: str):
    """A conversation of three prompts, each of which changed files."""
    with Zot(tmp_path, [*TURNS, {"text": "ok", "repeat": True}], args=["--session", path]) as zot:
        (zot.cwd / "a.txt").write_text("zero\n")
        for text in ("first", "second", "third"):
            zot.prompt(text)
        yield zot


def files_of(rewound):
    return {Path(file["path"]).name: file for file in rewound["files"]}


def moments(zot):
    return zot.data("checkpoints")["checkpoints"]


def test_every_prompt_is_a_checkpoint_with_the_files_that_changed_after_it(worked):
    listed = moments(worked)
    assert [moment["text"] for moment in listed] == ["first", "second", "third"]
    assert [moment["message_count"] for moment in listed] == [0, 6, 10]
    names = [[Path(path).name for path in moment["files"]] for moment in listed]
    assert names == [["a.txt", "b.txt"], ["a.txt"], ["a.txt"]]


def test_both_go_back_and_what_was_said_since_is_forgotten(worked):
    rewound = worked.data("rewind", to=moments(worked)[1]["id"])
    assert (rewound["text"], rewound["message_count"], rewound["preview"]) == ("second", 8, False)
    assert [file["state"] for file in rewound["files"]] == ["ok"]
    assert (worked.cwd / "a.txt").read_text() == "one\n"
    assert (worked.cwd / "new/b.txt").read_text() == "new\n"
    assert worked.data("get_state")["message_count"] == 6
    worked.prompt("another way")
    said = str(worked.data("get_messages"))
    assert "another way" in said
    assert "second" not in said


def test_a_file_that_was_made_is_removed_and_one_that_is_gone_is_made_again(worked):
    (worked.cwd / "a.txt").unlink()
    seen = files_of(worked.data("rewind", to=moments(worked)[0]["id"], preview=True))
    assert seen["b.txt"]["action"] == "remove"
    assert (seen["a.txt"]["action"], seen["a.txt"]["state"]) == ("create", "changed")
    worked.data("rewind", to=moments(worked)[0]["id"], force=True)
    assert (worked.cwd / "a.txt").read_text() == "zero\n"
    assert not (worked.cwd / "new/b.txt").exists()
    assert worked.data("get_state")["message_count"] == 0


def test_a_preview_shows_the_diff_and_does_nothing(worked):
    seen = worked.data("rewind", preview=True)
    assert seen["preview"]
    assert "-three" in seen["files"][0]["diff"]
    assert "+two" in seen["files"][0]["diff"]
    assert (worked.cwd / "a.txt").read_text() == "three\n"
    assert worked.data("get_state")["message_count"] == 14


def test_the_conversation_alone_leaves_the_files_and_they_can_still_go_back(worked):
    first = moments(worked)[0]["id"]
    assert worked.data("rewind", conversation=True, files=False)["files"] == []
    assert (worked.cwd / "a.txt").read_text() == "three\n"
    assert len(moments(worked)) == 2
    worked.data("rewind", to=first, conversation=False)
    assert (worked.cwd / "a.txt").read_text() == "zero\n"


def test_the_files_alone_leave_the_conversation_and_the_model_is_told(worked):
    worked.data("rewind", conversation=False)
    assert (worked.cwd / "a.txt").read_text() == "two\n"
    messages = worked.data("get_messages")["messages"]
    assert len(messages) == 15
    assert "I took these files back" in str(messages[-1])


def test_going_back_can_be_undone(worked):
    worked.data("rewind", to=moments(worked)[0]["id"], conversation=False)
    assert (worked.cwd / "a.txt").read_text() == "zero\n"
    # The note of the rewind is the last prompt; before the third one a.txt was "two".
    worked.data("rewind", to=moments(worked)[2]["id"], conversation=False)
    assert (worked.cwd / "a.txt").read_text() == "two\n"


def test_what_someone_else_changed_is_named_and_left_alone(worked):
    (worked.cwd / "a.txt").write_text("mine\n")
    rewound = worked.data("rewind", to=moments(worked)[0]["id"])
    seen = files_of(rewound)
    assert seen["a.txt"]["state"] == "changed"
    assert "someone else" in seen["a.txt"]["note"]
    assert seen["b.txt"]["state"] == "ok"
    assert (worked.cwd / "a.txt").read_text() == "mine\n"
    assert not (worked.cwd / "new/b.txt").exists()


def test_what_someone_else_changed_between_two_edits_is_named_too(tmp_path, path):
    turns = [write("a.txt", "one\n"), "ok", edit("a.txt", "mine", "yours"), "ok"]
    with Zot(tmp_path, turns, args=["--session", path]) as zot:
        zot.prompt("first")
        (zot.cwd / "a.txt").write_text("mine\n")
        zot.prompt("second")
        first, second = moments(zot)
        assert files_of(zot.data("rewind", to=first["id"], preview=True))["a.txt"]["state"] == (
            "changed"
        )
        zot.data("rewind", to=second["id"])
        assert (zot.cwd / "a.txt").read_text() == "mine\n"


def test_it_works_after_a_restart_and_the_branch_is_gone_on_with(tmp_path, path, worked):
    worked.data("rewind", to=moments(worked)[2]["id"])
    worked.close()
    with Zot(tmp_path, ["again"], args=["--session", path]) as zot:
        assert zot.data("get_state")["message_count"] == 10
        assert [moment["text"] for moment in moments(zot)] == ["first", "second"]
        zot.data("rewind", to=moments(zot)[0]["id"])
        assert (zot.cwd / "a.txt").read_text() == "zero\n"


def test_a_fork_can_go_back_too(tmp_path, path, worked):
    worked.close()
    copy = fork(path)
    with Zot(tmp_path, ["again"], args=["--session", copy]) as zot:
        zot.data("rewind", to=moments(zot)[0]["id"])
        assert (zot.cwd / "a.txt").read_text() == "zero\n"


def test_the_work_of_the_session_is_shown_by_file(worked):
    changes = files_of(worked.data("get_changes"))
    assert "-zero" in changes["a.txt"]["diff"]
    assert "+three" in changes["a.txt"]["diff"]
    assert "+new" in changes["b.txt"]["diff"]
    worked.data("rewind", to=moments(worked)[0]["id"])
    assert worked.data("get_changes") == {"files": []}


def test_what_is_kept_is_for_the_user_alone_and_goes_with_the_session(path, worked):
    folder = Path(SessionContents(path).folder)
    modes = {stat.S_IMODE(file.stat().st_mode) for file in folder.iterdir()}
    assert modes == {0o600}
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    worked.close()
    remove(path)
    assert not folder.exists()


def test_content_that_is_gone_or_spoiled_cannot_be_put_back(path, worked):
    for file in Path(SessionContents(path).folder).iterdir():
        file.write_bytes(b"other")
    seen = files_of(worked.data("rewind", to=moments(worked)[0]["id"]))
    assert seen["a.txt"]["state"] == "lost"
    assert "not kept" in seen["a.txt"]["note"]
    assert (worked.cwd / "a.txt").read_text() == "three\n"


def test_a_file_that_cannot_be_read_or_written_is_named(worked):
    (worked.cwd / "a.txt").unlink()
    (worked.cwd / "a.txt").mkdir()
    seen = files_of(worked.data("rewind", to=moments(worked)[0]["id"], force=True))
    assert seen["a.txt"]["state"] == "lost"
    assert "directory" in seen["a.txt"]["note"]


def test_a_link_that_was_put_in_the_place_of_a_file_is_not_written_through(tmp_path, worked):
    profile = tmp_path / "home" / ".profile"
    profile.write_text("three\n")  # what the file has now: a command can have read it there
    (worked.cwd / "a.txt").unlink()
    (worked.cwd / "a.txt").symlink_to(profile)
    rewound = worked.data("rewind", to=moments(worked)[0]["id"])
    assert "behind a link" in files_of(rewound)["a.txt"]["note"]
    assert profile.read_text() == "three\n"


def test_a_session_without_a_file_keeps_nothing(tmp_path):
    with Zot(tmp_path, TURNS) as zot:
        (zot.cwd / "a.txt").write_text("zero\n")
        zot.prompt("first")
        assert moments(zot)[0]["files"] == []
        assert zot.data("get_changes") == {"files": []}
        refused = zot.ask("rewind")
        assert not refused["success"]
        assert "session file" in refused["error"]
        assert zot.data("rewind", files=False)["message_count"] == 6
        assert not list(tmp_path.rglob("*.files"))


def test_a_checkpoint_that_is_none_is_refused_and_so_is_a_busy_agent(tmp_path):
    with Zot(tmp_path, [{"text": ["a"] * 2000, "delay_ms": 5}]) as zot:
        assert "no prompt" in zot.ask("rewind")["error"]
        zot.send("prompt", message="wait")
        zot.until("turn_start")
        assert "busy" in zot.ask("rewind", files=False)["error"]
        zot.send("abort")
        zot.until("done")
        assert "no checkpoint" in zot.ask("rewind", to="nowhere")["error"]


def test_what_is_kept_is_bounded_and_the_oldest_go_first(tmp_path):
    kept = SessionContents(str(tmp_path / "s.jsonl"), limit=250)
    hashes = []
    for number in range(4):
        content = bytes([number]) * 100
        hashes.append(sha256(content).hexdigest())
        kept.keep(hashes[-1], content)
        os.utime(Path(kept.folder) / hashes[-1], (number, number))
    assert [kept.load(hash) is not None for hash in hashes] == [False, False, True, True]
    kept.keep("large", b"x" * (MAX_CONTENT + 1))
    assert kept.load("large") is None


def test_a_disk_that_is_full_does_not_keep_a_tool_from_its_work(tmp_path):
    (tmp_path / "s.files").write_text("in the way")
    kept = SessionContents(str(tmp_path / "s.jsonl"))
    kept.keep("abc", b"content")
    assert kept.load("abc") is None
    kept.copy_to(str(tmp_path / "copy.jsonl"))
    assert not (tmp_path / "copy.files").exists()
