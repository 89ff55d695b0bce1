"""Start, end and the pipes between: auth, end of input, signals, readers that stop or leave."""

import json
import os
import shutil
import signal
import subprocess
import sys
import time
import uuid
from pathlib import Path

import pytest
from support.extension import write_extension
from support.patience import PATIENCE, patience
from support.rpc import (
    Zot,
    command,
    descendants,
    environment,
    make_folder,
    marked,
    rss_megabytes,
    still_there,
    texts,
    types,
    write_script,
)
from support.tools import eventually

SLOW = {"match": "slow", "text": ["a"] * 4000, "delay_ms": 5, "repeat": True}
BASH = {
    "match": "bash",
    "tools": [{"name": "bash", "args": {"command": "echo up; setsid sleep 60 & sleep 60"}}],
}
QUICK = {"text": "ok", "repeat": True}
TURNS = [SLOW, BASH, QUICK]
SIGNALS = {
    name: getattr(signal, f"SIG{name}") for name in ("TERM", "INT", "HUP", "USR1", "USR2", "ALRM")
}


# --- auth --------------------------------------------------------------------------------------

TOKEN = "shared-sécret-0123456789"


@pytest.fixture
def guarded(tmp_path):
    with Zot(tmp_path, TURNS, env={"ZOTCORE_RPC_TOKEN": TOKEN}) as process:
        yield process


def test_the_right_token_opens_the_door_once_and_for_all(guarded):
    answer = guarded.ask("hello", token=TOKEN)
    assert answer["success"] is True
    assert guarded.ask("hello", token="another")["success"] is True
    assert texts(guarded.prompt("quick")) == "ok"
    guarded.invariants()
    assert TOKEN.encode() not in guarded.raw


@pytest.mark.parametrize(
    "line",
    [
        b'{"id":"0","type":"ping"}\n',
        b'{"id":"0","type":"hello"}\n',
        b'{"id":"0","type":"hello","token":""}\n',
        b'{"id":"0","type":"hello","token":"shared"}\n',
        b'{"id":"0","type":"hello","token":7}\n',
        b'{"id":"0","type":"hello","token":"\\ud83d"}\n',
        b'{"id":"0","type":"prompt","message":"x","token":"shared-s\xc3\xa9cret-0123456789"}\n',
        b"garbage\n",
        b'{"id":"0","type":"hello","x":"' + b"x" * (17 * 1024 * 1024) + b'"}\n',
    ],
    ids=["ping", "none", "empty", "wrong", "number", "half", "prompt", "garbage", "long"],
)
def test_any_other_first_line_is_refused_and_ends_the_process(guarded, line):
    answer = guarded.last_answer_to(b"\n" + line)
    assert answer["success"] is False
    assert "auth required" in answer["error"]
    assert guarded.finish()[0] == 1
    assert len(guarded.frames) == 1


def test_what_follows_a_wrong_token_is_not_carried_out(guarded):
    guarded.write(
        b'{"id":"0","type":"hello","token":"x"}\n'
        + b'{"id":"1","type":"hello","token":"%s"}\n' % TOKEN.encode()
        + b'{"id":"2","type":"prompt","message":"quick"}\n'
    )
    assert guarded.finish()[0] == 1
    assert [frame["id"] for frame in guarded.frames] == ["0"]


def test_the_end_of_input_before_auth_is_a_clean_end(guarded):
    assert guarded.close()[0] == 0
    assert guarded.frames == []


def test_a_token_that_is_no_text_only_ever_refuses(tmp_path):
    env = environment(tmp_path)
    cwd = make_folder(tmp_path)
    flags = write_script(tmp_path, TURNS)
    ran = subprocess.run(
        [*command(), "rpc", *flags],
        input=b'{"type":"hello","token":"a\xc3\xbf"}\n',
        env={**{k.encode(): v.encode() for k, v in env.items()}, b"ZOTCORE_RPC_TOKEN": b"a\xff"},
        cwd=cwd,
        capture_output=True,
        timeout=PATIENCE,
    )
    assert ran.returncode == 1
    assert b"auth required" in ran.stdout
    assert b"Traceback" not in ran.stderr


