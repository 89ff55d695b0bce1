"""pi's command line with a process, and its one-shot modes."""

import json
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from support.pi import Frame, PiServers, ended, kinds, outline

HELLO = {"text": ["Hel", "lo"], "usage": {"input": 10, "output": 3}, "repeat": True}
SUMMARY = {"match": "<conversation>", "text": "a summary"}
BASH = {"name": "bash", "args": {"command": "echo out"}}
KEEP: list[str] = []


def command(*args: str) -> list[str]:
    start = "import sys; from zot.__main__ import pi_main; sys.exit(pi_main())"
    return [sys.executable, "-c", start, *args]


def call(servers: PiServers, *args: str, text: bytes = b"") -> subprocess.CompletedProcess[bytes]:
    return subprocess.run(
        command(*args),
        input=text,
        capture_output=True,
        cwd=servers.cwd,
        env=servers.environment(),
        timeout=60,
    )


def test_json_mode_writes_a_header_and_the_events(servers: PiServers) -> None:
    args = servers.arguments([HELLO], "--mode", "json", "hello", "there")
    done = call(servers, *args)
    lines = [json.loads(line) for line in done.stdout.splitlines()]
    assert done.returncode == 0
    assert (lines[0]["type"], lines[0]["version"]) == ("session", 3)
    asst = "asst text_start text_delta text_end /asst"
    assert outline(lines[1:]) == f"run turn user /user {asst} /turn /run settled"
    assert ended(lines)[0]["content"][0]["text"] == "hello there"
    assert len(servers.files()) == 1


def test_json_mode_says_by_its_code_that_it_failed(servers: PiServers) -> None:
    turn = {"error": {"status": 401, "message": "bad key"}}
    done = call(servers, *servers.arguments([turn], "--mode=json", "--no-session", "hi"))
    assert done.returncode == 1
    assert b"401" in done.stderr


def test_json_mode_compacts_and_stops_by_signal(servers: PiServers) -> None:
    full = {"tools": [BASH], "usage": {"input": 190_000}}
    slow = {"text": ["a"] * 100, "delay_ms": 100}
    args = servers.arguments([SUMMARY, full, slow], "--mode", "json", "--no-session", "hi")
    with subprocess.Popen(
        command(*args),
        cwd=servers.cwd,
        env=servers.environment(),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
    ) as process:
        lines: list[Frame] = []
        try:
            for line in process.stdout or ():
                lines.append(json.loads(line))
                if "compaction_end" in kinds(lines) and lines[-1]["type"] == "message_update":
                    process.send_signal(signal.SIGTERM)  # more than once: impatient people do
            assert process.wait(30) == 143
        finally:
            process.kill()
    types = kinds(lines)
    assert types.index("compaction_start") < types.index("compaction_end")
    assert lines[-1] == {"type": "agent_settled", "aborted": True}


def test_print_mode_writes_the_answer(servers: PiServers) -> None:
    (servers.cwd / "note.txt").write_text("the note")
    turn = {"match": "the note", "text": "read it"}
    args = servers.arguments([turn], "-p", "--no-session", "@note.txt", "summarise")
    assert call(servers, *args).stdout == b"read it\n"


def test_flags_of_pi_that_zot_has_not_are_ignored(servers: PiServers) -> None:
    args = ["-p", "--no-session", "--theme", "dark", "--no-themes", "--verbose", "-nt"]
    args += ["--approve", "--thinking", "bogus", "--tools", "read,find,ls,mcp__x", "hi"]
    done = call(servers, *servers.arguments([HELLO], *args))
    assert (done.returncode, done.stdout) == (0, b"Hello\n")


