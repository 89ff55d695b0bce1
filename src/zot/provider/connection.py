"""A connection to one host, plain or TLS, direct or through a proxy, that another thread can abort
at any moment: during name lookup, handshake, write or read. Parses the responses that arrive on it.
"""

from __future__ import annotations

import os
import socket
import threading
import time
from functools import cache
from typing import TYPE_CHECKING

from httptools import HttpParserError, HttpParserUpgrade, HttpResponseParser

from zot.cancel import Cancel
from zot.errors import ConfigError
from zot.lines import ready
from zot.provider import failure
from zot.provider.address import Address, Proxy

if TYPE_CHECKING:
    from ssl import SSLContext

PIECE = 64 * 1024
"""Maximum bytes of one read."""
LAST_BYTES = 0.05
"""Seconds to wait for the rest of the last response's body before closing its connection."""
LAST_PIECES = 4
KEEP_SECONDS = 90.0
"""Seconds an unused connection is reused: routers silently drop older ones."""
MAX_HEAD = 64 * 1024
"""Maximum bytes of a head with all that precedes it, and of consecutive framing without body."""


class ServerClosed(ConnectionError):
    """The server ended the connection."""


@cache
def tls_context() -> SSLContext:
    """Return a TLS context with the system's certificates or SSL_CERT_FILE; slow, so cached."""
    import ssl  # deferred: not needed for plain HTTP

    file = os.environ.get("SSL_CERT_FILE")
    if file and not os.path.isfile(file):  # noqa: PTH113  pathlib is slow to load
        raise ConfigError(f"SSL_CERT_FILE names {file!r}, which is not a file")
    context = ssl.create_default_context()
    context.set_alpn_protocols(["http/1.1"])
    return context


class ResponseParser:
    """Parses a response from bytes cut anywhere, and detects its end; `begin` prepares for the next
    one. The grammar is that of httptools (llhttp), which is strict: a response with an ambiguous
    length is refused. This class adds the limits."""

    def __init__(self) -> None:
        self._body: list[bytes] = []
        self.on_body = self._body.append  # called by httptools; saves one Python frame per delta
        self._parser = HttpResponseParser(self)
        self.begin()

    def begin(self) -> None:
        """Reset for the next response; the previous one was read completely."""
        self.status = 0
        self.reason = ""
        self.headers: dict[str, str] = {}
        """Names in lower case; repeated headers are joined by a comma."""
        self.has_head = False
        self.is_complete = False
        self.keeps_alive = False
        """Set when complete: whether the server accepts another request."""
        self.error = ""
        """Why the response is invalid; the body before the error still counts."""
        self._size = 0
        """Number of body pieces that belong to this response, once it is complete."""
        self._barren = 0

    @property
    def wanted(self) -> int:
        """Maximum bytes to feed next: a head gets no more than its limit."""
        return MAX_HEAD if self.has_head else MAX_HEAD - self._barren

    def feed(self, data: bytes) -> bytes:
        """Return the part of the body in these bytes. Errors are stored in `error`."""
        try:
            self._parser.feed_data(data)
        except HttpParserUpgrade:
            self.error = "it switches to another protocol"
        except HttpParserError as error:
            if self.is_complete:  # data after the response: do not reuse the connection
                self.keeps_alive = False
            else:
                self.error = str(error) or type(error).__name__
        pieces = self._body[: self._size] if self.is_complete else self._body
        body = b"".join(pieces) if self.has_head else b""
        self._body.clear()
        self._size = 0
        self._barren = 0 if body else self._barren + len(data)
        if self._barren >= MAX_HEAD and not self.is_complete and not self.error:
            self.error = f"{MAX_HEAD} bytes of headers or framing without an end"
        return body

    def end(self) -> bool:
        """Handle the end of the connection; return whether the response is complete."""
        if not self.is_complete and self.has_head and not self.error and not self._is_framed():
            self.is_complete = True
        return self.is_complete

    def _is_framed(self) -> bool:
        return "content-length" in self.headers or "transfer-encoding" in self.headers

    # --- called by httptools -----------------------------------------------------------------

    def on_message_begin(self) -> None:
        if self.is_complete:
            self.keeps_alive = False  # a second response, without a request

    def on_status(self, status: bytes) -> None:
        if not self.has_head:
            self.reason += status.decode("latin-1")

    def on_header(self, name: bytes, value: bytes) -> None:
        if self.has_head:
            return  # a trailer
        key, text = name.decode("latin-1").lower(), value.decode("latin-1")
        self.headers[key] = f"{self.headers[key]}, {text}" if key in self.headers else text

    def on_headers_complete(self) -> None:
        status = self._parser.get_status_code()
        if self.has_head:
            return
        if 100 <= status < 200:  # interim response, before the actual one
            self.reason = ""
            self.headers.clear()
            return
        coding = self.headers.get("transfer-encoding", "chunked").lower()
        if coding != "chunked":
            self.error = f"a transfer-encoding of {coding!r}, not asked for"
            return
        self.status = status
        self.has_head = True

    def on_message_complete(self) -> None:
        if self.has_head and not self.is_complete:
            self.is_complete = True
            self.keeps_alive = self._parser.should_keep_alive()
            self._size = len(self._body)


