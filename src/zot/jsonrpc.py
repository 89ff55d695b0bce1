"""JSON-RPC 2.0 as used by ACP and MCP: one message per line (or body), no batches. Does no I/O and
does not interpret methods.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from itertools import count
from typing import Any, Protocol, assert_never

import msgspec
from msgspec import UNSET, Raw, Struct, UnsetType

from zot.errors import CommandError
from zot.lines import check_numbers, decode_line, encode_line
from zot.text import Frozen

PARSE_ERROR = -32700
INVALID_REQUEST = -32600
METHOD_NOT_FOUND = -32601
INVALID_PARAMS = -32602
INTERNAL_ERROR = -32603
REQUEST_CANCELLED = -32800
"""Error code not of JSON-RPC itself, but of protocols with cancellable requests."""

RpcId = int | float | str | None
"""Id that the requester chose; null is valid, too."""
NO_PARAMS = Raw(b"{}")


class RpcRequest(Frozen):
    id: RpcId
    method: str
    params: Raw = NO_PARAMS


class RpcNotification(Frozen):
    method: str
    params: Raw = NO_PARAMS


class RpcFault(Frozen, omit_defaults=True):
    """An error in its wire form."""

    code: int
    message: str = ""
    data: Any = None


class RpcAnswer(Frozen):
    """A response of the other side: a result, or a fault."""

    id: RpcId
    result: Raw = Raw(b"null")
    fault: RpcFault | None = None


class RpcGarbage(Frozen):
    """A line that is no message. `fault` says why; it is sent back with a null id."""

    fault: RpcFault


RpcMessage = RpcRequest | RpcNotification | RpcAnswer | RpcGarbage


class RpcError(Exception):
    """Raised by the handler of a request; becomes the request's response."""

    def __init__(self, code: int, message: str, data: Any = None) -> None:
        super().__init__(message)
        self.fault = RpcFault(code, message, data)


# --- reading ---------------------------------------------------------------------------------


class _Envelope(Struct):
    """Any message. The `jsonrpc` version is not checked."""

    id: RpcId | UnsetType = UNSET
    method: str | UnsetType = UNSET
    params: Raw = NO_PARAMS
    result: Raw | UnsetType = UNSET
    error: RpcFault | None = None


_decode_envelope = msgspec.json.Decoder(_Envelope).decode


def read_message(line: bytes) -> RpcMessage:
    """Parse one line or body as a message; never raises."""
    try:
        check_numbers(line)
        envelope = decode_line(line, _decode_envelope)
    except CommandError as error:
        code = PARSE_ERROR if error.code == "parse_error" else INVALID_REQUEST
        return RpcGarbage(RpcFault(code, str(error)))
    except msgspec.ValidationError as error:
        return RpcGarbage(RpcFault(INVALID_REQUEST, str(error)))
    id, method = envelope.id, envelope.method
    if method is not UNSET:
        if id is UNSET:
            return RpcNotification(method, envelope.params)
        return RpcRequest(id, method, envelope.params)
    if envelope.error is not None:
        return RpcAnswer(None if id is UNSET else id, fault=envelope.error)
    if envelope.result is not UNSET and id is not UNSET:
        return RpcAnswer(id, envelope.result)
    reason = "neither a method nor an id with a result or an error"
    return RpcGarbage(RpcFault(INVALID_REQUEST, f"invalid_request: {reason}"))


# --- writing ---------------------------------------------------------------------------------


def request_line(id: RpcId, method: str, params: Any) -> bytes:
    return _line(id=id, method=method, params=params)


def notification_line(method: str, params: Any) -> bytes:
    return _line(method=method, params=params)


def result_line(id: RpcId, result: Any) -> bytes:
    return _line(id=id, result=result)


def fault_line(id: RpcId, fault: RpcFault) -> bytes:
    return _line(id=id, error=fault)


def _line(**fields: Any) -> bytes:
    return encode_line({**fields, "jsonrpc": "2.0"})


# --- a connection ----------------------------------------------------------------------------

TakeAnswer = Callable[[RpcAnswer], None]


class RpcHandler(Protocol):
    """Handles the messages of the other side. Called by the thread that reads them."""

    def take_request(self, id: RpcId, method: str, params: Raw) -> None:
        """Answer a request through the peer, or start to."""

    def take_notification(self, method: str, params: Raw) -> None: ...


class RpcPeer:
    """The other side of a connection: writes messages to it, and pairs our requests with their
    responses. Each request ends once, with whichever comes first: the response, a `drop`, or the
    end of the connection. Safe to use from any thread.
    """

    def __init__(self, send: Callable[[bytes], object], handler: RpcHandler, cancel: str) -> None:
        """`send` writes one line; `cancel` is the notification that withdraws a request."""
        self.send = send
        self._handler = handler
        self._cancel = cancel
        self._lock = threading.Lock()
        self._ids = count(1)
        self._open: dict[RpcId, TakeAnswer] = {}
        self._closed: RpcFault | None = None

    def dispatch(self, message: RpcMessage) -> None:
        """Pass a message on: to the handler, or to the request that it answers."""
        match message:
            case RpcRequest(id, method, params):
                self._handler.take_request(id, method, params)
            case RpcNotification(method, params):
                self._handler.take_notification(method, params)
            case RpcAnswer():
                self.settle(message)
            case RpcGarbage(fault):
                self.answer(None, fault)
            case _:
                assert_never(message)

    def answer(self, id: RpcId, result: Any) -> None:
        """Respond to a request, with a result or an RpcFault."""
        self.send((fault_line if isinstance(result, RpcFault) else result_line)(id, result))

    def notify(self, method: str, params: Any) -> None:
        self.send(notification_line(method, params))

    # --- our requests ------------------------------------------------------------------------

    def ask(self, method: str, params: Any, take: TakeAnswer) -> int:
        """Send a request and return its id; see `open`."""
        id = self.open(take)
        self.send(request_line(id, method, params))
        return id

    def open(self, take: TakeAnswer) -> int:
        """Return the id of a new request. `take` gets its response, in the thread that read it; at
        once when the connection has ended."""
        with self._lock:
            id = next(self._ids)
            closed = self._closed
            if closed is None:
                self._open[id] = take
        if closed is not None:
            take(RpcAnswer(id, fault=closed))
        return id

    def settle(self, answer: RpcAnswer) -> bool:
        """Pass on a response; return False if no request waits for it: it is late or invalid."""
        with self._lock:
            take = self._open.pop(answer.id, None)
        if take is None:
            return False
        take(answer)
        return True

    def drop(self, id: RpcId) -> bool:
        """Give up a request, so that its response is ignored; False if it was already answered."""
        with self._lock:
            return self._open.pop(id, None) is not None

    def withdraw(self, id: int, **more: str) -> None:
        """Give up a request, and notify the other side unless it has answered."""
        if self.drop(id):
            self.notify(self._cancel, {"requestId": id, **more})

    def fail_open(self, fault: RpcFault) -> None:
        """Answer all open requests with this fault."""
        with self._lock:
            waiting, self._open = self._open, {}
        for id, take in waiting.items():
            take(RpcAnswer(id, fault=fault))

    def close(self, fault: RpcFault) -> None:
        """End the connection: answer all open and all future requests with this fault."""
        with self._lock:
            self._closed = fault
        self.fail_open(fault)
