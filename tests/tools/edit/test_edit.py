import errno
import fcntl
import os
import shutil
import stat
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.tools import call, text

from tests.support.around import place_at
from zot.cancel import Cancel
from zot.errors import Cancelled, ToolError
from zot.tools.edit import files
from zot.tools.edit.edit import Edit, Write
from zot.tools.edit.replace import Replacement, apply
from zot.tools.edit.text import Normalized, diff


@pytest.fixture
def edit(tmp_path: Path) -> Edit:
    return Edit(place_at(str(tmp_path)))


def pair(old: str, new: str) -> dict[str, str]:
    return {"oldText": old, "newText": new}


def test_the_result_is_a_short_diff(edit: Edit, tmp_path: Path) -> None:
    (tmp_path / "f").write_text("".join(f"line {n}\n" for n in range(1, 21)))
    output = call(
        edit, path="f", edits=[pair("line 5\n", "five\nand more\n"), pair("line 17", "x")]
    )
    assert text(output) == (
        "... 1\n line 2\n line 3\n line 4\n-line 5\n+five\n+and more\n"
        " line 6\n line 7\n line 8\n... 5\n"
        " line 14\n line 15\n line 16\n-line 17\n+x\n line 18\n line 19\n line 20"
    )
    assert output.details is not None
    assert output.details["first_changed_line"] == 5
    assert output.details["diff"] == text(output)


def test_all_edits_are_matched_against_the_original(edit: Edit, tmp_path: Path) -> None:
    (tmp_path / "f").write_text("a b")
    call(edit, path="f", edits=[pair("a", "b"), pair("b", "a")])
    assert (tmp_path / "f").read_text() == "b a"


def test_one_edit_that_fails_changes_nothing(edit: Edit, tmp_path: Path) -> None:
    (tmp_path / "f").write_text("a b")
    with pytest.raises(ToolError, match="edit 2: oldText not found in f"):
        call(edit, path="f", edits=[pair("a", "b"), pair("zzz", "a")])
    assert (tmp_path / "f").read_text() == "a b"


def test_several_matches_are_refused_with_their_lines(edit: Edit, tmp_path: Path) -> None:
    (tmp_path / "f").write_text("x\ny\nx\nx\n")
    with pytest.raises(
        ToolError, match=r"matches 3 times \(must be unique\) in f: at lines 1, 3, 4;"
    ):
        call(edit, path="f", edits=[pair("x", "z")])
    (tmp_path / "f").write_text("x\n" * 50)
    with pytest.raises(ToolError, match=r"matches 50 times .* 9, 10, \.\.\.; include"):
        call(edit, path="f", edits=[pair("x", "z")])
    (tmp_path / "f").write_text("aaa")
    with pytest.raises(ToolError, match="matches 2 times"):
        call(edit, path="f", edits=[pair("aa", "z")])


def test_text_that_is_not_there_is_answered_with_the_nearest(edit: Edit, tmp_path: Path) -> None:
    (tmp_path / "f").write_text("import os\n\ndef compute_total(items):\n    return sum(items)\n")
    with pytest.raises(ToolError) as error:
        call(edit, path="f", edits=[pair("def compute_totals(item):\n    return 0", "x")])
    assert "the nearest text is at line 3:\ndef compute_total(items):\n    return" in str(
        error.value
    )
    with pytest.raises(ToolError, match="nothing in it is similar"):
        call(edit, path="f", edits=[pair("@@@@@@@@", "x")])
    with pytest.raises(ToolError, match="nothing in it is similar"):
        call(edit, path="f", edits=[pair("\n\n\n\n", "x")])


def test_the_search_for_the_nearest_text_is_bounded(edit: Edit, tmp_path: Path) -> None:
    (tmp_path / "f").write_text(("abcdefgh " * 30 + "\n") * 15_000)
    started = time.monotonic()
    with pytest.raises(ToolError, match="not found"):
        call(edit, path="f", edits=[pair("hgfedcba " * 30, "x")])
    assert time.monotonic() - started < 20


