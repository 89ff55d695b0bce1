"""pi's own clients, unmodified, drive zot: the RpcClient of two npm packages through every one of
its methods, and the example of the protocol's document.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from support.npm import cache, node, unpacked
from support.pi import PiServers

__all__ = ["cache"]  # a fixture

CLIENTS = Path(__file__).parent / "clients"
OLDEST = "@mariozechner/pi-coding-agent@0.73.1"
# The newest when this was written; set the variable to try a newer one.
NEWEST = f"@earendil-works/pi-coding-agent@{os.environ.get('ZOT_TEST_PI_VERSION', '1.5.0')}"
INTERNAL = {
    "createProcessExitError",
    "getData",
    "handleLine",
    "rejectPendingRequests",
    "send",
}
TURNS = (
    {"match": "<conversation>", "text": "a summary", "usage": {"input": 5, "output": 2}},
    {
        "match": "tool please",
        "text": "look",
        "tools": [{"name": "bash", "args": {"command": "echo from-tool"}}],
        "usage": {"input": 20, "output": 4},
    },
    {"match": "slow", "text": ["a", "b", "c", "d", "e", "f", "g", "h"], "delay_ms": 300},
    {"text": ["Hel", "lo"], "usage": {"input": 10, "output": 3}, "repeat": True},
)


def rpc_client(package: str, cache: Path) -> Path:
    """The client module of a published package."""
    return unpacked(package, cache) / "dist" / "modes" / "rpc" / "rpc-client.js"


def drive(
    servers: PiServers, client: Path, how: str, server: list[str], *args: str
) -> dict[str, Any]:
    arguments = ["--script", str(servers.script(*TURNS)), *args]
    environment = servers.environment(
        PROVIDER="scripted", MODEL="scripted", RPC_SERVER=json.dumps(server)
    )
    done = subprocess.run(
        [node(), str(CLIENTS / "drive.mjs"), str(client), how, json.dumps(arguments)],
        cwd=servers.cwd,
        env=environment,
        capture_output=True,
        text=True,
        timeout=100,
    )
    assert done.returncode == 0, done.stderr
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return found


def python_as_node(folder: Path) -> Path:
    """A directory with a program named `node` that starts zot instead."""
    folder.mkdir()
    program = folder / "node"
    program.write_text(f'#!/bin/sh\nshift\nexec "{sys.executable}" -m zot "$@"\n')
    program.chmod(0o755)
    return folder


def check(found: dict[str, Any], servers: PiServers, *, newest: bool) -> None:
    results = found["results"]
    refused = {name for name, each in results.items() if name != "stopMs" and not each["ok"]}
    assert refused == {"setModelUnknown", "switchSessionMissing"}, results
    said = {
        name: each["value"] for name, each in results.items() if name != "stopMs" and each["ok"]
    }
    assert set(found["methods"]) - INTERNAL <= set(found["called"]) | {"abort", "waitForIdle"}
    start = said["getState0"]
    assert (start["model"]["provider"], start["model"]["id"]) == ("scripted", "scripted")
    assert (start["isStreaming"], start["messageCount"]) == (False, 0)
    assert "sessionName" not in start
    assert said["getLastAssistantText0"] == "undefined"
    assert said["getLastAssistantText"] == "Hello"
    assert said["promptAndWait"].count("message_end") == 2
    assert [each["role"] for each in said["getMessages"]] == ["user", "assistant"]
    models = said["getAvailableModels"]
    assert all(each["contextWindow"] > 0 and isinstance(each["reasoning"], bool) for each in models)
    assert said["cycleThinkingLevel"] == {"level": "off"}
    assert said["bash"] == {
        "output": "hello\n",
        "cancelled": False,
        "truncated": False,
        "exitCode": 0,
    }
    assert said["bashAborted"] == {"output": "", "cancelled": True, "truncated": False}
    assert said["stateNamed"] == "my work"
    assert said["compact"]["summary"] == "a summary"
    assert said["compact"]["tokensBefore"] > 0
    assert said["exportHtml"]["path"].endswith(".html")
    assert Path(said["exportHtml"]["path"]).read_text().startswith("<!")
    assert said["fork"] == {"text": "tool please", "cancelled": False}
    assert said["clone"] == {"cancelled": False}
    assert said["stateNew"] == 0
    assert said["stateSwitched"] == 2
    assert results["stopMs"] < 5000
    if newest:
        assert said["prompt"] == "started"
        assert said["steer"] == "queued"
        assert said["clearQueue"] == {"steering": ["steered"], "followUp": ["followed"]}
        assert said["getAvailableThinkingLevels"][:2] == ["off", "minimal"]
        assert said["getEntriesSince"] == 1
        assert said["getTree"]["leafId"] == said["getEntries"]["leafId"]


@pytest.mark.parametrize("package", [OLDEST, NEWEST])
@pytest.mark.slow
def test_rpc_client_drives_zot_through_a_shim(
    servers: PiServers, cache: Path, package: str
) -> None:
    client = rpc_client(package, cache)
    shim = str(CLIENTS / "shim.mjs")
    found = drive(servers, client, shim, [sys.executable, "-m", "zot"])
    check(found, servers, newest=package == NEWEST)
    first = [json.loads(line) for line in servers.files()[0].read_text().splitlines()]
    assert first[0]["type"] == "session"
    assert first[0]["version"] == 3
    roles = [row["message"]["role"] for row in first if row["type"] == "message"]
    assert {"user", "assistant", "toolResult", "bashExecution"} <= set(roles)
    types = [row["type"] for row in first]
    assert types.count("compaction") == 1
    assert types.count("session_info") == 1


@pytest.mark.slow
@pytest.mark.parametrize("package", [OLDEST, NEWEST])
def test_rpc_client_drives_zot_in_the_place_of_node(
    servers: PiServers, cache: Path, package: str, tmp_path: Path
) -> None:
    client = rpc_client(package, cache)
    how = f"path:{python_as_node(tmp_path / 'bin')}"
    check(drive(servers, client, how, []), servers, newest=package == NEWEST)


def test_the_example_of_the_document_runs(servers: PiServers, tmp_path: Path) -> None:
    program = tmp_path / "bin" / "pi"
    program.parent.mkdir()
    program.write_text(
        f'#!/bin/sh\nexec "{sys.executable}" -c '
        "'import sys; from zot.__main__ import pi_main; sys.exit(pi_main())' \"$@\"\n"
    )
    program.chmod(0o755)
    turns = (
        {
            "text": "I'll \u2028look",
            "tools": [{"name": "bash", "args": {"command": "echo from-tool"}}],
        },
        {"text": ["Here ", "it is"]},
    )
    path = f"{program.parent}:{os.environ['PATH']}"
    done = subprocess.run(
        [node(), str(CLIENTS / "spec_example.mjs"), *servers.arguments(turns, "--no-such-flag")],
        cwd=servers.cwd,
        env=servers.environment(PATH=path),
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.stdout.split("\n") == [
        "I'll \u2028look",
        "[Tool: bash]",
        "[Result: false true]",
        "[Matched: bash false]",
        "Here it is",
        "[Exit: 0]",
        "",
    ], done.stderr


# --- session files ---------------------------------------------------------------------------


def with_session_manager(cache: Path, program: str, *args: str) -> Any:
    """Run a few lines of JavaScript with pi's own SessionManager; what they print."""
    package = unpacked(OLDEST, cache)
    uuid = unpacked("uuid@11.1.0", cache)
    (package / "node_modules").mkdir(exist_ok=True)
    link = package / "node_modules" / "uuid"
    if not link.exists():
        link.symlink_to(uuid)
    module = package / "dist" / "core" / "session-manager.js"
    head = f"const {{ SessionManager }} = await import({json.dumps(module.as_uri())});\n"
    done = subprocess.run(
        [node(), "--input-type=module", "-e", head + program, *args],
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


READ = """
const session = SessionManager.open(process.argv[1]);
const { messages, thinkingLevel } = session.buildSessionContext();
const roles = messages.map((message) => message.role);
const name = session.getSessionName();
console.log(JSON.stringify({ roles, thinkingLevel, name, id: session.getSessionId(),
  entries: session.getEntries().map((entry) => entry.id), leaf: session.getLeafId() }));
"""
WRITE = """
const session = SessionManager.create(process.argv[1], process.argv[2]);
const usage = { input: 1, output: 2, cacheRead: 0, cacheWrite: 0, totalTokens: 3,
  cost: { input: 0.5, output: 0, cacheRead: 0, cacheWrite: 0, total: 0.5 } };
const says = (text) => session.appendMessage({ role: "assistant", content: [{ type: "text", text }],
  api: "anthropic-messages", provider: "scripted", model: "scripted", usage, stopReason: "stop",
  timestamp: Date.now() });
const first = session.appendMessage({ role: "user", content: "one", timestamp: Date.now() });
says("answer one");
session.branch(first);
says("another answer");
session.appendMessage({ role: "user", content: [{ type: "text", text: "two" }], timestamp: 1 });
says("answer two");
session.appendSessionInfo("from pi");
console.log(JSON.stringify({ file: session.getSessionFile(), id: session.getSessionId(),
  entries: session.getEntries().map((entry) => entry.id), leaf: session.getLeafId() }));
"""


def test_pi_itself_reads_what_zot_wrote(servers: PiServers, cache: Path) -> None:
    tools = [{"name": "bash", "args": {"command": "echo x"}}] * 2
    with servers.start({"tools": tools}, *TURNS, args=[]) as server:
        server.data("set_thinking_level", level="low")
        server.run("one", id="1")
        server.data("bash", command="echo hello")
        server.data("set_session_name", name="mine")
        server.run("two", id="2")
        told = server.data("get_entries")
        state = server.data("get_state")
    found = with_session_manager(cache, READ, state["sessionFile"])
    assert found["entries"] == [each["id"] for each in told["entries"]]
    assert (found["leaf"], found["id"]) == (told["leafId"], state["sessionId"])
    assert (found["name"], found["thinkingLevel"]) == ("mine", "low")
    results = ["toolResult", "toolResult"]
    ending = ["assistant", "bashExecution", "user", "assistant"]
    assert found["roles"] == ["user", "assistant", *results, *ending]


def test_zot_goes_on_with_what_pi_itself_wrote(servers: PiServers, cache: Path) -> None:
    folder = servers.agent / "written"
    folder.mkdir(parents=True)
    written = with_session_manager(cache, WRITE, str(servers.cwd), str(folder))
    with servers.start(*TURNS, args=["--session", written["file"]]) as server:
        state = server.data("get_state")
        assert (state["sessionId"], state["sessionName"]) == (written["id"], "from pi")
        told = server.data("get_entries")
        assert [each["id"] for each in told["entries"]] == written["entries"]
        assert told["leafId"] == written["leaf"]
        messages = server.data("get_messages")["messages"]
        said = [each["content"][0]["text"] for each in messages]
        assert said == ["one", "another answer", "two", "answer two"]
        (root,) = server.data("get_tree")["tree"]
        assert len(root["children"]) == 2
        assert server.data("get_session_stats")["cost"] == 1.5
        server.run("three", id="1")
    found = with_session_manager(cache, READ, written["file"])
    assert found["roles"] == ["user", "assistant"] * 3
