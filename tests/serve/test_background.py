"""`bash` in the background, from outside: it goes on, is looked at, ends with the session."""

import sys
import threading

import pytest
from support.bwrap import needs_bwrap
from support.rpc import Zot, marked, run_zot
from support.tools import eventually

from zot.errors import Cancelled, ToolError
from zot.tools.process.background import Background
from zot.tools.process.supervisor import ProcessResult

COMMAND = "echo up; touch on; sleep 307; echo never"
WAIT = "until [ -e on ]; do sleep 0.05; done"


def call(name, **args):
    return {"tools": [{"name": name, "args": args}]}


START = call("bash", command=COMMAND, background=True)


def results(frames):
    return [
        (frame["is_error"], frame["content"][0]["text"])
        for frame in frames
        if frame["type"] == "tool_result"
    ]


def sleeping(zot):
    return [line for line in marked(zot.mark) if "sleep" in str(line)]


@pytest.mark.parametrize("jail", [pytest.param(True, marks=needs_bwrap), False])
def test_a_background_command_is_started_looked_at_and_ended(tmp_path, jail):
    turns = [START, call("bash", command=WAIT), call("bash_output", id="1")]
    turns += [call("bash_kill", id="1"), "done"]
    with Zot(tmp_path, turns, args=["--jail"] if jail else []) as zot:
        frames = zot.prompt("go")
        started, _, looked, killed = results(frames)
        assert started[0] is False and "[1 runs since" in started[1]
        assert (started[1] + looked[1]).count("\nup\n") == 1
        assert killed == (False, "1 was stopped")
        assert frames[-1]["type"] == "done"


def test_an_abort_leaves_it_and_clear_ends_it(tmp_path):
    turns = [START, call("bash", command="sleep 308"), call("bash_output", id="1"), "there"]
    turns += [call("bash_output", id="1"), "gone"]
    with Zot(tmp_path, turns) as zot:
        zot.send("prompt", message="go")
        zot.until("tool_result")
        zot.until("turn_end")
        zot.ask("abort")
        zot.until("done")
        assert "[1 runs since" in results(zot.prompt("look"))[-1][1]
        zot.ask("clear")
        assert eventually(lambda: not sleeping(zot))
        assert results(zot.prompt("look again"))[-1][0] is True


def test_how_it_ended_is_said_and_ids_are_checked(tmp_path):
    over = threading.Event()
    commands = Background(over.set)
    first = commands.start("x", lambda take, cancel: ProcessResult("exited", 127))
    commands.kill("1")  # waits for its end
    last = commands.output("1")
    assert over.is_set()
    assert (last.is_error, first.details["id"]) == (True, "1")
    assert "[1 has ended: exit 127]" in last.content[0].text
    with pytest.raises(ToolError, match="there is no background command '7'; there is: 1"):
        commands.output("7")


def test_there_are_so_many_at_once_and_output_is_bounded(tmp_path):
    many = {"tools": [*START["tools"]] * 9}
    loud = call("bash", command="head -c 200000 /dev/zero | tr '\\0' x; touch on", background=True)
    look = [call("bash", command=WAIT), call("bash_output", id="1")]
    with Zot(tmp_path, [loud, *look, many, "ok"]) as zot:
        outputs = results(zot.prompt("go"))
    assert all(len(text) < 60_000 for _, text in outputs)
    assert "characters before this were dropped" in outputs[0][1] + outputs[2][1]
    assert [failed for failed, _ in outputs[3:]].count(True) == 1
    assert "end one with bash_kill" in outputs[-1][1]


@pytest.mark.parametrize(
    ("command", "hinted"),
    [
        ("cat /dev/tty", True),
        (f"{sys.executable} -i </dev/null", False),
        ("cat", False),
        ("git init -q . && git -c user.name=a -c user.email=b commit --allow-empty", True),
    ],
)
def test_a_command_that_waits_for_a_person_ends_at_once(tmp_path, command, hinted):
    with Zot(tmp_path, [call("bash", command=command), "ok"]) as zot:
        ((_, text),) = results(zot.prompt("go"))
    assert ("there is no terminal and nobody to type" in text) is hinted


@pytest.mark.parametrize("how", ["new_session", "load_session", "end of input", "kill"])
def test_it_ends_with_its_session(tmp_path, how):
    args = ["--session", str(tmp_path / "first.jsonl")]
    with Zot(tmp_path, [START, "up", call("bash_output", id="1"), "gone"], args=args) as zot:
        zot.ask("hello", features=["sessions"])
        assert "[1 runs since" in results(zot.prompt("go"))[0][1]
        assert eventually(lambda: bool(sleeping(zot)))
        match how:
            case "end of input":
                assert zot.close()[0] == 0
            case "kill":
                zot.kill()
            case "new_session":
                assert zot.ask("new_session")["success"]
            case _:
                other = run_zot(tmp_path, ["-p", "x"], turns=["other"])
                assert other.returncode == 0
                assert zot.ask("load_session", session="latest")["success"]
        assert eventually(lambda: not sleeping(zot))
        if how in ("new_session", "load_session"):
            assert results(zot.prompt("look"))[-1][0] is True


def test_one_that_is_stopped_before_it_began_says_so(capfd):
    commands = Background()

    def start(_, cancel):
        cancel.wait(30)
        raise Cancelled  # as while the jail is tried

    commands.start("true", start)
    commands.kill("1")
    looked = commands.output("1")
    assert looked.is_error
    assert "[stopped before it began]" in looked.content[0].text
    assert capfd.readouterr().err == ""
