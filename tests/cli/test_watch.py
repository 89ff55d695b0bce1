import os
import pty
import re
import subprocess
import sys
from pathlib import Path

import pytest

from zot.cli.watch import describe
from zot.observe import Status

DATA = Path(__file__).parents[1] / "observe" / "data"
WATCH = [sys.executable, "-m", "zot", "watch"]


def watch(*words, given=b""):
    return subprocess.run([*WATCH, *words], input=given, capture_output=True, timeout=60)


def test_a_pipe_gives_a_line_for_each_change():
    done = watch(given=(DATA / "tool_call.jsonl").read_bytes())
    assert done.returncode == 0
    assert done.stdout.decode().splitlines() == [
        "idle",
        "thinking",
        "running bash | turn 1 | 1 tool call | $0.0004",
        "thinking | turn 1 | 1 tool call | $0.0004",
        "idle | turn 2 | 1 tool call | $0.0009",
    ]


def test_a_file_is_read_to_its_end_and_a_failed_run_is_exit_code_one():
    done = watch(str(DATA / "refused.jsonl"))
    assert done.returncode == 1
    assert done.stdout.decode().splitlines()[-1] == "failed: deepseek: http 401: ... | turn 1"


def test_lines_that_are_no_frames_and_a_last_line_without_end_do_no_harm():
    done = watch("-", given=b'nonsense\n\n{"type":"turn_start","step":1}')
    assert done.stdout.decode().splitlines() == [
        "thinking | turn 1",
        "gone: its frames stopped before the run ended | turn 1",
    ]
    assert done.returncode == 1


def test_a_file_without_a_frame_is_not_an_idle_agent(tmp_path):
    (tmp_path / "log").write_text('started\n{"level": "info"}\n')
    done = watch(str(tmp_path / "log"))
    assert (done.returncode, done.stdout) == (1, b"")
    assert b"no line is a frame of zot, pi, Claude Code or codex" in done.stderr
    assert watch(given=b"").stdout == b"idle\n"


def test_in_a_terminal_one_line_is_drawn_again():
    shown = in_terminal({"TERM": "xterm"})
    assert "\r\x1b[K\x1b[33mrunning bash" in shown
    assert re.search(r"\x1b\[32midle \| \d+ s \| turn 2 .*\$0\.0009\x1b\[0m\r\n\Z", shown)


def test_no_color_is_honoured():
    shown = in_terminal({"TERM": "xterm", "NO_COLOR": "1"})
    assert "\r\x1b[Krunning bash" in shown
    assert "\x1b[33m" not in shown


def in_terminal(env):
    """What a terminal gets to see when the stream comes through a pipe."""
    environment = {name: value for name, value in os.environ.items() if name != "NO_COLOR"}
    ours, theirs = pty.openpty()
    try:
        process = subprocess.Popen(
            WATCH, stdin=subprocess.PIPE, stdout=theirs, env={**environment, **env}
        )
        os.close(theirs)
        process.stdin.write((DATA / "tool_call.jsonl").read_bytes())
        process.stdin.close()
        shown = b""
        while True:
            try:
                data = os.read(ours, 65536)
            except OSError:  # the other end is closed
                break
            if not data:
                break
            shown += data
        assert process.wait(60) == 0
        return shown.decode()
    finally:
        os.close(ours)


def test_following_a_file_shows_what_is_added(tmp_path):
    path = tmp_path / "run.jsonl"
    path.write_text('{"type":"turn_start","step":1}\n')
    process = subprocess.Popen([*WATCH, "-f", str(path)], stdout=subprocess.PIPE)
    try:
        assert process.stdout.readline() == b"thinking | turn 1\n"
        with path.open("a") as file:
            file.write('{"type":"done"}\n')
        assert process.stdout.readline() == b"idle | turn 1\n"
    finally:
        process.kill()
        process.stdout.close()
        process.wait()


@pytest.mark.parametrize(
    ("words", "code", "said"),
    [
        (["--what"], 2, "unrecognized arguments: --what"),
        (["a", "b"], 2, "unrecognized arguments: b"),
        (["/no/such/file"], 1, "cannot read '/no/such/file'"),
        (["--share"], 2, "--share: expected one argument"),
        (["--share", "../up"], 2, "not '../up'"),
    ],
)
def test_wrong_usage_is_explained(words, code, said):
    done = watch(*words)
    assert done.returncode == code
    assert said in done.stderr.decode()


def test_help():
    assert b"usage: zot watch" in watch("--help").stdout


def test_a_stream_cannot_steer_the_terminal():
    status = Status(state="failed", seconds=1.0, error="\x1b[2J\nbad" + "x" * 500)
    shown = describe(status)
    assert "\x1b" not in shown
    assert "\n" not in shown
    assert len(shown) < 250


def test_an_abort_leaves_its_mark():
    assert describe(Status(state="idle", seconds=2.0, outcome="aborted")) == "idle (aborted) | 2 s"


def test_an_unknown_price_is_said():
    assert (
        describe(Status(state="idle", seconds=2.0, cost_known=False))
        == "idle | 2 s | at least $0.0000"
    )
    assert describe(
        Status(state="waiting", seconds=2.0, waiting_for="a tool", tool_calls=2)
    ).endswith("2 tool calls")
