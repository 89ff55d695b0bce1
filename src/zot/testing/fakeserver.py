"""A model server on loopback that speaks four APIs and misbehaves on demand.

The prompt determines the answer (see zot.testing.script). `python -m zot.testing.fakeserver`
serves until it is stopped; in tests, `with FakeServer() as server` and then `server.url`.
"""

from __future__ import annotations

import argparse
import gzip
import json
import signal
import socket
import struct
import sys
import threading
import time
from typing import TYPE_CHECKING, Any

import msgspec
from msgspec import Struct

from zot.lines import ready
from zot.testing import replies
from zot.testing.script import FakeTurn, turn_for

if TYPE_CHECKING:
    from ssl import SSLContext

BATCH = 16 * 1024
MODELS = ("fake-model", "claude-sonnet-5-5", "gpt-6.1-sol")
GARBAGE = (
    b"data: {not json}\n\n",
    b"event: no_such_event\ndata: {}\n\n",
    b"nonsense without a colon\n\n",
    b"data: \xff\xfe\n\n",
    b"data: [1,2,3]\n\n",
    b"data: null\n\n",
)
PINGS: dict[replies.Dialect, bytes] = {
    "anthropic": b'event: ping\ndata: {"type": "ping"}\n\n',
    "chat": b": keep-alive\n\n",
    "responses": b": keep-alive\n\n",
    "google": b": keep-alive\n\n",
}
FAULTS = frozenset(
    (
        *("status", "hang", "cut", "reset", "error", "garbage", "nostop", "refuse", "html"),
        *("blank", "json", "type", "gzip", "redirect", "junk"),
    )
)
"""Directives that `tries` limits."""
OVERFLOW = "prompt is too long: 210000 tokens > 200000 maximum"


class Seen(Struct):
    """A request that the server received."""

    method: str
    path: str
    headers: dict[str, str]
    """Names in lower case."""
    body: Any = None
    dialect: replies.Dialect | None = None
    outcome: str = "open"
    """ok, error, fault, or gone when the client closed first."""
    came: float = 0.0
    """Time of arrival, by the monotonic clock, in seconds."""
    first: float = 0.0
    """Time when its first delta was sent; 0: there was none."""
    last: float = 0.0
    """Time when the last part of the answer was sent."""


class ClientGone(Exception):
    """The client closed the connection, or the server is being stopped."""


