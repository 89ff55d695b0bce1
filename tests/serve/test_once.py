"""`zot -p` and `zot --json`: one prompt, then the end, and an exit code that says how it went."""

import itertools
import json
import os
import select
import signal
import subprocess
import time

import pytest
from support.extension import write_extension
from support.patience import PATIENCE
from support.rpc import (
    command,
    environment,
    make_folder,
    marked,
    run_zot,
    types,
    write_script,
)
from support.tools import eventually

from zot.testing.fakeserver import FakeServer

TOOL = {"text": "looking", "tools": [{"name": "bash", "args": {"command": "echo out"}}]}
SLOW = {"text": ["a"] * 4000, "delay_ms": 5}


def frames_of(out: bytes) -> list[dict]:
    assert out.endswith(b"\n")
    return [json.loads(line) for line in out.splitlines()]


def test_print_shows_the_last_answer_only(tmp_path):
    ran = run_zot(tmp_path, ["-p", "do", "it"], turns=[TOOL, "the answer"])
    assert (ran.returncode, ran.stdout, ran.stderr) == (0, b"the answer\n", b"")


def test_print_adds_no_second_line_end_and_keeps_characters(tmp_path):
    ran = run_zot(tmp_path, ["-p", "x"], turns=["naïve ☃\n"], env={"LC_ALL": "C"})
    assert ran.stdout.decode() == "naïve ☃\n"


def test_json_shows_every_event_and_ends_with_done(tmp_path):
    ran = run_zot(tmp_path, ["--json", "x"], turns=[TOOL, "ok"])
    frames = frames_of(ran.stdout)
    assert ran.returncode == 0
    assert types(frames)[0] == "user_message"
    assert types(frames)[-1] == "done"
    assert types(frames).count("tool_result") == 1
    assert "response" not in types(frames)


@pytest.mark.parametrize("api", ["anthropic", "openai", "openai-responses", "google"])
def test_a_first_request_with_all_tools_is_below_five_kilobytes(tmp_path, api):
    with FakeServer() as server:
        place = ["--provider", api, "--base-url", server.url, "--api-key", "sk-size-0123456789"]
        ran = run_zot(tmp_path, ["-p", "--tasks", *place, "say:hi"])
        assert ran.stdout == b"hi\n", ran.stderr
        [request] = server.requests
    body = json.dumps(request.body, separators=(",", ":"), ensure_ascii=False)
    edits = "apply_patch" if api == "openai" else "edit"
    assert all(f'"{name}"' in body for name in ("bash", edits, "task"))
    assert len(body.encode()) < 5 * 1024


def test_what_is_piped_in_comes_before_the_words(tmp_path):
    args, turns = ["--json", "review", "this"], ["ok"]
    ran = run_zot(tmp_path, args, turns=turns, stdin=b"+ caf\xc3\xa9 \xff\n")
    said = frames_of(ran.stdout)[0]["content"][0]["text"]
    assert said == "+ café \ufffd\nreview this"
    ran = run_zot(tmp_path, ["-p"], turns=turns, stdin=b"only this\n")
    assert ran.stdout == b"ok\n"


def test_words_that_are_no_characters_are_mended(tmp_path):
    cwd, flags = make_folder(tmp_path), write_script(tmp_path, ["ok"])
    argv = [os.fsencode(word) for word in [*command(), *flags, "--json"]]
    ran = subprocess.run(
        [*argv, b"a\xffb"],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        cwd=cwd,
        env=environment(tmp_path),
        timeout=PATIENCE,
    )
    assert ran.returncode == 0
    assert frames_of(ran.stdout)[0]["content"][0]["text"] == "a\ufffdb"


@pytest.mark.parametrize("mode", ["-p", "--json"])
def test_no_prompt_is_wrong_usage(tmp_path, mode):
    for stdin in (None, b"", b" \n"):
        ran = run_zot(tmp_path, [mode], turns=["ok"], stdin=stdin)
        assert (ran.returncode, ran.stdout) == (2, b"")
        assert ran.stderr.startswith(b"zot: there is no prompt")


def test_too_much_on_stdin_is_refused(tmp_path):
    ran = run_zot(tmp_path, ["-p", "x"], turns=["ok"], stdin=b"x" * (16 * 1024 * 1024 + 1))
    assert ran.returncode == 2
    assert b"longer than" in ran.stderr


