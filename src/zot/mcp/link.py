"""Transport of MCP messages to a server and back: the protocol, and the errors of all transports.

The thread that made a request waits for it, and receives its progress and answer there. All other
messages go to the connection, through the link's peer.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Protocol

import msgspec
from msgspec import Raw, Struct

from zot.cancel import Cancel
from zot.errors import McpError
from zot.jsonrpc import RpcAnswer, RpcFault, RpcPeer
from zot.provider.types import Json
from zot.text import Frozen

PROGRESS = "notifications/progress"
CANCELLED = "notifications/cancelled"
GONE = -1
"""Code of a fault that zot makes itself: no answer will come."""


class McpFault(McpError):
    """The server answered with an error."""

    def __init__(self, fault: RpcFault) -> None:
        text = fault.message.strip() or "no explanation"
        super().__init__(f"{text[:1000]} (error {fault.code})")
        self.fault = fault


class McpTimeout(McpError):
    """No answer within the timeout."""


class McpLogin(McpError):
    """The user has to log in to the server first."""


class McpSessionLost(McpError):
    """The server has dropped the session; after a new handshake the request may be repeated."""


class McpGone(McpError):
    """The server, or the connection to it, has ended."""


class Patience:
    """Limits of the wait for a request: until `cancel`, or `seconds` after it was sent and after
    each progress notification, and at most `most` in total."""

    def __init__(self, seconds: float, cancel: Cancel, most: float | None = None) -> None:
        self.seconds = seconds
        self.cancel = cancel
        self._end = time.monotonic() + (seconds if most is None else most)
        self.deadline = time.monotonic() + seconds

    def extend(self) -> None:
        self.deadline = min(self._end, time.monotonic() + self.seconds)

    @property
    def left(self) -> float:
        return max(0.0, self.deadline - time.monotonic())


class LinkRequest(Frozen):
    """A request to a server."""

    method: str
    params: dict[str, Json]
    patience: Patience
    version: str
    token: str | None = None
    """Token of its progress notifications."""
    progress: Callable[[Raw], None] = lambda params: None
    headers: dict[str, str] = {}
    """Additional headers (HTTP)."""
    quiet: bool = False
    """A probe: no cancel notification is sent when it is given up."""

    def progressed(self, params: Raw) -> None:
        self.patience.extend()
        self.progress(params)

    def timed_out(self) -> McpTimeout:
        return McpTimeout(f"no answer to {self.method} within {self.patience.seconds:g} s")


class Link(Protocol):
    """A transport: stdio.py or http.py."""

    is_http: bool
    hint: str
    """A likely reason for a failed start; empty: none known."""
    peer: RpcPeer
    """Sends notifications, and answers to requests of the server; failures are ignored."""

    def start(self) -> None:
        """Begin to read; from now on messages of the server reach the handler."""

    def is_alive(self) -> bool:
        """Whether it can probably take another request."""

    def request(self, ask: LinkRequest) -> Raw:
        """Send a request and wait for its result.

        Raises:
            McpFault: the server answered with an error.
            McpTimeout: it did not answer in time.
            McpGone: it has ended.
            Cancelled: the turn was aborted; the server was notified, unless `quiet`.
        """

    def listen(self, method: str, params: dict[str, Json]) -> None:
        """Send a request whose answer is a stream of notifications, for as long as it lasts;
        without a method: listen to the unsolicited messages of a server with sessions."""

    def last_words(self) -> str:
        """Return the last stderr lines of the server, for an error message."""

    def close(self) -> None: ...


def result_of(answer: RpcAnswer) -> Raw:
    """Return the result. Raises McpFault for an error, McpGone for the end of the connection."""
    if answer.fault is None:
        return answer.result
    if answer.fault.code == GONE:
        raise McpGone(answer.fault.message)
    raise McpFault(answer.fault)


class _ProgressParams(Struct):
    progressToken: str | int  # the wire's name


_decode_progress = msgspec.json.Decoder(_ProgressParams).decode


def progress_token(params: Raw) -> str:
    """Return the progress token of a notification; empty: none."""
    try:
        return str(_decode_progress(params).progressToken)
    except (msgspec.MsgspecError, RecursionError):
        return ""