def test_the_token_reaches_no_tool(tmp_path):
    turns = [{"tools": [{"name": "bash", "args": {"command": "env"}}]}, "ok"]
    with Zot(tmp_path, turns, env={"ZOTCORE_RPC_TOKEN": TOKEN}) as zot:
        zot.ask("hello", token=TOKEN)
        zot.prompt()
        zot.invariants()
        assert TOKEN.encode() not in zot.raw


# --- the start ---------------------------------------------------------------------------------


def test_rpc_as_a_flag_is_the_same(tmp_path):
    with Zot(tmp_path, TURNS, prefix=["--rpc"]) as zot:
        assert texts(zot.prompt("quick")) == "ok"
        zot.invariants()


def test_flags_may_stand_before_the_word(tmp_path):
    with Zot(tmp_path, TURNS, prefix=["--max-steps", "3"], args=["rpc"]) as zot:
        assert texts(zot.prompt("quick")) == "ok"
        zot.invariants()


def test_a_byte_order_mark_before_the_first_line_is_taken_off(tmp_path):
    with Zot(tmp_path, TURNS) as zot:
        assert zot.last_answer_to(b'\xef\xbb\xbf{"type":"ping"}\n')["success"] is True
        zot.invariants()


def test_commands_sent_before_it_has_started_are_answered_in_order(tmp_path):
    with Zot(tmp_path, TURNS) as zot:
        zot.write(
            b'{"id":1,"type":"prompt","message":"quick"}\n{"id":2,"type":"get_state"}\n'
            b'{"id":3,"type":"abort"}\n{"id":4,"type":"hello"}\n'
        )
        assert zot.close()[0] == 0
        assert [frame["id"] for frame in zot.answers()] == [1, 2, 3, 4]
        assert types(zot.frames).count("done") == 1


@pytest.mark.parametrize(
    ("args", "code", "words"),
    [
        (["--provider", "nope"], 1, "nope"),
        (["--provider", "scripted", "--model", "nope"], 1, "nope"),
        (["--provider", "groq"], 1, "GROQ_API_KEY"),
        (["--flie"], 2, "--flie"),
        (["--cwd", "/no/such/place", "--provider", "scripted"], 1, "/no/such/place"),
        (["--provider", "scripted", "--script", "/no/such/script"], 1, "/no/such/script"),
        (["--provider", "scripted"], 1, "--script"),
    ],
)
def test_what_cannot_start_says_why_and_says_nothing_on_stdout(tmp_path, args, code, words):
    with Zot(tmp_path, args=args) as zot:
        zot.close_input()
        ended, stderr = zot.finish()
        assert (ended, zot.raw) == (code, b"")
        assert words in stderr
        assert stderr.startswith("zot: ")
        assert "Traceback" not in stderr
        assert not (tmp_path / "zot-home").exists()


# --- the end of input --------------------------------------------------------------------------


def test_the_end_of_input_when_idle_ends_with_zero(tmp_path):
    with Zot(tmp_path, TURNS) as zot:
        assert zot.close() == (0, "")
        assert zot.frames == []


def test_the_end_of_input_lets_running_and_queued_work_finish(tmp_path):
    slow = {"match": "work", "text": ["a"] * 50, "delay_ms": 5, "repeat": True}
    with Zot(tmp_path, [slow, QUICK]) as zot:
        zot.write(b'{"type":"prompt","message":"work"}\n' * 3 + b'{"type":"compact"}\n')
        assert zot.close()[0] == 0
        assert texts(zot.frames) == "a" * 150
        assert zot.done_count() == 4


def test_a_whole_last_line_without_its_end_is_carried_out(tmp_path):
    with Zot(tmp_path, TURNS) as zot:
        zot.write(b'{"id":"last","type":"prompt","message":"quick"}')
        assert zot.close()[0] == 0
        assert types(zot.frames)[-1] == "done"


@pytest.mark.parametrize("rest", [b'{"id":"last","type":"pro', b'{"type":"fly"}', b"\xff", b" \t"])
def test_a_torn_last_line_is_dropped(tmp_path, rest):
    with Zot(tmp_path, TURNS) as zot:
        zot.write(b'{"id":"1","type":"ping"}\n' + rest)
        assert zot.close()[0] == 0
        assert [frame["id"] for frame in zot.frames] == ["1"]


def test_it_ends_at_once_many_times_over(tmp_path):
    for _ in range(8):
        with Zot(tmp_path, TURNS) as zot:
            zot.write(b'{"type":"prompt","message":"quick"}\n')
            assert zot.close()[0] == 0
            assert zot.done_count() == 1


