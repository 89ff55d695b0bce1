"""Rows that nobody wrote down: odd standard files, bare environments, long and repeated work."""

import json
import os
import pty
import subprocess
import sys

import pytest
from support.patience import PATIENCE
from support.rpc import (
    Zot,
    command,
    environment,
    make_folder,
    rss_megabytes,
    texts,
    types,
    write_script,
)

from zot.testing.fakeserver import FakeServer

QUICK = {"text": "ok", "repeat": True}
LINES = b'{"id":1,"type":"ping"}\n{"id":2,"type":"prompt","message":"x"}\n'


def run_with(folder, stdin, turns=(QUICK,), env=None):
    cwd = make_folder(folder)
    return subprocess.run(
        [*command(), "rpc", *write_script(folder, list(turns))],
        stdin=stdin,
        capture_output=True,
        cwd=cwd,
        env=environment(folder) if env is None else env,
        timeout=PATIENCE,
    )


def test_stdin_may_be_a_file(tmp_path):
    path = tmp_path / "commands"
    path.write_bytes(LINES * 50)
    with path.open("rb") as file:
        ran = run_with(tmp_path, file)
    frames = [json.loads(line) for line in ran.stdout.splitlines()]
    assert ran.returncode == 0
    assert types(frames).count("done") == 50
    assert types(frames).count("response") == 100


def test_stdin_may_be_nothing(tmp_path):
    ran = run_with(tmp_path, subprocess.DEVNULL)
    assert (ran.returncode, ran.stdout, ran.stderr) == (0, b"", b"")


def test_stdin_may_be_a_terminal(tmp_path):
    outer, inner = pty.openpty()
    cwd, flags = make_folder(tmp_path), write_script(tmp_path, [QUICK])
    with subprocess.Popen(
        [*command(), "rpc", *flags],
        stdin=inner,
        stdout=subprocess.PIPE,
        cwd=cwd,
        env=environment(tmp_path),
    ) as process:
        os.close(inner)
        os.write(outer, b'{"id":1,"type":"ping"}\n')
        assert json.loads(process.stdout.readline())["id"] == 1
        os.write(outer, b"\x04")
        assert process.wait(PATIENCE) == 0
        assert process.stdout.read() == b""
    os.close(outer)


def test_stdin_that_was_set_to_non_blocking_is_read_all_the_same(tmp_path):
    read, write = os.pipe()
    os.set_blocking(read, False)
    with (
        Zot(tmp_path, [QUICK]) as _,
        subprocess.Popen(
            [*command(), "rpc", *write_script(tmp_path, [QUICK])],
            stdin=read,
            stdout=subprocess.PIPE,
            cwd=tmp_path / "work",
            env=environment(tmp_path),
        ) as process,
    ):
        os.close(read)
        os.write(write, b'{"id":1,"type":"ping"}\n')
        assert json.loads(process.stdout.readline())["id"] == 1
        os.write(write, b'{"id":2,"type":"prompt","message":"x"}\n')
        os.close(write)
        assert process.stdout.read().endswith(b'{"type":"done"}\n')
        assert process.wait(PATIENCE) == 0


def test_an_empty_environment_is_enough(tmp_path):
    read, write = os.pipe()
    os.write(write, LINES)
    os.close(write)
    ran = run_with(tmp_path, read, env={"ZOT_HOME": str(tmp_path / "zot-home")})
    os.close(read)
    assert ran.returncode == 0, ran.stderr
    assert ran.stdout.endswith(b'{"type":"done"}\n')


@pytest.mark.parametrize("home", ["/dev/null/x", "/proc/nowhere", "relative", "file"])
def test_a_home_that_cannot_be_used_does_not_stop_a_run_in_memory(tmp_path, home):
    if home == "file":
        home = str(tmp_path / "file")
        (tmp_path / "file").write_text("x")
    with Zot(tmp_path, [QUICK], env={"ZOT_HOME": home}) as zot:
        assert texts(zot.prompt("x")) == "ok"
        zot.invariants()


def test_the_working_directory_may_vanish_during_a_run(tmp_path):
    turns = [
        {
            "match": "rm",
            "tools": [{"name": "bash", "args": {"command": 'rm -r "$PWD"; echo gone'}}],
        },
        {"match": "ls", "tools": [{"name": "bash", "args": {"command": "ls"}}]},
        QUICK,
    ]
    with Zot(tmp_path, turns) as zot:
        assert types(zot.prompt("rm"))[-1] == "done"
        frames = zot.prompt("ls")
        (result,) = [frame for frame in frames if frame["type"] == "tool_result"]
        assert result["is_error"] is True
        assert texts(frames) == "ok"
        zot.invariants()


