"""One HTTP request at a time over a kept connection, that another thread can abort at any moment.

Knows no API. No redirect is ever followed: the key and the prompt would go along.
"""

from __future__ import annotations

import http.client
import os
import socket
import ssl
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import cache

from zot import __version__
from zot.cancel import Cancel
from zot.errors import (
    BadResponse,
    Cancelled,
    ConfigError,
    NetworkError,
    ProviderError,
    Rejected,
    StreamIdle,
)
from zot.lines import ready
from zot.provider.address import parse_url, proxy_for, proxy_headers
from zot.provider.failure import SHOWN, class_for_status, cut, error_message, retry_after

PIECE = 64 * 1024
MAX_ERROR_BODY = 64 * 1024
MAX_BODY = 512 * 1024 * 1024
"""Bytes of one answer: far above any model's output, far below what would fill the memory."""
LAST_BYTES = 0.05
"""Seconds the end of the last answer's body may take before its connection is given up."""
LAST_PIECES = 4
KEEP_SECONDS = 90.0
"""How long an unused connection is trusted: routers on the way forget older ones without a word."""
USER_AGENT = f"zot/{__version__}"


@cache
def tls_context() -> ssl.SSLContext:
    """The system's certificates, or those of SSL_CERT_FILE. Slow to make, so made once."""
    file = os.environ.get("SSL_CERT_FILE")
    if file and not os.path.isfile(file):  # noqa: PTH113  http.client does without pathlib
        raise ConfigError(f"SSL_CERT_FILE names {file!r}, which is not a file")
    return ssl.create_default_context()


class Line:
    """A connection and the right to break it off from another thread."""

    def __init__(self, owner: Http) -> None:
        self._owner = owner
        self._lock = threading.Lock()
        self._sockets: list[socket.socket] = []
        self._wake = threading.Event()
        self._aborted = False
        self._finished = False
        self.connection = owner.new_connection(self._dial)
        self.answer: http.client.HTTPResponse | None = None
        self.kept_at = 0.0

    def abort(self) -> None:
        """Make every wait of this line end now. Called by the thread that aborts."""
        with self._lock:
            self._aborted = True
            sockets = list(self._sockets)
        for sock in sockets:
            try:
                # Past SSLSocket's own method: it would pull the TLS state from under the reader.
                socket.socket.shutdown(sock, socket.SHUT_RDWR)
            except OSError:
                pass  # not connected yet, or closed already
        self._wake.set()

    def connect(self, cancel: Cancel) -> None:
        """Connect in a thread of its own: a name lookup cannot be interrupted, only left behind."""
        failed: list[BaseException] = []

        def work() -> None:
            try:
                self.connection.connect()
            except BaseException as error:  # carried to the waiting thread
                failed.append(error)
            with self._lock:
                self._finished = True
                left = self._aborted
            if left:
                self.connection.close()
            self._wake.set()

        threading.Thread(target=work, name="zot-connect", daemon=True).start()
        ended = self._wake.wait(self._owner.connect_seconds + 1)
        if cancel.is_set() or not ended:
            with self._lock:
                self._aborted = True
                finished = self._finished
            if finished:
                self.connection.close()
            cancel.check()
            raise TimeoutError("timed out")
        if failed:
            self.connection.close()
            raise failed[0]
        if self.connection.sock is not None:
            self.connection.sock.settimeout(self._owner.idle_seconds)

    def _dial(
        self, address: tuple[str, int], timeout: float, source: object = None
    ) -> socket.socket:
        """Connect to the first address that answers; no single one may eat all of the time."""
        end = time.monotonic() + timeout
        host, port = address
        # As bytes: a name in ASCII needs no IDNA, whose tables take milliseconds to load.
        name = host.encode() if host.isascii() else host
        found = socket.getaddrinfo(name, port, type=socket.SOCK_STREAM)
        last: OSError = OSError(f"no address for {host!r}")
        for index, (family, kind, protocol, _, where) in enumerate(found):
            left = end - time.monotonic()
            if left <= 0:
                break
            sock = socket.socket(family, kind, protocol)
            try:
                sock.settimeout(left if index == len(found) - 1 else min(left, timeout / 3))
                with self._lock:
                    if self._aborted:
                        raise ConnectionAbortedError("aborted")
                    self._sockets.append(sock)
                sock.connect(where)
                sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                sock.settimeout(max(end - time.monotonic(), 0.1))
                return sock
            except OSError as error:
                last = error
                sock.close()
                self._sockets.clear()
        raise last

    def watch(self) -> None:
        """Let `abort` reach the TLS socket, which took the place of the plain one."""
        with self._lock:
            sock = self.connection.sock
            self._sockets = [sock] if sock is not None else []
            aborted = self._aborted
        if aborted:
            self.abort()

    def limit_wait(self, seconds: float) -> None:
        for sock in self._sockets:
            sock.settimeout(seconds)

    def is_alive(self) -> bool:
        """Whether the kept connection can take a request: the last answer was read to its end."""
        sock = self.connection.sock
        if sock is None or time.monotonic() - self.kept_at > KEEP_SECONDS:
            return False
        try:
            if self.answer is not None and not self.answer.isclosed():
                sock.settimeout(LAST_BYTES)
                for _ in range(LAST_PIECES):
                    if not self.answer.read1(PIECE):
                        break
                if not self.answer.isclosed():
                    return False
            if self.answer is not None and self.answer.will_close:
                return False
            sock.settimeout(self._owner.idle_seconds)
            readable = ready(sock.fileno(), timeout=0)
        except (OSError, ValueError, TypeError, http.client.HTTPException):
            return False
        # A readable idle connection has been closed by the server, or holds what nobody asked for.
        return not readable

    def close(self) -> None:
        if self.answer is not None:
            self.answer.close()
        self.connection.close()