# --- signals -----------------------------------------------------------------------------------


@pytest.mark.parametrize("name", SIGNALS)
@pytest.mark.parametrize("moment", ["idle", "stream", "bash"])
def test_a_signal_aborts_says_done_and_leaves_nothing(tmp_path, name, moment):
    with Zot(tmp_path, TURNS) as zot:
        zot.ask("ping")
        if moment == "stream":
            zot.send("prompt", message="slow")
            zot.until("text_delta")
        elif moment == "bash":
            zot.send("prompt", message="bash")
            zot.until("tool_progress")
        zot.signal(SIGNALS[name])
        code, stderr = zot.finish()
        assert code == 128 + SIGNALS[name]
        assert stderr == ""
        if moment != "idle":
            assert types(zot.frames)[-2:] == ["turn_end", "done"]
            assert zot.frames[-2]["stop"] == "aborted"
        if moment == "bash":
            assert "tool_result" in types(zot.frames)


def test_a_signal_ends_queued_runs_too(tmp_path):
    with Zot(tmp_path, TURNS) as zot:
        zot.write(b'{"type":"prompt","message":"slow"}\n' * 5)
        zot.until("text_delta")
        zot.signal(signal.SIGTERM)
        assert zot.finish()[0] == 143
        assert zot.done_count() == 5


def test_a_signal_after_the_end_of_input_ends_the_waiting(tmp_path):
    with Zot(tmp_path, TURNS) as zot:
        zot.send("prompt", message="slow")
        zot.until("text_delta")
        zot.close_input()
        zot.signal(signal.SIGTERM)
        assert zot.finish()[0] == 143
        assert types(zot.frames)[-2:] == ["turn_end", "done"]


def test_a_signal_counts_for_more_than_an_end_of_input_with_it(tmp_path):
    for _ in range(6):
        with Zot(tmp_path, TURNS) as zot:
            zot.ask("ping")
            zot.process.send_signal(signal.SIGTERM)
            zot.close_input()
            assert zot.finish()[0] == 143


def test_many_signals_are_one(tmp_path):
    with Zot(tmp_path, TURNS) as zot:
        zot.send("prompt", message="slow")
        zot.until("text_delta")
        while zot.process.poll() is None:  # also while the interpreter winds up
            zot.process.send_signal(signal.SIGTERM)
            time.sleep(0.001)
        assert zot.finish()[0] == 143
        assert zot.done_count() == 1


def test_kill_leaves_no_process_behind(tmp_path):
    with Zot(tmp_path, TURNS) as zot:
        zot.send("prompt", message="bash")
        zot.until("tool_progress")
        # The shell, and both naps. The environment of zot itself is for root to read.
        assert eventually(lambda: len(sleeping(zot.mark)) == 2)
        started = descendants(zot.process.pid)
        assert len(started) >= 3
        zot.process.kill()
        zot.process.wait()
        assert still_there(started) == set()
        assert marked(zot.mark) == []


def sleeping(mark):
    return [pid for pid, words in marked(mark) if words.startswith("sleep\0")]


HELPER = "$(awk '{print $4}' /proc/$PPID/stat)"


def test_a_command_without_an_environment_does_not_survive_its_supervisors(tmp_path):
    nap = f"6{uuid.uuid4().int % 10**9}"
    command = f"env -i setsid sleep {nap} & sleep 0.2; kill -9 {HELPER} $PPID; sleep {nap}"
    turn = {"tools": [{"name": "bash", "args": {"command": command}}], "repeat": True}
    with Zot(tmp_path, [{"match": "kill", **turn}, QUICK], args=["--max-steps", "2"]) as zot:
        zot.prompt("kill")
        assert processes_named(nap) == []
        assert texts(zot.prompt("quick")) == "ok"


def test_a_daemon_of_an_extension_does_not_survive_its_keeper(tmp_path):
    nap = f"6{uuid.uuid4().int % 10**9}"
    body = f"""
hello()
emit("ready")
if not os.path.exists("died"):
    open("died", "w").close()
    subprocess.Popen(["sleep", "{nap}"], env={{}}, start_new_session=True)
    os.kill(os.getppid(), 9)
for frame in frames(): pass
"""
    folder = write_extension(tmp_path, "x", body)
    with Zot(tmp_path, [QUICK], args=["--ext", str(folder)]) as zot:
        zot.until("ext_notify", level="warn")
        assert eventually(lambda: processes_named(nap) == [])
        assert zot.ask("ping")["success"]


