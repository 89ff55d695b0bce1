import os
import socket
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from support.tools import call, text

from tests.support.around import place_at
from zot.cancel import Cancel
from zot.errors import Cancelled, ToolError
from zot.provider.types import Image
from zot.tools import read as read_module
from zot.tools.place import Place
from zot.tools.process.supervisor import Supervisor
from zot.tools.read import Read
from zot.tools.search.glob import Glob
from zot.tools.search.grep import Grep

PNG = b"\x89PNG\r\n\x1a\n" + b"\0" * 50


@pytest.fixture
def read(tmp_path: Path) -> Read:
    return Read(place_at(str(tmp_path)))


def test_a_file_is_returned_line_by_line(read: Read, tmp_path: Path) -> None:
    (tmp_path / "f").write_text("one\ntwo\n")
    assert text(call(read, path="f")) == "one\ntwo\n"


def test_a_window_says_how_to_read_on(read: Read, tmp_path: Path) -> None:
    (tmp_path / "f").write_text("".join(f"{n}\n" for n in range(1, 11)))
    assert text(call(read, path="f", offset=3, limit=2)) == (
        "3\n4\n\n... [lines 3-4 of 10; read on with offset=5]"
    )
    assert text(call(read, path="f", offset=9, limit=2)) == "9\n10\n"
    assert text(call(read, path="f", offset=9)) == "9\n10\n"


def test_at_most_2000_lines(read: Read, tmp_path: Path) -> None:
    (tmp_path / "f").write_text("".join(f"{n}\n" for n in range(1, 5001)))
    output = text(call(read, path="f", limit=4000))
    assert output.endswith(
        "\n2000\n\n... [lines 1-2000 of 5000, cut at 2000 lines or 51200 bytes;"
        " read on with offset=2001]"
    )


def test_at_most_50_kilobytes_of_whole_lines(read: Read, tmp_path: Path) -> None:
    (tmp_path / "f").write_text(("é" * 500 + "\n") * 300)
    output = text(call(read, path="f"))
    body, note = output.split("\n\n... ")
    assert all(len(line) == 500 for line in body.split("\n"))
    assert len(body.encode()) <= 51_200
    assert note.endswith("read on with offset=52]")
    assert text(call(read, path="f", offset=300)) == "é" * 500 + "\n"


def test_a_line_that_is_too_long_is_cut_between_characters(read: Read, tmp_path: Path) -> None:
    (tmp_path / "f").write_text("a\n" + "x" + "é" * 40_000 + "\nlast")
    output = text(call(read, path="f", offset=2))
    assert output.startswith("xéé")
    assert "\ufffd" not in output
    assert "... [line 2 has 80001 bytes; the first 51199 are shown." in output
    assert "... [lines 2-2 of 3, cut at" in output
    assert "read on with offset=3]" in output
    assert text(call(read, path="f")).startswith("a\n\n... [lines 1-1 of 3")


@pytest.mark.slow
def test_a_huge_sparse_line_is_bounded(read: Read, tmp_path: Path) -> None:
    with (tmp_path / "f").open("wb") as file:
        file.write(b"start" * 2000)
        file.truncate(1 << 28)
    output = text(call(read, path="f"))
    assert len(output) < 52_000
    assert f"line 1 has {1 << 28} bytes" in output


