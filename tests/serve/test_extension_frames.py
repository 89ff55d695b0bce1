"""Newer frames of extensions behind `zot rpc` and the SDK: real processes."""

import json
from pathlib import Path

import pytest
from support.extension import wait_for, write_extension
from support.rpc import Zot, command, environment, make_folder

from zot.client import Client
from zot.errors import CommandError
from zot.sdk import Runtime

DEFERRED = """
hello()
emit("register_tool", name="find", description="finds tools", schema={"type": "object"})
emit("register_tool", name="deploy", description="d", schema={"type": "object"}, deferred=True)
emit("register_tool", name="undo", description="u", schema={"type": "object"}, exposure="deferred")
emit("register_tool", name="plain", schema={"type": "object"}, exposure="codemode")
emit("ready")
for frame in frames():
    if frame["type"] == "tool_call" and frame["name"] == "find":
        block = {"type": "text", "text": "*found*", "format": "markdown"}
        emit("tool_result", id=frame["id"], content=[block], activate_tools=["deploy", "nothing"])
    elif frame["type"] == "tool_call":
        text(frame["id"], frame["name"] + " ran")
"""
COMMANDS = """
hello()
emit("register_command", name="today")
emit("ready")
for frame in frames():
    if frame["type"] == "command_invoked":
        emit("clear_notes")
        emit("submit", text="nobody starts runs here but the client")
        emit("submit_slash", text="no slash")
        emit("command_response", id=frame["id"], action="tool_prompt", prompt="what is new?",
             tool_name="bash", tool_args={"command": "echo from-the-tool"})
"""
PANEL = """
hello()
emit("register_command", name="board")
emit("ready")
for frame in frames():
    if frame["type"] == "command_invoked":
        panel = {"id": "b", "title": "Board", "lines": ["first"], "footer": "any key"}
        emit("command_response", id=frame["id"], action="open_panel", open_panel=panel)
    if frame["type"] in ("panel_key", "panel_resize"):
        emit("notify", message=json.dumps(frame))
"""


def call(name):
    return {"tools": [{"name": name, "args": {}}]}


def test_a_deferred_tool_is_there_once_a_result_names_it(tmp_path: Path) -> None:
    extension = write_extension(tmp_path, "late", DEFERRED)
    turns = [call("deploy"), call("find"), call("deploy"), call("undo"), call("plain"), "done"]
    with Zot(tmp_path, turns, args=["--ext", str(extension)]) as zot:
        results = [frame for frame in zot.prompt() if frame["type"] == "tool_result"]
        texts = [result["content"][0]["text"] for result in results]
    assert "unknown tool 'deploy'" in texts[0]
    assert "find" in texts[0] and "undo" not in texts[0].partition("tools are:")[2]
    assert texts[1:3] == ["*found*", "deploy ran"]
    assert "unknown tool 'undo'" in texts[3]
    assert texts[4] == "plain ran"


def test_a_command_begins_with_a_tool_and_a_prompt(tmp_path: Path) -> None:
    extension = write_extension(tmp_path, "news", COMMANDS)
    with Zot(tmp_path, ["I read it"], args=["--ext", str(extension)]) as zot:
        answer = zot.data("run_command", name="TODAY")
        assert (answer["action"], answer["started"]) == ("prompt", True)
        frames = zot.until("done")
        messages = zot.data("get_messages")["messages"]
        assert [message["role"] for message in messages] == [
            "user",
            "assistant",
            "tool",
            "assistant",
        ]
        assert "from-the-tool" in str(messages[2])
        assert "I read it" in str(messages[3])
        kinds = [frame["type"] for frame in frames]
        assert kinds.index("tool_call") < kinds.index("tool_result") < kinds.index("text_delta")
        zot.invariants()
        log = tmp_path / "zot-home" / "logs" / "ext-news.log"
        wait_for(lambda: "does not start runs" in log.read_text())
        assert "does not begin with a /" in log.read_text()


@pytest.fixture
def board(tmp_path: Path) -> Path:
    return write_extension(tmp_path, "board", PANEL)


def test_panels_get_keys_and_sizes_over_the_wire(tmp_path: Path, board: Path) -> None:
    script = tmp_path / "script.json"
    script.write_text(json.dumps({"turns": []}))
    notes = []
    flags = ["--provider", "scripted", "--script", str(script), "--ext", str(board)]
    with Client(
        [*command(), "rpc", *flags],
        on_event=notes.append,
        cwd=make_folder(tmp_path),
        env=environment(tmp_path),
    ) as client:
        assert client.run_command("board").panel["title"] == "Board"
        client.panel_resize("board", "b", 80, 10)
        client.panel_key("board", "b", "rune", "x")
        wait_for(lambda: "panel_key" in str(notes) and "panel_resize" in str(notes))
        client.panel_close("board", "b")
        assert [state.name for state in client.reload_extensions()] == ["board"]
        with pytest.raises(CommandError, match="not running"):
            client.panel_resize("nobody", "b", 80, 10)


def test_panels_and_reload_in_process(tmp_path: Path, board: Path) -> None:
    script = tmp_path / "script.json"
    script.write_text(json.dumps({"turns": []}))
    with Runtime(
        provider="scripted", script=str(script), cwd=tmp_path, extensions=[board]
    ) as runtime:
        assert runtime.run_command("board").action == "open_panel"
        runtime.panel_key("board", "b", "up")
        runtime.panel_resize("board", "b", 80, 10)
        runtime.panel_close("board", "b")
        assert [state.state for state in runtime.reload_extensions()] == ["ready"]