FAILURES = {
    "refused": [{"error": {"status": 400, "message": "no"}}],
    "cut": [{"text": ["half", "x"], "cut_after": 1}],
}


@pytest.mark.parametrize("turns", FAILURES.values(), ids=FAILURES)
def test_a_failed_run_is_exit_code_one(tmp_path, turns):
    ran = run_zot(tmp_path, ["-p", "x"], turns=turns)
    assert (ran.returncode, ran.stdout) == (1, b"")
    assert ran.stderr.startswith(b"zot: scripted: ")
    assert b"Traceback" not in ran.stderr
    ran = run_zot(tmp_path, ["--json", "x"], turns=turns)
    assert ran.returncode == 1
    assert types(frames_of(ran.stdout))[-3:] == ["turn_end", "error", "done"]


def test_max_steps_ends_with_error_then_done(tmp_path):
    turns = [{"tools": [{"name": "bash", "args": {"command": "true"}}], "repeat": True}]
    ran = run_zot(tmp_path, ["--json", "--max-steps", "2", "x"], turns=turns)
    frames = frames_of(ran.stdout)
    assert ran.returncode == 1
    assert types(frames)[-2:] == ["error", "done"]
    assert frames[-2]["message"] == "max steps (2) exceeded"
    assert types(frames).count("turn_start") == 2


@pytest.mark.parametrize(
    "args",
    [
        ["--provider", "nope"],
        ["--provider", "groq"],
        ["--provider", "scripted", "--script", "/no/such/file"],
        ["--provider", "scripted", "--model", "nope"],
    ],
)
def test_a_run_that_cannot_begin_says_so_on_both_streams(tmp_path, args):
    ran = run_zot(tmp_path, [*args, "--json", "x"])
    frames = frames_of(ran.stdout)
    assert ran.returncode == 1
    assert types(frames) == ["error", "done"]
    assert ran.stderr.decode().strip().endswith(frames[0]["message"])
    ran = run_zot(tmp_path, [*args, "-p", "x"])
    assert (ran.returncode, ran.stdout) == (1, b"")
    assert b"Traceback" not in ran.stderr


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP])
def test_a_signal_aborts_and_json_still_ends_with_done(tmp_path, number):
    cwd, flags = make_folder(tmp_path), write_script(tmp_path, [SLOW])
    process = subprocess.Popen(
        [*command(), *flags, "--json", "x"],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        cwd=cwd,
        env=environment(tmp_path, f"once-{number}"),
    )
    with process:
        lines = []
        for line in process.stdout:
            lines.append(json.loads(line))
            if types(lines).count("text_delta") == 2:
                process.send_signal(number)
                break
        rest, stderr = process.communicate(timeout=PATIENCE)
        assert process.returncode == 128 + number
        assert types(frames_of(rest))[-2:] == ["turn_end", "done"]
        assert b"Traceback" not in stderr
    assert marked(f"once-{number}") == []


@pytest.mark.parametrize("mode", [["--json"], ["--mode", "json"]])
def test_many_signals_in_a_row_do_not_keep_it_from_ending(tmp_path, mode):
    cwd, flags = make_folder(tmp_path), write_script(tmp_path, [SLOW])
    with subprocess.Popen(
        [*command(), *flags, *mode, "x"],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        cwd=cwd,
        env=environment(tmp_path),
    ) as process:
        for line in process.stdout:
            if b"_delta" in line:
                break
        limit = time.monotonic() + PATIENCE
        for number in itertools.cycle([signal.SIGTERM, signal.SIGINT, signal.SIGHUP]):
            if time.monotonic() > limit:
                process.kill()
            process.send_signal(number)  # each may come in the midst of the one before
            ready, _, _ = select.select([process.stdout], [], [], 0.0002)
            if ready and not os.read(process.stdout.fileno(), 65536):
                break
        assert process.wait(PATIENCE) > 128


def test_a_reader_that_leaves_ends_it(tmp_path):
    cwd, flags = make_folder(tmp_path), write_script(tmp_path, [SLOW])
    with subprocess.Popen(
        [*command(), *flags, "--json", "x"],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        cwd=cwd,
        env=environment(tmp_path),
    ) as process:
        process.stdout.readline()
        process.stdout.close()
        assert process.wait(PATIENCE) == 1
        assert b"Traceback" not in process.stderr.read()