def test_a_huge_file_is_not_counted_to_its_end(
    read: Read, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(read_module, "COUNT_LIMIT", 1000)
    (tmp_path / "f").write_text("x\n" * 5_000_000)
    output = text(call(read, path="f", offset=4_000_000, limit=1))
    assert output == "x\n\n... [lines 4000000-4000000; read on with offset=4000001]"


def test_a_search_for_a_line_gives_up_in_time(
    read: Read, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(read_module, "SCAN_SECONDS", -1.0)
    (tmp_path / "f").write_text("x\n" * 100_000)
    with pytest.raises(ToolError, match="gave up"):
        call(read, path="f", offset=90_000)


def test_abort_ends_a_long_search(read: Read, tmp_path: Path) -> None:
    (tmp_path / "f").write_text("x\n" * 100_000)
    cancel = Cancel()
    cancel.set()
    with pytest.raises(Cancelled):
        call(read, path="f", offset=90_000, cancel=cancel)


def test_an_offset_past_the_end_says_how_long_the_file_is(read: Read, tmp_path: Path) -> None:
    (tmp_path / "f").write_text("a\nb\nc")
    with pytest.raises(ToolError, match="offset 9 is past the end: f has 3 lines"):
        call(read, path="f", offset=9)
    (tmp_path / "f").write_text("a\nb\n")
    with pytest.raises(ToolError, match="has 2 lines"):
        call(read, path="f", offset=3)


def test_an_empty_file_is_said_to_be_empty(read: Read, tmp_path: Path) -> None:
    (tmp_path / "f").write_text("")
    assert text(call(read, path="f")) == "... [the file is empty]"


def test_crlf_and_bom_are_not_shown(read: Read, tmp_path: Path) -> None:
    (tmp_path / "f").write_bytes(b"\xef\xbb\xbfone\r\ntwo\r\n")
    assert text(call(read, path="f")) == "one\ntwo\n"


def test_invalid_utf8_and_a_late_nul_are_replaced(read: Read, tmp_path: Path) -> None:
    (tmp_path / "f").write_bytes(b"a\xffb\n" + b"x" * 9000 + b"\0\n")
    output = text(call(read, path="f"))
    assert output.startswith("a\ufffdb\n")
    assert "\0" not in output


def test_binary_and_utf16_are_refused(read: Read, tmp_path: Path) -> None:
    (tmp_path / "f").write_bytes(b"\x7fELF\0\0")
    with pytest.raises(ToolError, match="f looks binary; refusing to read as text"):
        call(read, path="f")
    (tmp_path / "f").write_text("hello", encoding="utf-16")
    with pytest.raises(ToolError, match="UTF-16"):
        call(read, path="f")


@pytest.mark.parametrize(
    ("data", "mime"),
    [
        (PNG, "image/png"),
        (b"\xff\xd8\xff\xe0" + b"\0" * 20, "image/jpeg"),
        (b"GIF89a" + b"\0" * 20, "image/gif"),
        (b"RIFF\0\0\0\0WEBPVP8 ", "image/webp"),
    ],
)
def test_an_image_is_known_by_its_content(
    read: Read, tmp_path: Path, data: bytes, mime: str
) -> None:
    (tmp_path / "wrong.txt").write_bytes(data)
    output = call(read, path="wrong.txt")
    assert output.content[-1] == Image(mime_type=mime, data=data)


def test_text_named_like_an_image_is_text(read: Read, tmp_path: Path) -> None:
    (tmp_path / "x.png").write_text("not a picture\n")
    assert text(call(read, path="x.png")) == "not a picture\n"


def test_an_image_that_is_too_large_is_refused(read: Read, tmp_path: Path) -> None:
    (tmp_path / "x.png").write_bytes(PNG + b"\0" * 4_000_000)
    with pytest.raises(ToolError, match="at most 3750000 can be sent"):
        call(read, path="x.png")


def test_directories_pipes_sockets_and_devices_are_refused(
    read: Read, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    os.mkfifo(tmp_path / "pipe")
    with socket.socket(socket.AF_UNIX) as server:
        monkeypatch.chdir(tmp_path)  # the name of a socket must be short
        server.bind("socket")
    for path, said in {
        ".": "is a directory",
        "pipe": "a named pipe",
        "socket": "a socket",
        "/dev/zero": "a device",
    }.items():
        with pytest.raises(ToolError, match=said):
            call(read, path=path)


def test_a_missing_file_names_near_ones(read: Read, tmp_path: Path) -> None:
    (tmp_path / "README.md").write_text("")
    (tmp_path / "src").mkdir()
    with pytest.raises(ToolError, match=r"did you mean 'README\.md'"):
        call(read, path="readme.mdx")
    with pytest.raises(ToolError, match=r"^no such file: '.*qqq'$"):
        call(read, path="qqq")
    with pytest.raises(ToolError, match="'src' is the last part of it that exists"):
        call(read, path="src/x/y/z")
    with pytest.raises(ToolError, match="a part of the path is a file"):
        call(read, path="README.md/x")
    (tmp_path / "dangling").symlink_to("gone")
    with pytest.raises(ToolError, match="a symlink to 'gone'"):
        call(read, path="dangling")


def test_a_symlink_loop_is_an_error(read: Read, tmp_path: Path) -> None:
    (tmp_path / "loop").symlink_to("loop")
    with pytest.raises(ToolError, match="cannot read"):
        call(read, path="loop")


def test_files_of_proc_have_no_size_but_content(read: Read) -> None:
    assert "Name:" in text(call(read, path="/proc/self/status"))


def test_home_is_expanded(read: Read, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    (tmp_path / "f").write_text("mine\n")
    assert text(call(read, path="~/f")) == "mine\n"
    with pytest.raises(ToolError, match="no such file"):
        call(read, path="~nobody-has-this-name/f")


def test_home_is_that_of_the_agent_and_not_of_the_process(tmp_path: Path) -> None:
    one, two = (Place(str(tmp_path), {"HOME": home}) for home in ("/one", "/two"))
    assert [str(place.resolve("~/f")) for place in (one, two)] == ["/one/f", "/two/f"]


def test_dots_after_a_symlink_mean_what_the_system_says(read: Read, tmp_path: Path) -> None:
    (tmp_path / "real/deep").mkdir(parents=True)
    (tmp_path / "real/f").write_text("real\n")
    (tmp_path / "f").write_text("top\n")
    (tmp_path / "link").symlink_to("real/deep")
    assert text(call(read, path="link/../f")) == "real\n"
    assert text(call(read, path="real/../f")) == "top\n"


@pytest.mark.parametrize("path", [None, "", 5, "a\0b", "half \ud800"])
def test_impossible_paths_are_refused(read: Read, path: object) -> None:
    with pytest.raises(ToolError, match="path"):
        call(read, path=path)


@pytest.mark.parametrize("args", [{"offset": -1}, {"limit": -5}, {"offset": 1.5}, {"limit": "x"}])
def test_impossible_windows_are_refused(
    read: Read, tmp_path: Path, args: dict[str, object]
) -> None:
    (tmp_path / "f").write_text("x")
    with pytest.raises(ToolError, match="positive whole number"):
        call(read, path="f", **args)


def test_a_file_one_may_not_read(read: Read, tmp_path: Path) -> None:
    if os.geteuid() == 0:
        pytest.skip("root may read everything")
    (tmp_path / "f").write_text("x")
    (tmp_path / "f").chmod(0)
    with pytest.raises(ToolError, match="permission denied"):
        call(read, path="f")
    (tmp_path / "d").mkdir()
    (tmp_path / "d").chmod(0)
    try:
        for path in ("d/x", "d/x/../y"):
            with pytest.raises(ToolError, match="permission denied"):
                call(read, path=path)
        for tool in (Glob(place_at(str(tmp_path))), Grep(place_at(str(tmp_path)), Supervisor())):
            with pytest.raises(ToolError, match="permission denied"):
                call(tool, pattern="x", path="d/x")
    finally:
        (tmp_path / "d").chmod(0o700)


@settings(deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    st.lists(st.text(st.characters(exclude_characters="\r\n\0\ufeff", codec="utf-8"), max_size=8)),
    st.booleans(),
    st.integers(1, 12),
    st.integers(1, 12),
    st.integers(1, 16),
)
def test_any_window_is_the_lines_of_the_file(
    tmp_path: Path, lines: list[str], final: bool, offset: int, limit: int, chunk: int
) -> None:
    data = "\n".join(lines) + ("\n" if final else "")
    (tmp_path / "f").write_bytes(data.encode())
    expected = data.split("\n")
    if expected[-1] == "":
        expected.pop()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(read_module, "CHUNK", chunk)
        patch.setattr(read_module, "SNIFF", 4)
        try:
            output = text(call(Read(place_at(str(tmp_path))), path="f", offset=offset, limit=limit))
        except ToolError as error:
            assert "past the end" in str(error)
            assert f"has {len(expected)} lines" in str(error)
            assert offset > len(expected)
            return
    window = expected[offset - 1 : offset - 1 + limit]
    body = "\n".join(window) + "\n"
    if not data:
        assert output == "... [the file is empty]"
    elif offset - 1 + limit < len(expected):
        last = offset + limit - 1
        assert output == (
            f"{body}\n... [lines {offset}-{last} of {len(expected)};"
            f" read on with offset={last + 1}]"
        )
    else:
        assert output == body
