"""A way to the hub that a test can cut at an exact moment: between a worker and the real hub."""

import http.client
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer


class FaultyWay(ThreadingHTTPServer):
    """Passes requests on. `at` gets each one twice, "before" and "after" the hub has it; when it
    returns True the worker hears nothing, as if the connection broke."""

    daemon_threads = True

    def __init__(self, hub_port):
        super().__init__(("127.0.0.1", 0), Handler)
        self.hub_port = hub_port
        self.at = lambda when, path, body: False
        self.url = f"http://127.0.0.1:{self.server_address[1]}"
        threading.Thread(target=self.serve_forever, args=(0.05,), daemon=True).start()

    def close(self):
        self.shutdown()
        self.server_close()

    def once(self, when, is_it, do):
        """At the first request that `is_it` likes, do this and break the connection."""
        lock = threading.Lock()
        happened = threading.Event()

        def look(now, path, body):
            with lock:
                if happened.is_set() or now != when or not is_it(path, body):
                    return False
                do()
                happened.set()
                return True

        self.at = look
        return happened

    def handle_error(self, request, client_address):
        pass  # a worker that was killed hangs up in the middle


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_GET(self):
        body = self.rfile.read(int(self.headers.get("content-length") or 0))
        if self.server.at("before", self.path, body):
            self.close_connection = True
            return
        hub = http.client.HTTPConnection("127.0.0.1", self.server.hub_port, timeout=60)
        try:
            headers = {"authorization": self.headers["authorization"]}
            hub.request(self.command, self.path, body or None, headers)
            answer = hub.getresponse()
            data = answer.read()
        except OSError:
            self.close_connection = True
            return
        finally:
            hub.close()
        if self.server.at("after", self.path, body):
            self.close_connection = True
            return
        self.send_response(answer.status)
        if answer.status != 204:
            self.send_header("content-length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    do_POST = do_GET

    def log_message(self, *words):
        pass


def is_end(path, body):
    return "/rows?" in path and b'"swarm_run_over"' in body


def is_final(path, body):
    return "/tip?" in path and "final=1" in path
