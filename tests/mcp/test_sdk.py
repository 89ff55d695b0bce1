"""Servers that a program gives to the runtime it embeds."""

import pytest
from support.mcp import configure, entry

from zot.sdk import Runtime, events
from zot.testing import ScriptedProvider


@pytest.fixture
def place(tmp_path, monkeypatch):
    monkeypatch.setenv("ZOT_HOME", str(tmp_path / "home"))
    (tmp_path / "work").mkdir()
    return tmp_path


def test_given_servers_are_used_and_no_file_is_read(place):
    configure(place / "home" / "mcp.json", mine=entry())
    call = {"tools": [{"name": "mcp__given__echo", "args": {"text": "hi"}}]}
    provider = ScriptedProvider([call, {"text": "bye"}])
    with Runtime(
        provider=provider,
        cwd=place / "work",
        mcp_servers={"given": entry()},
        features=["mcp"],
    ) as runtime:
        happened = list(runtime.prompt("go"))
        (result,) = [event for event in happened if isinstance(event, events.ToolResult)]
        assert result.content[0].text == "you said hi"
        told = [event for event in happened if isinstance(event, events.McpServer)]
        assert [event.state for event in told][:2] == ["starting", "ready"]
        assert told[-1].tools == 18
        (server,) = runtime.servers()
        assert (server.name, server.state, server.origin) == ("given", "ready", "given")
