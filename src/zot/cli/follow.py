"""`zot follow PATH`: print the frames of a durable session as they are written."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from zot.bugs import complain
from zot.cli.output import PlainParser, say_now
from zot.errors import UsageError
from zot.wire.eventlog import follow_lines, log_path, tick

DESCRIPTION = """\
Print the frames of a session that runs with --durable: those behind SEQ (all that are kept), and
those that come. Read-only: any number of readers may follow, from whenever they like.
"""


def main(argv: Sequence[str]) -> int:
    parser = PlainParser(prog="zot follow", description=DESCRIPTION)
    parser.add_argument("session", help="the session file, as given to `zot rpc --session`")
    parser.add_argument(
        "--from",
        dest="after",
        type=int,
        default=0,
        metavar="SEQ",
        help="the last `seq` that is known",
    )
    parser.add_argument("--once", action="store_true", help="end with the last frame there is")
    options = parser.parse_args(argv[1:])
    if not Path(log_path(options.session)).exists():
        nothing = (
            f"nothing is kept of {options.session!r}: only a run with --durable keeps its frames"
        )
        if options.once:
            raise UsageError(f"zot follow: {nothing}")
        complain(f"{nothing}; waiting for one")
    for line in follow_lines(
        options.session, options.after, (lambda: False) if options.once else tick
    ):
        say_now(line.decode().rstrip("\n"))
    return 0
