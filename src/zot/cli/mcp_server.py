"""`zot mcp-server`: be a tool of another agent."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING

from zot.errors import UsageError
from zot.home import of_process
from zot.later import Later
from zot.settings.flags import Options, parse

if TYPE_CHECKING:
    from zot.mcpserver import server
else:
    server = Later("zot.mcpserver.server")

USAGE = """zot mcp-server [flags]: an MCP server on stdin and stdout.

The flags are those of `zot --help` that say what to run with, and they bound what a call can ask
for: --provider, --model, --tools, --approve, --yolo, --jail, --max-cost and so on.
Its tools are `zot` and `zot_reply`; docs/mcp-server.md has set-ups for other agents.
"""
NOT_HERE = ("session", "continue_", "resume", "print", "json", "rpc", "mode", "record", "replay")


def main(argv: Sequence[str]) -> int:
    """Run `zot mcp-server ...`; the exit code. `argv[0]` is that word."""
    options = parse(list(argv[1:]))
    if options.help:
        sys.stdout.write(USAGE)
        return 0
    _check(options)
    return server.serve(options, of_process())


def _check(options: Options) -> None:
    """Raises UsageError for what a call decides, or makes no sense here."""
    if options.words:
        raise UsageError(f"zot mcp-server takes no words, got {options.words[0]!r}")
    wrong = next((name for name in (*NOT_HERE, "durable") if getattr(options, name)), None)
    if wrong is not None:
        raise UsageError(f"zot mcp-server takes no --{wrong.strip('_')}: each call says it")