def processes_named(word):
    found = []
    for folder in Path("/proc").iterdir():
        try:
            if folder.name.isdigit() and f"sleep\0{word}\0" in (folder / "cmdline").read_text():
                found.append(folder.name)
        except OSError:
            continue  # it ended while we looked
    return found


def test_a_command_cannot_look_into_the_memory_of_zot(tmp_path):
    # Root may look into everything, unless it gives up its powers.
    wrapper = ["setpriv", "--bounding-set", "-all"] if os.getuid() == 0 else []
    if wrapper and shutil.which("setpriv") is None:
        pytest.skip("needs setpriv")
    look = f"zot=$(awk '{{print $4}}' /proc/{HELPER}/stat); for f in mem environ maps; do"
    look += " head -c 1 /proc/$zot/$f >/dev/null 2>&1 && echo read $f; done; echo looked"
    turn = {"tools": [{"name": "bash", "args": {"command": look}}]}
    with Zot(tmp_path, [turn, "ok"], wrapper=wrapper) as zot:
        [result] = [each for each in zot.prompt() if each["type"] == "tool_result"]
        said = result["content"][0]["text"].rpartition("done; echo looked")[2]
        assert "looked" in said
        assert "read" not in said


def with_processes(number, folder):
    """Words that start a program whose user may have so many processes. Root may have any number:
    another user, who may yet read all of ours."""
    limit = ["prlimit", f"--nproc={number}"]
    if os.getuid() != 0:
        return limit
    for path in (folder, *folder.rglob("*")):
        os.chown(path, 61234, 61234)
    rights = ["--inh-caps", "+dac_read_search", "--ambient-caps", "+dac_read_search"]
    return ["setpriv", "--reuid=61234", "--clear-groups", *rights, *limit]


@pytest.mark.skipif(
    not (shutil.which("setpriv") and shutil.which("prlimit")), reason="needs setpriv and prlimit"
)
@pytest.mark.parametrize("number", [1, 2, 4, 5] if os.getuid() == 0 else [1])
def test_where_no_process_can_be_started_a_run_still_ends(tmp_path, number):
    make_folder(tmp_path)
    (tmp_path / "zot-home").mkdir()
    write = {"name": "write", "args": {"path": "made", "content": "x"}}
    command = {"name": "bash", "args": {"command": "echo hi"}}
    wrapper = with_processes(number, tmp_path)
    with Zot(tmp_path, [{"tools": [command, write]}, QUICK], wrapper=wrapper) as zot:
        if not zot.ask("prompt", message="go")["success"]:
            assert number == 1  # not even a thread
            assert "can't start new thread" in zot.answers()[0]["error"]
            assert zot.ask("ping")["success"]
            return
        first, second = [f for f in zot.until("done") if f["type"] == "tool_result"]
        said = first["content"][0]["text"]
        assert "Resource temporarily unavailable" in said or "\nhi\n" in said
        assert first["is_error"] is ("\nhi\n" not in said)
        assert second["is_error"] is False
        assert zot.ask("ping")["success"]


def test_stopped_and_continued_it_carries_on(tmp_path):
    slow = {"text": ["a"] * 100, "delay_ms": 5}
    with Zot(tmp_path, [slow]) as zot:
        zot.send("prompt", message="x")
        zot.until("text_delta")
        zot.signal(signal.SIGSTOP)
        zot.write(b'{"id":"later","type":"ping"}\n')
        zot.signal(signal.SIGCONT)
        assert zot.answer("later")["success"] is True
        zot.until("done")
        zot.invariants()


# --- pipes -------------------------------------------------------------------------------------