class Connection:
    """Opened and used by one thread; `abort` may be called by any. One request at a time."""

    def __init__(self, address: Address, proxy: Proxy | None, connect_seconds: float) -> None:
        self._address = address
        self._proxy = proxy
        self._connect_seconds = connect_seconds
        self._lock = threading.Lock()
        self._sock: socket.socket | None = None
        self._woken = threading.Event()
        """Set when opening ended, or was aborted."""
        self._opening = False
        self._aborted = False
        self._failure: BaseException | None = None
        self.is_open = False
        self._is_secured = False
        self.parser = ResponseParser()
        """Parser of the current response."""
        self.has_received = False
        """Whether any of the current response came: then the request must not be sent again."""
        self.kept_at = 0.0
        """Monotonic time at which it became idle."""

    # --- opening -----------------------------------------------------------------------------

    def open(self, cancel: Cancel) -> None:
        """Connect.

        Raises:
            OSError: no connection.
            Cancelled: aborted.
        """
        self._opening = True
        # A name lookup cannot be interrupted, only abandoned in its own thread.
        threading.Thread(target=self._try_open, name="zot-connect", daemon=True).start()
        self._woken.wait(self._connect_seconds + 1)
        if cancel.is_set() or not self._woken.is_set():
            self.abort()
            cancel.check()
            raise TimeoutError("timed out")
        if self._failure is not None:
            raise self._failure
        self.is_open = True

    def _try_open(self) -> None:
        end = time.monotonic() + self._connect_seconds
        try:
            self._dial(end)
            if self._proxy is not None and self._address.scheme == "https":
                self._tunnel(self._proxy)
            if self._address.scheme == "https":
                self._secure()
        except BaseException as error:  # passed to the waiting thread
            self._failure = error
        with self._lock:
            self._opening = False
            is_unwanted = self._aborted or self._failure is not None
        if is_unwanted:
            self.close()
        self._woken.set()

    def _dial(self, end: float) -> None:
        """Connect to the first address that answers; no single one may use up the whole timeout."""
        host, port = self._address.host, self._address.port
        if self._proxy is not None:
            host, port = self._proxy.host, self._proxy.port
        # Passed as bytes: an ASCII name needs no IDNA, whose tables take milliseconds to load.
        name = host.encode() if host.isascii() else host
        rows = socket.getaddrinfo(name, port, socket.AF_UNSPEC, socket.SOCK_STREAM)
        last: OSError = OSError(f"no address for {host!r}")
        for index, (family, kind, protocol, _, where) in enumerate(rows):
            left = end - time.monotonic()
            if left <= 0:
                break
            sock = socket.socket(family, kind, protocol)
            try:
                is_last = index == len(rows) - 1
                sock.settimeout(left if is_last else min(left, self._connect_seconds / 3))
                self._use(sock)
                sock.connect(where)
                sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                sock.settimeout(max(end - time.monotonic(), 0.1))
                return
            except OSError as error:
                last = error
                sock.close()
        raise last

    def _use(self, sock: socket.socket) -> None:
        """Make the socket reachable for `abort`, before it is connected."""
        with self._lock:
            if self._aborted:
                raise ConnectionAbortedError("aborted")
            self._sock = sock

    def _tunnel(self, proxy: Proxy) -> None:
        where = self._address.netloc
        lines = [f"CONNECT {where} HTTP/1.1", f"host: {where}"]
        lines += [f"{name}: {value}" for name, value in proxy.headers.items()]
        self.send("\r\n".join([*lines, "", ""]).encode("latin-1", "replace"))
        answer = ResponseParser()
        while not answer.has_head and not answer.error:
            data = self.receive(1)  # byte by byte: everything after the head belongs to TLS
            if not data:
                raise OSError("the proxy closed the connection without an answer")
            answer.feed(data)
        if answer.error or not 200 <= answer.status < 300:
            reason = answer.error or f"{answer.status} {answer.reason}"
            reason = failure.one_line(reason, failure.SHOWN)
            raise OSError(f"the proxy refused the tunnel: {reason}")

    def _secure(self) -> None:
        assert self._sock is not None
        secured = tls_context().wrap_socket(
            self._sock, server_hostname=self._address.host, do_handshake_on_connect=False
        )
        try:
            self._use(secured)
            self._is_secured = True
            secured.do_handshake()
        except BaseException:
            secured.close()
            raise

    # --- using -------------------------------------------------------------------------------

    def request(self, data: bytes, seconds: float) -> bytes:
        """Send a request and read the head of its response; return the start of the body. `seconds`
        is the limit of each write and read, and of the head as a whole.

        Raises:
            ServerClosed: it came to its end before the head did.
            OSError: the connection broke, or timed out.
        """
        self.has_received = False
        self.limit_wait(seconds)
        broken: OSError | None = None
        try:
            self.send(data)
        except TimeoutError:
            raise
        except OSError as error:
            broken = error  # a server that refuses a large request answers and hangs up
        self.parser.begin()
        end = time.monotonic() + seconds
        while True:
            piece = self.receive(min(PIECE, self.parser.wanted))
            if not piece:
                raise broken or ServerClosed("the server closed the connection")
            self.has_received = True
            start = self.parser.feed(piece)
            if self.parser.has_head or self.parser.error:
                self.limit_wait(seconds)
                return start
            self.limit_wait(end - time.monotonic())

    def send(self, data: bytes) -> None:
        """Send everything. Raises TimeoutError: the server accepts nothing for too long."""
        assert self._sock is not None
        rest = memoryview(data)
        while rest:  # not sendall: the timeout is for each write, not for a large body as a whole
            rest = rest[self._sock.send(rest) :]

    def receive(self, limit: int = PIECE) -> bytes:
        """Return the next bytes as soon as some arrive; empty when the server closed."""
        assert self._sock is not None
        return self._sock.recv(limit)

    def limit_wait(self, seconds: float) -> None:
        """Set the timeout of each read and write from now on, in seconds."""
        assert self._sock is not None
        self._sock.settimeout(max(seconds, 0.001))  # 0 would mean non-blocking

    def is_readable(self) -> bool:
        """Return whether bytes, or the end of the connection, have arrived already."""
        assert self._sock is not None
        if self._is_secured and self._sock.pending():  # type: ignore[attr-defined]  # an SSLSocket
            return True
        return bool(ready(self._sock.fileno(), timeout=0))

    def is_reusable(self) -> bool:
        """Return whether another request can be sent: the last response was read fully."""
        if time.monotonic() - self.kept_at > KEEP_SECONDS:
            return False
        try:
            if not self.parser.is_complete:
                self._read_end()
            # A readable idle connection was closed by the server, or holds unrequested data.
            return self.parser.keeps_alive and not self.is_readable()
        except OSError:
            return False

    def _read_end(self) -> None:
        self.limit_wait(LAST_BYTES)
        for _ in range(LAST_PIECES):
            if self.parser.is_complete or not (data := self.receive()):
                break
            self.parser.feed(data)

    def abort(self) -> None:
        """End every wait on this connection now."""
        with self._lock:
            self._aborted = True
            sock = self._sock
        if sock is not None:
            try:
                # Bypasses SSLSocket's method, which would drop the TLS state while another thread
                # reads.
                socket.socket.shutdown(sock, socket.SHUT_RDWR)
            except OSError:
                pass  # not connected yet, or closed already
        self._woken.set()

    def close(self) -> None:
        with self._lock:
            self.is_open = False
            if self._opening:
                self._aborted = True  # the opening thread uses the socket, and closes it
            elif self._sock is not None:
                self._sock.close()