@pytest.mark.parametrize(
    ("args", "said"),
    [
        ({}, "at least one edit is required"),
        ({"edits": []}, "at least one edit is required"),
        ({"edits": "nonsense"}, "at least one edit"),
        ({"edits": [5]}, "edit 1: must be an object"),
        ({"edits": [{"oldText": "a"}]}, "edit 1: oldText and newText must be strings"),
        ({"edits": [pair("", "x")]}, "edit 1: oldText must not be empty"),
        ({"edits": [pair("a", "b"), pair("c", "c")]}, "edit 2: oldText equals newText"),
        ({"edits": [pair("a\r\n", "a\n")]}, "edit 1: oldText equals newText"),
        ({"edits": [pair("abc", "x"), pair("cd", "y")]}, "edits 1 and 2 overlap; merge them"),
        ({"edits": [pair("abc", "x"), pair("abc", "y")]}, "edits 1 and 2 overlap"),
    ],
)
def test_edits_that_make_no_sense(
    edit: Edit, tmp_path: Path, args: dict[str, object], said: str
) -> None:
    (tmp_path / "f").write_text("abcd\n")
    with pytest.raises(ToolError, match=said):
        call(edit, path="f", **args)


def test_replace_all_replaces_every_occurrence(edit: Edit, tmp_path: Path) -> None:
    (tmp_path / "f").write_text("aaa b aaa\n")
    call(edit, path="f", edits=[{**pair("aa", "x"), "replaceAll": True}])
    assert (tmp_path / "f").read_text() == "xa b xa\n"
    with pytest.raises(ToolError, match="edits 1 and 2 overlap"):
        call(edit, path="f", edits=[{**pair("x", "y"), "replaceAll": True}, pair("a b x", "z")])
    with pytest.raises(ToolError, match="not found"):
        call(edit, path="f", edits=[{**pair("q", "y"), "replaceAll": True}])


def test_a_file_that_is_not_there(edit: Edit) -> None:
    for path in ("nope", "no/such/dir"):
        with pytest.raises(ToolError, match="no such file: .*; create it with write"):
            call(edit, path=path, edits=[pair("a", "b")])


def test_crlf_bom_and_a_missing_last_newline_are_kept(edit: Edit, tmp_path: Path) -> None:
    (tmp_path / "f").write_bytes(b"\xef\xbb\xbfone\r\ntwo\r\nthree")
    output = call(edit, path="f", edits=[pair("one\ntwo\n", "1\n2\n2.5\n")])
    assert (tmp_path / "f").read_bytes() == b"\xef\xbb\xbf1\r\n2\r\n2.5\r\nthree"
    assert text(output).startswith("-one\n-two\n+1\n+2\n+2.5\n three")


def test_mixed_endings_outside_the_edit_are_not_touched(edit: Edit, tmp_path: Path) -> None:
    (tmp_path / "f").write_bytes(b"a\r\nb\nc\r\nd\ne\r\n")
    call(edit, path="f", edits=[pair("b\nc\nd", "b\nX\nd")])
    assert (tmp_path / "f").read_bytes() == b"a\r\nb\nX\r\nd\ne\r\n"


def test_bytes_that_are_not_utf8_survive(edit: Edit, tmp_path: Path) -> None:
    (tmp_path / "f").write_bytes(b"caf\xe9 one\n\xff\xfe two\n")
    call(edit, path="f", edits=[pair("one", "1")])
    assert (tmp_path / "f").read_bytes() == b"caf\xe9 1\n\xff\xfe two\n"


