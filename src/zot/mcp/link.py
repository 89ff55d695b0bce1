"""Transport of MCP messages to a server and back: the parts that all transports share.

The thread that made a request waits for it, and receives its progress and answer there. All other
messages go to the connection.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING, Protocol

import msgspec
from msgspec import Raw, Struct

from zot import jsonrpc
from zot.cancel import Cancel
from zot.errors import McpError
from zot.provider.types import Json
from zot.text import Frozen

if TYPE_CHECKING:
    from zot.mcp.connection import McpConnection

PROGRESS = "notifications/progress"
MAX_WAITING = 100
"""Maximum queued messages per request; beyond it the oldest are dropped."""


class McpFault(McpError):
    """The server answered with an error."""

    def __init__(self, fault: jsonrpc.RpcFault) -> None:
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
    """Timeout of a request: `seconds` after it was sent and after each progress notification, and
    at most `most` in total."""

    def __init__(self, seconds: float, most: float | None = None) -> None:
        self.seconds = seconds
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
    cancel: Cancel
    patience: Patience
    token: str | None = None
    """Token of its progress notifications."""
    progress: Callable[[Raw], None] = lambda params: None
    headers: dict[str, str] = {}
    """Additional headers (HTTP)."""
    version: str = ""
    quiet: bool = False
    """A probe: no cancel notification is sent when it is given up."""

    def timed_out(self) -> McpTimeout:
        return McpTimeout(f"no answer to {self.method} within {self.patience.seconds:g} s")


class Link(Protocol):
    is_http: bool
    hint: str
    """A likely reason for a failed start; empty: none known."""

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

    def notify(self, method: str, params: dict[str, Json]) -> None:
        """Send a notification; failures are ignored."""

    def listen(self, method: str, params: dict[str, Json]) -> None:
        """Send a request whose answer is a stream of notifications, for as long as it lasts;
        without a method: listen to the unsolicited messages of a server with sessions."""

    def last_words(self) -> str:
        """Return the last stderr lines of the server, for an error message."""

    def close(self) -> None: ...


class LinkIncoming:
    """Dispatches the messages of a server: answers and progress to the waiting request, all others
    to the handler."""

    def __init__(self, handler: McpConnection, send: Callable[[bytes], object]) -> None:
        """`send` sends the answer to a request of the server."""
        self._handler = handler
        self._send = send

    def take(
        self,
        data: bytes,
        settle: Callable[[jsonrpc.RpcAnswer], object],
        progress: Callable[[str], Callable[[Raw], None] | None],
    ) -> jsonrpc.RpcFault | None:
        """Dispatch one message; `progress` returns the callback for a token. Return the fault of an
        invalid message."""
        match jsonrpc.read_message(data):
            case jsonrpc.RpcAnswer() as answer:
                settle(answer)
            case jsonrpc.RpcNotification(method, params) as notification:
                hear = progress(progress_token(params)) if method == PROGRESS else None
                if hear is not None:
                    hear(params)
                else:
                    self._handler.notified(notification)
            case jsonrpc.RpcRequest() as request:
                self._handler.asked(request, lambda answer: self._reply(request, answer))
            case jsonrpc.RpcGarbage(fault):
                return fault
        return None

    def _reply(self, request: jsonrpc.RpcRequest, answer: Json | jsonrpc.RpcFault) -> None:
        make = jsonrpc.fault_line if isinstance(answer, jsonrpc.RpcFault) else jsonrpc.result_line
        self._send(make(request.id, answer))


class Replies:
    """Messages for one request; the thread that made it waits for them."""

    def __init__(self) -> None:
        self._messages: deque[jsonrpc.RpcAnswer | Raw] = deque(maxlen=MAX_WAITING)
        self._answered = False
        self._arrived = threading.Condition()

    def put(self, message: jsonrpc.RpcAnswer | Raw) -> None:
        """Add an answer, or the parameters of a progress notification; never blocks."""
        with self._arrived:
            if not self._answered:  # nothing may displace the answer
                self._answered = isinstance(message, jsonrpc.RpcAnswer)
                self._messages.append(message)
                self._arrived.notify_all()

    def wait(self, ask: LinkRequest) -> Raw:
        """See Link.request."""
        while True:
            arrived = ask.cancel.wait_for(
                self._arrived, lambda: bool(self._messages), ask.patience.deadline
            )
            if not arrived:
                raise ask.timed_out()
            with self._arrived:
                message = self._messages.popleft()
            if isinstance(message, jsonrpc.RpcAnswer):
                return result_of(message)
            ask.patience.extend()
            ask.progress(message)


def result_of(answer: jsonrpc.RpcAnswer) -> Raw:
    """Return the result. Raises McpFault for an error, McpGone for the end of the connection."""
    if answer.fault is None:
        return answer.result
    if answer.fault.code == GONE:
        raise McpGone(answer.fault.message)
    raise McpFault(answer.fault)


GONE = -1
"""Code of a fault that zot makes itself: no answer will come."""


def gone(reason: str) -> jsonrpc.RpcFault:
    return jsonrpc.RpcFault(GONE, reason)


class _ProgressParams(Struct):
    progressToken: str | int  # the wire's name


_decode_progress = msgspec.json.Decoder(_ProgressParams).decode


def progress_token(params: Raw) -> str:
    """Return the progress token of a notification; empty: none."""
    try:
        return str(_decode_progress(params).progressToken)
    except (msgspec.MsgspecError, RecursionError):
        return ""
