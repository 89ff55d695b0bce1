"""The test server of MCP behind HTTP on this machine, of either era; it misbehaves on demand."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from support.mcp_server import Server


class HttpServer(Server):
    """Answers by JSON, or by a stream when something is to be told before the result."""

    def __init__(self, options: dict) -> None:
        super().__init__(options)
        self.requests: list[tuple[str, dict[str, str], dict]] = []
        self.sessions = 0
        self.lost = False
        """The next request with a session is told that there is none."""
        self.refuse: int = 0
        """A status to answer with."""
        self.told: list[dict] = []
        self.streams: list = []

    def send(self, **message: object) -> None:
        message = {"jsonrpc": "2.0", **message}
        if message.get("method", "").endswith("list_changed"):
            for stream in self.streams:
                stream.put(message)
        else:
            self.told.append(message)


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: Listener

    def log_message(self, format: str, *args: object) -> None:
        pass

    def do_POST(self) -> None:
        mcp = self.server.mcp
        message = json.loads(self.rfile.read(int(self.headers["content-length"])))
        method = message.get("method", "")
        mcp.requests.append((method, {k.lower(): v for k, v in self.headers.items()}, message))
        if mcp.refuse:
            self.answer(mcp.refuse, b"<html>no</html>", "text/html")
        elif not self.is_known():
            challenge = mcp.options.get("challenge", "Bearer")
            self.answer(401, b"", "text/plain", {"WWW-Authenticate": challenge})
        elif method == "subscriptions/listen":
            self.stream(message["id"])
        elif mcp.lost and self.headers.get("mcp-session-id"):
            mcp.lost = False
            self.answer(404, b"", "text/plain")
        elif "id" not in message:
            mcp.handle(message)
            self.answer(202, b"", "text/plain")
        else:
            self.reply(message, method)

    def is_known(self) -> bool:
        tokens = self.server.mcp.options.get("tokens")
        bearer = self.headers.get("authorization", "").removeprefix("Bearer ")
        return tokens is None or bearer in tokens

    def reply(self, message: dict, method: str) -> None:
        mcp = self.server.mcp
        mcp.told = []
        answer = mcp.answer(message["id"], method, message.get("params") or {})
        if answer is None:
            threading.Event().wait(5)  # it hangs; whoever asked hangs up
            self.close_connection = True
            return
        lines = [*mcp.told, {"jsonrpc": "2.0", "id": message["id"], **answer}]
        headers = {}
        if method == "initialize":
            mcp.sessions += 1
            headers["Mcp-Session-Id"] = f"session-{mcp.sessions}"
        if len(lines) == 1:
            self.answer(200, json.dumps(lines[0]).encode(), "application/json", headers)
        else:
            body = "".join(f": alive\n\ndata: {json.dumps(line)}\n\n" for line in lines)
            self.answer(200, body.encode(), "text/event-stream", headers)

    def do_GET(self) -> None:
        self.stream(None)

    def do_DELETE(self) -> None:
        self.server.mcp.requests.append(("DELETE", dict(self.headers), {}))
        self.answer(200, b"", "text/plain")

    def stream(self, id: object) -> None:
        """A stream that stays open; what is put into it is told."""
        import queue

        messages: queue.SimpleQueue = queue.SimpleQueue()
        self.server.mcp.streams.append(messages)
        self.send_response(200)
        self.send_header("content-type", "text/event-stream")
        self.send_header("connection", "close")
        self.end_headers()
        self.close_connection = True
        try:
            while (message := messages.get()) is not None:
                self.wfile.write(f"data: {json.dumps(message)}\n\n".encode())
                self.wfile.flush()
        except OSError:
            pass

    def answer(self, status: int, body: bytes, kind: str, headers: dict | None = None) -> None:
        self.send_response(status)
        for name, value in (headers or {}).items():
            self.send_header(name, value)
        self.send_header("content-type", kind)
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)


class Listener(ThreadingHTTPServer):
    daemon_threads = True
    block_on_close = False
    mcp: HttpServer


@contextmanager
def http_server(**options: object) -> Iterator[tuple[str, HttpServer]]:
    listener = Listener(("127.0.0.1", 0), Handler)
    listener.mcp = HttpServer(options)
    thread = threading.Thread(target=listener.serve_forever, args=(0.05,), daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{listener.server_port}/mcp", listener.mcp
    finally:
        for stream in listener.mcp.streams:
            stream.put(None)
        listener.shutdown()
        thread.join()
        listener.server_close()
