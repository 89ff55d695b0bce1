"""`zot acp` and `zot mcp-server`: serve another program, which chooses the work."""

from __future__ import annotations

import sys
from collections.abc import Sequence

from zot.errors import UsageError
from zot.home import of_process
from zot.settings.options import parse

ACP = """zot acp [flags]: speak the Agent Client Protocol on stdin and stdout, for an editor.

The flags are those of `zot --help` that say what to run with: --provider, --model, --reasoning,
--tools, --approve, --yolo, --jail, --ext and so on. --login sets up a provider instead.
docs/acp.md has set-ups for editors.
"""
MCP = """zot mcp-server [flags]: an MCP server on stdin and stdout.

The flags are those of `zot --help` that say what to run with, and they bound what a call can ask
for: --provider, --model, --tools, --approve, --yolo, --jail, --max-cost and so on.
Its tools are `zot` and `zot_reply`; docs/mcp-server.md has set-ups for other agents.
"""
NOT_HERE = (
    *("session", "continue_", "resume", "print", "json", "rpc", "mode", "record", "replay"),
    "durable",
)


def main(argv: Sequence[str]) -> int:
    """Run `zot acp ...` or `zot mcp-server ...` and return the exit code. `argv[0]` is that word.

    Raises:
        UsageError: an option is the other program's to decide, or makes no sense here.
    """
    command, *words = argv
    is_acp = command == "acp"
    if is_acp and "--login" in words:
        from zot.cli import auth

        return auth.main(["login", *(word for word in words if word != "--login")])
    options = parse(words)
    if options.help:
        sys.stdout.write(ACP if is_acp else MCP)
        return 0
    if options.words:
        raise UsageError(f"zot {command} takes no words, got {options.words[0]!r}")
    if wrong := next((name for name in NOT_HERE if getattr(options, name)), ""):
        because = "the client chooses" if is_acp else "each call says it"
        raise UsageError(f"zot {command} takes no --{wrong.strip('_')}: {because}")
    if is_acp:
        from zot.acp import server as acp

        return acp.serve(options, of_process())
    from zot.mcpserver import server as mcp

    return mcp.serve(options, of_process())
