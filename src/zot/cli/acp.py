"""`zot acp`: be the agent of an editor, or log in for it."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING

from zot.errors import UsageError
from zot.home import of_process
from zot.later import Later
from zot.settings.flags import Options, parse

if TYPE_CHECKING:
    from zot.acp import server
    from zot.cli import auth
else:
    server = Later("zot.acp.server")
    auth = Later("zot.cli.auth")

USAGE = """zot acp [flags]: speak the Agent Client Protocol on stdin and stdout, for an editor.

The flags are those of `zot --help` that say what to run with: --provider, --model, --reasoning,
--tools, --approve, --yolo, --jail, --ext and so on. --login sets up a provider instead.
docs/acp.md has set-ups for editors.
"""
NOT_HERE = (
    "session",
    "continue_",
    "resume",
    "print",
    "json",
    "rpc",
    "mode",
    "record",
    "replay",
    "durable",
)


def main(argv: Sequence[str]) -> int:
    """Run `zot acp ...`; the exit code. `argv[0]` is that word."""
    words = list(argv[1:])
    if "--login" in words:
        words.remove("--login")
        return auth.main(["login", *words])
    options = parse(words)
    if options.help:
        sys.stdout.write(USAGE)
        return 0
    _check(options)
    return server.serve(options, of_process())


def _check(options: Options) -> None:
    """Raises UsageError for what the client decides, or makes no sense here."""
    if options.words:
        raise UsageError(f"zot acp takes no words, got {options.words[0]!r}")
    wrong = next((name for name in NOT_HERE if getattr(options, name)), None)
    if wrong is not None:
        raise UsageError(f"zot acp takes no --{wrong.strip('_')}: the client chooses")
