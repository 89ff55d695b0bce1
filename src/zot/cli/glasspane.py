"""`zot glasspane`: one page, on this machine, of every agent that can be seen."""

from __future__ import annotations

import argparse
import os
import socket
import ssl
import sys
import webbrowser
from collections.abc import Sequence
from pathlib import Path

from zot.errors import ConfigError, UsageError
from zot.glasspane.board import Board
from zot.glasspane.guard import ORDER, Guard, names_of, new_token
from zot.home import home_dir
from zot.settings.known import hide_keys
from zot.swarm.local import LocalSwarm

LOOPBACK = ("127.0.0.1", "::1", "localhost")
PORT = 7747
DESCRIPTION = """\
One page of all agents: those of `zot swarm`, streams that `zot watch --share NAME` passes on, and
files with frames of zot, pi, Claude Code or codex.
"""


def main(argv: Sequence[str]) -> int:
    arguments = _parser().parse_args(argv[1:])
    _check(arguments)
    try:
        import uvicorn

        from zot.glasspane.server import Glasspane
    except ImportError as error:
        raise ConfigError(
            f"the page needs {error.name}: install it with pip install 'zot-agent[web]'"
        ) from error
    hide_keys(home_dir(os.environ), os.environ)
    listening = _listen(arguments.host, arguments.port)
    port = listening.getsockname()[1]
    tokens = {role: new_token() for role in (ORDER if arguments.tls_cert else ORDER[-1:])}
    home = Path(home_dir(os.environ))
    guard = Guard(
        tokens,
        names_of(arguments.host, port, tuple(arguments.name)),
        port,
        secure=bool(arguments.tls_cert),
    )
    board = Board(home, os.environ, [Path(path) for path in arguments.files])
    pane = Glasspane(board, LocalSwarm(home, os.environ), guard, os.path.realpath("."))
    scheme = "https" if arguments.tls_cert else "http"
    name = arguments.name[0] if arguments.name else arguments.host
    for role, token in tokens.items():
        what = f" ({role})" if len(tokens) > 1 else ""
        sys.stdout.write(f"{scheme}://{_in_url(name)}:{port}/#token={token}{what}\n")
    sys.stdout.flush()
    if not arguments.no_open and sys.stdout.isatty():
        webbrowser.open(f"{scheme}://{_in_url(name)}:{port}/#token={tokens['drive']}")
    config = uvicorn.Config(
        pane.app(),
        log_level="warning",
        access_log=False,  # addresses of requests are nobody's business
        server_header=False,
        ssl_certfile=arguments.tls_cert,
        ssl_keyfile=arguments.tls_key,
        timeout_graceful_shutdown=5,
        lifespan="off",
        ws="none",
        h11_max_incomplete_event_size=64 * 1024,
    )
    server = uvicorn.Server(config)
    pane.is_over = lambda: server.should_exit
    server.run(sockets=[listening])
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="zot glasspane", description=DESCRIPTION)
    parser.add_argument("files", nargs="*", help="files with frames, shown as they grow")
    parser.add_argument("--port", type=int, default=PORT, help=f"0: any free one (default {PORT})")
    parser.add_argument("--no-open", action="store_true", help="do not open a browser")
    far = parser.add_argument_group("from other machines (needs TLS)")
    far.add_argument("--host", default=LOOPBACK[0], help="the address to listen on")
    far.add_argument("--name", action="append", default=[], help="what browsers call it")
    far.add_argument("--tls-cert", metavar="FILE", help="certificate")
    far.add_argument("--tls-key", metavar="FILE", help="and its key")
    return parser


def _check(arguments: argparse.Namespace) -> None:
    if bool(arguments.tls_cert) != bool(arguments.tls_key):
        raise UsageError("--tls-cert and --tls-key belong together")
    if arguments.host not in LOOPBACK and not arguments.tls_cert:
        raise UsageError(
            f"{arguments.host!r} can be reached from other machines: give --tls-cert and --tls-key,"
            " or listen on 127.0.0.1 and use a tunnel (ssh -L)"
        )
    if arguments.tls_cert:
        _check_certificate(arguments.tls_cert, arguments.tls_key)
    if not 0 <= arguments.port <= 65535:
        raise UsageError(f"--port must be from 0 to 65535, not {arguments.port}")


def _check_certificate(cert: str, key: str) -> None:
    try:
        ssl.create_default_context(ssl.Purpose.CLIENT_AUTH).load_cert_chain(cert, key)
    except OSError as error:
        why = error.strerror or error
        raise ConfigError(f"cannot use certificate {cert!r} with key {key!r}: {why}") from error


def _listen(host: str, port: int) -> socket.socket:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    listening = socket.socket(family, socket.SOCK_STREAM)
    listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listening.bind((host, port))
    except OSError as error:
        listening.close()
        raise ConfigError(
            f"cannot listen on {host} port {port}: {error.strerror}; try --port 0"
        ) from error
    listening.listen()
    return listening


def _in_url(host: str) -> str:
    return f"[{host}]" if ":" in host else host
