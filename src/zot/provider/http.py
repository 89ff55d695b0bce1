"""HTTP client: one request at a time per kept connection, which any thread can abort at any time;
and server-sent events, the form of most responses.

Independent of APIs. Follows no redirect: the key and the prompt would be sent along.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager

from zot import __version__, errors
from zot.cancel import Calling, Cancel
from zot.errors import BadResponse
from zot.provider import failure
from zot.provider.address import parse_url, proxy_for, split_query
from zot.provider.connection import Connection, ServerClosed, tls_context

MAX_ERROR_BODY = 64 * 1024
MAX_BODY = 128 * 1024 * 1024
"""Maximum bytes of one response: far above any model's output, far below filling the memory."""
USER_AGENT = f"zot/{__version__}"


class HttpAnswer:
    """The head of a response, and its body in pieces as they arrive."""

    def __init__(
        self,
        owner: Http,
        connection: Connection,
        body: bytes,
        cancel: Cancel,
        calling: Calling,
        max_body: int | None,
    ) -> None:
        """`body`: its start, which came with the head. `calling` aborts the connection."""
        self._owner = owner
        self._connection = connection
        self._parser = connection.parser
        self._cancel = cancel
        self._calling = calling
        self._max_body = max_body
        self._next = body
        self._total = len(body)
        self.status = self._parser.status
        self.headers: Mapping[str, str] = self._parser.headers

    def __enter__(self) -> HttpAnswer:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        self._calling.__exit__()
        if kind is None and not self._cancel.aborted:
            self._owner.keep(self._connection)
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
            data = self._connection.receive()
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
            retry_after=failure.retry_after(self.headers, time.time(), body),
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
        self._kept: Connection | None = None

    def head(self, method: str, path: str, headers: Mapping[str, str]) -> bytes:
        """Build a request's head for `exchange`, without the fields that depend on the body.

        Raises:
            ConfigError: a header cannot be sent.
        """
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

    def exchange(
        self, head: bytes, body: bytes | None, cancel: Cancel, *, is_download: bool = False
    ) -> HttpAnswer:
        """Send a request and return its response, whatever its status, for a `with` block in which
        the body is read. A download may be of any size.

        Raises:
            NetworkError: no connection, or it broke before an answer came.
            StreamIdle: no answer within the idle limit.
            BadResponse: what came is not HTTP.
            Cancelled: aborted.
        """
        if cancel.aborted:
            raise errors.Cancelled
        length = b"" if body is None else b"content-length: %d\r\n" % len(body)
        data = b"".join((head, length, b"\r\n", body or b""))
        max_body = None if is_download else MAX_BODY
        with self._lock:
            kept, self._kept = self._kept, None
        if kept is not None and not kept.is_reusable():
            kept.close()
            kept = None
        if kept is not None:
            try:
                return self._ask(kept, data, cancel, max_body)
            except errors.NetworkError:
                if kept.has_received:
                    raise
                # The server closed the kept connection while the request was being sent.
        fresh = Connection(self.address, self._proxy, self.connect_seconds)
        return self._ask(fresh, data, cancel, max_body)

    def close(self) -> None:
        with self._lock:
            kept, self._kept = self._kept, None
        if kept is not None:
            kept.close()

    def idle(self) -> errors.StreamIdle:
        return errors.StreamIdle(f"{self.name}: not a byte for {self.idle_seconds:g} s")

    def not_http(self, why: str) -> errors.BadResponse:
        return errors.BadResponse(f"{self.name}: not an HTTP answer: {why:.200}")

    def redact(self, text: str) -> str:
        """Remove the key from a text, in case a server sent it back."""
        return text.replace(self.secret, "[key]") if len(self.secret) > 3 else text

    # --- connections -------------------------------------------------------------------------

    def keep(self, connection: Connection) -> None:
        """Keep the connection for the next request; the response was read."""
        connection.kept_at = time.monotonic()
        with self._lock:
            if self._kept is None:
                self._kept = connection
                return
        connection.close()

    def _ask(
        self, connection: Connection, data: bytes, cancel: Cancel, max_body: int | None
    ) -> HttpAnswer:
        calling = cancel.calling(connection.abort)
        try:
            calling.__enter__()  # left with the answer
            if not connection.is_open:
                self._connect(connection, cancel)
            start = connection.request(data, self.idle_seconds)
            if connection.parser.error and not connection.parser.has_head:
                raise self.not_http(connection.parser.error)
            if cancel.aborted:
                raise errors.Cancelled
            return HttpAnswer(self, connection, start, cancel, calling, max_body)
        except BaseException as error:
            calling.__exit__()
            connection.close()
            cancel.check()  # an error caused by an abort is no failure
            if isinstance(error, TimeoutError):
                raise self.idle() from error
            if isinstance(error, OSError):
                raise self._broken(connection, error) from error
            raise

    def _broken(self, connection: Connection, error: OSError) -> errors.NetworkError:
        if not isinstance(error, ServerClosed):
            return errors.NetworkError(f"{self.name}: the connection broke: {error}")
        if connection.has_received:
            return failure.cut(self.name)
        return errors.NetworkError(
            f"{self.name}: the server closed the connection without an answer"
        )

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
        head = http.head(method, path, headers or {})
        with http.exchange(head, body, Cancel(), is_download=is_download) as answer:
            yield answer
    finally:
        http.close()