def test_an_answer_that_cannot_be_written_is_an_error(tmp_path):
    cwd, flags = make_folder(tmp_path), write_script(tmp_path, ["ok"])
    for mode in ("-p", "--json"):
        with open("/dev/full", "wb") as full:  # noqa: PTH123  a device
            ran = subprocess.run(
                [*command(), *flags, mode, "x"],
                stdin=subprocess.DEVNULL,
                stdout=full,
                stderr=subprocess.PIPE,
                cwd=cwd,
                env=environment(tmp_path),
                timeout=PATIENCE,
            )
        assert ran.returncode == 1
        assert b"Traceback" not in ran.stderr


def test_help_version_and_models_need_nothing(tmp_path):
    ran = run_zot(tmp_path, ["--help"])
    assert ran.returncode == 0
    assert ran.stdout.startswith(b"zot: ")
    ran = run_zot(tmp_path, ["--version"])
    assert ran.stdout.startswith(b"zot ")
    ran = run_zot(tmp_path, ["--list-models", "--provider", "anthropic"])
    assert ran.returncode == 0
    assert b"claude" in ran.stdout
    ran = run_zot(tmp_path, ["--list-models", "--provider", "anthropic", "--json"])
    assert json.loads(ran.stdout)["models"]
    assert not (tmp_path / "zot-home").exists()


def test_a_working_directory_that_is_gone_is_said_plainly(tmp_path):
    make_folder(tmp_path)
    gone = tmp_path / "gone"
    gone.mkdir()
    flags = write_script(tmp_path, ["ok"])
    ran = subprocess.run(
        ["sh", "-c", 'rmdir "$0" && exec "$@"', str(gone), *command(), *flags, "-p", "x"],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        cwd=gone,
        env=environment(tmp_path),
        timeout=PATIENCE,
    )
    assert ran.returncode == 1
    assert b"the working directory is gone" in ran.stderr
    assert b"Traceback" not in ran.stderr


def test_cwd_is_where_tools_work(tmp_path):
    (tmp_path / "other").mkdir()
    turns = [{"tools": [{"name": "bash", "args": {"command": "pwd"}}]}, "ok"]
    ran = run_zot(tmp_path, ["--json", "--cwd", str(tmp_path / "other"), "x"], turns=turns)
    (result,) = [f for f in frames_of(ran.stdout) if f["type"] == "tool_result"]
    assert str(tmp_path / "other") in result["content"][0]["text"]


# --- commands of extensions ------------------------------------------------------------------

SAY = """
hello("say")
for name in ("ask", "show", "look", "fail"):
    emit("register_command", name=name, description=name)
emit("ready")
for frame in frames():
    if frame["type"] == "shutdown":
        break
    if frame["type"] == "command_invoked":
        words = {"ask": {"action": "prompt", "prompt": "about " + frame["args"]},
                 "show": {"action": "display", "display": "shown " + frame["args"]},
                 "look": {"action": "tool_prompt", "prompt": "what is here?", "tool_name": "bash",
                          "tool_args": {"command": "ls"}},
                 "fail": {"action": "noop", "error": "which city?"}}
        emit("command_response", id=frame["id"], **words[frame["name"]])
"""


def test_a_command_of_an_extension_can_be_typed(tmp_path):
    folder = str(write_extension(tmp_path, "say", SAY))
    ran = run_zot(tmp_path, ["--json", "--ext", folder, "/ask  the  sea"], turns=[{"text": "blue"}])
    heard = next(frame for frame in frames_of(ran.stdout) if frame["type"] == "user_message")
    assert heard["content"][0]["text"] == "about the  sea"


def test_a_tool_that_a_command_wants_runs_first(tmp_path):
    folder = str(write_extension(tmp_path, "say", SAY))
    ran = run_zot(tmp_path, ["--json", "--ext", folder, "/look"], turns=[{"text": "seen"}])
    kinds = types(frames_of(ran.stdout))
    assert kinds.index("tool_result") < kinds.index("text_delta")


def test_a_command_that_only_shows_something_asks_no_model(tmp_path):
    folder = str(write_extension(tmp_path, "say", SAY))
    ran = run_zot(tmp_path, ["-p", "--ext", folder, "/show me"], turns=[])
    assert (ran.returncode, ran.stdout) == (0, b"shown me\n")
    ran = run_zot(tmp_path, ["--json", "--ext", folder, "/show me"], turns=[])
    assert ran.returncode == 0
    assert types(frames_of(ran.stdout)) == ["ext_display", "done"]


