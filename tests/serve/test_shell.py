"""`run_shell` and `abort_shell`: each command is its own."""

import signal
import time
from pathlib import Path

from support.rpc import Zot

LONG = "echo begun >> begun; sleep 60"


def begun(zot: Zot, count: int) -> None:
    path = zot.cwd / "begun"
    end = time.monotonic() + 20
    while not path.exists() or len(path.read_text().split()) < count:
        assert time.monotonic() < end
        time.sleep(0.02)


def test_a_command_can_be_aborted_after_another_one_ended(tmp_path: Path) -> None:
    with Zot(tmp_path, ["ok"]) as zot:
        long = zot.send("run_shell", command=LONG)
        begun(zot, 1)
        assert zot.data("run_shell", command="echo short")["output"] == "short\n"
        zot.ask("abort_shell")
        assert zot.answer(long)["data"]["aborted"] is True
        again = zot.data("run_shell", command="echo later")  # the abort was not for this one
        assert (again["output"], again.get("aborted", False)) == ("later\n", False)
        zot.invariants()


def test_an_abort_ends_those_that_run_and_those_that_wait(tmp_path: Path) -> None:
    with Zot(tmp_path, ["ok"]) as zot:
        sent = [zot.send("run_shell", command=LONG) for _ in range(6)]
        zot.send("abort_shell")
        for id in sent:
            assert zot.answer(id)["data"]["aborted"] is True
        zot.invariants()
        begin = time.monotonic()
        assert zot.close()[0] == 0
        assert time.monotonic() - begin < 15


def test_the_end_of_input_waits_for_commands(tmp_path: Path) -> None:
    with Zot(tmp_path, ["ok"]) as zot:
        ids = [zot.send("run_shell", command=f"sleep 0.5; echo {n}") for n in range(2)]
        assert zot.close()[0] == 0
        assert [zot.answer(id)["data"]["output"] for id in ids] == ["0\n", "1\n"]


def test_a_signal_ends_commands_also_when_one_has_ended(tmp_path: Path) -> None:
    with Zot(tmp_path, ["ok"]) as zot:
        zot.send("run_shell", command=LONG)
        begun(zot, 1)
        zot.data("run_shell", command="true")
        zot.close_input()
        zot.signal(signal.SIGTERM)
        assert zot.finish()[0] == 143