class FakeServer:
    """Server with one listening socket and a thread per connection. `requests` holds all requests,
    or the last `keep`.

    `GET /spent` returns the seconds that the server itself took since the previous such request;
    benchmarks of a client subtract them.
    """

    def __init__(
        self, port: int = 0, tls: SSLContext | None = None, *, keep: int | None = None
    ) -> None:
        self._tls = tls
        self._keep = keep
        self._spent = {"first": 0.0, "whole": 0.0}
        self._answering = 0
        self._listener = socket.create_server(("127.0.0.1", port), backlog=128)
        self.port: int = self._listener.getsockname()[1]
        self.url = f"{'https' if tls else 'http'}://127.0.0.1:{self.port}"
        self.requests: list[Seen] = []
        self._attempts: dict[tuple[str, int], int] = {}
        self._lock = threading.Lock()
        self._open: dict[socket.socket, threading.Thread] = {}
        self._stopping = False
        self._changed = threading.Condition(self._lock)
        self._thread = threading.Thread(target=self._accept, name="fake-accept", daemon=True)
        self._thread.start()

    def __enter__(self) -> FakeServer:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Drop every connection and wait for every thread."""
        with self._lock:
            self._stopping = True
            threads = list(self._open.values())
            for sock in self._open:
                shut(sock)
        shut(self._listener)
        self._thread.join()
        self._listener.close()
        for thread in threads:
            thread.join()

    def wait_for(self, count: int, seconds: float = 10.0) -> list[Seen]:
        """Wait until there are that many requests, or for the timeout; return the requests."""
        with self._changed:
            self._changed.wait_for(lambda: len(self.requests) >= count, seconds)
            return list(self.requests)

    def wait_outcome(self, outcome: str, seconds: float = 10.0, at: int = -1) -> bool:
        """Return whether a request (default: the last) got this outcome within the timeout."""
        with self._changed:
            return self._changed.wait_for(
                lambda: bool(self.requests) and self.requests[at].outcome == outcome, seconds
            )

    def _accept(self) -> None:
        while True:
            try:
                sock, _ = self._listener.accept()
            except OSError:
                return
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            thread = threading.Thread(
                target=self._serve, args=(sock,), name="fake-serve", daemon=True
            )
            with self._lock:
                if self._stopping:
                    sock.close()
                    return
                self._open[sock] = thread
            thread.start()

    def _serve(self, sock: socket.socket) -> None:
        try:
            sock = self._wrapped(sock)
            connection = FakeConnection(sock)
            while (seen := connection.read_request()) is not None:
                with self._changed:
                    self.requests.append(seen)
                    self._answering += seen.method != "GET"
                    if self._keep is not None:
                        del self.requests[: -self._keep]
                    self._changed.notify_all()
                if not self._answer(connection, seen):
                    break
        except (OSError, ClientGone, ValueError):
            pass
        finally:
            with self._lock:
                self._open.pop(sock, None)
            sock.close()

    def _wrapped(self, sock: socket.socket) -> socket.socket:
        """Return the socket, wrapped in TLS if the server uses it."""
        if self._tls is None:
            return sock
        with self._lock:
            thread = self._open.pop(sock)
            wrapped = self._tls.wrap_socket(sock, server_side=True, do_handshake_on_connect=False)
            self._open[wrapped] = thread
        try:
            wrapped.do_handshake()
        except OSError:
            with self._lock:
                self._open.pop(wrapped, None)
            wrapped.close()
            raise
        return wrapped

    def _answer(self, connection: FakeConnection, seen: Seen) -> bool:
        """Answer a request; False ends the connection."""
        outcome = "gone"
        try:
            if seen.method == "GET":
                is_spent = seen.path == "/spent"
                connection.send_json(200, self._take_spent() if is_spent else listing(seen.path))
                outcome = "ok"
                return True
            outcome, going_on = self._reply(connection, seen)
            return going_on
        finally:
            with self._changed:
                seen.outcome = outcome
                self._answering -= seen.method != "GET"
                if seen.last:
                    self._spent["first"] += (seen.first or seen.last) - seen.came
                    self._spent["whole"] += seen.last - seen.came
                self._changed.notify_all()

    def _take_spent(self) -> dict[str, float]:
        with self._changed:  # the client may get its answer before the server has finished
            self._changed.wait_for(lambda: not self._answering, 5)
            spent, self._spent = self._spent, dict.fromkeys(self._spent, 0.0)
        return spent

    def _reply(self, connection: FakeConnection, seen: Seen) -> tuple[str, bool]:
        seen.dialect = replies.dialect_of(seen.path)
        if seen.dialect is None or not isinstance(seen.body, dict):
            body = replies.error_body("chat", 404, f"no such place: {seen.path}")
            connection.send_json(404, body)
            return "error", True
        call = replies.read_call(seen.dialect, seen.path, seen.body, connection.last_size)
        turn = turn_for(call.prompt, call.turn)
        if "tries" in turn.options and not self._is_early(call, turn.options["tries"]):
            turn.options = {key: turn.options[key] for key in turn.options if key not in FAULTS}
        if "status" in turn.options and self._fails(call, turn):
            self._fail(connection, call, turn, seen)
            return "error", True
        if head_fault(connection, turn):
            return "fault", False
        return Player(connection, self._build(call, turn, seen), turn, seen).play()

    def _build(self, call: replies.FakeCall, turn: FakeTurn, seen: Seen) -> replies.FakeReply:
        return replies.build_reply(call, turn)

    def _fails(self, call: replies.FakeCall, turn: FakeTurn) -> bool:
        _, _, times = turn.options["status"].partition(":")
        return not times or self._is_early(call, times)

    def _is_early(self, call: replies.FakeCall, times: str) -> bool:
        """Count the call; return whether it is one of the first `times` attempts."""
        with self._lock:
            key = (call.prompt, call.turn)
            self._attempts[key] = self._attempts.get(key, 0) + 1
            return self._attempts[key] <= int(times)

    def _fail(
        self, connection: FakeConnection, call: replies.FakeCall, turn: FakeTurn, seen: Seen
    ) -> None:
        status = int(turn.options["status"].partition(":")[0])
        message = OVERFLOW if "overflow" in turn.options else f"scripted error {status}"
        if "echo-key" in turn.options:
            keys = ("authorization", "x-api-key", "api-key", "x-goog-api-key")
            message += " for " + " ".join(seen.headers.get(key, "") for key in keys)
        extra = {}
        if "retry-after" in turn.options:
            extra["retry-after"] = turn.options["retry-after"].replace("_", " ")
        connection.send_json(status, replies.error_body(call.dialect, status, message), extra)


class FakeConnection:
    """HTTP on one socket, reduced to what a model client needs."""

    def __init__(self, sock: socket.socket) -> None:
        self.sock = sock
        self._buffer = b""
        self.last_size = 0

    def read_request(self) -> Seen | None:
        while b"\r\n\r\n" not in self._buffer:
            if not self._fill():
                return None
        head, _, self._buffer = self._buffer.partition(b"\r\n\r\n")
        first, *lines = head.decode("latin-1").split("\r\n")
        method, path, _ = first.split(" ")
        headers = {}
        for line in lines:
            name, _, value = line.partition(":")
            headers[name.strip().lower()] = value.strip()
        size = int(headers.get("content-length", 0))
        while len(self._buffer) < size:
            if not self._fill():
                return None
        came = time.monotonic()
        raw, self._buffer = self._buffer[:size], self._buffer[size:]
        self.last_size = size
        return Seen(method, path, headers, loads(raw) if raw else None, came=came)

    def _fill(self) -> bool:
        data = self.sock.recv(256 * 1024)
        self._buffer += data
        return bool(data)

    def send(self, data: bytes) -> None:
        self.sock.sendall(data)

    def send_json(self, status: int, body: Any, extra: dict[str, str] | None = None) -> None:
        data = replies.dumps(body).encode()
        headers = {"content-type": "application/json", "content-length": str(len(data))}
        self.send(head(status, {**headers, **(extra or {})}) + data)

    def pause(self, seconds: float) -> None:
        """Sleep. Raises ClientGone when the client closes meanwhile."""
        if ready(self.sock.fileno(), timeout=seconds):
            raise ClientGone

    def hang(self) -> None:
        """Wait until the client gives up or the server is stopped, then raise ClientGone."""
        self.sock.recv(1)
        raise ClientGone

    def drop(self, how: str) -> None:
        if how == "reset":  # no lingering: close sends a reset
            option = struct.pack("ii", 1, 0)
            self.sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, option)
        else:
            shut(self.sock)


def head_fault(connection: FakeConnection, turn: FakeTurn) -> bool:
    """Play a fault that replaces the stream; return False if there is none."""
    options = turn.options
    if options.get("hang") == "":
        connection.hang()
    for how in ("cut", "reset"):
        if options.get(how) in ("0", "head"):
            if options[how] == "head":
                connection.send(b"HTTP/1.1 200 OK\r\ncontent-type: text/ev")
            connection.drop(how)
            return True
    page = b"<!DOCTYPE html>\n<html><body>Please log in to the network</body></html>\n"
    bodies = {
        "html": (200, "text/html", page),
        "blank": (200, options.get("type", "text/event-stream"), b""),
        "json": (200, "application/json", b'{"id":"x","choices":[]}'),
        "gzip": (200, "text/event-stream", gzip.compress(b"\0" * 1_000_000)),
    }
    for name, (status, kind, body) in bodies.items():
        if name in options:
            extra = {"content-encoding": "gzip"} if name == "gzip" else {}
            headers = {"content-type": kind, "content-length": str(len(body)), **extra}
            connection.send(head(status, headers) + body)
            return True
    if "redirect" in options:
        headers = {"location": options["redirect"], "content-length": "0"}
        connection.send(head(302, headers))
        return True
    if "junk" in options:
        connection.send(b"SSH-2.0-OpenSSH_9.9\r\n")
        return True
    return False


class Player:
    """Sender of one streamed answer, with the pauses and faults of the turn."""

    def __init__(
        self, connection: FakeConnection, reply: replies.FakeReply, turn: FakeTurn, seen: Seen
    ) -> None:
        self._seen = seen
        self._connection = connection
        self._reply = reply
        self._options = turn.options
        self._chop = int(turn.options.get("chop", 0))
        self._drip = int(turn.options.get("drip", 0)) / 1000
        self._framed = "close" not in turn.options
        self._buffer: list[bytes] = []
        self._size = 0
        self._has_delta = False

    def play(self) -> tuple[str, bool]:
        self._head()
        if self._options.get("hang") == "headers":
            self._connection.hang()
        if "ttft" in self._options:
            self._connection.pause(int(self._options["ttft"]) / 1000)
        outcome = self._stream()
        if outcome == "fault":
            return "fault", False
        self._flush(b"0\r\n\r\n" if self._framed else b"")
        return outcome, self._framed

    def _head(self) -> None:
        kind = self._options.get("type", "text/event-stream; charset=utf-8")
        headers = {
            "content-type": kind,
            "request-id": replies.new_id("req"),
            "cache-control": "no-cache",
        }
        framing = {"transfer-encoding": "chunked"} if self._framed else {"connection": "close"}
        self._connection.send(head(200, {**headers, **framing}))

    def _stream(self) -> str:
        events = list(replies.PIECES[self._reply.call.dialect](self._reply))
        fault, at = self._fault(sum(kind == "delta" for kind, _ in events))
        delay = int(self._options.get("delay", 0)) / 1000
        seen = 0
        for kind, data in events:
            if fault and (kind == "close" or (kind == "delta" and seen >= at)):
                return self._strike(fault)
            if kind == "close" and "nostop" in self._options:
                return "ok"
            if kind == "delta":
                self._extras(seen)
                if delay:
                    self._flush()
                    self._connection.pause(delay)
                seen += 1
            self._add(data, is_delta=kind == "delta")
        return "ok"

    def _fault(self, deltas: int) -> tuple[str, int]:
        """Return the fault and the number of deltas before it; default: half of them."""
        for name in ("cut", "reset", "hang", "error"):
            if name in self._options:
                value = self._options[name]
                return name, int(value) if value.isdigit() else deltas // 2
        return "", 0

    def _strike(self, fault: str) -> str:
        if fault == "error":
            self._add(
                replies.stream_error(
                    self._reply.call.dialect, self._options["error"] or "overloaded_error"
                )
            )
            return "error"
        self._flush()
        if fault == "hang":
            self._connection.hang()
        self._connection.drop(fault)
        return "fault"

    def _extras(self, seen: int) -> None:
        if "pings" in self._options and seen % 10 == 0:
            self._add(PINGS[self._reply.call.dialect])
        if "garbage" in self._options and seen < len(GARBAGE):
            self._add(GARBAGE[seen])

    def _add(self, data: bytes, *, is_delta: bool = False) -> None:
        self._buffer.append(data)
        self._has_delta = self._has_delta or is_delta
        self._size += len(data)
        if self._size >= BATCH:
            self._flush()

    def _flush(self, last: bytes = b"") -> None:
        data = b"".join(self._buffer)
        self._buffer, self._size = [], 0
        self._seen.last = time.monotonic()
        if self._has_delta and not self._seen.first:
            self._seen.first = self._seen.last
        if "crlf" in self._options:
            data = data.replace(b"\n", b"\r\n")
        step = self._chop or len(data) or 1
        for start in range(0, len(data), step):
            part = data[start : start + step]
            framed = b"%x\r\n%s\r\n" % (len(part), part) if self._framed else part
            self._connection.send(framed + (last if start + step >= len(data) else b""))
            if self._drip:
                self._connection.pause(self._drip)
        if not data and last:
            self._connection.send(last)


def loads(data: bytes) -> Any:
    try:
        return msgspec.json.decode(data)  # several times as fast: requests can be megabytes
    except (msgspec.DecodeError, UnicodeDecodeError):
        return json.loads(data)


def head(status: int, headers: dict[str, str]) -> bytes:
    lines = [f"HTTP/1.1 {status} Status", *(f"{name}: {value}" for name, value in headers.items())]
    return "\r\n".join([*lines, "", ""]).encode()


def shut(sock: socket.socket) -> None:
    try:
        socket.socket.shutdown(sock, socket.SHUT_RDWR)  # below TLS, which would wait for the client
    except OSError:
        pass


def listing(path: str) -> dict[str, Any]:
    """Return the list of models, in the shape of the path's API."""
    if path.startswith("/v1beta"):
        return {"models": [{"name": f"models/{name}", "displayName": name} for name in MODELS]}
    if path.endswith("/api/tags"):
        return {"models": [{"name": name, "model": name} for name in MODELS]}
    rows = [
        {"id": name, "object": "model", "type": "model", "display_name": name} for name in MODELS
    ]
    return {"object": "list", "data": rows, "has_more": False}


def main() -> None:
    parser = argparse.ArgumentParser(description="A fake model server on loopback.")
    parser.add_argument("--port", type=int, default=0, help="0 takes a free one")
    server = FakeServer(parser.parse_args().port, keep=1)  # the requests are not used here
    sys.stdout.write(f"{server.url}\n")
    sys.stdout.flush()
    stop = threading.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: stop.set())
    stop.wait()
    server.close()


if __name__ == "__main__":
    main()