@pytest.mark.parametrize("mode", ["-p", "--json"])
@pytest.mark.parametrize(
    ("typed", "said"),
    [
        ("/fail", b"zot: /fail: which city?"),
        ("/shwo me", b"zot: there is no command /shwo here (did you mean /show?)"),
    ],
)
def test_a_command_that_fails_or_is_misspelt_asks_no_model_and_is_exit_code_one(
    tmp_path, mode, typed, said
):
    folder = str(write_extension(tmp_path, "say", SAY))
    ran = run_zot(tmp_path, [mode, "--ext", folder, typed], turns=[])
    assert ran.returncode == 1
    assert said in ran.stderr
    if mode == "--json":
        assert types(frames_of(ran.stdout)) == ["error", "done"]


@pytest.mark.parametrize("typed", ["/etc/hosts is what?", "/tmp is full", "/* a comment */", "/"])
def test_a_slash_that_cannot_be_a_command_goes_to_the_model(tmp_path, typed):
    folder = str(write_extension(tmp_path, "say", SAY))
    ran = run_zot(tmp_path, ["-p", "--ext", folder, typed], turns=[{"text": "a file"}])
    assert (ran.returncode, ran.stdout) == (0, b"a file\n")


def test_an_extension_that_is_not_there_is_an_error(tmp_path):
    ran = run_zot(tmp_path, ["-p", "--ext", "/no/such", "hi"], turns=[{"text": "unguarded"}])
    assert (ran.returncode, ran.stdout) == (1, b"")
    assert b"--ext '/no/such': there is no extension.json in it" in ran.stderr


EVIL = "\x1b]0;owned\x07\x1b[2Jhi\u202e"


def test_a_terminal_is_not_told_what_to_do_by_models_and_extensions(tmp_path):
    cwd = make_folder(tmp_path)
    body = f"""
hello("evil")
emit("notify", level="info", message={EVIL!r})
emit("ready")
for frame in frames():
    if frame["type"] == "shutdown":
        break
"""
    notifier = write_extension(tmp_path, "evil", body)
    flags = [*write_script(tmp_path, [EVIL]), "-p", "x", "--ext", str(notifier)]
    ours, theirs = os.openpty()
    ran = subprocess.Popen(
        [*command(), *flags],
        stdin=subprocess.DEVNULL,
        stdout=theirs,
        stderr=theirs,
        cwd=cwd,
        env=environment(tmp_path),
    )
    os.close(theirs)
    shown = b""
    try:
        while data := os.read(ours, 4096):
            shown += data
    except OSError:
        pass  # the terminal is closed when the program ends
    os.close(ours)
    assert ran.wait(PATIENCE) == 0
    assert b"\x1b" not in shown and "\u202e" not in shown.decode()
    assert shown.decode().count("]0;owned") == 2
    piped = run_zot(tmp_path, ["-p", "x"], turns=[EVIL])
    assert piped.stdout.decode() == EVIL + "\n"


@pytest.mark.parametrize("mode", ["-p", "--json"])
@pytest.mark.parametrize("end", ["the reader leaves", "SIGTERM"])
def test_a_hanging_extension_command_ends_when_nobody_waits_for_it(tmp_path, mode, end):
    body = """
hello()
emit("register_command", name="hang")
emit("ready")
for frame in frames():
    if frame["type"] == "command_invoked":
        open("asked", "w").close()
"""
    folder = write_extension(tmp_path, "x", body)
    cwd = make_folder(tmp_path)
    flags = write_script(tmp_path, ["never"])
    reader, writer = os.pipe()
    zot = subprocess.Popen(
        [*command(), mode, "--ext", str(folder), *flags, "/hang"],
        cwd=cwd, env=environment(tmp_path, mark="hang-once"), stdin=subprocess.DEVNULL,
        stdout=writer, stderr=subprocess.PIPE,
    )  # fmt: skip
    os.close(writer)
    try:
        assert eventually(lambda: (folder / "asked").exists(), PATIENCE)
        if end == "SIGTERM":
            zot.send_signal(signal.SIGTERM)
        else:
            os.close(reader)
        assert zot.wait(PATIENCE) == (143 if end == "SIGTERM" else 1)
        assert b"Traceback" not in zot.stderr.read()
    finally:
        zot.kill()
        zot.stderr.close()
        if end == "SIGTERM":
            os.close(reader)
    assert eventually(lambda: not marked("hang-once"), PATIENCE)