# --- server-sent events ------------------------------------------------------------------------

MAX_EVENT = 32 * 1024 * 1024
"""Maximum bytes of one event; a server that sends more without an end is not answering."""
BOM = b"\xef\xbb\xbf"


class Splitter:
    """Splits a body, received in pieces cut anywhere, into complete events.

    Lines may end with LF, CRLF or CR. Comments, ids and retry hints are dropped, since calls are
    never resumed. So is blank data, which some servers send to keep a connection open. Data stays
    bytes; the parser checks the encoding.
    """

    def __init__(self, name: str, max_event: int = MAX_EVENT) -> None:
        self._name = name
        self._max = max_event
        self._parts: list[bytes] = []
        self._size = 0
        self._after_cr = False
        self._after_lf = False
        self._first = True

    def feed(self, chunk: bytes) -> list[bytes]:
        """Return the data of the events that end within this piece. Raises as `complete`."""
        return parse_blocks(self.complete(chunk).split(b"\n\n"))

    def complete(self, chunk: bytes) -> bytes:
        """Return the raw events that end within this piece; empty if none does.

        Raises:
            BadResponse: an event is larger than the limit.
        """
        if self._after_cr or b"\r" in chunk:
            chunk = self._plain(chunk)
        if not chunk:
            return b""
        ends = b"\n\n" in chunk or (self._after_lf and chunk[0] == 10)
        self._after_lf = chunk[-1] == 10
        self._parts.append(chunk)
        self._size += len(chunk)
        if not ends:
            if self._size > self._max:
                raise BadResponse(f"{self._name}: an event of more than {self._max} bytes")
            return b""
        # Joined only when an event ends: a large one would otherwise be copied with every piece.
        joined = b"".join(self._parts) if len(self._parts) > 1 else chunk
        if self._first:
            self._first = False
            joined = joined.removeprefix(BOM)
        end = joined.rfind(b"\n\n") + 2
        rest = joined[end:]
        self._parts = [rest] if rest else []
        self._size = len(rest)
        return joined[:end]

    def finish(self) -> list[bytes]:
        """Return the last event if its closing blank line is missing: some servers omit it."""
        rest = b"".join(self._parts)
        self._parts, self._size = [], 0
        return parse_blocks([rest.removeprefix(BOM) if self._first else rest])

    def _plain(self, chunk: bytes) -> bytes:
        """Convert every line end to LF; a CRLF may be cut between two pieces."""
        if self._after_cr and chunk.startswith(b"\n"):
            chunk = chunk[1:]
            self._after_cr = False
        if not chunk:
            return chunk
        self._after_cr = chunk.endswith(b"\r")
        return chunk.replace(b"\r\n", b"\n").replace(b"\r", b"\n")


def parse_blocks(blocks: list[bytes]) -> list[bytes]:
    """Return the data of events, as the format defines it; events without data are skipped. Uses no
    regular expression: loading `re` takes as long as ten thousand events."""
    events = []
    for block in blocks:
        head, _, rest = block.partition(b"\n")
        if rest.startswith(b"data: {") and head.startswith(b"event: ") and b"\n" not in rest:
            events.append(rest[6:])  # nearly every event
            continue
        if not rest and head.startswith(b"data: {"):
            events.append(head[6:])  # or this form
            continue
        data = []
        for line in block.split(b"\n"):
            field, _, value = line.partition(b":")
            if field == b"data":
                data.append(value.removeprefix(b" "))
        joined = b"\n".join(data)
        if joined.strip():
            events.append(joined)
    return events
