import os
import re
import stat
import time
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from zot.tools.process import output
from zot.tools.process.output import Capture, Decoder, Live, clean

PIECES = st.lists(
    st.one_of(
        st.binary(max_size=5),
        st.text(max_size=5).map(lambda text: text.encode("utf-8", "replace")),
        st.sampled_from(
            [b"\x1b[31m", b"\x1b]0;t\x07", b"\x1b(B", b"\x1b", b"\r\n", b"\x1b]x\x1b\\"]
        ),
    ),
    max_size=12,
).map(b"".join)


def split(data: bytes, cuts: list[int]) -> list[bytes]:
    edges = sorted({cut % (len(data) + 1) for cut in cuts} | {0, len(data)})
    return [data[a:b] for a, b in zip(edges, edges[1:], strict=False)]


@pytest.mark.untraced
@given(PIECES, st.lists(st.integers(0, 500), max_size=8))
def test_the_pieces_make_the_same_text_as_the_whole(data: bytes, cuts: list[int]) -> None:
    decoder = Decoder()
    pieces = [decoder.feed(piece) for piece in split(data, cuts)]
    pieces.append(decoder.feed(b"", final=True))
    assert "".join(pieces) == clean(data.decode("utf-8", "replace"))


@pytest.mark.untraced
@given(PIECES)
def test_no_control_character_passes(data: bytes) -> None:
    shown = clean(data.decode("utf-8", "replace"))
    assert re.search(r"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f]", shown) is None


def test_an_escape_sequence_without_end_is_not_held_for_ever() -> None:
    decoder = Decoder()
    shown = "".join(decoder.feed(b"\x1b]0;" + b"x" * 50) for _ in range(100))
    assert len(shown) > 4000


@settings(deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    st.lists(st.sampled_from([b"a", b"\n", b"line\n", "é".encode(), b"\xff", b"0123456789"])),
    st.lists(st.integers(0, 500), max_size=5),
    st.integers(2, 12),
    st.integers(8, 60),
)
def test_what_is_kept_is_the_beginning_and_the_end(
    tmp_path: Path, parts: list[bytes], cuts: list[int], lines: int, size: int
) -> None:
    data = b"".join(parts)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(output, "MAX_LINES", lines)
        patch.setattr(output, "MAX_BYTES", size)
        capture = Capture(tmp_path)
        for piece in split(data, cuts):
            capture.feed(piece)
        capture.close()
        shown = capture.text()
    whole = data.decode("utf-8", "replace")
    if len(data) <= size and data.count(b"\n") <= lines:
        assert shown == whole
        assert capture.path is None
        return
    assert capture.path is not None
    assert capture.path.read_bytes() == data
    capture.path.unlink()
    head, note, tail = re.split(r"\n\.\.\. \[(\d+ lines, \d+ bytes left out.*)\]\n\n", shown)
    left_out = int(re.findall(r"(\d+) bytes", note)[0])
    head = head if whole.startswith(head) else head.removesuffix("\n")
    assert whole.startswith(head)
    assert whole.endswith(tail)
    assert 0 < left_out <= len(data)
    if b"\xff" not in data:
        # A newline that was added after half a line can look like the one that was cut off.
        added = len(head.encode()) + len(tail.encode()) + left_out - len(data)
        assert added == 0 or (added == 1 and head.endswith("\n"))
    assert head.count("\n") <= lines // 2
    assert tail.count("\n") <= lines // 2 + 1


def test_the_file_ends_at_its_limit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(output, "MAX_FILE", 100_000)
    capture = Capture(tmp_path)
    for _ in range(10):
        capture.feed(b"x" * 30_000)
    capture.close()
    assert capture.path is not None
    assert capture.path.stat().st_size == 100_000
    assert "(only the first 100000 bytes)" in capture.text()


def test_a_disk_that_fills_up_is_said(tmp_path: Path) -> None:
    capture = Capture(tmp_path)
    capture.feed(b"x" * 60_000)
    os.dup2(os.open("/dev/full", os.O_WRONLY), capture._fd)
    capture.feed(b"y" * 60_000)
    capture.feed(b"z" * 60_000)
    capture.close()
    assert "(not complete: No space left on device)" in capture.text()


def test_progress_is_complete_up_to_its_limit_and_then_now_and_then() -> None:
    pieces: list[str] = []
    live = Live(pieces.append)
    for _ in range(4):
        live.feed(b"a" * 65_536)
    assert "".join(pieces) == "a" * 262_144
    live.feed(b"b" * 65_536)
    live.feed("é".encode() * 30_000)
    live.feed(b"c" * 100)
    live.end()
    shown = "".join(pieces)[262_144:]
    assert shown.startswith("\n[... 61440 bytes not shown ...]\n" + "b" * 4096)
    assert shown.endswith("\n[... 60100 bytes not shown ...]\n")


def test_a_gap_never_begins_inside_a_character(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(output, "SHOWN", 0)
    pieces: list[str] = []
    live = Live(pieces.append)
    live.feed("é".encode() * 3000 + b"x")
    live.end()
    assert "\ufffd" not in "".join(pieces)


def test_a_secret_does_not_get_into_the_file_however_it_is_cut(tmp_path: Path) -> None:
    secret = "sk-canary-0123456789"
    data = b" " + secret.encode() + b" end sk-can"
    for size in (1, 7, 19, 5000):
        capture = Capture(tmp_path, [secret, "another-canary"])
        capture.feed(b"x" * 60_000)
        for at in range(0, len(data), size):
            capture.feed(data[at : at + size])
        capture.close()
        assert capture.path is not None
        assert capture.path.read_bytes() == b"x" * 60_000 + b" [secret removed] end sk-can"
        assert stat.S_IMODE(capture.path.stat().st_mode) == 0o600


def test_old_files_are_removed_with_the_next_one(tmp_path: Path) -> None:
    for name, days in (("zot-bash-old.log", 8), ("zot-bash-new.log", 6), ("other.log", 8)):
        (tmp_path / name).write_text("x")
        then = time.time() - days * 86_400
        os.utime(tmp_path / name, (then, then))
    capture = Capture(tmp_path)
    capture.feed(b"x" * 60_000)
    capture.close()
    left = {path.name for path in tmp_path.iterdir()} - {capture.path.name if capture.path else ""}
    assert left == {"zot-bash-new.log", "other.log"}