def test_a_hundred_calls_in_one_turn_each_have_their_result(tmp_path):
    calls = [{"name": "read", "args": {"path": f"missing-{n}"}} for n in range(100)]
    with Zot(tmp_path, [{"tools": calls}, QUICK]) as zot:
        frames = zot.prompt("x")
        called = [frame["id"] for frame in frames if frame["type"] == "tool_call"]
        assert [f["id"] for f in frames if f["type"] == "tool_result"] == called
        assert len(called) == 100
        zot.invariants()


@pytest.mark.slow
def test_two_hundred_prompts_do_not_make_it_grow(tmp_path):
    turn = {"text": ["word "] * 50, "thinking": "hm", "repeat": True}
    with Zot(tmp_path, [turn]) as zot:
        for _ in range(20):
            zot.prompt("x")
            zot.ask("clear")
        before = rss_megabytes(zot.process.pid)
        for _ in range(200):
            zot.prompt("x")
            zot.ask("clear")
        assert rss_megabytes(zot.process.pid) - before < 20
        assert before < 100
        zot.invariants()


def test_a_model_that_calls_the_same_tool_for_ever_is_stopped(tmp_path):
    turn = {"tools": [{"name": "read", "args": {"path": "x"}}], "repeat": True}
    with Zot(tmp_path, [turn], args=["--max-steps", "50"]) as zot:
        frames = zot.prompt("x")
        assert frames[-2] == {"type": "error", "message": "max steps (50) exceeded"}
        assert types(frames).count("turn_end") == 50
        zot.invariants()


def test_a_prompt_can_bring_its_own_limits(tmp_path):
    turn = {"tools": [{"name": "read", "args": {"path": "x"}}], "repeat": True}
    with Zot(tmp_path, [turn], features=["codes"]) as zot:
        frames = zot.prompt("x", max_steps=2)
        assert frames[-2]["code"] == "limit"
        for bad in (0, -1, "3", 1.5):
            assert zot.ask("prompt", message="x", max_steps=bad)["code"] == "invalid_params"
        zot.invariants()


@pytest.mark.slow
def test_the_time_of_a_prompt_holds_for_a_dripping_stream_and_for_a_command(tmp_path):
    with FakeServer() as server:
        flags = ["--provider", "anthropic", "--base-url", server.url]
        with Zot(tmp_path, args=flags) as zot:
            for script in ("text:5000 chop:1 drip:50", "tool:bash:sleep 60"):
                frames = zot.prompt(script, max_seconds=1)
                assert frames[-2] == {"type": "error", "message": "max seconds (1) exceeded"}
                assert texts(zot.prompt("say:fine")) == "fine"
            zot.invariants()


def test_no_tools_means_none(tmp_path):
    turns = [{"tools": [{"name": "bash", "args": {"command": "touch x"}}]}, QUICK]
    with Zot(tmp_path, turns, args=["--no-tools"]) as zot:
        frames = zot.prompt("x")
        (result,) = [frame for frame in frames if frame["type"] == "tool_result"]
        assert "unknown tool 'bash'" in result["content"][0]["text"]
        assert not (zot.cwd / "x").exists()
        zot.invariants()


def test_arguments_with_a_nul_are_an_error_of_the_tool(tmp_path):
    calls = [
        {"name": "bash", "args": {"command": "echo a\0b"}},
        {"name": "read", "args": {"path": "a\0b"}},
        {"name": "write", "args": {"path": "a\0b", "content": "x"}},
        {"name": "glob", "args": {"pattern": "a\0b"}},
    ]
    with Zot(tmp_path, [{"tools": calls}, QUICK]) as zot:
        frames = zot.prompt("x")
        results = [frame for frame in frames if frame["type"] == "tool_result"]
        assert len(results) == 4
        assert all(frame["is_error"] for frame in results[:3])
        assert not any("crashed" in str(frame) for frame in results), results
        assert texts(frames) == "ok"
        zot.invariants()


@pytest.mark.parametrize("url", ["ftp://x", "::", "http://", "http://[", "http://a b", "\x7f"])
def test_an_address_that_is_none_is_an_error_of_the_start_or_of_the_run(tmp_path, url):
    with Zot(tmp_path, args=["--provider", "anthropic", "--base-url", url]) as zot:
        zot.process.stdin.write(b'{"id":1,"type":"prompt","message":"x"}\n')
        code, stderr = zot.close()
        assert "Traceback" not in stderr
        if code == 0:
            assert zot.frames[-1]["type"] == "done" or not zot.frames[-1]["success"]
            assert "internal error" not in str(zot.frames)
        else:
            assert stderr.startswith("zot: ")


