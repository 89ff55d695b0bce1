"""One HTTP answer: bytes in, cut anywhere; its head and body out. No I/O.

The grammar is httptools' (llhttp), which is strict: an answer whose length can be read in two ways
is refused. What it does not limit, this file does.
"""

from __future__ import annotations

from httptools import HttpParserError, HttpParserUpgrade, HttpResponseParser

MAX_HEAD = 64 * 1024
"""Bytes of a head with all that comes before it, and of framing in a row that carries no body."""


class ResponseParser:
    """Reads one answer, and tells where it ends; then the next one, if it is told to."""

    def __init__(self) -> None:
        self._body: list[bytes] = []
        self.on_body = self._body.append  # httptools calls it; one Python frame less for each delta
        self._parser = HttpResponseParser(self)
        self.begin()

    def begin(self) -> None:
        """Nothing of the answer was read yet. Of the one before, everything was."""
        self.status = 0
        self.reason = ""
        self.headers: dict[str, str] = {}
        """Names in lower case; what was sent twice is joined by a comma."""
        self.has_head = False
        self.is_complete = False
        self.keeps_alive = False
        """Once complete: the server is willing to take another request."""
        self.error = ""
        """What makes it no answer; the body before it still counts."""
        self._size = 0
        """Pieces of the body that belong to this answer, once it is complete."""
        self._barren = 0

    @property
    def wanted(self) -> int:
        """How many bytes may be fed at most: a head gets no more than its limit."""
        return MAX_HEAD if self.has_head else MAX_HEAD - self._barren

    def feed(self, data: bytes) -> bytes:
        """The part of the body that these bytes hold. What is wrong with them is in `error`."""
        try:
            self._parser.feed_data(data)
        except HttpParserUpgrade:
            self.error = "it switches to another protocol"
        except HttpParserError as error:
            if self.is_complete:  # it is what follows the answer: nobody reads it, nor more
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
        """The server closed the connection: whether the answer is whole."""
        if not self.is_complete and self.has_head and not self.error and not self._is_framed():
            self.is_complete = True
        return self.is_complete

    def _is_framed(self) -> bool:
        return "content-length" in self.headers or "transfer-encoding" in self.headers

    # --- called by httptools -----------------------------------------------------------------

    def on_message_begin(self) -> None:
        if self.is_complete:
            self.keeps_alive = False  # a second answer, to nothing that was asked

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
        if 100 <= status < 200:  # "go on", before the answer itself
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
