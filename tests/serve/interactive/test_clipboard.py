"""Images and files in the text: dropped, pasted, shown. The whole program in a pty."""

import json
from urllib.parse import quote

import pytest
from tui.test_pictures import png

from zot.serve.interactive.clipboard import MAX_IMAGE, dropped_paths

HELLO = [{"text": "Hello there", "repeat": True}]


def pasted(text):
    return f"\x1b[200~{text}\x1b[201~"


@pytest.fixture
def files(tmp_path):
    folder = tmp_path / "dropped"
    folder.mkdir()
    (folder / "plain.txt").write_text("x")
    (folder / "with blank.txt").write_text("x")
    (folder / "it's.txt").write_text("x")
    (folder / "shot.png").write_bytes(png(640, 480))
    return folder


def test_names_of_files_that_were_dropped_are_told_from_text(files):
    plain, blank, odd = (files / name for name in ("plain.txt", "with blank.txt", "it's.txt"))
    home = str(files)
    for text, expected in (
        (f"{plain}", [plain]),
        (f"{plain}\n", [plain]),
        (f"{blank}", [blank]),
        (f"'{blank}'", [blank]),
        (f'"{blank}" {plain}', [blank, plain]),
        (f"{str(blank).replace(' ', chr(92) + ' ')} {plain} ", [blank, plain]),
        (f"{str(odd).replace(chr(39), chr(92) + chr(39))}", [odd]),
        (f"{blank}\n{plain}", [blank, plain]),
        (f"file://{quote(str(blank))}", [blank]),
        (f"file://localhost{quote(str(blank))}\r\nfile://{plain}", [blank, plain]),
        ("~/plain.txt", [f"{home}/plain.txt"]),
        (f"{plain} and more", []),
        ("plain.txt", []),
        ("/", []),
        ("/no/such/file", []),
        (f"file://elsewhere{plain}", []),
        ("'open quote", []),
        ("", []),
        (f"{plain}\x1b[2J", []),
    ):
        assert dropped_paths(text, home) == [str(path) for path in expected], text


def test_dropped_files_are_mentioned_and_images_go_along(at_terminal, files, tmp_path):
    program = at_terminal(HELLO)
    program.until("scripted")
    program.type(pasted(f"{files / 'plain.txt'} '{files / 'with blank.txt'}' {files / 'shot.png'}"))
    shown = program.until("[image 1: 640x480]")
    text = "".join(line.rstrip() if line.startswith("❯") else line.strip() for line in shown.lines)
    assert "plain.txt" in text
    assert '@"' in text
    program.type("\x7f\x7f")  # the blank, and the chip as one letter
    program.until(lambda shown: "[image 1" not in shown.text)
    program.type("\x1f")
    program.until("[image 1: 640x480]")
    program.type("what is it?\r")
    program.until("Hello")
    messages = session_messages(tmp_path)
    assert [set(part) for part in messages[0]["content"]] == [{"text"}, {"mime_type", "data"}]


def session_messages(tmp_path):
    (path,) = (tmp_path / "zot" / "sessions").rglob("*.jsonl")
    rows = [json.loads(line) for line in path.read_text().splitlines()]
    return [row["message"] for row in rows if row.get("type") == "message"]


def test_an_image_waits_with_its_text_and_can_be_taken_back(at_terminal, files, tmp_path):
    slow = [{"text": [f"w{number} " for number in range(300)], "delay_ms": 20}, *HELLO]
    program = at_terminal(slow, "go on")
    program.until("w3")
    program.type(pasted(str(files / "shot.png")) + "see\r")
    program.until("next: [image 1")
    program.type("\x1b[1;3A")
    program.until("❯ [image 1: 640x480] see")
    program.type("\x1b")
    program.until("stopped")
    program.type("\r")
    program.until("Hello")
    assert session_messages(tmp_path)[-2]["content"][1]["mime_type"] == "image/png"


def test_an_image_that_is_too_large_is_named_with_its_size(at_terminal, tmp_path):
    large = tmp_path / "large.png"
    large.write_bytes(png(8, 8) + bytes(MAX_IMAGE))
    program = at_terminal(HELLO)
    program.until("scripted")
    program.type(pasted(str(large)))
    program.until("make it smaller first")


