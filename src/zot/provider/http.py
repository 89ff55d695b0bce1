"""HTTP client: one request at a time per kept connection, which any thread can abort at any time.

Independent of APIs. Follows no redirect: the key and the prompt would be sent along.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager

from zot import __version__, errors
from zot.cancel import Cancel
from zot.provider import failure
from zot.provider.address import parse_url, proxy_for, split_query
from zot.provider.connection import Connection, tls_context
from zot.provider.response import ResponseParser

PIECE = 64 * 1024
MAX_ERROR_BODY = 64 * 1024
MAX_BODY = 128 * 1024 * 1024
"""Maximum bytes of one response: far above any model's output, far below filling the memory."""
LAST_BYTES = 0.05
"""Seconds to wait for the rest of the last response's body before closing its connection."""
LAST_PIECES = 4
KEEP_SECONDS = 90.0
"""Seconds an unused connection is reused: routers silently drop older ones."""
USER_AGENT = f"zot/{__version__}"


class Line:
    """A connection, and the parser of its current response."""

    def __init__(self, connection: Connection) -> None:
        self.connection = connection
        self.parser = ResponseParser()
        self.has_received = False
        """Whether any of the current response came: then the request must not be sent again."""
        self.kept_at = 0.0

    def is_alive(self) -> bool:
        """Return whether the kept connection can be reused: the last response was read fully."""
        if time.monotonic() - self.kept_at > KEEP_SECONDS:
            return False
        try:
            if not self.parser.is_complete:
                self._read_end()
            # A readable idle connection was closed by the server, or holds unrequested data.
            return self.parser.keeps_alive and not self.connection.is_readable()
        except OSError:
            return False

    def _read_end(self) -> None:
        self.connection.limit_wait(LAST_BYTES)
        for _ in range(LAST_PIECES):
            if self.parser.is_complete or not (data := self.connection.receive(PIECE)):
                break
            self.parser.feed(data)


class HttpAnswer:
    """The head of a response, and its body in pieces as they arrive."""

    def __init__(
        self, owner: Http, line: Line, body: bytes, cancel: Cancel, max_body: int | None
    ) -> None:
        self._owner = owner
        self._line = line
        self._connection = line.connection
        self._parser = line.parser
        self._cancel = cancel
        self._max_body = max_body
        self._next = body
        self._total = len(body)
        self.status = line.parser.status
        self.headers: Mapping[str, str] = line.parser.headers
        self._calling = cancel.calling(line.connection.abort)

    def __enter__(self) -> HttpAnswer:
        self._calling.__enter__()
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        self._calling.__exit__()
        if kind is None and not self._cancel.aborted:
            self._owner.keep(self._line)
            return
        self._connection.close()
        if kind is None:
            raise errors.Cancelled

    @property
    def reason(self) -> str:
        """The server's reason phrase for the status."""
        return failure.one_line(self._parser.reason, failure.SHOWN)

    def read(self) -> bytes:
        """Return the next bytes as soon as some arrive; empty at the end.

        Raises:
            ProviderError: silent for too long, cut, or larger than any answer.
            Cancelled: aborted.
        """
        if body := self._next:
            self._next = b""
            return body
        parser = self._parser
        while not parser.is_complete:
            if parser.error:
                raise self._owner.not_http(parser.error)
            data = self._receive()
            if not data:
                if parser.end():
                    break
                raise failure.cut(self._owner.name)
            if body := parser.feed(data):
                self._total += len(body)
                if self._max_body is not None and self._total > self._max_body:
                    text = f"an answer of more than {self._max_body} bytes"
                    raise errors.BadResponse(f"{self._owner.name}: {text}")
                return body
        return b""

    def _receive(self) -> bytes:
        try:
            data = self._connection.receive(PIECE)
        except TimeoutError as error:
            self._cancel.check()
            raise self._owner.idle() from error
        except OSError as error:
            self._cancel.check()
            raise failure.cut(self._owner.name) from error
        if self._cancel.aborted:
            raise errors.Cancelled
        return data

    def hurry(self, seconds: float) -> None:
        """From now on wait at most this long for the next bytes."""
        self._connection.limit_wait(min(seconds, self._owner.idle_seconds))

    def read_all(self, limit: int) -> bytes:
        """Read up to `limit` bytes of the body, within the idle limit for all of it."""
        end = time.monotonic() + self._owner.idle_seconds
        parts: list[bytes] = []
        size = 0
        while size < limit and (piece := self.read()):
            parts.append(piece)
            size += len(piece)
            if time.monotonic() > end:
                raise self._owner.idle()
        return b"".join(parts)[:limit]

    def read_text(self, limit: int) -> str:
        return self.read_all(limit).decode("utf-8", "replace")

    def error(self) -> errors.ProviderError:
        """Return the error for an unsuccessful response."""
        name, status = self._owner.name, self.status
        request_id = self.request_id()
        if 300 <= status < 400:
            target = self.headers.get("location", "nowhere")[: failure.SHOWN]
            text = f"{name}: http {status}: redirected to {target!r}, which is never followed"
            return errors.Rejected(self._owner.redact(text), status=status, request_id=request_id)
        try:
            body = self._owner.redact(self.read_text(MAX_ERROR_BODY))
        except errors.ProviderError:
            body = ""
        message = failure.error_message(body) or self.reason or "no explanation"
        kind = failure.class_for_status(status, body)
        return kind(
            self._owner.redact(f"{name}: http {status}: {message}"),
            status=status,
            retry_after=failure.retry_after(self.headers, time.time()),
            request_id=request_id,
        )

    def request_id(self) -> str | None:
        for name in ("request-id", "x-request-id", "x-goog-request-id"):
            if value := self.headers.get(name):
                return value[: failure.SHOWN]
        return None


