"""A link to a server that zot starts: one message per line over its stdin and stdout."""

from __future__ import annotations

import os
import shutil
import threading
from collections import deque
from collections.abc import Mapping
from contextlib import AbstractContextManager, ExitStack
from pathlib import Path

from msgspec import Raw

from zot.children.lineprocess import LineLimits, LineProcess
from zot.children.logfile import MIB, LogFile
from zot.children.process import ChildProcess
from zot.core.shell import Program
from zot.errors import Cancelled, McpError
from zot.jsonrpc import (
    RpcAnswer,
    RpcFault,
    RpcGarbage,
    RpcHandler,
    RpcNotification,
    RpcPeer,
    read_message,
    request_line,
)
from zot.lines import LineTooLong
from zot.mcp.config import ServerConfig
from zot.mcp.link import (
    CANCELLED,
    GONE,
    PROGRESS,
    LinkRequest,
    McpTimeout,
    progress_token,
    result_of,
)
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
MAX_WAITING = 100
"""Maximum queued messages per request; beyond it the oldest are dropped."""


def server_environment(config: ServerConfig, environ: Mapping[str, str]) -> dict[str, str]:
    """Return a small base environment plus the configured variables; no API keys of providers."""
    base = {name: environ[name] for name in BASE if name in environ}
    base |= {name: value for name, value in environ.items() if name.startswith("LC_")}
    return {**base, **config.env}


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


class Replies:
    """Messages for one request; the thread that made it waits for them."""

    def __init__(self) -> None:
        self._messages: deque[RpcAnswer | Raw] = deque(maxlen=MAX_WAITING)
        self._answered = False
        self._arrived = threading.Condition()

    def put(self, message: RpcAnswer | Raw) -> None:
        """Add an answer, or the parameters of a progress notification; never blocks."""
        with self._arrived:
            if not self._answered:  # nothing may displace the answer
                self._answered = isinstance(message, RpcAnswer)
                self._messages.append(message)
                self._arrived.notify_all()

    def wait(self, ask: LinkRequest) -> Raw:
        """See Link.request."""
        patience = ask.patience
        while patience.cancel.wait_for(
            self._arrived, lambda: bool(self._messages), patience.deadline
        ):
            with self._arrived:
                message = self._messages.popleft()
            if isinstance(message, RpcAnswer):
                return result_of(message)
            ask.progressed(message)
        raise ask.timed_out()


class StdioLink:
    """Starts the server at construction, confined by `confined`; `close` ends its whole process
    tree. Raises McpError: it cannot be started."""

    is_http = False

    def __init__(
        self,
        config: ServerConfig,
        confined: AbstractContextManager[Program],
        log: LogFile,
        handler: RpcHandler,
    ) -> None:
        self.peer = RpcPeer(lambda line: self._process.send_line(line), handler, CANCELLED)
        self._log = log
        self._by_token: dict[str, Replies] = {}
        log.note(f"starting {config.command!r} in {config.folder}")
        with ExitStack() as jail:
            program = jail.enter_context(confined)
            try:
                folder = Path(program.folder)
                process = ChildProcess(program.argv, folder, program.env, program.plan)
            except (OSError, ValueError) as error:
                raise McpError(f"it cannot be started: {error}") from error
            self._jail = jail.pop_all()  # until the process has ended
        self.hint = JAILED if program.jailed else ""
        self._process = LineProcess(
            f"mcp-{config.name}", process, log, LIMITS, on_line=self._take, on_end=self._ended
        )

    def start(self) -> None:
        self._process.start()

    def is_alive(self) -> bool:
        return not self._process.ended.is_set()

    def request(self, ask: LinkRequest) -> Raw:
        replies = Replies()
        id = self.peer.open(replies.put)
        if ask.token is not None:
            self._by_token[ask.token] = replies
        try:
            self._send(id, ask)
            return replies.wait(ask)
        except (Cancelled, McpTimeout) as error:
            if ask.quiet:
                self.peer.drop(id)
            else:
                reason = "the user aborted" if isinstance(error, Cancelled) else "it took too long"
                self.peer.withdraw(id, reason=reason)
            raise
        finally:
            self._by_token.pop(ask.token or "", None)

    def _send(self, id: int, ask: LinkRequest) -> None:
        line = request_line(id, ask.method, ask.params)
        if self._process.send_line(line):
            return
        if len(line) > LIMITS.line:
            self.peer.drop(id)
            raise McpError(f"the request has {len(line)} bytes, the limit is {LIMITS.line}")
        fault = RpcFault(GONE, "the server no longer reads its stdin")
        self.peer.settle(RpcAnswer(id, fault=fault))

    def listen(self, method: str, params: dict[str, Json]) -> None:
        if method:  # without one: all its output is read anyway
            self.peer.ask(method, params, lambda answer: None)

    def last_words(self) -> str:
        text = printable(self._process.last_words.decode("utf-8", "replace"))
        return "\n".join(text.strip().splitlines()[-LAST_LINES:])

    def close(self) -> None:
        """Close its stdin, wait, then end the whole process tree."""
        self.peer.close(RpcFault(GONE, "the server was stopped"))
        self._process.ask_to_stop()
        if not self._process.ended.wait(CLOSE_SECONDS):
            self._process.process.terminate()
            if not self._process.ended.wait(LIMITS.terminate):
                self._log.note("ignored the end of its stdin and SIGTERM: killed")
        self._process.close()
        self._log.close()

    def _take(self, line: bytes | LineTooLong) -> bool:
        """Take a line of the server; False: it is invalid."""
        if isinstance(line, LineTooLong):
            # The line could be the answer to any pending request.
            text = f"it sent a line of more than {line.limit} bytes"
            self.peer.fail_open(RpcFault(LINE_TOO_LONG, text))
            return False
        message = read_message(line)
        match message:
            case RpcGarbage(fault):
                self._log.note(f"a line was dropped: {fault.message}: {line[:200]!r}")
                return False
            case RpcNotification(method, params) if method == PROGRESS:
                if (replies := self._by_token.get(progress_token(params))) is not None:
                    replies.put(params)
            case _:
                self.peer.dispatch(message)
        return True

    def _ended(self, reason: str) -> None:
        # Stderr may end after stdout; the process has joined its thread.
        words = self.last_words()
        text = f"it {reason}" + (f"; it said:\n{words}" if words else "")
        self.peer.close(RpcFault(GONE, text))
        self._jail.close()