def fake_clipboard(tmp_path, image=None, text="", hangs=False):
    """An xclip that has these."""
    folder = tmp_path / "bin"
    folder.mkdir()
    if image is not None:
        (folder / "image").write_bytes(image)
    (folder / "text").write_text(text)
    script = folder / "xclip"
    body = (
        "exec sleep 100"
        if hangs
        else (
            f'case "$*" in *image/png*) [ -f {folder}/image ] && exec cat {folder}/image; exit 1;; '
            f"*) exec cat {folder}/text;; esac"
        )
    )
    script.write_text(f"#!/bin/sh\n{body}\n")
    script.chmod(0o755)
    return {"PATH": f"{folder}:/usr/bin:/bin", "DISPLAY": ":0"}


@pytest.mark.parametrize("keys", ["\x16", pasted("")])
def test_an_image_is_pasted_from_the_clipboard(at_terminal, tmp_path, keys):
    program = at_terminal(HELLO, **fake_clipboard(tmp_path, png(32, 16), "words"))
    program.until("scripted")
    program.type("see ")
    program.type(keys)
    program.until("❯ see [image 1: 32x16]")


def test_text_is_pasted_where_the_clipboard_has_no_image(at_terminal, tmp_path):
    program = at_terminal(HELLO, **fake_clipboard(tmp_path, None, "words of the clipboard"))
    program.until("scripted")
    program.type("\x16")
    program.until("❯ words of the clipboard")


def test_a_clipboard_that_is_empty_or_no_image_is_told(at_terminal, tmp_path):
    program = at_terminal(HELLO, **fake_clipboard(tmp_path, b"no image"))
    program.until("scripted")
    program.type("\x16")
    program.until("no PNG, JPEG, GIF or WebP")
    (tmp_path / "bin" / "image").unlink()
    program.type("\x16")
    program.until("neither an image nor text")


def test_where_no_clipboard_can_be_read_the_way_round_is_told(at_terminal, tmp_path):
    program = at_terminal(HELLO, PATH=str(tmp_path))
    program.until("scripted")
    program.type("\x16")
    program.until("no program here reads the clipboard")
    program = at_terminal(HELLO, SSH_CONNECTION="x")
    program.until("scripted")
    program.type("\x16")
    program.until("over ssh")


@pytest.mark.parametrize(
    ("variables", "mark"),
    [
        ({"TERM": "xterm-kitty"}, b"\x1b_Ga=T"),
        ({"TERM_PROGRAM": "iTerm.app"}, b"\x1b]1337;File="),
        ({}, None),
        ({"TERM": "xterm-kitty", "TMUX": "x"}, None),
    ],
)
def test_images_of_people_and_tools_are_shown_where_the_terminal_can(
    at_terminal, files, variables, mark
):
    read = {"tools": [{"name": "read", "args": {"path": str(files / "shot.png")}}]}
    program = at_terminal([read, *HELLO], **variables)
    program.until("scripted")
    program.type(pasted(str(files / "shot.png")))
    program.until("[image 1: 640x480]")
    program.type("\r")
    program.until("Hello")
    count = program.written.count(mark) if mark else 0
    assert count == (2 if mark else 0)
    assert "[image 640x480, image/png" in "\n".join(program.shown.everything)
    if not mark:
        assert b"\x1b_G" not in program.written and b"\x1b]1337" not in program.written


# --- the status line -------------------------------------------------------------------------


def test_the_status_line_says_what_one_wants_to_see(at_terminal, tmp_path):
    program = at_terminal(HELLO, "--status-line", "cwd,right,provider", "--yolo")
    last = program.until(lambda shown: shown.text.split("\n")[-1].endswith("scripted")).lines
    assert "work" in "".join(last)
    program.type("/statusline approvals model\r")
    program.until(lambda shown: "approvals off · scripted" in shown.text)
    kept = json.loads((tmp_path / "zot" / "config.json").read_text())
    assert kept["status_line"] == ["approvals", "model"]
    program.type("/statusline nonsense\r")
    program.until("there is no part 'nonsense'")
    program.type("/statusline off\r")
    program.until(lambda shown: "approvals off · scripted" not in shown.text)
    program.type("/statusline\r")
    program.until("Status line:")
    program.type("\x15\r")
    program.until("auto · scripted")
    assert "status_line" not in json.loads((tmp_path / "zot" / "config.json").read_text())


def test_a_part_that_is_none_is_named_at_the_start(at_terminal):
    at_terminal(HELLO, "--status-line", "modl").until("there is no part 'modl'")


def test_a_model_that_sees_no_images_is_told_from_others(at_terminal, files):
    words = ("--provider", "deepseek", "--api-key", "k", "--model", "deepseek-v4-pro")
    program = at_terminal(HELLO, *words)
    program.until("deepseek-v4-pro")
    program.type(pasted(str(files / "shot.png")))
    program.until("deepseek-v4-pro does not see images")