class Http:
    """Requests to one host. Keeps the last connection open; thread-safe."""

    def __init__(
        self,
        name: str,
        base_url: str,
        *,
        secret: str = "",
        connect_seconds: float = 10.0,
        idle_seconds: float = 120.0,
    ) -> None:
        self.name = name
        self.address = parse_url(base_url)
        self.idle_seconds = idle_seconds
        self.connect_seconds = connect_seconds
        self.secret = secret
        """Key of the last request: it must not appear in an error."""
        self._proxy = proxy_for(self.address, os.environ)
        if self.address.scheme == "https":
            tls_context()  # load it early: that takes longer than connecting
        self._lock = threading.Lock()
        self._kept: Line | None = None
        # The next head is mostly the same.
        self._last_head: tuple[tuple[str, str, Mapping[str, str]], bytes] | None = None

    def exchange(
        self,
        method: str,
        path: str,
        headers: Mapping[str, str],
        body: bytes | None,
        cancel: Cancel,
        *,
        is_download: bool = False,
    ) -> HttpAnswer:
        """Send a request and return its response, whatever its status, for a `with` block in which
        the body is read. A download may be of any size.

        Raises:
            NetworkError: no connection, or it broke before an answer came.
            StreamIdle: no answer within the idle limit.
            BadResponse: what came is not HTTP.
            ConfigError: a header cannot be sent.
            Cancelled: aborted.
        """
        if cancel.aborted:
            raise errors.Cancelled
        asked = method, path, headers
        last = self._last_head
        if last is None or last[0] != asked:
            last = self._last_head = asked, self._new_head(method, path, headers)
        head = last[1]
        if body is not None:
            head = b"%scontent-length: %d\r\n" % (head, len(body))
        line, start = self._start(head + b"\r\n", body or b"", cancel)
        return HttpAnswer(self, line, start, cancel, None if is_download else MAX_BODY)

    def close(self) -> None:
        with self._lock:
            line, self._kept = self._kept, None
        if line is not None:
            line.connection.close()

    def idle(self) -> errors.StreamIdle:
        return errors.StreamIdle(f"{self.name}: not a byte for {self.idle_seconds:g} s")

    def not_http(self, why: str) -> errors.BadResponse:
        return errors.BadResponse(f"{self.name}: not an HTTP answer: {why:.200}")

    def redact(self, text: str) -> str:
        """Remove the key from a text, in case a server sent it back."""
        return text.replace(self.secret, "[key]") if len(self.secret) > 3 else text

    # --- connections -------------------------------------------------------------------------

    def keep(self, line: Line) -> None:
        """Keep the connection for the next request; the response was read."""
        line.kept_at = time.monotonic()
        with self._lock:
            if self._kept is None:
                self._kept = line
                return
        line.connection.close()

    def _start(self, head: bytes, body: bytes, cancel: Cancel) -> tuple[Line, bytes]:
        """Send the request; return the line of its response and the start of its body."""
        with self._lock:
            kept, self._kept = self._kept, None
        if kept is not None and not kept.is_alive():
            kept.connection.close()
            kept = None
        if kept is not None:
            try:
                return kept, self._ask(kept, head, body, cancel)
            except errors.NetworkError:
                if kept.has_received:
                    raise
                # The server closed the kept connection while the request was being sent.
        line = Line(Connection(self.address, self._proxy, self.connect_seconds))
        return line, self._ask(line, head, body, cancel)

    def _ask(self, line: Line, head: bytes, body: bytes, cancel: Cancel) -> bytes:
        try:
            with cancel.calling(line.connection.abort):
                if not line.connection.is_open:
                    self._connect(line.connection, cancel)
                start = self._read_head(line, head, body)
                if cancel.aborted:
                    raise errors.Cancelled
                return start
        except BaseException as error:
            line.connection.close()
            cancel.check()  # an error caused by an abort is no failure
            if isinstance(error, TimeoutError):
                raise self.idle() from error
            if isinstance(error, OSError):
                raise errors.NetworkError(f"{self.name}: the connection broke: {error}") from error
            raise

    def _connect(self, connection: Connection, cancel: Cancel) -> None:
        try:
            connection.open(cancel)
        except OSError as error:
            cancel.check()
            reason = error.strerror or str(error) or "timed out"
            failed = errors.NetworkError(
                f"{self.name}: cannot connect to {self.address.netloc}: {reason}"
            )
            # A retry does not change a certificate.
            failed.retryable = not hasattr(error, "verify_code")
            raise failed from error

    def _read_head(self, line: Line, head: bytes, body: bytes) -> bytes:
        """Send the request and read the response's head; return the start of the body."""
        connection = line.connection
        line.has_received = False
        connection.limit_wait(self.idle_seconds)
        broken: OSError | None = None
        try:
            connection.send(head + body)
        except TimeoutError:
            raise
        except OSError as error:
            broken = error  # a server that refuses a large request answers and hangs up
        parser = line.parser
        parser.begin()
        end = time.monotonic() + self.idle_seconds
        while True:
            piece = connection.receive(min(PIECE, parser.wanted))
            if not piece:
                raise broken or self._closed(line)
            line.has_received = True
            start = parser.feed(piece)
            if parser.has_head:
                connection.limit_wait(self.idle_seconds)
                return start
            if parser.error:
                raise self.not_http(parser.error)
            connection.limit_wait(end - time.monotonic())  # for the head as a whole

    def _closed(self, line: Line) -> errors.ProviderError:
        if line.has_received:
            return failure.cut(self.name)
        return errors.NetworkError(
            f"{self.name}: the server closed the connection without an answer"
        )

    def _new_head(self, method: str, path: str, headers: Mapping[str, str]) -> bytes:
        """Build the head without the fields that depend on the body."""
        address, target = self.address, path or "/"
        fields = {
            "host": address.host_header,
            "user-agent": USER_AGENT,
            "accept-encoding": "identity",
            **headers,
        }
        if self._proxy is not None and address.scheme == "http":
            target = f"http://{address.netloc}{target}"
            fields.update(self._proxy.headers)
        if not is_plain(target) or " " in target:
            raise errors.ConfigError(f"the path {target!r} cannot be asked for")
        for name, value in fields.items():
            check_header(name, value)
        lines = [f"{name}: {value}" for name, value in fields.items()]
        return "\r\n".join([f"{method} {target} HTTP/1.1", *lines, ""]).encode("ascii")