def test_mode_owner_attributes_and_symlinks_are_kept(edit: Edit, tmp_path: Path) -> None:
    real = tmp_path / "real"
    real.write_text("a")
    real.chmod(0o2755 if os.geteuid() == 0 else 0o755)
    if os.geteuid() == 0:
        os.chown(real, 1234, 1234)
        real.chmod(0o755)
    try:
        os.setxattr(real, "user.note", b"kept")
        attributes = True
    except OSError:
        attributes = False
    (tmp_path / "link").symlink_to("real")
    before = real.stat()
    call(edit, path="link", edits=[pair("a", "b")])
    after = real.stat()
    assert (tmp_path / "link").is_symlink()
    assert real.read_text() == "b"
    assert stat.S_IMODE(after.st_mode) == stat.S_IMODE(before.st_mode)
    assert (after.st_uid, after.st_gid) == (before.st_uid, before.st_gid)
    if attributes:
        assert os.getxattr(real, "user.note") == b"kept"


def test_hard_links_stay_linked(edit: Edit, tmp_path: Path) -> None:
    (tmp_path / "f").write_text("long content a\n")
    os.link(tmp_path / "f", tmp_path / "g")
    call(edit, path="f", edits=[pair("long content a", "b")])
    assert (tmp_path / "g").read_text() == "b\n"
    assert (tmp_path / "f").stat().st_ino == (tmp_path / "g").stat().st_ino


def test_a_reader_sees_the_old_or_the_new_file_never_half(edit: Edit, tmp_path: Path) -> None:
    path = tmp_path / "f"
    path.write_text("a" * 100_000)
    seen: set[str] = set()
    done = threading.Event()

    def watch() -> None:
        while not done.is_set():
            seen.add(path.read_text())

    thread = threading.Thread(target=watch)
    thread.start()
    for old, new in (("a", "b"), ("b", "c"), ("c", "d")):
        call(edit, path="f", edits=[pair(old * 100_000, new * 100_000)])
    done.set()
    thread.join()
    assert {len(each) for each in seen} == {100_000}
    assert all(len(set(each)) == 1 for each in seen)