@pytest.mark.slow
def test_a_client_that_stops_reading_pauses_the_turn_and_can_still_abort(tmp_path):
    turns = [{"match": "flood", "text": ["x" * 600] * 20_000}, QUICK]
    with Zot(tmp_path, turns, read=False) as zot:
        zot.write(b'{"id":"p","type":"prompt","message":"flood"}\n')
        pid = zot.process.pid
        before, used = -1.0, 0.0
        while used != before or used == 0.0:  # until the turn has come to rest
            before, used = used, cpu_seconds(pid)
            time.sleep(0.3)
        assert rss_megabytes(pid) < 100
        zot.write(b'{"id":"a","type":"abort"}\n')
        zot.start_reading()
        frames = [frame for frame in zot.until("done") if frame["type"] != "response"]
        assert frames[-2]["type"] == "turn_end"
        assert frames[-2]["stop"] == "aborted"
        assert len(texts(frames)) < 20_000 * 600
        assert texts(zot.prompt("quick")) == "ok"
        zot.invariants()


def test_a_client_that_reads_late_gets_everything(tmp_path):
    with Zot(tmp_path, [{"text": ["x" * 100] * 20_000}], read=False) as zot:
        zot.write(b'{"id":"p","type":"prompt","message":"x"}\n')
        zot.start_reading()
        assert len(texts(zot.until("done"))) == 2_000_000
        zot.invariants()


@pytest.mark.slow
def test_a_client_that_only_asks_and_never_reads_does_not_fill_the_memory(tmp_path):
    with Zot(tmp_path, TURNS, read=False) as zot:
        large = b'{"type":"prompt","message":"%s"}\n' % (b"m" * 4_000_000)
        zot.write(large)
        stdin = zot.process.stdin.fileno()
        os.set_blocking(stdin, False)
        end = time.monotonic() + 4
        asked = b'{"type":"get_messages"}\n'
        blocked = 0
        while blocked < 20 and time.monotonic() < end:
            try:
                os.write(stdin, asked)
                blocked = 0
            except BlockingIOError:
                blocked += 1
                time.sleep(0.02)
        assert rss_megabytes(zot.process.pid) < 300
        zot.signal(signal.SIGTERM)
        zot.process.wait(PATIENCE)
        assert zot.process.returncode == 143


def test_a_client_that_closes_stdout_ends_the_process(tmp_path):
    with Zot(tmp_path, TURNS, read=False) as zot:
        zot.write(b'{"id":"p","type":"prompt","message":"slow"}\n')
        zot.process.stdout.readline()
        zot.process.stdout.close()
        assert zot.process.wait(PATIENCE) == 0
        assert "Traceback" not in zot.stderr()
        assert marked(zot.mark) == []


QUIET = {"tools": [{"name": "bash", "args": {"command": "touch on; setsid sleep 60 & sleep 60"}}]}
HANGS = {"text": ["a"], "delay_ms": 60_000}


@pytest.mark.parametrize("turn", [QUIET, HANGS], ids=["command", "provider"])
@pytest.mark.parametrize(
    ("mode", "stdin"),
    [("rpc", "open"), ("rpc", "ended"), ("--mode rpc", "open")]
    + [(f"{mode} x", "ended") for mode in ("--json", "-p", "--mode json")],
)
def test_a_client_that_leaves_while_all_is_quiet_is_noticed(tmp_path, mode, stdin, turn):
    with Zot(tmp_path, [turn], prefix=mode.split(), read=False) as zot:
        if "rpc" in mode:
            zot.write(b'{"id":"p","type":"prompt","message":"x"}\n')
        if stdin == "ended":
            zot.process.stdin.close()
        if turn is QUIET:
            assert eventually((zot.cwd / "on").exists, PATIENCE)
        elif mode != "-p x":
            assert any(b"message" in line for line in zot.process.stdout)
        zot.process.stdout.close()
        started = time.monotonic()
        zot.process.wait(PATIENCE)
        assert eventually(lambda: marked(zot.mark) == [])
        assert time.monotonic() - started < patience(5)
        assert "Traceback" not in zot.stderr()


@pytest.mark.parametrize("mode", ["acp", "mcp-server"])
def test_an_editor_or_agent_that_leaves_while_all_is_quiet_is_noticed(tmp_path, mode):
    with Zot(tmp_path, [QUIET], prefix=[mode], args=["--yolo"], read=False) as zot:

        def ask(id, method, **params):
            frame = {"jsonrpc": "2.0", "id": id, "method": method, "params": params}
            zot.write(json.dumps(frame).encode() + b"\n")

        info = {"name": "test", "version": "1"}
        if mode == "acp":
            ask(1, "initialize", protocolVersion=1)
            ask(2, "session/new", cwd=str(zot.cwd), mcpServers=[])
            answers = (json.loads(line) for line in zot.process.stdout)
            session = next(answer for answer in answers if answer.get("id") == 2)["result"]
            prompt = [{"type": "text", "text": "x"}]
            ask(3, "session/prompt", sessionId=session["sessionId"], prompt=prompt)
        else:
            version = "2025-06-18"
            ask(1, "initialize", protocolVersion=version, capabilities={}, clientInfo=info)
            ask(2, "tools/call", name="zot", arguments={"prompt": "x"})
        assert eventually((zot.cwd / "on").exists, PATIENCE)
        zot.process.stdout.close()
        zot.process.wait(PATIENCE)
        assert eventually(lambda: marked(zot.mark) == [])
        assert "Traceback" not in zot.stderr()


