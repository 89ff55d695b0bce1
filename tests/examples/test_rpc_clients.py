import json
import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from support.docs import ROOT

RPC = ROOT / "examples" / "rpc"
ZOT = Path(sys.executable).parent / "zot"
PAGE = 80

SOURCES = {
    "python": RPC / "python" / "zot_client.py",
    "node": RPC / "node" / "zot-client.js",
    "go": RPC / "go" / "main.go",
    "shell": RPC / "shell" / "prompt.sh",
}
NEEDS = {"python": ("python3",), "node": ("node",), "go": ("go",), "shell": ("bash", "jq")}


@pytest.fixture(scope="module", params=sorted(SOURCES))
def client(request, tmp_path_factory):
    language = request.param
    for program in NEEDS[language]:
        if shutil.which(program) is None:
            pytest.skip(f"the {language} client was not run: {program} is not installed")
    source = SOURCES[language]
    if language == "python":
        return [sys.executable, "-I", str(source)]
    if language == "node":
        return ["node", str(source)]
    if language == "shell":
        return ["bash", str(source)]
    built = tmp_path_factory.mktemp("go") / "zot-client"
    environment = {**os.environ, "GOFLAGS": "-mod=mod", "GOTOOLCHAIN": "local"}
    build = ["go", "build", "-o", str(built), "."]
    subprocess.run(build, cwd=source.parent, env=environment, check=True, timeout=100)
    return [str(built)]


@pytest.fixture
def ask(client, tmp_path):
    def ask(*turns, prompt="hello", env=None, flags=()):
        script = tmp_path / "script.json"
        script.write_text(json.dumps({"turns": list(turns)}))
        command = [*client, prompt, "--provider", "scripted", "--script", str(script), *flags]
        return run(command, tmp_path, env)

    return ask


def run(command, home, env=None):
    environment = {**os.environ, "ZOT_BIN": str(ZOT), "ZOT_HOME": str(home), **(env or {})}
    if not env:
        environment.pop("ZOTCORE_RPC_TOKEN", None)
    return subprocess.run(
        command, env=environment, cwd=home, capture_output=True, text=True, timeout=60
    )


def test_the_text_is_streamed_to_stdout(ask):
    done = ask({"text": ["Hello ", "wörld\n\t", "\\n"]})
    assert (done.stdout, done.returncode) == ("Hello wörld\n\t\\n\n", 0)


SLEEPS = {"name": "bash", "args": {"command": "sleep 60"}}


def test_ctrl_c_ends_the_python_client_and_zot_without_a_word(tmp_path):
    script = tmp_path / "script.json"
    script.write_text(json.dumps({"turns": [{"text": "Hello ", "tools": [SLEEPS]}]}))
    command = [sys.executable, "-I", str(SOURCES["python"]), "hi"]
    command += ["--provider", "scripted", "--script", str(script)]
    environment = {**os.environ, "ZOT_BIN": str(ZOT), "ZOT_HOME": str(tmp_path)}
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    with subprocess.Popen(command, env=environment, start_new_session=True, **pipes) as child:
        assert child.stdout.read(6) == b"Hello "
        child.stderr.peek(1)  # until it tells of the tool
        os.killpg(child.pid, signal.SIGINT)  # as the terminal does it
        assert child.stderr.read() == b'[bash] {"command": "sleep 60"}\n'
    assert child.returncode == 130


def test_tool_calls_are_shown_on_stderr(ask):
    call = {"name": "magic", "args": {"path": "a b"}}
    done = ask({"tools": [call]}, {"text": "ok"})
    assert (done.stdout, done.returncode) == ("ok\n", 0)
    assert "[magic]" in done.stderr
    assert '"a b"' in done.stderr


def test_what_was_said_before_a_tool_call_is_a_line_of_its_own(ask):
    call = {"name": "magic", "args": {}}
    assert (
        ask({"text": "I will look.", "tools": [call]}, {"text": "ok"}).stdout
        == "I will look.\nok\n"
    )


def test_a_program_that_is_not_there_is_exit_code_one(client, tmp_path):
    done = run([*client, "hello"], tmp_path, {"ZOT_BIN": "/no/such/zot"})
    assert done.returncode == 1
    assert "/no/such/zot" in done.stderr
    assert "Traceback" not in done.stderr


def test_the_token_is_sent(ask):
    done = ask({"text": "in"}, env={"ZOTCORE_RPC_TOKEN": 's"ecret'})
    assert (done.stdout, done.returncode) == ("in\n", 0)


def test_the_prompt_arrives_as_it_was_typed(ask):
    prompt = 'quotes " and \\ and\nnew lines – ü'
    done = ask({"match": prompt, "text": "same"}, prompt=prompt)
    assert (done.stdout, done.returncode) == ("same\n", 0)


def test_a_failed_run_is_exit_code_one(ask):
    done = ask({"error": {"status": 400, "message": "no good"}})
    assert done.returncode == 1
    assert "error: scripted: http 400: no good" in done.stderr


def test_a_refused_command_is_exit_code_one(ask):
    done = ask({"text": "never"}, prompt=" ")
    assert done.returncode == 1
    assert "the prompt is empty" in done.stderr


def test_a_run_that_hits_a_limit_is_exit_code_one(ask):
    done = ask({"tools": [{"name": "magic"}]}, {"text": "never"}, flags=["--max-steps", "1"])
    assert done.returncode == 1
    assert "max steps (1) exceeded" in done.stderr


def test_a_server_that_does_not_start_is_exit_code_one(client, tmp_path):
    done = run([*client, "hello", "--provider", "nonsense"], tmp_path)
    assert done.returncode == 1
    assert "unknown provider 'nonsense'" in done.stderr
    assert "ended before it was done" in done.stderr


def test_no_prompt_is_exit_code_two(client, tmp_path):
    done = run(client, tmp_path)
    assert done.returncode == 2
    assert "usage:" in done.stderr


@pytest.mark.parametrize("language", sorted(SOURCES))
def test_a_client_is_shorter_than_a_page(language):
    assert len(SOURCES[language].read_text().splitlines()) < PAGE


def test_ten_agents_answer_side_by_side_in_one_process(tmp_path):
    script = tmp_path / "script.json"
    asks = {"match": "risky", "tools": [{"name": "bash", "args": {"command": "touch made"}}]}
    script.write_text(json.dumps({"turns": [asks, {"text": "an answer", "repeat": True}]}))
    command = [sys.executable, "-I", str(RPC / "python" / "ten_agents.py"), "zot"]
    done = run([*command, "--provider", "scripted", "--script", str(script)], tmp_path)
    assert done.returncode == 0, done.stderr
    lines = done.stdout.splitlines()
    assert len(lines) == 10
    assert all(line.endswith("an answer") for line in lines)
    assert not (tmp_path / "made").exists()