class Answer:
    """The head of an answer, and its body in pieces as they come."""

    def __init__(
        self, owner: Http, line: Line, response: http.client.HTTPResponse, cancel: Cancel
    ) -> None:
        self._owner = owner
        self._line = line
        self._response = response
        self._cancel = cancel
        self._total = 0
        self.status = response.status
        self.headers = response.headers

    def read(self) -> bytes:
        """The next bytes as soon as there are some; empty at the end.

        Raises:
            ProviderError: silent for too long, cut, or larger than any answer.
            Cancelled: aborted.
        """
        try:
            piece = self._response.read1(PIECE)
        except TimeoutError as error:
            self._cancel.check()
            raise self._owner.idle() from error
        except (OSError, http.client.HTTPException, ValueError) as error:
            self._cancel.check()
            raise cut(self._owner.name) from error
        if self._cancel.is_set():
            raise Cancelled
        self._total += len(piece)
        if self._total > MAX_BODY:
            raise BadResponse(f"{self._owner.name}: an answer of more than {MAX_BODY} bytes")
        return piece

    def hurry(self, seconds: float) -> None:
        """From now on wait no longer than that for the next bytes."""
        self._line.limit_wait(min(seconds, self._owner.idle_seconds))

    def read_text(self, limit: int) -> str:
        """Up to `limit` bytes of the body as text."""
        parts: list[bytes] = []
        size = 0
        while size < limit and (piece := self.read()):
            parts.append(piece)
            size += len(piece)
        return b"".join(parts)[:limit].decode("utf-8", "replace")

    def error(self) -> ProviderError:
        """What to raise for an answer that is not a success."""
        name, status = self._owner.name, self.status
        request_id = self.request_id()
        if 300 <= status < 400:
            target = self.headers.get("location", "nowhere")[:SHOWN]
            text = f"{name}: http {status}: redirected to {target!r}, which is never followed"
            return Rejected(self._owner.redact(text), status=status, request_id=request_id)
        try:
            body = self.read_text(MAX_ERROR_BODY)
        except ProviderError:
            body = ""
        message = error_message(body) or self._response.reason or "no explanation"
        kind = class_for_status(status, body)
        return kind(
            self._owner.redact(f"{name}: http {status}: {message}"),
            status=status,
            retry_after=retry_after(self.headers, time.time()),
            request_id=request_id,
        )

    def request_id(self) -> str | None:
        for name in ("request-id", "x-request-id", "x-goog-request-id"):
            if value := self.headers.get(name):
                return value[:SHOWN]
        return None


