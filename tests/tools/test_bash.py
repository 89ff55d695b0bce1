import os
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from support.tools import call, eventually, marked, none_left, text

from tests.support.around import place_at
from zot.cancel import Cancel
from zot.errors import Cancelled, ToolError
from zot.tools.bash import Bash, duration
from zot.tools.process.supervisor import Supervisor

MARKER = f"zot-test-{os.getpid()}-{os.urandom(4).hex()}"


@pytest.fixture(scope="module")
def supervisor() -> Iterator[Supervisor]:
    shared = Supervisor()
    yield shared
    shared.close()


@pytest.fixture
def bash(tmp_path: Path, supervisor: Supervisor, monkeypatch: pytest.MonkeyPatch) -> Iterator[Bash]:
    monkeypatch.setenv("ZOT_TEST_MARKER", MARKER)
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    yield Bash(place_at(str(tmp_path)), supervisor, frozenset({"CANARY_KEY"}))
    assert none_left(MARKER), marked(MARKER)


def test_output_and_exit_code_are_reported(bash: Bash) -> None:
    output = call(bash, command="echo one; echo two >&2")
    assert text(output).startswith("$ echo one; echo two >&2\n\none\ntwo\n\n[exit 0]  Took 0.")
    assert not output.is_error


def test_no_output_has_no_empty_block(bash: Bash) -> None:
    assert text(call(bash, command="true")).startswith("$ true\n\n[exit 0]  Took ")


def test_a_missing_final_newline_is_added(bash: Bash) -> None:
    assert "\n\nabc\n\n[exit 0]" in text(call(bash, command="printf abc"))


def test_a_failing_command_is_an_error(bash: Bash) -> None:
    output = call(bash, command="echo no; exit 3")
    assert output.is_error
    assert "\n[exit 3]" in text(output)


def test_a_signal_is_named(bash: Bash) -> None:
    output = call(bash, command="kill -9 $$")
    assert output.is_error
    assert "[killed by SIGKILL]\n[exit -1]" in text(output)


def test_stdin_is_empty(bash: Bash) -> None:
    assert "[exit 0]" in text(call(bash, command="cat"))


def test_runs_in_the_working_directory(bash: Bash, tmp_path: Path) -> None:
    assert f"\n{tmp_path}\n" in text(call(bash, command="pwd -P"))


@pytest.mark.parametrize("command", ["", "  \n "])
def test_a_blank_command_is_refused(bash: Bash, command: str) -> None:
    with pytest.raises(ToolError, match="command is required"):
        call(bash, command=command)


def test_a_nul_in_the_command_is_refused(bash: Bash) -> None:
    with pytest.raises(ToolError, match="NUL"):
        call(bash, command="echo \0")


@pytest.mark.parametrize("timeout", [-1, "5", float("nan"), 1e12])
def test_an_impossible_timeout_is_refused(bash: Bash, timeout: object) -> None:
    with pytest.raises(ToolError, match="timeout"):
        call(bash, command="true", timeout=timeout)


def test_a_missing_working_directory_is_a_clear_error(supervisor: Supervisor) -> None:
    tool = Bash(place_at("/nonexistent/place"), supervisor, frozenset())
    with pytest.raises(ToolError, match="/nonexistent/place.*No such file"):
        call(tool, command="true")


def test_timeout_ends_the_command_and_keeps_its_output(bash: Bash) -> None:
    output = call(bash, command="echo partial; sleep 100", timeout=0.5)
    assert output.is_error
    assert "\npartial\n" in text(output)
    assert "[timed out after 0.5 s; it was stopped]\n[exit -1]" in text(output)


def test_abort_ends_the_command_and_keeps_its_output(bash: Bash) -> None:
    cancel = Cancel()
    output = call(
        bash, command="echo ready; sleep 100", cancel=cancel, progress=lambda _: cancel.set()
    )
    assert output.is_error
    assert "\nready\n" in text(output)
    assert "[aborted; it was stopped]" in text(output)


def test_a_turn_that_is_already_aborted_runs_nothing(bash: Bash, tmp_path: Path) -> None:
    cancel = Cancel()
    cancel.set()
    with pytest.raises(Cancelled):
        call(bash, command="touch ran", cancel=cancel)
    assert not (tmp_path / "ran").exists()


def test_a_background_child_does_not_block_and_is_stopped(bash: Bash) -> None:
    started = time.monotonic()
    output = call(bash, command="setsid sleep 120 & echo started")
    assert time.monotonic() - started < 10
    assert "\nstarted\n" in text(output)
    assert "[1 background process was stopped: the shell had exited (sleep 120)]" in text(output)
    assert not output.is_error


