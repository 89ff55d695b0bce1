"""Incremental HTTP response parser: takes bytes cut anywhere, gives head and body. No I/O.

Uses the grammar of httptools (llhttp), which is strict: a response with an ambiguous length is
refused. This module adds the limits that it lacks.
"""

from __future__ import annotations

from httptools import HttpParserError, HttpParserUpgrade, HttpResponseParser

MAX_HEAD = 64 * 1024
"""Maximum bytes of a head with all that precedes it, and of consecutive framing without body."""


class ResponseParser:
    """Parses one response and detects its end; `begin` prepares for the next one."""

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