def test_the_end_of_input_does_not_end_a_quiet_turn_whose_client_still_reads(tmp_path):
    quiet = {"tools": [{"name": "bash", "args": {"command": "sleep 1; echo slept"}}]}
    with Zot(tmp_path, [quiet, "ok"]) as zot:
        zot.send("prompt", message="x")
        assert zot.close()[0] == 0
        assert texts(zot.frames) == "ok"


def test_stdin_may_be_closed_from_the_start(tmp_path):
    shell = ["sh", "-c", 'exec "$@" 0<&-', "sh"]
    with Zot(tmp_path, TURNS, wrapper=shell) as zot:
        assert zot.finish() == (0, "")


def test_stdout_may_be_closed_from_the_start(tmp_path):
    shell = ["sh", "-c", 'exec "$@" 1>&-', "sh"]
    with Zot(tmp_path, TURNS, wrapper=shell) as zot:
        zot.write(b'{"type":"prompt","message":"quick"}\n')
        code, stderr = zot.close()
        assert (code, zot.raw) == (0, b"")
        assert "Traceback" not in stderr


@pytest.mark.parametrize("closed", ["2>&-", "2>/dev/full"])
def test_stderr_may_be_closed_or_full(tmp_path, closed):
    shell = ["sh", "-c", f'exec "$@" {closed}', "sh"]
    turns = [{"match": "crash", "tools": [{"name": "bash", "args": {"command": "ls x"}}]}, QUICK]
    with Zot(tmp_path, turns, wrapper=shell) as zot:
        assert types(zot.prompt("crash"))[-1] == "done"
        zot.invariants()
        assert zot.close()[0] == 0


def test_a_stderr_pipe_that_nobody_reads_stops_nothing(tmp_path):
    read, write = os.pipe()
    os.set_blocking(write, False)
    with pytest.raises(BlockingIOError):
        while True:
            os.write(write, b"x" * 65536)
    os.set_blocking(write, True)
    program = (
        "import sys, threading\n"
        "from zot.wire.serving import claim_stdout\n"
        "wire = claim_stdout()\n"
        "def crash(): raise RuntimeError('x' * 100_000)\n"
        "thread = threading.Thread(target=crash)\n"
        "thread.start()\n"
        "thread.join()\n"
        "print('not on the wire', file=sys.stderr)\n"
        "import os\n"
        "os.write(wire, b'alive')\n"
    )
    try:
        ran = subprocess.run(
            [sys.executable, "-c", program],
            stdout=subprocess.PIPE,
            stderr=write,
            timeout=PATIENCE,
        )
        assert (ran.returncode, ran.stdout) == (0, b"alive")
    finally:
        os.close(read)
        os.close(write)