def test_what_the_shell_does_not_wait_for_may_finish(bash: Bash) -> None:
    output = call(bash, command="echo late > >(sleep 0.02; cat)")
    assert "\nlate\n" in text(output)
    assert "stopped" not in text(output)


HOSTILE = {
    "background": "sleep 300 & sleep 300 &",
    "setsid": "setsid sleep 300 &",
    "setsid holding the pipe": "setsid bash -c 'echo x; sleep 300' & sleep 0.05",
    "double fork ignoring signals": "(setsid bash -c 'trap \"\" TERM HUP INT; sleep 300 & wait' &)",
    "empty environment": f"env -i setsid /bin/bash -c 'sleep 300; : {MARKER}' &",
    "nohup": "nohup sleep 300 >/dev/null 2>&1 &",
    "stopped": "sleep 300 & kill -STOP $!",
    "re-forker": "bash -c 'while :; do sleep 300 & sleep 0.01; done' &",
    "re-forker on term": (
        "setsid bash -c 'trap \"setsid sleep 300 &\" TERM; while :; do sleep 1; done' &"
    ),
}


@pytest.mark.parametrize("command", HOSTILE.values(), ids=HOSTILE.keys())
def test_nothing_is_left_when_the_shell_exits(bash: Bash, command: str) -> None:
    call(bash, command=command)
    assert none_left(MARKER)


@pytest.mark.parametrize("command", HOSTILE.values(), ids=HOSTILE.keys())
def test_nothing_is_left_after_a_timeout(bash: Bash, command: str) -> None:
    output = call(bash, command=f"{command} \n trap '' TERM; sleep 300", timeout=0.2)
    assert "timed out" in text(output)
    assert none_left(MARKER)


def test_a_command_that_kills_its_supervisor_is_an_error_and_leaves_nothing(bash: Bash) -> None:
    output = call(bash, command="setsid sleep 300 & kill -9 $PPID; sleep 300")
    assert output.is_error
    assert "supervisor was killed" in text(output)
    assert none_left(MARKER)
    assert "\nalive\n" in text(call(bash, command="echo alive"))


def test_a_command_that_kills_the_helper_is_an_error_and_the_next_one_runs(bash: Bash) -> None:
    kill = "kill -9 $(awk '{print $4}' /proc/$PPID/stat); setsid sleep 300 & sleep 300"
    output = call(bash, command=kill)
    assert output.is_error
    assert none_left(MARKER)
    assert "\nalive\n" in text(call(bash, command="echo alive"))


def test_a_command_that_stops_its_supervisor_still_ends(bash: Bash) -> None:
    assert "[exit 0]" in text(call(bash, command="kill -STOP $PPID; echo on"))
    assert "timed out" in text(call(bash, command="kill -STOP $PPID; sleep 100", timeout=0.2))


def test_a_command_that_stops_the_helper_does_not_stop_the_next_one(bash: Bash) -> None:
    call(bash, command="kill -STOP $(awk '{print $4}' /proc/$PPID/stat)")
    assert "\nalive\n" in text(call(bash, command="echo alive"))


def test_signals_are_not_inherited_as_ignored(bash: Bash) -> None:
    output = call(bash, command="awk '/SigIgn/ {print $2}' /proc/self/status")
    ignored = int(text(output).split("\n")[2], 16)
    assert ignored & 0x7FFFFFFF == 0  # above are the C library's own two


def test_no_descriptor_leaks_into_the_command(bash: Bash) -> None:
    output = text(call(bash, command="ls /proc/self/fd | tr '\\n' ' '"))
    assert "\n\n0 1 2 3 \n" in output  # 3 is the directory that ls reads


