"""A connection to one host, plain or TLS, direct or through a proxy, that another thread can abort
at any moment: during name lookup, handshake, write or read. Knows no HTTP but CONNECT.
"""

from __future__ import annotations

import os
import socket
import threading
import time
from functools import cache
from typing import TYPE_CHECKING

from zot.cancel import Cancel
from zot.errors import ConfigError
from zot.lines import ready
from zot.provider import failure
from zot.provider.address import Address, Proxy
from zot.provider.response import ResponseParser

if TYPE_CHECKING:
    from ssl import SSLContext


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


class Connection:
    """Opened and used by one thread; `abort` may be called by any."""

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
        plain = self._socket()
        secured = tls_context().wrap_socket(
            plain,
            server_hostname=self._address.host,
            do_handshake_on_connect=False,
        )
        try:
            self._use(secured)
            self._is_secured = True
            secured.do_handshake()
        except BaseException:
            secured.close()
            raise

    def _socket(self) -> socket.socket:
        if self._sock is None:
            raise ConnectionAbortedError("not open")
        return self._sock

    # --- using -------------------------------------------------------------------------------

    def send(self, data: bytes) -> None:
        """Send everything. Raises TimeoutError: the server accepts nothing for too long."""
        sock, rest = self._socket(), memoryview(data)
        while rest:  # not sendall: the timeout is for each write, not for a large body as a whole
            rest = rest[sock.send(rest) :]

    def receive(self, limit: int) -> bytes:
        """Return the next bytes as soon as some arrive; empty when the server closed."""
        return self._socket().recv(limit)

    def limit_wait(self, seconds: float) -> None:
        """Set the timeout of each read and write from now on, in seconds."""
        self._socket().settimeout(max(seconds, 0.001))  # 0 would mean non-blocking

    def is_readable(self) -> bool:
        """Return whether bytes, or the end of the connection, have arrived already."""
        sock = self._socket()
        if self._is_secured and sock.pending():  # type: ignore[attr-defined]  # an SSLSocket
            return True
        return bool(ready(sock.fileno(), timeout=0))

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