@pytest.mark.parametrize(
    "env",
    [
        {"LC_ALL": "C", "LANG": "C", "PYTHONIOENCODING": "ascii"},
        {"LC_ALL": "POSIX", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"},
        {"LC_ALL": "xx_YY.nonsense", "TZ": "Nowhere/Land"},
        {"TZ": "Pacific/Apia"},
    ],
)
def test_the_locale_does_not_reach_the_wire(tmp_path, env):
    with Zot(tmp_path, ["naïve 日本語 🙂"], env=env) as zot:
        frames = zot.prompt("größe ☃")
        assert texts(frames) == "naïve 日本語 🙂"
        said = frames[1]
        assert said["content"][0]["text"] == "größe ☃"
        assert said["time"].endswith("Z")
        zot.invariants()


def test_with_few_descriptors_tools_fail_and_it_stays_alive(tmp_path):
    few = ["sh", "-c", 'ulimit -n 32; exec "$@"', "sh"]
    turns = [{"tools": [{"name": "bash", "args": {"command": "echo hi"}}]}, QUICK]
    with Zot(tmp_path, turns, wrapper=few) as zot:
        frames = zot.prompt("x")
        assert types(frames)[-1] == "done"
        zot.invariants()
    starved = ["sh", "-c", 'ulimit -n 9; exec "$@"', "sh"]
    with Zot(tmp_path, turns, wrapper=starved) as zot:
        frames = zot.prompt("x")
        (result,) = [frame for frame in frames if frame["type"] == "tool_result"]
        assert result["is_error"] is True
        assert types(frames)[-1] == "done"
        zot.invariants()


@pytest.mark.skipif(os.getuid() != 0, reason="needs a user with no other processes")
@pytest.mark.parametrize("limit", range(1, 8))
def test_with_few_processes_tools_fail_and_it_stays_alive(tmp_path, limit):
    caps = "+dac_override,+dac_read_search"  # to read the interpreter, wherever it is
    user = str(54_000 + os.getpid() % 10_000)
    wrapper = ["setpriv", "--reuid", user, "--clear-groups", "--inh-caps", caps]
    wrapper += ["--ambient-caps", caps, "prlimit", f"--nproc={limit}"]
    if subprocess.run([*wrapper, "true"], capture_output=True).returncode:
        pytest.skip("needs setpriv and prlimit")
    (tmp_path / "zot-home").mkdir()
    turn = {"match": "run", "tools": [{"name": "bash", "args": {"command": "echo ran"}}]}
    with Zot(tmp_path, [turn, QUICK], wrapper=wrapper) as zot:
        if limit > 1:
            frames = zot.prompt("run")
            failed = {"error", "tool_result"} & set(types(frames))
            assert failed
        else:
            assert "no thread can be started" in zot.ask("prompt", message="run")["error"]
            zot.write(b'{"type":"ping"}\n' * 3000)  # more than a pipe holds
            zot.wait(lambda: len(zot.answers()) == zot.sent, "every answer")
        assert zot.ask("ping")["success"]
        code, stderr = zot.close()
        assert code == 0
        assert "Traceback" not in stderr


def test_a_working_directory_with_odd_bytes_is_shown_without_harm(tmp_path):
    odd = os.fsencode(tmp_path) + b"/work/\xff odd"
    make_folder(tmp_path)
    os.mkdir(odd)  # noqa: PTH102  a path of bytes
    shell = ["sh", "-c", 'cd -- "$0"/work/*odd && exec "$@"', str(tmp_path)]
    with Zot(tmp_path, TURNS, wrapper=shell) as zot:
        assert zot.data("get_state")["cwd"].endswith("\ufffd odd")
        assert texts(zot.prompt("quick")) == "ok"
        zot.invariants()


@pytest.mark.slow
def test_many_at_once_share_a_home(tmp_path):
    flags = write_script(tmp_path, TURNS)
    make_folder(tmp_path)
    line = b'{"id":"1","type":"prompt","message":"quick"}\n'
    processes = [
        subprocess.Popen(
            [*command(), "rpc", *flags],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env=environment(tmp_path),
            cwd=tmp_path / "work",
        )
        for _ in range(16)
    ]
    for process in processes:
        out, _ = process.communicate(line, timeout=60)
        assert out.count(b'"type":"done"') == 1
        assert process.returncode == 0


def cpu_seconds(pid: int) -> float:
    with open(f"/proc/{pid}/stat") as file:  # noqa: PTH123  one line
        fields = file.read().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def test_a_full_disk_behind_stdout_is_an_error(tmp_path):
    script = tmp_path / "script.json"
    script.write_text('{"turns": []}')
    command = [
        sys.executable,
        "-m",
        "zot",
        "rpc",
        "--provider",
        "scripted",
        "--script",
        str(script),
    ]
    with open("/dev/full", "wb") as full:  # noqa: PTH123  a device
        ended = subprocess.run(
            command,
            input=b'{"type":"ping"}\n',
            stdout=full,
            stderr=subprocess.PIPE,
            env={**os.environ, "ZOT_HOME": str(tmp_path), "HOME": str(tmp_path)},
            timeout=60,
            check=False,
        )
    assert ended.returncode == 1
    assert b"the frames could not be written: No space left on device" in ended.stderr
