"""`zot acp` and `zot mcp-server`: serve another program, which chooses the work."""

from __future__ import annotations

import sys
from collections.abc import Sequence

from zot.errors import UsageError
from zot.home import of_process
from zot.settings.options import Options, parse

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


def acp(argv: Sequence[str]) -> int:
    if "--login" in argv:
        from zot.cli import auth

        return auth.login([word for word in argv if word != "--login"])
    options = _options(argv, ACP, "the client chooses")
    if options is None:
        return 0
    from zot.acp import server

    return server.serve(options, of_process())


def mcp_server(argv: Sequence[str]) -> int:
    options = _options(argv, MCP, "each call says it")
    if options is None:
        return 0
    from zot.mcpserver import server

    return server.serve(options, of_process())


def _options(argv: Sequence[str], help: str, because: str) -> Options | None:
    """Parse the flags; print the help and return None if it was asked for.

    Raises:
        UsageError: an option is the other program's to decide, or makes no sense here.
    """
    command, *words = argv
    options = parse(words)
    if options.help:
        sys.stdout.write(help)
        return None
    if options.words:
        raise UsageError(f"zot {command} takes no words, got {options.words[0]!r}")
    if wrong := next((name for name in NOT_HERE if getattr(options, name)), ""):
        raise UsageError(f"zot {command} takes no --{wrong.strip('_')}: {because}")
    return options
