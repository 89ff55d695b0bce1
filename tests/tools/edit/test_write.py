import os
import stat
import subprocess
import sys
from pathlib import Path

import pytest
from support.tools import call, text

from tests.support.around import place_at
from zot.cancel import Cancel
from zot.errors import Cancelled, ToolError
from zot.tools.edit.edit import Write


@pytest.fixture
def write(tmp_path: Path) -> Write:
    return Write(place_at(str(tmp_path)))


def test_a_new_file_and_its_directories_are_created(write: Write, tmp_path: Path) -> None:
    output = call(write, path="a/b/c.txt", content="one\ntwo")
    assert (tmp_path / "a/b/c.txt").read_bytes() == b"one\ntwo"
    assert text(output) == "created a/b/c.txt (2 lines, 7 bytes)"
    assert output.details["created"] and output.details["diff"].startswith("+one\n+two")


def test_a_new_file_has_the_mode_that_the_umask_gives(write: Write, tmp_path: Path) -> None:
    before = os.umask(0o027)
    try:
        call(write, path="f", content="x")
    finally:
        os.umask(before)
    assert stat.S_IMODE((tmp_path / "f").stat().st_mode) == 0o640


def test_overwriting_reports_a_diff_and_not_the_content(write: Write, tmp_path: Path) -> None:
    (tmp_path / "f").write_text("".join(f"{n}\n" for n in range(1, 21)))
    content = "".join(f"{n}\n" for n in range(1, 21)).replace("10\n", "ten\n")
    output = call(write, path="f", content=content)
    assert text(output) == (
        "overwrote f (20 lines, 52 bytes)\n... 6\n 7\n 8\n 9\n-10\n+ten\n 11\n 12\n 13\n... 7"
    )
    assert output.details is not None
    assert output.details["first_changed_line"] == 10


def test_the_same_content_is_said_to_be_the_same(write: Write, tmp_path: Path) -> None:
    (tmp_path / "f").write_text("x\n")
    before = (tmp_path / "f").stat()
    assert (
        text(call(write, path="f", content="x\n"))
        == "f already had this content (1 lines, 2 bytes)"
    )
    assert (tmp_path / "f").stat().st_mtime_ns == before.st_mtime_ns


def test_an_empty_file_can_be_written(write: Write, tmp_path: Path) -> None:
    assert text(call(write, path="f", content="")) == "created f (0 lines, 0 bytes)"
    assert (tmp_path / "f").read_bytes() == b""


def test_mode_crlf_and_bom_of_an_existing_file_are_kept(write: Write, tmp_path: Path) -> None:
    (tmp_path / "f").write_bytes(b"\xef\xbb\xbfone\r\ntwo\r\n")
    (tmp_path / "f").chmod(0o755)
    call(write, path="f", content="1\n2\n3")
    assert (tmp_path / "f").read_bytes() == b"\xef\xbb\xbf1\r\n2\r\n3"
    assert stat.S_IMODE((tmp_path / "f").stat().st_mode) == 0o755


def test_symlinks_are_written_through(write: Write, tmp_path: Path) -> None:
    (tmp_path / "real").mkdir()
    (tmp_path / "real/f").write_text("old")
    (tmp_path / "link").symlink_to("real/f")
    (tmp_path / "dangling").symlink_to("real/new")
    call(write, path="link", content="new")
    call(write, path="dangling", content="made")
    assert (tmp_path / "link").is_symlink()
    assert (tmp_path / "real/f").read_text() == "new"
    assert (tmp_path / "real/new").read_text() == "made"


def test_no_temporary_file_is_left(write: Write, tmp_path: Path) -> None:
    call(write, path="f", content="a")
    call(write, path="f", content="b")
    assert [path.name for path in tmp_path.iterdir()] == ["f"]


def test_a_name_of_full_length_can_be_written(write: Write, tmp_path: Path) -> None:
    name = "n" * 255
    call(write, path=name, content="a")
    call(write, path=name, content="b")
    assert (tmp_path / name).read_text() == "b"
    with pytest.raises(ToolError, match="name too long"):
        call(write, path="n" * 256, content="a")


def test_half_a_character_does_not_raise(write: Write, tmp_path: Path) -> None:
    call(write, path="f", content="a\ud800b")
    assert (tmp_path / "f").read_text() == "a\ufffdb"


