"""docs/mcp-server.md: its files can be read, its result is one."""

from __future__ import annotations

import json

import jsonschema_rs
from support.docs import runnable

from zot.mcpserver import tools


def test_the_files_and_the_result_of_the_page() -> None:
    servers, result = (json.loads(block.text) for block in runnable("docs/mcp-server.md", "json"))
    assert servers["mcpServers"]["zot"]["args"] == ["mcp-server"]
    schema = tools.tool_list()[0]["outputSchema"]
    jsonschema_rs.validate(schema, result)
    assert set(result) | {"error"} == set(schema["properties"])
