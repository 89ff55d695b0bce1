"""JSON-RPC 2.0 as ACP and MCP speak it: one message a line (or a body), no batches. No input or
output here, and nothing of what a method means.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

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
"""Not of JSON-RPC itself, but of protocols that let a request be cancelled."""

RpcId = int | float | str | None
"""What whoever asked called the request; null is one, too."""
NO_PARAMS = Raw(b"{}")


class RpcRequest(Frozen):
    id: RpcId
    method: str
    params: Raw = NO_PARAMS


class RpcNotification(Frozen):
    method: str
    params: Raw = NO_PARAMS


class RpcFault(Frozen, omit_defaults=True):
    """An error as the wire has it."""

    code: int
    message: str = ""
    data: Any = None


class RpcAnswer(Frozen):
    """What the other side answers: a result, or a fault."""

    id: RpcId
    result: Raw = Raw(b"null")
    fault: RpcFault | None = None


class RpcGarbage(Frozen):
    """A line that is no message. `fault` says why; it is answered, with a null id."""

    fault: RpcFault


RpcMessage = RpcRequest | RpcNotification | RpcAnswer | RpcGarbage


class RpcError(Exception):
    """Raised by whoever handles a request: it becomes the request's answer."""

    def __init__(self, code: int, message: str, data: Any = None) -> None:
        super().__init__(message)
        self.fault = RpcFault(code, message, data)


# --- reading ---------------------------------------------------------------------------------


class _Envelope(Struct):
    """Any message. The version is not looked at: what else could it be?"""

    id: RpcId | UnsetType = UNSET
    method: str | UnsetType = UNSET
    params: Raw = NO_PARAMS
    result: Raw | UnsetType = UNSET
    error: RpcFault | None = None


_decode_envelope = msgspec.json.Decoder(_Envelope).decode


def read_message(line: bytes) -> RpcMessage:
    """One line or body as a message; never raises."""
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


# --- our own requests ------------------------------------------------------------------------

TakeAnswer = Callable[[RpcAnswer], None]


class OpenRequests:
    """Requests of ours that were not answered yet. Each is taken once, whoever comes first: the
    answer, the one who gives up, or the end of the connection. Safe to use from any thread.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._last = 0
        self._open: dict[RpcId, TakeAnswer] = {}
        self._closed: RpcFault | None = None

    def add(self, take: TakeAnswer) -> int:
        """The id of a new request. `take` gets its answer, in the thread that read it; at once
        when the connection has ended."""
        with self._lock:
            self._last += 1
            id = self._last
            closed = self._closed
            if closed is None:
                self._open[id] = take
        if closed is not None:
            take(RpcAnswer(id, fault=closed))
        return id

    def settle(self, answer: RpcAnswer) -> bool:
        """Hand on an answer; False if nobody waits for it: it is late, or makes no sense."""
        with self._lock:
            take = self._open.pop(answer.id, None)
        if take is None:
            return False
        take(answer)
        return True

    def drop(self, id: RpcId) -> bool:
        """Give up on a request: its answer will be ignored. False: it was answered before."""
        with self._lock:
            return self._open.pop(id, None) is not None

    def close(self, fault: RpcFault) -> None:
        """The connection ended: this is the answer to all that is open, and to all that comes."""
        with self._lock:
            self._closed = fault
            waiting, self._open = self._open, {}
        for id, take in waiting.items():
            take(RpcAnswer(id, fault=fault))
