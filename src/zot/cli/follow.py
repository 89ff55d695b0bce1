"""`zot follow PATH`: the frames of a durable session, as they are written, for a second reader."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path

from zot.bugs import complain
from zot.cli.output import say
from zot.errors import UsageError
from zot.wire.eventlog import follow_lines, log_path, tick

HELP = """\
usage: zot follow [--from SEQ] [--once] SESSION

Print the frames of a session that runs with --durable: those behind SEQ (all that are kept), and
those that come. Read-only: any number of readers may follow, from whenever they like.

  SESSION      the session file, as given to `zot rpc --session`
  --from SEQ   the `seq` of the last frame that is known
  --once       end with the last frame there is
"""


def main(argv: Sequence[str]) -> int:
    words = list(argv[1:])
    if "-h" in words or "--help" in words:
        say(HELP)
        return 0
    once = "--once" in words
    after = _after(words)
    files = [word for word in words if word != "--once"]
    if len(files) != 1 or files[0].startswith("-"):
        raise UsageError("zot follow: give one session file; see zot follow --help")
    if not Path(log_path(files[0])).exists():
        nothing = f"nothing is kept of {files[0]!r}: only a run with --durable keeps its frames"
        if once:
            raise UsageError(f"zot follow: {nothing}")
        complain(f"{nothing}; waiting for one")
    try:
        for line in follow_lines(files[0], after, (lambda: False) if once else tick):
            say(line.decode().rstrip("\n"))
            sys.stdout.flush()
    except KeyboardInterrupt:
        return 130
    return 0


def _after(words: list[str]) -> int:
    """The value of --from, which is taken out."""
    if "--from" not in words:
        return 0
    at = words.index("--from")
    value = words[at + 1] if at + 1 < len(words) else ""
    if not value.isdigit():
        raise UsageError(f"zot follow: --from needs a number, got {value!r}")
    del words[at : at + 2]
    return int(value)