def check_header(name: str, value: str) -> None:
    """Refuse a header that cannot be sent, without showing its value: it may be a key.

    Raises:
        ConfigError: it holds a line break or characters beyond ASCII.
    """
    if not name or not is_plain(name) or " " in name or ":" in name:
        raise errors.ConfigError(f"{name!r} cannot be the name of a header")
    if not is_plain(value):
        raise errors.ConfigError(f"the value of {name} holds characters that no header can carry")


def is_plain(text: str) -> bool:
    """Return whether the text is ASCII without control characters."""
    return text.isascii() and text.isprintable()


@contextmanager
def open_url(
    name: str,
    url: str,
    *,
    headers: Mapping[str, str] | None = None,
    body: bytes | None = None,
    seconds: float = 30.0,
    is_download: bool = False,
) -> Iterator[HttpAnswer]:
    """Send one request to any URL on a new connection: a GET, or a POST when there is a body.
    Raises as `exchange` does."""
    base, query = split_query(url)
    http = Http(name, base, connect_seconds=seconds, idle_seconds=seconds)
    path = "/" + base.partition("://")[2].partition("/")[2] + query
    method = "GET" if body is None else "POST"
    try:
        with http.exchange(
            method, path, headers or {}, body, Cancel(), is_download=is_download
        ) as answer:
            yield answer
    finally:
        http.close()
