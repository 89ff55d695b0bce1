"""A link to a server by streamable HTTP: one POST per message, answered by JSON or a stream.

Redirects are not followed: a token is sent only to the configured address.
"""

from __future__ import annotations

import threading
import time
from binascii import b2a_base64
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from itertools import count

from msgspec import Raw, Struct

from zot.cancel import Cancel
from zot.children.logfile import LogFile
from zot.errors import BadResponse, Cancelled, ConfigError, McpError, ProviderError
from zot.jsonrpc import (
    RpcAnswer,
    RpcFault,
    RpcGarbage,
    RpcHandler,
    RpcNotification,
    RpcPeer,
    read_message,
    request_line,
)
from zot.mcp import link
from zot.mcp.config import ServerConfig, check_address
from zot.mcp.oauth import McpAuth
from zot.mcp.protocol import MODERN
from zot.provider.address import split_query
from zot.provider.http import Http, HttpAnswer, Splitter
from zot.provider.types import Json
from zot.text import Frozen

MAX_BODY = 16 * 1024 * 1024
NOTICE_SECONDS = 10.0
"""Timeout of a message that has no answer."""
HTTP_ERROR = -32000
MAX_RECONNECTS = 5
LONGEST_PAUSE = 10.0
"""Maximum seconds before a reconnect, whatever the server wants."""
ACCEPT = "application/json, text/event-stream"


# --- server-sent events ----------------------------------------------------------------------


class ServerEvent(Frozen):
    data: bytes
    id: str | None = None
    retry: float | None = None
    """Seconds to wait before a reconnect."""


class EventReader:
    """Parses a body that arrives in pieces cut anywhere, and returns complete events."""

    def __init__(self) -> None:
        self._splitter = Splitter("it", MAX_BODY)

    def feed(self, piece: bytes) -> list[ServerEvent]:
        """Return the events that end within this piece. Raises McpError for one that is too
        long."""
        try:
            blocks = self._splitter.complete(piece).split(b"\n\n")
        except BadResponse as error:
            raise McpError(str(error)) from error
        return [event for block in blocks if (event := _event(block)) is not None]


def _event(block: bytes) -> ServerEvent | None:
    data: list[bytes] = []
    id: str | None = None
    retry: float | None = None
    for line in block.split(b"\n"):
        field, _, value = line.partition(b":")
        value = value.removeprefix(b" ")
        match field:
            case b"data":
                data.append(value)
            case b"id" if b"\0" not in value:
                id = value.decode("utf-8", "replace")
            case b"retry" if value.isdigit() and len(value) < 10:
                retry = int(value) / 1000
    if not data and id is None and retry is None:
        return None
    return ServerEvent(b"\n".join(data), id, retry)


# --- the link --------------------------------------------------------------------------------


class StreamPlace(Struct):
    """Position in a streamed answer, for a reconnect."""

    last_id: str | None = None
    pause: float = 1.0