def test_bad_proxies_are_an_error_and_not_a_crash(tmp_path):
    env = {"HTTP_PROXY": "http://127.0.0.1:1", "http_proxy": "http://127.0.0.1:1", "NO_PROXY": ""}
    with FakeServer() as server:
        flags = ["--provider", "anthropic", "--base-url", server.url]
        with Zot(tmp_path, args=flags, env=env) as zot:
            zot.send("prompt", message="say:hi")
            zot.until("turn_start")
            zot.send("abort")
            frames = [frame for frame in zot.until("done") if frame["type"] != "response"]
            assert frames[-2]["type"] in ("turn_end", "error")
            zot.invariants()


def test_other_programs_can_swap_the_command(tmp_path, monkeypatch):
    monkeypatch.setenv("ZOT_TEST_COMMAND", f"{sys.executable} -c 'print(7)'")
    assert command()[-1] == "print(7)"


def test_a_full_disk_is_an_error_of_each_run_and_never_the_end(tmp_path):
    small = ["sh", "-c", 'ulimit -f 8; exec "$@"', "sh"]
    turns = [{"match": "long", "text": "y" * 30_000}, QUICK]
    args = ["--session", str(tmp_path / "s.jsonl")]
    # Python would write its caches too, and not notice that they are cut.
    env = {"PYTHONDONTWRITEBYTECODE": "1"}
    with Zot(tmp_path, turns, args=args, wrapper=small, env=env, features=["codes"]) as zot:
        assert texts(zot.prompt("short")) == "ok"
        frames = zot.prompt("long")
        assert types(frames)[-3:] == ["turn_end", "error", "done"]
        assert frames[-2]["code"] == "session"
        frames = zot.prompt("z" * 30_000)
        assert types(frames)[-2:] == ["error", "done"]
        assert texts(zot.prompt("short")) == "ok"
        roles = [message["role"] for message in zot.data("get_messages")["messages"]]
        assert roles == ["user", "assistant", "user", "user", "assistant"]
        assert zot.ask("clear")["success"] is True
        zot.invariants()
        assert zot.close()[0] == 0


@pytest.mark.slow
def test_answers_of_a_large_transcript_are_paged(tmp_path):
    with Zot(tmp_path, [QUICK], args=["--no-auto-compact"], features=["codes"]) as zot:
        for _ in range(3):
            zot.prompt("m" * 6_000_000)
        assert zot.ask("get_messages")["code"] == "too_large"
        assert zot.data("get_state")["message_count"] == 6
        part = zot.data("get_messages", offset=1, limit=2)["messages"]
        assert [message["role"] for message in part] == ["assistant", "user"]
        assert rss_megabytes(zot.process.pid) < 300
        zot.write(b'{"type":"clear"}\n')
        zot.invariants()


def test_thousands_of_small_deltas_stay_linear(tmp_path):
    with Zot(tmp_path, [{"text": ["ab "] * 20_000}]) as zot:
        frames = zot.prompt("x")
        assert types(frames).count("text_delta") == 20_000
        assert len(zot.raw) < 20_000 * 60
        assert rss_megabytes(zot.process.pid) < 100
        zot.invariants()


def test_variables_that_models_json_names_reach_no_command(tmp_path):
    row = {"baseUrl": "http://127.0.0.1:9/v1", "api": "openai-chat"}
    providers = {
        "a": {**row, "apiKeyEnv": "A_SECRET"},
        "b": {**row, "apiKey": "B_SECRET"},
        "c": {**row, "apiKey": "sk-written-into-the-file"},
    }
    make_folder(tmp_path)
    home = tmp_path / "zot-home"
    home.mkdir(exist_ok=True)
    (home / "models.json").write_text(json.dumps({"providers": providers}))
    turn = {"tools": [{"name": "bash", "args": {"command": f"env; cat {home}/models.json"}}]}
    keys = {"A_SECRET": "key-of-provider-a", "B_SECRET": "key-of-provider-b"}
    with Zot(tmp_path, [turn, "ok"], env={**keys, "PLAIN": "shown"}) as zot:
        frames = zot.prompt("go")
    (result,) = [frame for frame in frames if frame["type"] == "tool_result"]
    text = result["content"][0]["text"]
    assert "PLAIN=shown" in text
    assert "A_SECRET=" not in text and "B_SECRET=" not in text
    assert not [key for key in (*keys.values(), "sk-written-into-the-file") if key in text]
