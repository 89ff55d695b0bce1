"""A connection to one host, plain or TLS, direct or through a proxy, that another thread can break
off at any moment: during the name lookup, the handshake, a write or a read. Knows no HTTP beyond
the request for a tunnel.
"""

from __future__ import annotations

import errno
import os
import select
import socket
import sys
import threading
import time
from functools import cache
from typing import TYPE_CHECKING

from zot.cancel import Cancel
from zot.errors import ConfigError
from zot.provider import failure
from zot.provider.address import Address, Proxy
from zot.provider.response import ResponseParser

if TYPE_CHECKING:
    from collections.abc import Callable
    from ssl import SSLContext

LOCALHOST = "127.0.0.1"
AT_ONCE = 1
"""Milliseconds in which a server on this machine accepts a connection, if it is there."""
LONG = 8 if sys.maxsize > 2**32 else 4
"""Bytes of a number in the system's structures of time."""


@cache
def tls_context() -> SSLContext:
    """The system's certificates, or those of SSL_CERT_FILE. Slow to make, so made once."""
    import ssl  # deferred: not for plain HTTP

    file = os.environ.get("SSL_CERT_FILE")
    if file and not os.path.isfile(file):  # noqa: PTH113  pathlib is slow to load
        raise ConfigError(f"SSL_CERT_FILE names {file!r}, which is not a file")
    context = ssl.create_default_context()
    context.set_alpn_protocols(["http/1.1"])
    return context


def _is_connected(sock: socket.socket) -> bool:
    poll = select.poll()
    poll.register(sock, select.POLLOUT)
    is_over = bool(poll.poll(AT_ONCE))
    return is_over and not sock.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)


class Connection:
    """Opened by one thread and used by it; `abort` may be called by any."""

    def __init__(self, address: Address, proxy: Proxy | None, connect_seconds: float) -> None:
        self._address = address
        self._proxy = proxy
        self._connect_seconds = connect_seconds
        self._lock = threading.Lock()
        self._sock: socket.socket | None = None
        self._woken = threading.Event()
        """Opening ended, or was aborted."""
        self._opening = False
        self._aborted = False
        self._failure: BaseException | None = None
        self.is_open = False
        self._is_secured = False
        self._limit = 0.0
        """Seconds that a read or a write may take."""
        self._readable: select.poll | None = None

    # --- opening -----------------------------------------------------------------------------

    def open(self, cancel: Cancel) -> None:
        """Connect.

        Raises:
            OSError: no connection.
            Cancelled: aborted.
        """
        if self._opens_at_once():
            return
        self._opening = True
        # A name lookup cannot be interrupted, only left behind in a thread of its own.
        threading.Thread(target=self._try_open, name="zot-connect", daemon=True).start()
        cancel.before_wait()
        self._woken.wait(self._connect_seconds + 1)
        if cancel.is_set() or not self._woken.is_set():
            self.abort()
            cancel.check()
            raise TimeoutError("timed out")
        if self._failure is not None:
            raise self._failure
        self.is_open = True

    def _opens_at_once(self) -> bool:
        """Whether it could be opened without any wait, as one to this machine mostly can."""
        host, port = self._address.host, self._address.port
        if self._proxy is not None or self._address.scheme != "http" or host != LOCALHOST:
            return False
        sock = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
        try:
            sock.settimeout(0)
            failure = sock.connect_ex((host, port))
            if failure in (0, errno.EINPROGRESS) and _is_connected(sock):
                sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                self._use(sock)
                self.is_open = True
        finally:
            if not self.is_open:
                sock.close()
        return self.is_open

    def _try_open(self) -> None:
        end = time.monotonic() + self._connect_seconds
        try:
            self._dial(end)
            if self._proxy is not None and self._address.scheme == "https":
                self._tunnel(self._proxy)
            if self._address.scheme == "https":
                self._secure()
        except BaseException as error:  # carried to the thread that waits
            self._failure = error
        with self._lock:
            self._opening = False
            is_unwanted = self._aborted or self._failure is not None
        if is_unwanted:
            self.close()
        self._woken.set()

    def _dial(self, end: float) -> None:
        """Connect to the first address that answers; no single one may eat all of the time."""
        host, port = self._address.host, self._address.port
        if self._proxy is not None:
            host, port = self._proxy.host, self._proxy.port
        # As bytes: a name in ASCII needs no IDNA, whose tables take milliseconds to load.
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
        """Let `abort` reach the socket, from before it is connected."""
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
            data = self.receive(1)  # byte by byte: what follows the head belongs to TLS
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

    def send(
        self, head: bytes, body: bytes = b"", before_wait: Callable[[], object] = lambda: None
    ) -> None:
        """Raises TimeoutError, as `receive`."""
        sock, size = self._sock or self._socket(), len(head) + len(body)
        try:
            if self._is_secured:
                sent = sock.send(head + body)
            else:  # as two pieces: a body may be large
                sent = sock.sendmsg((head, body), (), socket.MSG_DONTWAIT)
        except BlockingIOError:
            sent = 0
        if sent < size:
            before_wait()
            try:
                sock.sendall(memoryview(head + body)[sent:])
            except BlockingIOError as error:
                raise TimeoutError("timed out") from error

    def receive(self, limit: int) -> bytes:
        """The next bytes as soon as there are some; empty when the server closed."""
        try:
            return (self._sock or self._socket()).recv(limit)
        except BlockingIOError as error:
            raise TimeoutError("timed out") from error

    def limit_wait(self, seconds: float) -> None:
        """How long one read or write may take from now on."""
        limit = max(seconds, 0.001)  # 0 would mean: do not wait at all
        if limit == self._limit:
            return
        sock = self._sock or self._socket()
        if self._is_secured:
            sock.settimeout(limit)
        else:
            # Kept by the system: Python would ask it before each read whether there is something.
            span = int(limit).to_bytes(LONG, sys.byteorder)
            span += int(limit % 1 * 1_000_000).to_bytes(LONG, sys.byteorder)
            try:
                sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVTIMEO, span)
                sock.setsockopt(socket.SOL_SOCKET, socket.SO_SNDTIMEO, span)
                sock.settimeout(None)
            except OSError:  # a system that counts its seconds in other numbers
                sock.settimeout(limit)
        self._limit = limit

    def is_readable(self, seconds: float) -> bool:
        """Whether something comes within this time; False where TLS does not tell."""
        sock = self._socket()
        if self._is_secured and sock.pending():  # type: ignore[attr-defined]  # an SSLSocket
            return True  # it has come, and was not asked for yet
        if self._is_secured and seconds:
            return False  # what comes may be less than a record, and then nothing of it can be read
        if self._readable is None:
            self._readable = select.poll()
            self._readable.register(sock, select.POLLIN)
        return bool(self._readable.poll(seconds * 1000))

    def abort(self) -> None:
        """Make every wait of this connection end now."""
        with self._lock:
            self._aborted = True
            sock = self._sock
        if sock is not None:
            try:
                # Past SSLSocket's own method: it would pull the TLS state from under the reader.
                socket.socket.shutdown(sock, socket.SHUT_RDWR)
            except OSError:
                pass  # not connected yet, or closed already
        self._woken.set()

    def close(self) -> None:
        with self._lock:
            self.is_open = False
            if self._opening:
                self._aborted = True  # the thread that opens it is using the socket, and closes it
            elif self._sock is not None:
                self._sock.close()
