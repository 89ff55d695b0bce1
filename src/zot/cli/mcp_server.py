"""`zot mcp-server`: be a tool of another agent."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING

from zot.cli.flags_only import parse_flags
from zot.home import of_process
from zot.later import Later

if TYPE_CHECKING:
    from zot.mcpserver import server
else:
    server = Later("zot.mcpserver.server")

USAGE = """zot mcp-server [flags]: an MCP server on stdin and stdout.

The flags are those of `zot --help` that say what to run with, and they bound what a call can ask
for: --provider, --model, --tools, --approve, --yolo, --jail, --max-cost and so on.
Its tools are `zot` and `zot_reply`; docs/mcp-server.md has set-ups for other agents.
"""


def main(argv: Sequence[str]) -> int:
    """Run `zot mcp-server ...`; the exit code. `argv[0]` is that word."""
    options = parse_flags("zot mcp-server", argv[1:], "each call says it")
    if options.help:
        sys.stdout.write(USAGE)
        return 0
    return server.serve(options, of_process())