@pytest.mark.parametrize(
    ("path", "said"),
    [
        ("dir", "it is a directory"),
        ("file/x", "a part of the path is a file"),
        ("file/x/y", "a part of the path is a file"),
        ("pipe", "it is a named pipe"),
        ("/dev/null", "it is a device"),
        ("loop", "lead in a circle"),
        ("a\0b", "NUL"),
        ("", "path is required"),
        ("/proc/nope/x", "cannot"),
    ],
)
def test_what_cannot_be_written(write: Write, tmp_path: Path, path: str, said: str) -> None:
    (tmp_path / "dir").mkdir()
    (tmp_path / "file").write_text("x")
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "loop").symlink_to("loop")
    with pytest.raises(ToolError, match=said):
        call(write, path=path, content="y")
    assert (tmp_path / "file").read_text() == "x"


def test_content_is_required(write: Write) -> None:
    with pytest.raises(ToolError, match="content is required"):
        call(write, path="f")


def test_an_aborted_turn_writes_nothing(write: Write, tmp_path: Path) -> None:
    cancel = Cancel()
    cancel.set()
    with pytest.raises(Cancelled):
        call(write, path="d/f", content="x", cancel=cancel)
    assert not list(tmp_path.iterdir())


def test_a_large_replacement_has_a_short_diff(write: Write, tmp_path: Path) -> None:
    (tmp_path / "f").write_text("".join(f"old {n}\n" for n in range(20_000)))
    output = text(call(write, path="f", content="".join(f"new {n}\n" for n in range(20_000))))
    assert "rows left out]" in output
    assert output.count("\n") < 210


@pytest.mark.slow
@pytest.mark.parametrize("parts", [1500, 5000])
def test_a_path_of_many_parts_is_made_or_refused(write: Write, tmp_path: Path, parts: int) -> None:
    path = "a/" * parts + "f"
    try:
        if parts == 1500:
            call(write, path=path, content="deep")
            assert (tmp_path / path).read_text() == "deep"
        else:
            with pytest.raises(ToolError, match="cannot write .*: file name too long"):
                call(write, path=path, content="deep")
    finally:
        subprocess.run(["rm", "-rf", tmp_path / "a"], check=True)  # too deep for what cleans up


FULL = """
import os, subprocess, sys
from pathlib import Path
from zot.cancel import Cancel
from zot.core.tool import ToolContext
from zot.errors import ToolError
from zot.tools.edit import files
from zot.tools.place import Place
from zot.tools.edit.edit import Write
folder = Path(sys.argv[1])
subprocess.run(["mount", "-t", "tmpfs", "-o", "size=256k", "none", folder], check=True)
def greedy(fd, data, at, pwrite=os.pwrite):
    try:
        with open(folder / "other", "ab", 0) as other:
            while other.write(b"x" * 4096):
                pass
    except OSError:
        pass
    return pwrite(fd, data, at)
if sys.argv[2] == "fills up meanwhile":
    files._reserve = lambda fd, size: None
    os.pwrite = greedy
old = "old\\n" * 10_000
(folder / "f").write_text(old)
(folder / "g").hardlink_to(folder / "f")
for size in (300_000, 270_000, 60_000):
    try:
        context = ToolContext("1", Cancel(), lambda text: None)
        Write(Place(str(folder), {})).run({"path": "f", "content": "new!" * (size // 4)}, context)
        print("written", (folder / "g").stat().st_size)
    except ToolError as error:
        print(error, (folder / "g").read_text() == old)
"""


@pytest.mark.skipif(os.getuid() != 0, reason="mounts a small file system")
@pytest.mark.parametrize("moment", ["was full before", "fills up meanwhile"])
def test_a_file_with_two_names_survives_a_full_disk(tmp_path: Path, moment: str) -> None:
    ran = subprocess.run(
        ["unshare", "--mount", sys.executable, "-c", FULL, tmp_path, moment],
        capture_output=True,
        text=True,
    )
    if "Operation not permitted" in ran.stderr:
        pytest.skip("no mounts here")
    path = str(tmp_path / "f")
    lost = f"cannot write {path!r}: no space left on device True"
    last = "written 60000" if moment == "was full before" else lost
    assert ran.stdout.splitlines() == [lost, lost, last], ran.stderr