@pytest.mark.parametrize(
    "args",
    [
        ("--mode", "rpc", "@file.txt"),
        ("--mode", "fax"),
        ("--mode", "rpc", "--pi-protocol", "z"),
        ("--mode", "json", "@missing.txt"),
        ("--mode",),
    ],
)
def test_what_cannot_be_meant_is_refused_on_stderr(
    servers: PiServers, args: tuple[str, ...]
) -> None:
    done = call(servers, *servers.arguments([HELLO], "--no-session"), *args)
    assert done.returncode != 0
    assert done.stdout == b""
    assert b"Traceback" not in done.stderr
    assert done.stderr.startswith(b"zot: ")


def test_no_key_is_said_on_stderr(servers: PiServers) -> None:
    done = call(servers, "--mode", "rpc", "--provider", "anthropic", "--model", "claude-sonnet-5-5")
    assert (done.returncode, done.stdout) == (1, b"")
    assert b"ANTHROPIC_API_KEY" in done.stderr


@pytest.mark.parametrize(
    ("args", "model", "level"),
    [
        (["--model", "anthropic/claude-sonnet-5-5:high"], "claude-sonnet-5-5", "high"),
        (["--provider", "anthropic", "--model", "haiku-4"], "claude-haiku-4-5", "medium"),
        (["--model", "sonnet-5-5", "--thinking", "low"], "claude-sonnet-5-5", "low"),
    ],
)
def test_a_model_may_be_named_in_pi_words(
    servers: PiServers, args: list[str], model: str, level: str
) -> None:
    command = ["--mode", "rpc", "--no-session", "--api-key", "sk-x", *args]
    done = call(servers, *command, text=b'{"type":"get_state","id":"1"}\n')
    state = json.loads(done.stdout)["data"]
    assert (state["model"]["id"], state["thinkingLevel"]) == (model, level)


def test_where_no_model_is_near_enough_the_name_is_taken_as_it_is(servers: PiServers) -> None:
    command = ["--mode", "rpc", "--provider", "anthropic", "--api-key", "x", "--model", "gemini-x"]
    done = call(servers, *command)
    assert (done.returncode, done.stdout) == (0, b"")
    assert b"'gemini-x' is not in zot's list of anthropic" in done.stderr


def test_a_system_prompt_may_be_a_file(servers: PiServers) -> None:
    (servers.cwd / "sys.md").write_text("Speak like a pirate.")
    args = ["--no-session", "--pi-protocol", "c", "--system-prompt", "sys.md"]
    with servers.start(HELLO, args=[*args, "--append-system-prompt", "And be brief."]) as server:
        first = server.data("get_messages")["messages"][0]
    assert first["role"] == "system"
    text = first["sections"]["prompt"]
    assert text.startswith("Speak like a pirate.\n\nAnd be brief.")


def test_a_session_directory_can_be_named(servers: PiServers, tmp_path: Path) -> None:
    args = ["--session-dir", str(tmp_path / "there"), "--session-id", "my-id"]
    with servers.start(HELLO, args=args) as server:
        server.run("hi", id="1")
        assert server.data("get_state")["sessionId"] == "my-id"
    assert len(list((tmp_path / "there").glob("*_my-id.jsonl"))) == 1


def test_pi_home_is_not_touched_without_its_variable(servers: PiServers) -> None:
    with servers.start(HELLO, args=KEEP, env={"PI_CODING_AGENT_DIR": ""}) as server:
        server.run("hi", id="1")
        path = server.data("get_state")["sessionFile"]
    assert path.startswith(str(servers.home / "pi-agent" / "sessions"))
    assert not (servers.home.parent / ".pi").exists()


def test_a_page_is_made_from_the_command_line(servers: PiServers) -> None:
    with servers.start(HELLO, args=["--session-id", "first"]) as server:
        server.run("say <it>", id="1")
    done = call(servers, "--export", str(servers.files()[0]), "page.html")
    assert (done.returncode, done.stdout) == (0, b"page.html\n")
    assert "say &lt;it&gt;" in (servers.cwd / "page.html").read_text()
    done = call(servers, "--export", str(servers.files()[0]))
    assert (servers.cwd / done.stdout.decode().strip()).exists()
    assert call(servers, "--export", "nothing.jsonl").returncode == 1
