"""`zot glasspane`: serve one page that shows every visible agent."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Sequence
from pathlib import Path

from zot.cli.output import PlainParser, arg, flag
from zot.errors import ConfigError, UsageError
from zot.extras import missing
from zot.glasspane.board import Board
from zot.glasspane.guard import ORDER, Guard, names_of
from zot.glasspane.links import Links
from zot.home import home_dir
from zot.settings.known import hide_keys
from zot.swarm.local import LocalSwarm
from zot.swarm.web import LOOPBACK, check_reach, listen, server

PORT = 7747
DESCRIPTION = """\
Serve one page that shows all agents: those of `zot swarm`, streams shared by `zot watch --share
NAME`, and files with frames of zot, pi, Claude Code or codex.
"""


def main(argv: Sequence[str]) -> int:
    arguments = _parser().parse_args(argv[1:])
    cert, key = arguments.tls_cert, arguments.tls_key
    check_reach(arguments.host, cert, key, "--tls-cert and --tls-key", "ssh -L")
    if not 0 <= arguments.port <= 65535:
        raise UsageError(f"--port must be from 0 to 65535, not {arguments.port}")
    try:
        from zot.glasspane.server import Glasspane
    except ImportError as error:
        raise ConfigError(missing("the page", str(error.name), "web")) from error
    hide_keys(home_dir(os.environ), os.environ)
    listening = listen(arguments.host, arguments.port, "try --port 0")
    port = listening.getsockname()[1]
    home = Path(home_dir(os.environ))
    guard = Guard(names_of(arguments.host, port, tuple(arguments.name)))
    board = Board(home, os.environ, [Path(path) for path in arguments.files])
    pane = Glasspane(board, LocalSwarm(home, os.environ), guard, os.path.realpath("."))
    serving = server(
        pane.app(), cert, key, timeout_graceful_shutdown=5, h11_max_incomplete_event_size=64 * 1024
    )
    pane.is_over = lambda: serving.should_exit
    name = arguments.name[0] if arguments.name else arguments.host
    address = f"{'https' if cert else 'http'}://{f'[{name}]' if ':' in name else name}:{port}"
    links = Links(guard, address, home / "glasspane")
    links.print()
    links.print_when_asked()
    if cert:
        for role in ORDER:
            sys.stdout.write(f"token to {role}: {guard.new_token(role)}\n")
        sys.stdout.flush()
    try:
        if not arguments.no_open and sys.stdout.isatty():
            links.open_browser()
        serving.run(sockets=[listening])
    finally:
        links.close()
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = PlainParser(prog="zot glasspane", description=DESCRIPTION).add(
        arg("files", nargs="*", help="files with frames, shown as they grow"),
        arg("--port", type=int, default=PORT, help=f"0: any free one (default {PORT})"),
        flag("--no-open", help="do not open a browser"),
    )
    far = parser.add_argument_group("from other machines (needs TLS)")
    far.add_argument("--host", default=LOOPBACK[0], help="address to listen on")
    far.add_argument("--name", action="append", default=[], help="host name that browsers use")
    far.add_argument("--tls-cert", default="", metavar="FILE", help="certificate")
    far.add_argument("--tls-key", default="", metavar="FILE", help="key of the certificate")
    return parser
