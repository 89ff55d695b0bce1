"""`zot acp`: be the agent of an editor, or log in for it."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING

from zot.cli.flags_only import parse_flags
from zot.home import of_process
from zot.later import Later

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


def main(argv: Sequence[str]) -> int:
    """Run `zot acp ...`; the exit code. `argv[0]` is that word."""
    words = list(argv[1:])
    if "--login" in words:
        words.remove("--login")
        return auth.main(["login", *words])
    options = parse_flags("zot acp", words, "the client chooses")
    if options.help:
        sys.stdout.write(USAGE)
        return 0
    return server.serve(options, of_process())
