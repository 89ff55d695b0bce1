"""The examples of docs/mcp.md are what zot takes and says."""

import json

import msgspec
from support.docs import blocks

from zot.mcp.config import decode_file, parse_servers
from zot.wire.frames import EventFrame

PAGE = "docs/mcp.md"


def test_every_json_block_is_a_file_of_servers_or_a_frame():
    files = frames = 0
    for block in blocks(PAGE, "json"):
        if "mcpServers" in json.loads(block.text):
            configured = parse_servers(decode_file(block.text.encode()), "user", "/")
            assert configured.problems == () and len(configured.servers) == 3
            files += 1
        else:
            msgspec.json.decode(block.text, type=EventFrame)
            frames += 1
    assert (files, frames) == (1, 1)
