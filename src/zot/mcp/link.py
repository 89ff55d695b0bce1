"""What carries MCP messages to a server and back: the parts that every transport shares.

A request is waited for by the thread that made it; what belongs to it (progress, its answer)
arrives there. All else goes to the connection.
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
"""Messages of one request that may wait to be looked at; of more, the oldest are dropped."""


class McpFault(McpError):
    """The server answered with an error."""

    def __init__(self, fault: jsonrpc.RpcFault) -> None:
        text = fault.message.strip() or "no explanation"
        super().__init__(f"{text[:1000]} (error {fault.code})")
        self.fault = fault


class McpTimeout(McpError):
    """No answer in time."""


class McpLogin(McpError):
    """The user has to log in to the server first."""


class McpSessionLost(McpError):
    """The server does not know us any more: after another handshake it may be asked again."""


class McpGone(McpError):
    """The server, or the connection to it, has ended."""


class Patience:
    """How long a request is waited for: so long after it was sent and after each sign of progress,
    and never longer than `most`."""

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
    """A request on its way to a server."""

    method: str
    params: dict[str, Json]
    cancel: Cancel
    patience: Patience
    token: str | None = None
    """By which progress of it is known."""
    progress: Callable[[Raw], None] = lambda params: None
    headers: dict[str, str] = {}
    """What goes along beside the message (HTTP)."""
    version: str = ""
    quiet: bool = False
    """A probe: the server is not told when nobody waits for it any more."""

    def timed_out(self) -> McpTimeout:
        return McpTimeout(f"no answer to {self.method} within {self.patience.seconds:g} s")


class Link(Protocol):
    is_http: bool
    hint: str
    """What may be the reason if it does not start; empty: nothing in particular."""

    def is_alive(self) -> bool:
        """Whether it can take another request, as far as anybody knows."""

    def request(self, ask: LinkRequest) -> Raw:
        """Send a request and wait for its result.

        Raises:
            McpFault: the server answered with an error.
            McpTimeout: it did not answer in time.
            McpGone: it has ended.
            Cancelled: nobody wants the answer any more; the server was told.
        """

    def notify(self, method: str, params: dict[str, Json]) -> None:
        """Send a notification; one that cannot be sent is left out."""

    def listen(self, method: str, params: dict[str, Json]) -> None:
        """Send a request whose answer is a stream of notifications, for as long as it lasts;
        without a method: what a server with sessions says unasked."""

    def last_words(self) -> str:
        """What the server complained about, for an error message."""

    def close(self) -> None: ...


class LinkIncoming:
    """Takes the messages of a server: answers and progress go to whoever waits for them, the rest
    to the handler."""

    def __init__(self, handler: McpConnection, send: Callable[[bytes], object]) -> None:
        """`send` carries the answer to a request of the server's."""
        self._handler = handler
        self._send = send

    def take(
        self,
        data: bytes,
        settle: Callable[[jsonrpc.RpcAnswer], object],
        progress: Callable[[str], Callable[[Raw], None] | None],
    ) -> jsonrpc.RpcFault | None:
        """`progress` gives who waits for that of a token. What is wrong with the message."""
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
    """What arrives for one request; waited for by the thread that made it."""

    def __init__(self) -> None:
        self._messages: deque[jsonrpc.RpcAnswer | Raw] = deque(maxlen=MAX_WAITING)
        self._answered = False
        self._arrived = threading.Condition()

    def put(self, message: jsonrpc.RpcAnswer | Raw) -> None:
        """An answer, or the parameters of a sign of progress; never blocks."""
        with self._arrived:
            if not self._answered:  # nothing may push the answer out
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
    """Raises McpFault for an error, McpGone for the end of the connection."""
    if answer.fault is None:
        return answer.result
    if answer.fault.code == GONE:
        raise McpGone(answer.fault.message)
    raise McpFault(answer.fault)


GONE = -1
"""The code of a fault of our own making: there will be no answer."""


def gone(reason: str) -> jsonrpc.RpcFault:
    return jsonrpc.RpcFault(GONE, reason)


class _ProgressParams(Struct):
    progressToken: str | int  # the wire's name


_decode_progress = msgspec.json.Decoder(_ProgressParams).decode


def progress_token(params: Raw) -> str:
    """Whose progress a notification tells; empty: nobody's."""
    try:
        return str(_decode_progress(params).progressToken)
    except (msgspec.MsgspecError, RecursionError):
        return ""