def test_secrets_are_not_in_the_environment(bash: Bash, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CANARY_KEY", "sk-canary")
    monkeypatch.setenv("ZOTCORE_RPC_TOKEN", "token-canary")
    monkeypatch.setenv("OTHER_NAME", "token-canary")
    monkeypatch.setenv("HARMLESS", "kept")
    output = text(call(bash, command="env; cat /proc/$PPID/environ"))
    assert "canary" not in output
    assert "HARMLESS=kept" in output
    assert "AI_AGENT=zot" in output
    assert "ZOT_AGENT=1" in output


def test_the_supervisors_have_no_environment(bash: Bash) -> None:
    helper = "$(awk '{print $4}' /proc/$PPID/stat)"
    output = text(call(bash, command=f"cat /proc/$PPID/environ /proc/{helper}/environ | wc -c"))
    assert "\n\n0\n" in output


def test_progress_is_the_output_and_never_half_a_character(bash: Bash) -> None:
    pieces: list[str] = []
    parts = r"'\xe2' '\x82' '\xac' '\xf0\x9f' '\x98\x80' '\xff'"
    command = f"for part in {parts}; do printf $part; sleep 0.02; done"
    output = call(bash, command=command, progress=pieces.append)
    assert "".join(pieces) == "€😀\ufffd"
    assert "€😀\ufffd\n" in text(output)


def test_escape_sequences_and_control_characters_do_not_pass(bash: Bash) -> None:
    pieces: list[str] = []
    command = r"printf '\033[31mred\033[0m \033]0;title\007 \000 \033'; printf '[1mbold'"
    output = text(call(bash, command=command, progress=pieces.append))
    for shown in ("".join(pieces), output):
        assert "red  \ufffd bold" in shown
        assert "\x1b" not in shown.replace(command, "")
        assert "\0" not in shown


def test_long_output_keeps_head_and_tail_and_a_file_with_all(bash: Bash, tmp_path: Path) -> None:
    output = call(bash, command="seq 1 100000")
    shown = text(output)
    assert shown.startswith("$ seq 1 100000\n\n1\n2\n")
    assert "\n99999\n100000\n\n[exit 0] (full output: " in shown
    assert len(shown) < 53_000
    [log] = tmp_path.glob("zot-bash-*.log")
    assert log.read_text() == "".join(f"{n}\n" for n in range(1, 100001))
    assert log.stat().st_mode & 0o777 == 0o600
    assert f"complete output: {log}]" in shown
    assert output.details is not None
    assert output.details["full_output"] == str(log)


def test_output_within_the_limits_leaves_no_file(bash: Bash, tmp_path: Path) -> None:
    call(bash, command="seq 1 1999")
    assert not list(tmp_path.glob("zot-bash-*"))


def test_much_output_takes_little_memory_and_progress(bash: Bash, tmp_path: Path) -> None:
    pieces: list[str] = []
    output = call(bash, command="head -c 50000000 /dev/zero | tr '\\0' x", progress=pieces.append)
    [log] = tmp_path.glob("zot-bash-*.log")
    assert log.stat().st_size == 50_000_000
    assert len(text(output)) < 53_000
    assert sum(map(len, pieces)) < 2_000_000
    log.unlink()


def test_a_full_disk_is_said_and_does_not_fail_the_command(
    bash: Bash, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TMPDIR", "/nonexistent")
    output = call(bash, command="seq 1 100000")
    assert not output.is_error
    assert "not complete: No such file or directory" in text(output)


def test_several_commands_at_once_have_separate_trees(bash: Bash) -> None:
    results: dict[str, str] = {}

    def run(name: str, command: str) -> None:
        results[name] = text(call(bash, command=command))

    slow = threading.Thread(target=run, args=("slow", "sleep 0.5; echo slow"))
    slow.start()
    run("killer", "setsid sleep 300 & kill -9 $PPID; sleep 100")
    run("quick", "setsid sleep 300 & echo quick")
    slow.join()
    assert "\nslow\n" in results["slow"]
    assert "[exit 0]" in results["slow"]
    assert "\nquick\n" in results["quick"]
    assert "supervisor was killed" in results["killer"]


def test_a_fork_bomb_is_stopped(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ZOT_TEST_MARKER", MARKER)
    shared = Supervisor(max_processes=30)
    try:
        tool = Bash(place_at(str(tmp_path)), shared, frozenset())
        output = call(tool, command="for i in $(seq 200); do sleep 300 & done; wait")
        assert output.is_error
        assert "too many processes" in text(output)
        assert none_left(MARKER)
    finally:
        shared.close()


def test_close_ends_what_runs_in_other_threads(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ZOT_TEST_MARKER", MARKER)
    shared = Supervisor()
    tool = Bash(place_at(str(tmp_path)), shared, frozenset())
    shown: list[str] = []
    outputs: list[str] = []

    def run() -> None:
        outputs.append(text(call(tool, command="echo go; sleep 300", progress=shown.append)))

    thread = threading.Thread(target=run)
    thread.start()
    assert eventually(lambda: bool(shown))
    shared.close()
    thread.join()
    assert none_left(MARKER)
    assert "aborted" in outputs[0]
    with pytest.raises(ToolError, match="closed"):
        call(tool, command="true")


@pytest.mark.parametrize(
    ("seconds", "said"),
    [(0, "0.0s"), (0.19, "0.1s"), (59.99, "59.9s"), (65, "1m5s"), (3720, "1h2m")],
)
def test_durations(seconds: float, said: str) -> None:
    assert duration(seconds) == said