class Http:
    """Requests to one host. Keeps the connection of the last one; safe for several threads."""

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
        """The key of the last request: it must not appear in an error."""
        self._proxy = proxy_for(self.address, os.environ)
        if self.address.scheme == "https":
            tls_context()  # now, while the client still thinks: it takes longer than connecting
        self._lock = threading.Lock()
        self._kept: Line | None = None

    @contextmanager
    def exchange(
        self,
        method: str,
        path: str,
        headers: Mapping[str, str],
        body: bytes | None,
        cancel: Cancel,
    ) -> Iterator[Answer]:
        """Send a request and give its answer, whatever its status; the body is read inside.

        Raises:
            NetworkError: no connection, or it broke before an answer came.
            StreamIdle: no answer within the idle limit.
            BadResponse: what came is not HTTP.
            Cancelled: aborted.
        """
        cancel.check()
        kept = self._take()
        line = kept or Line(self)
        try:
            try:
                answer = self._ask(line, method, path, headers, body, cancel)
            except NetworkError:
                if kept is None:
                    raise
                # The server closed the kept connection while the request was on its way.
                line.close()
                line = Line(self)
                answer = self._ask(line, method, path, headers, body, cancel)
            with cancel.calling(line.abort):
                yield answer
                cancel.check()
        except BaseException:
            line.close()
            raise
        self._keep(line)

    def close(self) -> None:
        with self._lock:
            line, self._kept = self._kept, None
        if line is not None:
            line.close()

    def idle(self) -> StreamIdle:
        return StreamIdle(f"{self.name}: not a byte for {self.idle_seconds:g} s")

    def redact(self, text: str) -> str:
        """The text without the key, should a server have sent it back."""
        return text.replace(self.secret, "[key]") if len(self.secret) > 3 else text

    def new_connection(self, dial: Callable[..., socket.socket]) -> http.client.HTTPConnection:
        """A connection that is not open yet, through the proxy if there is one."""
        address, proxy = self.address, self._proxy
        host, port = address.host, address.port
        if proxy is not None:
            host, port = str(proxy.hostname), proxy.port or 80
        connection: http.client.HTTPConnection
        if address.scheme == "https":
            connection = http.client.HTTPSConnection(
                host, port, timeout=self.connect_seconds, context=tls_context()
            )
            if proxy is not None:
                connection.set_tunnel(address.host, address.port, headers=proxy_headers(proxy))
        else:
            connection = http.client.HTTPConnection(host, port, timeout=self.connect_seconds)
        # Private, but the one way to see the socket before it is connected.
        connection._create_connection = dial  # type: ignore[attr-defined]
        connection.auto_open = 0
        return connection

    def _take(self) -> Line | None:
        with self._lock:
            line, self._kept = self._kept, None
        if line is not None and not line.is_alive():
            line.close()
            return None
        return line

    def _keep(self, line: Line) -> None:
        line.kept_at = time.monotonic()
        with self._lock:
            if self._kept is None:
                self._kept = line
                return
        line.close()

    def _ask(
        self,
        line: Line,
        method: str,
        path: str,
        headers: Mapping[str, str],
        body: bytes | None,
        cancel: Cancel,
    ) -> Answer:
        with cancel.calling(line.abort):
            try:
                if line.connection.sock is None:
                    self._connect(line, cancel)
                line.watch()
                self._send(line.connection, method, path, headers, body)
                response = line.connection.getresponse()
            except TimeoutError as error:
                cancel.check()
                raise self.idle() from error
            except http.client.RemoteDisconnected as error:
                cancel.check()
                text = f"{self.name}: the server closed the connection without an answer"
                raise NetworkError(text) from error
            except http.client.HTTPException as error:
                cancel.check()
                raise BadResponse(f"{self.name}: not an HTTP answer: {error!r:.200}") from error
            except OSError as error:
                cancel.check()
                raise NetworkError(f"{self.name}: the connection broke: {error}") from error
            cancel.check()
            line.answer = response
            return Answer(self, line, response, cancel)

    def _connect(self, line: Line, cancel: Cancel) -> None:
        try:
            line.connect(cancel)
        except OSError as error:
            cancel.check()
            reason = error.strerror or str(error) or "timed out"
            failed = NetworkError(f"{self.name}: cannot connect to {self.address.netloc}: {reason}")
            # Asking again does not change a certificate.
            failed.retryable = not isinstance(error, ssl.SSLCertVerificationError)
            raise failed from error

    def _send(
        self,
        connection: http.client.HTTPConnection,
        method: str,
        path: str,
        headers: Mapping[str, str],
        body: bytes | None,
    ) -> None:
        address = self.address
        target = path
        extra: dict[str, str] = {}
        if self._proxy is not None and address.scheme == "http":
            target = f"http://{address.netloc}{path}"
            extra = proxy_headers(self._proxy)
        connection.putrequest(method, target, skip_host=True, skip_accept_encoding=True)
        default = 443 if address.scheme == "https" else 80
        name = address.netloc.removesuffix(f":{default}")
        connection.putheader("host", name)
        connection.putheader("user-agent", USER_AGENT)
        connection.putheader("accept-encoding", "identity")
        for key, value in {**headers, **extra}.items():
            connection.putheader(key, value)
        if body is not None:
            connection.putheader("content-length", str(len(body)))
        connection.endheaders(body)


def check_header(name: str, value: str) -> None:
    """Refuse a value that cannot travel in a header, without showing it: it may be a key.

    Raises:
        ConfigError: it holds a line break or characters beyond ASCII.
    """
    if not value.isascii() or any(char < " " or char == "\x7f" for char in value):
        raise ConfigError(f"the value of {name} holds characters that no header can carry")