def test_a_file_that_is_too_large_is_refused(
    edit: Edit, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(files, "MAX_EDIT", 10)
    (tmp_path / "f").write_text("x" * 11)
    with pytest.raises(ToolError, match="are changed with bash"):
        call(edit, path="f", edits=[pair("x", "y")])


def test_a_change_in_between_is_not_lost(edit: Edit, tmp_path: Path) -> None:
    path = tmp_path / "f"
    path.write_text("a b")
    before = files.load
    calls: list[int] = []

    def load(where: files.Target) -> bytes | None:
        calls.append(1)
        if len(calls) == 2:  # the comparison before the rename
            path.write_text("a new")
        return before(where)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(files, "load", load)
        call(edit, path="f", edits=[pair("a", "z")])
    assert path.read_text() == "z new"


def test_a_file_that_never_rests_is_given_up(edit: Edit, tmp_path: Path) -> None:
    path = tmp_path / "f"
    path.write_text("a 0")
    before = files.load
    calls: list[int] = []

    def load(where: files.Target) -> bytes | None:
        calls.append(1)
        path.write_text(f"a {len(calls)}")
        return before(where)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(files, "load", load)
        with pytest.raises(ToolError, match="being changed by another program"):
            call(edit, path="f", edits=[pair("a", "z")])
    assert [each.name for each in tmp_path.iterdir()] == ["f"]


def test_a_lock_that_is_held_is_waited_for(
    edit: Edit, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "f").write_text("a")
    fd = os.open(tmp_path, os.O_RDONLY)
    fcntl.flock(fd, fcntl.LOCK_EX)
    try:
        monkeypatch.setattr(files, "LOCK_SECONDS", 0.05)
        with pytest.raises(ToolError, match="holds a lock"):
            call(edit, path="f", edits=[pair("a", "b")])
        cancel = Cancel()
        cancel.set()
        with pytest.raises(Cancelled):
            call(edit, path="f", edits=[pair("a", "b")], cancel=cancel)
        monkeypatch.setattr(files, "LOCK_SECONDS", 30.0)
        threading.Timer(0.1, os.close, [fd]).start()
        call(edit, path="f", edits=[pair("a", "b")])
    finally:
        try:
            os.close(fd)
        except OSError:
            pass
    assert (tmp_path / "f").read_text() == "b"


AGENT = """
import sys
from zot.tools.edit.edit import Edit
from zot.tools.place import Place
from zot.cancel import Cancel
from zot.core.tool import ToolContext
folder, name, count = sys.argv[1], sys.argv[2], int(sys.argv[3])
context = ToolContext(call_id="1", cancel=Cancel(), progress=lambda text: None)
for number in range(count):
    edit = {"oldText": f"{name} {number}.", "newText": f"{name} {number + 1}."}
    Edit(Place(folder, {})).run({"path": "f", "edits": [edit]}, context)
"""


def test_two_processes_that_edit_one_file_lose_no_update(tmp_path: Path) -> None:
    (tmp_path / "f").write_text("left 0.\nright 0.\n")
    agents = [
        subprocess.Popen([sys.executable, "-c", AGENT, str(tmp_path), name, "60"])
        for name in ("left", "right")
    ]
    assert [agent.wait(60) for agent in agents] == [0, 0]
    assert (tmp_path / "f").read_text() == "left 60.\nright 60.\n"
    assert [each.name for each in tmp_path.iterdir()] == ["f"]


@pytest.fixture
def shared_place() -> Iterator[Path]:
    """A directory that another user can reach; what runs in the test is that other user."""
    if os.geteuid() != 0:
        pytest.skip("only root can become someone else")
    place = Path(tempfile.mkdtemp())
    place.chmod(0o755)
    yield place
    os.seteuid(0)
    shutil.rmtree(place)


NOBODY = 65534


def test_a_file_in_a_directory_that_cannot_be_written_is_written_in_place(
    shared_place: Path,
) -> None:
    path = shared_place / "f"
    path.write_text("a long text\n")
    os.chown(path, NOBODY, NOBODY)
    os.seteuid(NOBODY)
    call(Edit(place_at(str(shared_place))), path="f", edits=[pair("a long text", "short")])
    assert path.read_text() == "short\n"


def test_a_file_of_someone_else_keeps_its_owner(shared_place: Path) -> None:
    shared_place.chmod(0o777)
    path = shared_place / "f"
    path.write_text("a")
    path.chmod(0o666)
    os.seteuid(NOBODY)
    call(Edit(place_at(str(shared_place))), path="f", edits=[pair("a", "b")])
    assert path.read_text() == "b"
    assert path.stat().st_uid == 0
    assert [each.name for each in shared_place.iterdir()] == ["f"]


def test_a_read_only_file_stays_as_it_is(shared_place: Path) -> None:
    shared_place.chmod(0o777)
    path = shared_place / "f"
    path.write_text("a")
    path.chmod(0o444)
    os.seteuid(NOBODY)
    with pytest.raises(ToolError, match="permission denied"):
        call(Edit(place_at(str(shared_place))), path="f", edits=[pair("a", "b")])
    with pytest.raises(ToolError, match="permission denied"):
        call(Write(place_at(str(shared_place))), path="f", content="b")
    assert path.read_text() == "a"
    shared_place_only = shared_place / "closed"
    os.seteuid(0)
    shared_place_only.mkdir(0o755)
    os.seteuid(NOBODY)
    for path_argument in ("closed/new", "closed/deep/new"):
        with pytest.raises(ToolError, match="permission denied"):
            call(Write(place_at(str(shared_place))), path=path_argument, content="b")


def test_a_file_that_appears_meanwhile_is_not_overwritten_blindly(tmp_path: Path) -> None:
    before = files.load
    calls: list[int] = []

    def load(where: files.Target) -> bytes | None:
        calls.append(1)
        content = before(where)
        if len(calls) == 1:
            where.path.write_text("theirs\r\n")
        return content

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(files, "load", load)
        output = call(Write(place_at(str(tmp_path))), path="f", content="ours\n")
    assert "-theirs\n+ours" in text(output)
    assert (tmp_path / "f").read_bytes() == b"ours\r\n"


def test_file_systems_without_hard_links_or_locks(
    edit: Edit, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*args: object, **named: object) -> None:
        raise OSError(errno.ENOTSUP, "not supported")

    monkeypatch.setattr(os, "link", refuse)
    monkeypatch.setattr(fcntl, "flock", refuse)
    call(Write(place_at(str(tmp_path))), path="f", content="a")
    call(edit, path="f", edits=[pair("a", "b")])
    assert (tmp_path / "f").read_text() == "b"


def test_a_full_disk_leaves_the_old_file_and_nothing_else(
    edit: Edit, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "f").write_text("a")

    def full(fd: int) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(ToolError, match="no space left on device"):
        call(edit, path="f", edits=[pair("a", "b")])
    assert (tmp_path / "f").read_text() == "a"
    assert [each.name for each in tmp_path.iterdir()] == ["f"]


# --- properties ------------------------------------------------------------------------------

ENDINGS = st.sampled_from(["\n", "\r\n"])
WORDS = st.text(alphabet="ab \té", max_size=6)
TEXTS = st.lists(st.tuples(WORDS, ENDINGS), max_size=8).map(
    lambda lines: "".join(word + ending for word, ending in lines)
)


@given(TEXTS, WORDS, TEXTS, TEXTS, TEXTS)
def test_an_edit_is_a_replacement_and_touches_nothing_else(
    before: str, word: str, after: str, old: str, new: str
) -> None:
    marked_old, marked_new = f"<{old}>", f"[{new}]"
    content = f"{before}{word}{marked_old}{after}".encode()
    edited = apply(content, [Replacement(_lf(marked_old), _lf(marked_new))], "f").content
    head, tail = f"{before}{word}".encode(), after.encode()
    assert edited.startswith(head)
    assert edited.endswith(tail)
    middle = edited[len(head) : len(edited) - len(tail)]
    assert middle.replace(b"\r\n", b"\n") == _lf(marked_new)
    if b"\r\n" not in content:
        assert edited == content.replace(marked_old.encode(), _lf(marked_new))
    if content.count(b"\n") == content.count(b"\r\n") > 0:
        assert middle.count(b"\n") == middle.count(b"\r\n")


@given(TEXTS, st.lists(st.tuples(WORDS, WORDS), min_size=1, max_size=4))
def test_many_edits_are_the_same_in_any_order(content: str, words: list[tuple[str, str]]) -> None:
    marks = [(f"<{n}:{old}>", f"[{n}:{new}]") for n, (old, new) in enumerate(words)]
    text = content + "".join(f"{old}\n" for old, _ in marks)
    edits = [Replacement(old.encode(), new.encode()) for old, new in marks]
    expected = text
    for old, new in marks:
        expected = expected.replace(old, new)
    assert apply(text.encode(), edits, "f").content == expected.encode()
    assert apply(text.encode(), edits[::-1], "f").content == expected.encode()


@given(st.binary(max_size=60))
def test_positions_lead_back_to_the_original(data: bytes) -> None:
    content = Normalized(data)
    rebuilt = b"".join(
        data[content.original(at) : content.original(at + 1)] for at in range(len(content.text))
    )
    assert rebuilt == data
    assert content.replace([]) == data


@given(TEXTS, TEXTS)
def test_a_diff_shows_every_change(before: str, after: str) -> None:
    rows, line = diff(_lf(before).decode(), _lf(after).decode())
    old = [row[1:] for row in rows.split("\n") if row.startswith("-")]
    new = [row[1:] for row in rows.split("\n") if row.startswith("+")]
    assert (rows == "") == (_lf(before) == _lf(after))
    assert len(new) - len(old) == len(_lf(after).split(b"\n")) - len(_lf(before).split(b"\n"))
    assert (line == 0) == (rows == "")


def _lf(value: str) -> bytes:
    return value.replace("\r\n", "\n").encode()
