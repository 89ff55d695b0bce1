"""A model server that answers each request with the next list of prepared events."""

from __future__ import annotations

import json
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any


class CannedServer:
    def __init__(self, *answers: list[dict[str, Any]]) -> None:
        self.bodies: list[dict[str, Any]] = []
        self.headers: list[dict[str, str]] = []
        waiting = list(answers)
        seen = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                seen.headers.append({name.lower(): value for name, value in self.headers.items()})
                size = int(self.headers["content-length"])
                seen.bodies.append(json.loads(self.rfile.read(size)))
                self.send_response(200)
                self.send_header("content-type", "text/event-stream")
                self.end_headers()
                for event in waiting.pop(0):
                    self.wfile.write(f"data: {json.dumps(event)}\n\n".encode())

            def log_message(self, format: str, *args: object) -> None:
                """Say nothing."""

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self._server.server_port}"
        self._thread = threading.Thread(target=self._server.serve_forever, daemon=True)
        self._thread.start()

    def __enter__(self) -> CannedServer:
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()