class HttpLink:
    """A link by HTTP. Raises ConfigError for an address that must not be used."""

    is_http = True
    hint = ""

    def __init__(
        self, config: ServerConfig, log: LogFile, handler: RpcHandler, auth: McpAuth | None
    ) -> None:
        check_address(config.url)
        base, query = split_query(config.url)
        self._path = "/" + base.partition("://")[2].partition("/")[2] + query
        self._http = Http(f"MCP server {config.name}", base, idle_seconds=3_600.0)
        self._own_headers = {name.lower(): value for name, value in config.headers.items()}
        self._name = config.name
        self._log = log
        self._auth = auth
        self._ids = count(1)
        self._session = ""
        self._version = ""
        self._closed = Cancel()
        self._threads: list[threading.Thread] = []
        self.peer = RpcPeer(lambda body: self._send("POST", body), handler, link.CANCELLED)

    def start(self) -> None:
        """Do nothing: each request has a connection of its own."""

    def is_alive(self) -> bool:
        return not self._closed.is_set()

    def request(self, ask: link.LinkRequest) -> Raw:
        id = next(self._ids)
        try:
            with _limited(ask, self._closed) as cancel:
                return self._exchange(ask, id, cancel)
        except (Cancelled, link.McpTimeout):
            if self._version != MODERN and not ask.quiet:
                self._later(lambda: self.peer.notify(link.CANCELLED, {"requestId": id}), "cancel")
            raise

    def listen(self, method: str, params: dict[str, Json]) -> None:
        self._later(lambda: self._listen(method, params), "listen")

    def last_words(self) -> str:
        return ""

    def close(self) -> None:
        if self._session and not self._closed.is_set():
            self._send("DELETE", None)
        self._closed.set()
        for thread in self._threads:
            thread.join(5)
        self._http.close()

    # --- one request -------------------------------------------------------------------------

    def _exchange(self, ask: link.LinkRequest, id: int, cancel: Cancel) -> Raw:
        self._version = ask.version
        body = request_line(id, ask.method, ask.params)
        headers = self._headers(ask.method, ask.params)
        headers |= {name.lower(): value for name, value in ask.headers.items()}
        stream = StreamPlace()
        with self._opened("POST", body, headers, cancel) as answer:
            if session := answer.headers.get("mcp-session-id"):
                self._session = session
            result = self._read(answer, ask, id, stream)
        for _ in range(MAX_RECONNECTS):
            if result is not None or stream.last_id is None:
                break
            cancel.sleep(min(stream.pause, LONGEST_PAUSE))
            resumed = {**self._headers(), "last-event-id": stream.last_id}
            with self._opened("GET", None, resumed, cancel) as answer:
                result = self._read(answer, ask, id, stream)
        if result is None:
            raise link.McpGone("it ended its answer before the result")
        return result

    @contextmanager
    def _opened(
        self, method: str, body: bytes | None, headers: dict[str, str], cancel: Cancel
    ) -> Iterator[HttpAnswer]:
        """Yield a successful answer. Raises McpError, Cancelled."""
        for _ in range(3):
            with self._answered(method, body, headers, cancel) as answer:
                if answer.status < 300:
                    yield answer
                    return
                if answer.status == 404 and self._session:
                    self._session = ""
                    raise link.McpSessionLost("its session has ended")
                refusal = self._refusal(answer)
            if answer.status not in (401, 403) or self._auth is None:
                raise refusal
            # After the exchange was closed: a login may take as long as the user needs.
            challenge = answer.headers.get("www-authenticate", "")
            if not self._auth.challenged(answer.status, challenge, cancel):
                raise refusal
        raise link.McpLogin(f"the server refuses the login; run `zot mcp login {self._name}`")

    @contextmanager
    def _answered(
        self, method: str, body: bytes | None, headers: dict[str, str], cancel: Cancel
    ) -> Iterator[HttpAnswer]:
        headers = {**headers, **self._own_headers}
        if self._auth is not None and (header := self._auth.header()):
            headers["authorization"] = header
        self._http.secret = headers.get("authorization", "").rpartition(" ")[2]
        try:
            head = self._http.head(method, self._path, headers)
            with self._http.exchange(head, body, cancel) as answer:
                yield answer
        except ProviderError as error:
            raise link.McpGone(str(error)) from error

    def _headers(
        self, method: str = "", params: Mapping[str, Json] | None = None
    ) -> dict[str, str]:
        headers = {"accept": ACCEPT, "content-type": "application/json"}
        if method != "initialize":
            headers["mcp-protocol-version"] = self._version
        if self._session:
            headers["mcp-session-id"] = self._session
        if self._version == MODERN and method:
            headers["mcp-method"] = method
            field = {"tools/call": "name", "prompts/get": "name", "resources/read": "uri"}
            if params is not None and method in field:
                headers["mcp-name"] = header_value(str(params.get(field[method])))
        return headers

    def _refusal(self, answer: HttpAnswer) -> McpError:
        try:
            body = answer.read_all(64 * 1024)
        except ProviderError:
            body = b""
        match read_message(body):
            case RpcAnswer(fault=RpcFault() as fault):
                return link.McpFault(fault)
        text = self._http.redact(body.decode("utf-8", "replace").strip())[:300] or answer.reason
        if answer.status >= 500:
            return link.McpGone(f"http {answer.status}: {text}")
        return link.McpFault(RpcFault(HTTP_ERROR, f"http {answer.status}: {text}"))

    # --- answers -----------------------------------------------------------------------------

    def _read(
        self, answer: HttpAnswer, ask: link.LinkRequest, id: int, stream: StreamPlace
    ) -> Raw | None:
        """Return the result; None: the stream ended before it."""
        kind = answer.headers.get("content-type", "").partition(";")[0].strip().lower()
        if kind != "text/event-stream":
            return self._result(answer.read_all(MAX_BODY + 1), ask, id)
        for event in self._events(answer, stream):
            if (result := self._result(event.data, ask, id)) is not None:
                return result
        return None

    def _events(self, answer: HttpAnswer, stream: StreamPlace) -> Iterator[ServerEvent]:
        reader = EventReader()
        try:
            while piece := answer.read():
                for event in reader.feed(piece):
                    stream.last_id = stream.last_id if event.id is None else event.id
                    stream.pause = stream.pause if event.retry is None else event.retry
                    if event.data.strip():
                        yield event
        except ProviderError:
            if stream.last_id is None:
                raise
            # The stream was cut, and can be resumed.

    def _result(self, data: bytes, ask: link.LinkRequest, id: int) -> Raw | None:
        """Return the result if `data` is the answer; dispatch any other message."""
        if len(data) > MAX_BODY:
            raise McpError(f"it sent an answer of more than {MAX_BODY} bytes")
        message = read_message(data)
        match message:
            case RpcAnswer(answered) if answered in (id, str(id), None):
                return link.result_of(message)
            case RpcNotification(link.PROGRESS, params) if link.progress_token(params) == ask.token:
                ask.progressed(params)
            case RpcGarbage(fault):
                raise McpError(f"its answer is no message: {fault.message}: {data[:200]!r}")
            case _:
                self.peer.dispatch(message)
        return None

    # --- in the background -------------------------------------------------------------------

    def _listen(self, method: str, params: dict[str, Json]) -> None:
        """Read the notification stream, and reconnect when it is cut: servers and proxies cut
        silent ones."""
        patience = link.Patience(10**6, self._closed)
        ask = link.LinkRequest(method, params, patience, self._version)
        stream = StreamPlace()
        tries = 0
        while tries < MAX_RECONNECTS:
            began = time.monotonic()
            if not self._read_notifications(ask, stream):
                return  # the server has no stream
            tries = tries + 1 if time.monotonic() - began < LONGEST_PAUSE else 0
            self._closed.sleep(min(stream.pause, LONGEST_PAUSE))

    def _read_notifications(self, ask: link.LinkRequest, stream: StreamPlace) -> bool:
        """Read until the stream ends; False: the server has none."""
        headers = self._headers(ask.method, ask.params)
        if ask.method:
            verb, body = "POST", request_line(next(self._ids), ask.method, ask.params)
        else:
            verb, body = "GET", None
            headers["accept"] = "text/event-stream"
            if stream.last_id is not None:
                headers["last-event-id"] = stream.last_id
        try:
            with self._answered(verb, body, headers, self._closed) as answer:
                kind = answer.headers.get("content-type", "")
                if answer.status != 200 or not kind.startswith("text/event-stream"):
                    return False
                for event in self._events(answer, stream):
                    self._result(event.data, ask, 0)
        except link.McpGone as error:
            self._log.note(f"its stream of notifications was cut: {error}")
        return True

    def _send(self, method: str, body: bytes | None) -> None:
        """Send a message that has no answer; a failure is only logged."""
        cancel = Cancel()
        timer = threading.Timer(NOTICE_SECONDS, cancel.set)
        timer.daemon = True
        timer.start()

        def send() -> None:
            with self._answered(method, body, self._headers(), cancel):
                pass

        self._quietly(send)
        timer.cancel()

    def _quietly(self, work: Callable[[], None]) -> None:
        """Run work that nobody waits for; a failure is only logged."""
        try:
            work()
        except (McpError, ConfigError) as error:
            self._log.note(str(error))
        except Cancelled:
            pass

    def _later(self, work: Callable[[], None], job: str) -> None:
        name = f"mcp-{self._name}-{job}"
        thread = threading.Thread(target=self._quietly, args=(work,), name=name, daemon=True)
        self._threads = [*(old for old in self._threads if old.is_alive()), thread]
        thread.start()


@contextmanager
def _limited(ask: link.LinkRequest, closed: Cancel) -> Iterator[Cancel]:
    """Yield a Cancel that is set by the turn's, by closing the link, and by the timeout. Raises
    McpTimeout: the time is over; McpGone: the link was closed; Cancelled: the turn was aborted."""
    cancel = Cancel()
    over = threading.Event()
    patience = ask.patience

    def watch() -> None:
        while not over.wait(patience.left or 0.001):
            if not patience.left:
                cancel.set()
                return

    watcher = threading.Thread(target=watch, name="mcp-patience", daemon=True)
    with patience.cancel.calling(cancel.set), closed.calling(cancel.set):
        watcher.start()
        try:
            yield cancel
        except Cancelled:
            patience.cancel.check()
            if closed.is_set():
                raise link.McpGone("the server was stopped") from None
            raise ask.timed_out() from None
        finally:
            over.set()


def header_value(text: str) -> str:
    """Encode a text for a header."""
    plain = text.isascii() and all(" " <= char <= "~" for char in text)
    if plain and text == text.strip() and not (text.startswith("=?base64?") and text[-2:] == "?="):
        return text
    data = text.encode("utf-8", "replace")
    return f"=?base64?{b2a_base64(data, newline=False).decode()}?="
