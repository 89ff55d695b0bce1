"""A link to a server that zot starts: one message per line over its stdin and stdout."""

from __future__ import annotations

import os
import shutil
import threading
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, ExitStack
from pathlib import Path

from msgspec import Raw

from zot.children.limits import MIB, LineLimits
from zot.children.lineprocess import LineProcess
from zot.children.logfile import LogFile
from zot.children.process import ChildProcess
from zot.core.shell import Program
from zot.errors import Cancelled, McpError
from zot.jsonrpc import OpenRequests, RpcAnswer, RpcFault, notification_line, request_line
from zot.lines import LineTooLong
from zot.mcp.config import ServerConfig
from zot.mcp.connection import McpConnection
from zot.mcp.link import LinkIncoming, LinkRequest, McpTimeout, Replies, gone
from zot.provider.types import Json
from zot.text import printable

LIMITS = LineLimits(line=16 * MIB, queue_bytes=32 * MIB, frames_per_second=2_000)
CLOSE_SECONDS = 2.0
"""Seconds for a server to exit after its stdin was closed."""
BASE = (
    *("PATH", "HOME", "USER", "LOGNAME", "SHELL", "LANG", "LANGUAGE", "TMPDIR", "TERM", "TZ"),
    *("SSL_CERT_FILE", "SSL_CERT_DIR", "NODE_EXTRA_CA_CERTS", "REQUESTS_CA_BUNDLE"),
)
"""Variables that every server sees; its configuration names any others. Without the certificate
variables npx and uvx cannot download anything in many companies."""
LAST_LINES = 5
JAILED = (
    "it runs in the jail, where it can write the project only and has no network unless its entry"
    " says `network`; npx and uvx need both: install the server, and name its own program"
)
LINE_TOO_LONG = -32000


def server_environment(config: ServerConfig, environ: Mapping[str, str]) -> dict[str, str]:
    """Return a small base environment plus the configured variables; no API keys of providers."""
    kept = {name: environ[name] for name in BASE if name in environ}
    kept |= {name: value for name, value in environ.items() if name.startswith("LC_")}
    return {**kept, **config.env}


def server_program(config: ServerConfig, environ: Mapping[str, str]) -> Program:
    """Return the program with its full path. Raises McpError: there is no such program."""
    env = server_environment(config, environ)
    if "/" in config.command:
        program: str | None = os.path.join(config.folder, config.command)
    else:
        program = shutil.which(config.command, path=env.get("PATH", os.defpath))
    if program is None or not os.path.isfile(program):
        raise McpError(f"there is no program {config.command!r}; install it, or name its full path")
    argv = [os.path.abspath(program), *config.args]
    return Program(argv, config.folder, env, config.network)


class StdioLink:
    """Starts the server at construction, confined by `confined`; `close` ends its whole process
    tree. Raises McpError: it cannot be started."""

    is_http = False

    def __init__(
        self,
        config: ServerConfig,
        confined: AbstractContextManager[Program],
        log: LogFile,
        handler: McpConnection,
    ) -> None:
        self._incoming = LinkIncoming(handler, lambda line: self._peer.send_line(line))
        self._log = log
        self._open = OpenRequests()
        self._lock = threading.Lock()
        self._waiting: dict[int, Replies] = {}
        self._by_token: dict[str, Replies] = {}
        log.note(f"starting {config.command!r} in {config.folder}")
        with ExitStack() as kept:
            program = kept.enter_context(confined)
            try:
                folder = Path(program.folder)
                process = ChildProcess(program.argv, folder, program.env, program.plan)
            except (OSError, ValueError) as error:
                raise McpError(f"it cannot be started: {error}") from error
            self._kept = kept.pop_all()  # until the process has ended
        self.hint = JAILED if program.jailed else ""
        self._peer = LineProcess(
            f"mcp-{config.name}",
            process,
            log,
            LIMITS,
            on_line=self._take,
            on_end=self._ended,
        )
        self._peer.start()

    # --- Link --------------------------------------------------------------------------------

    def is_alive(self) -> bool:
        return not self._peer.ended.is_set()

    def request(self, ask: LinkRequest) -> Raw:
        replies = Replies()
        id = self._begin(ask, replies)
        try:
            return replies.wait(ask)
        except (Cancelled, McpTimeout) as error:
            if self._open.drop(id) and not ask.quiet:
                reason = "the user aborted" if isinstance(error, Cancelled) else "it took too long"
                self.notify("notifications/cancelled", {"requestId": id, "reason": reason})
            raise
        finally:
            with self._lock:
                self._waiting.pop(id, None)
                self._by_token.pop(ask.token or "", None)

    def notify(self, method: str, params: dict[str, Json]) -> None:
        self._peer.send_line(notification_line(method, params))

    def listen(self, method: str, params: dict[str, Json]) -> None:
        if not method:
            return  # all its output is read anyway
        id = self._open.add(lambda answer: None)
        self._peer.send_line(request_line(id, method, params))

    def last_words(self) -> str:
        text = printable(self._peer.last_words.decode("utf-8", "replace"))
        return "\n".join(text.strip().splitlines()[-LAST_LINES:])

    def close(self) -> None:
        """Close its stdin, wait, then end the whole process tree."""
        self._open.close(gone("the server was stopped"))
        self._peer.ask_to_stop()
        if not self._peer.ended.wait(CLOSE_SECONDS):
            self._peer.process.terminate()
            if not self._peer.ended.wait(LIMITS.terminate):
                self._log.note("ignored the end of its stdin and SIGTERM: killed")
        self._peer.close()
        self._log.close()

    # --- inside ------------------------------------------------------------------------------

    def _begin(self, ask: LinkRequest, replies: Replies) -> int:
        id = self._open.add(replies.put)
        with self._lock:
            self._waiting[id] = replies
            if ask.token is not None:
                self._by_token[ask.token] = replies
        line = request_line(id, ask.method, ask.params)
        if not self._peer.send_line(line):
            if len(line) > LIMITS.line:
                self._open.drop(id)
                raise McpError(f"the request has {len(line)} bytes, the limit is {LIMITS.line}")
            self._open.settle(RpcAnswer(id, fault=gone("the server no longer reads its stdin")))
        return id

    def _take(self, line: bytes | LineTooLong) -> bool:
        if isinstance(line, LineTooLong):
            self._drop_long(line)
            return False
        fault = self._incoming.take(line, self._open.settle, self._progress_of)
        if fault is not None:
            self._log.note(f"a line was dropped: {fault.message}: {line[:200]!r}")
        return fault is None

    def _progress_of(self, token: str) -> Callable[[Raw], None] | None:
        replies = self._by_token.get(token)
        return None if replies is None else replies.put

    def _drop_long(self, line: LineTooLong) -> None:
        """Fail all pending requests: a line that is too long could be the answer to any of them."""
        fault = RpcFault(LINE_TOO_LONG, f"it sent a line of more than {line.limit} bytes")
        with self._lock:
            waiting = list(self._waiting)
        for id in waiting:
            self._open.settle(RpcAnswer(id, fault=fault))

    def _ended(self, reason: str) -> None:
        # Stderr may end after stdout; the peer has joined its thread.
        words = self.last_words()
        self._open.close(gone(f"it {reason}" + (f"; it said:\n{words}" if words else "")))
        self._kept.close()
